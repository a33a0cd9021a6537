//! The native side's control group really holds: page cache and cores.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::net::Ipv4Addr;

use crate::common::Bed;
use vmio_look::require;
use vmio_node::{Exec, Node};
use vmio_rig::disks::places::PlaceBackend;
use vmio_rig::disks::targets::{self, State, Target};
use vmio_rig::limits::{Limits, OOM_SCORE_ADJ, Share};
use vmio_rig::nets::Namespace;
use vmio_rig::probes;
use vmio_rig::workloads::disk::WorkCtx;
use vmio_rig::workloads::{self, At, End, Stage, Workload};
use vmio_testbed::{must_be_root, skip};

const MIB: u64 = 1 << 20;

#[test]
#[ignore = "root"]
fn page_cache_and_cores_stay_within_the_limits() {
    must_be_root();
    let bed = Bed::new();
    let name = format!("vmio-test-{}", std::process::id());
    let limits = Limits::create(&bed.node, &bed.journal, &name, &Share::of(1, 64 * MIB)).unwrap();
    println!("{}", limits.describe());
    let exec = Exec { cgroup_procs: limits.procs_files(), oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() };
    let file = bed.dir().join("cached");
    let dd = Exec { program: "dd".into(), ..exec.clone() }.args([
        "if=/dev/zero".to_owned(),
        format!("of={}", file.display()),
        "bs=1M".into(),
        "count=200".into(),
    ]);
    let output = bed.node.exec(&dd).unwrap();
    assert!(output.ok(), "{}", output.err());
    let groups: Vec<_> = limits.procs_files().iter().map(|p| p.parent().unwrap().to_owned()).collect();
    let most = groups.iter().find_map(|g| {
        let read = |f: &str| std::fs::read_to_string(g.join(f)).ok()?.trim().parse::<u64>().ok();
        read("memory.max_usage_in_bytes").or_else(|| read("memory.peak"))
    });
    let most = most.unwrap();
    assert!((32 * MIB..=64 * MIB).contains(&most), "200 MiB of page cache were held to {most} bytes");
    let status = bed
        .node
        .exec(&Exec { program: "cat".into(), ..exec }.args(["/proc/self/status", "/proc/self/oom_score_adj"]))
        .unwrap();
    let text = status.out();
    let cpus = text.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    assert!(!cpus.contains([',', '-']), "one core: {cpus}");
    assert_eq!(text.lines().last(), Some("1000"));
    limits.remove(&bed.journal).unwrap();
    assert!(groups.iter().all(|g| !g.exists()), "{groups:?}");
}

#[test]
#[ignore = "root"]
fn what_cannot_be_held_is_said_and_leaves_nothing() {
    must_be_root();
    let bed = Bed::new();
    let name = format!("vmio-test-many-{}", std::process::id());
    let said = Limits::create(&bed.node, &bed.journal, &name, &Share::of(10_000, 64 * MIB)).unwrap_err().to_string();
    assert!(said.contains("10000 cores"), "{said}");
    assert_eq!(bed.journal.undo_all(), [""; 0]);
    let bed = Bed::new();
    // A group of somebody else is neither used nor taken away.
    let first = Limits::create(&bed.node, &bed.journal, &name, &Share::of(1, 64 * MIB)).unwrap();
    let said = Limits::create(&bed.node, &bed.journal, &name, &Share::of(1, 64 * MIB)).unwrap_err().to_string();
    assert!(said.contains("already exists"), "{said}");
    assert!(first.procs_files().iter().all(|p| p.exists()));
    first.remove(&bed.journal).unwrap();
}

/// Each target is read and written, and each workload runs on one of them.
#[test]
#[ignore = "root"]
fn every_workload_and_every_target_work() {
    let of = |writes: bool| -> Vec<_> { on_disks().filter(|w| w.traits().writes() == writes).collect() };
    // hdparm times block devices alone, takes half a minute for it, and first has all of this machine written out.
    let [writers, readers] = [true, false].map(|writes| {
        let mut of = of(writes);
        of.retain(|w| w.traits().name != "hdparm");
        of
    });
    let targets: Vec<_> = reached().collect();
    assert!(targets.len() >= writers.len().max(readers.len()), "each workload has its turn");
    let both = |n: usize| vec![writers[n % writers.len()], readers[n % readers.len()]];
    work(targets.into_iter().enumerate().map(|(n, target)| (target, both(n))));
}

/// All on all takes minutes.
#[test]
#[ignore = "root"]
fn long_every_workload_runs_on_every_target() {
    work(reached().map(|target| {
        let fits = |w: &&dyn Workload| w.traits().name != "hdparm" || target.name() == "device";
        (target, on_disks().filter(fits).collect())
    }));
}

/// What works on small disks.
fn on_disks() -> impl Iterator<Item = &'static dyn Workload> {
    workloads::ALL.iter().copied().filter(|w| w.disk().is_some() && w.files().is_empty())
}

/// The targets that a directory holds, natively. What is by the page cache of its file moves what it likes.
fn reached() -> impl Iterator<Item = &'static dyn Target> {
    let files = PlaceBackend::Files("/".into());
    let had = move |t: &&dyn Target| {
        t.fits(&files).is_ok() && t.only_read().is_none() && !t.over_link() && t.guests_alone().is_none()
    };
    targets::ALL.iter().copied().filter(had)
}

/// Workloads natively, within the group, watched by the probes: what the device moved is what was asked.
fn work(all: impl Iterator<Item = (&'static dyn Target, Vec<&'static dyn Workload>)>) {
    must_be_root();
    let bed = Bed::new();
    let name = format!("vmio-test-work-{}", std::process::id());
    let memory = 32 * MIB;
    let limits = Limits::create(&bed.node, &bed.journal, &name, &Share::of(1, memory)).unwrap();
    let mut host_seconds = 0.0;
    for (target, workloads) in all {
        let mut prepared = target.prepare(&bed.ctx(64)).unwrap();
        let path = prepared.native().to_owned();
        let backing = vmio_look::backing::Backing::of(&bed.node, &path).unwrap();
        for workload in workloads {
            let traits = workload.traits();
            let disk = traits.disk.as_ref().unwrap();
            prepared.reset(disk.state()).unwrap();
            let ctx = WorkCtx {
                path: path.clone(),
                bytes: prepared.bytes(),
                seconds: 0.3,
                memory_bytes: memory,
                exec_base: Exec {
                    cgroup_procs: limits.procs_files(),
                    oom_score_adj: Some(OOM_SCORE_ADJ),
                    ..Exec::default()
                },
                gentle: None,
                warm: false,
            };
            let subjects = [probes::ProbeSubject::Disk(backing.clone()), probes::ProbeSubject::Processors];
            let points = subjects.map(|subject| probes::ProbePoint::here(bed.shared(), subject)).to_vec();
            let watch = probes::Watch::start(points.clone()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(150));
            let before = watch.stop().unwrap().device();
            let watch = probes::Watch::start(points).unwrap();
            let result = workload.perform(&Stage::on_disk(bed.shared(), ctx)).unwrap().disk_work();
            let seen = watch.stop().unwrap();
            let circumstances = probes::foreign::Circumstances {
                first_write: prepared.allocates() && disk.state() == State::Fresh,
                host_cache: false,
            };
            let device = seen.device();
            let foreign = probes::foreign::foreign(disk, circumstances, &result, before.as_ref(), device.as_ref());
            let marks = probes::foreign::marks(disk, &result, device.as_ref(), &foreign);
            let device = device.unwrap();
            println!(
                "{:12} {:14} {:8.1} MB/s {:8.0} IOPS  p99 {:?} us; asked {} moved r {} w {} in {} ios, depth {:.1}, {:.0} %; {foreign:?} {marks:?}",
                target.name(),
                traits.name,
                result.bandwidth() / 1e6,
                result.iops(),
                result.latency.as_ref().and_then(|l| l.at(99.0)).map(|s| s * 1e6),
                (result.read_bytes + result.write_bytes) / MIB,
                device.read_bytes / MIB,
                device.write_bytes / MIB,
                device.read_ios + device.write_ios,
                device.queue_depth,
                device.busy_ratio.unwrap() * 100.0,
            );
            assert!(result.seconds > 0.0 && result.bandwidth() > 0.0);
            assert!(
                !marks.contains(&vmio_model::result::Mark::Cached),
                "{}/{}: {device:?}",
                target.name(),
                traits.name
            );
            let times_each = !traits.name.starts_with("dd-") && traits.name != "hdparm";
            assert_eq!(result.latency.is_some(), times_each);
            assert!(seen.notes.is_empty(), "{:?}", seen.notes);
            host_seconds += seen.cpu().host_seconds;
        }
        prepared.remove(&bed.journal).unwrap();
    }
    // The kernel counts processor time in ticks of 10 ms: a workload of 40 ms may cost none, all of them cannot.
    assert!(host_seconds > 0.0);
    limits.remove(&bed.journal).unwrap();
    assert_eq!(bed.files(), [""; 0]);
}

/// Hadoop's program on a loop device: its mount is of its own namespace alone, and ends with it.
#[test]
#[ignore = "root"]
fn hadoop_writes_a_file_and_reads_it_back_and_leaves_no_mount() {
    hadoop_on_a_device("dfsio", 512 * MIB, |_, stage| (stage, None));
}

/// The same through a name node and a data node, in a network that ends with them.
#[test]
#[ignore = "root"]
fn long_hadoop_writes_through_hdfs_and_leaves_no_mount() {
    hadoop_on_a_device("dfsio-hdfs", 1024 * MIB, |bed, mut stage| {
        let network = Namespace::make(&bed.node).unwrap();
        let worker = stage.ends["worker"].clone();
        for role in ["name-node", "data-node"] {
            let at = At::address(Ipv4Addr::LOCALHOST.into());
            stage.ends.insert(role, End { at, ..worker.clone() });
        }
        stage.ends.values_mut().for_each(|end| end.enter = network.enter());
        (stage, Some(network))
    });
}

/// Runs one of Hadoop's workloads in a group with so much memory, on the stage that is made of that of its worker.
fn hadoop_on_a_device(name: &str, held: u64, staged: impl FnOnce(&Bed, Stage) -> (Stage, Option<Namespace>)) {
    must_be_root();
    let (bed, memory) = (Bed::new(), 256 * MIB);
    let workload = workloads::find(name).unwrap();
    if let Some((_, unmet)) = require::unmet(&bed.node, workload.requirements()).first() {
        return skip(&unmet.to_string());
    }
    let group = format!("vmio-test-{name}-{}", std::process::id());
    // It is told of less than that, so that the file is small; Java needs more.
    let limits = Limits::create(&bed.node, &bed.journal, &group, &Share::of(1, held)).unwrap();
    let needed = workload.disk().unwrap().bytes_needed(memory);
    let mut prepared = targets::find("device").unwrap().prepare(&bed.ctx(needed / MIB)).unwrap();
    prepared.share().unwrap();
    let path = prepared.native().to_owned();
    let ctx = WorkCtx {
        path: path.clone(),
        bytes: prepared.bytes(),
        seconds: 1.0,
        memory_bytes: memory,
        exec_base: Exec { cgroup_procs: limits.procs_files(), ..Exec::default() },
        gentle: None,
        warm: false,
    };
    let (stage, _network) = staged(&bed, Stage::on_disk(bed.shared(), ctx));
    let result = workload.perform(&stage).unwrap();
    let work = result.disk_work();
    assert_eq!((work.write_bytes, work.read_bytes), (512 * MIB, 512 * MIB));
    println!("write {:?}, read {:?} bytes a second", result.figure("write-rate"), result.figure("read-rate"));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(path.to_str().unwrap()), "{mounts}");
    prepared.remove(&bed.journal).unwrap();
    limits.remove(&bed.journal).unwrap();
    assert_eq!(bed.files(), [""; 0]);
}
