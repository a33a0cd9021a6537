//! What a guard that only observes has seen, for a terminal.

use std::fmt::Write as _;

use vmio_guard::manager::document::Status;
use vmio_guard::observed::{Observed, ObservedMember, ObservedPool};

use super::table::{figure, unit};
use crate::fit;
use crate::report::format::{count, rate};
use crate::term::Style;

/// Columns of a figure.
const FIGURE: usize = 9;
/// Longest name beside which the figures still stand on the same line.
const NAME: usize = 40;

/// What the policy would have meant, and what each interface took.
pub fn text(observed: &Observed, style: Style) -> String {
    let mut out = format!("{}\n", style.bold(&format!("Observed for {}", count(observed.seconds as usize, "second"))));
    for pool in &observed.pools {
        out += &meant(pool);
    }
    out += &taken(observed, style);
    out
}

/// All of it, and the policy that is proposed.
pub fn end(status: &Status, style: Style) -> String {
    let Some(observed) = &status.observed else { return String::new() };
    let mut out = text(observed, style);
    let head = "Proposed policy (minimum: what was enough in 95 % of the seconds; maximum: the peak; both rounded up):";
    let care = "A maximum holds a guest to what was seen: raise or delete those that are not to.";
    let _ = write!(out, "\n{}{}\n{}", fit::paragraph("", 0, head), fit::paragraph("", 0, care), observed.proposal);
    out
}

/// A sentence a member that the policy would have held, or that was short of its minimum.
fn meant(pool: &ObservedPool) -> String {
    let mut all = Vec::new();
    let mut sum = format!("at most {} of {} taken at once", rate(pool.peak_bps), pool.shared_bps);
    if pool.full_seconds > 0 {
        let _ = write!(sum, ", full for {}", count(pool.full_seconds as usize, "second"));
    }
    if pool.over_seconds > 0 {
        let _ = write!(sum, ", more than it for {}", count(pool.over_seconds as usize, "second"));
    }
    all.push(sum);
    all.extend(pool.members.iter().flat_map(of_member));
    let head = format!("{} {}: ", pool.uplink, pool.direction.word());
    let lines = all.iter().enumerate();
    lines.map(|(n, line)| fit::paragraph(if n == 0 { &head } else { "  " }, 2, line)).collect()
}

fn of_member(member: &ObservedMember) -> Vec<String> {
    let ObservedMember { name, class, .. } = member;
    let said = [
        (member.above_max_seconds, "would have been held at its maximum"),
        (member.held_seconds, "would have been held below its maximum by what others are owed"),
        (member.min_used_seconds, "used all of its minimum"),
        (member.short_seconds, "had less than its minimum while the uplink was full"),
    ];
    let said = said.iter().filter(|(seconds, _)| *seconds > 0);
    let line = |(seconds, what): &(u64, &str)| {
        format!("{name} (class {class}, peak {}) {what}: {}", rate(member.peak_bps), count(*seconds as usize, "second"))
    };
    said.map(line).collect()
}

fn taken(observed: &Observed, style: Style) -> String {
    let all = &observed.interfaces;
    if all.is_empty() {
        return "No interface of a guest was there.\n".to_owned();
    }
    let most = all.iter().map(|i| i.tx_peak_bps.max(i.rx_peak_bps)).max().unwrap_or_default();
    let (unit, factor) = unit(most);
    let width = fit::widest(all.iter().map(|i| i.name.as_str()), NAME, unit.len());
    let head = format!(
        "{unit:<width$} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$} {:>FIGURE$}",
        "sent 95 %", "peak", "recv 95 %", "peak"
    );
    let mut out = format!("{}\n", style.dim(&head));
    for interface in all {
        let name = fit::beside(&mut out, &interface.name, width, 0);
        let rates = [interface.tx_usual_bps, interface.tx_peak_bps, interface.rx_usual_bps, interface.rx_peak_bps];
        let figures: String = rates.iter().map(|rate| format!(" {:>FIGURE$}", figure(*rate, factor))).collect();
        let _ = writeln!(out, "{name}{figures}");
    }
    out
}
