//! CPU time by component of processes whose work is known, and of a guest. Needs root, dd and sh.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use crate::common::{Bed, cells, guest};
use rustix::process::{Pid, Signal, kill_process};
use vmio_model::figure::Reading;
use vmio_model::result::{BUSY, COMPONENT, LOST, ProbeResult, ROLE, SAMPLED, SAMPLES, Watched};
use vmio_model::summary;
use vmio_node::linux::process::{self, Schedstat, Stat};
use vmio_node::{Local, Node};
use vmio_rig::probes::components::interrupt_seconds;
use vmio_rig::probes::{ProbePoint, ProbeSubject, Watch, Workers};
use vmio_testbed::process::Companion;
use vmio_testbed::{must_be_root, poll_until};

/// The sum over all components is the process's own clock within this part of it.
const NEAR: f64 = 0.05;
/// CPU seconds that are sampled: 5,000 samples, of which chance is 1.4 % at most.
const SECONDS: f64 = 5.0;

/// Seconds that a process of one thread has run, by the scheduler.
fn ran(node: &Local, pid: u32) -> f64 {
    let text = node.reader().read_text(&process::file(pid, "schedstat")).unwrap();
    Schedstat::parse(&text).unwrap().run_ns as f64 * 1e-9
}

/// CPU seconds by component of all roles but those of the kernel's threads.
fn by_component(seen: &ProbeResult) -> BTreeMap<String, f64> {
    let own = seen.figures.iter().filter(|r| r.figure == SAMPLED && r.labels[ROLE] != "kernel");
    let mut all = BTreeMap::new();
    own.for_each(|r| *all.entry(r.labels[COMPONENT].clone()).or_default() += r.value.typical());
    all
}

#[test]
#[ignore = "root"]
fn components_are_those_of_known_work_and_their_sum_is_the_clock() {
    must_be_root();
    let node: Arc<dyn Node> = Arc::new(Local::new());
    let local = Local::new();
    // One works in its own program, and one in the kernel, which fills its buffer.
    let spinner = Companion::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let caller = Companion::start(Command::new("dd").args(["if=/dev/zero", "of=/dev/null", "bs=256k", "status=none"]));
    let pids = [spinner.pid(), caller.pid()];
    let send = |signal: Signal| {
        pids.iter().for_each(|pid| kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap());
    };
    let is_stopped = |pid: &u32| {
        let text = local.reader().read_text(&process::file(*pid, "stat")).unwrap();
        Stat::parse(&text).unwrap().is_stopped()
    };
    // They work while they are watched and at no other time: samples and clock are of the same work, however long it takes
    // to start and to stop to watch them.
    send(Signal::STOP);
    poll_until("both are stopped", || pids.iter().all(is_stopped));
    let points = pids.map(|pid| ProbePoint::here(node.clone(), ProbeSubject::Components(Workers::of(pid))));
    let watch = Watch::start(points.into()).unwrap();
    let before = pids.map(|pid| ran(&local, pid));
    let spent = || [0, 1].map(|i| ran(&local, pids[i]) - before[i]);
    send(Signal::CONT);
    poll_until("both have worked for some time", || spent().iter().all(|seconds| *seconds >= SECONDS));
    send(Signal::STOP);
    poll_until("both are stopped again", || pids.iter().all(is_stopped));
    let clock = spent();
    let seen = watch.stop().unwrap();
    assert_eq!(seen.notes, [""; 0]);
    let [spun, called] = seen.seen.as_slice() else { panic!("{seen:?}") };
    for (seen, clock) in [(spun, clock[0]), (called, clock[1])] {
        let (all, lost) = (by_component(seen), seen.figures.iter().find(|r| r.figure == LOST).unwrap());
        let sum: f64 = all.values().sum();
        println!("{clock:.3} s by the scheduler, {sum:.3} s by {lost:?}: {all:#?}");
        assert!((sum / clock - 1.0).abs() <= NEAR, "{sum} of {clock}: {all:?}");
        assert_eq!(lost.value.typical(), 0.0);
    }
    let cost = interrupt_seconds(node.reader()).unwrap();
    println!("a sample takes {:.2} us", cost * 1e6);
    let kernel = |all: &BTreeMap<String, f64>| -> f64 {
        all.iter().filter(|(name, _)| name.starts_with("kernel, ")).map(|(_, seconds)| seconds).sum()
    };
    let (spun, called) = (by_component(spun), by_component(called));
    let shell: f64 = ["dash", "bash", "busybox", "sh", "libc"].iter().filter_map(|name| spun.get(*name)).sum();
    assert!(shell >= 0.8 * clock[0], "{spun:?}");
    assert!(kernel(&called) >= 0.8 * clock[1], "{called:?}");
    assert!(
        called.keys().all(|name| name != "kernel, other") || called["kernel, other"] < 0.5 * clock[1],
        "{called:?}"
    );
}

/// Under emulation the guest's own code is what QEMU made of it; each role of the probe `cpu` is divided among its
/// components.
#[test]
#[ignore = "guest: needs QEMU"]
fn guest_time_is_told_by_component_and_adds_up_by_role() {
    let bed = Bed::new();
    let state = guest::state();
    let text = "components = true\nbaseline = 'none'\n[[matrix]]\nsides = ['native', 'qemu']\n\
                disks = { targets = ['preallocated'], drivers = ['virtio-blk'], caches = ['none'], aios = ['threads'] }\n\
                workloads = ['rand-read-4k-d1']\n";
    let planned = cells::planned(text, &bed.dir(), &state);
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |_| {});
    assert!(run.skipped.is_empty() && run.samples.len() == 2, "{:?}", run.skipped);
    let sum = |readings: &[Reading], figure: &str, role: &str| -> f64 {
        let own = readings.iter().filter(|r| r.figure == figure && r.labels[ROLE] == role);
        own.map(|r| r.value.typical()).sum()
    };
    for row in summary::summarise(&run).cells {
        let all = row.components.unwrap();
        println!("{}: {all:#?}", row.key);
        let samples: u64 = all.rows.iter().map(|one| one.samples).sum();
        // What chance adds to so many samples, four times over.
        let near = NEAR + 4.0 / (samples as f64).sqrt();
        assert!((all.of_clock_ratio.unwrap() - 1.0).abs() <= near, "{}: {all:?}", row.key);
        assert!(all.rows.iter().all(|one| one.seconds_per_request.is_some()), "{}", row.key);
        let has = |name: &str| all.rows.iter().any(|one| one.component.starts_with(name));
        let own = if row.cell.is_native() { "fio" } else { "qemu-system" };
        assert!(has("kernel, ") && has(own), "{}: {all:?}", row.key);
    }
    let guest = run.samples.iter().find(|sample| !sample.cell.is_native()).unwrap();
    let of = |watched: &dyn Fn(&Watched) -> bool| guest.seen.iter().find(|seen| watched(&seen.watched)).unwrap();
    let sampled = of(&|watched| *watched == Watched::Components);
    let cpu = of(&|watched| matches!(watched, Watched::Hypervisor(_)));
    let (by_samples, by_clock) = (sum(&sampled.figures, SAMPLED, "vcpu"), sum(&cpu.figures, BUSY, "vcpu"));
    println!("vcpu: {by_samples:.3} s by samples, {by_clock:.3} s by the scheduler");
    let near = NEAR + 4.0 / sum(&sampled.figures, SAMPLES, "vcpu").sqrt();
    assert!((by_samples / by_clock - 1.0).abs() <= near, "{by_samples} of {by_clock}");
    let accelerated = ["guest kernel", "translated guest code"].map(|name| by_component(sampled).contains_key(name));
    assert!(accelerated[0] != accelerated[1], "{sampled:?}");
    assert_eq!(bed.journal.undo_all(), [""; 0]);
}
