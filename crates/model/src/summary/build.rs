//! Makes a run's summary.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use super::rows::row;
use super::shares::{cells, share};
use super::{CellRow, SCHEMA_VERSION, Share, Summary, explain, grade, headline, scores, steady};
use crate::cell::Cell;
use crate::kind::RunKind;
use crate::modelled::ModelledDisk;
use crate::result::{Accel, RunState, Skipped};
use crate::run::Run;

/// What may and may not be concluded from emulated guests, with or without disks.
fn of_emulated(on_disks: bool) -> String {
    let reach = if on_disks { "which settings, request sizes and queue depths reach the device, and " } else { "" };
    format!(
        "The guests ran under software emulation (TCG), not hardware virtualisation. What may be concluded: {reach}\
         which setup beats which other one by a wide margin here. What may not: the share of the host that a guest \
         under KVM would get, latencies, CPU costs, or any comparison with published figures; emulation makes the \
         guest's own processor many times slower."
    )
}

/// What may be concluded from a run, where that is less than usual.
fn statement(run: &Run) -> Option<String> {
    let environment = &run.environment;
    let mut cells = run.samples.iter().map(|sample| &sample.cell).chain(run.skipped.iter().map(|s| &s.cell)).peekable();
    let on_disks = cells.peek().is_none() || cells.any(|cell| cell.targets().next().is_some());
    let emulated = (environment.accel == Some(Accel::Tcg)).then(|| of_emulated(on_disks));
    let capped = environment.cap_ratio.map(|cap| {
        format!(
            "To protect the other guests (--gentle) each workload was capped at {:.0} % of what a short native probe \
             of it reached, on both sides. 100 % means that the guest reached the cap, not the host's speed.",
            cap * 100.0
        )
    });
    let lab = environment.node.as_ref().map(|node| {
        format!(
            "The host of this run was itself a guest, a {node}. What may be concluded: what works on such storage, \
             which \
             request sizes and queue depths reach it, and which of its targets beats which other one by a wide margin. \
             What may not: any figure as that of a real host."
        )
    });
    let modelled = environment.modelled.as_ref();
    let not_kept = modelled.and_then(ModelledDisk::not_kept);
    let modelled = modelled.map(ModelledDisk::statement);
    let all: Vec<String> = emulated.into_iter().chain(lab).chain(modelled).chain(not_kept).chain(capped).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Judges a run. Its study decides when a share is converged.
pub fn summarise(run: &Run) -> Summary {
    let convergence = run.study.repeat.convergence();
    // The first round chose the controls, whether it counts or not.
    let controls = explain::of_run(run);
    let first: BTreeSet<&Cell> = run.samples.iter().filter(|s| s.round == 0).map(|s| &s.cell).collect();
    let named = run.study.cells();
    let steady = if run.study.repeat.steady_state { steady::states(&run.samples, &run.workloads) } else { Vec::new() };
    let run = &*steady::settled_run(run);
    // In the study's order, for rows and shares; cells that it does not name come last.
    let mut ran = cells(&run.samples);
    let places: BTreeMap<&Cell, usize> = named.iter().zip(0..).collect();
    ran.sort_by_key(|cell| places.get(cell).copied().unwrap_or(usize::MAX));
    let mut rows: Vec<CellRow> = ran.iter().map(|cell| row(run, cell)).collect();
    // A cell named by the study, or of the first round, is not only a control.
    for row in rows.iter_mut().filter(|row| controls.iter().any(|control| control.cell == row.cell)) {
        row.control = !first.contains(&row.cell) && !named.contains(&row.cell);
    }
    let baseline = run.study.baseline.clone();
    // Controls explain shares and have none of their own.
    let asked_for = |cell: &Cell| !rows.iter().any(|row| row.control && row.cell == *cell);
    let own = ran.iter().filter(|cell| asked_for(cell));
    let shares: Vec<Share> = own.filter_map(|cell| share(run, cell, &baseline, &convergence)).collect();
    let emulated = run.environment.accel == Some(Accel::Tcg);
    let mut headlines = headline::headlines(run, &rows, &shares, &baseline, &convergence, emulated).into_iter();
    Summary {
        schema_version: SCHEMA_VERSION.to_owned(),
        run: run.id,
        study: run.kind.clone(),
        command: run.command.clone(),
        started_unix_seconds: run.started_unix,
        state: run.state.clone(),
        environment: run.environment.clone(),
        emulated,
        statement: statement(run),
        headline: headlines.next(),
        further_headlines: headlines.collect(),
        explained: explain::explain(run, &controls, &convergence),
        convergence,
        cells: rows,
        scores: scores::scores(run, &shares, &baseline, &convergence),
        tells_apart: grade::tells_apart(run, &shares, &baseline),
        shares,
        steady,
        baseline,
        skipped: run.skipped.clone(),
        effective: run.effective.clone(),
    }
}

/// Why a result is partial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PartialReason {
    /// The run is not done: it was broken off, or is still being measured. `state` says which.
    NotDone,
    /// Nothing of what was asked is known.
    NoResult,
    /// Shares have fewer pairs or boots than the study asks for (`convergence`).
    TooFewPairs,
}

/// A result that is partial, for which `vmio tax` ends with exit code 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Partial {
    /// Why.
    pub reason: PartialReason,
    /// Shares with fewer pairs or boots than the study asks for (`convergence`: `min_pairs`, `min_boots`).
    pub short_shares: usize,
    /// Shares that were to be measured, without those of cells that were left out.
    pub shares: usize,
}

/// Whether a run's result is partial, and why.
pub fn partial(run: &Run, summary: &Summary) -> Option<Partial> {
    let (short_shares, shares) = short_of(run, summary);
    let reason = if !matches!(run.state, RunState::Done) {
        PartialReason::NotDone
    } else if !answers(run, summary) {
        PartialReason::NoResult
    } else if short_shares > 0 {
        PartialReason::TooFewPairs
    } else {
        return None;
    };
    Some(Partial { reason, short_shares, shares })
}

/// How many shares have fewer pairs or boots than the study asks for, of how many that were to be measured. Cells that
/// were left out are told by themselves; what `--prove` and an A/A run measure is judged by their own rules.
fn short_of(run: &Run, summary: &Summary) -> (usize, usize) {
    if matches!(run.kind, RunKind::Noise(_) | RunKind::Proof(_)) {
        return (0, 0);
    }
    let (skipped, rule) = (Skipped::keys(&summary.skipped), &summary.convergence);
    let asked: Vec<String> = run.study.cells().iter().filter(|cell| run.study.compares(cell)).map(Cell::key).collect();
    let asked: Vec<&String> = asked.iter().filter(|key| !skipped.contains(*key)).collect();
    let has = |share: &Share| share.share_ratio.pairs >= rule.min_pairs && share.share_ratio.boots >= rule.min_boots;
    let short = asked.iter().filter(|key| !summary.share(key).is_some_and(has)).count();
    (short, asked.len())
}

/// Whether a run has any result that its study asked for: a share where cells are compared, for a comparison with
/// itself (A/A) a sample of such a cell, else any sample.
pub fn answers(run: &Run, summary: &Summary) -> bool {
    let compares = run.study.cells().iter().any(|cell| run.study.compares(cell));
    match &run.kind {
        _ if !compares => !run.samples.is_empty(),
        RunKind::Noise(_) => run.samples.iter().any(|sample| run.study.compares(&sample.cell)),
        _ => !summary.shares.is_empty(),
    }
}
