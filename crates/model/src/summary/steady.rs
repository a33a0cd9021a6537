//! Rounds that count in a run with steady state. Before the disk is steady its figures are those of an empty disk; the
//! specification ([`crate::stats::steady`]) takes results from the window in which steady state is reached. Earlier
//! samples stay in the store and are left out of all conclusions.
//!
//! The disk must be steady, so native cells that write to one are examined; the guests' cells of the same rounds
//! follow.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::judge::judge_of;
use crate::cell::{Actor, Cell};
use crate::result::{Sample, WorkloadTraits};
use crate::run::Run;
use crate::stats::steady::{self, Window};

/// Whether a writing cell's disk became steady.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steady {
    /// Key of the native cell.
    pub key: String,
    /// Rounds after which it was steady; `None` if it was not within the rounds so far.
    pub reached_after: Option<u32>,
    /// Rounds so far.
    pub rounds: u32,
    /// First round that counts.
    pub from_round: u32,
    /// The window in which it was reached, else the last one; `None` with fewer than five rounds.
    pub window: Option<Window>,
}

impl Steady {
    /// In words.
    pub fn text(&self) -> String {
        let window = self.window.map_or_else(String::new, |w| {
            format!(
                ": range {:.0} % of the mean (at most {:.0}), slope {:+.0} % (at most {:.0})",
                w.range_ratio * 100.0,
                steady::RANGE * 100.0,
                w.slope_ratio * 100.0,
                steady::SLOPE * 100.0
            )
        });
        match self.reached_after {
            Some(n) => format!("steady state reached after {n} rounds{window}; earlier rounds are left out"),
            None => format!("steady state not reached in {} rounds{window}; all of them count", self.rounds),
        }
    }
}

/// Whether a cell's figures must become steady, during a run and afterwards.
fn may_become_steady(cell: &Cell, workloads: &[WorkloadTraits]) -> bool {
    let writes = |actor: &Actor| workloads.iter().any(|w| w.name == actor.workload && w.writes());
    cell.is_native() && cell.actors().any(|actor| actor.subject.is_disk() && writes(actor))
}

/// The state of each writing native cell so far.
pub fn states(samples: &[Sample], workloads: &[WorkloadTraits]) -> Vec<Steady> {
    let mut by_cell: BTreeMap<&Cell, BTreeMap<u32, f64>> = BTreeMap::new();
    for s in samples.iter().filter(|s| may_become_steady(&s.cell, workloads)) {
        let Some(figure) = judge_of(workloads, &s.cell).rising(s) else { continue };
        by_cell.entry(&s.cell).or_default().insert(s.round, figure);
    }
    let state = |(cell, rounds): (&Cell, BTreeMap<u32, f64>)| {
        let figures: Vec<f64> = rounds.values().copied().collect();
        let reached = steady::reached(&figures);
        let from = reached.map_or(0, |(n, _)| n - steady::WINDOW);
        Steady {
            key: cell.key(),
            reached_after: reached.map(|(n, _)| n as u32),
            rounds: figures.len() as u32,
            from_round: rounds.keys().nth(from).copied().unwrap_or(0),
            window: reached.map(|(_, w)| w).or_else(|| steady::window(&figures)),
        }
    };
    by_cell.into_iter().map(state).collect()
}

/// Keys of the cells whose disk is not steady yet.
pub fn unsteady(cells: &[Cell], samples: &[Sample], workloads: &[WorkloadTraits]) -> BTreeSet<String> {
    let states = states(samples, workloads);
    let reached = |key: &String| states.iter().any(|s| s.key == *key && s.reached_after.is_some());
    cells.iter().filter(|c| may_become_steady(c, workloads)).map(Cell::key).filter(|key| !reached(key)).collect()
}

/// The samples that count.
pub fn settled(samples: &[Sample], workloads: &[WorkloadTraits]) -> Vec<Sample> {
    let from: BTreeMap<String, u32> = states(samples, workloads).into_iter().map(|s| (s.key, s.from_round)).collect();
    let counts = |s: &&Sample| from.get(&s.cell.natively().key()).is_none_or(|&from| s.round >= from);
    samples.iter().filter(counts).cloned().collect()
}

/// The run without the samples before steady state; itself unless its study asked for it.
pub fn settled_run(run: &Run) -> Cow<'_, Run> {
    if !run.study.repeat.steady_state {
        return Cow::Borrowed(run);
    }
    Cow::Owned(Run { samples: settled(&run.samples, &run.workloads), ..run.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::summary::summarise;
    use crate::testing::{Bench, native, virtio};

    /// The first rounds are those of an empty disk, three times as fast.
    fn run(asked: bool) -> Run {
        let cells = [native("device", "seq-write"), virtio("device", "seq-write"), native("device", "seq-read")];
        let bench = cells.iter().fold(Bench::new(), |b, c| b.cell(c.clone(), 300e6)).rounds(9);
        let mut run = bench.run();
        run.samples.iter_mut().filter(|s| s.round < 3 && s.cell.workload() == "seq-write").for_each(|s| {
            s.result.amend(|w| w.seconds /= 3.0);
        });
        run.study.repeat.steady_state = asked;
        run
    }

    #[test]
    fn rounds_before_steady_state_do_not_count() {
        let summary = summarise(&run(true));
        let cell = |key: &str| summary.cell(key).unwrap();
        for key in ["device/native/seq-write", "device/qemu/virtio-blk,none,native/seq-write"] {
            assert_eq!(cell(key).samples, 6, "{key}");
            assert!(
                (cell(key).disk.as_ref().unwrap().bandwidth_bytes_per_second.value / 300e6 - 1.0).abs() < 0.05,
                "{key}"
            );
        }
        assert_eq!(cell("device/native/seq-read").samples, 9, "reads are not judged");
        assert_eq!(summary.steady.len(), 1);
        assert_eq!((summary.steady[0].reached_after, summary.steady[0].from_round), (Some(8), 3));
        assert!(summary.steady[0].text().starts_with("steady state reached after 8 rounds: range"));
    }

    #[test]
    fn without_being_asked_for_nothing_changes() {
        let summary = summarise(&run(false));
        assert!(summary.steady.is_empty() && summary.cells.iter().all(|c| c.samples == 9));
    }

    /// During a run the same cells are examined as afterwards, also with writers that do not lead.
    #[test]
    fn what_goes_on_and_what_is_concluded_see_the_same_cells() {
        let run = run(true);
        let writer = native("device", "seq-write");
        let beside = Cell { beside: vec![writer.lead.clone()], ..native("device", "seq-read") };
        let cells = [writer.clone(), virtio("device", "seq-write"), native("device", "seq-read"), beside.clone()];
        let left = |samples: &[Sample]| unsteady(&cells, samples, &run.workloads);
        let of = |cells: &[&Cell]| cells.iter().map(|c| c.key()).collect::<BTreeSet<_>>();
        assert_eq!(left(&[]), of(&[&writer, &beside]), "nothing is known yet");
        assert_eq!(left(&run.samples), of(&[&beside]));
        let mut all = run.samples.clone();
        all.extend(run.samples.iter().filter(|s| s.cell == writer).map(|s| Sample {
            cell: beside.clone(),
            beside: vec![s.result.clone()],
            ..s.clone()
        }));
        assert_eq!(left(&all), of(&[]));
        assert_eq!(states(&all, &run.workloads).len(), 2);
    }

    #[test]
    fn what_never_settles_is_said() {
        let mut run = run(true);
        run.samples.iter_mut().filter(|s| s.round % 2 == 0).for_each(|s| s.result.amend(|w| w.seconds *= 2.0));
        let summary = summarise(&run);
        assert_eq!(summary.steady[0].reached_after, None);
        assert!(summary.steady[0].text().starts_with("steady state not reached in 9 rounds"));
        assert_eq!(summary.cells[0].samples, 9);
    }
}
