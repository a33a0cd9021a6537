//! A store of this host whose disk is full: what was acknowledged is kept, and the same push goes on when there is space.
#![allow(clippy::unwrap_used)]

use crate::help::disk::tool;
use crate::help::state_dir::{StateDir, signal};

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use vmio_node::{Local, find_program};
use vmio_testbed::process::Companion;
use vmio_testbed::{scratch, skip};

const MIB: u64 = 1 << 20;

/// Whether objects can be stored there: versitygw keeps what it knows of them in user attributes.
fn has_attributes(dir: &Path) -> bool {
    let file = dir.join("probe");
    fs::write(&file, "").unwrap();
    let kept = rustix::fs::setxattr(&file, "user.probe", b"1", rustix::fs::XattrFlags::empty()).is_ok();
    fs::remove_file(&file).unwrap();
    kept
}

#[test]
#[ignore = "root"]
fn a_push_goes_on_when_a_full_server_has_space_again() {
    if find_program(&Local::new(), "versitygw").is_none() {
        return skip("no versitygw here: scripts/setup store");
    }
    tool("ip", &["link", "set", "lo", "up"]);
    let (dir, state) = (scratch(), StateDir::new());
    let [images, from, to] = ["images", "from", "to"].map(|name| dir.path().join(name));
    fs::create_dir(&images).unwrap();
    let at = images.to_str().unwrap();
    tool("mount", &["-t", "tmpfs", "-o", "size=40m,mode=700", "images", at]);
    if !has_attributes(&images) {
        tool("umount", &[at]);
        return skip("tmpfs without user attributes");
    }
    // Each block differs, so that no part is like another.
    let mut bytes = vec![1; 64 << 20];
    for (at, block) in bytes.chunks_mut(4096).enumerate() {
        block[..8].copy_from_slice(&(at as u64).to_le_bytes());
    }
    fs::write(&from, &bytes).unwrap();
    let mut serve = Companion(state.spawn(&mut state.command(&["image", "serve", at, "--port", "0"])));
    let record = state.path().join("store/served.json");
    state.wait_for(&mut serve.0, || fs::read(&record).is_ok_and(|text| text.ends_with(b"}")));
    let image = |args: &[&str]| {
        let mut command = state.command(&[&["image"], args].concat());
        state.finish(command.env_remove("AWS_ENDPOINT_URL").env_remove("AWS_ENDPOINT_URL_S3"))
    };
    let push = ["push", from.to_str().unwrap(), "s3://images/disk", "--make-bucket", "--json"];
    image(&push).with(1).says(&["is out of space (InsufficientStorage): free some there"]);
    assert!(!images.join("images/disk").exists(), "only a whole image has a name");
    tool("mount", &["-o", "remount,size=300m", at]);
    let stored = image(&push).with(0).json();
    let kept = stored["kept_bytes"].as_u64().unwrap();
    assert!((16 * MIB..64 * MIB).contains(&kept), "{stored}");
    // The disk of the file that is fetched is full, too, and then is not.
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    tool("mount", &["-t", "tmpfs", "-o", "size=20m,mode=700", "small", small.to_str().unwrap()]);
    let file = small.join("disk");
    let pull = ["pull", "s3://images/disk", file.to_str().unwrap()];
    image(&pull).with(1).says(&["free some space there"]);
    assert!(!file.exists());
    tool("mount", &["-o", "remount,size=80m", small.to_str().unwrap()]);
    image(&pull).with(0);
    assert_eq!(fs::read(&file).unwrap(), bytes);
    image(&["pull", "s3://images/disk", to.to_str().unwrap()]).with(0);
    signal(serve.pid(), Signal::TERM);
    assert!(serve.0.wait().unwrap().success());
    for mounted in [&images, &small] {
        tool("umount", &[mounted.to_str().unwrap()]);
    }
    state.is_clean();
}
