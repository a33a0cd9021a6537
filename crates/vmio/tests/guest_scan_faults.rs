//! What goes wrong while `vmio scan` looks: it says so and gives what it could read, with code 0.
#![allow(clippy::unwrap_used)]

use crate::help::live;
use crate::help::stand_in;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use stand_in::StandIn;
use vmio_testbed::poll_for;
use vmio_testbed::process::Companion;

const MACHINE: &str = "-machine q35 -accel tcg -cpu max -smp 1";

fn disk(path: &std::path::Path) -> String {
    format!(
        "-drive file={},format=raw,if=none,id=d0,cache=none,aio=native -device virtio-blk-pci,drive=d0",
        path.display()
    )
}

/// Everything in a document that could not be read, in one text.
fn unread(of: &Value) -> String {
    of["unread"].to_string()
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_monitor_that_somebody_holds_is_left_alone() {
    let dir = live::scratch();
    let socket = dir.path().join("qmp");
    let image = live::raw(dir.path(), "busy");
    let args = format!("{MACHINE} {} -qmp unix:{},server=on,wait=off", disk(&image), socket.display());
    let mut guest = live::start("busy", "", &args);
    live::wait("busy", &mut guest);
    let held = poll_for("its monitor", || UnixStream::connect(&socket));
    // It ends though the monitor is held: nobody waits for it.
    let seen = live::scan(dir.path(), &[&live::name("busy")]);
    let found = live::guest(&seen, "busy");
    assert!(unread(found).contains("qmp"), "{}", found["unread"]);
    assert_eq!(found["disks"][0]["driver"], "virtio-blk", "the rest is there all the same");
    drop(held);
    // Free again, it answers the next who asks.
    poll_for("its monitor is read", || {
        let asked = live::scan(dir.path(), &[&live::name("busy")]);
        let told = unread(live::guest(&asked, "busy"));
        if told.contains("qmp") { Err(told) } else { Ok(()) }
    });
    assert_eq!(guest.0.try_wait().unwrap(), None, "the guest goes on");
}

#[test]
#[ignore = "guest: needs QEMU"]
fn guests_that_end_meanwhile_do_not_fail_a_scan() {
    let dir = live::scratch();
    let names = ["end0", "end1", "end2", "end3"];
    let mut guests: Vec<Companion> = names
        .iter()
        .map(|name| live::start(name, "", &format!("{MACHINE} {}", disk(&live::raw(dir.path(), name)))))
        .collect();
    guests.iter_mut().zip(names).for_each(|(guest, name)| live::wait(name, guest));
    let stays = guests.pop();
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            for guest in guests {
                sleep(Duration::from_millis(60));
                drop(guest);
            }
        });
        let mut scans = 0;
        while !killer.is_finished() || scans == 0 {
            let seen = live::scan(dir.path(), &[]);
            assert_eq!(live::guest(&seen, "end3")["disks"][0]["driver"], "virtio-blk");
            scans += 1;
        }
    });
    let seen = live::scan(dir.path(), &[]);
    let there =
        |short: &str| seen["guests"].as_array().unwrap().iter().any(|g| g["name"] == live::name(short).as_str());
    assert!(there("end3") && !there("end0"));
    drop(stays);
}

#[test]
#[ignore = "guest: needs QEMU"]
fn without_rights_it_says_what_it_could_not_read() {
    let dir = live::scratch();
    let image = live::raw(dir.path(), "rights");
    let socket = dir.path().join("qmp");
    let args = format!("{MACHINE} {} -qmp unix:{},server=on,wait=off", disk(&image), socket.display());
    let mut guest = live::start("rights", "", &args);
    live::wait("rights", &mut guest);
    // Another user, for whom the image is out of reach and the program is not.
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let program = home.path().join("vmio");
    fs::copy(env!("CARGO_BIN_EXE_vmio"), &program).unwrap();
    let state = home.path().join("state").display().to_string();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&program)
        .args(["scan", "--json", "--state", &state, &live::name("rights")])
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = live::guest(&seen, "rights");
    assert_eq!(found["disks"][0]["driver"], "virtio-blk", "the command line can be read by all");
    let unread = found["unread"].as_array().unwrap();
    assert!(!unread.is_empty(), "{found:#}");
    assert!(unread.iter().any(|u| u["mend"].as_str().unwrap().contains("root")), "{unread:?}");
    assert!(!fs::exists(&state).unwrap(), "nothing is made by looking");
}

#[test]
#[ignore = "guest: needs QEMU"]
fn command_lines_that_nobody_can_parse() {
    let dir = live::scratch();
    let long = format!("file={}", "x,,=".repeat(20_000));
    let garbage: [&[&str]; 6] = [
        &[],
        &["-drive"],
        &["-drive", &long, "-device", "virtio-blk-pci,drive=nobody"],
        &["-device", "{\"driver\": \"virtio-blk-pci\", \"drive\": [1, {", "-blockdev", "{}"],
        &["-name", "", "-smp", "-3,cores=99999999999999999999", "-m", "huge", "-machine", ",,,=,"],
        &["\u{1}\u{7f}", "--", "-", "-drive", "if=virtio", "-netdev", "tap", "-device", "=,=", "-object", "iothread"],
    ];
    let processes = garbage.map(|args| StandIn::start("qemu-system-x86_64", args));
    let seen = live::scan(dir.path(), &[]);
    for process in &processes {
        let found = seen["guests"].as_array().unwrap().iter().find(|g| g["pid"] == process.0.id());
        assert!(found.is_some_and(|g| g["name"].is_string()), "pid {}", process.0.id());
    }
}
