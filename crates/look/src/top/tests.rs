//! The sampler on a made-up machine: two guests and a backup, with scripted tracing and without.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::time::Duration;

use vmio_model::top::load::DiskSource;
use vmio_model::top::{Flow, Interval, Latency};
use vmio_node::fake::Fake;

use super::flows::{Error, FlowSource, Result};
use super::*;

mod journals;
mod libvirt;
mod memory;
mod opened;

/// Returns its flows tick by tick, then fails.
struct Script(VecDeque<Vec<Flow>>);

impl FlowSource for Script {
    fn take(&mut self) -> Result<Vec<Flow>> {
        self.0.pop_front().ok_or_else(|| Error::Other("the script has ended".into()))
    }
    fn about(&self) -> String {
        "by a script".into()
    }
}

fn flow(pid: u32, comm: &str, requests: u64) -> Flow {
    let mut latency = Latency::default();
    (0..requests).for_each(|_| latency.add(100));
    let device_seconds = requests as f64 * 1e-4;
    let bytes = requests * 4096;
    Flow {
        pid,
        comm: comm.into(),
        cgroup: 0,
        device: (254, 0),
        write: false,
        requests,
        bytes,
        device_seconds,
        queued_seconds: 0.0,
        in_queue: Latency::default(),
        at_device: latency.clone(),
        latency,
    }
}

fn scripted(ticks: Vec<Vec<Flow>>) -> Result<Box<dyn FlowSource>> {
    Ok(Box::new(Script(ticks.into())))
}

fn untraced() -> Result<Box<dyn FlowSource>> {
    Err(Error::Other("no rights; run as root".into()))
}

const TAP: &str =
    "guest=NAME\0-uuid\0UUID\0-netdev\0tap,id=n0,ifname=tapNAME,script=no\0-device\0virtio-net-pci,netdev=n0";

fn uuid(name: &str) -> String {
    format!("6f1d0a52-0000-4000-8000-00000000000{name}")
}

fn with_guest(fake: Fake, name: &str, pid: u32) -> Fake {
    let proc = format!("/proc/{pid}");
    let task = |tid: u32, comm: &str, fake: Fake| {
        fake.file(format!("{proc}/task/{tid}/comm"), format!("{comm}\n"))
            .file(format!("{proc}/task/{tid}/schedstat"), "0 0 1\n")
    };
    let fake = fake
        .file(format!("{proc}/comm"), "qemu-system-x86\n")
        .file(
            format!("{proc}/cmdline"),
            format!("qemu-system-x86_64\0-name\0{}\0", TAP.replace("NAME", name).replace("UUID", &uuid(name))),
        )
        .file(format!("{proc}/cgroup"), format!("0::/machine.slice/machine-qemu-{name}.scope\n"));
    let fake = task(pid, "qemu-system-x86", fake);
    task(pid + 2, "IO io0", task(pid + 1, "CPU 0/KVM", fake))
}

fn machine() -> Fake {
    let mut fake = Fake::new("fake")
        .file("/sys/block/vda/stat", "")
        .file("/sys/block/dm-0/slaves/vda/stat", "")
        .file("/proc/diskstats", "254 0 vda 0 0 0 0 0 0 0 0 0 0 0\n253 0 dm-0 0 0 0 0 0 0 0 0 0 0 0\n")
        .file("/proc/stat", "cpu  0 0 0 0 0 0 0 0\ncpu0 0\ncpu1 0\n")
        .file("/proc/net/dev", net(0, 0))
        .file("/sys/class/net/eth0/device/uevent", "")
        .file("/sys/class/net/eth0/speed", "1000\n")
        .file("/sys/class/net/tapa/speed", "10\n");
    for (name, pid) in [("a", 100), ("b", 200)] {
        fake = with_guest(fake, name, pid);
    }
    fake
}

fn net(tap_received: u64, tap_sent: u64) -> String {
    format!(
        "h\nh\n  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n  tapa: {tap_received} 1 0 0 0 0 0 0 {tap_sent} 1 0 7 0 0 0 0\n"
    )
}

/// A second in which guest a works.
fn work(fake: &Fake, seconds: u64) {
    fake.pass(Duration::from_secs(1));
    let n = seconds;
    fake.set(
        "/proc/diskstats",
        format!(
            "254 0 vda {} 0 {} {} 0 0 0 0 0 {} 0\n253 0 dm-0 9 0 9 9 0 0 0 0 0 9 9\n",
            1000 * n,
            8000 * n,
            500 * n,
            400 * n
        ),
    );
    fake.set("/proc/100/task/101/schedstat", format!("{} {} 1\n", 500_000_000 * n, 250_000_000 * n));
    fake.set("/proc/100/task/102/schedstat", format!("{} 0 1\n", 200_000_000 * n));
    fake.set("/proc/net/dev", net(1_000_000 * n, 3_000_000 * n));
    fake.set("/proc/stat", format!("cpu  {} 0 0 {} 0 0 0 0\ncpu0 0\ncpu1 0\n", 70 * n, 130 * n));
}

fn named<'i>(interval: &'i Interval, name: &str) -> &'i vmio_model::top::load::GuestLoad {
    interval.guests.iter().find(|g| g.name == name).unwrap()
}

#[test]
fn a_second_of_a_traced_machine() {
    let fake = machine();
    let flows = vec![flow(100, "qemu-system-x86", 800), flow(300, "rsync", 200)];
    let mut sampler = Sampler::new(&fake, false, scripted(vec![vec![], flows]));
    assert_eq!(sampler.about(), "by a script");
    assert!(sampler.tick().is_none(), "the first look only begins");
    work(&fake, 1);
    let interval = sampler.tick().unwrap();
    assert!((interval.seconds - 1.0).abs() < 1e-9 && interval.traced);
    assert_eq!(interval.notes, Vec::<String>::new());
    // The mapped device passes requests on: only the disk below is listed.
    let [vda] = &interval.devices[..] else { panic!("{:?}", interval.devices) };
    assert_eq!((vda.name.as_str(), vda.reads.requests, vda.reads.bytes), ("vda", 1000, 8000 * 512));
    assert!((vda.reads.request_seconds - 0.5).abs() < 1e-9);
    let a = named(&interval, "a");
    assert_eq!(a.disks[0].reads.requests, Some(800));
    let cpu = a.cpu.as_ref().unwrap();
    assert_eq!((cpu.vcpus, cpu.vcpu.run_seconds, cpu.vcpu.wait_seconds), (1, 0.5, 0.25));
    assert!((cpu.io.run_seconds - 0.2).abs() < 1e-9);
    assert_eq!(cpu.busiest, Some(("I/O thread io0".into(), 0.2)));
    // What the tap receives, the guest sent.
    assert_eq!((a.nics[0].sent.bytes, a.nics[0].received.bytes), (1_000_000, 3_000_000));
    assert!(named(&interval, "b").disks.is_empty() && named(&interval, "b").nics.is_empty());
    assert_eq!((interval.others.len(), interval.others[0].name.as_str()), (1, "rsync"));
    assert_eq!((interval.uplinks.len(), interval.uplinks[0].speed_bps), (1, Some(BitRate::new(1_000_000_000))));
    assert_eq!((interval.host_cpu.cpus, interval.host_cpu.busy_seconds), (2, 0.7));
    assert!(fake.ran().is_empty(), "nothing is run on a traced machine");
}

#[test]
fn processes_that_use_the_processors_are_named_and_those_of_guests_are_not_among_them() {
    let times = |pid: u32, comm: &str, ticks: u64| {
        format!("{pid} ({comm}) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 500 0 0\n")
    };
    let fake = machine().file("/proc/700/stat", times(700, "a (b) c", 0)).file("/proc/100/stat", times(100, "qemu", 0));
    let mut sampler = Sampler::new(&fake, false, untraced());
    sampler.tick();
    let second = |n: u64, busy: u64| {
        fake.pass(Duration::from_secs(1));
        fake.set("/proc/stat", format!("cpu  {} 0 0 0 0 0 0 0\ncpu0 0\ncpu1 0\n", busy));
        fake.set("/proc/700/stat", times(700, "a (b) c", 90 * n));
        fake.set("/proc/100/stat", times(100, "qemu", 50 * n));
    };
    second(1, 150);
    let interval = sampler.tick().unwrap();
    let found = interval.processes.unwrap();
    assert_eq!((found.len(), found[0].name.as_str(), found[0].pid), (1, "a (b) c", 700));
    assert!((found[0].run_seconds - 0.9).abs() < 1e-9);
    // An idle host is not queried, which is no answer.
    second(2, 160);
    assert_eq!(sampler.tick().unwrap().processes, None);
}

#[test]
fn a_qemu_that_does_not_name_its_threads_has_none_at_its_limit() {
    let fake = machine();
    let program = "qemu-system-x86";
    for tid in 100..103 {
        fake.set(format!("/proc/100/task/{tid}/comm"), format!("{program}\n"));
        fake.set(format!("/proc/100/task/{tid}/status"), format!("Name:\t{program}\nCpus_allowed_list:\t0\n"));
    }
    let mut sampler = Sampler::new(&fake, false, untraced());
    sampler.tick();
    fake.set("/proc/100/task/101/schedstat", "980000000 0 1\n");
    fake.pass(Duration::from_secs(1));
    let interval = sampler.tick().unwrap();
    let cpu = named(&interval, "a").cpu.as_ref().unwrap();
    // It has one, as its command line says: the busiest thread besides the main loop.
    assert_eq!((cpu.vcpus, cpu.guessed, &cpu.busiest), (1, true, &None));
    assert!((cpu.vcpu.run_seconds - 0.98).abs() < 1e-9);
    assert!(cpu.fullest.as_ref().is_some_and(|(name, ran)| name == "thread 101" && *ran > 0.97));
}

#[test]
fn memory_swapping_and_a_quota_are_counted() {
    let status = |kib: u64| format!("Name:\tqemu\nVmRSS:\t{kib} kB\nVmSwap:\t64 kB\nHugetlbPages:\t1024 kB\n");
    let group = "/sys/fs/cgroup/machine.slice";
    let fake = machine()
        .file("/proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .file(format!("{group}/cpu.max"), "50000 100000\n")
        .file(format!("{group}/cpu.stat"), "nr_periods 10\nnr_throttled 1\n")
        .file("/proc/100/status", status(1024))
        .file("/proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 3 kB\n")
        .file("/proc/vmstat", "pswpin 3\npswpout 4\n");
    let mut sampler = Sampler::new(&fake, false, untraced());
    sampler.tick();
    work(&fake, 1);
    fake.set(format!("{group}/cpu.stat"), "nr_periods 20\nnr_throttled 6\n");
    fake.set("/proc/vmstat", "pswpin 5\npswpout 4\n");
    sampler.watch(Some(100));
    let interval = sampler.tick().unwrap();
    let a = named(&interval, "a");
    let memory = a.memory.unwrap();
    assert_eq!((memory.resident_bytes, memory.swapped_bytes), (2 << 20, Some(64 << 10)));
    assert_eq!((a.throttled_ratio, named(&interval, "b").memory), (Some(0.5), None));
    let host = interval.host_memory;
    assert_eq!((host.total_bytes, host.swapped_in_pages, host.swapped_out_pages), (8192, Some(2), Some(0)));
    // The threads of the guest that is looked at, the busiest first.
    let threads: Vec<u32> = sampler.threads().iter().map(|t| t.tid).collect();
    assert_eq!((threads, sampler.guest(100).unwrap().name.as_str()), (vec![101, 102], "a"));
}

#[test]
fn tracing_that_fails_is_told_and_the_rest_goes_on() {
    let fake = machine();
    let mut sampler = Sampler::new(&fake, false, scripted(vec![vec![]]));
    sampler.tick();
    work(&fake, 1);
    let interval = sampler.tick().unwrap();
    assert!(!interval.traced);
    assert!(
        interval.notes[0].contains("no eBPF") && interval.notes[0].contains("the script has ended"),
        "{:?}",
        interval.notes
    );
    assert_eq!(interval.devices.len(), 1);
}

#[test]
fn without_tracing_each_source_is_tried() {
    let group = "/sys/fs/cgroup/machine.slice/machine-qemu-a.scope/io.stat";
    let fake = machine()
        .file("/proc/self/mountinfo", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        .file(group, "254:0 rbytes=0 wbytes=0 rios=0 wios=0\n253:0 rbytes=0 wbytes=0 rios=0 wios=0\n")
        .file("/proc/200/io", "read_bytes: 0\nwrite_bytes: 0\n");
    let mut sampler = Sampler::new(&fake, false, untraced());
    sampler.tick();
    work(&fake, 1);
    fake.set(group, "254:0 rbytes=4096 wbytes=0 rios=1 wios=0\n253:0 rbytes=4096 wbytes=0 rios=1 wios=0\n");
    fake.set("/proc/200/io", "read_bytes: 100\nwrite_bytes: 50\n");
    let interval = sampler.tick().unwrap();
    assert!(interval.notes[0].contains("no rights; run as root"), "{:?}", interval.notes);
    let (a, b) = (named(&interval, "a"), named(&interval, "b"));
    // Both devices of the stack counted the bytes; the disk's are used.
    assert_eq!((a.disk_source, a.disks.len()), (DiskSource::ControlGroup, 1));
    assert_eq!((a.disks[0].device, a.disks[0].reads.requests, a.disks[0].reads.bytes), (Some((254, 0)), Some(1), 4096));
    assert_eq!((b.disk_source, b.disks[0].device, b.disks[0].writes.bytes), (DiskSource::Process, None, 50));
}

/// Distributions mount version 1 in different places, also two controllers in one.
#[test]
fn control_groups_of_version_1_are_where_they_are_mounted() {
    let fake = machine()
        .file("/proc/self/mountinfo", "1 1 0:1 / /cg/io,blkio rw - cgroup cgroup rw,blkio\n")
        .file("/proc/100/cgroup", "7:blkio:/machine/qemu-a.libvirt-qemu\n0::/\n");
    let dir = "/cg/io,blkio/machine/qemu-a.libvirt-qemu";
    let count = |n: u64| {
        fake.set(format!("{dir}/blkio.throttle.io_serviced"), format!("254:0 Read {n}\n254:0 Write 0\n"));
        let bytes = format!("254:0 Read {}\n254:0 Write 0\n", 4096 * n);
        fake.set(format!("{dir}/blkio.throttle.io_service_bytes"), bytes);
    };
    count(0);
    let mut sampler = Sampler::new(&fake, false, untraced());
    sampler.tick();
    work(&fake, 1);
    count(3);
    let interval = sampler.tick().unwrap();
    let a = named(&interval, "a");
    assert_eq!((a.disk_source, a.disks[0].reads.requests), (DiskSource::ControlGroup, Some(3)));
}

/// A speed above any link's would make an uplink idle for ever.
#[test]
fn an_uplink_whose_driver_does_not_know_its_speed_has_none() {
    for unknown in ["4294967295\n", "-1\n", "0\n"] {
        let fake = machine().file("/sys/class/net/eth0/speed", unknown);
        let mut sampler = Sampler::new(&fake, false, untraced());
        sampler.tick();
        work(&fake, 1);
        let interval = sampler.tick().unwrap();
        assert_eq!((interval.uplinks.len(), interval.uplinks[0].speed_bps), (1, None), "{unknown}");
    }
}

#[test]
fn guests_that_come_are_found_and_those_that_go_are_forgotten() {
    let fake = machine();
    let mut sampler = Sampler::new(&fake, false, scripted(vec![vec![]; 200]));
    sampler.tick();
    let names = |i: &Interval| i.guests.iter().map(|g| g.name.clone()).collect::<Vec<_>>();
    work(&fake, 1);
    assert_eq!(names(&sampler.tick().unwrap()), ["a", "b"]);
    let fake = &fake;
    for (path, content) in [
        ("comm", "qemu-system-x86\n"),
        ("cmdline", "qemu-system-x86_64\0-name\0guest=c\0"),
        ("task/400/comm", "qemu-system-x86\n"),
        ("task/400/schedstat", "0 0 1\n"),
    ] {
        fake.set(format!("/proc/400/{path}"), content);
    }
    // A new process is ignored until it stays.
    let mut found = None;
    for n in 2..120 {
        work(fake, n);
        if names(&sampler.tick().unwrap()).contains(&"c".to_owned()) {
            found = Some(n);
            break;
        }
    }
    assert!(found.is_some_and(|n| n <= 80), "{found:?}");
    // An ended guest is not listed, and the other keeps its flows.
    let fake = with_guest(Fake::new("later"), "b", 200)
        .file("/proc/diskstats", "254 0 vda 0 0 0 0 0 0 0 0 0 0 0\n")
        .file("/sys/block/vda/stat", "");
    let both = with_guest(fake, "a", 100);
    let mut sampler =
        Sampler::new(&both, false, scripted(vec![vec![], vec![flow(200, "q", 3)], vec![flow(200, "q", 3)]]));
    sampler.tick();
    both.pass(Duration::from_secs(1));
    assert_eq!(named(&sampler.tick().unwrap(), "b").disks[0].reads.requests, Some(3));
    both.remove("/proc/100");
    both.pass(Duration::from_secs(1));
    let interval = sampler.tick().unwrap();
    assert_eq!(names(&interval), ["b"]);
    assert_eq!(named(&interval, "b").disks[0].reads.requests, Some(3));
}

#[test]
fn a_guest_that_is_found_again_has_what_it_has_now() {
    // a has a tap open that its command line names, b has none yet.
    let mut fake = machine().file("/proc/100/fdinfo/9", "iff:\ttapa\n");
    for pid in [100, 200] {
        fake = fake.symlink(format!("/proc/{pid}/fd/9"), "/dev/net/tun");
    }
    let mut sampler = Sampler::new(&fake, false, untraced());
    sampler.tick();
    let nics = |i: &Interval, name| named(i, name).nics.iter().map(|n| n.interface.clone()).collect::<Vec<_>>();
    work(&fake, 1);
    let interval = sampler.tick().unwrap();
    assert_eq!((nics(&interval, "a"), nics(&interval, "b")), (vec!["tapa".to_owned()], vec![]));
    // a has another one, and b the one that a had.
    fake.set("/proc/100/fdinfo/9", "iff:\teth0\n");
    fake.set("/proc/200/fdinfo/9", "iff:\ttapa\n");
    for n in 2..70 {
        work(&fake, n);
        sampler.tick();
    }
    work(&fake, 70);
    let interval = sampler.tick().unwrap();
    assert_eq!((nics(&interval, "a"), nics(&interval, "b")), (vec!["eth0".to_owned()], vec!["tapa".to_owned()]));
    // Its threads are still counted.
    let cpu = named(&interval, "a").cpu.as_ref().unwrap();
    assert!((cpu.vcpu.run_seconds - 0.5).abs() < 1e-9 && (cpu.io.run_seconds - 0.2).abs() < 1e-9, "{cpu:?}");
}

#[test]
fn a_machine_where_nothing_can_be_read_says_so() {
    let empty = Fake::new("fake");
    let mut sampler = Sampler::new(&empty, false, untraced());
    assert!(sampler.tick().is_none());
    assert_eq!(sampler.tick().unwrap().seconds, 0.0);
    empty.pass(Duration::from_secs(1));
    let interval = sampler.tick().unwrap();
    assert!(interval.guests.is_empty() && interval.devices.is_empty());
    for note in ["no eBPF", "no disk can be seen", "no running guest is visible"] {
        assert!(interval.notes.iter().any(|n| n.contains(note)), "{:?}", interval.notes);
    }
}
