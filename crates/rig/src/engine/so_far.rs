//! What the samples of a run say while it goes on: which are there, what they cost, the shares of the cells.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::cell::Cell;
use vmio_model::result::{DeviceUse, Sample};
use vmio_model::run::Run;
use vmio_model::stats::Ratio;
use vmio_model::study::plan::spans::hard_bytes;
use vmio_model::study::{SampleKey, Spent, Study};
use vmio_model::summary;

/// What the samples say, kept up with each that is added.
pub(super) struct SoFar {
    /// The study's own.
    cells: Vec<Cell>,
    pub(super) done: Vec<SampleKey>,
    pub(super) spent: Spent,
    /// Of the study's own cells: those that explain a share have none that it asked for.
    pub(super) shares: BTreeMap<String, Ratio>,
    /// Keys of the native writing cells whose disk is not steady yet; none unless the study asks for steady state.
    pub(super) unsteady: BTreeSet<String>,
}

impl SoFar {
    pub(super) fn of(study: &Study, run: &Run) -> Self {
        let done = run.samples.iter().map(sample_key).collect();
        let (spent, shares, unsteady) = (spent(&run.samples), BTreeMap::new(), BTreeSet::new());
        let mut so_far = Self { cells: study.cells(), done, spent, shares, unsteady };
        so_far.judge(study, run, |_| true);
        so_far
    }

    /// Takes in the run's last sample.
    pub(super) fn add_last(&mut self, study: &Study, run: &Run) {
        let Some(sample) = run.samples.last() else { return };
        self.done.push(sample_key(sample));
        let own = spent(std::slice::from_ref(sample));
        self.spent.seconds += own.seconds;
        self.spent.bytes_written = self.spent.bytes_written.saturating_add(own.bytes_written);
        let of_sample = |cell: &Cell| *cell == sample.cell || study.baseline.of(cell).as_ref() == Some(&sample.cell);
        self.judge(study, run, of_sample);
    }

    /// Finds the shares of the study's cells that may have changed. In steady state each round may make others count.
    fn judge(&mut self, study: &Study, run: &Run, changed: impl Fn(&Cell) -> bool) {
        let settled = study.repeat.steady_state.then(|| summary::steady::settled(&run.samples, &run.workloads));
        if settled.is_some() {
            self.unsteady = summary::steady::unsteady(&self.cells, &run.samples, &run.workloads);
        }
        let samples = settled.as_deref().unwrap_or(&run.samples);
        let rule = study.repeat.convergence();
        for cell in self.cells.iter().filter(|cell| settled.is_some() || changed(cell)) {
            match summary::share_of(samples, &run.workloads, &study.baseline, cell, &rule) {
                Some(share) => drop(self.shares.insert(cell.key(), share)),
                None => drop(self.shares.remove(&cell.key())),
            }
        }
    }
}

fn sample_key(sample: &Sample) -> SampleKey {
    SampleKey { cell: sample.cell.key(), round: sample.round, boot: sample.boot }
}

/// What stored samples cost: their measured seconds, and what they wrote.
pub fn spent(samples: &[Sample]) -> Spent {
    Spent {
        seconds: samples.iter().map(|s| s.device().map_or(s.result.seconds, |d| d.seconds)).sum(),
        bytes_written: samples.iter().map(written).fold(0, u64::saturating_add),
    }
}

/// What a cell wrote to the device: what the device saw, up to what the cell can have caused. What is beyond is of
/// others, whose writes are not the run's. A file system writes records of its own: little for large
/// writes, for a small one that is flushed alone a few blocks of its journal.
fn written(sample: &Sample) -> u64 {
    const SMALL: u64 = 16 << 10;
    const BLOCKS: u64 = 5;
    let work = sample.work();
    let moved = work.write_bytes;
    let small = moved <= work.ios.saturating_mul(SMALL);
    let caused = match moved {
        0 => 0,
        _ if small => hard_bytes(moved.saturating_mul(BLOCKS)),
        _ => hard_bytes(moved),
    };
    // Actors may have their targets on several disks.
    let seen: Vec<DeviceUse> = sample.seen.iter().filter(|s| s.node.is_empty()).filter_map(DeviceUse::of).collect();
    if seen.is_empty() { moved } else { seen.iter().map(|d| d.write_bytes).fold(0, u64::saturating_add).min(caused) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use vmio_model::result::{DiskWork, RunState};

    use super::*;
    use crate::workloads;

    fn study(steady_state: bool) -> Study {
        serde_json::from_value(json!({
            "name": "x", "title": "", "cites": "",
            "guest": {"vcpus": 1, "memory_mib": 256},
            "repeat": {
                "min_pairs": 2, "max_pairs": 9, "min_boots": 1, "half_width": 0.05, "seconds": 1.0, "max_minutes": 5.0,
                "steady_state": steady_state,
            },
            "matrix": [{
                "sides": ["qemu"],
                "workloads": ["seq-write", "seq-read"],
                "disks": {
                    "targets": ["device"], "drivers": ["virtio-blk", "lsi53c895a"], "caches": ["none"],
                    "aios": ["native"], "iothreads": [false], "options": [{}],
                },
            }],
        }))
        .unwrap()
    }

    fn sample(cell: &Cell, round: u32) -> Sample {
        let bytes = (100 + u64::from(round) * 7 + cell.key().len() as u64) << 20;
        let work = DiskWork { read_bytes: bytes, write_bytes: bytes, ios: 100, seconds: 1.0, latency: None };
        Sample {
            cell: cell.clone(),
            round,
            boot: round / 2,
            started_unix: 0.0,
            result: work.result(serde_json::Value::Null, String::new()),
            beside: Vec::new(),
            seen: Vec::new(),
            foreign: vmio_model::result::Foreign::default(),
            marks: Vec::new(),
        }
    }

    /// Whatever comes last, a guest or what it is compared with, and with steady state: as if all were looked at anew.
    #[test]
    fn it_is_kept_up_with_each_sample() {
        for steady in [false, true] {
            let study = study(steady);
            let cells = study.cells();
            let traits = |name: &str| workloads::find(name).unwrap().traits();
            let mut run = Run {
                id: 1,
                kind: "x".into(),
                study: study.clone(),
                command: Vec::new(),
                started_unix: 0.0,
                state: RunState::Running,
                environment: serde_json::from_value(json!({
                    "vmio": "", "kernel": "", "cpu": "", "cpus": 1, "memory_bytes": 0, "accel_reason": "", "vcpus": 1,
                    "memory_mib": 256, "native_limits": "", "other_guests": 0,
                }))
                .unwrap(),
                workloads: ["seq-write", "seq-read"].map(traits).to_vec(),
                effective: BTreeMap::new(),
                samples: Vec::new(),
                skipped: Vec::new(),
            };
            let mut kept_up = SoFar::of(&study, &run);
            for round in 0..6 {
                let mut order: Vec<&Cell> = cells.iter().collect();
                order.rotate_left(round as usize);
                for cell in order {
                    run.samples.push(sample(cell, round));
                    kept_up.add_last(&study, &run);
                    let anew = SoFar::of(&study, &run);
                    assert_eq!((&kept_up.done, &kept_up.shares), (&anew.done, &anew.shares), "round {round}");
                    assert_eq!((&kept_up.spent, &kept_up.unsteady), (&anew.spent, &anew.unsteady), "round {round}");
                }
            }
            assert_eq!(kept_up.shares.len(), 4);
        }
    }
}
