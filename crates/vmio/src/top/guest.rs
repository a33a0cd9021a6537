//! The page of a guest, as lines: its last minute, devices, threads and limits, and what verdicts say of it.

use vmio_model::policy::Direction;
use vmio_model::top::verdict::Verdict;

use super::columns::{self, Set};
use super::figures::{figure, percent};
use super::minute::{FIGURES, GuestId, Minutes, spark};
use super::screen::{Screen, marked};
use crate::fit;

/// Seconds in a line of the last minute, and columns of its title.
const SECONDS: usize = 60;
const TITLE: usize = 10;

/// A line, and whether it is a heading.
pub type PageLine = (String, bool);

/// The page of a guest that is at most `width` wide.
pub fn lines(screen: &Screen, id: &GuestId, minutes: &Minutes, ascii: bool, width: usize) -> Vec<PageLine> {
    let row = screen.guests.iter().find(|g| GuestId::of(g) == *id);
    let minute = minutes.of(id);
    let name = row.map(|g| g.name.clone()).or_else(|| minute.map(|(m, _)| m.name.clone())).unwrap_or_default();
    let mut lines: Vec<PageLine> = Vec::new();
    let text = |line: String| (fit::first_words(&line, width), false);
    let wrapped = |line: &str| fit::lines(line, width).into_iter().map(text);
    match (row, minute) {
        (Some(_), _) => lines.push((fit::cut(&format!("guest {name}"), width), true)),
        (None, Some((_, ago))) => lines.push((fit::cut(&format!("guest {name} ended {ago:.0} s ago"), width), true)),
        (None, None) => lines.push((fit::cut("the guest has ended", width), true)),
    }
    let opened = screen.opened.as_ref().filter(|opened| Some(opened.pid) == id.pid && row.is_some());
    lines.extend(opened.into_iter().flat_map(|opened| wrapped(&opened.about)));
    if let Some(wait) = row.and_then(|g| g.worst_wait.as_ref()) {
        lines.extend(wrapped(&format!("waits most for: {}", wait.words)));
    }
    let names = |v: &&Verdict| {
        v.name == name
            || v.culprits.iter().any(|c| c.guest.as_ref() == Some(&name))
            || v.costs.iter().any(|c| c.guest == name)
            || v.guests.contains(&name)
    };
    for verdict in screen.verdicts.iter().filter(names).filter(|_| row.is_some()) {
        lines.extend(wrapped(&marked(verdict)));
    }
    if let Some((minute, _)) = minute {
        let room = width.saturating_sub(TITLE + 1 + 31).clamp(10, SECONDS);
        // Where a minute has no room, a mark is the mean of several seconds.
        let step = SECONDS.div_ceil(room);
        let each = if step > 1 { format!(", {step} s A MARK") } else { String::new() };
        lines.push((fit::cut(&format!("THE LAST {SECONDS} SECONDS{each}"), width), true));
        for (i, (title, _)) in FIGURES.iter().enumerate() {
            let all = minute.values(i);
            let known: Vec<f64> = all.iter().flatten().copied().collect();
            let (Some(low), Some(high)) =
                (known.iter().copied().reduce(f64::min), known.iter().copied().reduce(f64::max))
            else {
                continue;
            };
            let now = all.last().copied().flatten();
            let (low, now, high) = (figure(Some(low)), figure(now), figure(Some(high)));
            let marks: Vec<Option<f64>> = all.rchunks(step).rev().map(mean).collect();
            let blocks = fit::left(&spark(&marks, ascii), SECONDS.div_ceil(step));
            lines.push(text(format!("{title:<TITLE$} {blocks} min {low} now {now} max {high}")));
        }
    }
    if let Some(opened) = opened {
        for cells in [&opened.disks, &opened.calls, &opened.nics, &opened.journals, &opened.threads] {
            lines.extend(table(cells, width));
        }
    }
    let mut limits: Vec<String> = opened.map_or(Vec::new(), |opened| opened.limits.clone());
    for limit in row.iter().flat_map(|g| g.guard.iter().flatten()) {
        let way = match limit.direction {
            Direction::GuestTx => "sending",
            Direction::GuestRx => "receiving",
        };
        let mbit = |bps: vmio_model::rate::BitRate| figure(Some(bps.bits() as f64 / 1e6));
        limits.push(format!(
            "guard on {}, {way}: {} to {} Mbit/s, now {}, held {} % of the time",
            limit.interface,
            mbit(limit.min_bps),
            mbit(limit.max_bps),
            mbit(limit.limit_bps.unwrap_or(limit.max_bps)),
            percent(limit.held_ratio),
        ));
    }
    if !limits.is_empty() {
        lines.push((fit::cut("LIMITS", width), true));
        lines.extend(limits.iter().flat_map(|limit| wrapped(limit)));
    }
    if let Some(row) = row {
        let all = columns::ALL.iter().filter(|c| Set::ALL.iter().any(|set| c.is_in(*set)));
        let figures: Vec<String> = all.map(|c| format!("{} {}", c.title, c.cell(row))).collect();
        lines.push((fit::cut("ALL COLUMNS", width), true));
        lines.extend(wrapped(&figures.join("; ")));
    }
    lines
}

/// The mean of the known values.
fn mean(values: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

/// A table whose first row is the titles; nothing where there is no other.
fn table(cells: &[Vec<String>], width: usize) -> Vec<PageLine> {
    if cells.len() < 2 {
        return Vec::new();
    }
    let columns = cells.iter().map(Vec::len).min().unwrap_or(0);
    let widths: Vec<usize> =
        (0..columns).map(|i| cells.iter().map(|row| fit::columns(&row[i])).max().unwrap_or(0).min(30)).collect();
    let line = |row: &Vec<String>| {
        let padded = row.iter().zip(&widths).enumerate().map(|(i, (cell, most))| match i {
            0 => fit::left(&fit::cut(cell, *most), *most),
            _ => fit::right(&fit::cut(cell, *most), *most),
        });
        fit::cut(&padded.collect::<Vec<_>>().join(" "), width)
    };
    cells.iter().enumerate().map(|(n, row)| (line(row), n == 0)).collect()
}
