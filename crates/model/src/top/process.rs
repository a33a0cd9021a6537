//! Purpose of a process's disk traffic, by its name: kernel threads have fixed names, and backup programs are known by
//! theirs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Purpose of traffic of no guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtherKind {
    /// Page cache writeback.
    Writeback,
    /// A RAID's resync, check or repair.
    Resync,
    /// A RAID's daemon, which passes others' requests on.
    Raid,
    /// ZFS's threads, which issue all of its requests: of guests on its volumes, of files, of a scrub.
    Zfs,
    /// A file system with its own disk management: transactions, scrub.
    FileSystem,
    /// The journal of a file system.
    Journal,
    /// A backup, or a copy of an image.
    Backup,
    /// A loop device, which passes others' requests on.
    Loop,
    /// Swapping.
    Swap,
    /// Encryption or device mapping, which passes others' requests on.
    Mapper,
    /// Another kernel thread.
    Kernel,
    /// Another process.
    Process,
}

impl OtherKind {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            OtherKind::Writeback => "writeback",
            OtherKind::Resync => "resync",
            OtherKind::Raid => "RAID",
            OtherKind::Zfs => "ZFS",
            OtherKind::FileSystem => "file system, scrub",
            OtherKind::Journal => "journal",
            OtherKind::Backup => "backup",
            OtherKind::Loop => "loop device",
            OtherKind::Swap => "swap",
            OtherKind::Mapper => "device mapper",
            OtherKind::Kernel => "kernel",
            OtherKind::Process => "process",
        }
    }

    /// Name in verdicts, which must not blame a thread that only passes requests on.
    pub fn words(self) -> &'static str {
        match self {
            OtherKind::Raid => "RAID, passes on",
            OtherKind::Zfs => "ZFS, for an unknown process",
            OtherKind::Loop => "loop device, passes on",
            OtherKind::Mapper => "device mapper, passes on",
            other => other.name(),
        }
    }
}

/// Programs that copy whole disks or trees, by the start of their short names (at most 15 bytes).
const BACKUP: &[&str] = &[
    "vzdump",
    "qemu-img",
    "rsync",
    "borg",
    "restic",
    "proxmox-backup",
    "pbs-",
    "duplicity",
    "duplicati",
    "rclone",
    "virtnbdbackup",
    "bacula",
    "bareos",
    "veeam",
    "rbd",
    "zfs",
    "btrfs",
    "dump",
    "tar",
    "partclone",
    "kopia",
    "urbackup",
];

/// Purpose of a process by its name. `kernel` says whether it is a kernel thread.
pub fn kind_of(comm: &str, kernel: bool) -> OtherKind {
    let starts = |all: &[&str]| all.iter().any(|start| comm.starts_with(start));
    if !kernel {
        return if starts(BACKUP) { OtherKind::Backup } else { OtherKind::Process };
    }
    // The name of a kernel worker ends with its last work: `kworker/u8:1+flush-254:0`.
    let work = comm.strip_prefix("kworker/").and_then(|rest| rest.split_once(['+', '-']).map(|(_, work)| work));
    let works = |all: &[&str]| work.is_some_and(|w| all.iter().any(|start| w.starts_with(start)));
    // `md0`, and `md_home` of an array with a name (drivers/md/md.c, md_register_thread).
    let raid = comm.strip_prefix("md").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '_'));
    let repairs = ["_resync", "_recovery", "_reshape"].iter().any(|end| comm.ends_with(end));
    if starts(&["flush-", "bdi-"]) || works(&["flush-", "writeback", "bdi_"]) {
        OtherKind::Writeback
    } else if raid && repairs {
        OtherKind::Resync
    } else if raid && comm.contains("_raid") || works(&["raid5wq"]) {
        OtherKind::Raid
    } else if starts(&["jbd2/", "xfsaild", "xfs-"]) || works(&["xfs-", "jbd2"]) {
        OtherKind::Journal
    } else if starts(&["z_", "txg_", "dsl_", "zvol", "zthr", "dp_"]) {
        OtherKind::Zfs
    } else if starts(&["btrfs"]) || works(&["btrfs"]) {
        OtherKind::FileSystem
    } else if starts(&["kswapd"]) {
        OtherKind::Swap
    } else if starts(&["loop"]) || works(&["loop"]) {
        OtherKind::Loop
    } else if starts(&["dm", "kcryptd", "kcopyd"]) || works(&["dm", "kcryptd", "kcopyd"]) {
        OtherKind::Mapper
    } else {
        OtherKind::Kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_known_by_their_names() {
        use OtherKind::*;
        let cases = [
            ("kworker/u8:1+flush-254:0", true, Writeback),
            ("kworker/u8:1-flush-254:0", true, Writeback),
            ("flush-8:0", true, Writeback),
            ("md0_resync", true, Resync),
            ("md0_reshape", true, Resync),
            ("md_home_recovery", true, Resync),
            // The daemons that issue ordinary writes.
            ("md127_raid5", true, Raid),
            ("md0_raid1", true, Raid),
            ("md_home_raid10", true, Raid),
            ("kworker/u8:3+raid5wq", true, Raid),
            ("mdadm", false, Process),
            ("jbd2/vda1-8", true, Journal),
            ("xfsaild/dm-0", true, Journal),
            ("z_rd_int_0", true, Zfs),
            ("txg_sync", true, Zfs),
            ("btrfs-transacti", true, FileSystem),
            ("kworker/u8:3-btrfs-endio", true, FileSystem),
            ("kswapd0", true, Swap),
            ("loop3", true, Loop),
            ("kworker/u5:2+loop7", true, Loop),
            ("kcryptd/254:1", true, Mapper),
            ("kworker/3:1H-kblockd", true, Kernel),
            ("kworker/0:1", true, Kernel),
            ("kthreadd", true, Kernel),
            ("vzdump", false, Backup),
            ("proxmox-backup-", false, Backup),
            ("rsync", false, Backup),
            ("qemu-img", false, Backup),
            ("postgres", false, Process),
            // A user's process, whatever its name.
            ("kswapd0", false, Process),
        ];
        for (comm, kernel, kind) in cases {
            assert_eq!(kind_of(comm, kernel), kind, "{comm}");
        }
    }
}
