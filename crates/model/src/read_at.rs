//! Where settings in force were read: the keys of [`crate::run::Run::effective`], made and parsed here only.

use std::fmt;

use crate::cell::{Actor, Attachment, Kind, Nic, Side};

/// Setting of a target ([`ReadAt::Target`]): `queue/write_cache` of the disks below.
pub const WRITE_CACHE: &str = "device write_cache";
/// The same: the file server of a target, as `server:/export`.
pub const FILE_SERVER: &str = "file server";
/// The same: the logical block size of a target, in bytes.
pub const LOGICAL_BLOCK_BYTES: &str = "logical_block_bytes";

/// Where settings were read. Its `Display` is the key in stores and JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadAt {
    /// Settings of a target, read on the host: `device/native`.
    Target(String),
    /// Settings of a guest's disk, by its hypervisor: `device/qemu/virtio-blk,none,native`.
    Disk(String),
    /// Settings of a side, by its own kernel: `qemu`, `device/container`, `veth/qemu/virtio-net`.
    Side(String),
    /// Read back: the result of a cell's setting, `device/native [read-ahead=128]`, or a value that a cell found and
    /// did not change, `device/native (seq-read)`.
    ReadBack(String),
}

impl ReadAt {
    /// A target on this host.
    pub fn target(name: &str) -> ReadAt {
        ReadAt::Target(name.to_owned())
    }
    /// A target as a guest sees it: by its attachment, or without one where it shares the host's kernel.
    pub fn disk(target: &str, side: &Side, seen_by: Option<&Attachment>) -> ReadAt {
        match seen_by {
            Some(attachment) => ReadAt::Disk(format!("{target}/{side}/{}", attachment.label())),
            None => ReadAt::Side(format!("{target}/{side}")),
        }
    }
    /// A card of a guest on a network.
    pub fn card(network: &str, side: &Side, nic: &Nic) -> ReadAt {
        ReadAt::Side(format!("{network}/{side}/{}", nic.label()))
    }
    /// A side's processors.
    pub fn side(side: &Side) -> ReadAt {
        ReadAt::Side(side.to_string())
    }
    /// A setting that an actor's cell set.
    pub fn set(actor: &Actor, name: &str, value: &str) -> ReadAt {
        ReadAt::ReadBack(format!("{} [{name}={value}]", actor.place_key()))
    }
    /// A setting that an actor's cell does not name.
    pub fn kept(actor: &Actor) -> ReadAt {
        ReadAt::ReadBack(format!("{} ({})", actor.place_key(), actor.workload))
    }

    /// Parses a key of a stored run.
    pub fn of(key: &str) -> ReadAt {
        if key.contains(" [") || key.ends_with(')') {
            return ReadAt::ReadBack(key.to_owned());
        }
        match key.rsplit_once('/') {
            Some((target, side)) if Kind::of(side).is_host => ReadAt::Target(target.to_owned()),
            // A disk is named by driver, cache mode and AIO engine, a card by its model.
            Some((_, seen_by)) if seen_by.split(',').count() == 3 => ReadAt::Disk(key.to_owned()),
            _ => ReadAt::Side(key.to_owned()),
        }
    }

    /// The kind of guest whose hypervisor reported it; `None` where none did.
    pub fn guest_kind(&self) -> Option<&str> {
        let ReadAt::Disk(key) = self else { return None };
        key.rsplit('/').nth(1)?.split([':', '#']).next()
    }
}

impl fmt::Display for ReadAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadAt::Target(name) => write!(f, "{name}/{}", Kind::NATIVE.name),
            ReadAt::Disk(key) | ReadAt::Side(key) | ReadAt::ReadBack(key) => f.write_str(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Aio, Cache};

    #[test]
    fn a_key_reads_back_as_what_it_was_made_of() {
        for at in [
            ReadAt::target("device"),
            ReadAt::disk("device", &Side::of("qemu"), Some(&Attachment::new("virtio-blk", Cache::None, Aio::Native))),
            ReadAt::disk("device", &Side::of("container"), None),
            ReadAt::Side("device/ssh".into()),
            ReadAt::Side("qemu:vcpus=2#2".into()),
            ReadAt::Side("veth/qemu/virtio-net+vhost".into()),
            ReadAt::ReadBack("device/native [read-ahead=128]".into()),
            ReadAt::ReadBack("device/qemu/virtio-blk,none,native [read-ahead=128]".into()),
            ReadAt::ReadBack("device/qemu/virtio-blk,none,native (seq-read)".into()),
        ] {
            assert_eq!(ReadAt::of(&at.to_string()), at);
        }
        let attachment = Attachment::new("virtio-blk", Cache::None, Aio::Native);
        let second = Side { nth: 1, ..Side::of("cloud-hypervisor") };
        assert_eq!(ReadAt::disk("device", &second, Some(&attachment)).guest_kind(), Some("cloud-hypervisor"));
        assert_eq!(ReadAt::target("device").guest_kind(), None);
    }
}
