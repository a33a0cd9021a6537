//! Every driver, cache mode and kind of storage in real guests. Run with `cargo test -- --ignored`;
//! the agent must have been built (`make agent`).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::guest::{Bed, DISK_BYTES, limit, run};
use vmio_model::cell::{Aio, Arch, Attachment, Cache, DetectZeroes, Options};
use vmio_node::{End, Exec};
use vmio_rig::disks::Storage;
use vmio_rig::disks::drivers::{self, effective};
use vmio_rig::guests::qemu::Qemu;
use vmio_rig::guests::{DiskSpec, Error, Guest, GuestKind as _};
use vmio_testbed::net::listens;
use vmio_testbed::process::Companion;
use vmio_testbed::{must_be_root, poll_until};

const BLOCK: usize = 64 << 10;

/// Disks of one guest, each on storage of its own.
#[derive(Default)]
struct Disks(Vec<DiskSpec>);

impl Disks {
    fn add(&mut self, attachment: Attachment, storage: Storage) {
        let id = format!("{} {}", attachment.label(), self.0.len());
        self.0.push(DiskSpec { id, storage, attachment: Some(attachment) });
    }
}

/// A new file below the bed's directory; the first MiBs written, the rest a hole.
fn file(bed: &Bed, name: &str, written: usize) -> PathBuf {
    let path = bed.dir().join(name);
    let file = fs::File::create(&path).unwrap();
    file.set_len(DISK_BYTES).unwrap();
    file.write_all_at(&vec![0xa5; written << 20], 0).unwrap();
    file.sync_all().unwrap();
    path
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn with(attachment: Attachment, options: Options) -> Attachment {
    Attachment { options, ..attachment }
}

/// Aio engines in turn, as far as the mode allows.
fn engine(cache: Cache, nth: usize) -> Aio {
    if cache.direct() && nth.is_multiple_of(2) { Aio::Native } else { [Aio::Threads, Aio::IoUring][nth / 2 % 2] }
}

/// Writes a block that no other disk has at a place of its own and reads it back, both direct.
fn write_and_read(guest: &dyn Guest, nth: usize, id: &str) -> Vec<u8> {
    let disk = guest.disk_path(id).unwrap().to_string_lossy().into_owned();
    let block: Vec<u8> = (0..BLOCK).map(|i| (i * 7 + nth * 13 + i / 256) as u8).collect();
    guest.node().write(Path::new("/tmp/block"), &block, None).unwrap();
    let (size, place) = (format!("bs={BLOCK}"), nth.to_string());
    let (of, seek, skip) = (format!("of={disk}"), format!("seek={place}"), format!("skip={place}"));
    run(guest, "dd", &["if=/tmp/block", &of, &size, &seek, "count=1", "oflag=direct", "conv=fsync,notrunc"]);
    run(guest, "dd", &[&format!("if={disk}"), "of=/tmp/back", &size, &skip, "count=1", "iflag=direct"]);
    assert!(guest.node().read(Path::new("/tmp/back")).unwrap() == block, "{id}: another block was read");
    block
}

/// The block is where the disk lies, so that no disk was taken for another.
fn assert_on_host(path: &Path, nth: usize, block: &[u8]) {
    let mut there = vec![0; BLOCK];
    fs::File::open(path).unwrap().read_exact_at(&mut there, (nth * BLOCK) as u64).unwrap();
    assert!(there == block, "{}: block {nth} is another", path.display());
}

/// Each driver in the two modes that differ most, and each mode with the driver that most have.
#[test]
#[ignore = "guest: needs QEMU"]
fn every_driver_and_every_cache_mode() {
    drivers_in_modes(|driver, cache| driver == "virtio-blk" || matches!(cache, Cache::None | Cache::Writeback));
}

#[test]
#[ignore = "guest: needs QEMU"]
fn long_every_driver_in_every_cache_mode() {
    drivers_in_modes(|_, _| true);
}

fn drivers_in_modes(wanted: impl Fn(&str, Cache) -> bool) {
    let bed = Bed::with_vcpus(2);
    let mut disks = Disks::default();
    let mut add = |attachment: Attachment, written| {
        let path = file(&bed, &format!("disk{}", disks.0.len()), written);
        disks.add(attachment, Storage::File(path));
    };
    for driver in drivers::of(Arch::X86_64) {
        for (nth, cache) in Cache::ALL.into_iter().enumerate().filter(|(_, cache)| wanted(driver.name, *cache)) {
            // Two of them are trimmed below: once it must free blocks, once it must not.
            let discard = cache == Cache::Writeback;
            let written = if discard || cache == Cache::None { 8 } else { 0 };
            let options = Options { discard, ..Options::default() };
            add(with(Attachment::new(driver.name, cache, engine(cache, nth)), options), written);
        }
    }
    for driver in drivers::of(Arch::X86_64) {
        let queues = Options { queues: Some(4), ..Options::default() };
        let asked = with(Attachment::new(driver.name, Cache::None, Aio::Native).iothread(true), queues);
        if Qemu.fits_disk(&asked, None).is_ok() {
            add(asked, 0);
        }
    }
    let zeroes = Options { discard: true, detect_zeroes: DetectZeroes::Unmap, ..Options::default() };
    add(with(Attachment::new("virtio-blk", Cache::None, Aio::Native), zeroes), 8);
    // More disks than the bus has slots.
    add(Attachment::new("virtio-blk", Cache::None, Aio::IoUring).iothread(true), 0);
    let disks = disks.0;

    let guest = bed.boot(disks.clone());
    println!("{} disks after {:.1} s", disks.len(), guest.boot_seconds().unwrap());
    // All as they were asked for.
    let effective = guest.effective().unwrap();
    for disk in &disks {
        println!("{}: {:?}", disk.id, effective[&disk.id]);
    }
    for (nth, disk) in disks.iter().enumerate() {
        let path = disk.storage.path().unwrap();
        let asked = disk.attachment.as_ref().unwrap();
        let device = guest.disk_path(&disk.id).unwrap().to_string_lossy().into_owned();
        let block = write_and_read(&*guest, nth, &disk.id);
        assert_on_host(path, nth, &block);
        let (cache, found) = (asked.cache, &effective[&disk.id]);
        assert_eq!(found[effective::CACHE_DIRECT], cache.direct().to_string(), "{}", disk.id);
        assert_eq!(found[effective::CACHE_WRITEBACK], cache.write_cache().to_string(), "{}", disk.id);
        assert_eq!(found[effective::AIO], asked.aio.to_string(), "{}", disk.id);
        if asked.options.queues.is_some() {
            // The guest has two CPUs, so no more queues than that.
            assert_eq!(effective[&disk.id][effective::GUEST_QUEUES], "2", "{}", disk.id);
        }
        if asked.driver == "nvme" && asked.cache == Cache::None {
            assert_eq!(effective[&disk.id][effective::IOEVENTFD], "false");
            // Where a stall was seen with ioeventfd.
            let name = format!("--filename={device}");
            let job =
                ["--name=t", &name, "--rw=randread", "--bs=4k", "--iodepth=32", "--ioengine=libaio", "--direct=1"];
            run(&*guest, "fio", &[&job[..], &["--number_ios=2000", "--size=32m"]].concat());
        }
        let before = allocated(path);
        if before < 8 << 20 {
            continue;
        }
        let name = format!("--filename={device}");
        if asked.options.detect_zeroes == DetectZeroes::Unmap {
            run(&*guest, "dd", &["if=/dev/zero", &format!("of={device}"), "bs=1M", "count=8", "oflag=direct"]);
        } else {
            run(&*guest, "fio", &["--name=t", &name, "--rw=trim", "--bs=1m", "--size=8m", "--ioengine=psync"]);
        }
        let after = allocated(path);
        println!("{}: {before} bytes allocated, then {after}", disk.id);
        assert_eq!(after < 1 << 20, asked.options.discard, "{}: {before} bytes allocated, then {after}", disk.id);
    }
    guest.stop().unwrap();
    bed.assert_clean();
}

/// qemu-storage-daemon that exports a file; killed when it goes out of scope.
struct Daemon {
    process: Companion,
    nbd: PathBuf,
    vhost: PathBuf,
}

impl Daemon {
    fn start(bed: &Bed, nbd_file: &Path, vhost_file: &Path) -> Self {
        let (nbd, vhost) = (bed.dir().join("nbd.sock"), bed.dir().join("vhost.sock"));
        let mut command = Command::new("qemu-storage-daemon");
        for (name, path) in [("nbd", nbd_file), ("vhost", vhost_file)] {
            let node = format!("driver=file,node-name={name},filename={},cache.direct=on,locking=off", path.display());
            command.args(["--blockdev", &node]);
        }
        command.args(["--nbd-server", &format!("addr.type=unix,addr.path={}", nbd.display())]);
        command.args(["--export", "type=nbd,id=n,node-name=nbd,name=disk,writable=on"]);
        let export = "type=vhost-user-blk,id=v,node-name=vhost,writable=on,num-queues=2,addr.type=unix";
        command.args(["--export", &format!("{export},addr.path={}", vhost.display())]);
        // qemu-storage-daemon: scripts/setup test
        let process = Companion::start(&mut command);
        poll_until("qemu-storage-daemon listens at its sockets", || listens(&nbd) && listens(&vhost));
        Self { process, nbd, vhost }
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn images_and_served_disks_and_a_server_that_dies() {
    let bed = Bed::with_vcpus(2);
    let (nbd_file, vhost_file) = (file(&bed, "nbd", 0), file(&bed, "vhost", 0));
    let qcow2 = bed.dir().join("disk.qcow2");
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&qcow2).arg("64M").status().unwrap();
    assert!(made.success());
    let daemon = Daemon::start(&bed, &nbd_file, &vhost_file);
    let mut disks = Disks::default();
    let options = serde_json::json!({"l2-cache-size": 1 << 20}).as_object().unwrap().clone();
    let image = Storage::Image { path: qcow2.clone(), format: "qcow2", options };
    disks.add(Attachment::new("virtio-blk", Cache::None, Aio::Native), image);
    let nbd = Storage::Nbd { socket: daemon.nbd.clone(), export: "disk".into() };
    for driver in drivers::of(Arch::X86_64) {
        disks.add(Attachment::new(driver.name, Cache::None, Aio::Threads), nbd.clone());
    }
    let queues = Options { queues: Some(2), ..Options::default() };
    let vhost = with(Attachment::new("virtio-blk", Cache::None, Aio::Native), queues);
    disks.add(vhost, Storage::VhostUserBlk { socket: daemon.vhost.clone() });
    let disks = disks.0;

    let guest = bed.boot(disks.clone());
    // All as they were asked for.
    let effective = guest.effective().unwrap();
    for disk in &disks {
        println!("{}: {:?}", disk.id, effective[&disk.id]);
    }
    for (nth, disk) in disks.iter().enumerate() {
        let block = write_and_read(&*guest, nth, &disk.id);
        let found = &effective[&disk.id];
        assert!(found[effective::MEMORY].contains("shared"), "{}", disk.id);
        assert_eq!(found.get(effective::SERVED_BY).map(String::as_str), disk.storage.server(), "{}", disk.id);
        match &disk.storage {
            Storage::Nbd { .. } => assert_on_host(&nbd_file, nth, &block),
            Storage::VhostUserBlk { .. } => {
                assert_on_host(&vhost_file, nth, &block);
                assert_eq!(
                    (found[effective::AIO].as_str(), found[effective::GUEST_QUEUES].as_str()),
                    ("server's", "2")
                );
            }
            _ => assert_eq!(found["format"], "qcow2"),
        }
    }

    // Without its server a disk of this kind answers nothing for ever: the guest is ended instead.
    let served = guest.disk_path(&disks.last().unwrap().id).unwrap().to_string_lossy().into_owned();
    let node = guest.node();
    let failed = std::thread::scope(|scope| {
        let writer = guest.node();
        let writes = scope.spawn(move || {
            let dd = format!("echo > /tmp/begun; exec dd if=/dev/zero of={served} bs=4k count=1000000 oflag=direct");
            writer.exec(&Exec::new("sh").args(["-c", &dd]).limit(2 * limit()))
        });
        poll_until("the command has begun", || node.read(Path::new("/tmp/begun")).is_ok());
        drop(daemon.process);
        writes.join().unwrap().unwrap_err()
    });
    assert!(matches!(failed, vmio_node::Error::Gone { .. }), "its end is seen, and not the limit: {failed}");
    let told = guest.give_up(&failed.to_string()).to_string();
    println!("{told}");
    assert!(told.contains("vhost-user-blk server of disk virtio-blk") && told.contains("has ended"), "{told}");
    drop(node);
    guest.stop().unwrap();

    // Nobody listens on what is left of the socket; then there is none.
    let last = vec![disks.last().unwrap().clone()];
    let Err(error) = bed.launch(&bed.image, last.clone(), limit()) else { panic!("there is no server") };
    assert!(error.to_string().contains("vhost.sock"), "{error}");
    let _ = fs::remove_file(&daemon.vhost);
    let Err(error) = bed.launch(&bed.image, last, limit()) else { panic!("there is no socket") };
    assert!(matches!(&error, Error::Spec { reason, .. } if reason.contains("server's socket")), "{error}");
    bed.assert_clean();
}

/// By default QEMU would pause it, and it would answer nothing.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_whose_disk_finds_no_space_gets_errors_and_goes_on() {
    must_be_root();
    let bed = Bed::new();
    let mount = bed.small_filesystem(32);
    let mut disks = Disks::default();
    for driver in drivers::of(Arch::X86_64) {
        let path = mount.join(driver.name);
        fs::File::create(&path).unwrap().set_len(DISK_BYTES).unwrap();
        disks.add(Attachment::new(driver.name, Cache::None, Aio::Threads), Storage::File(path));
    }
    let disks = disks.0;
    let eater = bed.fill(&mount);
    let guest = bed.boot(disks.clone());
    for disk in &disks {
        let of = format!("of={}", guest.disk_path(&disk.id).unwrap().display());
        let write = Exec::new("dd").args(["if=/dev/zero", &*of, "bs=1M", "count=1", "oflag=direct"]).limit(limit());
        let failed = guest.node().exec(&write).unwrap();
        assert_eq!(failed.end, End::Exit(1), "{}: {}", disk.id, failed.err());
    }
    fs::remove_file(&eater).unwrap();
    for (nth, disk) in disks.iter().enumerate() {
        write_and_read(&*guest, nth, &disk.id);
    }
    guest.stop().unwrap();
}
