//! Shared by rules: citing figures, and findings from measured gains.

use super::{About, Change, Cited, Finding, Proof, Rule, Severity, Unpaid, change};
use crate::cell::{self, Attachment, Cell};
use crate::facts::{Changed, Disk, Gain, Measured, Nic, Subject};
use crate::result::Mark;
use crate::stats::{Estimate, Ratio};
use crate::summary::Share;

/// A gain whose whole interval is above this makes a finding severe.
const SEVERE_GAIN: f64 = 2.0;

/// Drivers that emulate a hardware controller register by register, by vmio's and QEMU's names. (QEMU's nvme is
/// emulated too, but is a queue in memory.)
const EMULATED: [&str; 9] =
    ["lsi53c895a", "lsi53c810", "lsi", "megasas", "mptsas1068", "am53c974", "ahci", "ide", "sata"];

/// Whether the driver emulates a hardware controller.
pub fn is_emulated(driver: &str) -> bool {
    EMULATED.contains(&driver)
}

/// Key of a cell without its workload: `device/qemu/virtio-blk,none,native`.
pub fn disk_key(cell: &Cell) -> String {
    cell.place_key()
}

/// Whether half or more of the cell's samples were served by a cache.
pub fn mostly_cached(m: &Measured, cell: &Cell) -> bool {
    m.cell(cell).is_some_and(|c| c.marks.get(&Mark::Cached).is_some_and(|n| 2 * n >= c.samples))
}

/// The driver of a cell's disk; empty natively.
pub fn driver(cell: &Cell) -> &str {
    cell.attachment().map_or("", |a| &a.driver)
}

/// The faster disk of a gain.
pub fn better(gain: &Gain) -> Attachment {
    gain.after.attachment().cloned().unwrap_or_else(change::recommended)
}

/// The cards of a gain's cells, before and after; `None` without cards.
pub fn cards(gain: &Gain) -> Option<(&cell::Nic, &cell::Nic)> {
    gain.before.lead.nic().zip(gain.after.lead.nic())
}

/// Significant gains of guests with a card over cells with this value of a setting, by another value or none.
pub fn away_from<'a>(
    m: &'a Measured,
    setting: &str,
    such: fn(&str) -> bool,
    bound: f64,
) -> impl Iterator<Item = &'a Gain> {
    let has = move |cell: &Cell| cell.settings.get(setting).is_some_and(|set| such(set));
    let gains = m.sure_gains(Changed::Setting, bound);
    gains.filter(move |g| g.before.lead.nic().is_some() && has(&g.before) && !has(&g.after))
}

/// A card of a study's guest, for the change of a finding, with placeholders for a guest's own names. For a running
/// guest `vmio scan` fills them in.
pub fn studied_card(m: &Measured, card: Option<&cell::Nic>, vhost_here: bool) -> Nic {
    // Text to paste contains a plain name only, whatever the study's text.
    let plain = |model: &String| model.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    Nic {
        model: card.map(|card| card.model.clone()).filter(plain).into(),
        backend: "tap".into(),
        vhost_here: Some(vhost_here).into(),
        ..Nic::unknown(Subject::net("GUEST", "net0"), m.from())
    }
}

impl Rule {
    /// A finding of this rule.
    pub fn finding(&self, severity: Severity, subject: impl Into<About>, cause: String, change: Change) -> Finding {
        Finding {
            rule: self.id.to_owned(),
            title: self.title.to_owned(),
            severity,
            subject: subject.into(),
            cause,
            figures: Vec::new(),
            evidence: Vec::new(),
            unpaid: Vec::new(),
            expected: None,
            change,
            by_manager: None,
            references: self.references.iter().map(|r| (*r).to_owned()).collect(),
            cost_ratio: None,
            proof: None,
            of_host: false,
        }
    }

    /// Findings from citable gains: one for each disk, with the changed disk of the largest gain in any workload. Gains
    /// whose changed side was served by a cache do not count.
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
            let unpaid = unpaid(m, best);
            let cause = format!("{}{}{}{}", cause(best), stalls_in(m, best), not_for(&unpaid), caution(m));
            let mut finding = self.finding(severity, disk.clone(), cause, change(best));
            finding.figures = shown.flat_map(|g| cite_gain(m, g)).collect();
            finding.unpaid = unpaid;
            finding.cost_ratio = Some(best.ratio);
            finding.proof = Some(Proof { before: best.before.clone(), after: best.after.clone() });
            Some(finding)
        };
        disks.iter().filter_map(finding).collect()
    }
}

/// Workloads for which the same change was measured and does not pay: on the same disk with one thing changed, each
/// citable gain that is not certainly above 1.
fn unpaid(m: &Measured, best: &Gain) -> Vec<Unpaid> {
    let same = |g: &&Gain| {
        g.changed == best.changed
            && g.citable
            && g.before.workload() == g.after.workload()
            && disk_key(&g.before) == disk_key(&best.before)
            && disk_key(&g.after) == disk_key(&best.after)
    };
    let unpaid = m.gains.iter().filter(same).filter(|g| !g.ratio.surely_above(1.0) && !mostly_cached(m, &g.after));
    let of = |g: &Gain| Unpaid {
        workload: g.before.workload().to_owned(),
        ratio: g.ratio,
        loses: g.ratio.surely_below(1.0),
    };
    unpaid.map(of).collect()
}

/// A sentence about them, appended to a cause.
fn not_for(unpaid: &[Unpaid]) -> String {
    let each = |loses: bool| {
        let named = unpaid.iter().filter(move |u| u.loses == loses);
        let named: Vec<String> = named.map(|u| format!("{} ({} as fast)", u.workload, u.ratio.times())).collect();
        named.join(", ")
    };
    let (equal, slower) = (each(false), each(true));
    match (equal.is_empty(), slower.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(" The change does not pay for {equal}."),
        (true, false) => format!(" The change costs speed for {slower}."),
        (false, false) => format!(" The change does not pay for {equal}, and costs speed for {slower}."),
    }
}

/// A setting as a figure.
pub fn from_setting(label: &str, value: f64, unit: &str, disk: &Disk) -> Cited {
    let label = format!("{label}: {}", disk.subject);
    Cited { label, value, unit: unit.into(), interval: None, from: disk.from.clone() }
}

/// A note on software emulation, appended to a cause.
pub fn caution(m: &Measured) -> &'static str {
    if m.emulated { " Measured under software emulation (TCG): rely on the direction, not on the size." } else { "" }
}

/// A note on device stalls in cells' samples, appended to a figure's label; empty without stalls.
pub fn stalls<'a>(m: &Measured, cells: impl IntoIterator<Item = &'a Cell>) -> String {
    let marked = |cell: &'a Cell| m.cell(cell)?.marks.get(&Mark::Stalled).copied();
    match cells.into_iter().filter_map(marked).sum() {
        0 => String::new(),
        1 => " (a device stall in 1 sample)".to_owned(),
        n => format!(" (device stalls in {n} samples)"),
    }
}

/// The same, appended to a cause that rests on a gain.
fn stalls_in(m: &Measured, gain: &Gain) -> &'static str {
    if stalls(m, [&gain.before, &gain.after]).is_empty() {
        return "";
    }
    " A device stall lies in its samples (docs/statistics.md): measure again before relying on the size."
}

/// A gain, and the shares of its two cells.
pub fn cite_gain(m: &Measured, gain: &Gain) -> Vec<Cited> {
    let label = if gain.before.workload() == gain.after.workload() {
        format!("{}: {} over {}", gain.after.workload(), disk_key(&gain.after), disk_key(&gain.before))
    } else {
        format!("{}: {} over {}", disk_key(&gain.after), gain.after.workload(), gain.before.workload())
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

/// A cell's share, if citable.
pub fn cite_share(m: &Measured, cell: &Cell) -> Option<Cited> {
    let share = m.known_share(cell)?;
    Some(cite_known(m, share))
}

/// A share, converged or not, with notes.
pub fn cite_known(m: &Measured, share: &Share) -> Cited {
    let stalls = share.stalls().map_or(String::new(), |stalls| format!(" ({stalls})"));
    cite_ratio(m, format!("share of native: {}{stalls}", share.key), &share.share_ratio)
}

/// A figure without an interval: a count, or a quotient of means.
pub fn cite_count(m: &Measured, label: String, value: f64, unit: &str) -> Cited {
    Cited { label, value, unit: unit.into(), interval: None, from: m.from() }
}

/// A mean.
pub fn cite_estimate(m: &Measured, label: String, unit: &str, estimate: &Estimate) -> Cited {
    Cited { label, value: estimate.value, unit: unit.into(), interval: estimate.interval, from: m.from() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::rules::findings;
    use crate::testing::{Bench, guest, native, virtio};

    /// A run with the emulated controller and virtio: requests a second of both for the second workload.
    fn found(emulated: f64, by_virtio: f64) -> crate::rules::Finding {
        let lsi = |workload: &str| guest("device", "lsi53c895a", workload);
        let facts = Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(lsi("rand-read-32"), 1.4e3)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .cell(native("device", "rand-read-1"), 15e3)
            .cell(lsi("rand-read-1"), emulated)
            .cell(virtio("device", "rand-read-1"), by_virtio)
            .facts();
        findings(&facts).into_iter().find(|f| f.rule == "emulated-driver").unwrap()
    }

    #[test]
    fn a_finding_says_for_what_its_change_does_not_pay() {
        let equal = found(4.65e3, 4.65e3);
        assert_eq!(equal.severity, crate::rules::Severity::Severe);
        assert_eq!(equal.unpaid.len(), 1, "{:?}", equal.unpaid);
        assert!(equal.unpaid[0].workload == "rand-read-1" && !equal.unpaid[0].loses);
        assert!(equal.cause.contains(" The change does not pay for rand-read-1 ("), "{}", equal.cause);
        let slower = found(4.65e3, 2.1e3);
        assert!(slower.unpaid[0].loses && slower.unpaid[0].ratio.value < 0.6, "{:?}", slower.unpaid);
        assert!(slower.cause.contains(" The change costs speed for rand-read-1 (0.4"), "{}", slower.cause);
        let faster = found(4.65e3, 9.3e3);
        assert!(faster.unpaid.is_empty() && !faster.cause.contains("pay"), "{}", faster.cause);
    }

    #[test]
    fn what_is_not_known_is_not_said_to_cost() {
        // Shares that did not converge are not cited, for or against.
        let lsi = guest("device", "lsi53c895a", "rand-read-1");
        let mut facts = Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(guest("device", "lsi53c895a", "rand-read-32"), 1.4e3)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .cell(native("device", "rand-read-1"), 15e3)
            .cell(lsi.clone(), 4.65e3)
            .cell(virtio("device", "rand-read-1"), 4.65e3)
            .facts();
        let m = facts.measured.as_mut().unwrap();
        m.gains.iter_mut().filter(|g| g.before == lsi).for_each(|g| g.citable = false);
        let finding = findings(&facts).into_iter().find(|f| f.rule == "emulated-driver").unwrap();
        assert!(finding.unpaid.is_empty(), "{:?}", finding.unpaid);
    }
}
