//! Guests whose disk is an image of an object store: what is stored can be booted from, by the object's file and by ranges
//! from the server.
#![allow(clippy::unwrap_used)]

use crate::help::disk::tool;
use crate::help::state_dir::{Ended, StateDir, signal};

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use vmio_node::{Local, find_program};
use vmio_testbed::process::Companion;
use vmio_testbed::{poll_until, scratch, skip};

/// The disk that every guest of vmio's mounts at `/usr`.
const DISK: &str = "tools.ext2";

/// A store of this host that is served, and a state directory of which each image's disk is an object there.
struct Stored {
    // Ends before its state directory goes.
    serve: Companion,
    state: StateDir,
    /// Where a disk was, and its object. The file is there no more.
    disks: Vec<(PathBuf, String)>,
}

impl Stored {
    fn new(store: &Path) -> Stored {
        tool("ip", &["link", "set", "lo", "up"]);
        let state = StateDir::with_image();
        let serve = ["image", "serve", store.to_str().unwrap(), "--port", "0"];
        let mut serve = Companion(state.spawn(&mut state.command(&serve)));
        let record = state.path().join("store/served.json");
        state.wait_for(&mut serve.0, || fs::read(&record).is_ok_and(|text| text.ends_with(b"}")));
        // Images of this state's own.
        let images = state.path().join("images");
        let kept = images.canonicalize().unwrap();
        fs::remove_file(&images).unwrap();
        assert!(Command::new("cp").arg("-r").args([&kept, &images]).status().unwrap().success());
        let mut disks = Vec::new();
        for disk in fs::read_dir(&images).unwrap().map(|entry| entry.unwrap().path().join(DISK)) {
            if !disk.is_file() {
                continue;
            }
            let object = format!("images/{}/{DISK}", disks.len());
            let push = ["image", "push", disk.to_str().unwrap(), &format!("s3://{object}"), "--make-bucket"];
            state.finish(&mut own(state.command(&push))).with(0);
            fs::remove_file(&disk).unwrap();
            disks.push((disk, object));
        }
        assert!(!disks.is_empty(), "{}", images.display());
        Stored { serve, state, disks }
    }

    /// Boots a guest.
    fn boot(&self) -> Ended {
        self.state.vmio(&["doctor", "--try", "--json"])
    }

    /// Wants it to have booted, and nothing to be left.
    fn ends_with(mut self, tried: Ended) {
        let tried = tried.json();
        let rows = tried["tries"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "guest, emulated").unwrap();
        assert_eq!(row["state"], "worked", "{row}");
        end(&mut self.serve);
        self.state.is_clean();
    }
}

/// With the store of this host, whatever the user's own variables name.
fn own(mut command: Command) -> Command {
    command.env_remove("AWS_ENDPOINT_URL").env_remove("AWS_ENDPOINT_URL_S3");
    command
}

fn end(program: &mut Companion) {
    signal(program.pid(), Signal::TERM);
    assert!(program.0.wait().unwrap().success());
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_boots_from_an_object_of_this_hosts_store() {
    if find_program(&Local::new(), "versitygw").is_none() {
        return skip("no versitygw here: scripts/setup store");
    }
    let dir = scratch();
    let store = dir.path().join("store");
    let stored = Stored::new(&store);
    for (disk, object) in &stored.disks {
        symlink(store.join(object), disk).unwrap();
    }
    let tried = stored.boot();
    stored.ends_with(tried);
}

/// A file of the daemon's stands for the disk (FUSE), since vmio's guests have that as a file.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_boots_from_an_object_by_ranges() {
    for (program, part) in [("versitygw", "store"), ("nbdkit", "test"), ("qemu-storage-daemon", "test")] {
        if find_program(&Local::new(), program).is_none() {
            return skip(&format!("no {program} here: scripts/setup {part}"));
        }
    }
    if !Path::new("/dev/fuse").exists() {
        return skip("no /dev/fuse");
    }
    let dir = scratch();
    let store = dir.path().join("store");
    let stored = Stored::new(&store);
    let mut served = Vec::new();
    for (disk, object) in &stored.disks {
        let mut open =
            stored.state.spawn(&mut own(stored.state.command(&["image", "open", &format!("s3://{object}")])));
        let mut uri = String::new();
        BufReader::new(open.stdout.take().unwrap()).read_line(&mut uri).unwrap();
        let open = Companion(open);
        let socket = uri.trim().strip_prefix("nbd+unix:///?socket=").unwrap();
        fs::write(disk, "").unwrap();
        let mut daemon = Command::new("qemu-storage-daemon");
        daemon.args(["--blockdev", &format!("nbd,node-name=d,read-only=on,server.type=unix,server.path={socket}")]);
        let export = format!("fuse,id=e,node-name=d,mountpoint={},writable=off", disk.display());
        let daemon = Companion::start(daemon.args(["--export", &export]));
        poll_until("the disk is there", || fs::metadata(disk).is_ok_and(|there| there.len() > 0));
        served.push((daemon, open));
    }
    let tried = stored.boot();
    for (mut daemon, mut open) in served {
        end(&mut daemon);
        end(&mut open);
    }
    stored.ends_with(tried);
}
