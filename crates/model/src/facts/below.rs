//! The storage below a disk's image or volume, as the host has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fact;
use super::fact::facts;

facts! {
    /// The storage below a disk. What could not be read is left out.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub struct Below {
        /// How the file system keeps the image, where it may copy on write.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub layout: Fact<Option<Layout>>,
        /// The file system that holds the image.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub mounted: Fact<Option<Mounted>>,
        /// The journal that the image shares with other guests.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub journal: Fact<Option<SharedJournal>>,
        /// The RAIDZ that the ZFS volume lies on.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub raidz: Fact<Option<Raidz>>,
        /// Where the guest's discards end, though what lies below takes them.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub discard_ends: Fact<Option<DiscardEnds>>,
        /// Discards that the guest sent to the device.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub discards: Fact<Option<Discards>>,
        /// Whether a VHD image grows with what is written to it.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub grows: Fact<Option<bool>>,
        /// Smallest unit that the device takes.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub host_logical_block_bytes: Fact<Option<u64>>,
        /// Smallest unit that the device writes without reading first.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub host_physical_block_bytes: Fact<Option<u64>>,
        /// The first as the guest is told it.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub guest_logical_block_bytes: Fact<Option<u64>>,
        /// The second as the guest is told it.
        #[serde(skip_serializing_if = "Fact::is_blank")]
        pub guest_physical_block_bytes: Fact<Option<u64>>,
    }
}

impl Below {
    /// Whether nothing is known.
    pub fn is_blank(&self) -> bool {
        *self == Self::default()
    }
}

/// How a file system keeps an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Layout {
    /// The file system: `btrfs`, `bcachefs`, `xfs`.
    pub filesystem: String,
    /// Whether each overwrite goes to another place; `null` where the file system does not say.
    pub copy_on_write: Option<bool>,
    /// Whether it compresses the image.
    pub compressed: bool,
    /// Its extents; `null` where they could not be counted.
    pub extents: Option<Extents>,
}

/// Extents of an image, or of parts of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Extents {
    /// How many were seen; one that reaches over several of the windows of 64 MiB counts once in each.
    pub seen: u64,
    /// In so many bytes of the image, holes included.
    pub of_bytes: u64,
    /// Whether that is the whole image.
    pub whole: bool,
    /// How many of them another file shares; 0 where that is not asked.
    pub shared: u64,
}

/// The file system that holds an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mounted {
    /// Its type: `ext4`.
    pub filesystem: String,
    /// Where it is mounted.
    pub point: String,
    /// Number of its device: `8:1`.
    pub device: String,
    /// Its own options as the kernel writes them.
    pub options: String,
}

/// A journal that several guests share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedJournal {
    /// Names of other guests, eight at most.
    pub shared_with: Vec<String>,
    /// How many other guests there are.
    #[serde(default)]
    pub others: usize,
    /// Microseconds that a commit took on average.
    pub commit_microseconds: u64,
    /// Per cent of the commits that somebody waited for.
    pub requested_percent: u64,
}

/// A RAIDZ of a ZFS pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Raidz {
    /// Disks that may fail: 1 to 3.
    pub parity: u32,
    /// Its disks.
    pub disks: u32,
}

/// A layer that does not pass discards on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscardEnds {
    /// Its name: `dm-3`, `NFS 4.1`.
    pub device: String,
    /// What it is: `LUKS`, `device mapper`, `RAID`, `NFS`.
    pub kind: String,
    /// Its name in device-mapper.
    pub mapper: Option<String>,
}

/// Discards beside writes, since the guest's process was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Discards {
    /// Requests of discards.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Requests of writes.
    pub writes: u64,
}
