//! `vmio tax --noise`: the smallest difference that counts on this machine.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::result::Environment;
use vmio_model::run::Run;
use vmio_model::summary::{self, CellNoise};

use crate::context::Context;
use crate::fit::WIDTH;
use crate::report::document::{self, Column, Layout, Row, Table, say};
use crate::term;

/// What a run of each cell against itself showed.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    schema_version: &'static str,
    /// Number of the run in the store.
    run: i64,
    /// Where it was made.
    environment: &'a Environment,
    /// The cells with at least two pairs.
    noise: Vec<CellNoise>,
}

impl<'a> Document<'a> {
    /// The document of a run of `--noise`.
    pub fn of(run: &'a Run) -> Self {
        let (noise, environment) = (summary::noise(run), &run.environment);
        Self { schema_version: summary::SCHEMA_VERSION, run: run.id, environment, noise }
    }
}

/// Prints the A/A figures of a run.
pub fn show(run: &Run, context: &Context) -> anyhow::Result<()> {
    if context.json {
        term::json(&Document::of(run))?;
        return Ok(());
    }
    let cells = summary::noise(run);
    let mut doc = document::Document::new("");
    let head = format!("A/A of run {}: each cell against itself, in adjacent pairs, one boot per pair.", run.id);
    doc.put(say((0, 0), head));
    doc.put(say((0, 0), "With as many pairs, a difference below the last column is not significant here."));
    doc.gap();
    doc.put(table(&cells).into());
    if cells.is_empty() {
        doc.put(say((0, 0), "no cell has two pairs yet"));
    }
    term::print(&doc.text(context.style, WIDTH))?;
    Ok(())
}

fn table(cells: &[CellNoise]) -> Table {
    let columns = [
        Column::new("pairs", 5).gap(1),
        Column::new("A/A", 6).gap(1),
        Column::new("95 % interval", 14).left().gap(2),
        Column::new("smallest", 9).gap(1),
    ];
    let row = |cell: &CellNoise| {
        let ratio = cell.noise.ratio;
        let interval = ratio.interval.map_or("none".into(), |i| format!("{:.3} to {:.3}", i.low, i.high));
        let smallest = format!("{:.1} %", cell.noise.smallest_difference_ratio * 100.0);
        Row::new(&cell.key, [ratio.pairs.to_string(), format!("{:.3}", ratio.value), interval, smallest])
    };
    let table = Table::new("cell", Layout::flush(40), columns).with(cells.iter().map(row));
    Table { narrow: "cell".to_owned(), ..table }
}
