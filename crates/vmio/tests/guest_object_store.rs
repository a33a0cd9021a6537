//! A guest whose disk is the file of an object: what is stored can be booted from in place.
#![allow(clippy::unwrap_used)]

use crate::help::disk::tool;
use crate::help::state_dir::{StateDir, signal};

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use rustix::process::Signal;
use vmio_node::{Local, find_program};
use vmio_testbed::process::Companion;
use vmio_testbed::{scratch, skip};

/// The disk that every guest of vmio's mounts at `/usr`.
const DISK: &str = "tools.ext2";

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_boots_from_an_object_of_this_hosts_store() {
    if find_program(&Local::new(), "versitygw").is_none() {
        return skip("no versitygw here: scripts/setup store");
    }
    tool("ip", &["link", "set", "lo", "up"]);
    let (dir, state) = (scratch(), StateDir::with_image());
    let store = dir.path().join("store");
    let serve = ["image", "serve", store.to_str().unwrap(), "--port", "0"];
    let mut serve = Companion(state.spawn(&mut state.command(&serve)));
    let record = state.path().join("store/served.json");
    state.wait_for(&mut serve.0, || fs::read(&record).is_ok_and(|text| text.ends_with(b"}")));
    // An image of this state's own, whose disk is the object.
    let images = state.path().join("images");
    let kept = images.canonicalize().unwrap();
    fs::remove_file(&images).unwrap();
    assert!(Command::new("cp").arg("-r").args([&kept, &images]).status().unwrap().success());
    let mut stored = 0;
    for disk in fs::read_dir(&images).unwrap().map(|entry| entry.unwrap().path().join(DISK)) {
        if !disk.is_file() {
            continue;
        }
        stored += 1;
        let url = format!("s3://images/{stored}/{DISK}");
        let mut push = state.command(&["image", "push", disk.to_str().unwrap(), &url, "--make-bucket"]);
        state.finish(push.env_remove("AWS_ENDPOINT_URL").env_remove("AWS_ENDPOINT_URL_S3")).with(0);
        fs::remove_file(&disk).unwrap();
        symlink(store.join(format!("images/{stored}/{DISK}")), &disk).unwrap();
    }
    assert!(stored > 0, "{}", images.display());
    let tried = state.vmio(&["doctor", "--try", "--json"]).json();
    let rows = tried["tries"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "guest, emulated").unwrap();
    assert_eq!(row["state"], "worked", "{row}");
    signal(serve.pid(), Signal::TERM);
    assert!(serve.0.wait().unwrap().success());
    state.is_clean();
}
