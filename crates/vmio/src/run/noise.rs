//! `vmio tax --noise`: what difference this machine cannot tell apart.

use std::fmt::Write as _;

use serde_json::json;
use vmio_model::result::Run;
use vmio_model::summary;

use crate::cli::Context;
use crate::term;

/// Prints the A/A figures of a run.
pub fn show(run: &Run, context: &Context) -> anyhow::Result<()> {
    let cells = summary::noise(run);
    if context.json {
        let document = json!({
            "schema_version": summary::SCHEMA_VERSION, "run": run.id, "environment": run.environment, "noise": cells,
        });
        term::json(&document)?;
        return Ok(());
    }
    let mut text = String::new();
    let _ = writeln!(text, "A/A of run {}: each cell against itself, in adjacent pairs, a boot a pair.", run.id);
    let _ = writeln!(text, "A difference below the last column, measured with as many pairs, means nothing here.\n");
    let _ = writeln!(text, "{:<52} {:>5}  {:>6}  {:<17} {:>9}", "cell", "pairs", "A/A", "95 % interval", "smallest");
    for cell in &cells {
        let ratio = cell.noise.ratio;
        let interval = ratio.interval.map_or("none".into(), |i| format!("{:.3} to {:.3}", i.low, i.high));
        let smallest = cell.noise.smallest_difference_ratio * 100.0;
        let _ = writeln!(
            text,
            "{:<52} {:>5}  {:>6.3}  {interval:<17} {smallest:>7.1} %",
            cell.key, ratio.pairs, ratio.value
        );
    }
    if cells.is_empty() {
        let _ = writeln!(text, "no cell has two pairs yet");
    }
    term::print(&text)?;
    Ok(())
}
