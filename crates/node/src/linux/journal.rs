//! Figures of ext4's journals: `/proc/fs/jbd2/DEVICE-INODE/info` (Linux, fs/jbd2/journal.c, `jbd2_seq_info_show`),
//! which all may read. A file system without a journal has no such directory; a slash in a device's name is `!` there.

use std::path::{Path, PathBuf};

use super::block::sysfs_name;
use crate::Reader;

const JBD2: &str = "/proc/fs/jbd2";

/// What a journal did since it was mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Journal {
    /// Transactions.
    pub transactions: u64,
    /// Those that somebody asked for and waited for, most often by fsync; the others ended with their time or size.
    pub requested: u64,
    /// Time that a commit took on average.
    pub commit_us: u64,
    /// Part of it in which the data of all files were written that had grown (`data=ordered`).
    pub ordered_ms: u64,
}

/// The journal of the file system on a device, by the device's name below `/dev`; `None` where it has none, has
/// committed nothing yet, or cannot be read.
pub fn of(reader: &dyn Reader, device: &str) -> Option<(Journal, PathBuf)> {
    let name = sysfs_name(device);
    // The journal is a file of its own, or a device of its own, which is not looked for.
    let is_its = |entry: &String| {
        let inode = entry.strip_prefix(&name).and_then(|rest| rest.strip_prefix('-'));
        inode.is_some_and(|inode| !inode.is_empty() && inode.bytes().all(|b| b.is_ascii_digit()))
    };
    let entry = reader.list(Path::new(JBD2)).ok()?.into_iter().find(is_its)?;
    let file = Path::new(JBD2).join(entry).join("info");
    Some((parse(&reader.read_text(&file).ok()?)?, file))
}

fn parse(info: &str) -> Option<Journal> {
    let mut lines = info.lines();
    let (transactions, rest) = lines.next()?.split_once(" transactions (")?;
    let (requested, _) = rest.split_once(" requested)")?;
    let mut figure = |unit: &str, what: &str| {
        let value = |line: &str| line.trim_start().strip_suffix(what)?.trim_end().strip_suffix(unit)?.parse().ok();
        lines.by_ref().find_map(value)
    };
    Some(Journal {
        transactions: transactions.parse().ok()?,
        requested: requested.parse().ok()?,
        ordered_ms: figure("ms", "flushing data (in ordered mode)")?,
        commit_us: figure("us", "average transaction commit time")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    const INFO: &str = "\
3120 transactions (2215 requested), each up to 8192 blocks
average: 
  0ms waiting for transaction
  0ms request delay
  412ms running transaction
  0ms transaction was being locked
  27ms flushing data (in ordered mode)
  4ms logging transaction
  34120us average transaction commit time
  12 handles per transaction
  9 blocks per transaction
  10 logged blocks per transaction
";

    #[test]
    fn figures_of_a_journal() {
        let fake = Fake::new("fake")
            .file("/proc/fs/jbd2/dm-10-8/info", "0 transactions (0 requested), each up to 8192 blocks\n")
            .file("/proc/fs/jbd2/dm-1-8/info", INFO)
            .file("/proc/fs/jbd2/cciss!c0d0p1-8/info", INFO);
        let journal = Journal { transactions: 3120, requested: 2215, commit_us: 34_120, ordered_ms: 27 };
        let seen = |device: &str| of(&fake, device).map(|(journal, _)| journal);
        assert_eq!((seen("dm-1"), seen("cciss/c0d0p1")), (Some(journal), Some(journal)));
        // Nothing was committed yet; of another device; without any.
        assert_eq!((seen("dm-10"), seen("dm"), of(&Fake::new("fake"), "dm-1")), (None, None, None));
    }
}
