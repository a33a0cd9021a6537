//! Two runs against each other, as [`vmio_model::summary::compare`] sees them.

use std::collections::BTreeSet;

use vmio_model::figure::{Better, Unit};
use vmio_model::summary::Comparison;
use vmio_model::summary::compare::{CellComparison, Uncompared};

use super::document::{
    Block, Cell, Column, Document, In, Layout, Long, Name, Pairs, Row, Span, Table, Text, heading, list, say,
};
use super::format;

/// The comparison as a document.
pub(super) fn document(c: &Comparison) -> Document {
    let mut doc = Document::new(format!("Run {} against run {}", c.b, c.a));
    doc.only(In::TERMINAL, heading(2, &doc.title));
    doc.put(if c.differences.is_empty() {
        say((0, 0), "The environment was the same.")
    } else {
        let differ = Text::from(Span::Bold("Their environments differ.".to_owned()));
        let why = " Any of these may be the cause of a difference below:".to_owned();
        say((0, 0), differ.and(Span::Plain(why)))
    });
    let pairs = c.differences.iter().map(|d| (In::ALL, Text::from(&d.what), format!("{} -> {}", d.a, d.b)));
    doc.put(Block::Pairs(Pairs { indent: 2, width: 23, long: Name::Pushes, pairs: pairs.collect() }));
    doc.gap();
    if !c.cells.is_empty() {
        doc.put(cells(c).into());
    } else if c.uncompared.is_empty() {
        doc.put(say((0, 0), "They have no cell in common."));
    } else {
        doc.put(say((0, 0), "No cell that they have in common can be compared."));
    }
    let why = |cell: &Uncompared| format!("not compared: {}, by its {}: {}", cell.key, cell.figure, cell.why);
    doc.put(list((2, 4), c.uncompared.iter().map(why)));
    let less: BTreeSet<&str> =
        c.cells.iter().filter(|cell| cell.better == Better::Less).map(|cell| cell.figure.as_str()).collect();
    if !less.is_empty() {
        let names = less.into_iter().collect::<Vec<_>>().join(", ");
        let turned = format!("run {} / run {}", c.a, c.b);
        let note = format!("Of {names} less is better: there it is {turned}, so that above 1 is faster.");
        doc.put(say((0, 0), note));
    }
    for cell in c.cells.iter().filter(|cell| !cell.components.is_empty()) {
        doc.gap();
        doc.put(heading(2, format!("CPU time of a request by component, {}", cell.key)));
        doc.put(components(c, cell).into());
    }
    for (run, keys) in [(c.a, &c.only_a), (c.b, &c.only_b)] {
        doc.put(list((2, 4), keys.iter().map(|key| format!("only in run {run}: {key}"))));
    }
    doc
}

fn cells(c: &Comparison) -> Table {
    let columns =
        [Column::new("ratio (95 %)", 18).left(), Column::new("", 19).left().gap(1), Column::new("n", 2).gap(1)];
    let rows = c.cells.iter().map(|cell| {
        let verdict = cell.verdict.clone();
        let verdict = if cell.differs { Span::Bold(verdict) } else { Span::Plain(verdict) };
        let ratio = Cell::from(format::factor(&cell.figure_ratio));
        Row::new(&cell.key, [ratio, Text::from(verdict).into(), cell.figure_ratio.pairs.to_string().into()])
    });
    let narrow = format!("run {} / run {}", c.b, c.a);
    let layout = Layout { indents: [0, 0], long: Long::Outside, ..Layout::new(39) };
    Table { narrow, ..Table::new("Cell", layout, columns).with(rows) }
}

/// Components whose time differs by less than this part of a request's are left out; the JSON has all.
const LEAST_PART: f64 = 0.002;

/// CPU time of a request in each component, in both runs.
fn components(c: &Comparison, cell: &CellComparison) -> Table {
    let time = |seconds: Option<f64>| seconds.map_or("0".to_owned(), |seconds| format::figure(Unit::Seconds, seconds));
    let most: f64 = cell.components.iter().filter_map(|one| one.a_seconds_per_request).sum();
    let shown = cell.components.iter().filter(|one| one.difference.value.abs() >= most * LEAST_PART);
    let rows = shown.map(|one| {
        let difference = format::difference(Unit::Seconds, &one.difference);
        let sure = one.difference.interval.is_some_and(|i| i.above(0.0) || i.below(0.0));
        let difference = if sure { Span::Bold(difference) } else { Span::Plain(difference) };
        let times = [one.a_seconds_per_request, one.b_seconds_per_request].map(|seconds| Cell::from(time(seconds)));
        Row::new(&one.component, times.into_iter().chain([Text::from(difference).into()]))
    });
    let columns = [
        Column::new(format!("run {}", c.a), 11),
        Column::new(format!("run {}", c.b), 11),
        Column::new("difference (95 %)", 26),
    ];
    let layout = Layout { long: Long::Outside, ..Layout::flush(32) };
    Table::new("Component", layout, columns).with(rows)
}
