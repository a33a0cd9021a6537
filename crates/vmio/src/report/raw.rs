//! Every sample of a run, in a table that a page folds away: those of disks with columns of their own, all else
//! with whatever it measured.

use vmio_model::figure::{Figure, Reading, Value};
use vmio_model::result::Sample;
use vmio_model::run::Run;
use vmio_model::summary::judge_of;

use super::document::{Align, Block, Column, Document, In, Layout, Row, Table, heading};
use super::format::{self, time};
use super::view;

/// Columns of the raw figures of disks, after the cell's name.
const DISK: [&str; 11] =
    ["Round", "Boot", "MB/s", "IOPS", "p50", "p99", "Device KiB", "Depth", "Busy", "Foreign bytes", "Marks"];

/// All samples.
pub(super) fn put(doc: &mut Document, run: &Run) {
    let (disks, others): (Vec<&Sample>, Vec<&Sample>) = run.samples.iter().partition(|s| s.cell.target().is_some());
    let table = |columns: Vec<Column>, rows: Vec<Row>| {
        (In::HTML, Block::from(Table::new("Cell", Layout::new(0), columns).with(rows)))
    };
    let mut tables = Vec::new();
    if !disks.is_empty() || others.is_empty() {
        let rows = disks.iter().map(|s| Row::new(s.cell.key(), of_disk(s))).collect();
        tables.push(table(DISK.map(|head| Column::new(head, 0)).into(), rows));
    }
    if !others.is_empty() {
        let figures = Column { align: Align::Words, ..Column::new("Figures", 0) };
        let columns = vec![Column::new("Round", 0), Column::new("Boot", 0), figures];
        let cells = |s: &Sample| [view::nth(s.round), view::nth(s.boot), of_other(s, run)];
        tables.push(table(columns, others.iter().map(|s| Row::new(s.cell.key(), cells(s))).collect()));
    }
    doc.only(In::HTML, heading(2, "Raw figures"));
    doc.only(In::HTML, Block::Folded(format!("All {} samples", run.samples.len()), tables));
}

/// A sample in the columns of [`DISK`].
fn of_disk(s: &Sample) -> [String; 11] {
    let (work, latency) = (s.work(), s.result.latency());
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let marks: Vec<&str> = s.marks.iter().map(|m| format::mark(*m)).collect();
    [
        view::nth(s.round),
        view::nth(s.boot),
        format!("{:.2}", work.bandwidth() / 1e6),
        or_dash((work.ios > 0).then(|| format!("{:.0}", work.iops()))),
        or_dash(latency.and_then(|l| l.at(50.0)).map(time)),
        or_dash(latency.and_then(|l| l.at(99.0)).map(time)),
        or_dash(s.device().map(|d| format!("{:.1}", d.request_bytes / 1024.0))),
        or_dash(s.device().map(|d| format!("{:.2}", d.queue_depth))),
        or_dash(s.device().and_then(|d| d.busy_ratio).map(|b| format!("{:.0} %", b * 100.0))),
        or_dash(s.foreign.during_bytes_ratio.map(format::percent)),
        marks.join(", "),
    ]
}

/// All figures of a sample, amounts too, with what tells them apart.
fn of_other(s: &Sample, run: &Run) -> String {
    let all = judge_of(&run.workloads, &s.cell).all(s, &run.workloads);
    all.iter().map(|(figure, reading)| one(figure, reading)).collect::<Vec<_>>().join("; ")
}

fn one(figure: &Figure, reading: &Reading) -> String {
    let labels: Vec<String> = reading.labels.iter().map(|(name, value)| format!(" {name} {value}")).collect();
    let value = |x: f64| format::figure(figure.unit, x);
    let text = match &reading.value {
        Value::Distribution(d) => {
            let at = |p: f64| d.at(p).map_or(String::new(), |x| format!(", p{p:.0} {}", value(x)));
            format!("mean {}{}{}", value(d.mean), at(50.0), at(99.0))
        }
        Value::Scalar(x) => value(*x),
    };
    format!("{}{}: {text}", figure.name, labels.concat())
}
