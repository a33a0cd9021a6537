//! Advice that harms under some conditions: it is withheld there, or another one given in its place. Whoever writes
//! such advice asks [`of_disk`], [`of_nic`] or [`of_processors`] first. `docs/advice.md` lists the entries.

use super::hyperv;
use crate::facts::{Disk, HostSeen, Nic, Processors, Source};

/// An advice that is not given everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// `aio=io_uring`.
    IoUring,
    /// `cache=none`.
    CacheNone,
    /// Several queue pairs of a network card.
    NicQueues,
    /// KVM in place of software emulation.
    Kvm,
    /// Hyper-V enlightenments.
    Enlightenments,
    /// No emulated HPET.
    HpetOff,
}

impl Advice {
    /// The advice in words.
    pub fn name(self) -> &'static str {
        match self {
            Advice::IoUring => "aio=io_uring",
            Advice::CacheNone => "cache=none",
            Advice::NicQueues => "several network queues",
            Advice::Kvm => "KVM",
            Advice::Enlightenments => "Hyper-V enlightenments",
            Advice::HpetOff => "hpet=off",
        }
    }
}

/// What decides.
#[derive(Clone, Copy)]
pub enum When {
    /// Facts of a disk.
    Disk(fn(&Disk) -> bool),
    /// Facts of a network card.
    Nic(fn(&Nic) -> bool),
    /// Facts of a guest's processors.
    Processors(fn(&Processors) -> bool),
}

/// A condition under which an advice is withheld.
pub struct Withheld {
    /// Stable id.
    pub id: &'static str,
    /// The advice.
    pub advice: Advice,
    /// The condition in words, to be read after "since".
    pub because: &'static str,
    /// The condition.
    pub when: When,
    /// In which of these cases a disk that has it already hangs (rule `io-uring-hangs`); `None`: in none.
    pub hangs: Option<fn(&Disk) -> bool>,
    /// What is advised in its place.
    pub instead: &'static str,
    /// Where the harm is described.
    pub source: &'static str,
}

/// All conditions.
pub const WITHHELD: &[Withheld] = &[
    Withheld {
        id: "freebsd-queues",
        advice: Advice::NicQueues,
        because: "the guest runs FreeBSD, or a system that is neither Linux nor Windows",
        when: When::Nic(|nic| matches!(nic.os.as_deref(), Some("bsd" | "other"))),
        hangs: None,
        instead: "one queue pair (`bsd-queues`)",
        source: "https://lp.zeroservices.eu (\"Virtio Multiqueue Issues on Proxmox 9 with OPNsense\"); \
                 freebsd/freebsd-src pull request 1679 (with ALTQ several queues are not used)",
    },
    Withheld {
        id: "windows-queues",
        advice: Advice::NicQueues,
        because: "the guest runs Windows",
        when: When::Nic(|nic| nic.windows == Some(true)),
        hangs: None,
        instead: "nothing",
        source: "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/237 (4.3 to 2.3 Gbit/s)",
    },
    Withheld {
        id: "io-uring-off",
        advice: Advice::IoUring,
        because: "the host's administrator turned io_uring off (kernel.io_uring_disabled)",
        when: When::Disk(|disk| host(disk).and_then(|host| host.io_uring_disabled).is_some_and(|off| off >= 1)),
        hangs: None,
        instead: "aio=threads",
        source: "Linux, Documentation/admin-guide/sysctl/kernel.rst, io_uring_disabled",
    },
    Withheld {
        id: "io-uring-old-kernel",
        advice: Advice::IoUring,
        because: "the host's kernel is older than Linux 5.13",
        when: When::Disk(|disk| host(disk).and_then(|host| host.kernel).is_some_and(|kernel| kernel < (5, 13))),
        hangs: Some(|_| true),
        instead: "aio=threads",
        source: "https://github.com/canonical/lxd/issues/10061 (guests hang); lxc/incus, driver_qemu.go (from 5.13 on)",
    },
    Withheld {
        id: "io-uring-lvm",
        advice: Advice::IoUring,
        because: "guests on LVM hung with io_uring",
        when: When::Disk(|disk| disk.details.storage.as_deref() == Some("lvm")),
        hangs: Some(|_| true),
        instead: "aio=native for a raw volume, else aio=threads",
        source: "qemu-server, `storage_allows_io_uring_default`",
    },
    Withheld {
        id: "io-uring-cifs",
        advice: Advice::IoUring,
        because: "guests on CIFS hung with io_uring",
        when: When::Disk(|disk| matches!(disk.details.filesystem(), Some("cifs" | "smb3"))),
        hangs: Some(|_| true),
        instead: "aio=threads",
        source: "qemu-server, `storage_allows_io_uring_default`",
    },
    Withheld {
        id: "io-uring-krbd",
        advice: Advice::IoUring,
        because: "guests on mapped RBD images hung with io_uring through the page cache",
        when: When::Disk(|disk| {
            let mapped = disk.details.storage.as_deref() == Some("rbd") && disk.place.block_device == Some(true);
            mapped && !disk.is_direct()
        }),
        hangs: Some(|_| true),
        instead: "aio=native for a raw image, else aio=threads",
        source: "qemu-server, `storage_allows_io_uring_default`",
    },
    Withheld {
        id: "io-uring-old-qemu",
        advice: Advice::IoUring,
        because: "QEMU before 5.0 does not know it and would not start",
        when: When::Disk(|disk| qemu_major(disk).is_some_and(|major| major < 5)),
        hangs: None,
        instead: "aio=threads",
        source: "QEMU 5.0, ChangeLog (aio=io_uring)",
    },
    Withheld {
        id: "io-uring-qemu-7.1",
        advice: Advice::IoUring,
        because: "QEMU 7.1.0 hangs with io_uring in an I/O thread",
        when: When::Disk(|disk| disk.details.hypervisor.as_deref() == Some("QEMU 7.1.0")),
        hangs: Some(|disk| disk.iothread == Some(true)),
        instead: "aio=threads",
        source: "https://gitlab.com/qemu-project/qemu/-/issues/1193",
    },
    Withheld {
        id: "cache-none-btrfs",
        advice: Advice::CacheNone,
        because: "the guest can change a block while btrfs or bcachefs computes its checksum: a false I/O error before \
                  Linux 6.15, no direct write from then on",
        // Without copy on write (No_COW) there are no checksums; unknown counts as with.
        when: When::Disk(|disk| {
            let layout = disk.details.below.layout.as_ref();
            matches!(disk.details.filesystem(), Some("btrfs" | "bcachefs"))
                && layout.and_then(|layout| layout.copy_on_write) != Some(false)
        }),
        hangs: None,
        instead: "cache=writeback",
        source: "Linux, commit 968f19c5b1b7 (btrfs: always fallback to buffered write if the inode requires checksum)",
    },
    Withheld {
        id: "cache-none-in-memory",
        advice: Advice::CacheNone,
        because: "tmpfs before Linux 6.6 and ramfs refuse O_DIRECT, and QEMU would not start",
        when: When::Disk(|disk| match disk.details.in_memory.as_deref() {
            Some("tmpfs") => {
                let kernel = disk.details.host.as_ref().and_then(|host| host.kernel);
                kernel.is_none_or(|kernel| kernel < (6, 6))
            }
            other => other == Some("ramfs"),
        }),
        hangs: None,
        instead: "cache=writeback",
        source: "Linux, mm/shmem.c (direct I/O since 6.6)",
    },
    Withheld {
        id: "cache-none-zfs-file",
        advice: Advice::CacheNone,
        because: "ZFS has a cache of its own below a file, and guests hung with O_DIRECT there",
        when: When::Disk(|disk| disk.details.filesystem() == Some("zfs")),
        hangs: None,
        instead: "cache=writeback",
        source: "canonical/lxd, lxd/instance/drivers/driver_qemu.go, `addDriveConfig`",
    },
    Withheld {
        id: "kvm-tried",
        advice: Advice::Kvm,
        because: "a test guest of vmio's failed to boot with KVM",
        when: When::Processors(|p| p.kvm_here == Some(false) && p.kvm_here.source() == Some(&Source::TestBoot)),
        hangs: None,
        instead: "mend KVM first",
        source: "`vmio doctor`",
    },
    Withheld {
        id: "hpet-without-timers",
        advice: Advice::HpetOff,
        because: "without synthetic timers Windows takes the slower RTC in place of the HPET",
        when: When::Processors(|p| !hyperv::has_timers(p)),
        hangs: None,
        instead: "the timers (`windows-no-enlightenments`)",
        source: "https://github.com/virt-manager/virt-manager/issues/205",
    },
    Withheld {
        id: "windows-before-vista",
        advice: Advice::Enlightenments,
        because: "Windows before Vista knows no enlightenments",
        when: When::Processors(|p| p.os_release.as_deref().is_some_and(is_before_vista)),
        hangs: None,
        instead: "nothing",
        source: "qemu-server, PVE/QemuServer/CPUConfig.pm, `get_hyperv_enlightenments`",
    },
];

fn host(disk: &Disk) -> Option<&HostSeen> {
    disk.details.host.as_ref()
}

/// By Proxmox VE's name of the system, or libosinfo's id.
fn is_before_vista(release: &str) -> bool {
    match release.strip_prefix("microsoft.com/win/") {
        Some(id) => {
            id.starts_with("nt")
                || matches!(id, "1.0" | "2.0" | "2.1" | "3.1" | "95" | "98" | "me" | "xp" | "2k" | "2k3" | "2k3r2")
        }
        None => matches!(release, "wxp" | "w2k" | "w2k3"),
    }
}

fn first(advice: Advice, holds: impl Fn(When) -> bool) -> Option<&'static Withheld> {
    WITHHELD.iter().find(|entry| entry.advice == advice && holds(entry.when))
}

/// Why an advice is withheld for this disk; `None` where it is given.
pub fn of_disk(disk: &Disk, advice: Advice) -> Option<&'static Withheld> {
    first(advice, |when| matches!(when, When::Disk(holds) if holds(disk)))
}

/// Why this disk hangs with an engine that it may have already: of the conditions of io_uring the first that holds.
pub fn hang_of_disk(disk: &Disk) -> Option<&'static Withheld> {
    let holds = |entry: &&Withheld| {
        let is_here = matches!(entry.when, When::Disk(holds) if holds(disk));
        entry.advice == Advice::IoUring && is_here && entry.hangs.is_some_and(|hangs| hangs(disk))
    };
    WITHHELD.iter().find(holds)
}

/// Why an advice is withheld for this network card; `None` where it is given.
pub fn of_nic(nic: &Nic, advice: Advice) -> Option<&'static Withheld> {
    first(advice, |when| matches!(when, When::Nic(holds) if holds(nic)))
}

/// Why an advice is withheld for these processors; `None` where it is given.
pub fn of_processors(p: &Processors, advice: Advice) -> Option<&'static Withheld> {
    first(advice, |when| matches!(when, When::Processors(holds) if holds(p)))
}

/// Major version of the QEMU that runs a disk's guest.
fn qemu_major(disk: &Disk) -> Option<u32> {
    disk.details.hypervisor.as_deref()?.strip_prefix("QEMU ")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::facts::{Fact, Facts};
    use crate::result::Accel;
    use crate::rules::best_practice::all_wrong;
    use crate::rules::findings;
    use crate::testing::on_filesystem;

    /// Makes an entry's condition true.
    fn apply(id: &str, facts: &mut Facts) {
        for disk in &mut facts.disks {
            let host = |kernel, io_uring_disabled| {
                Some(HostSeen { kernel: Some(kernel), io_uring_disabled: Some(io_uring_disabled), clock_source: None })
            };
            match id {
                "io-uring-off" => disk.details.host = host((6, 12), 1).into(),
                "io-uring-old-kernel" => disk.details.host = host((5, 10), 0).into(),
                "io-uring-lvm" => disk.details.storage = "lvm".into(),
                "io-uring-cifs" => disk.details.below = on_filesystem("cifs"),
                "io-uring-krbd" => {
                    disk.details.storage = "rbd".into();
                    disk.place.block_device = Some(true);
                    disk.cache = "writeback".into();
                }
                "io-uring-old-qemu" => disk.details.hypervisor = "QEMU 4.2.1".into(),
                "cache-none-in-memory" => disk.details.in_memory = "ramfs".into(),
                "io-uring-qemu-7.1" => disk.details.hypervisor = "QEMU 7.1.0".into(),
                "cache-none-btrfs" => disk.details.below = on_filesystem("btrfs"),
                "cache-none-zfs-file" => disk.details.below = on_filesystem("zfs"),
                _ => {}
            }
        }
        for nic in &mut facts.nics {
            match id {
                "freebsd-queues" => nic.os = "bsd".into(),
                "windows-queues" => nic.windows = Some(true).into(),
                _ => {}
            }
        }
        for p in &mut facts.processors {
            match id {
                "kvm-tried" => {
                    p.accel = Some(Accel::Tcg).into();
                    p.kvm_here = Fact::read(Some(false), Source::TestBoot);
                }
                "hpet-without-timers" => p.flags = vec!["hv_relaxed".to_owned()].into(),
                "windows-before-vista" => p.os_release = "wxp".into(),
                _ => {}
            }
        }
    }

    /// What a change has in it where the advice is given.
    fn words(advice: Advice) -> &'static [&'static str] {
        match advice {
            Advice::IoUring => &["io_uring"],
            Advice::CacheNone => &["cache=none", "cache='none'", "cache.direct=on"],
            Advice::NicQueues => &["mq=on", "\"$card,queues="],
            Advice::Kvm => &["-accel kvm", "type='kvm'", "--kvm 1"],
            Advice::Enlightenments => &["hv_relaxed", "<relaxed", "--ostype"],
            Advice::HpetOff => &["hpet=off", "name='hpet' present='no'"],
        }
    }

    /// Texts of changes in which the advice is given.
    fn given(advice: Advice, all: &[Facts]) -> Vec<String> {
        let found = all.iter().flat_map(findings);
        let texts = found.flat_map(|f| {
            let change = f.change;
            [change.what, change.qemu, change.libvirt, change.proxmox].map(|text| format!("{}: {text}", f.rule))
        });
        // "What" may say why it is not.
        texts.filter(|text| words(advice).iter().any(|word| text.contains(word) && !text.contains("since"))).collect()
    }

    #[test]
    fn each_is_tried() {
        let ids: BTreeSet<&str> = WITHHELD.iter().map(|entry| entry.id).collect();
        assert_eq!(ids.len(), WITHHELD.len());
        for entry in WITHHELD {
            let mut all = all_wrong();
            assert!(!given(entry.advice, &all).is_empty(), "{} is never advised", entry.advice.name());
            all.iter_mut().for_each(|facts| apply(entry.id, facts));
            assert_eq!(given(entry.advice, &all), [] as [String; 0], "{}", entry.id);
        }
    }

    #[test]
    fn releases_of_windows_before_vista() {
        let old = ["wxp", "w2k3", "microsoft.com/win/xp", "microsoft.com/win/nt4.0", "microsoft.com/win/2k3r2"];
        assert!(old.iter().all(|release| is_before_vista(release)));
        let new = ["wvista", "w2k8", "win7", "other", "microsoft.com/win/2k8", "microsoft.com/win/11", "xp"];
        assert_eq!(new.iter().find(|release| is_before_vista(release)), None);
    }
}
