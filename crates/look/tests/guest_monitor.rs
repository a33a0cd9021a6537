//! Monitors of running QEMU processes: free ones are queried, others are left alone.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use vmio_look::{HostView, kinds};
use vmio_model::facts::{Balloon, Guest, Unread};
use vmio_model::waterfall::hypervisor::HypervisorCounts;
use vmio_node::Local;
use vmio_testbed::net::listens;
use vmio_testbed::{poll_for, poll_until};

/// A QEMU of the test's own, ended with it.
struct Qemu {
    child: Child,
    dir: tempfile::TempDir,
}

impl Qemu {
    /// Starts an idle one with a disk and these monitors (`{}` is its directory).
    fn start(monitors: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk.raw");
        std::fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        let at = dir.path().display().to_string();
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg", "-S", "-display", "none", "-nodefaults", "-machine", "q35", "-m", "64"]);
        command.args(["-name", &format!("look-{}", std::process::id()), "-smp", "2", "-object", "iothread,id=io0"]);
        command.args(["-drive", &format!("file={},format=raw,if=none,id=d0,cache=none,aio=native", disk.display())]);
        command.args(["-device", "virtio-blk-pci,drive=d0,id=vd0,iothread=io0"]);
        command.args(monitors.iter().map(|m| m.replace("{}", &at)));
        let said = std::fs::File::create(dir.path().join("said")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap();
        let qemu = Self { child, dir };
        poll_until("QEMU's monitor listens", || listens(&qemu.socket()));
        qemu
    }

    /// Waits until it has started and its monitor answers.
    fn settled(self) -> Self {
        let mut first = client(&self.socket());
        assert!(run(&mut first, r#"{"execute": "qmp_capabilities"}"#).contains("return"));
        self
    }

    /// Scans until the monitor is free and answers in time: QEMU notices a disconnection late, and a busy machine is
    /// slow. No scan occupies it for long.
    fn look_until_answered(&self) -> Guest {
        poll_for("its monitor answers in time", || {
            let guest = self.look();
            let unread: Vec<String> = monitor_unread(&guest).iter().map(|unread| unread.why.clone()).collect();
            if unread.is_empty() { Ok(guest) } else { Err(unread) }
        })
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("m.sock")
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }

    fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().count()
    }

    /// The guest as a scan sees it.
    fn look(&self) -> Guest {
        let node = Local::new();
        let look = HostView::new(&node);
        let kind = kinds::find("qemu").unwrap();
        let found = kind.running(&look).guests;
        let mut guest = found.into_iter().find(|g| g.pid == Some(self.child.id())).unwrap();
        kind.ask(&look, &mut guest);
        guest
    }

    /// What it counted of its disks; otherwise why that is not read.
    fn counts(&self) -> Result<HypervisorCounts, Vec<String>> {
        let node = Local::new();
        let look = HostView::new(&node);
        let kind = kinds::find("qemu").unwrap();
        let guest = kind.running(&look).guests.into_iter().find(|g| g.pid == Some(self.child.id())).unwrap();
        let counts = kind.counts(&look, &guest).unwrap();
        counts.map_err(|unread| unread.into_iter().map(|unread| unread.why).collect())
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const FREE: &[&str] = &["-qmp", "unix:{}/m.sock,server=on,wait=off"];

/// Milliseconds.
fn held(guest: &Guest) -> Option<f64> {
    Some(guest.monitor_held_seconds? * 1e3)
}

fn monitor_unread(guest: &Guest) -> Vec<&Unread> {
    guest.unread.iter().filter(|u| u.what.starts_with("monitor ")).collect()
}

/// A client that stays connected: returns once QEMU has greeted it.
fn client(socket: &Path) -> BufReader<UnixStream> {
    let mut stream = BufReader::new(UnixStream::connect(socket).unwrap());
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert!(line.contains("QMP"), "{line}");
    stream
}

/// Runs a command as the guest's owner.
fn run(client: &mut BufReader<UnixStream>, command: &str) -> String {
    client.get_mut().write_all(format!("{command}\n").as_bytes()).unwrap();
    loop {
        let mut line = String::new();
        client.read_line(&mut line).unwrap();
        if line.contains("\"return\"") || line.contains("\"error\"") {
            return line;
        }
    }
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_free_monitor_is_asked_and_left_as_it_was() {
    let qemu = Qemu::start(FREE).settled();
    let guest = qemu.look_until_answered();
    assert_eq!(monitor_unread(&guest), Vec::<&Unread>::new());
    assert!(held(&guest).unwrap() > 0.0, "{:?}", guest.ids);
    assert!(guest.version.as_deref().unwrap().starts_with("QEMU "));
    let disk = &guest.disks[0];
    assert_eq!((disk.cache.as_deref(), *disk.iothread), (Some("none"), Some(true)));
    assert!(disk.read()["cache"].contains("query-block"), "{:?}", disk.read());
    assert_eq!(disk.details.virtual_bytes, Some(64 << 20));
    let roles = |role: &str| guest.processors.as_ref().unwrap().threads.iter().filter(|t| t.role == role).count();
    assert_eq!((roles("vcpu"), roles("iothread")), (2, 1));
    // The owner changes a limit, and the next scan sees it. The scan takes nothing from the owner.
    let mut owner = client(&qemu.socket());
    run(&mut owner, r#"{"execute": "qmp_capabilities"}"#);
    let limit = r#""bps": 0, "bps_rd": 0, "bps_wr": 0, "iops": 123, "iops_rd": 0, "iops_wr": 0"#;
    let done = run(
        &mut owner,
        &format!(r#"{{"execute": "block_set_io_throttle", "arguments": {{"device": "d0", {limit}}}}}"#),
    );
    assert!(done.contains("return"), "{done}");
    assert!(run(&mut owner, r#"{"execute": "query-status"}"#).contains("\"running\": false"));
    let busy = qemu.look();
    assert!(monitor_unread(&busy)[0].why.contains("in use"), "{:?}", busy.unread);
    assert_eq!(held(&busy), None);
    drop(owner);
    let again = qemu.look_until_answered();
    assert_eq!(*again.disks[0].details.limits, ["123 IOPS by QEMU's throttle"]);
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_that_waits_for_its_owner_is_not_started() {
    let qemu = Qemu::start(&["-qmp", "unix:{}/m.sock,server=on,wait=on"]);
    poll_for("QEMU says that it waits", || {
        let said = std::fs::read_to_string(qemu.dir.path().join("said")).unwrap();
        if said.contains("waiting for connection on") { Ok(()) } else { Err(said) }
    });
    let threads = qemu.threads();
    let guest = qemu.look();
    assert!(monitor_unread(&guest)[0].why.contains("wait=on"), "{:?}", guest.unread);
    // Nothing happens after it.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(qemu.threads(), threads);
    // It still waits: its owner is greeted, and only then vCPUs appear.
    drop(client(&qemu.socket()));
    poll_until("vCPUs appear", || qemu.threads() > threads);
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_that_is_stopped_is_named_and_not_asked() {
    let qemu = Qemu::start(FREE).settled();
    qemu.look_until_answered();
    qemu.signal("-STOP");
    let guest = qemu.look();
    qemu.signal("-CONT");
    assert_eq!(held(&guest), None);
    assert!(monitor_unread(&guest)[0].why.contains("stopped"), "{:?}", guest.unread);
    assert_eq!(guest.disks[0].cache.as_deref(), Some("none"));
    // The owner's monitor is as before.
    let mut owner = client(&qemu.socket());
    assert!(run(&mut owner, r#"{"execute": "qmp_capabilities"}"#).contains("return"));
}

#[test]
#[ignore = "guest: needs QEMU"]
fn a_guest_that_is_killed_meanwhile_is_told_so() {
    let mut qemu = Qemu::start(FREE).settled();
    let node = Local::new();
    let look = HostView::new(&node);
    let kind = kinds::find("qemu").unwrap();
    let mut guest = kind.running(&look).guests.into_iter().find(|g| g.pid == Some(qemu.child.id())).unwrap();
    qemu.child.kill().unwrap();
    qemu.child.wait().unwrap();
    kind.ask(&look, &mut guest);
    assert!(!monitor_unread(&guest).is_empty(), "{:?}", guest.unread);
    assert_eq!((held(&guest), guest.disks[0].cache.as_deref()), (None, Some("none")));
}

#[test]
#[ignore = "guest: needs QEMU"]
fn counters_of_disks_are_read_where_the_monitor_is_free() {
    let qemu = Qemu::start(FREE).settled();
    // It has not run yet.
    assert_eq!(poll_for("its monitor answers in time", || qemu.counts()), HypervisorCounts::default());
    let _other = client(&qemu.socket());
    let refused = qemu.counts().unwrap_err();
    assert!(refused[0].contains("in use"), "{refused:?}");
    let without = Qemu::start(&["-chardev", "socket,id=m,path={}/m.sock,server=on,wait=off", "-mon", "m"]);
    assert_eq!(without.counts(), Err(vec![]), "a monitor for people is none");
}

/// A balloon's size is told, and nobody begins to poll its driver for that.
#[test]
#[ignore = "guest: needs QEMU"]
fn a_balloon_is_read_and_its_driver_left_alone() {
    let qemu = Qemu::start(&[FREE, &["-device", "virtio-balloon-pci,id=balloon0"]].concat()).settled();
    let balloon = poll_for("its monitor tells the balloon", || {
        let seen = qemu.look();
        seen.processors.and_then(|own| *own.balloon).ok_or(seen.unread)
    });
    assert_eq!(balloon, Balloon { actual_bytes: 64 << 20, statistics: None });
    let mut owner = client(&qemu.socket());
    run(&mut owner, r#"{"execute": "qmp_capabilities"}"#);
    let of = r#""path": "/machine/peripheral/balloon0", "property": "guest-stats-polling-interval""#;
    let polled = run(&mut owner, &format!("{{\"execute\": \"qom-get\", \"arguments\": {{{of}}}}}"));
    assert!(polled.contains("\"return\": 0"), "{polled}");
}
