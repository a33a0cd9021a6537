//! Verdicts on made-up intervals and readings: who is named, the cost to others, and what is not claimed because it was
//! not observed.

#![allow(clippy::unwrap_used)]

use super::load::*;
use super::process::kind_of;
use super::share::{Basis, Identity};
use super::verdict::{Resource, Verdict, nothing, verdicts};
use super::{History, Interval, Latency};

mod journals;
mod kinds;
mod processors;
mod readings;
mod rows;
mod waits;
mod wires;

const VDA: Device = (254, 0);

/// Requests of one latency on the disk.
fn traffic(requests: u64, bytes_each: u64, seconds_each: f64) -> Transfer {
    let mut latency = Latency::default();
    for _ in 0..requests {
        latency.add((seconds_each * 1e6) as u64);
    }
    Transfer {
        requests: Some(requests),
        bytes: requests * bytes_each,
        device_seconds: Some(requests as f64 * seconds_each),
        queued_seconds: Some(0.0),
        latency: Some(latency),
        ..Transfer::default()
    }
}

fn reads(requests: u64, bytes_each: u64, seconds_each: f64) -> DiskLoad {
    DiskLoad { device: Some(VDA), reads: traffic(requests, bytes_each, seconds_each), ..DiskLoad::default() }
}

fn guest(name: &str, disks: Vec<DiskLoad>) -> GuestLoad {
    GuestLoad { name: name.into(), kind: "qemu".into(), disk_source: DiskSource::Trace, disks, ..GuestLoad::default() }
}

fn other(comm: &str, kernel: bool, disks: Vec<DiskLoad>) -> OtherLoad {
    OtherLoad { kind: kind_of(comm, kernel), name: comm.into(), pid: if kernel { 0 } else { 77 }, disks }
}

/// A traced second; the disk's own counters are the sums.
fn second(guests: Vec<GuestLoad>, others: Vec<OtherLoad>) -> Interval {
    let mut device = DeviceLoad { name: "vda".into(), device: VDA, busy_seconds: 1.0, ..DeviceLoad::default() };
    let all = guests.iter().map(|g| &g.disks).chain(others.iter().map(|o| &o.disks)).flatten();
    for disk in all.filter(|d| d.device == Some(VDA)) {
        for (side, sum) in [(&disk.reads, &mut device.reads), (&disk.writes, &mut device.writes)] {
            sum.requests += side.requests.unwrap_or(0);
            sum.bytes += side.bytes;
            sum.request_seconds += side.device_seconds.unwrap_or(0.0) + side.queued_seconds.unwrap_or(0.0);
        }
    }
    let host_cpu = HostCpu { cpus: 4, busy_seconds: 0.4, ..HostCpu::default() };
    Interval { seconds: 1.0, traced: true, devices: vec![device], guests, others, host_cpu, ..Interval::default() }
}

/// The victim alone: 5000 reads a second of 90 us each, one after the other.
fn quiet() -> Interval {
    second(vec![guest("db", vec![reads(5000, 4096, 90e-6)]), guest("flood", vec![])], vec![])
}

/// Both: 32 requests at once, 4 ms each; the victim completes 200.
fn flooded() -> Interval {
    second(vec![guest("db", vec![reads(200, 4096, 4e-3)]), guest("flood", vec![reads(7800, 4096, 4e-3)])], vec![])
}

fn seen(intervals: &[Interval]) -> History {
    let mut history = History::default();
    intervals.iter().for_each(|i| history.remember(i));
    history
}

fn the_one(found: Vec<Verdict>) -> Verdict {
    assert_eq!(found.len(), 1, "{found:#?}");
    found.into_iter().next().unwrap()
}

#[test]
fn a_flooder_is_named_with_what_it_costs_its_neighbour() {
    let verdict = the_one(verdicts(&flooded(), &seen(&[quiet()])));
    assert_eq!((verdict.resource, verdict.name.as_str(), verdict.certain), (Resource::Disk, "vda", true));
    assert_eq!(verdict.culprits.len(), 1);
    assert_eq!(verdict.culprits[0].guest.as_deref(), Some("flood"));
    assert!((verdict.culprits[0].share_ratio - 0.975).abs() < 1e-9);
    assert_eq!(verdict.basis, Some(Basis::DeviceTime));
    let cost = &verdict.costs[0];
    let (now, before) = (cost.latency_p99_seconds.unwrap(), cost.quiet_latency_p99_seconds.unwrap());
    assert!((now / 4e-3 - 1.0).abs() < 0.25 && (before / 90e-6 - 1.0).abs() < 0.25, "{now} {before}");
    assert_eq!(
        verdict.line,
        "disk vda is saturated by guest flood (98 % of its device time): 32 requests at once, 4.00 ms each, 90 µs in \
         quiet moments; db p99 3.84 ms, 88 µs while that one was quiet (44x)"
    );
}

#[test]
fn without_a_quieter_moment_nothing_is_made_up() {
    let verdict = the_one(verdicts(&flooded(), &History::default()));
    assert!(!verdict.certain);
    assert_eq!(verdict.costs[0].quiet_latency_p99_seconds, None);
    assert!(verdict.line.contains("disk vda may be saturated by guest flood"), "{}", verdict.line);
    assert!(verdict.line.contains("no quiet moment was seen yet to compare with"), "{}", verdict.line);
    assert!(verdict.line.ends_with("db p99 3.84 ms (no quieter moment seen yet)"), "{}", verdict.line);
    // Flooded intervals are no quiet moments.
    let verdict = the_one(verdicts(&flooded(), &seen(&[flooded(), flooded()])));
    assert!(!verdict.certain && verdict.costs[0].quiet_latency_p99_seconds.is_none());
}

#[test]
fn a_quiet_flooder_beside_another_load_is_a_quieter_moment_for_its_victim() {
    // The disk was never quiet, but that guest was.
    let busy = second(
        vec![guest("db", vec![reads(1000, 4096, 1e-3)]), guest("flood", vec![])],
        vec![other("rsync", false, vec![reads(5000, 4096, 1e-3)])],
    );
    let verdict = the_one(verdicts(&flooded(), &seen(&[busy])));
    assert!(!verdict.certain);
    assert!((verdict.costs[0].quiet_latency_p99_seconds.unwrap() / 1e-3 - 1.0).abs() < 0.25);
}

#[test]
fn a_deep_queue_alone_is_no_saturation() {
    // Flash: 32 at once, each hardly slower than one alone, busy all the time.
    let deep = second(
        vec![guest("a", vec![reads(290_000, 4096, 110e-6)]), guest("db", vec![reads(900, 4096, 110e-6)])],
        vec![],
    );
    assert!(verdicts(&deep, &seen(&[quiet()])).is_empty());
    assert_eq!(nothing(&deep), "nothing is saturated (processors 10 % busy)");
    // Large requests take longer than small ones, which is no waiting either.
    let large = second(vec![guest("a", vec![reads(3000, 1 << 20, 1e-3)])], vec![]);
    assert!(verdicts(&large, &seen(&[quiet()])).is_empty());
    // But only as much longer as they are larger.
    let slow = second(vec![guest("a", vec![reads(300, 16_384, 10e-3)])], vec![]);
    let verdict = the_one(verdicts(&slow, &seen(&[quiet()])));
    assert!(verdict.certain && verdict.line.contains("360 µs in quiet moments"), "{}", verdict.line);
}

#[test]
fn small_reads_that_wait_behind_writes_of_a_size_not_seen_before_tell_it() {
    let writes =
        |n, bytes, each| DiskLoad { device: Some(VDA), writes: traffic(n, bytes, each), ..DiskLoad::default() };
    let before = second(
        vec![guest("db", vec![reads(5000, 4096, 90e-6)]), guest("flood", vec![writes(50, 4096, 200e-6)])],
        vec![],
    );
    // By the ratio of sizes alone, 51 ms would be normal for 1 MiB.
    let flooded = |victims| {
        let flood = guest("flood", vec![writes(4000, 1 << 20, 8e-3)]);
        second(vec![guest("db", vec![reads(victims, 4096, 2e-3)]), flood], vec![])
    };
    let history = seen(std::slice::from_ref(&before));
    let verdict = the_one(verdicts(&flooded(300), &history));
    assert!(verdict.certain && verdict.culprits[0].guest.as_deref() == Some("flood"));
    let evidence = "33 requests at once, 7.58 ms each; reads take 2.00 ms, 90 µs in quiet moments";
    assert_eq!(verdict.evidence, evidence);
    // Too few requests, and reads that do not wait.
    assert!(verdicts(&flooded(99), &history).is_empty());
    assert!(verdicts(&before, &history).is_empty());
}

#[test]
fn the_lowest_latency_counts_and_one_slow_quiet_moment_does_not_spoil_it() {
    let slow = second(vec![guest("db", vec![reads(100, 4096, 9e-3)])], vec![]);
    for order in [[quiet(), slow.clone()], [slow, quiet()]] {
        assert!(verdicts(&flooded(), &seen(&order))[0].certain);
    }
}

#[test]
fn requests_that_the_disk_does_not_take_show_it_without_a_quiet_moment() {
    let mut interval = flooded();
    for guest in &mut interval.guests {
        let side = &mut guest.disks[0].reads;
        side.queued_seconds = side.device_seconds;
    }
    interval.devices[0].reads.request_seconds *= 2.0;
    let verdict = the_one(verdicts(&interval, &History::default()));
    assert!(verdict.certain && verdict.line.contains("50 % of that in the host's queue"), "{}", verdict.line);
    // A scheduler that holds requests back from an idle disk is not counted.
    for guest in &mut interval.guests {
        let side = &mut guest.disks[0].reads;
        side.device_seconds = side.device_seconds.map(|s| s / 100.0);
    }
    assert!(!the_one(verdicts(&interval, &History::default())).certain);
}

#[test]
fn two_equals_are_both_named() {
    let pair = |a, b| {
        second(
            vec![guest("a", vec![reads(a, 4096, 4e-3)]), guest("b", vec![reads(b, 4096, 4e-3)]), guest("db", vec![])],
            vec![],
        )
    };
    let verdict = the_one(verdicts(&pair(4000, 3900), &seen(&[quiet()])));
    let named: Vec<_> = verdict.culprits.iter().map(|c| c.guest.clone().unwrap()).collect();
    assert_eq!(named, ["a", "b"]);
    assert!(
        verdict.line.contains("by no single one: guest a 51 % and guest b 49 % of its device time"),
        "{}",
        verdict.line
    );
    assert!(verdict.line.ends_with("no other guest used it"), "{}", verdict.line);
    let verdict = the_one(verdicts(&pair(6000, 2000), &seen(&[quiet()])));
    assert_eq!(verdict.culprits.len(), 1);
    // A guest as large as two culprits is compared with moments when both were quiet.
    let mut three = pair(4000, 3900);
    three.guests[2].disks = vec![reads(100, 4096, 4e-3)];
    let verdict = the_one(verdicts(&three, &seen(&[quiet()])));
    assert!(verdict.line.contains("db p99 3.84 ms, 88 µs while those were quiet"), "{}", verdict.line);
}

#[test]
fn many_equals_are_a_number() {
    let many = (0..20).map(|i| guest(&format!("g{i:02}"), vec![reads(500, 4096, 4e-3)])).collect();
    let verdict = the_one(verdicts(&second(many, vec![]), &seen(&[quiet()])));
    assert!(verdict.line.contains("by no single one: 20 have about the same share, 5 % of its device time each"));
    let mut guests: Vec<GuestLoad> =
        (0..20).map(|i| guest(&format!("g{i:02}"), vec![reads(500, 4096, 4e-3)])).collect();
    guests[7] = guest("g07", vec![reads(900, 4096, 4e-3)]);
    let verdict = the_one(verdicts(&second(guests, vec![]), &seen(&[quiet()])));
    assert!(verdict.line.contains("by many: the largest is guest g07 with 9 %"), "{}", verdict.line);
    // A line names three costs; the rest is a number.
    assert_eq!(verdict.costs.len(), 19);
    assert!(verdict.line.ends_with("and 16 more guests"), "{}", verdict.line);
}

#[test]
fn what_no_guest_explains_is_a_culprit_of_its_own() {
    for (comm, kernel, label) in [
        ("vzdump", false, "backup (vzdump)"),
        ("md0_resync", true, "resync (md0_resync)"),
        ("md0_raid5", true, "RAID, passes on (md0_raid5)"),
        ("z_wr_iss_0", true, "ZFS, for an unknown process (z_wr_iss_0)"),
        ("kworker/u8:1+flush-254:0", true, "writeback (kworker/u8:1+flush-254:0)"),
        ("kswapd0", true, "swap (kswapd0)"),
    ] {
        let backup = second(
            vec![guest("db", vec![reads(200, 4096, 4e-3)])],
            vec![other(comm, kernel, vec![reads(7800, 65_536, 4e-3)])],
        );
        let verdict = the_one(verdicts(&backup, &seen(&[quiet()])));
        assert_eq!((verdict.culprits[0].who.as_str(), &verdict.culprits[0].guest), (label, &None));
        assert!(verdict.line.contains("db p99 3.84 ms, 88 µs while that one was quiet"), "{}", verdict.line);
    }
}

#[test]
fn a_worker_of_another_name_at_the_same_work_is_the_same_culprit() {
    let flooded = |workers: &[(&str, u64)]| {
        let worker = |(name, n): &(&str, u64)| other(name, true, vec![reads(*n, 65_536, 4e-3)]);
        second(vec![guest("db", vec![reads(820, 4096, 4e-3)])], workers.iter().map(worker).collect())
    };
    let (one, two) = ("kworker/u8:1+flush-254:0", "kworker/u8:7+flush-254:0");
    // Also where two had less than a tenth each.
    for before in [flooded(&[(one, 7800)]), flooded(&[(one, 90), (two, 90)])] {
        let verdict = the_one(verdicts(&flooded(&[(two, 7800)]), &seen(&[before])));
        assert_eq!(verdict.costs[0].quiet_latency_p99_seconds, None, "{}", verdict.line);
    }
}

#[test]
fn guests_of_the_same_name_are_two() {
    let web = |pid, n, seconds| GuestLoad { pid: Some(pid), ..guest("web", vec![reads(n, 4096, seconds)]) };
    let before = second(vec![web(1, 500, 90e-6), web(2, 500, 900e-6)], vec![]);
    let after = second(vec![web(1, 200, 4e-3), web(2, 300, 4e-3), web(3, 7800, 4e-3)], vec![]);
    let verdict = the_one(verdicts(&after, &seen(&[before])));
    let quiet: Vec<u32> =
        verdict.costs.iter().map(|c| (c.quiet_latency_p99_seconds.unwrap() * 1e5).round() as u32).collect();
    assert_eq!((quiet, verdict.culprits.len()), (vec![9, 96], 1), "{}", verdict.line);
}

#[test]
fn too_few_requests_tell_no_percentile() {
    let mut few = flooded();
    few.guests[0].disks = vec![reads(99, 4096, 4e-3)];
    let verdict = the_one(verdicts(&few, &seen(&[quiet()])));
    assert!(verdict.costs.is_empty());
    assert!(verdict.line.ends_with("1 other guest did too little to show what it costs"), "{}", verdict.line);
    // Too few requests before are no basis for a comparison.
    let mut before = quiet();
    before.guests[0].disks = vec![reads(99, 4096, 90e-6)];
    before.devices[0].reads = Requests { requests: 99, bytes: 99 * 4096, request_seconds: 99.0 * 90e-6 };
    let verdict = the_one(verdicts(&flooded(), &seen(&[before])));
    assert!(verdict.line.ends_with("(no quieter moment seen yet)"), "{}", verdict.line);
}

#[test]
fn a_neighbour_that_is_no_slower_is_said_to_be_so() {
    let before = second(vec![guest("db", vec![reads(200, 4096, 5e-3)])], vec![]);
    let verdict = the_one(verdicts(&flooded(), &seen(&[quiet(), before])));
    // Both quiet moments count: 5200 requests, of which more than one in a hundred is slow.
    assert!(verdict.line.contains("no worse than while that one was quiet"), "{}", verdict.line);
}

#[test]
fn what_two_buckets_may_be_apart_is_no_cost() {
    let before = |seconds| second(vec![guest("db", vec![reads(1000, 4096, seconds)])], vec![]);
    // The middle of the next bucket is 3.33 ms, and 3.84 ms is 15 % more; 2.82 ms is two buckets away.
    let verdict = &verdicts(&flooded(), &seen(&[before(3.3e-3)]))[0];
    assert!(verdict.line.contains("no worse than"), "{}", verdict.line);
    let verdict = &verdicts(&flooded(), &seen(&[before(2.7e-3)]))[0];
    assert!(verdict.line.contains("while that one was quiet (1."), "{}", verdict.line);
}

#[test]
fn a_quiet_host_has_no_verdict() {
    for interval in [quiet(), second(vec![], vec![]), Interval { seconds: 1.0, ..Interval::default() }] {
        assert_eq!(verdicts(&interval, &seen(&[quiet()])), []);
    }
    let untraced = Interval { seconds: 1.0, ..Interval::default() };
    assert!(nothing(&untraced).contains("seen without tracing"));
}

#[test]
fn an_interval_of_zero_has_no_verdict_and_is_not_remembered() {
    let mut zero = flooded();
    zero.seconds = 0.0;
    let mut history = History::default();
    history.remember(&zero);
    assert_eq!(verdicts(&zero, &history), []);
    assert_eq!(nothing(&zero), "no time passed between two readings");
    let rows = super::rows::rows(&zero);
    assert_eq!((rows.devices[0].queue_depth, rows.guests[0].disk.read_iops), (0.0, Some(0.0)));
    assert!(history.quiet_seconds(&zero.devices[0]).is_none());
}

#[test]
fn without_tracing_shares_are_of_bytes_and_costs_are_not_told() {
    let mut interval = flooded();
    interval.traced = false;
    for guest in &mut interval.guests {
        let side = &mut guest.disks[0].reads;
        (side.latency, side.device_seconds, side.queued_seconds, side.requests) = (None, None, None, None);
    }
    // An unknown user moved a tenth of it.
    interval.devices[0].reads.bytes = interval.devices[0].reads.bytes * 10 / 9;
    let verdict = the_one(verdicts(&interval, &seen(&[quiet()])));
    assert_eq!(verdict.basis, Some(Basis::Bytes));
    assert!(verdict.line.contains("by guest flood (88 % of its bytes)"), "{}", verdict.line);
    assert!(verdict.line.ends_with("the cost to others is unknown without tracing"), "{}", verdict.line);
    // Bytes on unknown disks are on no named disk.
    interval.guests[1].disks[0].device = None;
    let verdict = the_one(verdicts(&interval, &seen(&[quiet()])));
    assert!(verdict.culprits.iter().all(|c| c.guest.is_none()), "{}", verdict.line);
    assert!(verdict.line.contains("by others (98 % of its bytes)"), "{}", verdict.line);
    assert!(verdict.line.ends_with("could be guest flood, whose disks are unknown"), "{}", verdict.line);
    interval.guests.clear();
    let verdict = the_one(verdicts(&interval, &seen(&[quiet()])));
    assert!(verdict.line.contains("by others than guests (100 % of its bytes)"), "{}", verdict.line);
}

#[test]
fn a_long_session_keeps_its_beginning_and_is_bounded() {
    let mut history = seen(&[quiet()]);
    (0..3000).for_each(|_| history.remember(&flooded()));
    let [db, flood] = ["db", "flood"].map(|name| Identity::Guest(name.into(), None));
    assert_eq!(history.without(VDA, &db, &[flood]).requests(), 5000);
    assert!(history.kept() <= 512, "{}", history.kept());
}

#[test]
fn an_interval_with_fewer_disks_forgets_nothing() {
    let mut many = quiet();
    for minor in 1..600 {
        let disk = |d: &DiskLoad| DiskLoad { device: Some((8, minor)), ..d.clone() };
        let more = disk(&many.guests[0].disks[0]);
        many.guests[0].disks.push(more);
        many.devices.push(DeviceLoad { device: (8, minor), ..many.devices[0].clone() });
    }
    // All of them are of the first interval, so thinning out cannot make them fewer.
    let mut history = seen(&[many]);
    assert_eq!(history.kept(), 600);
    for later in [quiet(), Interval { devices: vec![], ..quiet() }] {
        history.remember(&later);
    }
    assert_eq!(history.kept(), 601);
}
