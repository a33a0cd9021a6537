//! Two runs against each other: what differed around them first, then cell by cell.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SCHEMA_VERSION;
use crate::cell::Cell;
use crate::figure::Better;
use crate::result::Run;
use crate::stats::{Ratio, independent_ratio};

use super::build::cells;
use super::judge::judge_of;

/// One thing that was not the same around the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// What: a field of the environment, or an effective disk setting.
    pub what: String,
    /// In the first run.
    pub a: String,
    /// In the second run.
    pub b: String,
}

/// The same cell in both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellComparison {
    /// Key of the cell.
    pub key: String,
    /// The cell.
    pub cell: Cell,
    /// Name of the figure that it is judged by.
    pub figure: String,
    /// Which way is better.
    #[serde(default = "more")]
    pub better: Better,
    /// Second run over first, of a figure of which less is better the first over the second: above 1 is faster.
    pub figure_ratio: Ratio,
    /// Whether the interval excludes "equal".
    pub differs: bool,
    /// `faster`, `slower` or `no difference shown`.
    pub verdict: String,
}

fn more() -> Better {
    Better::More
}

/// Run B against run A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of this document.
    pub schema_version: String,
    /// Number of the first run.
    pub a: i64,
    /// Number of the second run.
    pub b: i64,
    /// What was not the same around them. Read this first: each may be the cause.
    pub differences: Vec<Difference>,
    /// Cells that both have, in the order of the first.
    pub cells: Vec<CellComparison>,
    /// Keys that only the first has.
    pub only_a: Vec<String>,
    /// Keys that only the second has.
    pub only_b: Vec<String>,
}

/// Compares two runs. Their samples are independent (Welch's interval on the log scale).
pub fn compare(a: &Run, b: &Run) -> Comparison {
    let both = cells(&a.samples).into_iter().filter_map(|one| cell(a, b, one)).collect();
    let only = |one: &Run, other: &Run| -> Vec<String> {
        let there = cells(&other.samples);
        cells(&one.samples).into_iter().filter(|s| !there.contains(s)).map(Cell::key).collect()
    };
    Comparison {
        schema_version: SCHEMA_VERSION.to_owned(),
        a: a.id,
        b: b.id,
        differences: differences(a, b),
        cells: both,
        only_a: only(a, b),
        only_b: only(b, a),
    }
}

fn cell(a: &Run, b: &Run, cell: &Cell) -> Option<CellComparison> {
    let judge = judge_of(&a.workloads, cell);
    let figures = |run: &Run| -> Vec<(u32, f64)> {
        run.samples.iter().filter(|s| s.cell == *cell).filter_map(|s| Some((s.boot, judge.rising(s)?))).collect()
    };
    let ratio = independent_ratio(&figures(a), &figures(b))?;
    let verdict = match () {
        () if ratio.surely_above(1.0) => "faster",
        () if ratio.surely_below(1.0) => "slower",
        () => "no difference shown",
    };
    Some(CellComparison {
        key: cell.key(),
        cell: cell.clone(),
        better: judge.figure.better,
        figure: judge.figure.name,
        figure_ratio: ratio,
        differs: verdict != "no difference shown",
        verdict: verdict.to_owned(),
    })
}

/// Environments field by field, then the effective settings. By way of the
/// JSON form, so that a field added to the environment is compared too.
fn differences(a: &Run, b: &Run) -> Vec<Difference> {
    let mut all = Vec::new();
    let object = |run: &Run| match serde_json::to_value(&run.environment) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let (ea, eb) = (object(a), object(b));
    for (key, x) in &ea {
        let y = eb.get(key).unwrap_or(&serde_json::Value::Null);
        if x != y {
            all.push(Difference { what: key.clone(), a: plain(x), b: plain(y) });
        }
    }
    for (attachment, settings) in &a.effective {
        let Some(others) = b.effective.get(attachment) else { continue };
        let keys: std::collections::BTreeSet<&String> = settings.keys().chain(others.keys()).collect();
        for key in keys {
            let text = |map: &std::collections::BTreeMap<String, String>| {
                map.get(key).cloned().unwrap_or_else(|| "(not reported)".into())
            };
            if settings.get(key) != others.get(key) {
                all.push(Difference { what: format!("{attachment}: {key}"), a: text(settings), b: text(others) });
            }
        }
    }
    all
}

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "(none)".to_owned(),
        other => other.to_string(),
    }
}
