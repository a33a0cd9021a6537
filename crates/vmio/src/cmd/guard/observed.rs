//! What a guard has observed, for a terminal.

use std::fmt::Write as _;

use vmio_guard::manager::document::Status;
use vmio_guard::observed::{Observed, ObservedInterface, ObservedMember, ObservedPool};

use super::table::{figure, unit};
use crate::fit::{self, WIDTH};
use crate::report::document::{Block, Column, Document, Layout, Row, Span, Table, Text, remarks, say};
use crate::report::format::{count, rate};
use crate::term::Style;

/// Columns of a figure.
const FIGURE: usize = 9;
/// Longest name beside which the figures still stand on the same line.
const NAME: usize = 40;

/// What the policy would have meant, and what each interface took.
pub fn text(observed: &Observed, style: Style) -> String {
    let mut doc = Document::new("");
    let seconds = count(observed.seconds as usize, "second");
    doc.put(say((0, 0), Text::from(Span::Bold(format!("Observed for {seconds}")))));
    observed.pools.iter().for_each(|pool| doc.put(policy_effect(pool)));
    doc.put(taken(&observed.interfaces));
    doc.text(style, WIDTH)
}

/// The same, and the policy that is proposed.
pub fn end(status: &Status, style: Style) -> String {
    let Some(observed) = &status.observed else { return String::new() };
    let mut out = text(observed, style);
    if let Some(why) = &observed.not_proposed {
        let _ = write!(out, "\n{}", fit::paragraph("", 0, &format!("No policy is proposed: {why}.")));
        return out;
    }
    let head = "Proposed policy (minimum: what was enough in 95 % of the seconds; maximum: the peak; both rounded up):";
    let care = "A maximum limits a guest to what was seen: raise or delete those that should not.";
    let _ = write!(out, "\n{}{}\n{}", fit::paragraph("", 0, head), fit::paragraph("", 0, care), observed.proposal);
    out
}

/// What a pool carried, and a sentence for each member that the policy would have held, or that was short of its
/// minimum.
fn policy_effect(pool: &ObservedPool) -> Block {
    let mut sum = format!("at most {} of {} taken at once", rate(pool.peak_bps), pool.shared_bps);
    if pool.full_seconds > 0 {
        let _ = write!(sum, ", full for {}", count(pool.full_seconds as usize, "second"));
    }
    if pool.over_seconds > 0 {
        let _ = write!(sum, ", more than it for {}", count(pool.over_seconds as usize, "second"));
    }
    let first = (format!("{} {}: ", pool.uplink, pool.direction.word()), sum);
    let members = pool.members.iter().flat_map(of_member).map(|line| ("  ".to_owned(), line));
    remarks((0, 2), std::iter::once(first).chain(members))
}

fn of_member(member: &ObservedMember) -> Vec<String> {
    let ObservedMember { name, class, .. } = member;
    let said = [
        (member.above_max_seconds, "would have been limited to its maximum"),
        (member.held_seconds, "would have been limited below its maximum by the minima of others"),
        (member.min_used_seconds, "used all of its minimum"),
        (member.short_seconds, "had less than its minimum while the uplink was full"),
    ];
    let said = said.iter().filter(|(seconds, _)| *seconds > 0);
    let line = |(seconds, what): &(u64, &str)| {
        format!("{name} (class {class}, peak {}) {what}: {}", rate(member.peak_bps), count(*seconds as usize, "second"))
    };
    said.map(line).collect()
}

/// What each interface sent and received.
fn taken(all: &[ObservedInterface]) -> Block {
    if all.is_empty() {
        return say((0, 0), "No guest interface was seen.");
    }
    let most = all.iter().map(|i| i.tx_peak_bps.max(i.rx_peak_bps)).max().unwrap_or_default();
    let (unit, factor) = unit(most);
    let name_width = fit::widest(all.iter().map(|i| i.name.as_str()), NAME, unit.len());
    let columns = ["sent 95 %", "peak", "recv 95 %", "peak"].map(|head| Column::new(head, FIGURE).gap(1));
    let row = |interface: &ObservedInterface| {
        let rates = [interface.tx_usual_bps, interface.tx_peak_bps, interface.rx_usual_bps, interface.rx_peak_bps];
        Row::new(&interface.name, rates.map(|rate| figure(rate, factor)))
    };
    let table = Table::new("name", Layout::flush(name_width), columns).with(all.iter().map(row));
    Table { narrow: unit.to_owned(), ..table }.into()
}
