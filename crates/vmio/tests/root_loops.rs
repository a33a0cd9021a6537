//! Loop devices that are taken back when their owner ends, on a host where others have some, too.
#![allow(clippy::unwrap_used)]

use crate::help::silent::Silent;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::Duration;

use vmio_node::held::Identity;
use vmio_node::loops::loop_devices;
use vmio_node::{Change, Journal};
use vmio_testbed::{limit, poll_until, scratch, skip};

/// Attaches a file to a free loop device.
fn attach(file: &Path) -> PathBuf {
    let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().into()
}

/// A journal with a file and a loop device over it, as a run has them.
fn owned(dir: &Path) -> (Journal, PathBuf) {
    let journal = Journal::open(&dir.join("journals"), "test").unwrap();
    let path = dir.join("own.raw");
    journal.record(Change::file(&path)).unwrap();
    let file = File::create(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let which = Some(Identity::of(&file).unwrap());
    journal.record(Change::Loop { backing: path.clone(), file: which }).unwrap();
    (journal, attach(&path))
}

/// Whether a file is behind a loop device.
fn is_attached(file: &Path) -> bool {
    loop_devices().iter().any(|device| device.backing == file)
}

/// The thread that measures has a loop device open, and on a busy machine it notices late that the run is being ended.
#[test]
#[ignore = "root"]
fn a_loop_device_that_is_open_a_while_longer_is_waited_for() {
    let dir = scratch();
    let (journal, device) = owned(dir.path());
    let open = File::open(device).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Longer than the second for which a refused detach is tried again.
            sleep(Duration::from_secs(2));
            drop(open);
        });
        assert_eq!(journal.close(), Vec::<String>::new());
    });
    assert!(!journal.path().exists() && !is_attached(&dir.path().join("own.raw")));
}

/// The driver answers what is behind a loop device when the file's storage does, which is somebody else's.
#[test]
#[ignore = "root"]
fn a_silent_loop_device_of_others_holds_nobody_up() {
    let dir = scratch();
    let Some(silent) = Silent::at(dir.path().join("silent"), 1 << 20) else { return skip("no FUSE here") };
    let others = attach(&silent.file());
    silent.falls_silent();
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    let (journal, _) = owned(&own);
    // Renamed it is still the same file.
    fs::rename(own.join("own.raw"), own.join("renamed.raw")).unwrap();
    let (tell, told) = mpsc::channel();
    let closing = thread::spawn(move || tell.send(journal.close()));
    let failed = told.recv_timeout(limit());
    silent.answers();
    poll_until("the other one is detached", || {
        Command::new("losetup").arg("-d").arg(&others).output().unwrap();
        !is_attached(&silent.file())
    });
    assert_eq!(failed.expect("it ends while that storage is silent"), Vec::<String>::new());
    closing.join().unwrap().unwrap();
    assert!(!is_attached(&own.join("own.raw")) && !is_attached(&own.join("renamed.raw")));
}
