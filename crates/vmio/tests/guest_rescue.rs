//! A guest whose image was deleted: what `vmio scan` prints to save it is pasted into a shell as it is, the guest is
//! started again, nothing that it wrote is missing, and the finding is gone. Real QEMU; what a guest writes is
//! written by QEMU's own `qemu-io` in the process, through the same image.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::help::live;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use vmio_testbed::process::Companion;
use vmio_testbed::{poll_for, poll_until, skip};

/// Asks a guest's monitor, and leaves it.
fn ask(socket: &Path, command: &str) -> Value {
    let mut stream = poll_for("the guest's monitor", || UnixStream::connect(socket));
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut answer = || loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if line.get("return").is_some() || line.get("error").is_some() {
            return line;
        }
    };
    stream.write_all(b"{\"execute\": \"qmp_capabilities\"}\n").unwrap();
    answer();
    stream.write_all(command.as_bytes()).unwrap();
    answer()
}

fn qemu_io(socket: &Path, command: &str) {
    let line = format!("qemu-io d0 \\\"{command}\\\"");
    let answer = ask(
        socket,
        &format!("{{\"execute\": \"human-monitor-command\", \"arguments\": {{\"command-line\": \"{line}\"}}}}\n"),
    );
    assert!(answer.to_string().contains("return"), "{answer}");
}

fn found<'a>(guest: &'a Value, rule: &str) -> Option<&'a Value> {
    guest["findings"].as_array().unwrap().iter().find(|f| f["rule"] == rule)
}

/// Deletes the image of a guest, and saves it as the finding says.
fn rescue(format: &str, cache: &str, monitor: bool) {
    let dir = live::scratch();
    let short = format!("{format}-{cache}-{monitor}");
    // A name that a shell takes apart.
    let image = dir.path().join(format!("it's one.{format}"));
    let made = Command::new("qemu-img").args(["create", "-q", "-f", format]).arg(&image).arg("64M").status().unwrap();
    assert!(made.success());
    fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&image, Some(1234), Some(4321)).unwrap();
    let socket = dir.path().join("qmp");
    let start = || {
        // A name that counts from a directory is none that can be pasted anywhere.
        let path = if monitor { socket.display().to_string() } else { "qmp".to_owned() };
        let qmp = format!("unix:{path},server=on,wait=off");
        let drive = format!("file={},format={format},if=none,id=d0,cache={cache}", image.display());
        let name = live::name(&short);
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-name", &name, "-S", "-nodefaults", "-display", "none", "-m", "64", "-accel", "tcg"]);
        command.args(["-drive", &drive, "-device", "virtio-blk-pci,drive=d0", "-qmp", &qmp]);
        Companion(command.current_dir(dir.path()).spawn().unwrap())
    };
    let mut guest = start();
    ask(&socket, "{\"execute\": \"cont\"}\n");
    qemu_io(&socket, "write -P 0x5a 1M 640k");
    fs::remove_file(&image).unwrap();
    qemu_io(&socket, "write -P 0xa5 8M 640k");
    // What the reader is told to do first: what is in the guest's memory is written and flushed.
    qemu_io(&socket, "flush");
    let seen = live::scan(dir.path(), &[]);
    let finding = found(live::guest(&seen, &short), "deleted-file").unwrap_or_else(|| panic!("{seen:#}")).clone();
    assert_eq!(finding["severity"], "severe");
    let change = finding["change"]["qemu"].as_str().unwrap();
    assert_eq!(change.contains("socat"), monitor, "{change}");
    if monitor && Command::new("socat").arg("-V").output().is_err() {
        return skip("no socat here");
    }
    let pasted = Command::new("bash").args(["-c", change]).output().unwrap();
    assert!(pasted.status.success(), "{change}\n{}", String::from_utf8_lossy(&pasted.stderr));
    poll_until("QEMU ends", || guest.0.try_wait().unwrap().is_some());
    let now = fs::metadata(&image).unwrap();
    assert_eq!((now.mode() & 0o7777, now.uid(), now.gid()), (0o640, 1234, 4321));
    if format == "qcow2" {
        let checked = Command::new("qemu-img").args(["check", "-q", "-f", format]).arg(&image).status().unwrap();
        assert!(checked.success(), "{short}");
    }
    for read in ["read -P 0x5a 1M 640k", "read -P 0xa5 8M 640k"] {
        let read = Command::new("qemu-io").args(["-r", "-f", format, "-c", read]).arg(&image).output().unwrap();
        let said = String::from_utf8_lossy(&read.stdout).into_owned();
        assert!(read.status.success() && !said.contains("failed"), "{short}: {said}");
    }
    let _ = fs::remove_file(&socket);
    let guest = start();
    ask(&socket, "{\"execute\": \"query-status\"}\n");
    let seen = live::scan(dir.path(), &[]);
    assert_eq!(found(live::guest(&seen, &short), "deleted-file"), None);
    drop(guest);
}

#[test]
#[ignore = "guest: needs QEMU"]
fn what_is_printed_for_a_deleted_image_saves_it() {
    rescue("qcow2", "writeback", true);
    rescue("raw", "none", true);
    rescue("qcow2", "none", false);
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_relative_image_is_found_where_qemu_was() {
    let dir = live::scratch();
    let image = live::raw(dir.path(), "relative");
    let other = dir.path().join("elsewhere");
    fs::create_dir(&other).unwrap();
    let pid = dir.path().join("pid");
    let args = "-S -nodefaults -display none -m 64 -accel tcg -device virtio-blk-pci,drive=d0 -drive \
                file=relative.raw,format=raw,if=none,id=d0,cache=none";
    let name = live::name("relative");
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-name", &name]).args(args.split_whitespace()).current_dir(dir.path());
    let stays = Companion(command.spawn().unwrap());
    // This one leaves its directory for / (os_daemonize of QEMU).
    let daemon = live::name("daemon");
    let args = args.replace("cache=none", "cache=none,file.locking=off");
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-name", &daemon, "-daemonize", "-pidfile"]).arg(&pid).args(args.split_whitespace());
    assert!(command.current_dir(dir.path()).status().unwrap().success());
    let daemon: u32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let opened = || fs::read_dir(format!("/proc/{}/fd", stays.pid())).unwrap().flatten();
    poll_until("QEMU has its disk open", || opened().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == image)));
    let seen = live::scan(dir.path(), &[]);
    let disks = ["relative", "daemon"].map(|short| live::guest(&seen, short)["disks"][0].clone());
    let _ = Command::new("kill").arg(daemon.to_string()).status();
    for disk in disks {
        assert_eq!(disk["place"]["source"], image.to_str().unwrap(), "{disk:#}");
        assert_eq!((&disk["details"]["storage"], &disk["sparse"]), (&"file".into(), &false.into()), "{disk:#}");
    }
}
