//! Two runs against each other, as [`vmio_model::summary::compare`] sees them.

use std::collections::BTreeSet;

use vmio_model::figure::Better;
use vmio_model::summary::Comparison;
use vmio_model::summary::compare::Uncompared;

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
