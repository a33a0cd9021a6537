//! FIXTURE: a made-up run of the study rasmusson2013. Its figures were measured nowhere.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

use serde_json::json;
use vmio::studies;
use vmio_model::cell::Cell;
use vmio_model::figure::{Form, Reading};
use vmio_model::result::*;
use vmio_rig::workloads;

use super::{Noise, environment};

/// What a guest gets of the host, by group.
fn share(group: &str) -> f64 {
    match group {
        "integer" => 0.68,
        "floating-point" => 0.4,
        _ => 0.97,
    }
}

fn sample(noise: &mut Noise, cell: &Cell, traits: &WorkloadTraits, round: u32) -> Sample {
    let factor = if cell.is_native() { 1.0 } else { share(traits.group.as_ref().unwrap()) } * noise.factor(0.01);
    assert!(traits.figures.iter().all(|f| f.form == Form::Scalar));
    let figures = traits.figures.iter().map(|f| Reading::scalar(&f.name, 1e9 * factor)).collect();
    Sample {
        cell: cell.clone(),
        round,
        boot: round,
        started_unix: 1.79e9 + f64::from(round) * 200.0,
        result: WorkloadResult { seconds: 2.0, figures, raw: json!("FIXTURE"), command: "vmio-cpu".into() },
        beside: Vec::new(),
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
        study: study.name.as_str().into(),
        study_toml: study.to_toml(),
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
