//! An image on a file system that writes each overwrite to another place (btrfs, bcachefs). The image falls into ever
//! smaller pieces, reads in order become random ones, and a flush of the guest writes trees, too. Without copy on write
//! (No_COW) the file system keeps no checksums of it either. XFS copies only blocks that files share (reflink).

use super::live::bytes_shown;
use super::{Check, Finding, Kinds, Need, Rule, Severity, change, direct_io_on_checksums};
use crate::facts::{Disk, Extents, Layout};

/// Fewest extents of an image that is called fragmented.
const MANY: u64 = 1000;
/// Mean extent below which it is: at 5 ms a seek a disk that turns reads less than 50 MB/s of such.
const SHORT_BYTES: u64 = 256 << 10;

/// What the scan counts at once: an extent that reaches over its end counts twice.
const WINDOW_BYTES: u64 = 64 << 20;

pub(super) const RULE: Rule = Rule {
    id: "copy-on-write-below",
    title: "Image on a copy-on-write file system",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://btrfs.readthedocs.io/en/latest/btrfs-man5.html, nodatacow",
        "Proxmox VE, pvesm(1), BTRFS, nocow",
        "https://github.com/lima-vm/lima/issues/5461",
        "Linux, fs/xfs/xfs_reflink.c",
    ],
    checks: &[Check::Disk(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::layout(true), || fixture::layout(false)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let layout = disk.details.below.layout.as_ref()?;
    // Such an image is told as lost already; that rule's change is this one's, too.
    if !disk.details.deleted.is_empty() || direct_io_on_checksums::breaks(disk).is_some() {
        return None;
    }
    match layout.copy_on_write {
        Some(true) => Some(copied(rule, disk, layout)),
        _ if layout.filesystem == "xfs" => {
            layout.extents.filter(|e| e.shared > 0).map(|extents| shared(rule, disk, extents))
        }
        _ => None,
    }
}

fn copied(rule: &Rule, disk: &Disk, layout: &Layout) -> Finding {
    let filesystem = &layout.filesystem;
    // Two a window may be one that reaches from the window before into the next.
    let pieces = layout.extents.filter(|e| e.seen > 2 * e.of_bytes.div_ceil(WINDOW_BYTES).max(1)).map(|e| {
        let of = if e.whole { "it has".to_owned() } else { format!("{} looked at have", bytes_shown(e.of_bytes)) };
        format!(
            ": {of} up to {} extents now, {} KiB or more on average, and each write makes more",
            e.seen,
            e.of_bytes / e.seen / 1024
        )
    });
    let buffered = if direct_io_on_checksums::is_buffered(disk) {
        " cache=none goes through the page cache here (Linux 6.15 and newer)."
    } else {
        ""
    };
    let cause = format!(
        "{filesystem} writes each overwrite of this image to another place{}. Reads in order become random ones, and \
         each flush also writes file-system metadata.{buffered}",
        pieces.unwrap_or_default()
    );
    let change = change::without_cow(WHAT, &disk.place, filesystem);
    let mut finding = rule.advice(disk, &[direct_io_on_checksums::evidence(disk)], &cause, change);
    // Compressed extents have 128 KiB at most.
    let short = |e: Extents| e.seen >= MANY && e.of_bytes / e.seen < SHORT_BYTES && !layout.compressed;
    if layout.extents.is_some_and(short) {
        finding.severity = Severity::Warning;
    }
    finding
}

const WHAT: &str = "Recreate the image with No_COW. Its data then has no checksums and no compression, and bit rot is \
                    no longer found: if those matter more, keep the image as it is.";

fn shared(rule: &Rule, disk: &Disk, extents: Extents) -> Finding {
    let cause = format!(
        "{} of the {} extents looked at are shared with a copy (reflink): the first write to each block of them \
         copies it.",
        extents.shared, extents.seen
    );
    let what = "Rewrite the image so that it shares nothing, unless the shared space matters more.";
    let change = change::without_cow(what, &disk.place, "xfs");
    let mut finding = rule.advice(disk, &[direct_io_on_checksums::evidence(disk)], &cause, change);
    finding.severity = Severity::Note;
    finding.title = "Image shares blocks with a copy".to_owned();
    finding
}

#[cfg(test)]
pub(super) mod fixture {
    use crate::facts::{Below, Details, Extents, Facts, Layout};
    use crate::testing::settings;

    /// An image on btrfs.
    pub fn btrfs(copy_on_write: bool, extents: Option<Extents>) -> Below {
        let filesystem = "btrfs".to_owned();
        let layout = Layout { filesystem, copy_on_write: Some(copy_on_write), compressed: false, extents };
        Below { layout: Some(layout).into(), ..Below::default() }
    }

    pub fn layout(copy_on_write: bool) -> Facts {
        settings(Details { below: btrfs(copy_on_write, None), ..Details::default() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::fixture::btrfs;
    use super::*;
    use crate::facts::{Below, Details};
    use crate::testing::live_disk;

    fn found(below: Below) -> Option<Finding> {
        live(&RULE, &live_disk(Details { below, ..Details::default() }))
    }

    fn extents(seen: u64) -> Extents {
        Extents { seen, of_bytes: 64 << 20, whole: true, shared: 0 }
    }

    #[test]
    fn an_image_in_many_pieces_is_a_warning() {
        let severity = |seen: u64| found(btrfs(true, Some(extents(seen)))).unwrap().severity;
        assert_eq!(
            [severity(1), severity(999), severity(1000)],
            [Severity::Advice, Severity::Advice, Severity::Warning]
        );
        let cause = found(btrfs(true, Some(extents(1024)))).unwrap().cause;
        assert!(cause.contains("it has up to 1024 extents now, 64 KiB or more on average"), "{cause}");
        // So many may be one extent, or one that reaches from window to window.
        for few in [0, 1, 2] {
            assert!(!found(btrfs(true, Some(extents(few)))).unwrap().cause.contains("extents now"), "{few}");
        }
        let mut compressed = btrfs(true, Some(extents(4096)));
        compressed.layout.amend().as_mut().unwrap().compressed = true;
        assert_eq!(found(compressed).unwrap().severity, Severity::Advice);
    }

    #[test]
    fn xfs_copies_only_what_is_shared() {
        let xfs = |shared: u64| {
            let mut below = btrfs(false, Some(Extents { shared, ..extents(512) }));
            below.layout.amend().as_mut().unwrap().filesystem = "xfs".into();
            found(below)
        };
        let note = xfs(12).unwrap();
        assert_eq!((note.severity, xfs(0)), (Severity::Note, None));
        assert!(
            !note.change.qemu.contains("chattr") && note.change.qemu.contains("cp --reflink=never"),
            "{}",
            note.change.qemu
        );
    }
}
