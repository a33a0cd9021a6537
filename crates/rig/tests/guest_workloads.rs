//! Every workload in a real guest, watched from the host: the same jobs that run natively.
//! Run with `cargo test -- --ignored`; the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::net::Ipv4Addr;

use vmio_look::backing::Backing;
use vmio_model::cell::{Aio, Arch, Attachment, Cache};
use vmio_model::result::WorkloadResult;
use vmio_node::Exec;
use vmio_rig::disks::targets;
use vmio_rig::disks::{Storage, drivers};
use vmio_rig::guests::{DiskSpec, GuestSpec};
use vmio_rig::probes::{ProbePoint, ProbeSubject, Watch};
use vmio_rig::workloads::disk::WorkCtx;
use vmio_rig::workloads::{self, At, End, Stage, Workload};

use crate::common::guest::{Bed, limit};

/// Memory that `dd` is told of: it moves twice as much through the page cache, and finds nothing of it there before.
const MEMORY_BYTES: u64 = 32 << 20;
const MIB: u64 = 64;
/// Of a third of a second each.
const TRIES: u32 = 3;

/// What works on small disks.
fn on_disks() -> impl Iterator<Item = &'static dyn Workload> {
    workloads::ALL.iter().copied().filter(|w| w.disk().is_some() && w.files().is_empty())
}

/// The same in one direction. hdparm takes half a minute.
fn of_disks(writes: bool) -> Vec<&'static dyn Workload> {
    on_disks().filter(|w| w.traits().writes() == writes && w.traits().name != "hdparm").collect()
}

/// Each driver reads and writes, and each workload runs on one of them.
#[test]
#[ignore = "guest: needs QEMU"]
fn every_workload_and_every_driver_work_in_a_guest() {
    let names: Vec<&str> = drivers::of(Arch::X86_64).map(|d| d.name).collect();
    let mut pairs = Vec::new();
    for of in [of_disks(true), of_disks(false)] {
        let runs = of.len().max(names.len());
        pairs.extend((0..runs).map(|n| (names[n % names.len()], of[n % of.len()])));
    }
    work(&pairs);
}

/// All on all takes minutes.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_every_workload_runs_in_a_guest_on_every_driver() {
    let all = |driver| on_disks().map(move |workload| (driver, workload));
    work(&drivers::of(Arch::X86_64).flat_map(|d| all(d.name)).collect::<Vec<_>>());
}

/// What the log's way of timing adds to the two means that fio tells apart. The log has no end of the last one, which
/// may have taken longest.
fn is_as_fio_says(name: &str, result: &WorkloadResult) -> bool {
    let job = &result.raw["jobs"][0];
    let both = |what: &str| {
        let of = |side: &str| job[side]["lat_ns"][what].as_f64().unwrap() * 1e-9;
        of("write") + of("sync")
    };
    let last = both("max") / job["write"]["total_ios"].as_f64().unwrap();
    let (apart, whole) = (both("mean"), result.disk_work().latency.as_ref().unwrap().mean);
    println!("{name:11} write + sync {:.1} us, timed whole {:.1} us", apart * 1e6, whole * 1e6);
    whole > 0.8 * (apart - last) && whole < 1.3 * apart + 100e-6
}

fn work(pairs: &[(&str, &dyn Workload)]) {
    let bed = Bed::new();
    let mut target = targets::find("sparse").unwrap().prepare(&bed.ctx(MIB)).unwrap();
    let backing = Backing::of(&bed.node, target.native()).unwrap();
    let attachment = |driver: &str| Attachment::new(driver, Cache::None, Aio::Threads);
    let disk = |driver: &str| DiskSpec {
        id: driver.into(),
        storage: Storage::File(target.native().into()),
        attachment: Some(attachment(driver)),
    };
    let disks = drivers::of(Arch::X86_64).map(|d| disk(d.name)).collect();
    let guest = bed.boot(disks);
    let qemu = guest.hypervisor().unwrap().unwrap();
    // All as it was asked for.
    guest.effective().unwrap();
    for (name, workload) in pairs.iter().copied() {
        let traits = workload.traits();
        target.reset(traits.disk.as_ref().unwrap().state()).unwrap();
        let work = WorkCtx {
            path: guest.disk_path(name).unwrap(),
            bytes: target.bytes(),
            seconds: 0.3,
            memory_bytes: MEMORY_BYTES,
            exec_base: Exec::default(),
            gentle: None,
            warm: false,
        };
        let subjects = [
            ProbeSubject::Processors,
            ProbeSubject::Hypervisor("qemu".into(), qemu.clone()),
            ProbeSubject::Disk(backing.clone()),
        ];
        let points = subjects.map(|subject| ProbePoint::here(bed.shared(), subject));
        let watch = Watch::start(points.into()).unwrap();
        let stage = Stage::on_disk(guest.node(), work);
        let mut result = workload.perform(&stage).unwrap();
        // Between two appends is what fio counts to neither: a guest may stand still there, though not each time.
        let mut tries = 1;
        while traits.name == "durable-append" && !is_as_fio_says(name, &result) {
            assert!(tries < TRIES, "{name}: another latency, {tries} times");
            tries += 1;
            result = workload.perform(&stage).unwrap();
        }
        let seen = watch.stop().unwrap();
        let (work, cpu) = (result.disk_work(), seen.cpu());
        println!(
            "{name:11} {:14} {:8.1} MB/s {:8.0} IOPS, latency {:?} us, CPU {:?}",
            traits.name,
            work.bandwidth() / 1e6,
            work.iops(),
            work.latency.as_ref().map(|l| [l.at(50.0), l.at(99.0)].map(|s| s.unwrap() * 1e6)),
            cpu.by_role,
        );
        assert!(cpu.by_role["vcpu"] > 0.0 && cpu.host_seconds > 0.0 && seen.notes.is_empty(), "{seen:?}");
        let (asked, device) = (work.read_bytes + work.write_bytes, seen.device().unwrap());
        let moved = if traits.writes() { device.write_bytes } else { device.read_bytes };
        assert!(moved as f64 >= 0.9 * asked as f64, "{name}/{}: {moved} bytes of {asked}", traits.name);
    }
    guest.stop().unwrap();
    target.remove(&bed.journal).unwrap();
    bed.assert_clean();
}

/// Java and Hadoop's jars, of the guest's own image, on a file system that is made in the guest.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_hadoop_writes_a_file_and_reads_it_back_in_a_guest() {
    hadoop_in_a_guest("dfsio", 512, &[]);
}

/// The same through a name node and a data node in that guest.
#[test]
#[ignore = "guest: needs QEMU"]
fn long_hadoop_writes_through_hdfs_in_a_guest() {
    hadoop_in_a_guest("dfsio-hdfs", 1024, &["name-node", "data-node"]);
}

/// Runs one of Hadoop's workloads in a guest with so much memory, with these roles beside its worker.
fn hadoop_in_a_guest(name: &str, memory_mib: u32, beside: &[&'static str]) {
    let bed = Bed::new();
    let workload = workloads::find(name).unwrap();
    if let Some(lack) = workload.takes().find(|taken| bed.image.lacks(taken).is_some()) {
        return vmio_testbed::skip(&format!("{name} in a guest: its image does not carry {lack}"));
    }
    let (memory, mib) = (256 << 20, 1 << 20);
    let needed = workload.disk().unwrap().bytes_needed(memory);
    let target = targets::find("sparse").unwrap().prepare(&bed.ctx(needed / mib)).unwrap();
    let attachment = Some(Attachment::new("virtio-blk", Cache::None, Aio::Threads));
    let disk = DiskSpec { id: "disk".into(), storage: Storage::File(target.native().into()), attachment };
    let spec = GuestSpec { disks: vec![disk], ..GuestSpec::of("guest0", 1, memory_mib) };
    let guest = bed.launch_as(&bed.image, &spec, limit()).unwrap();
    let ctx = WorkCtx {
        path: guest.disk_path("disk").unwrap(),
        bytes: target.bytes(),
        seconds: 1.0,
        memory_bytes: memory,
        exec_base: Exec::default(),
        gentle: None,
        warm: false,
    };
    let mut stage = Stage::on_disk(guest.node(), ctx);
    for &role in beside {
        stage.ends.insert(role, End::here(guest.node(), At::address(Ipv4Addr::LOCALHOST.into())));
    }
    let result = workload.perform(&stage).unwrap();
    let work = result.disk_work();
    assert_eq!((work.write_bytes, work.read_bytes), (512 * mib, 512 * mib));
    println!("write {:?}, read {:?} bytes a second", result.figure("write-rate"), result.figure("read-rate"));
    guest.stop().unwrap();
    target.remove(&bed.journal).unwrap();
    bed.assert_clean();
}
