//! How much a writing cell may write: the write budget includes all that is written to the device, also making targets,
//! and should suffice for the fewest rounds.
//!
//! A workload goes over its span once at most, so the span limits a cell at any speed of the disk. Where the fewest
//! rounds with whole targets as spans do not fit, small appends get twice what they write at the assumed rate, and the
//! rest is shared equally. Both sides of a pair have the same span.

use std::collections::{BTreeMap, BTreeSet};

use super::{OWN_CONTROLS, Rates, SMALL_BLOCK, budget_bytes, jobs, precondition_bytes, refills, seconds_of, writes};
use crate::cell::Cell;
use crate::result::WorkloadTraits;
use crate::study::{MIB, Study};

/// Least span of a writing cell: what fio needs for a measurement.
const LEAST: u64 = 64 * MIB;

/// Most bytes that a writing cell writes to the device beyond its span: metadata of the file system.
const OVER_BYTES: u64 = 4 * MIB;

/// Most bytes that a cell of this span writes, metadata included.
pub fn hard_bytes(span: u64) -> u64 {
    span.saturating_add(span / 50 + OVER_BYTES)
}

/// The spans of a study's writing cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spans {
    /// By writing workload.
    pub by_workload: BTreeMap<String, u64>,
    /// Bytes for writing targets again in a round.
    refills: u64,
    /// Workloads whose guests have control cells.
    controlled: BTreeSet<String>,
    whole: u64,
}

/// The largest spans with which the fewest rounds fit into the budget besides `making_bytes`, and the least budget that
/// any spans would fit.
pub(super) fn of(
    study: &Study,
    cells: &[Cell],
    traits: &[WorkloadTraits],
    rates: &Rates,
    making_bytes: u64,
) -> (Spans, u64) {
    let whole = study.target_bytes();
    let names: BTreeSet<&str> = cells.iter().flat_map(jobs).map(|j| j.workload).filter(|w| writes(traits, w)).collect();
    let controlled = study.control.as_ref().map(|c| c.workloads.iter().cloned().collect()).unwrap_or_default();
    let with = |limit: u64, small: bool| {
        let span = |name: &str| {
            if let Some(&fixed) = rates.fixed_bytes.get(name) {
                return fixed;
            }
            let appends = traits.iter().find(|t| t.name == name).and_then(|t| t.disk.as_ref());
            let appends = appends.filter(|t| t.sequential && t.depth == 1 && t.block_bytes <= SMALL_BLOCK);
            let longest =
                cells.iter().flat_map(jobs).filter(|j| j.workload == name).map(|j| seconds_of(study, j.actor));
            let longest = longest.fold(0.0, f64::max);
            let likely = appends.map(|t| 2.0 * rates.small_ios_per_second * t.block_bytes as f64 * longest);
            let most = likely.filter(|_| small).map_or(whole, |bytes| (bytes as u64).max(LEAST).next_multiple_of(MIB));
            most.min(limit).min(whole)
        };
        Spans {
            by_workload: names.iter().map(|&name| (name.to_owned(), span(name))).collect(),
            refills: refills(study, cells, traits, rates),
            controlled: BTreeSet::clone(&controlled),
            whole,
        }
    };
    let before = making_bytes + precondition_bytes(study, traits, rates);
    let needs = |spans: &Spans| {
        let prepare = before + spans.probes(cells, rates);
        spans.most_bytes(study, cells, rates, prepare, study.repeat.min_pairs)
    };
    let fits = |spans: &Spans| needs(spans) <= budget_bytes(study);
    let least = needs(&with(LEAST.min(whole), true));
    let all = with(whole, false);
    if fits(&all) {
        return (all, least);
    }
    // The largest number of MiB that fits; LEAST where none does.
    let (mut low, mut high) = (LEAST.min(whole) / MIB, whole / MIB);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(&with(middle * MIB, true)) { low = middle } else { high = middle - 1 }
    }
    (with(low * MIB, true), least)
}

impl Spans {
    /// The span of a writing workload; the whole target for a reading one.
    pub fn of(&self, workload: &str) -> u64 {
        self.by_workload.get(workload).copied().unwrap_or(self.whole)
    }

    fn hard(&self, workload: &str) -> u64 {
        self.by_workload.get(workload).map_or(0, |span| hard_bytes(*span))
    }

    /// Bytes of the short runs in which `--gentle` finds its caps.
    pub fn probes(&self, cells: &[Cell], rates: &Rates) -> u64 {
        let all: BTreeSet<&str> = cells.iter().flat_map(jobs).map(|j| j.workload).filter(|_| rates.probed).collect();
        all.iter().map(|w| self.hard(w)).sum()
    }

    /// Most bytes that these rounds write.
    pub fn most_bytes(&self, study: &Study, cells: &[Cell], rates: &Rates, prepare: u64, rounds: u32) -> u64 {
        let round: u64 = cells.iter().flat_map(jobs).map(|j| self.hard(j.workload)).sum();
        let controls = cells.iter().filter_map(Cell::disk).filter(|d| self.controlled.contains(d.workload)).map(|d| {
            let each = if self.by_workload.contains_key(d.workload) {
                self.hard(d.workload)
            } else if rates.refilled_targets.iter().any(|r| r == d.target) {
                study.target_bytes()
            } else {
                0
            };
            if d.side.is_native() { each } else { u64::from(OWN_CONTROLS) * each }
        });
        let controls: u64 = controls.sum();
        prepare + u64::from(rounds) * (round + self.refills) + u64::from(rounds.saturating_sub(1)) * controls
    }
}
