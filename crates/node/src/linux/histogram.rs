//! Histogram triggers of the kernel's events (Linux Documentation/trace/histogram.rst): what is written to the file
//! `trigger` of an event is summed up in the kernel, and read from the file `hist` beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where the agent mounts tracing in vmio's own guests.
pub const TRACEFS: &str = "/sys/kernel/tracing";

/// A file of an event of the block layer: `trigger`, or `hist` where the kernel has histograms
/// (`CONFIG_HIST_TRIGGERS`).
pub fn block_file(event: &str, file: &str) -> PathBuf {
    Path::new(TRACEFS).join("events/block").join(event).join(file)
}

/// A row of a histogram: its keys, `hitcount`, and its sums, by name.
pub type Row<'a> = BTreeMap<&'a str, u64>;

/// The rows of an event's only histogram, of fields that are numbers; `None` where the text is not whole, or the kernel
/// had no room for some.
pub fn rows(text: &str) -> Option<Vec<Row<'_>>> {
    let total = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse::<u64>().ok());
    if total("Dropped:")? > 0 {
        return None;
    }
    let rows: Vec<Row<'_>> = text.lines().filter(|line| line.starts_with('{')).map(row).collect::<Option<_>>()?;
    (rows.len() as u64 == total("Entries:")?).then_some(rows)
}

/// `{ dev:  266338304 } hitcount:       1000  nr_sector:       8000`.
fn row(line: &str) -> Option<Row<'_>> {
    let mut words = line.split_ascii_whitespace().filter(|word| !matches!(*word, "{" | "}"));
    let mut row = Row::new();
    while let Some(name) = words.next() {
        let value = words.next()?.trim_end_matches(',');
        row.insert(name.strip_suffix(':')?, value.parse().ok()?);
    }
    Some(row)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HIST: &str = "\
# event histogram
#
# trigger info: hist:keys=dev:vals=hitcount,nr_sector,common_timestamp:sort=hitcount:size=128:clock=global if nr_sector > 0 [active]
#

{ dev:  266338320 } hitcount:          3  nr_sector:         48  common_timestamp: 18446744073709551000
{ dev:  266338304 } hitcount:       1000  nr_sector:       8000  common_timestamp: 61234567890123

Totals:
    Hits: 1003
    Entries: 2
    Dropped: 0
";

    #[test]
    fn rows_are_read_by_the_kernels_document() {
        let rows = rows(HIST).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0]["dev"], rows[0]["common_timestamp"]), (266_338_320, 18_446_744_073_709_551_000));
        assert_eq!((rows[1]["dev"], rows[1]["hitcount"], rows[1]["nr_sector"]), (266_338_304, 1000, 8000));
        let two = HIST.replace("{ dev:  266338304 }", "{ dev:  266338304, sector:          8 }");
        assert_eq!((super::rows(&two).unwrap()[1]["dev"], super::rows(&two).unwrap()[1]["sector"]), (266_338_304, 8));
        let none = "# event histogram\n#\n# trigger info: x [active]\n#\n\n\nTotals:\n    Hits: 0\n    Entries: 0\n    \
                    Dropped: 0\n";
        assert_eq!(super::rows(none), Some(Vec::new()));
    }

    #[test]
    fn what_is_not_whole_is_not_read() {
        let cut = HIST.split("Totals").next().unwrap();
        let (no_room, named) = (HIST.replace("Dropped: 0", "Dropped: 7"), HIST.replace("266338304 }", "vda }"));
        let one_less = HIST.replace("Entries: 2", "Entries: 3");
        for other in ["", cut, &no_room, &named, &one_less] {
            assert_eq!(rows(other), None, "{other}");
        }
    }

    #[test]
    fn files_are_those_of_tracefs() {
        let file = block_file("block_rq_issue", "hist");
        assert_eq!(file, Path::new("/sys/kernel/tracing/events/block/block_rq_issue/hist"));
    }
}
