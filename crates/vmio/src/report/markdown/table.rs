//! The table of a group: of a disk with its latencies and its device, of all else with each figure that is
//! compared.

use vmio_model::stats::Estimate;

use super::plain;
use crate::report::figures::Shown;
use crate::report::format::{self, spread, time};
use crate::report::groups::{Group, Row};
use crate::report::versus::Versus;
use crate::report::view;

/// Its lines.
pub(super) fn rows(group: &Group<'_>, versus: &Versus) -> Vec<String> {
    let share = if versus.any() { format!(" {} (95 %) |", versus.share()) } else { String::new() };
    let (columns, dashes) = match group.on_disk() {
        true => (
            format!(
                " p50 | p99 | figure (95 %) |{share} samples | request at the device (avgrq-sz) | queue depth (avgqu-sz) \
                 | busy (%util) |"
            ),
            7,
        ),
        false => {
            let others = group.others();
            let names: Vec<String> = others.iter().map(|name| format!(" {} (95 %) |", plain(name))).collect();
            (format!(" figure (95 %) |{share}{} samples |", names.concat()), 2 + others.len())
        }
    };
    let dashes = "--:|".repeat(dashes + usize::from(versus.any()));
    let mut lines = vec![format!("| side |{columns} marks |"), format!("|---|{dashes}---|")];
    for row in &group.rows {
        lines.push(if group.on_disk() { disk(row, versus) } else { other(row, group, versus) });
        lines.extend(below(row, group, versus));
    }
    lines
}

/// A row of a disk.
fn disk(row: &Row<'_>, versus: &Versus) -> String {
    let latency = |e: &Option<Estimate>| e.map_or("–".into(), |e| time(e.value));
    let figure = view::judged(row.cell)
        .map_or("–".into(), |(unit, e)| format!("{} ({})", format::figure(unit, e.value), spread(&e)));
    let [p50, p99] = view::latencies(row.cell).map(|e| latency(&e));
    let [kib, depth, busy] = match view::device(row.cell) {
        Some([kib, depth, busy]) => [format!("{kib} KiB"), depth, busy],
        None => ["not visible here".into(), String::new(), String::new()],
    };
    let samples = row.cell.samples.to_string();
    let mut cells = vec![plain(&row.label), p50, p99, figure];
    cells.extend(versus.any().then(|| view::share(row)));
    cells.extend([samples, kib, depth, busy, plain(&view::notes(row).join("; "))]);
    line(&cells)
}

/// A row of all else.
fn other(row: &Row<'_>, group: &Group<'_>, versus: &Versus) -> String {
    let mut cells =
        vec![plain(&row.label), row.cell.judged().map_or("–".into(), |figure| Shown::of(figure, None).text())];
    cells.extend(versus.any().then(|| view::share(row)));
    cells.extend(others(&row.beside.figures, group));
    cells.extend([row.cell.samples.to_string(), plain(&view::notes(row).join("; "))]);
    line(&cells)
}

/// What each of several actors did, and how evenly.
fn below(row: &Row<'_>, group: &Group<'_>, versus: &Versus) -> Vec<String> {
    let small = |label: &str, shown: Option<&Shown>, beside: &[Shown]| {
        let (value, share) = shown.map_or(("–".to_owned(), String::new()), |s| (s.text(), s.share.clone()));
        let mut cells = vec![plain(label)];
        let shared = versus.any().then_some(share);
        match group.on_disk() {
            true => {
                cells.extend([String::new(), String::new(), value]);
                cells.extend(shared);
                cells.extend(vec![String::new(); 5]);
            }
            false => {
                cells.push(value);
                cells.extend(shared);
                cells.extend(others(beside, group));
                cells.extend([String::new(), String::new()]);
            }
        }
        line(&cells)
    };
    let actors = row.beside.actors.iter().map(|part| small(&part.label, part.judged.as_ref(), &part.beside));
    let fairness = row.beside.fairness.iter().map(|shown| small(&shown.name, Some(shown), &[]));
    actors.chain(fairness).collect()
}

/// The other figures of a group, each in its column.
fn others(all: &[Shown], group: &Group<'_>) -> Vec<String> {
    let text = |name: &&str| match all.iter().find(|shown| shown.name == **name) {
        Some(shown) if shown.share.is_empty() => shown.text(),
        Some(shown) => format!("{}: {}", shown.text(), shown.share),
        None => "–".to_owned(),
    };
    group.others().iter().map(text).collect()
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}
