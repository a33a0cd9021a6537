//! `--device` on spare disks that somebody uses in a way that no path shows, and one that is another disk by
//! the time it is opened. Each was taken for free, or written, before vmio asked the kernel itself.
#![allow(clippy::unwrap_used)]

use crate::help::disk::{Disk, tool};
use crate::help::schema;
use crate::help::state_dir;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;

use schema::fits;
use state_dir::{Ended, StateDir, fixture, unfolded};
use vmio_testbed::skip;

/// A disk that can have partitions.
fn disk() -> Disk {
    Disk::with(600, &["--partscan"])
}

/// Another node of it, as a container has it.
fn node_of(disk: &Disk) -> PathBuf {
    let node = disk.path("sdx");
    make_node(&node, &disk.device);
    node
}

fn is_untouched(disk: &Disk) -> bool {
    fs::metadata(disk.path("disk")).unwrap().blocks() == 0
}

/// Makes a node with the number of another one.
fn make_node(node: &Path, of: &str) {
    let number = fs::metadata(of).unwrap().rdev();
    let (major, minor) = (rustix::fs::major(number).to_string(), rustix::fs::minor(number).to_string());
    tool("mknod", &[node.to_str().unwrap(), "b", &major, &minor]);
}

/// The plan of a run on a device.
fn plan(state: &StateDir, device: &str, more: &[&str]) -> Ended {
    let mut command = state.command(&["study", "run"]);
    command.arg(fixture("one.toml")).args(["--no-gentle", "--dry-run", "--device", device, "--device", device]);
    state.finish(command.args(more))
}

/// Asserts that it is refused, forced or not, and why.
#[track_caller]
fn is_refused(state: &StateDir, device: &str, words: &[&str]) {
    for more in [&[][..], &["--force"]] {
        plan(state, device, more).with(3).says(words).says(&["--force does not change that"]);
    }
}

#[test]
#[ignore = "root"]
fn a_process_that_has_it_open_by_another_node_or_none_is_seen() {
    let (state, disk) = (StateDir::new(), disk());
    plan(&state, &disk.device, &[]).with(0);
    let me = format!("process {}", std::process::id());
    let node = node_of(&disk);
    let held = File::open(&node).unwrap();
    is_refused(&state, &disk.device, &[&me, "has it open"]);
    fs::remove_file(&node).unwrap();
    is_refused(&state, &disk.device, &[&me, "has it open"]);
    drop(held);
    // The plan shows which disk it is.
    plan(&state, &disk.device, &[]).with(0).says(&["device", &disk.device, "600 MiB", "ALL DATA in its first"]);
    fits("tax-plan", &plan(&state, &disk.device, &["--json"]).with(0).out);
    assert!(is_untouched(&disk));
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_process_that_mapped_it_and_closed_it_is_seen() {
    unsafe extern "C" {
        fn mmap(at: *mut u8, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
        fn munmap(at: *mut u8, length: usize) -> i32;
    }
    let (state, disk) = (StateDir::new(), disk());
    let node = node_of(&disk);
    let file = File::open(&node).unwrap();
    // SAFETY: the kernel chooses a free place for this page (PROT_READ, MAP_SHARED), and nothing reads it.
    let page = unsafe { mmap(std::ptr::null_mut(), 4096, 1, 1, file.as_raw_fd(), 0) };
    assert_ne!(page.addr(), usize::MAX);
    drop(file);
    fs::remove_file(&node).unwrap();
    is_refused(&state, &disk.device, &["has it mapped"]);
    // SAFETY: this very page was mapped above, and nothing points into it.
    assert_eq!(unsafe { munmap(page, 4096) }, 0);
    plan(&state, &disk.device, &[]).with(0);
}

#[test]
#[ignore = "root"]
fn a_thread_with_descriptors_of_its_own_is_seen() {
    let (state, disk) = (StateDir::new(), disk());
    let (node, (told, is_open), (end, ended)) = (node_of(&disk), channel(), channel::<()>());
    let holder = std::thread::spawn(move || {
        // SAFETY: this thread uses only what it opens from here on.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }.unwrap();
        let held = File::open(node).unwrap();
        told.send(()).unwrap();
        let _ = ended.recv();
        drop(held);
    });
    is_open.recv().unwrap();
    is_refused(&state, &disk.device, &["has it open"]);
    drop(end);
    holder.join().unwrap();
    plan(&state, &disk.device, &[]).with(0);
}

#[test]
#[ignore = "root"]
fn a_loop_device_over_a_part_of_it_is_seen() {
    let (state, disk) = (StateDir::new(), disk());
    let node = node_of(&disk);
    let over = tool("losetup", &["--find", "--show", "--offset", "1048576", node.to_str().unwrap()]);
    // The path of its file that sysfs shows is gone.
    fs::remove_file(&node).unwrap();
    let name = over.strip_prefix("/dev/").unwrap();
    let detached = Detach(over.clone());
    is_refused(&state, &disk.device, &[&format!("the loop device {name} lies over"), "(offset 1048576)"]);
    drop(detached);
    plan(&state, &disk.device, &[]).with(0);
}

struct Detach(String);

impl Drop for Detach {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// A process that goes when its standard input does, after it said that it is there.
struct Holder {
    child: Child,
    input: Option<ChildStdin>,
}

impl Holder {
    fn start(command: &mut Command) -> Holder {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        Holder { input: child.stdin.take(), child }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "root"]
fn a_mount_in_another_mount_namespace_is_seen() {
    let (state, disk) = (StateDir::new(), disk());
    tool("mke2fs", &["-q", "-t", "ext4", &disk.device]);
    let (node, point) = (node_of(&disk), disk.path("mnt"));
    fs::create_dir(&point).unwrap();
    let script = "mount \"$0\" \"$1\" && echo there && read -r end";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(node).arg(&point);
    let holder = Holder::start(&mut command);
    is_refused(&state, &disk.device, &["is mounted on", point.to_str().unwrap(), "in the mount namespace of process"]);
    drop(holder);
    // It is the mount alone that is never forced.
    plan(&state, &disk.device, &[]).with(3).says(&["it holds", "ext4"]);
    plan(&state, &disk.device, &["--force"]).with(0);
}

#[test]
#[ignore = "root"]
fn a_disk_and_its_partitions_are_used_together() {
    let (state, disk) = (StateDir::new(), disk());
    // As a partition table would, which not every kernel reads: 540 MiB from 1 MiB on.
    let added = Command::new("addpart").args([&disk.device, "1", "2048", "1105920"]).output().unwrap();
    if !added.status.success() {
        let said = String::from_utf8_lossy(&added.stderr);
        return skip(&format!("no partitions on loop devices: {said}"));
    }
    let partition = format!("{}p1", disk.device);
    let (of_disk, of_partition) = (node_of(&disk), disk.path("sdx1"));
    make_node(&of_partition, &partition);
    plan(&state, &partition, &[]).with(0);
    plan(&state, &disk.device, &[]).with(3).says(&["it holds partitions"]);
    let disk_name = disk.device.strip_prefix("/dev/").unwrap();
    let held = File::open(&of_disk).unwrap();
    is_refused(&state, &partition, &[&format!("has it open (as {disk_name})")]);
    drop(held);
    let held = File::open(&of_partition).unwrap();
    is_refused(&state, &disk.device, &[&format!("has it open (as {disk_name}p1)")]);
    drop(held);
    tool("delpart", &[&disk.device, "1"]);
}

#[test]
#[ignore = "root"]
fn an_image_of_a_disk_that_lies_on_it_is_data() {
    let (state, disk) = (StateDir::new(), disk());
    tool("qemu-img", &["create", "-q", "-f", "qcow2", &disk.device, "200M"]);
    plan(&state, &disk.device, &[]).with(3).says(&[
        "it holds qcow2 image",
        "all of it would be overwritten",
        "--force",
    ]);
    plan(&state, &disk.device, &["--force"]).with(0);
}

#[test]
#[ignore = "root"]
fn where_others_are_not_to_be_seen_nothing_is_overwritten() {
    let (state, disk) = (StateDir::new(), disk());
    for more in [&[][..], &["--force"]] {
        let mut inside = Command::new("unshare");
        inside.args(["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_vmio"), "study", "run", "--dry-run"]);
        inside.arg(fixture("one.toml")).args(["--device", &disk.device, "--device", &disk.device]).args(more);
        inside.env("VMIO_STATE", state.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        state.finish(&mut inside).with(3).says(&["it is unknown whether it is in use", "vmio runs in a container"]);
    }
    state.is_clean();
}

/// A run that waits for its question on a terminal.
struct Asking {
    child: Child,
    input: ChildStdin,
    said: BufReader<std::process::ChildStdout>,
}

impl Asking {
    fn start(state: &StateDir, device: &Path) -> Asking {
        let program = env!("CARGO_BIN_EXE_vmio");
        let (study, device) = (fixture("one.toml"), device.display());
        let line = format!("{program} study run {} --no-gentle --device {device} --device {device}", study.display());
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        command.env("VMIO_STATE", state.path()).env("NO_COLOR", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut asking = Asking { child, input, said };
        let mut text = Vec::new();
        while !text.ends_with(b"[y/N] ") {
            let mut byte = [0];
            assert_eq!(asking.said.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&text));
            text.push(byte[0]);
        }
        asking
    }

    fn yes(mut self) -> (Option<i32>, String) {
        self.input.write_all(b"y\n").unwrap();
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        drop(self.input);
        (self.child.wait().unwrap().code(), text)
    }
}

#[test]
#[ignore = "root"]
fn what_names_another_disk_after_the_plan_is_not_written() {
    let (state, meant, other) = (StateDir::new(), disk(), disk());
    let link = meant.path("by-id");
    symlink(&meant.device, &link).unwrap();
    let node = node_of(&meant);
    for (path, exchange) in [
        (&link, &(|| symlink(&other.device, &link).unwrap()) as &dyn Fn()),
        (&node, &|| make_node(&node, &other.device)),
    ] {
        let asking = Asking::start(&state, path);
        fs::remove_file(path).unwrap();
        exchange();
        let (code, said) = asking.yes();
        let said = unfolded(&said);
        assert_eq!(code, Some(3), "{said}");
        for word in ["names another device now", "Planned and confirmed was", "nothing was written"] {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
    }
    assert!(state.last().is_none(), "no run was begun");
    assert!(is_untouched(&meant) && is_untouched(&other));
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn long_a_given_disk_is_written_as_opened() {
    let (state, disk) = (StateDir::with_image(), disk());
    let link = disk.path("by-id");
    symlink(&disk.device, &link).unwrap();
    let mut command = state.command(&["study", "run"]);
    command.arg(fixture("one.toml")).args(["--yes", "--no-gentle", "--device"]).arg(&link).arg("--device").arg(&link);
    state.finish(&mut command).with(0).says(&["device", &disk.device]);
    let run = state.last().unwrap();
    assert!(run.samples.iter().any(|s| s.cell.is_native()) && run.samples.iter().any(|s| !s.cell.is_native()));
    let settings = &run.effective["device/native"];
    assert!(settings["device"].contains(&disk.device) && settings["disk"].contains("600 MiB"), "{settings:?}");
    let mut head = [0; 4096];
    File::open(disk.path("disk")).unwrap().read_exact_at(&mut head, 0).unwrap();
    assert!(head.iter().any(|b| *b != 0), "it was written");
    state.is_clean();
}
