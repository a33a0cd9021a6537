//! Every workload in a real guest, watched from the host: the same jobs that run natively.
//! Run with `cargo test -- --ignored`; the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vmio_look::backing::Backing;
use vmio_model::cell::{Aio, Arch, Attachment, Cache};
use vmio_model::result::Accel;
use vmio_node::{Exec, Journal, Local, Node};
use vmio_rig::disks::drivers;
use vmio_rig::disks::targets::{self, TargetCtx};
use vmio_rig::guests::{self, DiskSpec, GuestSpec, LaunchCtx};
use vmio_rig::image::Image;
use vmio_rig::limits::OOM_SCORE_ADJ;
use vmio_rig::probes::{Qemu, Subject, Thing, Watch};
use vmio_rig::workloads::disk::WorkCtx;
use vmio_rig::workloads::{self, Stage};

#[test]
#[ignore = "guest: needs QEMU"]
fn every_workload_runs_in_a_guest_on_every_driver() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Sockets need a short path.
    let run_dir = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::open(&run_dir.path().join("journal"), "test").unwrap());
    let node: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(&journal)));
    let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-state");
    let image = Image::load_or_build(node.as_ref(), &state, &|_| {}).unwrap();
    let memory_mib = 192;
    let ctx = TargetCtx {
        node: node.as_ref(),
        journal: &journal,
        dir: dir.path().into(),
        pool: None,
        bytes: (2 * u64::from(memory_mib)) << 20,
        device: None,
        force: false,
        pace: None,
    };
    let mut target = targets::find("sparse").unwrap().prepare(&ctx).unwrap();
    let backing = Backing::of(node.reader(), target.native()).unwrap();
    let attachment = |driver: &str| Attachment::new(driver, Cache::None, Aio::Threads);
    let disk = |driver: &str| DiskSpec {
        id: driver.into(),
        storage: vmio_rig::disks::Storage::File(target.native().into()),
        attachment: Some(attachment(driver)),
    };
    let disks = drivers::of(Arch::X86_64).map(|d| disk(d.name())).collect();
    let launch = LaunchCtx {
        enter: Vec::new(),
        node: Arc::clone(&node),
        journal: Arc::clone(&journal),
        image: Some(&image),
        run_dir: &run_dir.path().join("r"),
        state_dir: dir.path(),
        accel: Some(Accel::Tcg),
        afar: None,
        boot_limit: Duration::from_secs(60),
        oom_score_adj: OOM_SCORE_ADJ,
        cgroup_procs: Vec::new(),
        progress: &|_| {},
    };
    let spec = GuestSpec { disks, ..GuestSpec::of("guest0", 1, memory_mib) };
    let guest = guests::find("qemu").unwrap().launch(&launch, &spec).unwrap();
    let hypervisor = guest.hypervisor().unwrap();
    let qemu = Qemu::of(hypervisor, node.reader()).unwrap();
    let effective = guest.effective().unwrap();
    for driver in drivers::of(Arch::X86_64) {
        let name = driver.name();
        driver.readback(&attachment(name), &effective[name]).unwrap();
        // All of them on the slowest and the fastest; on the rest depth and flushes.
        let all = ["lsi53c895a", "virtio-blk"].contains(&name);
        for workload in workloads::ALL {
            let traits = workload.traits();
            if !all && !["rand-read-32", "durable-append"].contains(&traits.name.as_str()) {
                continue;
            }
            // A series takes half a minute.
            if traits.name == "hdparm" && name != "virtio-blk" {
                continue;
            }
            let Some(disk) = workload.disk() else { continue };
            target.reset(disk.needs_state()).unwrap();
            let work = WorkCtx {
                path: guest.disk_path(name).unwrap(),
                bytes: target.bytes(),
                seconds: 0.5,
                memory_bytes: u64::from(memory_mib) << 20,
                exec_base: Exec::default(),
                gentle: None,
            };
            let things =
                [Thing::Processors, Thing::Hypervisor("qemu".into(), qemu.clone()), Thing::Disk(backing.clone())];
            let subjects = things.map(|thing| Subject::here(Arc::clone(&node), thing));
            let watch = Watch::start(subjects.into()).unwrap();
            let result = workload.perform(&Stage::on_disk(guest.node(), work)).unwrap();
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
            if traits.name == "durable-append" {
                // What the log's way of timing adds to the two means that fio tells apart.
                let mean = |side: &str| result.raw["jobs"][0][side]["lat_ns"]["mean"].as_f64().unwrap() * 1e-9;
                let (apart, whole) = (mean("write") + mean("sync"), work.latency.as_ref().unwrap().mean);
                println!("{name:11} write + sync {:.1} us, timed whole {:.1} us", apart * 1e6, whole * 1e6);
                assert!(whole > 0.8 * apart && whole < 1.3 * apart + 100e-6, "{whole} against {apart}");
            }
            assert!(cpu.by_role["vcpu"] > 0.0 && cpu.host_seconds > 0.0 && seen.notes.is_empty(), "{seen:?}");
            let (asked, device) = (work.read_bytes + work.write_bytes, seen.device().unwrap());
            let moved = if traits.writes() { device.write_bytes } else { device.read_bytes };
            assert!(moved as f64 >= 0.9 * asked as f64, "{name}/{}: {moved} bytes of {asked}", traits.name);
        }
    }
    guest.stop().unwrap();
    target.remove(&journal).unwrap();
}
