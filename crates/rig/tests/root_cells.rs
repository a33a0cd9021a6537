//! Cells of several actors and under settings, natively, from the plan to the results.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Bed, cells, loops_over, set_link};
use vmio_model::figure::scalar;
use vmio_model::result::{CACHED_BEFORE, Mark, Sample, Watched};
use vmio_node::linux::block;
use vmio_node::machine;
use vmio_rig::engine::measure::Event;
use vmio_testbed::{must_be_root, poll_for, skip, slowness};

#[test]
#[ignore = "root"]
fn two_actors_work_at_once_on_two_targets() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n[[cell]]\nactors = [\n\
        { side = 'native', disk = { target = 'preallocated' }, workload = 'seq-read', seconds = 1.5 },\n\
        { side = 'native', disk = { target = 'sparse' }, workload = 'rand-read-4k-d4', start_seconds = 0.2, seconds = 0.4 },\n]\n";
    let planned = cells::planned(text, &bed.dir(), &bed.dir());
    assert_eq!(planned.skipped(), []);
    let run = cells::measure(&planned, &bed.dir(), &bed.journal, &mut |_| {});
    assert!(run.skipped.is_empty() && run.samples.len() >= 2, "{:?}", run.skipped);
    let mut shortest = [f64::MAX; 2];
    for sample in &run.samples {
        assert_eq!(sample.cell.key(), "preallocated/native/seq-read~1.5s & sparse/native/rand-read-4k-d4@0.2s~0.4s");
        let [other] = sample.beside.as_slice() else { panic!("{} co-runners", sample.beside.len()) };
        println!("{:.2} s with a co-runner of {:.2} s: {:?}", sample.result.seconds, other.seconds, sample.seen);
        let (first, second) = (sample.result.seconds, other.seconds);
        shortest = [shortest[0].min(first), shortest[1].min(second)];
        assert!(sample.result.command.contains("vmio-preallocated.raw") && other.command.contains("vmio-sparse.raw"));
        // One disk below both is seen once, with what both read of it.
        let disks = sample.seen.iter().filter(|s| matches!(s.watched, Watched::Disk(_))).count();
        assert_eq!((disks, sample.seen.iter().filter(|s| s.watched == Watched::Processors).count()), (1, 1));
        let read = sample.result.disk_work().read_bytes + other.disk_work().read_bytes;
        assert!(sample.device().unwrap().read_bytes as f64 >= 0.9 * read as f64, "{:?} of {read}", sample.device());
        // Of two actors it cannot be told whose requests the device worked on.
        let of_disks = sample.marks.iter().filter(|mark| **mark != Mark::ProcessorsBusy).count();
        assert_eq!((of_disks, sample.foreign.during_bytes_ratio), (0, None));
    }
    // Each as long as it was told, and as its last requests take on a busy machine, unless its span was over before
    // that; the disk may hold them up for longer, but not in each round.
    let late = 2.0 * slowness();
    assert!(shortest[0] <= 1.5 + late && shortest[1] <= 0.4 + late, "{shortest:?}");
    assert_eq!(run.environment.programs.keys().collect::<Vec<_>>(), ["fio"]);
    assert_eq!(run.environment.fio.as_ref(), run.environment.programs.get("fio"));
    // The read-ahead of a file is its file system's.
    let below = block::read_ahead_kib(&bed.node, &bed.dir()).map(|kib| kib.to_string());
    assert_eq!(run.effective["sparse/native"].get("read_ahead_kib"), below.as_ref());
}

#[test]
#[ignore = "root"]
fn read_ahead_is_set_around_its_cells_alone() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n\
        [[matrix]]\nsides = ['native']\ndisks.targets = ['device', 'sparse']\nworkloads = ['seq-read-64k-d1-buffered']\n\
        settings = { read-ahead = ['0k', '1024k'] }\n\
        [[matrix]]\nsides = ['native']\ndisks.targets = ['device', 'sparse']\nworkloads = ['seq-read-64k-d1-buffered']\n";
    let planned = cells::planned(text, &bed.dir(), &bed.dir());
    let skipped: BTreeSet<String> = planned.skipped().iter().map(|s| s.cell.key()).collect();
    let sparse = |value: &str| format!("sparse/native/seq-read-64k-d1-buffered [read-ahead={value}]");
    assert_eq!(skipped, [sparse("0k"), sparse("1024k")].into());
    assert!(planned.skipped().iter().all(|s| s.reason.contains("works on a file")), "{:?}", planned.skipped());

    // What is in force of the one loop device that is there, between cells.
    let dir = bed.dir();
    let in_force = || -> Vec<String> {
        let file = |device: &std::path::PathBuf| {
            let name = device.file_name().unwrap().to_str().unwrap();
            std::fs::read_to_string(format!("/sys/block/{name}/queue/read_ahead_kb")).unwrap().trim().to_owned()
        };
        loops_over(&dir).iter().map(file).collect()
    };
    let mut between = BTreeSet::new();
    let run = cells::measure(&planned, &bed.dir(), &bed.journal, &mut |event| {
        if let Event::Cell(..) | Event::Stored(_) = event {
            between.extend(in_force());
        }
    });
    assert_eq!(run.skipped.len(), 2, "{:?}", run.skipped);
    let usual = run.effective["device/native"]["read_ahead_kib"].clone();
    assert_eq!(between.into_iter().collect::<Vec<_>>(), [usual.as_str()], "cells find and leave it as it was");
    let place = "device/native [read-ahead=1024k]";
    assert_eq!(run.effective[place], [("read-ahead".to_owned(), "1024k".to_owned())].into());

    // A cell that sets none has the guests' read-ahead on the run's own devices; others' devices keep theirs.
    let named_none = |target: &str| {
        let told = run.effective[&format!("{target}/native (seq-read-64k-d1-buffered)")]["read-ahead"].clone();
        let key = format!("{target}/native/seq-read-64k-d1-buffered");
        let marked = |s: &&Sample| s.marks.contains(&Mark::ReadAhead);
        (told, run.samples.iter().filter(|s| s.cell.key() == key).filter(marked).count())
    };
    assert_eq!(named_none("device"), ("128k".to_owned(), 0));
    let (told, marked) = named_none("sparse");
    match run.effective["sparse/native"]["read_ahead_kib"].as_str() {
        "128" => assert_eq!((told.as_str(), marked), ("128k", 0)),
        found => assert_eq!((told, marked), (format!("{found}k, as it was found"), run.samples.len() / 4)),
    }

    // In force means in force: one request of the kernel's is as large as what it reads ahead. Requests of others at the
    // disk below draw both towards their own size, so the round counts that they are in least.
    let requests = |key: &str| -> Vec<f64> {
        let of = run.samples.iter().filter(|s| s.cell.key() == key);
        of.map(|s| s.device().unwrap().request_bytes).collect()
    };
    let workload = "device/native/seq-read-64k-d1-buffered";
    let key = format!("{workload} [read-ahead=0k]");
    let foreign = |s: &Sample| s.cell.key() == key && s.foreign.during_bytes_ratio.is_none_or(|ratio| ratio > 0.2);
    let (none, large) = (requests(&key), requests(&format!("{workload} [read-ahead=1024k]")));
    println!("bytes a request: {none:.0?} without, {large:.0?} with 1 MiB, {:.0?} as it was", requests(workload));
    let (least, most) = (none.into_iter().fold(f64::MAX, f64::min), large.into_iter().fold(0.0, f64::max));
    match run.samples.iter().filter(|s| foreign(s)).count() {
        0 | 1 => assert!(least <= 65_536.0 && most > 1.5 * least, "{least} {most}"),
        _ => skip("the size of requests at the disk: others were at work there in each round"),
    }
    assert_eq!(loops_over(&bed.dir()).len(), 0);
}

/// What is warm at the host is read from its page cache: nothing of it reaches the disk, and the kernel counts it as cached.
#[test]
#[ignore = "root"]
fn what_is_warm_at_the_host_is_read_from_no_disk() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline.like.state = 'filled'\n[[matrix]]\nsides = ['native']\n\
        disks = { targets = ['preallocated', 'device'], states = ['filled', 'warm-host'] }\n\
        workloads = ['dd-read', 'rand-read-4k-d1-buffered', 'seq-read']\n";
    let planned = cells::planned(text, &bed.dir(), &bed.dir());
    let skipped: BTreeSet<String> = planned.skipped().iter().map(|s| s.cell.key()).collect();
    let past = ["device", "preallocated"].map(|target| format!("{target}+warm-host/native/seq-read"));
    assert_eq!(skipped, past.into(), "{:?}", planned.skipped());
    let run = cells::measure(&planned, &bed.dir(), &bed.journal, &mut |_| {});
    assert_eq!((run.skipped.len(), run.samples.len()), (2, 2 * 10), "{:?}", run.skipped);

    // A quarter of the side's 256 MiB; dd reads it once, fio again and again.
    const WARM: f64 = (64 << 20) as f64;
    let (mut warm, mut cold) = (BTreeSet::new(), 0);
    for sample in run.samples.iter().filter(|s| s.cell.is_warm()) {
        let (key, work, device) = (sample.cell.key(), sample.work(), sample.device().unwrap());
        println!("{key}: {} MB read, {} of them from the disk: {:?}", work.read_bytes, device.read_bytes, sample.marks);
        assert!(sample.cell.workload() != "dd-read" || work.read_bytes as f64 == WARM, "{key}: {work:?}");
        assert!(!sample.marks.contains(&Mark::Cached), "{key}: that it is cached is what was asked for");
        let target = Watched::PageCache(sample.cell.target().unwrap().to_owned());
        let held = sample.seen.iter().find(|s| s.watched == target).and_then(|s| scalar(&s.figures, CACHED_BEFORE));
        assert!(held.is_none_or(|held| held >= WARM), "{key}: {held:?}");
        if sample.marks.contains(&Mark::NotWarm) {
            cold += 1;
        } else {
            assert!(device.read_bytes as f64 <= 0.05 * WARM, "{key}: {device:?}");
            warm.insert(key);
        }
    }
    // What others read of the disk meanwhile counts as read by the cell.
    if warm.len() < 4 {
        skip(&format!("{cold} samples were not shown to be warm: others read from the disk at the same time"));
    }
    for sample in run.samples.iter().filter(|s| s.cell.key().ends_with("+filled/native/dd-read")) {
        let (read, asked) = (sample.device().unwrap().read_bytes, sample.work().read_bytes);
        assert!(asked == 512 << 20 && read as f64 >= 0.9 * asked as f64, "{}: {read}", sample.cell.key());
    }
}

/// What the link between hosts carries is limited whoever sends, and only for the cells that ask for it.
#[test]
#[ignore = "root"]
fn a_rate_holds_both_ways_for_its_cells_alone() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n\
        [[matrix]]\nsides = ['native']\npaths = { networks = ['uplink'], peers = ['remote'] }\n\
        workloads = ['iperf3-tcp', 'iperf3-tcp-reverse']\nsettings = { rate = ['100mbit'] }\n\
        [[matrix]]\nsides = ['native']\npaths = { networks = ['uplink'], peers = ['remote'] }\n\
        workloads = ['iperf3-tcp', 'iperf3-tcp-reverse']\n\
        [[matrix]]\nsides = ['native']\npaths = { networks = ['uplink'], peers = ['host'] }\n\
        workloads = ['iperf3-tcp']\nsettings = { rate = ['100mbit'] }\n";
    let planned = cells::planned(text, &bed.dir(), &bed.dir());
    let skipped: Vec<String> = planned.skipped().iter().map(|s| s.reason.clone()).collect();
    assert!(
        matches!(&skipped[..], [one] if one.contains("no link between hosts is on the way from the actor to ")),
        "{skipped:?}"
    );
    let run = cells::measure(&planned, &bed.dir(), &bed.journal, &mut |_| {});
    assert_eq!((run.skipped.len(), run.samples.len()), (1, 8), "{:?}", run.skipped);
    for sample in &run.samples {
        let rate = sample.result.figure("bandwidth").unwrap();
        println!("{}: {:.1} Mbit/s", sample.cell.key(), rate / 1e6);
        if sample.cell.settings.is_empty() {
            // More than any that is limited, however little of a processor it had.
            assert!(rate > 105e6, "{}: {rate}", sample.cell.key());
        } else {
            // The bucket is full at the start.
            assert!((10e6..105e6).contains(&rate), "{}: {rate}", sample.cell.key());
        }
    }
    let place = "uplink.remote/native [rate=100mbit]";
    assert_eq!(run.effective[place], [("rate".to_owned(), "100mbit".to_owned())].into());
}

/// The client of iperf3 of this run, while it is at work.
fn sends(owner: &str) -> Option<u32> {
    let client = |pid: u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).starts_with("iperf3\0--client")
    };
    machine::marked_processes(|cookie| cookie == owner).iter().map(|p| p.pid).find(|pid| client(*pid))
}

/// A cell whose link goes down in the middle of it is told with the name of the link; what was measured before is kept,
/// other paths go on, and nothing is left behind. What waits in vain is ended here as its limit would.
#[test]
#[ignore = "root"]
fn a_link_that_goes_down_in_a_cell_is_named() {
    link_goes_down(true);
}

/// The same by the cell's limit, of twice its time and a minute (`Stage::limit`).
#[test]
#[ignore = "root"]
fn long_a_cell_whose_link_goes_down_ends_by_its_limit() {
    link_goes_down(false);
}

fn link_goes_down(ended: bool) {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n\
        [[cell]]\nactors = [{ side = 'native', path = { network = 'uplink', peer = 'remote' }, workload = 'iperf3-tcp', seconds = 2.0 }]\n\
        [[cell]]\nactors = [{ side = 'native', path = { network = 'bridge', peer = 'host' }, workload = 'iperf3-tcp' }]\n";
    let planned = cells::planned(text, &bed.dir(), &bed.dir());
    assert_eq!(planned.skipped(), []);
    // Paths are numbered by their names: bridge is 0, uplink 1.
    let (mut told, mut took) = (Vec::new(), None);
    let run = cells::measure(&planned, &bed.dir(), &bed.journal, &mut |event| match event {
        Event::Cell(cell, 1) if cell.key().starts_with("uplink") && took.is_none() => {
            let owner = bed.journal.cookie().to_owned();
            took = Some(thread::spawn(move || {
                let client = poll_for("a client sends", || sends(&owner).ok_or(()));
                let client = Pid::from_raw(client.cast_signed()).unwrap();
                // Its time is not over before the link is down, however long that takes here.
                kill_process(client, Signal::STOP).unwrap();
                let down = set_link("up1", "down");
                kill_process(client, if ended { Signal::KILL } else { Signal::CONT }).unwrap();
                down
            }));
        }
        Event::Retry(cell, why) | Event::GaveUp(cell, why) | Event::LeftOut(cell, why) => {
            told.push((cell.key(), (*why).to_owned()));
        }
        _ => {}
    });
    assert!(took.unwrap().join().unwrap(), "there was a link to take down");
    println!("{told:#?}");
    let key = "uplink.remote/native/iperf3-tcp~2s";
    let [(first, why), (then, again)] = told.as_slice() else { panic!("{told:?}") };
    assert!(first == key && why.contains("the link up1 of its path went down while it ran"), "{first}: {why}");
    // It is not tried for another limit.
    assert!(then == key && again.contains("the link up1 of its path is down"), "{then}: {again}");
    let [skipped] = run.skipped.as_slice() else { panic!("{:?}", run.skipped) };
    assert_eq!((skipped.cell.key().as_str(), &skipped.reason), (key, again));
    let of = |start: &str| run.samples.iter().filter(|s| s.cell.key().starts_with(start)).count();
    assert_eq!((of("uplink"), of("bridge")), (1, 2), "the round before is kept, and the other path goes on");
    assert_eq!(machine::marked_processes(|owner| owner == bed.journal.cookie()).len(), 0);
    assert!(!set_link("up1", "down"), "its namespace is gone");
}

/// Names of the control groups of a run.
fn own_groups(bed: &Bed) -> BTreeSet<String> {
    let name = format!("vmio-{}*", bed.journal.cookie());
    let found = Command::new("find").args(["/sys/fs/cgroup", "-maxdepth", "4", "-type", "d", "-name", &name]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    found.lines().map(|path| path.rsplit('/').next().unwrap().to_owned()).collect()
}

/// Two natively, each held as the guest that it stands for would be, with servers that do not meet on one port.
#[test]
#[ignore = "root"]
fn two_native_sides_are_held_apart_and_served_apart() {
    must_be_root();
    let bed = Bed::new();
    let text = "baseline = 'none'\n[[cell]]\nactors = [\n\
        { side = 'native', shape = { pins = [0] }, path = { network = 'veth', peer = 'host' }, workload = 'iperf3-tcp' },\n\
        { side = 'native', shape = { pins = [1] }, path = { network = 'veth', peer = 'host' }, workload = 'iperf3-tcp' },\n\
        { side = 'native', shape = { pins = [1] }, machine = true, workload = 'openssl-aes-256-cbc' },\n]\n";
    let planned = cells::planned(text, &bed.dir(), &bed.dir());
    assert_eq!(planned.skipped(), []);
    let mut groups = BTreeSet::new();
    let run = cells::measure(&planned, &bed.dir(), &bed.journal, &mut |_| groups.extend(own_groups(&bed)));
    assert!(run.skipped.is_empty() && run.samples.len() == 2, "{:?}", run.skipped);
    assert_eq!(groups.len(), 3, "the plain one and one for each: {groups:?}");
    println!("{}", run.environment.native_limits);
    let told = |side: &str, cpu: u32| {
        let limits = &run.environment.native_limits;
        // `native, native:pins=1: cgroup …; native:pins=0: cgroup …`.
        let mut groups = limits.split("; ").filter_map(|of| of.split_once(": "));
        let of = groups.find(|(sides, _)| sides.split(", ").any(|one| one == side));
        assert!(of.is_some_and(|(_, held)| held.contains(&format!("cpuset {cpu},"))), "{side}: {limits}");
    };
    told("native:pins=0", 0);
    told("native:pins=1", 1);
    assert_eq!(own_groups(&bed).len(), 0, "none is left");
    for sample in &run.samples {
        let [other, sealed] = sample.beside.as_slice() else { panic!("{} co-runners", sample.beside.len()) };
        assert!(sealed.figure("throughput").is_some_and(|rate| rate > 0.0), "{:?}", sealed.figures);
        let port = |command: &str| command.split("--port ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        assert_ne!(port(&sample.result.command), port(&other.command));
        for result in [&sample.result, other] {
            assert!(result.figure("bandwidth").unwrap() > 1e6, "{:?}", result.figures);
        }
    }
}

/// A path with three ends: two namespaces on one bridge send to another host, over a link that carries half of it.
#[test]
#[ignore = "root"]
fn two_senders_share_a_link_to_one_receiver() {
    must_be_root();
    let bed = Bed::new();
    let cell = |workload: &str| {
        let path = "{ network = 'shared', peer = 'remote', co_sender = 'neighbour' }";
        format!(
            "[[cell]]\nactors = [{{ side = 'native', path = {path}, workload = '{workload}' }}]\n\
             settings = {{ rate = '2mbit' }}\n"
        )
    };
    let text = format!("baseline = 'none'\n{}{}", cell("udp-2mbit-1472-within100ms"), cell("iperf3-tcp"));
    let planned = cells::planned(&text, &bed.dir(), &bed.dir());
    let [left_out] = &planned.left_out[..] else { panic!("{:?}", planned.left_out) };
    assert!(left_out.why.to_string().contains("iperf3-tcp has one sender"), "{}", left_out.why);
    let mut void = 0;
    let run = cells::measure(&planned, &bed.dir(), &bed.journal, &mut |event| {
        if let Event::Retry(cell, why) | Event::GaveUp(cell, why) = event {
            // A busy machine may not send on time.
            assert!(why.contains("the run is invalid"), "{}: {why}", cell.key());
            void += 1;
        }
    });
    assert!(!run.samples.is_empty() || void > 0, "{:?}", run.skipped);
    for sample in &run.samples {
        assert_eq!(sample.cell.key(), "shared.remote+neighbour/native/udp-2mbit-1472-within100ms [rate=2mbit]");
        let (raw, figure) = (&sample.result.raw, |name: &str| scalar(&sample.result.figures, name).unwrap());
        let received: u64 = ["sender", "co-sender"]
            .map(|role| {
                let senders = raw["receiver"]["senders"].as_array().unwrap();
                assert_eq!(senders.len(), 2, "{raw}");
                let mine = senders.iter().find(|one| one["sender"] == raw[role]["sender"]).unwrap();
                let share = raw["shares"][role].as_f64().unwrap();
                let bytes = mine["bytes"].as_u64().unwrap();
                assert!((share - bytes as f64 / figure("moved")).abs() < 1e-9, "{role}: {share} of {raw}");
                bytes
            })
            .iter()
            .sum();
        println!("{:?} {}", sample.result.figures, raw["shares"]);
        // What the link's queue holds comes on top of what it carries.
        assert_eq!(received as f64, figure("moved"));
        assert!((1e6..=2.6e6).contains(&figure("bandwidth")), "{:?}", sample.result.figures);
        assert!((0.1..0.9).contains(&figure("loss")), "half of what was offered is lost: {:?}", sample.result.figures);
    }
    assert_eq!(machine::marked_processes(|owner| owner == bed.journal.cookie()).len(), 0);
}
