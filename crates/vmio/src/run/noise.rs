//! `vmio tax --noise`: what difference this machine cannot tell apart.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::result::Environment;
use vmio_model::run::Run;
use vmio_model::summary::{self, CellNoise};

use crate::context::Context;
use crate::fit;
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
    /// Of a run of `--noise`.
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
    let mut text = String::new();
    let head = format!("A/A of run {}: each cell against itself, in adjacent pairs, one boot per pair.", run.id);
    text += &fit::paragraph("", 0, &head);
    text += &fit::paragraph("", 0, "With as many pairs, a difference below the last column is not significant here.");
    text.push('\n');
    let _ = writeln!(text, "{:<40} {:>5} {:>6}  {:<14} {:>9}", "cell", "pairs", "A/A", "95 % interval", "smallest");
    for cell in &cells {
        let ratio = cell.noise.ratio;
        let interval = ratio.interval.map_or("none".into(), |i| format!("{:.3} to {:.3}", i.low, i.high));
        let smallest = cell.noise.smallest_difference_ratio * 100.0;
        let key = fit::beside(&mut text, &cell.key, 40, 2);
        let _ = writeln!(text, "{key} {:>5} {:>6.3}  {interval:<14} {smallest:>7.1} %", ratio.pairs, ratio.value);
    }
    if cells.is_empty() {
        let _ = writeln!(text, "no cell has two pairs yet");
    }
    term::print(&text)?;
    Ok(())
}
