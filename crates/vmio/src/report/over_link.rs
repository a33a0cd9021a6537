//! What limits a disk that another host serves: the link, the server's disk, the guest's processors, or none of them.

use vmio_model::summary::CellRow;
use vmio_rig::disks::targets;

use super::section::Section;
use super::{Report, format};

/// Share of what a part can do from which on it is the limit. The kernel's counters of a link have not all headers, which
/// take up to 5 % of it.
const FULL: f64 = 0.9;
/// Where a share is not known.
const UNKNOWN: &str = "–";

/// What a cell used of each part, 0 to 1; `None` where that is not known.
#[derive(Debug, Clone, Copy)]
struct Used {
    /// Of the rate that was set for the link, in the direction that carried more.
    link: Option<f64>,
    /// Of the time of the server's disk.
    disk: Option<f64>,
    /// Of the time of the guest's processors.
    vcpus: Option<f64>,
}

impl Used {
    /// `None` for a cell that is on no such disk.
    fn of(row: &CellRow) -> Option<Self> {
        let target = row.cell.target().and_then(targets::find)?;
        if !target.over_link() || row.wires.is_empty() {
            return None;
        }
        let program = row.disk.as_ref().map_or(0.0, |disk| disk.bandwidth_bytes_per_second.value);
        let carried = row.wires.iter().flat_map(|wire| [&wire.received, &wire.sent]);
        let bytes = carried.map(|carried| carried.bytes_per_second.value).fold(program, f64::max);
        let disk = row.device.and_then(|device| device.busy_ratio).map(|busy| busy.value);
        Some(Self { link: bits(row).map(|bits| 8.0 * bytes / bits), disk, vcpus: row.cpu.vcpu_busy_ratio })
    }

    /// What limits it, in words.
    fn limit(self) -> String {
        let parts = [("link", self.link), ("disk", self.disk), ("vCPUs", self.vcpus)];
        let is_full = |share: Option<f64>| share.is_some_and(|share| share >= FULL);
        let full: Vec<&str> = parts.into_iter().filter(|(_, share)| is_full(*share)).map(|(name, _)| name).collect();
        match full.as_slice() {
            [] if self.link.is_none() || self.disk.is_none() => UNKNOWN.to_owned(),
            [] => "latency".to_owned(),
            names => names.join(", "),
        }
    }
}

/// The rate that the cell sets for its link, in bits a second.
fn bits(row: &CellRow) -> Option<f64> {
    let mbit: f64 = row.cell.settings.get("rate")?.strip_suffix("mbit")?.parse().ok()?;
    (mbit > 0.0).then_some(mbit * 1e6)
}

/// All cells on such disks.
pub(super) fn section(report: &Report<'_>) -> Section {
    let share = |share: Option<f64>| share.map_or(UNKNOWN.to_owned(), format::percent);
    let row_of = |row: &CellRow| {
        let used = Used::of(row)?;
        Some((row.key.clone(), vec![share(used.link), share(used.disk), share(used.vcpus), used.limit()]))
    };
    Section {
        title: "What limits a disk on another host".to_owned(),
        meaning: "What each cell used of the rate that was set for the link to the server, of the time of the server's \
                  disk, and of that of the guest's processors. What is used by 90 % or more is the limit; where nothing \
                  is, the cell waits for answers: latency."
            .to_owned(),
        columns: ["link", "disk", "vCPUs", "limit"].map(str::to_owned).into(),
        rows: report.summary.cells.iter().filter_map(row_of).collect(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_the_limit() {
        let limit = |link, disk, vcpus| Used { link, disk, vcpus }.limit();
        assert_eq!(limit(Some(0.94), Some(0.3), Some(0.5)), "link");
        assert_eq!(limit(Some(0.4), Some(0.99), Some(0.5)), "disk");
        assert_eq!(limit(Some(0.4), Some(0.3), Some(1.0)), "vCPUs");
        assert_eq!(limit(Some(0.95), Some(0.3), Some(0.95)), "link, vCPUs");
        assert_eq!(limit(Some(0.4), Some(0.3), None), "latency", "natively there are no vCPUs");
        assert_eq!(limit(None, Some(0.3), Some(0.5)), UNKNOWN, "no rate was set");
        assert_eq!(limit(None, Some(0.97), None), "disk");
    }
}
