//! Loads besides processors, disks and wires: flushes, a CPU quota, memory, swap.

use super::super::rows::WaitFor;
use super::waits::{filled, words};
use super::*;

/// A guest that commits 16 times a second: a write of 4 KiB, and a flush of 30 ms that counts as a write of nothing.
fn committing() -> Interval {
    let mut writes = traffic(16, 4096, 100e-6);
    writes.add(&traffic(16, 0, 30e-3));
    let commits = DiskLoad { device: Some(VDA), writes, ..DiskLoad::default() };
    let plain = DiskLoad { device: Some(VDA), writes: traffic(50, 4096, 100e-6), ..DiskLoad::default() };
    let mut interval = second(vec![guest("db", vec![commits]), guest("log", vec![plain])], vec![]);
    let flushes = Requests { requests: 16, bytes: 0, request_seconds: 0.48 };
    (interval.devices[0].flushes, interval.devices[0].others) = (flushes, flushes);
    interval
}

#[test]
fn a_disk_that_is_slow_to_flush_is_named_with_who_commits() {
    let interval = committing();
    let verdict = the_one(verdicts(&interval, &seen(&[quiet()])));
    assert_eq!((verdict.resource, verdict.name.as_str(), verdict.certain), (Resource::Disk, "vda", true));
    assert!(
        verdict.line.starts_with(
            "disk vda is slow to flush: 16 flushes a second take 30.0 ms each, one is under way 48 % of the time; db \
             waits for them "
        ),
        "{}",
        verdict.line
    );
    // Who only writes does not wait.
    assert_eq!(verdict.costs.iter().map(|c| c.guest.as_str()).collect::<Vec<_>>(), ["db"]);
    let rows = filled(&interval, &seen(&[quiet()]));
    assert_eq!((words(&rows[0]), words(&rows[1])), ((Some(WaitFor::Flush), "flush 30.0ms"), (None, "")));
    assert!(rows[0].worst_wait.as_ref().is_some_and(|wait| (0.4..0.6).contains(&wait.ratio)), "{rows:?}");
    // It is sorted first, and nobody else is near a limit for it.
    assert!(rows[0].load_ratio > Some(0.4) && rows[1].load_ratio < Some(0.1), "{rows:?}");
    // Without tracing whoever writes there may wait.
    let mut untraced = interval.clone();
    untraced.traced = false;
    for side in untraced.guests.iter_mut().flat_map(|g| &mut g.disks).map(|d| &mut d.writes) {
        (side.latency, side.device_seconds, side.queued_seconds) = (None, None, None);
    }
    assert_eq!(the_one(verdicts(&untraced, &seen(&[quiet()]))).costs.len(), 2);
    // A quick flush, and one in a while, are no load.
    for (requests, request_seconds) in [(100, 0.5), (2, 0.1)] {
        let mut idle = interval.clone();
        idle.devices[0].flushes = Requests { requests, bytes: 0, request_seconds };
        assert_eq!(verdicts(&idle, &seen(&[quiet()])), []);
    }
    // A saturated disk has one line, and nobody is said to wait for its flushes: any of its writes may take as long.
    let mut full = flooded();
    full.devices[0].flushes = interval.devices[0].flushes;
    let verdict = the_one(verdicts(&full, &seen(&[quiet()])));
    assert!(verdict.line.contains("90 µs in quiet moments, a flush takes 30.0 ms; "), "{}", verdict.line);
    full.guests[1].disks.push(DiskLoad { device: Some(VDA), writes: traffic(100, 4096, 40e-3), ..DiskLoad::default() });
    assert_ne!(words(&filled(&full, &seen(&[quiet()]))[1]).0, Some(WaitFor::Flush));
}

#[test]
fn a_cpu_quota_is_no_wait_for_others() {
    let vcpu = ThreadTime { run_seconds: 0.3, wait_seconds: 0.7 };
    let cpu = CpuLoad { vcpus: 1, vcpu, fullest: Some(("virtual CPU 0".into(), 1.0)), ..CpuLoad::default() };
    let a = GuestLoad { cpu: Some(cpu), throttled_ratio: Some(0.95), ..guest("a", vec![]) };
    let mut interval = second(vec![a], vec![]);
    let verdict = the_one(verdicts(&interval, &History::default()));
    assert_eq!(
        verdict.line,
        "guest a is held back by its CPU quota: throttled in 95 % of its periods; a larger quota, or fewer threads at \
         once, helps"
    );
    assert_eq!(words(&filled(&interval, &History::default())[0]), (Some(WaitFor::Quota), "quota 95 %"));
    // Nor do busy processors saturate the host because of it.
    interval.host_cpu.busy_seconds = 3.4;
    interval.host_cpu.stalled_ratio = Some(0.9);
    assert_eq!(the_one(verdicts(&interval, &History::default())).resource, Resource::GuestCpu);
    // A few throttled periods say little.
    interval.guests[0].throttled_ratio = Some(0.1);
    let lines = verdicts(&interval, &History::default());
    assert!(lines.iter().all(|v| !v.line.contains("quota")), "{lines:?}");
}

#[test]
fn a_guest_that_waits_for_memory_is_named_with_its_limit() {
    let limit = Some(MemoryLimit { used_bytes: 62 << 20, limit_bytes: 64 << 20 });
    let memory = Some(Memory { resident_bytes: 62 << 20, swapped_bytes: None, limit });
    let short = |stalled| GuestLoad { memory, memory_stalled_ratio: stalled, ..guest("c", vec![]) };
    let interval = second(vec![short(Some(0.34))], vec![]);
    let verdict = the_one(verdicts(&interval, &History::default()));
    assert_eq!(verdict.resource, Resource::GuestMemory);
    assert_eq!(
        verdict.line,
        "guest c waits for memory 34 % of the time, with 62M of its limit of 64M: more memory, or less work there, \
         ends that"
    );
    let row = &filled(&interval, &History::default())[0];
    assert_eq!((words(row), row.memory_limit_bytes), ((Some(WaitFor::Memory), "memory 34 %"), Some(64 << 20)));
    assert!(row.load_ratio.is_some_and(|load| load > 0.96), "{row:?}");
    // A page cache that fills the limit is no load.
    for stalled in [None, Some(0.02)] {
        let interval = second(vec![short(stalled)], vec![]);
        assert_eq!(verdicts(&interval, &History::default()), []);
        let row = &filled(&interval, &History::default())[0];
        assert_eq!((words(row).0, row.load_ratio.is_some_and(|load| load > 0.5)), (None, false));
    }
}

#[test]
fn a_host_that_swaps_is_told_with_whose_memory_is_there() {
    let swapped = |name: &str, mib: u64| {
        let memory = Memory { resident_bytes: 64 << 20, swapped_bytes: Some(mib << 20), limit: None };
        GuestLoad { memory: Some(memory), memory_stalled_ratio: Some(0.9), ..guest(name, vec![]) }
    };
    let mut interval = second(vec![swapped("small", 1), swapped("big", 192)], vec![]);
    interval.guests[0].memory_stalled_ratio = None;
    interval.host_memory = HostMemory {
        swapped_bytes: 200 << 20,
        swapped_in_pages: Some(700),
        swapped_out_pages: Some(5),
        ..interval.host_memory
    };
    let all = verdicts(&interval, &History::default());
    assert_eq!(all.iter().map(|v| v.resource).collect::<Vec<_>>(), [Resource::HostMemory, Resource::GuestMemory]);
    assert_eq!(
        all[0].line,
        "the host swaps: 700 pages a second are read back, 5.0 written, 200M are there; guest big has 192M of its \
         memory there"
    );
    let row = &filled(&interval, &History::default())[1];
    assert_eq!(words(row), (Some(WaitFor::Swap), "swap 192M"));
    assert_eq!(row.worst_wait.as_ref().map(|wait| wait.ratio), Some(0.9));
    // Memory that lies there costs nothing.
    interval.host_memory.swapped_in_pages = Some(3);
    assert!(verdicts(&interval, &History::default()).iter().all(|v| v.resource != Resource::HostMemory));
}
