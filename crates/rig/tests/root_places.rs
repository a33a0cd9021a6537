//! Volumes from their making to their end, on a made-up Ceph cluster whose images are files and whose
//! mappings are loop devices (`fixtures/places/bin`). The real LVM is tried in the lab host.
//!
//! Each test runs itself again as a child with the cluster's tools in `PATH`, so that one can be
//! killed.

#![allow(clippy::unwrap_used)]

use crate::common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use vmio_node::{Journal, Local};
use vmio_rig::disks::places;
use vmio_rig::disks::targets::{self, State, TargetCtx};
use vmio_testbed::must_be_root;

const BYTES: u64 = 8 << 20;

/// A cluster that goes with the test.
struct Cluster(tempfile::TempDir);

impl Cluster {
    fn new() -> Self {
        must_be_root();
        // Journals lie in it, and cargo's directory is another user's with `sudo make test`.
        Self(vmio_testbed::scratch())
    }

    fn act(&self, what: &str) -> Child {
        let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/places/bin");
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "root_places::helper_inner", "--nocapture"])
            .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
            .env("VMIO_FAKE_CLUSTER", self.0.path())
            .env("VMIO_TEST_ACT", what)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn acts(&self, what: &str) {
        let output = self.act(what).wait_with_output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
    }

    /// Kills a child as soon as its volume is there.
    fn killed_with_a_volume(&self) {
        let mut child = self.act("wait");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|l| l.unwrap().contains("made")), "no volume was made");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let all = std::fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().path());
        all.filter(|p| p.to_string_lossy().ends_with(ending)).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for device in common::loops_over(&self.0.path().canonicalize().unwrap()) {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
    }
}

/// What a child does; nothing when it is run as a test of its own.
#[test]
#[ignore = "helper of the others"]
fn helper_inner() {
    let Ok(act) = std::env::var("VMIO_TEST_ACT") else { return };
    let cluster = PathBuf::from(std::env::var("VMIO_FAKE_CLUSTER").unwrap());
    let journals = cluster.join("journals");
    if act == "recover" || act == "recover-foreign" {
        let done = vmio_node::recover(&journals);
        let (undone, failed) = if act == "recover" { (1, 0) } else { (0, 1) };
        assert_eq!((done.undone.len(), done.failed.len()), (undone, failed), "{done:?}");
        assert!(done.undone.iter().all(|u| u.contains("RBD image vms/vmio-")), "{done:?}");
        assert!(done.failed.iter().all(|f| f.contains("not touched")), "{done:?}");
        return;
    }
    let journal = Arc::new(Journal::open(&journals, "run").unwrap());
    let node = Local::owned(Arc::clone(&journal));
    let place = places::resolve(&node, "rbd:vms").unwrap();
    let said = places::resolve(&node, "rbd:vns").unwrap_err();
    assert!(said.help.contains("rbd:vms"), "{said:?}");
    let target = targets::find("rbd").unwrap();
    target.fits(&place.backend).unwrap();
    let pool = place.backend.pool().cloned();
    let (dir, device) = (cluster.clone(), None);
    let (node, journal, bytes, force, pace, host) = (&node, &journal, BYTES, false, None, None);
    let ctx = TargetCtx { node, journal, dir, pool, bytes, device, force, pace, native: true, host, peer: None };
    let mut made = target.prepare(&ctx).unwrap();
    if act == "wait" {
        std::io::stdout().write_all(b"made\n").unwrap();
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    let image = std::fs::read_dir(&cluster)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "img"));
    let image = image.unwrap();
    let allocated = || image.metadata().unwrap().blocks() * 512;
    assert!(made.allocates() && made.bytes() == BYTES && made.native().starts_with("/dev"));
    assert_eq!(made.reset(State::Filled).unwrap(), BYTES);
    assert!(allocated() >= BYTES, "{}", allocated());
    assert_eq!(made.reset(State::Filled).unwrap(), 0, "it is written out once");
    assert_eq!(made.reset(State::Fresh).unwrap(), 0);
    assert!(allocated() <= 64 << 10, "{} bytes are left after the discard", allocated());
    made.remove(journal).unwrap();
    assert!(!image.exists());
    assert_eq!(journal.close(), Vec::<String>::new());
}

#[test]
#[ignore = "root"]
fn a_volume_is_made_filled_emptied_and_removed() {
    let cluster = Cluster::new();
    cluster.acts("whole");
    assert_eq!(cluster.files(".img"), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "root"]
fn after_a_kill_the_next_start_removes_the_volume() {
    let cluster = Cluster::new();
    cluster.killed_with_a_volume();
    assert_eq!(cluster.files(".img").len(), 1);
    cluster.acts("recover");
    assert_eq!(cluster.files(".img"), Vec::<PathBuf>::new());
    assert_eq!(common::loops_over(&cluster.0.path().canonicalize().unwrap()), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "root"]
fn a_volume_without_the_mark_stays() {
    let cluster = Cluster::new();
    cluster.killed_with_a_volume();
    std::fs::write(&cluster.files(".org.vmio.owner")[0], "somebody").unwrap();
    cluster.acts("recover-foreign");
    assert_eq!(cluster.files(".img").len(), 1, "somebody else's");
}

#[test]
#[ignore = "root"]
fn an_image_whose_run_was_killed_before_it_was_marked_goes() {
    let cluster = Cluster::new();
    cluster.killed_with_a_volume();
    std::fs::remove_file(&cluster.files(".org.vmio.owner")[0]).unwrap();
    cluster.acts("recover");
    assert_eq!(cluster.files(".img"), Vec::<PathBuf>::new());
}
