//! Intervals between two readings: counters that restart, guests and threads that come and go.

use std::collections::BTreeMap;

use super::super::Flow;
use super::super::reading::*;
use super::*;

fn disk(name: &str, requests: u64, ms: u64) -> DiskCounters {
    let kind = (requests, requests * 4096, ms);
    DiskCounters { name: name.into(), kinds: [kind, (0, 0, 0), (0, 0, 0), (0, 0, 0)], busy_ms: ms }
}

fn thread(tid: u32, part: Part, run_ns: u64, wait_ns: u64) -> ThreadReading {
    ThreadReading { tid, part, name: format!("thread {tid}"), run_ns, wait_ns }
}

fn interface(name: &str, received: u64, sent: u64) -> Interface {
    let side = |packets| Packets { packets, bytes: packets * 100, dropped: packets / 10 };
    Interface { name: name.into(), speed_bps: None, queue_packets: None, received: side(received), sent: side(sent) }
}

fn one(at_seconds: f64, guests: Vec<GuestReading>, disks: &[(Device, DiskCounters)]) -> Reading {
    Reading { at_seconds, guests, disks: disks.iter().cloned().collect(), ..Reading::default() }
}

fn member(name: &str, pid: u32) -> GuestReading {
    GuestReading { name: name.into(), kind: "qemu".into(), pid: Some(pid), ..GuestReading::default() }
}

#[test]
fn disks_and_counters_that_begin_anew() {
    let before = [
        (VDA, disk("vda", 100, 1000)),
        ((7, 0), disk("loop0", 50, 10)),
        ((8, 0), disk("sda", 9, u64::from(u32::MAX) - 9)),
    ];
    let after = [
        (VDA, disk("vda", 300, 3000)),
        ((7, 0), disk("loop0", 20, 4)),
        ((8, 0), disk("sda", 19, 20)),
        ((8, 16), disk("sdb", 5, 5)),
    ];
    let interval = between(&one(10.0, vec![], &before), &one(12.0, vec![], &after), None);
    assert_eq!(interval.seconds, 2.0);
    let found: BTreeMap<&str, &DeviceLoad> = interval.devices.iter().map(|d| (d.name.as_str(), d)).collect();
    // loop0 restarted and sdb is new: their traffic is unknown. sda's clock wrapped.
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["sda", "vda"]);
    assert_eq!(found["vda"].reads, Requests { requests: 200, bytes: 200 * 4096, request_seconds: 2.0 });
    assert!((found["sda"].reads.request_seconds - 0.030).abs() < 1e-9);
    // Another disk with the same number is not the same disk.
    let renamed = [(VDA, disk("vdz", 300, 3000))];
    assert!(between(&one(0.0, vec![], &before), &one(1.0, vec![], &renamed), None).devices.is_empty());
}

#[test]
fn discards_and_flushes_are_no_writes() {
    let (mut before, mut after) = (disk("vda", 0, 0), disk("vda", 0, 0));
    before.kinds[1..].copy_from_slice(&[(10, 40_960, 10), (0, 0, 0), (0, 0, 0)]);
    // 100 writes of 1 ms, a discard of a gigabyte that took two seconds, 8 slow flushes.
    after.kinds[1..].copy_from_slice(&[(110, 450_560, 110), (1, 1 << 30, 2000), (8, 0, 800)]);
    let interval = between(&one(0.0, vec![], &[(VDA, before)]), &one(1.0, vec![], &[(VDA, after)]), None);
    let vda = &interval.devices[0];
    assert_eq!((vda.writes.requests, vda.writes.bytes), (100, 409_600));
    assert_eq!((vda.others.requests, vda.others.bytes), (9, 0));
    assert!((vda.writes.request_seconds - 0.1).abs() < 1e-9 && (vda.others.request_seconds - 2.8).abs() < 1e-9);
    assert_eq!((vda.flushes.requests, vda.flushes.request_seconds), (8, 0.8));
    // They are in flight, but are no reason to call the writes slow or the disk full.
    let row = &super::super::rows::rows(&interval).devices[0];
    assert!((row.latency_mean_seconds.unwrap() - 1e-3).abs() < 1e-9 && (row.queue_depth - 2.9).abs() < 1e-9);
    assert_eq!((row.flushes_per_second, row.flush_mean_seconds), (8.0, Some(0.1)));
    assert_eq!(
        the_one(verdicts(&interval, &History::default())).line,
        "disk vda is slow to flush: 8.0 flushes a second take 100 ms each, one is under way 80 % of the time; no guest is \
         seen to wait for them"
    );
    // A disk that discards is not quiet either.
    assert!(seen(std::slice::from_ref(&interval)).quiet_seconds(&interval.devices[0]).is_none());
}

#[test]
fn no_time_gives_nothing_but_a_note() {
    let reading = one(5.0, vec![member("a", 1)], &[(VDA, disk("vda", 1, 1))]);
    for at in [5.0, 4.0, f64::NAN] {
        let mut after = reading.clone();
        after.at_seconds = at;
        let interval = between(&reading, &after, None);
        assert!(interval.seconds == 0.0 && interval.guests.is_empty() && interval.devices.is_empty());
        assert_eq!(interval.notes, ["no time passed between two readings"]);
    }
}

#[test]
fn threads_come_and_go() {
    let mut before = member("a", 7);
    before.threads = vec![
        thread(7, Part::Rest, 1_000_000_000, 0),
        thread(8, Part::Vcpu, 5_000_000_000, 1_000_000_000),
        thread(9, Part::Io, 3_000_000_000, 0),
    ];
    let mut after = member("a", 7);
    after.threads = vec![
        thread(7, Part::Rest, 1_250_000_000, 0),
        thread(8, Part::Vcpu, 6_500_000_000, 1_500_000_000),
        // Thread 9 ended and its id was reused; 10 is new.
        thread(9, Part::Io, 100_000_000, 0),
        thread(10, Part::Io, 400_000_000, 200_000_000),
    ];
    let interval = between(&one(0.0, vec![before.clone()], &[]), &one(2.0, vec![after.clone()], &[]), None);
    let cpu = interval.guests[0].cpu.clone().unwrap();
    assert_eq!(cpu.vcpus, 1);
    assert_eq!((cpu.vcpu.run_seconds, cpu.vcpu.wait_seconds), (1.5, 0.5));
    assert!((cpu.io.run_seconds - 0.5).abs() < 1e-9 && (cpu.rest.run_seconds - 0.25).abs() < 1e-9);
    assert_eq!(cpu.busiest, Some(("thread 10".into(), 0.4)));
    // No thread runs longer than the time that passed.
    let interval = between(&one(0.0, vec![before], &[]), &one(0.1, vec![after], &[]), None);
    assert!((interval.guests[0].cpu.as_ref().unwrap().vcpu.run_seconds - 0.1).abs() < 1e-9);
}

#[test]
fn threads_without_names_are_taken_for_virtual_cpus() {
    let (mut before, mut after) = (member("a", 7), member("a", 7));
    (before.vcpus, after.vcpus) = (Some(2), Some(2));
    for (tid, part, ran) in [(7, Part::Main, 900), (8, Part::Rest, 10), (9, Part::Rest, 970), (10, Part::Rest, 500)] {
        before.threads.push(thread(tid, part, 0, 0));
        after.threads.push(thread(tid, part, ran * 1_000_000, 0));
    }
    let load = |before: &GuestReading, after: &GuestReading| {
        let interval = between(&one(0.0, vec![before.clone()], &[]), &one(1.0, vec![after.clone()], &[]), None);
        interval.guests[0].cpu.clone().unwrap()
    };
    let cpu = load(&before, &after);
    assert_eq!((cpu.vcpus, cpu.guessed, cpu.busiest.clone()), (2, true, None));
    assert!((cpu.vcpu.run_seconds - 1.47).abs() < 1e-9 && (cpu.rest.run_seconds - 0.91).abs() < 1e-9);
    assert!(cpu.fullest.as_ref().is_some_and(|(name, ran)| name == "thread 9" && (ran - 0.97).abs() < 1e-9));
    assert!((cpu.of_ratio(1.0, 8).unwrap() - 0.735).abs() < 1e-9);
    // No more than the host has run at once.
    assert_eq!(cpu.of_ratio(1.0, 1), Some(1.0));
    // Where their number is unknown nothing is guessed.
    after.vcpus = None;
    let cpu = load(&before, &after);
    assert_eq!((cpu.vcpus, cpu.guessed, cpu.of_ratio(1.0, 8)), (0, false, None));
    let busiest = super::super::reading::busiest(&before, &after, 1.0, 2);
    assert_eq!(busiest.iter().map(|t| t.tid).collect::<Vec<_>>(), [9, 7]);
}

#[test]
fn only_threads_that_are_known_to_move_io_alone_can_be_at_their_limit() {
    let busiest = |parts: &[Part]| {
        let (mut before, mut after) = (member("a", 7), member("a", 7));
        for (tid, part) in (7..).zip(parts) {
            before.threads.push(thread(tid, *part, 0, 0));
            // The last one works most.
            after.threads.push(thread(tid, *part, 900_000_000 + u64::from(tid) * 1_000_000, 0));
        }
        let interval = between(&one(0.0, vec![before], &[]), &one(1.0, vec![after], &[]), None);
        let said = verdicts(&interval, &History::default()).into_iter().filter(|v| v.resource == Resource::GuestIo);
        (interval.guests[0].cpu.clone().unwrap().busiest.map(|(name, _)| name), said.count())
    };
    for part in [Part::Io, Part::Main] {
        assert_eq!(busiest(&[Part::Vcpu, part, Part::Pool, Part::Rest]), (Some("thread 8".into()), 1));
    }
    assert_eq!(busiest(&[Part::Vcpu, Part::Pool, Part::Rest]), (None, 0));
    // QEMU did not name its threads: any of them may run a vCPU, or all of them.
    assert_eq!(busiest(&[Part::Main, Part::Rest, Part::Rest]), (None, 0));
}

#[test]
fn guests_come_and_go() {
    let full = |name: &str, pid| {
        let mut g = member(name, pid);
        g.threads = vec![thread(pid, Part::Vcpu, 1, 1)];
        g.nics = vec![interface("tap0", 10, 20)];
        g.disks = DiskReading::Counters(DiskSource::Process, vec![(None, [(None, 100), (None, 200)])]);
        g
    };
    let before = one(0.0, vec![full("a", 1), full("gone", 2)], &[]);
    let after = one(1.0, vec![full("a", 1), full("new", 3), full("gone", 4)], &[]);
    let interval = between(&before, &after, None);
    let names: Vec<_> = interval.guests.iter().map(|g| g.name.as_str()).collect();
    assert_eq!(names, ["a", "new", "gone"]);
    let known = |g: &GuestLoad| g.cpu.is_some() && !g.nics.is_empty() && g.disk_source == DiskSource::Process;
    // A guest restarted under the same name is another.
    assert_eq!(interval.guests.iter().map(known).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn what_the_tap_receives_is_what_the_guest_sends() {
    let (mut before, mut after) = (member("a", 1), member("a", 1));
    before.nics = vec![interface("tap0", 10, 20), interface("tap1", 500, 500)];
    after.nics = vec![interface("tap0", 40, 120), interface("tap1", 3, 3), interface("tap2", 9, 9)];
    let interval = between(&one(0.0, vec![before], &[]), &one(1.0, vec![after], &[]), None);
    // tap1 was created again and tap2 is new: their packets are unknown.
    let [nic] = &interval.guests[0].nics[..] else { panic!("{:?}", interval.guests[0].nics) };
    assert_eq!((nic.sent.packets, nic.received.packets, nic.received.dropped), (30, 100, 10));
}

#[test]
fn disks_without_tracing() {
    let counters = |source, sides| DiskReading::Counters(source, vec![(None, sides)]);
    let read = |was, now| {
        let (mut before, mut after) = (member("a", 1), member("a", 1));
        (before.disks, after.disks) = (was, now);
        between(&one(0.0, vec![before], &[]), &one(2.0, vec![after], &[]), None).guests.remove(0)
    };
    let first = counters(DiskSource::Process, [(None, 100), (None, 200)]);
    let guest = read(first.clone(), counters(DiskSource::Process, [(None, 1100), (None, 200)]));
    assert_eq!(
        (guest.disk_source, guest.disks[0].reads.bytes, guest.disks[0].reads.requests),
        (DiskSource::Process, 1000, None)
    );
    // Restarted, or read from another source: unknown.
    assert!(read(first.clone(), counters(DiskSource::Process, [(None, 50), (None, 200)])).disks.is_empty());
    let other = read(first.clone(), counters(DiskSource::ControlGroup, [(Some(1), 5000), (Some(1), 5000)]));
    assert_eq!((other.disk_source, other.disks.len()), (DiskSource::None, 0));
    // Sums over another time are scaled to this interval.
    let mut recent = DiskLoad { device: Some(VDA), ..DiskLoad::default() };
    recent.writes = Transfer { requests: Some(50), bytes: 500, device_seconds: Some(1.0), ..Transfer::default() };
    let guest = read(DiskReading::None, DiskReading::Recent(DiskSource::Libvirt, 5.0, vec![recent]));
    assert_eq!((guest.disks[0].writes.requests, guest.disks[0].writes.bytes), (Some(20), 200));
    assert!((guest.disks[0].writes.device_seconds.unwrap() - 0.4).abs() < 1e-9);
}

#[test]
fn a_guest_that_tracing_does_not_see_keeps_its_own_counters() {
    let far = |bytes| {
        let mut far = member("far", 1);
        far.disks = DiskReading::Counters(DiskSource::Process, vec![(Some(VDA), [(None, bytes), (None, 0)])]);
        far
    };
    let (before, after) = (one(0.0, vec![far(0)], &[]), one(1.0, vec![far(5000)], &[]));
    let interval = between(&before, &after, Some(&Traced { flows: &[], owners: &[] }));
    let row = &super::super::rows::rows(&interval).guests[0];
    assert_eq!((row.disk_source, row.disk.read_bytes_per_second), (DiskSource::Process, Some(5000.0)));
    // It has no share of the time of a traced disk.
    assert_eq!((interval.guests[0].disks[0].device, row.disk.device_share_ratio), (None, None));
    // No bytes by counters that do not cover everything are not 0.
    let interval = between(&before, &far_again(&before), Some(&Traced { flows: &[], owners: &[] }));
    let row = &super::super::rows::rows(&interval).guests[0];
    assert_eq!((row.disk_source, row.disk.read_bytes_per_second), (DiskSource::None, None));
}

#[test]
fn a_guest_of_which_tracing_would_see_everything_was_idle() {
    let local = |traceable| {
        let mut local = member("local", 1);
        local.disks = DiskReading::Counters(DiskSource::Process, vec![(None, [(None, 7), (None, 7)])]);
        GuestReading { traceable, ..local }
    };
    let row = |traceable| {
        let before = one(0.0, vec![local(traceable)], &[]);
        let interval = between(&before, &far_again(&before), Some(&Traced { flows: &[], owners: &[] }));
        super::super::rows::rows(&interval).guests.remove(0)
    };
    let (seen, unseen) = (row(true), row(false));
    assert_eq!(
        (seen.disk_source, seen.disk.read_iops, seen.disk.device_share_ratio),
        (DiskSource::Trace, Some(0.0), Some(0.0))
    );
    assert_eq!((unseen.disk_source, unseen.disk.read_iops), (DiskSource::None, None));
}

fn far_again(reading: &Reading) -> Reading {
    Reading { at_seconds: 1.0, ..reading.clone() }
}

fn flow(pid: u32, comm: &str, write: bool, requests: u64) -> Flow {
    let mut latency = Latency::default();
    (0..requests).for_each(|_| latency.add(100));
    Flow {
        pid,
        comm: comm.into(),
        cgroup: 1,
        device: VDA,
        write,
        requests,
        bytes: requests * 4096,
        device_seconds: requests as f64 * 1e-4,
        queued_seconds: 0.0,
        in_queue: Latency::default(),
        at_device: latency.clone(),
        latency,
    }
}

#[test]
fn flows_belong_to_guests_or_to_others() {
    let reading = |at| one(at, vec![member("a", 1), member("b", 2)], &[]);
    let flows = [
        flow(2, "qemu-system-x86", false, 10),
        flow(2, "qemu-system-x86", true, 5),
        flow(90, "qemu-kvm", false, 1),
        flow(50, "rsync", false, 7),
        flow(51, "rsync", true, 3),
        flow(0, "kworker/u8:1+flush-254:0", true, 20),
        flow(0, "kworker/u8:2+flush-254:0", true, 30),
    ];
    let owners = [Some(1), Some(1), Some(1), None, None, None, None];
    let traced = Traced { flows: &flows, owners: &owners };
    let interval = between(&reading(0.0), &reading(1.0), Some(&traced));
    assert!(interval.traced && interval.guests[0].disks.is_empty());
    assert_eq!(interval.guests[0].disk_source, DiskSource::None, "it may have done much elsewhere");
    let [b] = &interval.guests[1].disks[..] else { panic!("{:?}", interval.guests[1].disks) };
    assert_eq!((b.reads.requests, b.writes.requests), (Some(11), Some(5)));
    assert_eq!(b.reads.latency.as_ref().unwrap().requests(), 11);
    let others: Vec<_> = interval.others.iter().map(|o| (o.kind.name(), o.disks[0].both().requests.unwrap())).collect();
    assert_eq!(others, [("backup", 10), ("writeback", 50)]);
    // A process may have any name.
    let escape = [flow(60, "a\x1b[2Jb", false, 1)];
    let interval = between(&reading(0.0), &reading(1.0), Some(&Traced { flows: &escape, owners: &[None] }));
    assert_eq!(interval.others[0].name, "a?[2Jb");
    // An owner that is gone is nobody.
    let lost = Traced { flows: &flows[..1], owners: &[Some(9)] };
    assert_eq!(between(&reading(0.0), &reading(1.0), Some(&lost)).others.len(), 1);
}

#[test]
fn nothing_that_a_guest_names_moves_the_cursor() {
    let reading = |at, n: u64| {
        let mut guest = member("a\x1b[2J", 7);
        guest.threads = vec![thread(7, Part::Vcpu, 0, 0), thread(8, Part::Io, n * 990_000_000, 0)];
        guest.threads[1].name = "I/O thread \x1b]0;x\x07".into();
        let received = Packets { packets: n * 900, bytes: 0, dropped: n * 100 };
        guest.nics = vec![Interface { name: "eth\u{9b}2J".into(), received, ..Interface::default() }];
        Reading { notes: vec!["could not read \x1b[2J:\nno rights".into()], ..one(at, vec![guest], &[]) }
    };
    let interval = between(&reading(0.0, 0), &reading(1.0, 1), None);
    assert_eq!(interval.notes, ["could not read ?[2J: no rights"]);
    let lines: Vec<String> = verdicts(&interval, &History::default()).into_iter().map(|v| v.line).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("I/O thread ?]0;x? of guest a?[2J is at its limit"), "{}", lines[0]);
    assert!(lines[1].ends_with("dropped at eth?2J"), "{}", lines[1]);
}

#[test]
fn processors_of_the_host_and_of_groups() {
    let mut before = one(0.0, vec![member("c", 1)], &[]);
    let mut after = one(2.0, vec![member("c", 1)], &[]);
    before.cpu = CpuCounters { cpus: 2, busy_seconds: 10.0, stolen_seconds: 1.0, stalled_us: Some(1_000_000) };
    after.cpu = CpuCounters { cpus: 2, busy_seconds: 13.0, stolen_seconds: 1.5, stalled_us: Some(2_000_000) };
    // A container has no threads by role, and may use several processors at once.
    (before.guests[0].group_run_ns, after.guests[0].group_run_ns) = (Some(0), Some(3_000_000_000));
    let interval = between(&before, &after, None);
    let cpu = interval.host_cpu;
    assert_eq!((cpu.busy_seconds, cpu.stolen_seconds, cpu.stalled_ratio), (3.0, 0.5, Some(0.5)));
    assert_eq!(interval.guests[0].cpu.as_ref().unwrap().rest.run_seconds, 3.0);
    after.cpu.stalled_us = None;
    assert_eq!(between(&before, &after, None).host_cpu.stalled_ratio, None);
}
