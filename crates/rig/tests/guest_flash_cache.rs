//! A disk behind nbdkit's cache filter, the target `flash-cache`, without a guest.
//! Run with `cargo test -- --ignored`; needs nbdkit and qemu-io.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::Bed;
use vmio_model::cell::{Aio, Attachment, Cache};
use vmio_node::{Reader, find_program};
use vmio_rig::disks::Storage;
use vmio_rig::disks::targets::{self, State};
use vmio_testbed::{poll_for, skip};

/// Reads 64 KiB in the middle.
fn read(storage: &Storage) {
    let Storage::CachedNbd { socket } = storage else { panic!("{storage:?}") };
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let out = Command::new("qemu-io").args(["-r", "-f", "raw", "-c", "read 1M 64k", &uri]).output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success() && said.contains("read 65536/65536"), "{said}");
}

/// What is read of the file itself comes into the host's page cache, which tells hits from misses.
#[test]
#[ignore = "guest: needs QEMU"]
fn one_server_keeps_what_is_read_and_the_other_reads_it_again() {
    let bed = Bed::new();
    if find_program(&bed.node, "nbdkit").is_none() {
        return skip("no nbdkit");
    }
    let mut target = targets::find("flash-cache").unwrap().prepare(&bed.ctx(4)).unwrap();
    let asked = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
    let keeps = target.attach(&asked).unwrap();
    let misses = target.exchange(&asked, State::Filled).unwrap().unwrap().storage;
    assert_ne!(keeps, misses);
    assert_eq!(target.exchange(&asked, State::WarmFlash).unwrap().unwrap().storage, keeps);
    assert!(target.attached(&asked)["server"].starts_with("nbdkit "), "{:?}", target.attached(&asked));
    let path = target.native().to_owned();
    if bed.node.cached_bytes(&path).unwrap().is_none() {
        skip("this kernel does not count cached pages");
    } else {
        for (storage, again) in [(&keeps, false), (&misses, true)] {
            for of_the_file in [true, again] {
                target.reset(State::Filled).unwrap();
                read(storage);
                let cached = bed.node.cached_bytes(&path).unwrap().unwrap();
                assert_eq!(cached >= 64 << 10, of_the_file, "{storage:?}: {cached}");
                assert!(of_the_file || cached == 0, "{storage:?}: {cached}");
            }
        }
    }

    let pids = target.servers(&asked);
    target.sound(&asked).unwrap();
    kill_process(Pid::from_raw(pids[1].cast_signed()).unwrap(), Signal::KILL).unwrap();
    let said = poll_for("it is noticed", || target.sound(&asked).err().ok_or("it is sound")).to_string();
    assert!(said.contains("vmio-flash-cache.raw") && said.contains("killed by signal 9"), "{said}");
    assert!(target.exchange(&asked, State::WarmFlash).is_err(), "no guest gets one whose other server is gone");
    assert_eq!(target.attach(&asked).unwrap(), keeps, "by the same name");
    read(&keeps);
    let Storage::CachedNbd { socket } = &keeps else { panic!("{keeps:?}") };
    let (dir, pids) = (socket.parent().unwrap().to_owned(), target.servers(&asked));
    target.remove(&bed.journal).unwrap();
    assert!(!dir.exists() && pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{pids:?}");
    assert_eq!(bed.files(), [""; 0]);
}
