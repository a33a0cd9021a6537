//! The layers of a guest's request (`vmio explain`) against delays that are planted in one of them.
//! Run with `cargo test -- --ignored`; the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::common::{Bed, cells, guest};
use serde_json::json;
use vmio_model::result::Sample;
use vmio_model::run::Run;
use vmio_model::waterfall::Layer;
use vmio_model::waterfall::cells::{CellLayers, of_run};
use vmio_node::linux::process;
use vmio_node::machine;
use vmio_node::qmp::Qmp;
use vmio_rig::engine::measure::Event;
use vmio_testbed::{poll_for, skip};

/// Requests a second that QEMU lets pass: with one in flight each takes 5 ms.
const LIMIT: u32 = 100;

/// Reads one at a time.
const ONE_READ: &str = "baseline = 'none'\n[[matrix]]\nsides = ['qemu']\n\
                        disks = { targets = ['device'], drivers = ['virtio-blk'], caches = ['none'], \
                        aios = ['threads'] }\n\
                        workloads = ['rand-read-4k-d1']\n";

/// Layers above the hypervisor. Which of them are told apart depends on how long a cell is.
const ABOVE: [Layer; 3] = [Layer::Application, Layer::GuestBlock, Layer::Virtual];

/// Seconds of the parts that have any of these layers.
fn part(cell: &CellLayers, layers: &[Layer]) -> f64 {
    let parts = &cell.waterfall.as_ref().unwrap().parts;
    parts.iter().filter(|part| part.layers.iter().any(|layer| layers.contains(layer))).map(|part| part.seconds).sum()
}

/// Whether others' requests at the host's disk hide the cell's own.
fn others_use_the_disk(cell: &CellLayers) -> bool {
    cell.untimed.iter().any(|untimed| untimed.layer == Layer::HostBlock)
}

/// Limits all disks of the guest but that of the tools.
fn hold(monitor: &Path) {
    let mut qmp = Qmp::over("held", UnixStream::connect(monitor).unwrap()).unwrap();
    let block = qmp.execute("query-block", json!({})).unwrap();
    let disks = block.as_array().unwrap().iter().filter_map(|disk| disk["qdev"].as_str());
    for disk in disks.filter(|disk| !disk.contains("/tools/")) {
        let limit = json!({"id": disk, "bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": LIMIT, "iops_rd": 0, "iops_wr": 0});
        qmp.execute("block_set_io_throttle", limit).unwrap();
    }
}

fn explained(run: &Run) -> CellLayers {
    assert_eq!(run.skipped, []);
    // As the store has them: part of what the application waited for.
    let submission = |sample: &Sample| Some(sample.result.raw["jobs"][0]["read"]["slat_ns"]["mean"].as_f64()? * 1e-9);
    let submissions: Vec<Option<f64>> = run.samples.iter().map(submission).collect();
    let cell = of_run(run, &submissions).into_iter().find(|cell| cell.in_guest).unwrap();
    let parts = &cell.waterfall.as_ref().unwrap().parts;
    let told: Vec<String> = parts.iter().map(|part| format!("{} {:.0} us", part.words(), part.seconds * 1e6)).collect();
    println!("{}: {told:?}, {:?}", cell.key, cell.untimed);
    let own = parts.iter().find(|part| part.layers.contains(&Layer::Hypervisor)).unwrap();
    assert!(own.layers.iter().all(|layer| !ABOVE.contains(layer)), "{told:?}, {:?}", cell.untimed);
    cell
}

/// The monitor for whoever watches, of the only guest that this owner has.
fn monitor(bed: &Bed, cookie: &str) -> PathBuf {
    let words = machine::marked_processes(|owner| owner == cookie).into_iter().find_map(|process| {
        process::command_line(&bed.node, process.pid).ok().filter(|words| words.contains(&"-smp".into()))
    });
    let words = words.expect("a guest runs");
    let path = words.iter().find_map(|word| word.strip_prefix("socket,id=watch,path=")).unwrap();
    path.split(',').next().unwrap().into()
}

/// A limit of QEMU's own holds requests back in its block layer: they take longer there, and nowhere else.
#[test]
#[ignore = "guest: needs QEMU"]
fn what_the_hypervisor_holds_back_is_in_its_layer_alone() {
    let bed = Bed::new();
    let state = guest::state();
    let planned = cells::planned(ONE_READ, &bed.dir(), &state);
    assert_eq!(planned.skipped(), []);
    let run = |told: &mut dyn FnMut(&Event<'_>)| {
        explained(&cells::measure_by(cells::one_round, &planned, &state, &bed.journal, told))
    };
    // Seen again where the machine let the guest wait for its processor in one of the two.
    let others_too = poll_for("it is in the hypervisor's layer alone", || {
        let free = run(&mut |_| {});
        assert_eq!(bed.journal.undo_all(), [""; 0]);
        let cookie = bed.journal.cookie().to_owned();
        let held = run(&mut |event| {
            let Event::Cell(..) = event else { return };
            hold(&monitor(&bed, &cookie));
        });
        assert_eq!(bed.journal.undo_all(), [""; 0]);
        let more = |layers: &[Layer]| part(&held, layers) - part(&free, layers);
        let whole = held.waterfall.as_ref().unwrap().total_seconds - free.waterfall.as_ref().unwrap().total_seconds;
        let [above, own, host] =
            [&ABOVE[..], &[Layer::Hypervisor], &[Layer::HostBlock]].map(|layers| more(layers) / whole);
        let others = [&free, &held].into_iter().any(others_use_the_disk);
        // A limit that was not in force adds nothing.
        let is_so = whole > 2e-3 && (0.75..1.25).contains(&own) && above.abs() < 0.25 && (others || host < 0.25);
        let seen = || format!("{whole} s longer: {above} of it above, {own} its own, {host} below");
        if is_so { Ok(others) } else { Err(seen()) }
    });
    if others_too {
        skip("the host's disk is used by others, so its time is not told from the hypervisor's");
    }
}

/// Where the run asks for it, the guest's kernel counts how long requests are at its driver.
#[test]
#[ignore = "guest: needs QEMU"]
fn the_guests_block_layer_is_told_from_virtual_io() {
    let bed = Bed::new();
    let state = guest::state();
    let planned = cells::planned(&format!("layers = true\n{ONE_READ}"), &bed.dir(), &state);
    assert_eq!(planned.skipped(), []);
    // Seen again where the machine let the guest wait for its processor between two readings.
    let cell = poll_for("both are parts of their own", || {
        let cell = explained(&cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |_| {}));
        assert_eq!(bed.journal.undo_all(), [""; 0]);
        let is_alone = |layer: Layer| cell.waterfall.iter().flat_map(|w| &w.parts).any(|part| part.layers == [layer]);
        let are = is_alone(Layer::GuestBlock) && is_alone(Layer::Virtual);
        if are { Ok(cell) } else { Err(format!("{:?}", cell.untimed)) }
    });
    let whole = cell.waterfall.as_ref().unwrap();
    let sum: f64 = whole.parts.iter().map(|part| part.seconds).sum();
    assert!((sum / whole.total_seconds - 1.0).abs() < 1e-9, "{whole:?}");
    // The way to QEMU and back takes time, and less than all of it.
    let share = part(&cell, &[Layer::Virtual]) / whole.total_seconds;
    assert!(0.0 < share && share < 1.0, "{whole:?}");
}
