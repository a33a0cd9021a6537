//! Objects to a store at another host's end of an uplink and from it, natively and from a guest: one boot, by the way of a
//! study.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common::{Bed, cells, guest};
use vmio_model::result::Watched;
use vmio_node::{Local, find_program, machine};
use vmio_rig::engine::measure::Event;
use vmio_testbed::{must_be_root, skip};

const OBJECT_BYTES: f64 = 67_108_864.0;

#[test]
#[ignore = "guest: needs QEMU"]
fn objects_go_to_a_store_and_come_back() {
    must_be_root();
    if let Some(lack) = ["versitygw", "curl"].into_iter().find(|name| find_program(&Local::new(), name).is_none()) {
        return skip(&format!("no {lack} here: scripts/setup run store"));
    }
    let (bed, state) = (Bed::new(), guest::state());
    let text = "[baseline.like]\nside = 'native'\n\
        [[matrix]]\nsides = ['native', 'qemu']\n\
        paths = { networks = ['uplink'], peers = ['remote'], nics = ['virtio-net'] }\n\
        workloads = ['s3-put', 's3-get']\n";
    let planned = cells::planned(text, &bed.dir(), &state);
    assert_eq!(planned.skipped(), []);
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |event| {
        if let Event::Retry(cell, why) | Event::GaveUp(cell, why) = event {
            panic!("{}: {why}", cell.key());
        }
    });
    assert_eq!(run.samples.len(), 4);
    for sample in &run.samples {
        let (key, result) = (sample.cell.key(), &sample.result);
        println!("{key}: {:?}", result.figures);
        let figure = |name: &str| result.figure(name).unwrap();
        let (moved, requests) = (figure("moved"), result.raw["requests"].as_array().unwrap().len() as f64);
        assert_eq!(moved, requests * OBJECT_BYTES, "{key}");
        assert!((figure("bandwidth") / (figure("request-rate") * OBJECT_BYTES * 8.0) - 1.0).abs() < 1e-9, "{key}");
        // The wire had all of it.
        let links = sample.seen.iter().filter(|seen| matches!(seen.watched, Watched::Link(_)));
        let bytes = links.flat_map(|link| &link.figures).filter(|reading| reading.figure == "bytes");
        let most = bytes.map(|reading| reading.value.typical()).fold(0.0, f64::max);
        assert!(most >= moved, "{key}: {most} bytes on the wire, {moved} in curl");
    }
    for name in ["versitygw", "curl"] {
        assert!(run.environment.programs.contains_key(name), "{:?}", run.environment.programs);
    }
    // The stores were in mount namespaces of their own.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.lines().any(|line| line.starts_with("vmio /mnt ")), "{mounts}");
    assert_eq!(machine::marked_processes(|owner| owner == bed.journal.cookie()).len(), 0);
    assert_eq!(bed.files(), [""; 0]);
}
