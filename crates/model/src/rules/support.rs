//! What the rules share: citing figures, and turning measured gains into findings.

use super::{About, Change, Cited, Finding, Proof, Rule, Severity, change};
use crate::cell::{Attachment, Cell};
use crate::facts::{Disk, Gain, Measured};
use crate::result::Mark;
use crate::stats::{Estimate, Ratio};
use crate::summary::Share;

/// A gain whose interval lies wholly above this makes a finding severe.
pub const SEVERE_GAIN: f64 = 2.0;

/// Drivers that imitate a hardware controller register by register, by the names of vmio's
/// entries and of QEMU's devices. (QEMU's nvme is emulated too, but is a queue in memory.)
const EMULATED: [&str; 9] =
    ["lsi53c895a", "lsi53c810", "lsi", "megasas", "mptsas1068", "am53c974", "ahci", "ide", "sata"];

/// Whether the driver imitates a hardware controller.
pub fn is_emulated(driver: &str) -> bool {
    EMULATED.contains(&driver)
}

/// Key of a cell without its workload: `device/qemu/virtio-blk,none,native`.
pub fn disk_key(cell: &Cell) -> String {
    cell.place_key()
}

/// Whether half or more of the cell's samples did not reach the device.
pub fn mostly_cached(m: &Measured, cell: &Cell) -> bool {
    m.cell(cell).is_some_and(|c| c.marks.get(&Mark::Cached).is_some_and(|n| 2 * n >= c.samples))
}

/// The driver of a cell's disk; empty for the native side.
pub fn driver(cell: &Cell) -> &str {
    cell.attachment().map_or("", |a| &a.driver)
}

/// The disk that gained.
pub fn better(gain: &Gain) -> Attachment {
    gain.after.attachment().cloned().unwrap_or_else(change::recommended)
}

impl Rule {
    /// A finding of this rule with what every finding has.
    pub fn finding(&self, severity: Severity, subject: impl Into<About>, cause: String, change: Change) -> Finding {
        Finding {
            rule: self.id.to_owned(),
            title: self.title.to_owned(),
            severity,
            subject: subject.into(),
            cause,
            figures: Vec::new(),
            evidence: Vec::new(),
            expected: None,
            change,
            references: self.references.iter().map(|r| (*r).to_owned()).collect(),
            cost_ratio: None,
            proof: None,
        }
    }

    /// Findings from gains that may be cited: one a disk as it is, with the changed disk that
    /// gained most on any workload. Gains whose changed side was served by a cache are no gains.
    pub fn from_gains<'a>(
        &self,
        m: &'a Measured,
        gains: impl Iterator<Item = &'a Gain>,
        cause: impl Fn(&Gain) -> String,
        change: impl Fn(&Gain) -> Change,
    ) -> Vec<Finding> {
        let gains: Vec<&Gain> = gains.filter(|g| !mostly_cached(m, &g.after)).collect();
        let mut disks: Vec<String> = Vec::new();
        for gain in &gains {
            let disk = disk_key(&gain.before);
            if !disks.contains(&disk) {
                disks.push(disk);
            }
        }
        let finding = |disk: &String| {
            let mine = gains.iter().filter(|g| disk_key(&g.before) == *disk);
            let best = mine.clone().max_by(|a, b| a.ratio.value.total_cmp(&b.ratio.value))?;
            let shown = mine.filter(|g| disk_key(&g.after) == disk_key(&best.after));
            let severity = if best.ratio.surely_above(SEVERE_GAIN) { Severity::Severe } else { Severity::Warning };
            let cause = format!("{}{}{}", cause(best), stalls_in(m, best), caution(m));
            let mut finding = self.finding(severity, disk.clone(), cause, change(best));
            finding.figures = shown.flat_map(|g| cite_gain(m, g)).collect();
            finding.cost_ratio = Some(best.ratio);
            finding.proof = Some(Proof { before: best.before.clone(), after: best.after.clone() });
            Some(finding)
        };
        disks.iter().filter_map(finding).collect()
    }
}

/// A setting as a figure.
pub fn from_setting(label: &str, value: f64, unit: &str, disk: &Disk) -> Cited {
    let label = format!("{label}: {}", disk.subject);
    Cited { label, value, unit: unit.into(), interval: None, from: disk.from.clone() }
}

/// A word on software emulation, for the end of a cause.
pub fn caution(m: &Measured) -> &'static str {
    if m.emulated { " Measured under software emulation (TCG): rely on the direction, not on the size." } else { "" }
}

/// `3.1 times (2.8 to 3.4)`.
pub fn times(ratio: &Ratio) -> String {
    match ratio.interval {
        Some(i) => format!("{:.2} times ({:.2} to {:.2})", ratio.value, i.low, i.high),
        None => format!("{:.2} times", ratio.value),
    }
}

/// A word on device stalls in the samples of cells, for the end of a figure's label; empty where there is none.
pub fn stalls<'a>(m: &Measured, cells: impl IntoIterator<Item = &'a Cell>) -> String {
    let marked = |cell: &'a Cell| m.cell(cell)?.marks.get(&Mark::Stalled).copied();
    match cells.into_iter().filter_map(marked).sum() {
        0 => String::new(),
        1 => " (a device stall in 1 sample)".to_owned(),
        n => format!(" (device stalls in {n} samples)"),
    }
}

/// The same for the end of a cause that rests on a gain.
fn stalls_in(m: &Measured, gain: &Gain) -> &'static str {
    match stalls(m, [&gain.before, &gain.after]).is_empty() {
        true => "",
        false => " A device stall lies in its samples (docs/statistics.md): measure again before relying on the size.",
    }
}

/// A gain and the shares of both of its sides.
pub fn cite_gain(m: &Measured, gain: &Gain) -> Vec<Cited> {
    let label = match gain.before.workload() == gain.after.workload() {
        true => format!("{}: {} over {}", gain.after.workload(), disk_key(&gain.after), disk_key(&gain.before)),
        false => format!("{}: {} over {}", disk_key(&gain.after), gain.after.workload(), gain.before.workload()),
    };
    let label = label + &stalls(m, [&gain.before, &gain.after]);
    let mut all = vec![cite_ratio(m, label, &gain.ratio)];
    all.extend([&gain.before, &gain.after].into_iter().filter_map(|s| cite_share(m, s)));
    all
}

/// A ratio.
pub fn cite_ratio(m: &Measured, label: String, ratio: &Ratio) -> Cited {
    Cited { label, value: ratio.value, unit: "ratio".into(), interval: ratio.interval, from: m.from() }
}

/// A cell's share of native, if it may be cited.
pub fn cite_share(m: &Measured, cell: &Cell) -> Option<Cited> {
    let share = m.known_share(cell)?;
    Some(cite_known(m, share))
}

/// A share, whether it is known or not, with what must be said of it.
pub fn cite_known(m: &Measured, share: &Share) -> Cited {
    let stalls = share.stalls().map_or(String::new(), |stalls| format!(" ({stalls})"));
    cite_ratio(m, format!("share of native: {}{stalls}", share.key), &share.share_ratio)
}

/// A figure without an interval: a count, or what follows from two means.
pub fn cite_count(m: &Measured, label: String, value: f64, unit: &str) -> Cited {
    Cited { label, value, unit: unit.into(), interval: None, from: m.from() }
}

/// A mean.
pub fn cite_estimate(m: &Measured, label: String, unit: &str, estimate: &Estimate) -> Cited {
    Cited { label, value: estimate.value, unit: unit.into(), interval: estimate.interval, from: m.from() }
}
