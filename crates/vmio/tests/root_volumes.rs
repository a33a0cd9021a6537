//! Volumes of guests that are QEMUs without an operating system: what a guest flushed is there after its server, or
//! vmio, was killed, and one guest at a time has a volume.
#![allow(clippy::unwrap_used)]

use crate::help::disk::tool;
use crate::help::schema::fits;
use crate::help::state_dir::{Ended, StateDir, signal};

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;
use vmio_node::qmp::Qmp;
use vmio_node::{Local, find_program};
use vmio_testbed::process::Companion;
use vmio_testbed::{poll_for, skip};

/// A guest that is halted before its first instruction, with a SCSI controller, and its second monitor.
fn guest(dir: &Path, name: &str) -> (Companion, Qmp) {
    let monitor = |at: &Path| format!("unix:{},server=on,wait=off", at.display());
    let [vmio, own] = ["vmio", "own"].map(|of| dir.join(format!("{name}.{of}")));
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-name", &format!("guest={name},debug-threads=on"), "-S", "-machine", "q35", "-accel", "tcg"]);
    command.args(["-m", "64", "-nodefaults", "-display", "none", "-device", "virtio-scsi-pci"]);
    command.args(["-qmp", &monitor(&vmio), "-qmp", &monitor(&own)]);
    let companion = Companion::start(command.stderr(Stdio::null()));
    let stream = poll_for("the guest's monitor", || UnixStream::connect(&own));
    (companion, Qmp::over(name, stream).unwrap())
}

fn volume(state: &StateDir, args: &[&str]) -> Ended {
    state.vmio(&[&["volume"], args].concat())
}

fn serve(state: &StateDir) -> Companion {
    Companion(state.spawn(&mut state.command(&["volume", "serve"])))
}

/// Attaches, as soon as the pool is served; what the guest has it as.
fn attach(state: &StateDir, guest: &str) -> String {
    let attach = ["attach", "data", guest, "--driver", "scsi", "--json"];
    let told = poll_for("the volume is attached", || {
        let ended = volume(state, &attach);
        if ended.code == Some(0) { Ok(ended) } else { Err(ended.err) }
    });
    fits("volume", &told.out);
    let told = told.json();
    assert_eq!((&told["volume"]["guest"], &told["volume"]["serial"]), (&json!(guest), &json!("data")), "{told}");
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(state.path().join("volumes/data.attached")).unwrap()).unwrap();
    format!("vmio-{}", record["export"].as_str().unwrap())
}

/// The guest's disk writes a MiB of this byte and flushes, which waits while its server is away; then the volume has
/// it.
fn write(qmp: &mut Qmp, disk: &str, (mib, byte): (usize, u8), pool: &Path) {
    for request in [format!("write -P {byte} {mib}M 1M"), "flush".to_owned()] {
        let line = format!("qemu-io -d {disk} \"{request}\"");
        qmp.execute("human-monitor-command", json!({"command-line": line})).unwrap();
    }
    let bytes = fs::read(pool.join("data.raw")).unwrap();
    assert!(bytes[mib << 20..(mib + 1) << 20].iter().all(|found| *found == byte), "MiB {mib}");
}

#[test]
#[ignore = "root"]
fn a_volume_grows_while_a_guest_has_it() {
    if find_program(&Local::new(), "qemu-nbd").is_none() {
        return skip("no qemu-nbd here: apt install qemu-utils");
    }
    let state = StateDir::new();
    let monitors = vmio_testbed::scratch();
    let pool = state.path().join("volumes");
    volume(&state, &["create", "data", "4MiB"]).with(0);
    let (_guest, mut qmp) = guest(monitors.path(), "volgrow");
    let mut serving = serve(&state);
    let disk = attach(&state, "volgrow");
    write(&mut qmp, &disk, (3, 7), &pool);
    volume(&state, &["resize", "data", "8MiB"]).with(0).says(&["resized data 8 MiB, attached to volgrow"]);
    // Behind the end that it had.
    write(&mut qmp, &disk, (6, 9), &pool);
    let bytes = fs::read(pool.join("data.raw")).unwrap();
    let every: Vec<u8> = bytes.iter().step_by(1 << 20).copied().collect();
    assert_eq!(every, [0, 0, 0, 7, 0, 0, 9, 0]);
    volume(&state, &["detach", "data"]).with(0);
    signal(serving.pid(), Signal::TERM);
    assert!(serving.0.wait().unwrap().success());
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn what_a_guest_flushed_outlives_its_server_and_one_guest_has_a_volume() {
    if find_program(&Local::new(), "qemu-nbd").is_none() {
        return skip("no qemu-nbd here: apt install qemu-utils");
    }
    let state = StateDir::new();
    let monitors = vmio_testbed::scratch();
    let pool = state.path().join("volumes");
    volume(&state, &["create", "data", "4MiB"]).with(0);
    let (_one, mut one_qmp) = guest(monitors.path(), "volone");
    let (two, mut two_qmp) = guest(monitors.path(), "voltwo");
    volume(&state, &["attach", "data", "volone"]).with(3).says(&["nobody serves the volumes", "vmio volume serve"]);
    let first = serve(&state);
    let disk = attach(&state, "volone");
    write(&mut one_qmp, &disk, (0, 7), &pool);
    let can = |guest: &str| volume(&state, &["attach", "data", guest, "--dry-run"]);
    can("volone").with(0).says(&["can be attached: data 4 MiB, attached to volone"]);
    can("voltwo").with(3).says(&["attached to guest volone"]);
    // Two writers, and a snapshot while it is written.
    volume(&state, &["attach", "data", "voltwo"]).with(3).says(&["attached to guest volone: detach it first"]);
    volume(&state, &["snapshot", "data", "copy"]).with(3).says(&["attached to guest volone"]);
    let again = volume(&state, &["serve"]).with(3);
    again.says(&["another vmio serves the volumes"]);
    // Its server is killed, then vmio itself.
    let is_server = |line: &str| line.split(' ').next().is_some_and(|program| program.ends_with("qemu-nbd"));
    let mut servers = state.processes("qemu-nbd");
    servers.retain(|(_, line)| is_server(line));
    assert_eq!(servers.len(), 1, "{servers:?}");
    signal(servers[0].0, Signal::KILL);
    write(&mut one_qmp, &disk, (1, 9), &pool);
    signal(first.pid(), Signal::KILL);
    drop(first);
    let mut second = serve(&state);
    write(&mut one_qmp, &disk, (2, 11), &pool);
    let listed = volume(&state, &["list", "--json"]).with(0);
    fits("volume-list", &listed.out);
    assert_eq!(listed.json()["volumes"][0]["guest"], "volone");
    volume(&state, &["detach", "data"]).with(0).says(&["detached data 4 MiB"]);
    volume(&state, &["detach", "data"]).with(2).says(&["attached to no guest"]);
    // Another guest has the same, until it ends.
    let disk = attach(&state, "voltwo");
    write(&mut two_qmp, &disk, (3, 13), &pool);
    drop(two);
    let disk = attach(&state, "volone");
    write(&mut one_qmp, &disk, (0, 15), &pool);
    volume(&state, &["detach", "data"]).with(0);
    let bytes = fs::read(pool.join("data.raw")).unwrap();
    let every: Vec<u8> = bytes.iter().step_by(1 << 20).copied().collect();
    assert_eq!(every, [15, 9, 11, 13]);
    volume(&state, &["resize", "data", "8MiB"]).with(0);
    volume(&state, &["delete", "data", "--yes"]).with(0);
    signal(second.pid(), Signal::TERM);
    assert!(second.0.wait().unwrap().success());
    state.is_clean();
}

/// A key of a host, in a directory of its own.
fn key(at: &Path, host: &str, byte: &str) -> String {
    let dir = at.join(format!("{host}-{byte}"));
    fs::create_dir(&dir).unwrap();
    let file = dir.join("keys.psk");
    fs::write(&file, format!("{host}:{}\n", byte.repeat(32))).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file.display().to_string()
}

/// Three hosts that are state directories of this one: that of the pool, that whose key it is, and a third one.
#[test]
#[ignore = "root"]
fn one_guest_of_another_host_has_a_volume_by_its_key() {
    if find_program(&Local::new(), "qemu-nbd").is_none() {
        return skip("no qemu-nbd here: apt install qemu-utils");
    }
    let [here, there, third] = [StateDir::new(), StateDir::new(), StateDir::new()];
    let scratch = vmio_testbed::scratch();
    let [right, wrong] = ["5a", "5b"].map(|byte| key(scratch.path(), "web2", byte));
    let other = key(scratch.path(), "web3", "5a");
    let pool = here.path().join("volumes");
    volume(&here, &["create", "data", "4MiB"]).with(0);
    tool("ip", &["link", "set", "lo", "up"]);
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (_one, mut one) = guest(scratch.path(), "volnet1");
    let (_two, _) = guest(scratch.path(), "volnet2");
    let serving = ["serve", "data", "--listen", &at, "--tls-key"];
    volume(&here, &["serve", "data", "--listen", "0.0.0.0:10809"]).with(2).says(&["help: --tls-key FILE"]);
    let serve = || {
        let args = [&["volume"], &serving[..], &[&*right]].concat();
        Companion(here.spawn(&mut here.command(&args)))
    };
    let first = serve();
    let from = format!("nbd://{at}");
    let attach = |state: &StateDir, guest: &str, key: &str| {
        volume(state, &["attach", "data", guest, "--driver", "scsi", "--from", &from, "--tls-key", key])
    };
    let refused = poll_for("the server refuses another key", || {
        let ended = attach(&there, "volnet1", &wrong);
        if ended.err.contains("does not answer") { Err(ended.err) } else { Ok(ended) }
    });
    refused.with(1);
    assert_eq!(volume(&there, &["list", "--json"]).with(0).json()["remote"], json!([]));
    let attached = poll_for("the server lets go of the one that it refused", || {
        let ended = attach(&there, "volnet1", &right);
        if ended.code == Some(0) { Ok(ended) } else { Err(ended.err) }
    });
    attached.says(&["attached data of", "to volnet1, serial data"]);
    let listed = volume(&there, &["list", "--json"]).with(0);
    fits("volume-list", &listed.out);
    assert_eq!(listed.json()["remote"][0]["guest"], "volnet1");
    let record = fs::read(there.path().join("volumes/data.attached")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let disk = format!("vmio-{}", record["export"].as_str().unwrap());
    write(&mut one, &disk, (0, 7), &pool);
    // Another guest there, a third host that has the key, and this host.
    attach(&there, "volnet2", &right).with(3).says(&["attached to guest volnet1"]);
    attach(&third, "volnet2", &right).with(3).says(&["one client at a time"]);
    volume(&here, &["delete", "data", "--yes"]).with(3).says(&["is served to host web2"]);
    volume(&here, &["detach", "data"]).with(3).says(&["is served to host web2"]);
    // Its server and vmio are killed: the volume stays that host's.
    signal(first.pid(), Signal::KILL);
    drop(first);
    let args = [&serving[..], &[&*other]].concat();
    volume(&here, &args).with(3).says(&["volume data is host web2's"]);
    let mut second = serve();
    write(&mut one, &disk, (1, 9), &pool);
    volume(&there, &["detach", "data"]).with(0).says(&["detached data of"]);
    attach(&third, "volnet2", &right).with(0);
    volume(&third, &["detach", "data"]).with(0);
    signal(second.pid(), Signal::TERM);
    assert!(second.0.wait().unwrap().success());
    volume(&here, &["delete", "data", "--yes"]).with(3).says(&["volume data is host web2's"]);
    volume(&here, &["detach", "data"]).with(0);
    volume(&here, &["delete", "data", "--yes"]).with(0);
    [here, there, third].iter().for_each(StateDir::is_clean);
}
