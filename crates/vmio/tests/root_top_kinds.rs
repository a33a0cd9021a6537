//! `vmio top` on a terminal beside loads that no column of processors, disks and networks shows: a slow flush, a limit
//! of memory, a CPU quota, a card that nobody reads. Each is in the guest's line and on its page, small and large.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use vmio_node::loops::loop_devices;
use vmio_testbed::process::Companion;
use vmio_testbed::{net, poll_until, scratch, skip};

use crate::help::disk::tool;
use crate::help::silent::Silent;
use crate::help::tmux::Terminal;
use crate::root_top_load::{SIZES, SPIN, VMIO, boot, guest, name, sector, traces};

/// A sector that writes another one of its disk for ever: `int 13h` with AH = 43h.
const WRITE: &[u8] = &[
    0x31, 0xc0, 0x8e, 0xd8, // xor ax, ax; mov ds, ax
    0xbe, 0x12, 0x7c, 0xb4, 0x43, 0xb2, 0x80, 0xcd, 0x13, // mov si, 7c12h; mov ah, 43h; mov dl, 80h; int 13h
    0xeb, 0xf5, 0x90, 0x90, 0x90, // jmp to mov si
    0x10, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x10, 64, 0, 0, 0, 0, 0, 0, 0, // 1 sector at 64, from 1000h:0
];
/// A sector that does nothing: `cli`, `hlt`, `jmp` to `hlt`.
const IDLE: &[u8] = &[0xfa, 0xf4, 0xeb, 0xfd];

/// Waits until the guest's line says that it waits for this, and its page says all of these; then those further down.
/// In terminals of both sizes.
#[track_caller]
fn tells(dir: &Path, (name, options): (&str, &str), waits_for: &str, page: &[&str], below: &[&str]) {
    let command = format!("exec {VMIO} top --filter {name} {options}");
    let started: Option<Vec<Terminal>> = SIZES.iter().map(|size| Terminal::start(dir, *size, &command)).collect();
    let Some(terminals) = started else { return };
    for terminal in &terminals {
        terminal.wait(&format!("it waits for {waits_for}"), |lines| {
            lines.iter().any(|line| line.starts_with(name) && line.contains(waits_for))
        });
        terminal.press(&["Enter"]);
        for text in page {
            terminal.wait(&format!("the guest's page says: {text}"), |lines| says(lines, text));
        }
        terminal.press(&["NPage"]);
        for text in below {
            terminal.wait(&format!("the guest's page says further down: {text}"), |lines| says(lines, text));
        }
    }
}

/// Whether the screen has this text, wherever a line ends.
fn says(lines: &[String], text: &str) -> bool {
    let all: Vec<&str> = lines.iter().map(|line| line.trim()).collect();
    all.join(" ").contains(text)
}

/// A loop device over a file, which is detached before others go on.
struct Loop {
    device: String,
    file: PathBuf,
}

impl Loop {
    fn over(file: &Path) -> Loop {
        let device = tool("losetup", &["--find", "--show", file.to_str().unwrap()]);
        Loop { device, file: file.to_owned() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).stderr(Stdio::null()).status();
        // Whoever looks at all devices just now has it open.
        let is_free = || loop_devices().iter().all(|device| device.backing != self.file);
        if !thread::panicking() {
            poll_until("the loop device lets go of its file", is_free);
        }
    }
}

#[test]
#[ignore = "root"]
fn a_guest_that_commits_to_a_disk_that_is_slow_to_flush_waits_for_it() {
    let dir = scratch();
    let Some(slow) = Silent::for_a_loop_device(dir.path().join("slow"), 1 << 20) else { return skip("no FUSE here") };
    if !traces(dir.path()) {
        return skip("no eBPF");
    }
    let mut file = fs::File::options().write(true).open(slow.file()).unwrap();
    file.write_all(&sector(WRITE)).unwrap();
    drop(file);
    let disk = Loop::over(&slow.file());
    slow.flushes_in(Duration::from_millis(30));
    let name = name("commit");
    // QEMU flushes after each write.
    let guest = boot(&format!("guest={name},debug-threads=on"), &format!("file={},cache=directsync", disk.device), &[]);
    let device = disk.device.trim_start_matches("/dev/");
    let told: [&str; 4] = [
        "waits most for: flush ",
        &format!("disk {device} is slow to flush: "),
        &format!("{name} waits for them "),
        "FLUSH DEPTH",
    ];
    tells(dir.path(), (&name, "--interval 0.5"), "flush ", &told, &[]);
    drop(guest);
}

/// Control groups of this name: of version 1 with a controller and of version 2, as far as there are any.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn make(controller: &str, name: &str) -> Groups {
        let root = Path::new("/sys/fs/cgroup");
        let v1 = root.join(controller);
        let above = if v1.is_dir() { vec![v1, root.join("unified")] } else { vec![root.to_owned()] };
        let groups: Vec<PathBuf> = above.iter().filter(|dir| dir.is_dir()).map(|dir| dir.join(name)).collect();
        groups.iter().for_each(|group| fs::create_dir(group).unwrap());
        Groups(groups)
    }

    /// Writes to a file of these, where one has it: of version 1, of version 2.
    fn limit(&self, files: [(&str, &str); 2]) -> bool {
        let all = self.0.iter().flat_map(|group| files.map(|(file, value)| (group.join(file), value)));
        let there: Vec<_> = all.filter(|(file, _)| file.exists()).collect();
        there.iter().for_each(|(file, value)| fs::write(file, value).unwrap());
        !there.is_empty()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            if thread::panicking() {
                let _ = fs::remove_dir(group);
            } else {
                // Its last process may still be ending.
                poll_until("the control group is empty", || fs::remove_dir(group).is_ok());
            }
        }
    }
}

#[test]
#[ignore = "root"]
fn a_container_that_fills_its_limit_of_memory_waits_for_it() {
    let dir = scratch();
    let name = name("short");
    // As LXC calls the group of a container.
    let groups = Groups::make("memory", &format!("lxc.payload.{name}"));
    if !groups.limit([("memory.limit_in_bytes", "25165824"), ("memory.max", "25165824")]) {
        return skip("no control groups with a limit of memory");
    }
    if !groups.0.iter().any(|group| fs::read(group.join("memory.pressure")).is_ok_and(|text| !text.is_empty())) {
        return skip("no PSI of control groups");
    }
    let file = dir.path().join("data");
    tool("dd", &["if=/dev/zero", &format!("of={}", file.display()), "bs=1M", "count=64", "conv=fsync", "status=none"]);
    // Out of the page cache: what others have there is not the container's.
    tool("dd", &[&format!("if={}", file.display()), "iflag=nocache", "count=0", "status=none"]);
    let script = "for group in \"$@\"; do echo $$ > \"$group/cgroup.procs\" || exit 1; done; \
                  exec unshare --mount --pid --fork --kill-child sh -c \
                  'for _ in 1 2 3; do (while :; do cat \"$DATA\" > /dev/null; done) & done; wait'";
    let mut command = Command::new("sh");
    let container = Companion::start(command.args(["-c", script, "sh"]).args(&groups.0).env("DATA", &file));
    // Memory is read every tenth interval.
    let options = "--no-ebpf --interval 0.2";
    let told: [&str; 3] =
        ["waits most for: memory ", &format!("guest {name} waits for memory "), "of its limit of 24M"];
    tells(dir.path(), (&name, options), "memory ", &told, &["memory limit: ", " of 24M used; waits for memory "]);
    drop(container);
}

#[test]
#[ignore = "root"]
fn a_guest_that_uses_up_its_cpu_quota_waits_for_that_and_not_for_a_processor() {
    let dir = scratch();
    let name = name("quota");
    let groups = Groups::make("cpu", &format!("vmio-test-{name}"));
    if !groups.limit([("cpu.cfs_quota_us", "30000"), ("cpu.max", "30000 100000")]) {
        return skip("no control groups with a CPU quota");
    }
    let guest = guest(dir.path(), &name, SPIN, true);
    groups.0.iter().for_each(|group| fs::write(group.join("cgroup.procs"), guest.pid().to_string()).unwrap());
    let held = format!("guest {name} is held back by its CPU quota: throttled in ");
    let told: [&str; 2] = ["waits most for: quota ", &held];
    let below = ["CPU quota: 0.30 processors, throttled in "];
    tells(dir.path(), (&name, "--no-ebpf --interval 0.5"), "quota ", &told, &below);
    drop(guest);
}

#[test]
#[ignore = "root"]
fn a_guest_that_does_not_take_its_packets_is_told_with_its_drops() {
    let dir = scratch();
    let name = name("deaf");
    let image = dir.path().join("deaf.raw");
    let mut bytes = sector(IDLE);
    bytes.resize(1 << 20, 0);
    fs::write(&image, bytes).unwrap();
    net::apart(|| {
        net::run(&[
            "ip tuntap add tap0 mode tap",
            "ip address add 10.9.0.1/24 dev tap0",
            "ip link set tap0 up",
            "ip neighbour add 10.9.0.2 lladdr 52:54:00:00:00:0a dev tap0",
        ]);
        // Nothing in the guest drives its card.
        let tap = ["-netdev", "tap,id=n0,ifname=tap0,script=no,downscript=no"];
        let card = ["-device", "virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0a,romfile="];
        let drive = format!("file={}", image.display());
        let guest = boot(&format!("guest={name},debug-threads=on"), &drive, &[tap, card].concat());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
                while !done.load(Ordering::Relaxed) {
                    // Some 4000 a second.
                    (0..20).for_each(|_| drop(socket.send_to(&[0; 100], "10.9.0.2:9")));
                    thread::sleep(Duration::from_millis(5));
                }
            });
            // Whatever becomes of the test, the flood ends.
            let _end = End(&done);
            let told: [&str; 4] = [
                "waits most for: drops in ",
                &format!("guest {name} does not take its packets fast enough: "),
                "dropped at tap0",
                "DROPin",
            ];
            tells(dir.path(), (&name, "--no-ebpf --interval 0.5"), "drops in ", &told, &[]);
        });
        drop(guest);
    });
}

/// Says that a thread is to end when this goes.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
