//! `vmio top` beside two guests on one ext4 of a slow disk: one appends and calls fsync, the other writes much. The
//! victim and the cause are named.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vmio_testbed::process::Companion;
use vmio_testbed::{scratch, skip};

use crate::help::disk::{Disk, Mounted, tool};
use crate::help::tmux::Terminal;

const VMIO: &str = env!("CARGO_BIN_EXE_vmio");
/// Limits of the root group, which has the kernel's writers, too. They are of version 1 alone.
const LIMIT: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// A disk that writes 10 MB a second, until this is dropped.
struct Slow(String);

impl Slow {
    fn new(device: &str) -> Slow {
        let name = Path::new(device).file_name().unwrap().to_str().unwrap();
        let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap().trim().to_owned();
        fs::write(LIMIT, format!("{number} 10000000")).unwrap();
        Slow(number)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = fs::write(LIMIT, format!("{} 0", self.0));
    }
}

/// A stand-in for a guest: fio with a hypervisor's command line, in one process.
fn guest(name: &str, file: &Path, job: &[&str]) -> Companion {
    let mut command = Command::new("fio");
    command.arg0("qemu-system-x86_64").args(["-name", &format!("guest={name}"), "--thread", "--rw=write"]);
    // Without space of its own beforehand: each write grows the file.
    command.args(["--fallocate=none", "--time_based", "--runtime=600"]).args(job);
    command.arg(format!("--filename={}", file.display()));
    Companion::start(command.stderr(Stdio::null()))
}

#[test]
#[ignore = "root"]
fn the_guest_that_waits_in_fsync_and_the_one_that_fills_the_page_cache_are_named() {
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("no fio");
    }
    if fs::metadata(LIMIT).is_err() {
        return skip("no limits of disks for the root group (blkio of version 1)");
    }
    let dir = scratch();
    let once = Command::new(VMIO)
        .args(["top", "--json", "--count", "1", "--interval", "0.2"])
        .env("VMIO_STATE", dir.path().join("state"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&once.stdout);
    if said.contains("no eBPF") || said.contains("waits in fsync are not seen") {
        return skip("no eBPF at ext4's tracepoints");
    }
    let disk = Disk::with(600, &["--direct-io=on"]);
    tool("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &disk.device]);
    // With blocks given when they are written, a commit writes the data of all files that grew.
    let at: PathBuf = disk.path("mounted");
    tool("mkdir", &[at.to_str().unwrap()]);
    tool("mount", &["-o", "nodelalloc", &disk.device, at.to_str().unwrap()]);
    let mounted = Mounted(at);
    let slow = Slow::new(&disk.device);
    let number = std::process::id();
    let (db, flood) = (format!("db{number}"), format!("fl{number}"));
    let victim = guest(&db, &mounted.0.join("db"), &["--bs=4k", "--fsync=1", "--rate_iops=10", "--size=64m"]);
    let cause = guest(&flood, &mounted.0.join("flood"), &["--bs=4m", "--thinktime=500ms", "--size=400m"]);
    let Some(terminal) = Terminal::start(dir.path(), (200, 50), &format!("exec {VMIO} top")) else { return };
    terminal.wait("the victim and the cause are named", |lines| {
        let told: Vec<&str> = lines.iter().skip(1).take_while(|l| !l.is_empty()).map(|l| l.trim()).collect();
        let told = told.join(" ");
        let named = told.contains("is slow while the page cache there is filled by guest")
            && told.contains(&format!("guest {flood} ("));
        let waits = lines.iter().any(|line| line.starts_with(&format!("{db} ")) && line.contains(" fsync "));
        named && told.contains(&format!("{db} waits ")) && told.contains("limit what guest") && waits
    });
    for keys in ["/", db.as_str(), "Enter", "Enter"] {
        terminal.press(&[keys]);
    }
    let page = format!("guest {db}");
    terminal.wait("the guest's page tells who uses its file system", |lines| {
        let of = |name: &str| lines.iter().any(|line| line.starts_with(&format!("guest {name} on ")));
        lines.first() == Some(&page) && lines.iter().any(|l| l.starts_with("FSYNC BY")) && of(&db) && of(&flood)
    });
    drop((terminal, slow, victim, cause));
    drop(mounted);
}
