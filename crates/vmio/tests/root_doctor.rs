//! `vmio doctor --try` on this machine: it works, leaves nothing behind however it ends, and names what is broken.
#![allow(clippy::unwrap_used)]

use crate::help::schema;
use crate::help::state_dir;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use schema::fits;
use serde_json::Value;
use state_dir::{Ended, StateDir, signal};
use vmio_testbed::poll_until;

/// What came of each trial, by its name.
fn tries(ended: &Ended) -> BTreeMap<String, Value> {
    let (json, name) = (ended.json(), |row: &Value| row["name"].as_str().unwrap().to_owned());
    json["tries"].as_array().unwrap().iter().map(|row| (name(row), row.clone())).collect()
}

/// Ends `doctor --try` by a signal while its guest boots.
fn ended_by(state: &StateDir, by: Signal) -> Ended {
    let mut child = state.spawn(&mut state.command(&["doctor", "--try"]));
    state.wait_for(&mut child, || !state.processes("qemu").is_empty());
    signal(child.id(), by);
    state.end(child)
}

#[test]
#[ignore = "root"]
fn each_thing_is_tried_and_nothing_is_left() {
    let state = StateDir::with_image();
    assert_eq!(ended_by(&state, Signal::KILL).code, None);
    poll_until("what was started has ended", || state.processes("").is_empty());
    ended_by(&state, Signal::INT).with(4).says(&["what was made is removed"]);
    state.is_clean();
    let ended = state.vmio(&["doctor", "--try", "--json"]).with(0);
    fits("doctor", &ended.out);
    for (name, row) in tries(&ended) {
        let (needed, worked) = (row["needed"] == true, row["state"] == "worked");
        // KVM, eBPF and iperf3 are not on each machine; then it is said why.
        assert!(worked || !needed && row["why"].is_string() && row["mend"].is_string(), "{name}: {row}");
        assert_eq!(worked, row["seconds"].as_f64().is_some_and(|seconds| seconds < 60.0), "{name}: {row}");
    }
    assert_eq!(tries(&ended)["network"]["state"], "worked");
    let json = ended.json();
    let qemu = json["abilities"].as_array().unwrap().iter().find(|row| row["name"] == "qemu").unwrap();
    assert_eq!((&json["ready"], &qemu["state"]), (&Value::Bool(true), &"ready".into()));
    state.is_clean();
}

/// A directory with all programs of this host but those.
fn programs_without(dir: &Path, names: &[&str]) -> PathBuf {
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    for from in ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"] {
        for program in fs::read_dir(from).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            let name = program.file_name().unwrap();
            if !names.iter().any(|left_out| name == *left_out) {
                let _ = symlink(&program, bin.join(name));
            }
        }
    }
    bin
}

#[test]
#[ignore = "root"]
fn a_missing_and_a_broken_program_are_named() {
    let (state, dir) = (StateDir::new(), tempfile::tempdir().unwrap());
    // Without ldd no image is built, which takes its time.
    let bin = programs_without(dir.path(), &["fio", "iperf3", "ldd"]);
    fs::write(bin.join("iperf3"), "#!/bin/sh\necho its library is missing >&2\nexit 1\n").unwrap();
    fs::set_permissions(bin.join("iperf3"), fs::Permissions::from_mode(0o755)).unwrap();
    let tried = |more: &[&str]| {
        let args = [&["doctor", "--try"][..], more].concat();
        state.finish(state.command(&args).env("PATH", &bin)).with(3)
    };
    let rows = tries(&tried(&["--json"]));
    let is = |name: &str, state: &str, why: &str, mend: &str| {
        let row = &rows[name];
        let says = |key: &str, word: &str| row[key].as_str().is_some_and(|text| text.contains(word));
        assert!(row["state"] == state && says("why", why) && says("mend", mend), "{row}");
    };
    is("fio", "lacking", "no program fio in PATH", "apt install fio");
    is("guest image", "lacking", "ldd", "apt install libc-bin");
    is("guest, emulated", "lacking", "it needs guest image: no program ldd", "apt install libc-bin");
    is("iperf3", "failed", "its library is missing", "reinstall");
    assert_eq!((&rows["network"]["state"], &rows["vmio-cpu"]["state"]), (&"worked".into(), &"worked".into()));
    let answers = ["Not for measuring guests because ldd", "Not for measuring networks because iperf3"];
    let ended = tried(&[]).says(&["failed iperf3: ", "reinstall the program", "worked vmio-cpu ("]).says(&answers);
    let ended = ended.says(&["not tried: guest image (lacks ldd); guest, emulated (needs guest image)"]);
    // On a busy machine another trial may fail, too, and is named beside it.
    let out = state_dir::unfolded(&ended.out);
    let (_, why) = out.split_once("Not for measuring networks because iperf3").unwrap();
    assert!(why.split('.').next().unwrap().ends_with(" failed when tried"), "{out}");
    tried(&["--verbose"]).says(&["iperf3 tried, failed: ", "reinstall the program", "vmio-cpu tried, worked in "]);
    state.is_clean();
}

/// Without vmio-agent there is no image: what needs one is not tried, and what gets it is named.
#[test]
#[ignore = "root"]
fn without_an_image_no_guest_is_tried() {
    let state = StateDir::with_image();
    let tried = |more: &[&str]| {
        let args = [&["doctor", "--try"][..], more].concat();
        state.finish(state.command(&args).env("VMIO_AGENT", "/nowhere/vmio-agent")).with(3)
    };
    let rows = tries(&tried(&["--json"]));
    for name in ["guest image", "guest, emulated"] {
        let row = &rows[name];
        let says = |key: &str, word: &str| row[key].as_str().is_some_and(|text| text.contains(word));
        assert!(row["state"] == "lacking" && says("why", "no vmio-agent") && says("mend", "`make agent`"), "{row}");
    }
    assert_ne!(rows["guest, KVM"]["state"], "failed");
    let ended = tried(&[]).says(&["lacking vmio-agent (", "build it with `make agent`"]);
    let ended = ended.says(&["guest, emulated (needs guest image)", "guests because vmio-agent is missing"]);
    assert!(!ended.out.contains("failed  guest"), "{}", ended.out);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn an_image_that_does_not_boot_is_named() {
    let state = StateDir::with_image();
    let images = state.path().join("images");
    let kept = images.canonicalize().unwrap();
    fs::remove_file(&images).unwrap();
    assert!(Command::new("cp").arg("-r").args([&kept, &images]).status().unwrap().success());
    for image in fs::read_dir(&images).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        fs::write(image.join("agent"), "no program").unwrap();
    }
    let rows = tries(&state.vmio(&["doctor", "--try", "--json"]).with(3));
    let (emulated, kvm) = (&rows["guest, emulated"], &rows["guest, KVM"]);
    assert!(emulated["state"] == "failed" && emulated["mend"].as_str().unwrap().contains("delete "), "{emulated}");
    // A guest that never boots says nothing of KVM.
    let why = kvm["why"].as_str().unwrap();
    assert!(kvm["state"] == "lacking", "{kvm}");
    assert!(why.starts_with("it needs guest, emulated: ") || why.contains("/dev/kvm"), "{kvm}");
    state.is_clean();
}
