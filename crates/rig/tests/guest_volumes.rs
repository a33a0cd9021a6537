//! Volumes of real guests: of two, one after the other, and one that grows.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::guest::{Bed, DISK_BYTES, limit, run};
use vmio_model::cell::{Aio, Cache};
use vmio_node::linux::process;
use vmio_node::{Node, Reader, find_program};
use vmio_rig::disks::Storage;
use vmio_rig::guests::{Guest, GuestSpec};
use vmio_rig::volumes::{self, Driver, Error, Name, Pool, Running, Server};
use vmio_testbed::{poll_for, skip};

const BYTES: u64 = 4 << 20;

/// Sets it when a test ends, in whichever way: what waits for it is another thread of it.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A pool with a volume.
fn pool(bed: &Bed) -> (PathBuf, Pool, Name) {
    let dir = bed.dir().join("pool");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    let (pool, data): (Pool, Name) = (Pool::open(&dir).unwrap(), "data".parse().unwrap());
    pool.create(&data, BYTES).unwrap();
    (dir, pool, data)
}

/// Serves a pool as long as the test goes on.
fn served(node: &dyn Node, pool: &Pool, test: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&ended);
        scope.spawn(|| {
            let mut server = Server::start(node, pool).unwrap();
            while !ended.load(Ordering::Relaxed) {
                server.tick().unwrap();
                thread::sleep(Duration::from_millis(50));
            }
        });
        test();
    });
}

/// A guest with its monitor for whoever watches.
fn running(host: &dyn Reader, name: &str, guest: &dyn Guest) -> Running {
    let pid = guest.hypervisor().unwrap().unwrap().pid;
    let words = process::command_line(host, pid).unwrap();
    let path = words.iter().find_map(|word| word.strip_prefix("socket,id=watch,path=")).unwrap();
    Running { name: name.to_owned(), pid, monitor: path.split(',').next().unwrap().into() }
}

/// The guest's disk of this size.
fn disk(guest: &dyn Guest, bytes: u64) -> String {
    let wanted = (bytes / 512).to_string();
    let has = |name: &&str| {
        let size = guest.node().read_text(&Path::new("/sys/block").join(name).join("size"));
        size.is_ok_and(|size| size.trim() == wanted)
    };
    let found = poll_for("the guest sees the volume", || ["sda", "sdb", "sdc"].into_iter().find(has).ok_or("no disk"));
    format!("/dev/{found}")
}

/// The volume as a guest reads it.
fn read(guest: &dyn Guest, disk: &str) -> Vec<u8> {
    run(guest, "dd", &[&format!("if={disk}"), "bs=1M", "iflag=direct", "status=none"]).stdout
}

/// The server of a volume in this directory.
fn server(dir: &Path) -> u32 {
    let dir = dir.display().to_string();
    let mut pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.split('\0').next().is_some_and(|program| program.ends_with("qemu-nbd")) && words.contains(&dir)
    };
    pids.find(is_it).unwrap()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn what_one_guest_wrote_to_a_volume_the_next_one_reads() {
    let bed = Bed::new();
    if find_program(&bed.node, "qemu-nbd").is_none() {
        return skip("no qemu-nbd here: apt install qemu-utils");
    }
    let (dir, pool, data) = pool(&bed);
    let first = bed.boot(vec![bed.disk("own", "virtio-scsi", Cache::Writeback, Aio::Threads, false)]);
    let own = bed.dir().join("disk2.raw");
    fs::File::create(&own).unwrap().set_len(DISK_BYTES).unwrap();
    let mut disks = vec![bed.disk("own", "virtio-scsi", Cache::Writeback, Aio::Threads, false)];
    disks[0].storage = Storage::File(own);
    let second = bed.launch_as(&bed.image, &GuestSpec { disks, ..GuestSpec::of("guest1", 1, 256) }, limit()).unwrap();
    let (one, two) = (running(&bed.node, "guest0", &*first), running(&bed.node, "guest1", &*second));
    let node = bed.shared();
    served(&*node, &pool, || {
        let attach = |guest: &Running| volumes::attach(&*node, &pool, &data, guest, (Driver::Scsi, None));
        let attached = poll_for("the pool is served", || attach(&one));
        let at = disk(&*first, BYTES);
        run(&*first, "dd", &["if=/dev/urandom", &format!("of={at}"), "bs=1M", "count=4", "conv=fsync"]);
        let written = fs::read(dir.join("data.raw")).unwrap();
        assert!(written.iter().any(|byte| *byte != 0));
        assert!(matches!(attach(&two), Err(Error::Attached { guest, .. }) if guest == "guest0"));
        // What was flushed is there when its server is not.
        let killed = rustix::process::Pid::from_raw(server(&dir).cast_signed()).unwrap();
        rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
        assert_eq!(fs::read(dir.join("data.raw")).unwrap(), written);
        assert!(read(&*first, &at) == written, "it reads something else after its server was started again");
        volumes::detach(&*node, &pool, &data, &attached, Some(&one)).unwrap();
        let attached = attach(&two).unwrap();
        assert!(read(&*second, &disk(&*second, BYTES)) == written, "the next guest reads something else");
        volumes::detach(&*node, &pool, &data, &attached, Some(&two)).unwrap();
        pool.delete(&data).unwrap();
    });
    drop((first, second));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_sees_its_volume_grow() {
    let bed = Bed::new();
    if find_program(&bed.node, "qemu-nbd").is_none() {
        return skip("no qemu-nbd here: apt install qemu-utils");
    }
    let (dir, pool, data) = pool(&bed);
    let guest = bed.boot(vec![bed.disk("own", "virtio-scsi", Cache::Writeback, Aio::Threads, false)]);
    let (node, seen) = (bed.shared(), running(&bed.node, "guest0", &*guest));
    served(&*node, &pool, || {
        let attach = || volumes::attach(&*node, &pool, &data, &seen, (Driver::Scsi, None));
        let attached = poll_for("the pool is served", attach);
        let at = disk(&*guest, BYTES);
        volumes::resize(&*node, &pool, &data, &attached, &seen, 2 * BYTES).unwrap();
        assert_eq!(disk(&*guest, 2 * BYTES), at);
        // Behind the end that it had.
        run(&*guest, "dd", &["if=/dev/urandom", &format!("of={at}"), "bs=1M", "seek=4", "count=4", "conv=fsync"]);
        let bytes = fs::read(dir.join("data.raw")).unwrap();
        let (before, behind) = bytes.split_at(4 << 20);
        assert!(before.iter().all(|byte| *byte == 0) && behind.iter().any(|byte| *byte != 0));
        volumes::detach(&*node, &pool, &data, &attached, Some(&seen)).unwrap();
    });
    drop(guest);
    fs::remove_dir_all(&dir).unwrap();
}
