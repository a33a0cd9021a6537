//! FIXTURE: a made-up run of the study shafer2010-storage. Its figures were measured nowhere.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

use std::collections::BTreeMap;

use serde_json::json;
use vmio::studies;
use vmio_model::cell::Cell;
use vmio_model::result::*;
use vmio_model::run::Run;
use vmio_model::study::control::{controls, logical_blocks};
use vmio_rig::workloads;

use super::{Noise, environment};

/// MB/s, request size in bytes and queue depth of a cell before noise.
fn made_up(cell: &Cell, disk: &DiskTraits) -> (f64, f64, f64) {
    let sparse = cell.target() == Some("sparse");
    match cell.attachment().map(|a| a.driver.as_str()) {
        // A control cell: the smaller and the fewer, the slower.
        None if disk.direct => {
            let (size, depth) = (disk.block_bytes as f64, f64::from(disk.depth));
            (2000.0 * (size / 1e6).min(1.0).powf(0.3) * (depth / 16.0).min(1.0).powf(0.2), size, depth * 0.9)
        }
        None if disk.writes => (if sparse { 1200.0 } else { 1900.0 }, 524288.0, 12.3),
        None => (1500.0, 131072.0, 1.6),
        Some("lsi53c895a") if disk.writes => (if sparse { 41.0 } else { 102.0 }, 65536.0, 0.3),
        Some("lsi53c895a") => (120.0, 98304.0, 0.4),
        Some(_) if disk.writes => (if sparse { 99.0 } else { 110.0 }, 500000.0, 0.9),
        Some(_) => (155.0, 131072.0, 0.5),
    }
}

fn sample(noise: &mut Noise, cell: &Cell, traits: &WorkloadTraits, round: u32) -> Sample {
    let disk = traits.disk.as_ref().unwrap();
    let (mb, request_bytes, queue_depth) = made_up(cell, disk);
    let bytes = (512 << 20) as u64;
    let seconds = bytes as f64 / (mb * 1e6 * noise.factor(0.05));
    let ios = (bytes as f64 / request_bytes) as u64;
    let one_way = |on: bool, n: u64| if on { n } else { 0 };
    let device = DeviceUse {
        seconds,
        read_ios: one_way(disk.reads, ios),
        write_ios: one_way(disk.writes, ios),
        read_bytes: one_way(disk.reads, bytes),
        write_bytes: one_way(disk.writes, bytes),
        flush_ios: 0,
        request_bytes,
        queue_depth: queue_depth * noise.factor(0.05),
        busy_ratio: Some((queue_depth * 0.6 * noise.factor(0.05)).min(1.0)),
    };
    Sample {
        cell: cell.clone(),
        round,
        boot: round,
        started_unix: 1.79e9 + f64::from(round) * 200.0,
        result: DiskWork {
            read_bytes: one_way(disk.reads, bytes),
            write_bytes: one_way(disk.writes, bytes),
            ios: bytes / disk.block_bytes,
            seconds,
            latency: None,
        }
        .result(json!("FIXTURE"), "dd".into()),
        beside: Vec::new(),
        seen: seen_around(Some(device), &CpuUse { host_seconds: seconds, ..CpuUse::default() }),
        foreign: Foreign::default(),
        marks: Vec::new(),
    }
}

/// Six rounds of the whole study, its control cells from the second on.
pub fn run(accel: Accel) -> Run {
    let study = studies::named("shafer2010-storage").unwrap();
    let mut noise = Noise(7);
    let traits = |name: &str| workloads::find(name).unwrap().traits();
    let block = BTreeMap::from([("logical_block_bytes".to_owned(), "4096".to_owned())]);
    let effective: BTreeMap<_, _> =
        ["device", "sparse", "preallocated", "served"].map(|t| (format!("{t}/native"), block.clone())).into();
    let mut samples: Vec<Sample> = Vec::new();
    for round in 0..6 {
        let mut cells = study.cells();
        if round > 0 {
            for control in controls(&study, &samples, &logical_blocks(&effective)) {
                if !cells.contains(&control.cell) {
                    cells.push(control.cell);
                }
            }
        }
        // What could not be served has no samples.
        cells.retain(|c| c.is_native() || c.target() != Some("served") || !c.key().contains("lsi53c895a"));
        for cell in &cells {
            samples.push(sample(&mut noise, cell, &traits(cell.workload()), round));
        }
    }
    let lost = study.cells().into_iter().filter(|c| c.target() == Some("served") && c.key().contains("lsi53c895a"));
    Run {
        id: 0,
        kind: study.name.as_str().into(),
        study: study.clone(),
        command: ["vmio", "study", "run", "shafer2010-storage", "--yes"].map(String::from).to_vec(),
        started_unix: 1_790_000_000.0,
        state: RunState::Done,
        environment: environment(Some(accel)),
        workloads: ["dd-write", "dd-read"].map(traits).to_vec(),
        effective,
        samples,
        skipped: lost.map(|cell| Skipped { cell, reason: "FIXTURE: qemu-storage-daemon is missing".into() }).collect(),
    }
}
