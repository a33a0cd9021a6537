//! CPU time by component: a table for each cell whose processors were sampled.

use vmio_model::figure::Unit;
use vmio_model::stats::Estimate;
use vmio_model::summary::components::{CellComponents, Component, Components};

use super::document::{Column, Document, Layout, Long, Row, Table, aside, heading};
use super::format;

/// Width of the names of components on a terminal.
const LABEL: usize = 31;
/// Share below which a component is a part of the last row; the JSON has all.
const LEAST_SHARE: f64 = 0.005;

const MEANING: &str = "By samples of all processors, about 1,000 times a second of their work. Counted are vmio's \
                       processes, guests among them, and the kernel's threads, which also work for others. guest: the \
                       guest's own code; translated guest code: the same where QEMU emulates its processor; files: \
                       programs and libraries in which QEMU, the workload and vmio were; kernel: the host's, by the \
                       function that ran (docs/probes.md). Time that is measured by cpu-clock in the kernel with \
                       interrupts off counts where they are on again, often under locks or scheduler.";

/// The tables; empty where no processor was sampled.
pub(super) fn tables(cells: &[CellComponents]) -> Document {
    let mut doc = Document::new("");
    for CellComponents { key, baseline, components } in cells {
        let base = baseline.as_ref().and_then(|base| cells.iter().find(|cell| cell.key == *base));
        doc.put(heading(2, format!("CPU time by component, {key}")));
        doc.put(table(components, base.map(|base| &base.components)).into());
        doc.put(aside((0, 0), exactness(components)));
        doc.gap();
    }
    if !cells.is_empty() {
        doc.put(aside((0, 0), MEANING));
        doc.gap();
    }
    doc
}

/// How exact the samples are, and what they cost.
fn exactness(all: &Components) -> String {
    let clock = all.of_clock_ratio.map_or(String::new(), |ratio| {
        format!(
            ", and their sum is {} of the time of these processes and threads by the scheduler's clock",
            format::percent(ratio)
        )
    });
    let cost = all.interrupt_seconds.zip(all.interrupted_ratio()).map_or(String::new(), |(seconds, ratio)| {
        let (seconds, ratio) = (format::time(seconds), format::percent(ratio));
        format!(" Each interrupted its processor for about {seconds}, together {ratio} of this time.")
    });
    format!("Samples are by {}; {} lost{clock}.{cost}", all.source, all.lost_samples)
}

/// CPU seconds of a component: of a request where those are counted, else of the cell.
fn seconds(one: &Component) -> Estimate {
    one.seconds_per_request.unwrap_or(one.seconds)
}

/// Whether the workload counts requests.
fn of_requests(all: &Components) -> bool {
    all.rows.iter().any(|one| one.seconds_per_request.is_some())
}

fn find<'a>(all: &'a Components, component: &str) -> Option<&'a Component> {
    all.rows.iter().find(|one| one.component == component)
}

fn table(all: &Components, base: Option<&Components>) -> Table {
    // Of two cells that count other things there is no difference.
    let base = base.filter(|base| of_requests(base) == of_requests(all));
    let time = if of_requests(all) { "CPU/req" } else { "CPU" };
    let columns = [("samples", 9), (time, 19), ("share", 8)].into_iter().chain(base.map(|_| ("vs. baseline", 13)));
    let columns = columns.map(|(head, width)| Column::new(head, width));
    let counts = |one: &Component| one.share_ratio >= LEAST_SHARE;
    let of_base = |one: &Component| base.and_then(|base| find(base, &one.component)).is_some_and(counts);
    let (shown, rest): (Vec<&Component>, Vec<&Component>) =
        all.rows.iter().partition(|one| counts(one) || of_base(one));
    let mut rows: Vec<Row> = shown.into_iter().map(|one| row(one, base)).collect();
    let alone = base.into_iter().flat_map(|base| &base.rows);
    let alone = alone.filter(|theirs| counts(theirs) && find(all, &theirs.component).is_none());
    rows.extend(alone.map(|theirs| {
        let less = signed(-seconds(theirs).value);
        Row::new(&theirs.component, ["0".to_owned(), String::new(), String::new(), less])
    }));
    rows.extend((!rest.is_empty()).then(|| sum(format::count(rest.len(), "other"), &rest, None)));
    let versus = base.map(|base| signed(total(&all.rows) - total(&base.rows)));
    rows.push(sum("all".to_owned(), &all.rows.iter().collect::<Vec<_>>(), versus));
    Table::new("Component", Layout { long: Long::Outside, ..Layout::flush(LABEL) }, columns).with(rows)
}

fn row(one: &Component, base: Option<&Components>) -> Row {
    let time = format::estimate(Unit::Seconds, &seconds(one));
    let mut cells = vec![one.samples.to_string(), time, format::percent(one.share_ratio)];
    cells.extend(base.map(|base| {
        signed(seconds(one).value - find(base, &one.component).map_or(0.0, |theirs| seconds(theirs).value))
    }));
    Row::new(&one.component, cells)
}

/// Several components together, with their difference to those of the baseline where that is told.
fn sum(name: String, all: &[&Component], versus: Option<String>) -> Row {
    let samples: u64 = all.iter().map(|one| one.samples).sum();
    let share: f64 = all.iter().map(|one| one.share_ratio).sum();
    let time = format::figure(Unit::Seconds, total(all.iter().copied()));
    Row::new(name, [samples.to_string(), time, format::percent(share)].into_iter().chain(versus))
}

/// CPU seconds of several components together.
fn total<'a>(all: impl IntoIterator<Item = &'a Component>) -> f64 {
    all.into_iter().map(|one| seconds(one).value).sum()
}

/// A time more or less.
fn signed(seconds: f64) -> String {
    format!("{}{}", if seconds < 0.0 { "-" } else { "+" }, format::figure(Unit::Seconds, seconds.abs()))
}
