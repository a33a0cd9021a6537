//! Comparison of two runs: differences of their environments first, then cell by cell.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SCHEMA_VERSION;
use crate::cell::Cell;
use crate::figure::{Better, Compared, Figure, Form, Unit};
use crate::result::{Sample, figures_of};
use crate::run::Run;
use crate::stats::{Difference as Apart, Ratio, independent_difference, independent_ratio};

use super::components::per_request;
use super::judge::judge_of;
use super::rows::amount;
use super::shares::{cells, comparable};

/// A difference between the two runs' environments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// A field of the environment, or a disk setting in force.
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
    /// Name of the figure by which it is judged.
    pub figure: String,
    /// Which way is better.
    #[serde(default = "more")]
    pub better: Better,
    /// Second run over first, or where less is better the first over the second: above 1 is faster.
    pub figure_ratio: Ratio,
    /// Whether the interval excludes 1.
    pub differs: bool,
    /// `faster`, `slower` or `no difference shown`.
    pub verdict: String,
    /// CPU time of a request by component, the largest difference first; empty where a run did not sample the
    /// processors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentDifference>,
}

/// CPU time of a request in a component, in two runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentDifference {
    /// Name of the component.
    pub component: String,
    /// Mean seconds in the first run; `None` where it has no such component.
    pub a_seconds_per_request: Option<f64>,
    /// Mean seconds in the second run.
    pub b_seconds_per_request: Option<f64>,
    /// The second less the first, in seconds.
    pub difference: Apart,
}

/// The same cell in both runs, with figures that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Uncompared {
    /// Key of the cell.
    pub key: String,
    /// Name of the figure by which it is judged.
    pub figure: String,
    /// Why.
    pub why: String,
}

fn more() -> Better {
    Better::More
}

/// Run B compared with run A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Version of this document.
    pub schema_version: String,
    /// Number of the first run.
    pub a: i64,
    /// Number of the second run.
    pub b: i64,
    /// Differences of their environments. Read this first: each may be the cause.
    pub differences: Vec<Difference>,
    /// Cells of both, in the order of the first.
    pub cells: Vec<CellComparison>,
    /// Cells of both that cannot be compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncompared: Vec<Uncompared>,
    /// Keys of the first run only.
    pub only_a: Vec<String>,
    /// Keys of the second run only.
    pub only_b: Vec<String>,
}

/// Compares two runs. Their samples are independent (Welch's interval on the log scale).
pub fn compare(a: &Run, b: &Run) -> Comparison {
    let (cells_a, cells_b) = (cells(&a.samples), cells(&b.samples));
    let only = |ones: &[&Cell], others: &[&Cell]| -> Vec<String> {
        let there: BTreeSet<&Cell> = others.iter().copied().collect();
        ones.iter().filter(|cell| !there.contains(*cell)).map(|cell| cell.key()).collect()
    };
    let (only_a, only_b) = (only(&cells_a, &cells_b), only(&cells_b, &cells_a));
    let there: BTreeSet<&Cell> = cells_b.iter().copied().collect();
    let (mut both, mut uncompared) = (Vec::new(), Vec::new());
    for one in cells_a.into_iter().filter(|one| there.contains(one)) {
        match cell(a, b, one) {
            Ok(compared) => both.push(compared),
            Err(not) => uncompared.push(not),
        }
    }
    Comparison {
        schema_version: SCHEMA_VERSION.to_owned(),
        a: a.id,
        b: b.id,
        differences: differences(a, b),
        cells: both,
        uncompared,
        only_a,
        only_b,
    }
}

fn cell(a: &Run, b: &Run, cell: &Cell) -> Result<CellComparison, Uncompared> {
    let judge = judge_of(&a.workloads, cell);
    let not = |why: String| Uncompared { key: cell.key(), figure: judge.figure.name.clone(), why };
    // A sum is over all actors.
    let actors = cell.actors().take(if judge.is_sum() { usize::MAX } else { 1 });
    for actor in actors {
        if let Some(why) = otherwise(a, b, &judge.figure, &actor.workload) {
            return Err(not(why));
        }
    }
    let figures = |run: &Run| -> Vec<(u32, f64)> {
        comparable(&run.samples, cell).filter_map(|s| Some((s.boot, judge.rising(s)?))).collect()
    };
    let (of_a, of_b) = (figures(a), figures(b));
    let without = || if of_a.iter().any(|(_, value)| *value > 0.0) { b.id } else { a.id };
    let ratio =
        independent_ratio(&of_a, &of_b).ok_or_else(|| not(format!("run {} has no value above 0", without())))?;
    let verdict = match (ratio.surely_above(1.0), ratio.surely_below(1.0)) {
        (true, _) => "faster",
        (_, true) => "slower",
        _ => "no difference shown",
    };
    Ok(CellComparison {
        key: cell.key(),
        cell: cell.clone(),
        better: judge.figure.better,
        figure: judge.figure.name.clone(),
        figure_ratio: ratio,
        differs: verdict != "no difference shown",
        verdict: verdict.to_owned(),
        components: components(a, b, cell),
    })
}

/// The CPU time of a request by component.
fn components(a: &Run, b: &Run, cell: &Cell) -> Vec<ComponentDifference> {
    let of = |run: &Run| {
        let samples: Vec<&Sample> = run.samples.iter().filter(|s| s.cell == *cell).collect();
        per_request(&samples, |s| amount(s, &run.workloads, Unit::Requests))
    };
    let (of_a, of_b) = (of(a), of(b));
    // Where a run sampled nothing there is nothing to compare; a component that one of them lacks took no time there.
    let (Some(none_a), Some(none_b)) = (nothing(&of_a), nothing(&of_b)) else { return Vec::new() };
    let mean = |all: &[(u32, f64)]| all.iter().map(|(_, seconds)| seconds).sum::<f64>() / all.len() as f64;
    let one = |component: &String| {
        let (in_a, in_b) = (of_a.get(component), of_b.get(component));
        Some(ComponentDifference {
            component: component.clone(),
            a_seconds_per_request: in_a.map(|all| mean(all)),
            b_seconds_per_request: in_b.map(|all| mean(all)),
            difference: independent_difference(in_a.unwrap_or(&none_a), in_b.unwrap_or(&none_b))?,
        })
    };
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let mut all: Vec<ComponentDifference> = names.into_iter().filter_map(one).collect();
    all.sort_by(|x, y| y.difference.value.abs().total_cmp(&x.difference.value.abs()));
    all
}

/// A component that took no time in any sample; `None` without samples.
fn nothing(all: &BTreeMap<String, Vec<(u32, f64)>>) -> Option<Vec<(u32, f64)>> {
    Some(all.values().next()?.iter().map(|(boot, _)| (*boot, 0.0)).collect())
}

/// How the second run declares the figure of a workload differently from the first, which is judged by it.
fn otherwise(a: &Run, b: &Run, figure: &Figure, workload: &str) -> Option<String> {
    let all = figures_of(&b.workloads, workload);
    let Some(other) = all.iter().find(|other| other.name == figure.name) else {
        return Some(format!("run {} does not measure it", b.id));
    };
    let (a, b) = (a.id, b.id);
    let how = |better: Better| if better == Better::More { "more" } else { "less" };
    let compared = |compared: Compared| match compared {
        Compared::Ratio => "as a ratio",
        Compared::Difference => "as a difference",
        Compared::No => "not at all",
    };
    let form = |form: Form| match form {
        Form::Scalar => "one number",
        Form::Distribution => "a distribution",
    };
    Some(if other.unit != figure.unit {
        format!("run {a} counts it in {} and run {b} in {}", figure.unit.word(), other.unit.word())
    } else if other.better != figure.better {
        format!("in run {a} {} of it is better and in run {b} {}", how(figure.better), how(other.better))
    } else if other.compared != figure.compared {
        format!("run {a} compares it {} and run {b} {}", compared(figure.compared), compared(other.compared))
    } else if other.form != figure.form {
        format!("in run {a} it is {} and in run {b} {}", form(figure.form), form(other.form))
    } else if other.labels != figure.labels {
        format!("run {a} and run {b} have other labels of it")
    } else {
        return None;
    })
}

/// Measurements in an environment, which are never the same twice.
const MEASURED: [&str; 2] = ["at_rest", "sample_interrupt_seconds"];

/// Environments field by field, then the settings in force, compared as JSON, so that new fields are included.
fn differences(a: &Run, b: &Run) -> Vec<Difference> {
    let mut all = Vec::new();
    let object = |run: &Run| match serde_json::to_value(&run.environment) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let (ea, eb) = (object(a), object(b));
    // In words, without the model's accuracy in each run, which does not make it another disk.
    let disk = |run: &Run| run.environment.modelled.as_ref().map_or_else(|| "(none)".into(), |d| d.to_string());
    // An empty field is left out of its run's JSON.
    let keys = ea.keys().chain(eb.keys().filter(|key| !ea.contains_key(*key)));
    for key in keys.filter(|key| !MEASURED.contains(&key.as_str())) {
        let of = |map: &serde_json::Map<String, serde_json::Value>| map.get(key).cloned().unwrap_or_default();
        let (x, y) = (of(&ea), of(&eb));
        if key == "modelled" {
            let (a, b) = (disk(a), disk(b));
            all.extend((a != b).then(|| Difference { what: key.clone(), a, b }));
        } else if x != y {
            all.push(Difference { what: key.clone(), a: plain(&x), b: plain(&y) });
        }
    }
    for (attachment, settings) in &a.effective {
        let Some(others) = b.effective.get(attachment) else { continue };
        let keys: BTreeSet<&String> = settings.keys().chain(others.keys()).collect();
        for key in keys {
            let text =
                |map: &BTreeMap<String, String>| map.get(key).cloned().unwrap_or_else(|| "(not reported)".into());
            let alike = |map: &BTreeMap<String, String>| map.get(key).map(|value| unnumbered(value));
            if alike(settings) != alike(others) {
                all.push(Difference { what: format!("{attachment}: {key}"), a: text(settings), b: text(others) });
            }
        }
    }
    all
}

/// A value without the numbers of loop devices, which depend on those in use.
fn unnumbered(value: &str) -> String {
    let mut parts = value.split(LOOP);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + LOOP + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Prefix of loop devices.
const LOOP: &str = "/dev/loop";

fn plain(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => "(none)".to_owned(),
        other => other.to_string(),
    }
}
