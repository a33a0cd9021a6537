//! FIXTURE: made-up runs of the studies rasmusson2013, rasmusson2013-network and hdparm. Their figures were measured nowhere.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

use serde_json::json;
use vmio::studies;
use vmio_model::cell::Cell;
use vmio_model::figure::{Form, RUN, Reading};
use vmio_model::result::*;
use vmio_model::run::Run;
use vmio_rig::workloads;

use super::{Noise, environment};

/// What a guest gets of the host, by group; over a path.
fn share(group: Option<&str>) -> f64 {
    match group {
        Some("integer") => 0.68,
        Some("floating-point") => 0.4,
        Some(_) => 0.97,
        None => 0.9,
    }
}

fn sample(noise: &mut Noise, cell: &Cell, traits: &WorkloadTraits, round: u32) -> Sample {
    let factor = if cell.is_native() { 1.0 } else { share(traits.group.as_deref()) } * noise.factor(0.01);
    assert!(traits.figures.iter().all(|f| f.form == Form::Scalar));
    let figures = traits.figures.iter().map(|f| Reading::scalar(&f.name, 1e9 * factor)).collect();
    let result = WorkloadResult { seconds: 2.0, figures, raw: json!("FIXTURE"), command: "vmio-cpu".into() };
    Sample {
        cell: cell.clone(),
        round,
        boot: round,
        started_unix: 1.79e9 + f64::from(round) * 200.0,
        beside: vec![result.clone(); cell.beside.len()],
        result,
        seen: Vec::new(),
        foreign: Foreign::default(),
        marks: Vec::new(),
    }
}

/// Six rounds of it. stress-ng was lost in the guest.
pub fn run(accel: Accel) -> Run {
    let study = studies::named("rasmusson2013").unwrap();
    let mut noise = Noise(11);
    let traits = |cell: &Cell| workloads::find(cell.workload()).unwrap().traits();
    let guests: Vec<Cell> = study.cells().into_iter().filter(|cell| !cell.is_native()).collect();
    let lost = |cell: &&Cell| cell.workload() == "stress-ng-vm";
    let mut samples = Vec::new();
    for round in 0..6 {
        for guest in guests.iter().filter(|cell| !lost(cell)) {
            for cell in [study.baseline.of(guest).unwrap(), guest.clone()] {
                samples.push(sample(&mut noise, &cell, &traits(&cell), round));
            }
        }
    }
    let skipped = |cell: &Cell| Skipped { cell: cell.clone(), reason: "FIXTURE: stress-ng is missing".into() };
    Run {
        id: 0,
        kind: study.name.as_str().into(),
        study: study.clone(),
        command: ["vmio", "study", "run", "rasmusson2013", "--yes"].map(String::from).to_vec(),
        started_unix: 1_790_000_000.0,
        state: RunState::Done,
        environment: environment(Some(accel)),
        workloads: guests.iter().map(traits).collect(),
        effective: Default::default(),
        skipped: guests.iter().filter(lost).map(skipped).collect(),
        samples,
    }
}

/// Three rounds of hdparm: what the host reads at 10^9 bytes a second, each of five runs a hundredth faster than the one before.
pub fn disk(accel: Accel) -> Run {
    let study = studies::named("hdparm").unwrap();
    let mut noise = Noise(13);
    let traits = workloads::find("hdparm").unwrap().traits();
    let on_end = |cell: &Cell, round: u32| {
        let mut made = sample(&mut noise, cell, &traits, round);
        let climbs = |reading: &Reading| {
            let base = if reading.figure == "cached" { 2e9 } else { 1e9 };
            (0..5).map(move |n| (n, base * (1.0 + f64::from(n) / 100.0)))
        };
        let labelled = |name: &str| traits.figures.iter().any(|f| f.name == name && f.labels == [RUN]);
        let (runs, mut figures): (Vec<_>, Vec<_>) =
            made.result.figures.into_iter().partition(|reading| labelled(&reading.figure));
        for reading in &runs {
            let of = |(n, rate): (i32, f64)| Reading::scalar(&reading.figure, rate).with(RUN, (n + 1).to_string());
            figures.extend(climbs(reading).map(of));
        }
        made.result.figures = figures;
        made
    };
    let cells = study.cells();
    let mut on_end = on_end;
    let samples = (0..3).flat_map(|round| cells.iter().map(move |cell| (cell, round)));
    let samples = samples.map(|(cell, round)| on_end(cell, round)).collect();
    Run {
        kind: study.name.as_str().into(),
        study: study.clone(),
        command: ["vmio", "study", "run", "hdparm", "--yes"].map(String::from).to_vec(),
        samples,
        workloads: vec![traits.clone()],
        skipped: Vec::new(),
        ..run(accel)
    }
}

/// Three rounds of the study of host and guest held to processors: alone a guest gets 0.9 of the host, at once each the same.
pub fn network(accel: Accel) -> Run {
    let study = studies::named("rasmusson2013-network").unwrap();
    let (mut noise, cells) = (Noise(12), study.cells());
    let traits = workloads::find("iperf3-tcp").unwrap().traits();
    let round = |round: u32| cells.iter().map(|cell| sample(&mut noise, cell, &traits, round)).collect::<Vec<_>>();
    Run {
        kind: study.name.as_str().into(),
        study: study.clone(),
        command: ["vmio", "study", "run", "rasmusson2013-network", "--yes"].map(String::from).to_vec(),
        samples: (0..3).flat_map(round).collect(),
        workloads: vec![traits.clone()],
        skipped: Vec::new(),
        ..run(accel)
    }
}
