//! Direct I/O on btrfs with checksums. The guest may change a block while it is written, after btrfs computed its
//! checksum: the data is right, the checksum is not, and a later read fails. Since Linux 6.15 (commit 968f19c5b1b7,
//! fs/btrfs/direct-io.c, `btrfs_direct_write`) such writes go through the page cache instead, and are waited for.

use super::change::{self, AppliesAt, Change, DiskChange};
use super::live::{Live, seen};
use super::{Check, Evidence, Finding, Need, Rule, Severity};
use crate::cell::{Aio, Cache};
use crate::facts::Disk;

/// The first kernel whose direct writes to such files are safe.
const SAFE: (u32, u32) = (6, 15);
/// The first of which some releases have that change, too: it was sent to the stable trees.
const PERHAPS: (u32, u32) = (6, 12);

pub(super) const RULE: Rule = Rule {
    id: "direct-io-on-checksums",
    title: "Checksums break under direct I/O",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &[
        "Linux, commit 968f19c5b1b7 (btrfs: always fallback to buffered write if the inode requires checksum)",
        "https://github.com/canonical/lxd/issues/9124",
    ],
    checks: &[Check::Disk(live)],
    #[cfg(test)]
    fixture: (|| fixture::kernel((6, 1)), || fixture::kernel((6, 15))),
    ..Rule::PLAIN
};

/// Whether the disk's cache mode opens an image with checksums for direct I/O; with the kernel's version.
fn direct(disk: &Disk) -> Option<(u32, u32)> {
    let layout = disk.details.below.layout.as_ref()?;
    let checksums = layout.filesystem == "btrfs" && layout.copy_on_write == Some(true);
    disk.details.host.as_ref()?.kernel.filter(|_| checksums && disk.is_direct())
}

/// How much it matters, where checksums may break.
pub(super) fn breaks(disk: &Disk) -> Option<Severity> {
    match direct(disk)? {
        kernel if kernel < PERHAPS => Some(Severity::Warning),
        kernel if kernel < SAFE => Some(Severity::Advice),
        _ => None,
    }
}

/// Whether direct writes go through the page cache.
pub(super) fn is_buffered(disk: &Disk) -> bool {
    direct(disk).is_some_and(|kernel| kernel >= SAFE)
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let severity = breaks(disk)?;
    let (major, minor) = direct(disk)?;
    let perhaps = match severity {
        Severity::Warning => "",
        _ => ", 6.12 to 6.14 only where the distribution took the fix",
    };
    let cause = format!(
        "cache={} on btrfs with checksums: the guest may change a block while it is written, so that checksum and data \
         differ, and a later read fails with an I/O error. Linux 6.15 and newer avoid it{perhaps}; here runs \
         {major}.{minor}.",
        disk.cache.as_deref().unwrap_or("none")
    );
    let [cache] = seen![disk; cache];
    let mut finding = rule.advice(disk, &[cache, evidence(disk)], &cause, either(disk));
    finding.severity = severity;
    Some(finding)
}

/// How the file system keeps the image.
pub(super) fn evidence(disk: &Disk) -> Option<Evidence> {
    let fact = &disk.details.below.layout;
    let layout = fact.as_ref()?;
    let copies = match layout.copy_on_write {
        Some(true) => "copies on write",
        Some(false) if layout.filesystem == "xfs" => "copies shared blocks",
        _ => "does not copy",
    };
    let compressed = if layout.compressed { ", compressed" } else { "" };
    let value = format!("{}, {copies}{compressed}", layout.filesystem);
    Some(Evidence { setting: "file system".to_owned(), value, from: fact.source_or(disk.from()) })
}

/// No_COW, or the page cache.
fn either(disk: &Disk) -> Change {
    let anew = change::without_cow("", &disk.place, "btrfs");
    let native = disk.aio.as_deref() == Some("native");
    let to = DiskChange { cache: Some(Cache::Writeback), aio: native.then_some(Aio::Threads), ..DiskChange::default() };
    let cached = change::own_disk("", disk, &to);
    // The second as comments, or one who pastes all would do both.
    let both = |one: &str, other: &str| {
        let other: String = other.lines().map(|line| format!("\n# {line}")).collect();
        format!("# either: an image without checksums\n{one}\n# or: the page cache{other}")
    };
    Change {
        what: "Recreate the image with No_COW, or keep the checksums with cache=writeback.".to_owned(),
        qemu: both(&anew.qemu, &cached.qemu),
        libvirt: both(&anew.libvirt, &cached.libvirt),
        proxmox: both(&anew.proxmox, &cached.proxmox),
        takes: AppliesAt::ShutDown,
        // Two ways, of which the reader takes one.
        sets: None,
    }
}

#[cfg(test)]
mod fixture {

    use crate::facts::{Details, Facts, HostSeen};
    use crate::rules::copy_on_write_below::fixture::btrfs;
    use crate::testing::settings;

    pub fn kernel(version: (u32, u32)) -> Facts {
        let host = Some(HostSeen { kernel: Some(version), ..HostSeen::default() });
        settings(Details { below: btrfs(true, None), host: host.into(), ..Details::default() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rules::findings;

    #[test]
    fn one_finding_by_kernel_and_cache() {
        let found = |kernel: (u32, u32), cache: &str| {
            let mut facts = fixture::kernel(kernel);
            facts.disks[0].cache = cache.into();
            let found =
                findings(&facts).into_iter().filter(|f| f.rule != "host-page-cache" && f.rule != "cache-aio-pair");
            found.map(|f| (f.rule, f.severity)).collect::<Vec<_>>()
        };
        let own = |severity| vec![("direct-io-on-checksums".to_owned(), severity)];
        let below = vec![("copy-on-write-below".to_owned(), Severity::Advice)];
        assert_eq!(
            (found((6, 1), "none"), found((5, 15), "directsync")),
            (own(Severity::Warning), own(Severity::Warning))
        );
        assert_eq!((found((6, 12), "none"), found((6, 14), "none")), (own(Severity::Advice), own(Severity::Advice)));
        assert_eq!((found((6, 15), "none"), found((6, 1), "writeback")), (below.clone(), below));
        let cause = &findings(&fixture::kernel((7, 0)))[0].cause;
        assert!(cause.contains("goes through the page cache here"), "{cause}");
    }

    #[test]
    fn the_second_way_is_the_page_cache() {
        let change = &findings(&fixture::kernel((6, 1)))[0].change;
        assert!(
            change.qemu.contains("cache=writeback,aio=threads") && change.qemu.contains("chattr +C"),
            "{}",
            change.qemu
        );
    }
}
