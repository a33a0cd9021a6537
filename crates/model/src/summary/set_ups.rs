//! The widest sure difference between two set-ups of a run's guests, in a sentence: what a report ends with.

use std::collections::BTreeSet;

use super::{CellRow, Summary, overall};
use crate::cell::{Attachment, Cell, Nic, Settings, Subject};
use crate::figure::Better;
use crate::result::{Mark, WorkloadTraits};
use crate::run::Run;
use crate::stats::Ratio;

/// `virtio-blk reads 4.3 times (3.3 to 5.5) what lsi53c895a does (seq-read, device)`: of all pairs of guest cells that
/// differ in one thing, the one whose interval has the highest lower end. `None` where nothing can be compared so.
pub fn widest_difference(run: &Run, summary: &Summary) -> Option<String> {
    if !run.kind.compares_cells() {
        return None;
    }
    let rule = &summary.convergence;
    let rows: Vec<&CellRow> = summary.asked_for().filter(|row| fits(row)).collect();
    let (mut compared, mut widest) = (false, None::<(f64, String)>);
    for (nth, row) in rows.iter().enumerate() {
        for other in &rows[nth + 1..] {
            let (a, b) = (&row.cell, &other.cell);
            let Some((of_a, of_b)) = differ(a, b) else { continue };
            let ratio = overall(run, std::iter::once((a, b)));
            let Some(ratio) = ratio.filter(|r| r.pairs >= rule.min_pairs && r.boots >= rule.min_boots) else {
                continue;
            };
            compared = true;
            let (ratio, fast, slow) =
                if ratio.value < 1.0 { (ratio.inverse(), of_a, of_b) } else { (ratio, of_b, of_a) };
            let Some(low) = ratio.usable_interval().map(|i| i.low).filter(|low| *low > 1.0) else { continue };
            if widest.as_ref().is_none_or(|(least, _)| low > *least) {
                widest = Some((low, sentence(run, [a, b], &ratio, [&fast, &slow])));
            }
        }
    }
    let none = || "no two set-ups differ by more than chance".to_owned();
    widest.map(|(_, text)| text).or_else(|| compared.then(none))
}

/// A guest's cell that no cache served, and that keeps what was written.
fn fits(row: &CellRow) -> bool {
    let cached = row.marks.get(&Mark::Cached).is_some_and(|marked| 2 * marked >= row.samples);
    let keeps = row.cell.attachment().is_none_or(|a| !a.cache.no_flush());
    !row.cell.lead.side.is_native() && !row.cell.is_warm() && !cached && keeps
}

/// The one thing in which two cells differ, as each has it; `None` where they differ in more, or in what is measured.
fn differ(a: &Cell, b: &Cell) -> Option<(String, String)> {
    let (of, other) = (&a.lead, &b.lead);
    if (&of.workload, &of.side, &a.beside) != (&other.workload, &other.side, &b.beside) {
        return None;
    }
    if of.subject == other.subject {
        return settings(&a.settings, &b.settings);
    }
    if a.settings != b.settings {
        return None;
    }
    match (&of.subject, &other.subject) {
        (
            Subject::Disk { target, attachment, state },
            Subject::Disk { target: other, attachment: of_other, state: in_other },
        ) if state == in_other => match (attachment, of_other) {
            (Some(a), Some(b)) if target == other => disks(a, b),
            _ if attachment == of_other => Some((target.clone(), other.clone())),
            _ => None,
        },
        (
            Subject::Path { network, peer, nic: Some(nic), co_sender },
            Subject::Path { network: other, peer: to, nic: Some(of_other), co_sender: beside },
        ) if (network, peer, co_sender) == (other, to, beside) => cards(nic, of_other),
        _ => None,
    }
}

/// The only one of several things that differs.
fn only(things: impl IntoIterator<Item = (String, String)>) -> Option<(String, String)> {
    let mut differing = things.into_iter().filter(|(a, b)| a != b);
    differing.next().filter(|_| differing.next().is_none())
}

fn disks(a: &Attachment, b: &Attachment) -> Option<(String, String)> {
    let each = |words: &dyn Fn(&Attachment) -> String| (words(a), words(b));
    only([
        each(&|of| of.driver.clone()),
        each(&|of| format!("cache={}", of.cache)),
        each(&|of| format!("aio={}", of.aio)),
        each(&|of| if of.iothread { "an I/O thread" } else { "no I/O thread" }.to_owned()),
        if a.options == b.options { (String::new(), String::new()) } else { each(&Attachment::label) },
    ])
}

fn cards(a: &Nic, b: &Nic) -> Option<(String, String)> {
    let things = [a.model != b.model, a.vhost != b.vhost, a.queues != b.queues, a.ring != b.ring];
    (things.into_iter().filter(|differs| *differs).count() == 1).then(|| (a.label(), b.label()))
}

fn settings(a: &Settings, b: &Settings) -> Option<(String, String)> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let words = |of: &Settings, name: &str| {
        of.get(name).map_or_else(|| format!("{name} as found"), |value| format!("{name}={value}"))
    };
    only(names.into_iter().map(|name| (words(a, name), words(b, name))))
}

fn sentence(run: &Run, [a, b]: [&Cell; 2], ratio: &Ratio, [fast, slow]: [&str; 2]) -> String {
    let traits = run.workloads.iter().find(|w| w.name == a.workload());
    let (of, other) = (&a.lead.subject, &b.lead.subject);
    let place = if of.place() == other.place() { Some(of.place()) } else { of.seen_by() };
    let place = place.map_or_else(String::new, |place| format!(", {place}"));
    let (times, work) = (times(ratio), a.workload());
    if traits.and_then(WorkloadTraits::judge).is_some_and(|figure| figure.better == Better::Less) {
        format!("{fast} is {times} as fast as {slow} ({work}{place})")
    } else {
        format!("{fast} {} {times} what {slow} does ({work}{place})", verb(traits, of))
    }
}

fn verb(traits: Option<&WorkloadTraits>, subject: &Subject) -> &'static str {
    let (reads, writes) = traits.map_or((false, true), |w| (w.reads(), w.writes()));
    match subject {
        Subject::Disk { .. } if reads && writes => "moves",
        Subject::Disk { .. } if reads => "reads",
        Subject::Disk { .. } => "writes",
        Subject::Path { .. } => "carries",
        Subject::Machine => "does",
    }
}

/// `4.3 times (3.3 to 5.5)`.
fn times(ratio: &Ratio) -> String {
    let decimals = match ratio.value {
        x if x < 1.95 => 2,
        x if x < 9.95 => 1,
        _ => 0,
    };
    let interval = ratio.interval.map(|i| format!(" ({:.decimals$} to {:.decimals$})", i.low, i.high));
    format!("{:.decimals$} times{}", ratio.value, interval.unwrap_or_default())
}
