//! Cells of several guests at once, of shapes of their own and under settings, from the plan to the results.
//! Run with `cargo test -- --ignored`; the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Bed, cells, guest, loops_over};
use vmio_model::figure::scalar;
use vmio_model::result::{Mark, READ, Sample, Watched};
use vmio_node::linux::process::{self, Status};
use vmio_node::machine;
use vmio_rig::engine::measure::Event;
use vmio_rig::limits;
use vmio_testbed::skip;

/// What is read is a loop device of the guest's own; it is set up for each cell anew, and nothing of it stays.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_loop_device_in_the_guest_lies_over_a_file_on_its_disk() {
    let bed = Bed::new();
    let state = guest::state();
    let text = "[[matrix]]\nsides = ['qemu']\n\
                disks = { targets = ['loop'], drivers = ['virtio-blk'], caches = ['none', 'writeback'], aios = ['threads'] }\n\
                workloads = ['seq-read-64k-d1-buffered', 'seq-write']\n";
    let planned = cells::planned(text, &bed.dir(), &state);
    let skipped: Vec<_> = planned.left_out.iter().map(|l| (l.cell.workload(), l.why.to_string())).collect();
    assert_eq!(skipped.len(), 3, "{skipped:?}");
    assert!(skipped.iter().all(|(name, why)| *name == "seq-write" && why.contains("is only read")), "{skipped:?}");
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |_| {});
    assert_eq!((run.samples.len(), run.skipped.len()), (3, 3), "{:?}", run.skipped);
    for sample in &run.samples {
        let key = sample.cell.key();
        println!("{key}: {:.0} MB/s: {}", sample.result.figure("bandwidth").unwrap() / 1e6, sample.result.command);
        assert!(sample.result.figure("bandwidth").unwrap() > 0.0, "{key}");
        // The first that is free, each time.
        assert!(sample.result.command.contains("/dev/loop"), "{key}: {}", sample.result.command);
        if !sample.cell.is_native() {
            assert!(sample.result.command.contains("/dev/loop0"), "{key}: {}", sample.result.command);
            let place = key.rsplit_once('/').unwrap().0;
            assert!(run.effective[place]["in_guest"].contains("ext4"), "{:?}", run.effective);
        }
    }
    assert_eq!(run.effective["loop/native"]["direct_io"], "false");
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    assert_eq!((loops_over(&bed.dir()).len(), bed.files().len()), (0, 0));
}

/// What is warm in the guest's own page cache never reaches its disk, as its hypervisor counts; what is warm in the host's
/// reaches that, and no disk of the host.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_page_cache_serves_the_guest_at_the_side_that_is_named() {
    const WARM: f64 = (64 << 20) as f64;
    let bed = Bed::new();
    let state = guest::state();
    let text = "baseline = 'none'\n\
                [[matrix]]\nsides = ['qemu']\n\
                disks = { targets = ['preallocated'], states = ['warm-guest', 'warm-host'], drivers = ['virtio-blk'], \
                caches = ['none', 'writeback'], aios = ['threads'] }\nworkloads = ['rand-read-4k-d1-buffered']\n\
                [[matrix]]\nsides = ['qemu']\n\
                disks = { targets = ['preallocated'], states = ['warm-host'], drivers = ['virtio-blk'], \
                caches = ['writeback'], aios = ['threads'] }\nworkloads = ['rand-read-4k-d1']\n";
    let planned = cells::planned(text, &bed.dir(), &state);
    let [past] = planned.left_out.as_slice() else { panic!("{:?}", planned.left_out) };
    assert!(past.why.to_string().contains("cache=none"), "{}", past.why);
    let run = cells::measure_by(cells::one_round, &planned, &state, &bed.journal, &mut |_| {});
    if let Some(lacks) = run.skipped.iter().find(|s| s.reason.contains("MiB of memory left")) {
        return skip(&lacks.reason);
    }
    assert_eq!((run.samples.len(), run.skipped.len()), (4, 1), "{:?}", run.skipped);
    for sample in &run.samples {
        let (key, marks) = (sample.cell.key(), &sample.marks);
        let counted = sample.seen.iter().find(|s| s.watched == Watched::Drive("preallocated".into()));
        let below = counted.and_then(|s| scalar(&s.figures, READ)).unwrap();
        let (read, not_warm) = (sample.result.disk_work().read_bytes as f64, marks.contains(&Mark::NotWarm));
        println!("{key}: {below} of {read} read by the guest, {:?}: {marks:?}", sample.device());
        if key.starts_with("preallocated+warm-guest") {
            assert!(below <= 0.05 * WARM, "{key}: {below}");
            assert!(!not_warm, "{key}: {:?}", sample.seen);
        } else if not_warm {
            skip("reads of others at the host's disk are not told from the guest's");
        } else {
            assert!(below >= 0.95 * read, "{key}: {below} of {read}");
            assert!(sample.device().unwrap().read_bytes as f64 <= 0.05 * read, "{key}");
        }
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn guests_of_two_shapes_work_at_once() {
    let bed = Bed::new();
    let state = guest::state();
    let pin = *limits::own_cpus(&bed.node).unwrap().last().unwrap();
    let text = format!(
        "baseline = 'none'\n\
         [[matrix]]\nsides = ['qemu']\ndisks = {{ targets = ['preallocated'], drivers = ['virtio-blk'] }}\n\
         workloads = ['seq-read-64k-d1-buffered']\nsettings = {{ read-ahead = ['0k', '4096k'] }}\n\
         [[cell]]\nactors = [\n\
         {{ side = 'qemu', disk = {{ target = 'preallocated', driver = 'virtio-blk' }}, workload = 'seq-read-64k-d8' }},\n\
         {{ side = 'qemu', shape = {{ vcpus = 2, memory_mib = 320, pins = [{pin}] }}, start_seconds = 0.1, seconds = 0.3, \
         disk = {{ target = 'sparse', driver = 'nvme' }}, workload = 'rand-read-4k-d4' }},\n]\n"
    );
    let planned = cells::planned(&text, &bed.dir(), &state);
    assert_eq!(planned.skipped(), []);
    let cookie = bed.journal.cookie().to_owned();
    // The guests that run, by how they were started: processors, memory, and those of the host that they are held to.
    let mut shapes = BTreeSet::new();
    let run = cells::measure(&planned, &state, &bed.journal, &mut |event| {
        let Event::Cell(..) = event else { return };
        let mut now = BTreeMap::new();
        for pid in machine::marked_processes(|owner| owner == cookie).iter().map(|process| process.pid) {
            let words = process::command_line(&bed.node, pid).unwrap_or_default();
            let behind = |option: &str| words.iter().skip_while(|w| *w != option).nth(1).cloned();
            let Some((processors, memory)) = behind("-smp").zip(behind("-m")) else { continue };
            // Of a guest with one, TCG is told to leave room for a second.
            let processors = processors.split(',').next().unwrap_or_default().to_owned();
            now.insert(pid, (processors, memory, Status::of(&bed.node, pid).unwrap().cpus().unwrap()));
        }
        assert_eq!(now.len(), 2, "a guest of each shape, whatever the cell: {now:?}");
        shapes.extend(now.into_values());
    });
    let free = limits::own_cpus(&bed.node).unwrap();
    let of = |n: &str, mib: &str, cpus: Vec<u32>| (n.to_owned(), mib.to_owned(), cpus);
    assert_eq!(shapes, [of("1", "256", free), of("2", "320", vec![pin])].into());
    assert_eq!(run.skipped, []);

    let other = format!("qemu:vcpus=2:memory=320:pins={pin}");
    let both = run.samples.iter().find(|s| s.beside.len() == 1).unwrap();
    println!("{}: {:.2} and {:.2} s", both.cell.key(), both.result.seconds, both.beside[0].seconds);
    assert!(both.cell.key().contains(&format!("& sparse/{other}/nvme,none,native/rand-read-4k-d4@0.1s~0.3s")));
    assert!(both.result.figure("bandwidth").unwrap() > 0.0 && both.beside[0].figure("iops").unwrap() > 0.0);
    // Each guest's hypervisor is seen apart, and both had to work.
    for guest in ["qemu", other.as_str()] {
        let seen = both.seen.iter().find(|s| s.watched == Watched::Hypervisor(guest.to_owned())).unwrap();
        let vcpu = seen.figures.iter().find(|r| r.labels.get("role").is_some_and(|role| role == "vcpu")).unwrap();
        assert!(vcpu.value.typical() > 0.0, "{guest}: {:?}", seen.figures);
    }

    // The read-ahead is the guest's own: in force in its cells, and what it was in all others.
    let place = "preallocated/qemu/virtio-blk,none,native";
    for value in ["0k", "4096k"] {
        let found = &run.effective[&format!("{place} [read-ahead={value}]")];
        assert_eq!(found.get("read-ahead").map(String::as_str), Some(value));
    }
    let usual = run.effective[place]["read_ahead_kib"].as_str();
    assert!(usual.parse::<u64>().is_ok() && !["0", "4096"].contains(&usual), "{usual}");
    assert!(run.effective.contains_key(&format!("sparse/{other}/nvme,none,native")), "{:?}", run.effective.keys());
    // Requests of others at the disk below draw both towards their own size: the round that they are in least.
    let requests = |value: &str| -> Vec<f64> {
        let key = format!("{place}/seq-read-64k-d1-buffered [read-ahead={value}]");
        let of = run.samples.iter().filter(|s| s.cell.key() == key);
        of.map(|s| s.device().unwrap().request_bytes).collect()
    };
    let (none, large) = (requests("0k"), requests("4096k"));
    println!("bytes a request: {none:.0?} without, {large:.0?} with 4 MiB");
    let (least, most) = (none.into_iter().fold(f64::MAX, f64::min), large.into_iter().fold(0.0, f64::max));
    let foreign = |s: &&Sample| {
        s.cell.settings.get("read-ahead").is_some_and(|value| value == "0k")
            && s.foreign.during_bytes_ratio.is_none_or(|ratio| ratio > 0.2)
    };
    match run.samples.iter().filter(foreign).count() {
        0 | 1 => assert!(most > 1.5 * least, "{most} {least}"),
        _ => skip("the size of requests at the disk: others were at work there in each round"),
    }
    assert_eq!(machine::marked_processes(|owner| owner == cookie).len(), 0);
}
