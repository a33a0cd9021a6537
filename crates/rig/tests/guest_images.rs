//! Targets `served` and `qcow2` under a real guest: a workload on them, images exchanged while
//! the guest runs, no corruption, and a server that dies. Run with `cargo test -- --ignored`.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::guest::{Bed, run};
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_node::Exec;
use vmio_rig::disks::Storage;
use vmio_rig::disks::targets::{self, Prepared, State, TargetCtx};
use vmio_rig::guests::{DiskSpec, Guest, Hypervisor};
use vmio_rig::probes::{ProbePoint, ProbeSubject, Watch};
use vmio_rig::workloads::disk::WorkCtx;
use vmio_rig::workloads::{self, Stage};
use vmio_testbed::poll_until;

fn prepare(bed: &Bed, dir: &Path, name: &str, mib: u64) -> Box<dyn Prepared> {
    let ctx = TargetCtx {
        node: &bed.node,
        journal: &bed.journal,
        dir: dir.into(),
        pool: None,
        bytes: mib << 20,
        device: None,
        force: false,
        pace: None,
        native: true,
        host: None,
        peer: None,
    };
    targets::find(name).unwrap().prepare(&ctx).unwrap()
}

fn disk(target: &mut dyn Prepared, id: &str, asked: &Attachment) -> DiskSpec {
    DiskSpec { id: id.into(), storage: target.attach(asked).unwrap(), attachment: Some(asked.clone()) }
}

/// Runs a workload on a disk of the guest; megabytes a second.
fn work(guest: &dyn Guest, id: &str, name: &str, seconds: f64) -> workloads::Result<f64> {
    let ctx = WorkCtx {
        path: guest.disk_path(id).unwrap(),
        bytes: 64 << 20,
        seconds,
        memory_bytes: 256 << 20,
        exec_base: Exec::default(),
        gentle: None,
        warm: false,
    };
    let result = workloads::find(name).unwrap().perform(&Stage::on_disk(guest.node(), ctx))?;
    Ok(result.disk_work().bandwidth() / 1e6)
}

/// `qemu-img check`: clusters allocated.
fn check(path: &Path) -> u64 {
    let output = Command::new("qemu-img").args(["check", "-f", "qcow2", "--output=json"]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}{}", path.display(), String::from_utf8_lossy(&output.stderr));
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((found.get("corruptions"), found.get("leaks")), (None, None), "{said}");
    found["allocated-clusters"].as_u64().unwrap_or(0)
}

fn path(storage: &Storage) -> &Path {
    storage.path().unwrap()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_discarded_old_image_is_written_out_again() {
    let bed = Bed::new();
    let place = vmio_testbed::scratch();
    let (asked, mib) = (Attachment::new("virtio-blk", Cache::None, Aio::Native), 16);
    let mut target = prepare(&bed, &place.path().canonicalize().unwrap(), "qcow2-full-l2", mib);
    let clusters = mib << 20 >> 16;
    let first = target.attach(&asked).unwrap();
    assert_eq!(target.exchange(&asked, State::Filled).unwrap(), None, "nothing has changed in it");
    target.mark_dirty(&asked);
    let next = target.exchange(&asked, State::Fresh).unwrap().unwrap();
    assert_eq!((next.wrote_bytes, check(path(&next.storage))), (mib << 20, clusters));
    target.exchanged(&asked).unwrap();
    assert!(!path(&first).exists());
    assert_eq!(target.exchange(&asked, State::Filled).unwrap(), None);
    // Between two boots nobody has it open.
    target.mark_dirty(&asked);
    let booted = target.attach(&asked).unwrap();
    assert!(booted != next.storage && !path(&next.storage).exists());
    assert_eq!(check(path(&booted)), clusters);
    assert!(!target.native_allocates());
    target.settle(&asked).unwrap();
    target.remove(&bed.journal).unwrap();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
#[ignore = "guest: needs QEMU"]
fn images_are_exchanged_under_a_running_guest_and_stay_sound() {
    let bed = Bed::new();
    let place = vmio_testbed::scratch();
    let dir = place.path().canonicalize().unwrap();
    let mib = 64;
    let asked = [
        Attachment::new("virtio-blk", Cache::None, Aio::Native).iothread(true),
        Attachment::new("lsi53c895a", Cache::None, Aio::Threads),
    ];
    let mut all: Vec<(&str, Box<dyn Prepared>)> =
        ["qcow2", "qcow2-chain"].map(|name| (name, prepare(&bed, &dir, name, mib))).into();
    let mut specs = Vec::new();
    let mut opened: BTreeMap<String, PathBuf> = BTreeMap::new();
    // Each attachment has a target here: boots and cells under emulation are slow.
    let mine = |name: &str, a: &Attachment| (name == "qcow2") == (a.driver == "virtio-blk");
    for (name, target) in &mut all {
        for a in asked.iter().filter(|a| mine(name, a)) {
            let spec = disk(&mut **target, &format!("{name} {}", a.driver), a);
            opened.insert(spec.id.clone(), path(&spec.storage).to_owned());
            specs.push(spec);
        }
    }
    let guest = bed.boot(specs);
    let mut kept = Vec::new();
    for (name, target) in &mut all {
        for a in asked.iter().filter(|a| mine(name, a)) {
            let id = format!("{name} {}", a.driver);
            let found = &guest.effective().unwrap()[&id];
            assert_eq!((found["format"].as_str(), found["cache.direct"].as_str()), ("qcow2", "true"));
            for (nth, (workload, state)) in
                [("rand-write-32", State::Fresh), ("rand-write-32", State::Fresh), ("rand-read-32", State::Filled)]
                    .into_iter()
                    .enumerate()
            {
                target.reset(state).unwrap();
                let before = opened[&id].clone();
                let next = target.exchange(a, state).unwrap();
                assert_eq!(next.is_none(), nth == 0, "{id}: the first finds a new image");
                if let Some(next) = &next {
                    guest.exchange(&id, &next.storage).unwrap();
                    // The guest has closed it, so it must be whole; the last cell has written to it.
                    assert!(check(&before) > 0, "{id}");
                    target.exchanged(a).unwrap();
                    assert!(!before.exists());
                    kept.push(path(&next.storage).to_owned());
                    opened.insert(id.clone(), path(&next.storage).to_owned());
                }
                let rate = work(&*guest, &id, workload, 0.3).unwrap();
                println!("{id}: {workload} {rate:.1} MB/s");
                assert!(rate > 0.0);
            }
        }
    }
    let said = guest.exchange("qcow2 virtio-blk", &Storage::File("/x".into())).unwrap_err().to_string();
    assert!(said.contains("cannot be exchanged while the guest runs"), "{said}");
    guest.stop().unwrap();
    for image in kept.iter().filter(|i| i.exists()) {
        check(image);
    }
    for (_, target) in all {
        target.remove(&bed.journal).unwrap();
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    bed.assert_clean();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_served_disk_works_for_guest_after_guest() {
    let bed = Bed::new();
    let place = vmio_testbed::scratch();
    let mut target = prepare(&bed, place.path(), "served", 64);
    let asked = ["virtio-blk", "lsi53c895a"].map(|d| Attachment::new(d, Cache::None, Aio::Native));
    // A server that dies during a cell. (Linux retries on a SCSI disk for half a minute before it gives up, so the NBD
    // side is shown with nvme.)
    let nvme = Attachment::new("nvme", Cache::None, Aio::Native);
    let boot = |target: &mut dyn Prepared, more: &[Attachment]| {
        let specs = asked.iter().chain(more).map(|a| disk(target, &a.driver, a)).collect();
        bed.boot(specs)
    };
    let guest = boot(&mut *target, &[]);
    for a in &asked {
        let id = a.driver.as_str();
        assert!(guest.effective().unwrap().contains_key(id), "as it was asked for");
        target.reset(State::Filled).unwrap();
        let qemu = Hypervisor { servers: target.servers(a), ..guest.hypervisor().unwrap().unwrap() };
        let subject = ProbeSubject::Hypervisor("guest0".into(), qemu);
        let watch = Watch::start(vec![ProbePoint::here(bed.shared(), subject)]).unwrap();
        let rate = work(&*guest, id, "seq-read", 0.5).unwrap();
        let cpu = watch.stop().unwrap().cpu();
        println!("{id}: seq-read {rate:.1} MB/s, CPU {:?}", cpu.by_role);
        assert!(rate > 0.0 && cpu.by_role["server"] > 0.0, "{cpu:?}");
        is_in_the_native_file(&*guest, id, &*target, "first");
    }
    let pids = |target: &dyn Prepared| asked.iter().flat_map(|a| target.servers(a)).collect::<Vec<_>>();
    let before = pids(&*target);
    guest.stop().unwrap();

    let guest = boot(&mut *target, std::slice::from_ref(&nvme));
    assert_eq!(pids(&*target), before, "the servers outlive a guest");
    for a in &asked {
        is_in_the_native_file(&*guest, &a.driver, &*target, "second");
    }
    // Without its server a disk of the first kind answers nothing for ever: with it goes the guest, so it is the last.
    for a in [&nvme, &asked[0]] {
        let pid = rustix::process::Pid::from_raw(target.servers(a)[0] as i32).unwrap();
        let (node, path) = (guest.node(), guest.disk_path(&a.driver).unwrap());
        let stat = Path::new("/sys/block").join(path.file_name().unwrap()).join("stat");
        let reads = move || node.read_text(&stat).unwrap().split_whitespace().next().unwrap().parse::<u64>().unwrap();
        let begin = reads();
        let failed = std::thread::scope(|scope| {
            scope.spawn(move || {
                poll_until("the guest reads", || reads() > begin + 20);
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            });
            work(&*guest, &a.driver, "rand-read-1", 60.0)
        });
        let error = failed.unwrap_err();
        println!("{}: {error:?}", a.driver);
        let is_end = match a.driver.as_str() {
            "nvme" => matches!(error, workloads::Error::Failed { .. }),
            _ => matches!(error, workloads::Error::Node(vmio_node::Error::Gone { .. })),
        };
        assert!(is_end, "it fails by the server's end, and not by its limit: {error}");
        let said = target.sound(a).unwrap_err().to_string();
        assert!(said.contains("the storage server of") && said.contains("signal 9"), "{said}");
    }
    drop(guest);
    for a in [&nvme, &asked[0]] {
        target.attach(a).unwrap();
        target.sound(a).unwrap();
    }
    target.remove(&bed.journal).unwrap();
    bed.assert_clean();
}

/// What a guest writes is in the native file.
fn is_in_the_native_file(guest: &dyn Guest, id: &str, target: &dyn Prepared, text: &str) {
    let (of, text) = (format!("of={}", guest.disk_path(id).unwrap().display()), format!("{text} {id}"));
    guest.node().write(Path::new("/tmp/text"), text.as_bytes(), None).unwrap();
    run(guest, "dd", &["if=/tmp/text", &of, "bs=512", "seek=4", "conv=sync", "oflag=direct"]);
    let data = std::fs::read(target.native()).unwrap();
    assert!(data[2048..].starts_with(text.as_bytes()), "{id}");
}
