//! FIXTURE: a made-up run of the study lu2016-quick, with samples of the processors. Its figures were measured nowhere.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use vmio::studies;
use vmio_model::cell::Cell;
use vmio_model::figure::{Distribution, Reading};
use vmio_model::result::*;
use vmio_model::run::Run;
use vmio_rig::workloads;

use super::{Noise, environment};

/// CPU microseconds of a request by role and component.
type Work = &'static [(&'static str, &'static str, f64)];

const NATIVE: Work = &[("program", "fio", 3.0), ("program", "kernel, files", 5.0)];
const FROM_GUEST: Work = &[("vcpu", "kernel, scheduler", 1.0), ("vcpu", "kvm", 2.0), ("vcpu", "guest kernel", 9.0)];
const FROM_HOST: Work = &[
    ("main", "kernel, block", 12.0),
    ("worker", "kernel, copying", 4.0),
    ("main", "qemu-system-x86_64", 8.0),
    ("vcpu", "kvm", 6.0),
    ("main", "libglib-2.0", 2.0),
    ("main", "vdso", 1.0),
    ("worker", "libc", 3.0),
    ("vcpu", "guest kernel", 20.0),
    ("kernel", "kernel, scheduler", 1.5),
];

/// A cell's work for a request, and its requests a second where nothing limits them, before noise.
fn made_up(cell: &Cell) -> (Work, f64) {
    let large = cell.workload().contains("1m");
    match (cell.is_native(), cell.key().starts_with("preallocated+warm-guest")) {
        (true, _) => (NATIVE, if large { 2_500.0 } else { 100e3 }),
        (false, true) => (FROM_GUEST, if large { 2_400.0 } else { 98e3 }),
        (false, false) => (FROM_HOST, if large { 2_300.0 } else { 3e3 }),
    }
}

fn sample(noise: &mut Noise, cell: &Cell, traits: &WorkloadTraits, round: u32) -> Sample {
    let (work, rate) = made_up(cell);
    let mean = noise.factor(0.01) / rate;
    let rates = [("500iops", 500.0), ("2000iops", 2000.0)];
    let asked = rates.into_iter().find(|(word, _)| cell.workload().contains(word));
    let ios = asked.map_or(1.0 / mean, |(_, rate)| rate) as u64;
    let result = DiskWork {
        read_bytes: ios * traits.disk.as_ref().unwrap().block_bytes,
        write_bytes: 0,
        ios,
        seconds: 1.0,
        latency: Some(Distribution { mean, percentiles: vec![(50.0, mean), (99.0, 3.0 * mean)] }),
    }
    .result(json!("FIXTURE"), "fio".into());
    let beside: Vec<WorkloadResult> = cell.beside.iter().map(|_| result.clone()).collect();
    let requests = ios as f64 * (1 + beside.len()) as f64;
    let more = noise.factor(0.01);
    let seconds = |us: f64| us * 1e-6 * requests * more;
    let of = |(role, component, us): &(&str, &str, f64)| {
        let reading =
            |figure: &str, value| Reading::scalar(figure, value).with(ROLE, *role).with(COMPONENT, *component);
        [reading(SAMPLED, seconds(*us)), reading(SAMPLES, (seconds(*us) * 997.0).ceil())]
    };
    let lost = Reading::scalar(LOST, 0.0).with(SOURCE, "cpu-clock");
    let sampled = work.iter().flat_map(of).chain([lost]).collect();
    let host_seconds: f64 = work.iter().map(|(.., us)| seconds(*us)).sum();
    let mut seen = seen_around(None, &CpuUse { host_seconds, ..CpuUse::default() });
    seen.push(ProbeResult::here(Watched::Components, "components", sampled));
    Sample {
        cell: cell.clone(),
        round,
        boot: round / 2,
        started_unix: 1.79e9 + f64::from(round) * 100.0,
        result,
        beside,
        seen,
        foreign: Foreign::default(),
        marks: Vec::new(),
    }
}

/// Six rounds of the whole study.
pub fn run(accel: Accel) -> Run {
    let study = studies::named("lu2016-quick").unwrap();
    let mut noise = Noise(5);
    let cells = study.cells();
    let names: BTreeSet<&str> = cells.iter().map(Cell::workload).collect();
    let traits: Vec<WorkloadTraits> = names.iter().map(|name| workloads::find(name).unwrap().traits()).collect();
    let of = |cell: &Cell| traits.iter().find(|traits| traits.name == cell.workload()).unwrap();
    let rounds = (0..6).flat_map(|round| cells.iter().map(move |cell| (round, cell)));
    let samples: Vec<Sample> = rounds.map(|(round, cell)| sample(&mut noise, cell, of(cell), round)).collect();
    Run {
        id: 0,
        kind: study.name.as_str().into(),
        command: ["vmio", "study", "run", "lu2016-quick", "--components", "--yes"].map(String::from).to_vec(),
        started_unix: 1_790_000_000.0,
        state: RunState::Done,
        environment: environment(Some(accel)),
        workloads: traits,
        effective: BTreeMap::new(),
        samples,
        skipped: Vec::new(),
        study,
    }
}
