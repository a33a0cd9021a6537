//! Several guests on one ext4. It has one journal: an fsync waits until the transaction that has the file's last change
//! is committed (Linux, fs/ext4/fsync.c, `ext4_sync_file`), with the metadata that all others changed in it. It waits
//! for their data only where new blocks count as written before they are: `ext4_map_blocks` (fs/ext4/inode.c) puts such
//! a file on the transaction's list for data=ordered, and not one with unwritten blocks, as `dioread_nolock` has them
//! (the default from 5.6, commit 244adf6426ee; not with `nodelalloc`: `ext4_should_dioread_nolock` of
//! fs/ext4/ext4_jbd2.h). An image whose blocks are all written changes no metadata and waits for nobody.

use super::live::Live;
use super::{Check, Evidence, Finding, Kinds, Need, Rule, Severity, change};
use crate::facts::Disk;

/// A commit that takes two turns of a disk or more; flash with a flush takes below 5 ms.
const SLOW_MICROSECONDS: u64 = 20_000;
/// Flash with a flush takes less.
const FELT_MICROSECONDS: u64 = 5_000;
/// Options with which a commit writes the data of files that grew; from Linux 5.17 `dioread_lock` is written otherwise.
const DATA_FIRST: [&str; 3] = ["dioread_lock", "nodioread_nolock", "nodelalloc"];
/// Share of the commits that somebody waited for, from which fsync drives them.
const DRIVEN_PERCENT: u64 = 50;
/// Guests that are named; the rest is counted.
const NAMED: usize = 2;

pub(super) const RULE: Rule = Rule {
    id: "shared-journal",
    title: "Guests share one journal",
    needs: Need::Settings,
    severity: Severity::Note,
    references: &[
        "Linux, fs/ext4/fsync.c, ext4_sync_file; fs/jbd2/commit.c, jbd2_journal_commit_transaction",
        "Linux, fs/ext4/inode.c, ext4_map_blocks; fs/ext4/ext4_jbd2.h, ext4_should_dioread_nolock",
    ],
    checks: &[Check::Disk(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (|| fixture::sparse(true), || fixture::sparse(false)),
    ..Rule::PLAIN
};

/// Whether blocks of the disk are still to be allocated.
fn grows(disk: &Disk) -> bool {
    let image = disk.details.format.as_deref() == Some("qcow2")
        && disk.details.allocated_bytes.zip(*disk.details.virtual_bytes).is_some_and(|(there, all)| there < all);
    // A container's root is a directory of files.
    disk.sparse == Some(true) || image || disk.details.storage.as_deref() == Some("overlay")
}

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let below = &disk.details.below;
    let (journal, mounted) = (below.journal.as_ref()?, below.mounted.as_ref()?);
    if !grows(disk) || journal.shared_with.is_empty() || journal.commit_microseconds < FELT_MICROSECONDS {
        return None;
    }
    let named: Vec<&str> = journal.shared_with.iter().take(NAMED).map(String::as_str).collect();
    // Older facts name all of them and have no count.
    let others = journal.others.max(journal.shared_with.len());
    let beyond = |told: usize| match others - told {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let more = beyond(named.len());
    let appended = if mounted.options.split(',').any(|option| DATA_FIRST.contains(&option)) {
        ", which first writes what they appended"
    } else {
        ""
    };
    let cause = format!(
        "This disk lies on one ext4 with {}{more}: while it grows, a flush of it waits for a commit of the journal \
         that all of them share{appended}. A commit takes {:.1} ms on average, {} % of them were asked for.",
        named.join(", "),
        journal.commit_microseconds as f64 / 1000.0,
        journal.requested_percent
    );
    let what = "Preallocate the image, so that its flushes need no commit, or give it a volume of its own.";
    let format = disk.details.format.as_deref().or_else(|| disk.sparse.filter(|sparse| *sparse).map(|_| "raw"));
    let change = if disk.details.storage.as_deref() == Some("overlay") {
        let what = "Put what the container flushes (a database) on a volume of its own.";
        change::on_host(what, "# a mount of the container, of its own file system, in place of its root")
    } else {
        change::full_allocation(what, &disk.place, format)
    };
    let all = format!("{}{}", journal.shared_with.join(", "), beyond(journal.shared_with.len()));
    let evidence =
        |setting: &str, value: String, from: String| Some(Evidence { setting: setting.to_owned(), value, from });
    let seen = [
        evidence("file system", format!("ext4 at {}", mounted.point), below.mounted.source_or(disk.from())),
        evidence("shared with", all, below.mounted.source_or(disk.from())),
        evidence("commit", format!("{} us", journal.commit_microseconds), below.journal.source_or(disk.from())),
    ];
    let mut finding = rule.advice(disk, &seen, &cause, change).of_host();
    if journal.commit_microseconds >= SLOW_MICROSECONDS && journal.requested_percent >= DRIVEN_PERCENT {
        finding.severity = Severity::Advice;
    }
    Some(finding)
}

#[cfg(test)]
pub(super) mod fixture {
    use crate::facts::{Below, Details, Disk, Facts, Mounted, SharedJournal};
    use crate::testing::live_disk;

    /// An image on an ext4 that two others lie on.
    pub fn shared() -> Below {
        let mounted =
            Mounted { filesystem: "ext4".into(), point: "/srv".into(), device: "8:1".into(), options: "rw".into() };
        let journal = SharedJournal {
            shared_with: ["db2", "web1", "web2"].map(str::to_owned).to_vec(),
            others: 3,
            commit_microseconds: 34_120,
            requested_percent: 71,
        };
        Below { mounted: Some(mounted).into(), journal: Some(journal).into(), ..Below::default() }
    }

    pub fn sparse(sparse: bool) -> Facts {
        let details = Details { format: "raw".into(), below: shared(), ..Details::default() };
        Facts { disks: vec![Disk { sparse: Some(sparse).into(), ..live_disk(details) }], ..Facts::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_commits_that_are_waited_for_are_advice() {
        let of = |commit: u64, percent: u64| {
            let mut facts = fixture::sparse(true);
            if let Some(journal) = facts.disks[0].details.below.journal.amend() {
                (journal.commit_microseconds, journal.requested_percent) = (commit, percent);
            }
            RULE.check(&facts).into_iter().map(|f| (f.severity, f.cause)).next()
        };
        let severity = |commit, percent| of(commit, percent).map(|(severity, _)| severity);
        assert_eq!(severity(34_120, 71), Some(Severity::Advice));
        assert_eq!(
            (severity(4_000, 71), severity(6_000, 71), severity(34_120, 9)),
            (None, Some(Severity::Note), Some(Severity::Note))
        );
        assert!(of(34_120, 71).is_some_and(|(_, cause)| {
            cause.contains("with db2, web1 and 1 more: ")
                && cause.contains("that all of them share. A commit takes 34.1 ms")
        }));
        let mut old = fixture::sparse(true);
        if let Some(mounted) = old.disks[0].details.below.mounted.amend() {
            mounted.options = "rw,nodioread_nolock".into();
        }
        let found = RULE.check(&old);
        assert!(found[0].cause.contains("all of them share, which first writes what they appended. A"), "{found:?}");
        // Facts of an older vmio have no count.
        for (others, more) in [(0, "and 1 more"), (900, "and 898 more")] {
            let mut facts = fixture::sparse(true);
            if let Some(journal) = facts.disks[0].details.below.journal.amend() {
                journal.others = others;
            }
            assert!(RULE.check(&facts).iter().any(|finding| finding.cause.contains(more)), "{others}");
        }
    }
}
