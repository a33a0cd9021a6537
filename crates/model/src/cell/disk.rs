//! How a guest sees a disk. Drivers are names of entries of `vmio-rig`'s `disks/drivers`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Host page cache between the guest's disk and the backing storage (QEMU `cache=`; qemu(1),
/// "Block device options").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// `cache=none`: O_DIRECT, the guest's flushes are passed on.
    None,
    /// `cache=writeback`: through the host's page cache, the guest's flushes are passed on.
    Writeback,
    /// `cache=writethrough`: through the host's page cache, each write is flushed before it is
    /// acknowledged; the guest sees no write cache.
    Writethrough,
    /// `cache=directsync`: O_DIRECT, and each write is flushed before it is acknowledged.
    Directsync,
    /// `cache=unsafe`: through the host's page cache, the guest's flushes are dropped: flushed writes are lost when the
    /// host fails.
    Unsafe,
}

impl Cache {
    /// All modes, common ones first.
    pub const ALL: [Cache; 5] = [Cache::None, Cache::Writeback, Cache::Writethrough, Cache::Directsync, Cache::Unsafe];

    /// Whether the host's page cache is bypassed (QEMU `cache.direct`).
    pub fn direct(self) -> bool {
        matches!(self, Cache::None | Cache::Directsync)
    }

    /// Whether the guest sees a disk with a volatile write cache, which it must flush (QEMU
    /// `cache.writeback`, the device's `write-cache`).
    pub fn write_cache(self) -> bool {
        !matches!(self, Cache::Writethrough | Cache::Directsync)
    }

    /// Whether the guest's flushes are dropped (QEMU `cache.no-flush`).
    pub fn no_flush(self) -> bool {
        self == Cache::Unsafe
    }
}

/// How QEMU submits I/O (`aio=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Aio {
    /// A pool of threads that call pread/pwrite.
    Threads,
    /// Linux AIO; needs O_DIRECT.
    Native,
    /// io_uring.
    #[serde(rename = "io_uring")]
    IoUring,
}

/// What QEMU does with zeroes that a guest writes (QEMU `detect-zeroes=`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DetectZeroes {
    /// Writes them as data.
    #[default]
    Off,
    /// Writes them as "zeroes", which may cost no data on the host.
    On,
    /// Like `on`, and frees the blocks where discard is passed on.
    Unmap,
}

/// Less common settings of a disk. QEMU's default applies where one is not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// Request queues of the device (`num-queues`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Number of I/O threads that the queues are spread over (`iothread-vq-mapping`, QEMU 9 and
    /// newer, virtio-blk); `None` without such a mapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_iothreads: Option<u32>,
    /// Whether discards of the guest are passed on (`discard=unmap`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub discard: bool,
    /// What is done with written zeroes.
    #[serde(skip_serializing_if = "DetectZeroes::is_off")]
    pub detect_zeroes: DetectZeroes,
}

impl DetectZeroes {
    /// All, QEMU's default first.
    pub const ALL: [DetectZeroes; 3] = [DetectZeroes::Off, DetectZeroes::On, DetectZeroes::Unmap];

    fn is_off(&self) -> bool {
        *self == DetectZeroes::Off
    }
}

impl Aio {
    /// All engines.
    pub const ALL: [Aio; 3] = [Aio::Threads, Aio::Native, Aio::IoUring];
}

impl Options {
    fn is_default(&self) -> bool {
        *self == Options::default()
    }
}

/// `+q4+io2+discard+zeroes=unmap`; empty where nothing is set.
impl std::fmt::Display for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(n) = self.queues {
            write!(f, "+q{n}")?;
        }
        if let Some(n) = self.mapped_iothreads {
            write!(f, "+io{n}")?;
        }
        if self.discard {
            f.write_str("+discard")?;
        }
        match self.detect_zeroes {
            DetectZeroes::Off => Ok(()),
            on => write!(f, "+zeroes={on}"),
        }
    }
}

/// How a guest sees its disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Attachment {
    /// Entry of `disks/drivers/`, for example `virtio-blk`.
    pub driver: String,
    /// QEMU cache mode.
    pub cache: Cache,
    /// QEMU AIO engine.
    pub aio: Aio,
    /// Whether the disk has an I/O thread of its own.
    pub iothread: bool,
    /// Other settings.
    #[serde(default, skip_serializing_if = "Options::is_default")]
    pub options: Options,
}

impl Attachment {
    /// A disk without an I/O thread and with QEMU's defaults otherwise.
    pub fn new(driver: impl Into<String>, cache: Cache, aio: Aio) -> Self {
        Self { driver: driver.into(), cache, aio, iothread: false, options: Options::default() }
    }

    /// The same with or without an I/O thread.
    #[must_use]
    pub fn iothread(mut self, on: bool) -> Self {
        self.iothread = on;
        self
    }

    /// `virtio-blk,none,native+iothread+q4`.
    pub fn label(&self) -> String {
        let iothread = if self.iothread { "+iothread" } else { "" };
        format!("{},{},{}{iothread}{}", self.driver, self.cache, self.aio, self.options)
    }
}

impl std::fmt::Display for DetectZeroes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DetectZeroes::Off => "off",
            DetectZeroes::On => "on",
            DetectZeroes::Unmap => "unmap",
        })
    }
}

impl std::fmt::Display for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Cache::None => "none",
            Cache::Writeback => "writeback",
            Cache::Writethrough => "writethrough",
            Cache::Directsync => "directsync",
            Cache::Unsafe => "unsafe",
        })
    }
}

impl std::fmt::Display for Aio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Aio::Threads => "threads",
            Aio::Native => "native",
            Aio::IoUring => "io_uring",
        })
    }
}
