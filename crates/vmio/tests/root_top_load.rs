//! `vmio top` on a terminal beside real loads, on a small screen and a large one: the verdict, the guest that is told
//! first, and the keys.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vmio_testbed::process::Companion;
use vmio_testbed::{scratch, skip};

use crate::help::guarded::{TestHost, ip, qemu};
use crate::help::tmux::Terminal;

pub const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];
pub const VMIO: &str = env!("CARGO_BIN_EXE_vmio");

/// A sector that computes for ever: `jmp $`.
pub const SPIN: &[u8] = &[0xeb, 0xfe];
/// A sector that reads the first 32 KiB of its disk for ever: `int 13h` with AH = 42h, and what it reads and where to.
pub const READ: &[u8] = &[
    0x31, 0xc0, 0x8e, 0xd8, // xor ax, ax; mov ds, ax
    0xbe, 0x12, 0x7c, 0xb4, 0x42, 0xb2, 0x80, 0xcd, 0x13, // mov si, 7c12h; mov ah, 42h; mov dl, 80h; int 13h
    0xeb, 0xf5, 0x90, 0x90, 0x90, // jmp to mov si
    0x10, 0x00, 0x40, 0x00, 0x00, 0x00, 0x00, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, // 64 sectors from 0 on, to 1000h:0
];

/// A name that no other guest has, and that is shown whole.
pub fn name(short: &str) -> String {
    format!("{short}{}", std::process::id())
}

/// A sector that boots into this code.
pub fn sector(code: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x5au8; 512];
    bytes[..code.len()].copy_from_slice(code);
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

/// An image that boots into this code.
fn image(dir: &Path, name: &str, code: &[u8]) -> PathBuf {
    let mut bytes = sector(code);
    bytes.resize(1 << 20, 0x5a);
    let path = dir.join(format!("{name}.raw"));
    fs::write(&path, bytes).unwrap();
    path
}

/// A guest that runs this code, with names for its threads or without.
pub fn guest(dir: &Path, name: &str, code: &[u8], named: bool) -> Companion {
    guest_with(dir, name, code, named, &[])
}

/// The same with these further arguments.
pub fn guest_with(dir: &Path, name: &str, code: &[u8], named: bool, more: &[&str]) -> Companion {
    let threads = if named { ",debug-threads=on" } else { "" };
    let drive = format!("file={},cache=none", image(dir, name, code).display());
    boot(&format!("guest={name}{threads}"), &drive, more)
}

/// A guest that boots from this drive, and has these further arguments.
pub fn boot(name: &str, drive: &str, more: &[&str]) -> Companion {
    let drive = format!("{drive},format=raw,if=none,id=d0");
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-name", name, "-accel", "tcg", "-m", "64", "-smp", "1"]);
    command.args(["-nodefaults", "-display", "none", "-drive", &drive, "-device", "virtio-blk-pci,drive=d0"]);
    Companion::start(command.args(more).stderr(Stdio::null()))
}

/// The words of a guest's line.
fn row<'a>(lines: &'a [String], name: &str) -> Option<Vec<&'a str>> {
    let words = |line: &'a String| line.split_whitespace().collect::<Vec<_>>();
    lines.iter().map(words).find(|words| words.first() == Some(&name))
}

/// Whether top traces the block layer here.
pub fn traces(dir: &Path) -> bool {
    let once = Command::new(VMIO)
        .args(["top", "--json", "--count", "1", "--interval", "0.2"])
        .env("VMIO_STATE", dir.join("state"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    !String::from_utf8_lossy(&once.stdout).contains("no eBPF")
}

/// A percentage of a cell, whether guessed or not.
fn percent(cell: &str) -> f64 {
    cell.trim_start_matches('~').parse().unwrap_or(0.0)
}

/// The verdicts as one text.
fn verdicts(lines: &[String]) -> String {
    let told = lines.iter().skip(1).take_while(|line| !line.is_empty());
    told.map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

#[test]
#[ignore = "root"]
fn a_guest_that_fills_its_processor_is_named_and_first() {
    let dir = scratch();
    for named in [true, false] {
        let name = name(if named { "spin" } else { "dumb" });
        let guest = guest(dir.path(), &name, SPIN, named);
        for size in SIZES {
            let Some(terminal) = Terminal::start(dir.path(), size, &format!("exec {VMIO} top --no-ebpf")) else {
                return;
            };
            let lines = terminal.wait("the guest's processor is full", |lines| {
                // A first look may have come before the guest had its processors' threads.
                let told = |cell: &str| cell.starts_with('~') == guest.threads("CPU ").is_empty();
                let full = row(lines, &name).is_some_and(|words| percent(words[1]) > 60.0 && told(words[1]));
                full && verdicts(lines).contains(&format!("guest {name}"))
            });
            assert!(row(&lines, "HOST").is_some_and(|words| words[2].starts_with("CPU")), "{lines:#?}");
        }
    }
}

#[test]
#[ignore = "root"]
fn a_host_whose_processors_are_full_is_saturated() {
    let dir = scratch();
    let cpus = std::thread::available_parallelism().unwrap().get();
    // Nice to the tests beside it: full is full.
    let spin = |_| Companion::start(Command::new("nice").args(["-n", "19", "sh", "-c", "while :; do :; done"]));
    let _busy: Vec<Companion> = (0..cpus).map(spin).collect();
    for size in SIZES {
        let Some(terminal) = Terminal::start(dir.path(), size, &format!("exec {VMIO} top --no-ebpf")) else { return };
        terminal.wait("the host is called saturated, by processes", |lines| {
            let told = verdicts(lines);
            told.contains("host CPU is saturated") && told.contains("process")
        });
    }
}

#[test]
#[ignore = "root"]
fn a_flood_of_a_disk_is_named_with_its_victim() {
    let dir = scratch();
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("no fio");
    }
    if !traces(dir.path()) {
        return skip("no eBPF");
    }
    let name = name("read");
    let _guest = guest(dir.path(), &name, READ, true);
    for size in SIZES {
        let Some(terminal) = Terminal::start(dir.path(), size, &format!("exec {VMIO} top")) else { return };
        terminal.wait("the guest reads", |lines| row(lines, &name).is_some());
        let file = dir.path().join("flood");
        let mut fio = Command::new("fio");
        fio.args(["--name=flood", "--rw=randread", "--bs=64k", "--iodepth=32", "--ioengine=libaio", "--direct=1"]);
        // One process, which ends when it is killed.
        fio.arg("--thread");
        fio.args(["--size=64m", "--time_based", "--runtime=600"]).arg(format!("--filename={}", file.display()));
        let flood = Companion::start(fio.stderr(Stdio::null()));
        terminal.wait("the flood is named", |lines| {
            let told = verdicts(lines);
            told.contains("saturated by") && told.contains("(fio)")
        });
        drop(flood);
    }
}

#[test]
#[ignore = "root"]
fn what_a_guest_sends_is_shown() {
    TestHost::with(|host| {
        ip("tuntap add tap0 mode tap");
        ip("link set tap0 master br0 up");
        let name = name("wire");
        let _guest = qemu(&name, "6f6b1c1e-0c2f-4b7e-9d0a-0b1f6a6f0009", "tap0", "52:54:00:00:00:09");
        for size in SIZES {
            let command = format!("exec {VMIO} top --no-ebpf --columns network");
            let Some(terminal) = Terminal::start(host.dir.path(), size, &command) else { return };
            // CPU%, RXMb, TXMb: it sends 8 Mbit/s.
            terminal.wait("the guest sends", |lines| {
                row(lines, &name).is_some_and(|words| words.len() > 3 && percent(words[3]) > 1.0)
            });
        }
    });
}

#[test]
#[ignore = "root"]
fn keys_do_what_the_help_says_and_the_terminal_is_restored() {
    let dir = scratch();
    let name = name("keys");
    let _guest = guest(dir.path(), &name, SPIN, true);
    let [before, after] = ["before", "after"].map(|name| dir.path().join(name));
    for size in SIZES {
        let _ = fs::remove_file(&after);
        let command = format!(
            "stty -a > {}; {VMIO} top --no-ebpf --interval 0.5 --filter {name}; stty -a > {}; sleep 600",
            before.display(),
            after.display()
        );
        let Some(terminal) = Terminal::start(dir.path(), size, &command) else { return };
        terminal.wait("the guest is there", |lines| row(lines, &name).is_some());
        let has = |text: &'static str| move |lines: &[String]| lines.iter().any(|line| line.contains(text));
        terminal.press(&["?"]);
        terminal.wait("the help", has("open the page of the guest"));
        terminal.press(&["Escape"]);
        // The help names the columns, too: only the table has a row of titles.
        terminal.wait("the table again", |lines| row(lines, "GUEST").is_some());
        terminal.press(&["Tab"]);
        terminal.wait("the columns of disks", |lines| {
            row(lines, "GUEST").is_some_and(|titles| titles.contains(&"p99") && !titles.contains(&"WAIT%"))
        });
        terminal.press(&["Down"]);
        terminal.press(&["Enter"]);
        let page = format!("guest {name}");
        let lines = terminal.wait("the guest's page", |lines| {
            lines.first() == Some(&page) && lines.iter().any(|line| line.starts_with("THREAD"))
        });
        assert!(lines.iter().any(|line| line.starts_with("CPU %") && line.contains('█')), "{lines:#?}");
        terminal.press(&["Escape"]);
        terminal.wait("the table after the page", |lines| row(lines, &name).is_some());
        terminal.press(&["q"]);
        vmio_testbed::poll_until("it has ended", || fs::read(&after).is_ok_and(|text| !text.is_empty()));
        assert_eq!(fs::read_to_string(&before).unwrap(), fs::read_to_string(&after).unwrap());
    }
}
