//! Faults that only root can bring about: full and read-only file systems, devices that hold
//! data or are in use, loop devices that others take, a QEMU that is none.
#![allow(clippy::unwrap_used)]

use crate::help::bed;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bed::{Bed, Companion, Ended, fixture, unfolded};
use vmio_model::result::RunState;
use vmio_testbed::{poll_until, scratch};

fn tool(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A file system of the test's own; goes with it.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(dir: &Path, options: &str) -> Mounted {
        fs::create_dir_all(dir).unwrap();
        tool("mount", &["-t", "tmpfs", "-o", options, "vmio-test", dir.to_str().unwrap()]);
        Mounted(dir.to_owned())
    }

    fn device(device: &str, dir: &Path) -> Mounted {
        fs::create_dir_all(dir).unwrap();
        tool("mount", &[device, dir.to_str().unwrap()]);
        Mounted(dir.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// A spare disk: a loop device over a sparse file beside the state directory.
struct Disk {
    device: String,
    _dir: tempfile::TempDir,
}

impl Disk {
    fn new(mib: u64) -> Disk {
        let dir = scratch();
        let file = dir.path().join("disk");
        fs::File::create(&file).unwrap().set_len(mib << 20).unwrap();
        let device = tool("losetup", &["--find", "--show", file.to_str().unwrap()]);
        Disk { device, _dir: dir }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

/// `one.toml` without its guest, for so many rounds.
fn native(dir: &Path, rounds: u32) -> PathBuf {
    let text = fs::read_to_string(fixture("one.toml")).unwrap();
    let text = text.replace("[\"qemu\"]", "[\"native\"]").replace("disks.drivers = [\"virtio-blk\"]\n", "");
    let file = dir.join("native.toml");
    fs::write(&file, text.replace("_pairs = 2", &format!("_pairs = {rounds}"))).unwrap();
    file
}

/// Measures `one.toml` in this bed with more arguments.
fn one(bed: &Bed, more: &[&str]) -> Command {
    let mut command = bed.command(&["study", "run"]);
    command.arg(fixture("one.toml")).args(["--yes", "--no-gentle"]).args(more);
    command
}

fn with_device(bed: &Bed, device: &str, more: &[&str]) -> Ended {
    bed.finish(one(bed, &["--device", device, "--device", device]).args(more))
}

#[test]
#[ignore = "root"]
fn a_device_that_is_used_or_holds_something_is_refused_and_untouched() {
    let (bed, disk) = (Bed::new(), Disk::new(64));
    let content = || tool("sha256sum", &[&disk.device]);
    tool("mke2fs", &["-q", "-t", "ext4", &disk.device]);
    let before = content();
    for more in [&[][..], &["--dry-run"]] {
        with_device(&bed, &disk.device, more).with(3).says(&[
            "is not used: it holds ",
            "ext4; all of it would be overwritten",
            "--force",
        ]);
    }
    {
        let _mounted = Mounted::device(&disk.device, &bed.state().join("run"));
        let words = ["is mounted on", "--force does not change that"];
        with_device(&bed, &disk.device, &[]).with(3).says(&words);
        with_device(&bed, &disk.device, &["--force"]).with(3).says(&words);
    }
    tool("wipefs", &["--all", "--quiet", &disk.device]);
    assert_ne!(content(), before, "the look at the content sees a change");

    let mut file = fs::OpenOptions::new().write(true).open(&disk.device).unwrap();
    file.seek(SeekFrom::Start(512)).unwrap();
    file.write_all(b"EFI PART").unwrap();
    file.sync_all().unwrap();
    drop(file);
    with_device(&bed, &disk.device, &[]).with(3).says(&["it holds", "GPT partition table"]);
    assert!(bed.last().is_none(), "no run was begun on any of them");
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn a_device_that_another_program_has_to_itself_is_refused() {
    let (bed, disk) = (Bed::with_image(), Disk::new(600));
    const O_EXCL: i32 = 0o200;
    let _held = fs::OpenOptions::new().read(true).custom_flags(O_EXCL).open(&disk.device).unwrap();
    with_device(&bed, &disk.device, &["--force"]).with(3).says(&["has it open", "--force does not change that"]);
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn a_device_that_is_too_small_is_an_error_with_both_sizes() {
    let (bed, disk) = (Bed::with_image(), Disk::new(100));
    with_device(&bed, &disk.device, &[]).with(1).says(&["it has 104857600 bytes and 536870912 are needed"]);
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn too_little_space_is_told_with_its_figures_before_anything_is_written() {
    let bed = Bed::new();
    let small = Mounted::tmpfs(&bed.state().join("run"), "size=300m");
    let ended = bed.finish(one(&bed, &["--on"]).arg(&small.0)).with(3);
    ended.says(&["not enough space on", "615 MiB are needed", "300 MiB are left", "--on"]);
    assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0);
    assert!(bed.last().is_none());
    drop(small);
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn memory_is_no_disk() {
    let bed = Bed::new();
    let tmpfs = Mounted::tmpfs(&bed.state().join("run"), "size=2g");
    let ended = bed.finish(one(&bed, &["--on"]).arg(tmpfs.0.join("new/dir"))).with(3);
    ended.says(&["tmpfs has no direct I/O (O_DIRECT)", "use --on a directory on a disk"]);
    assert!(bed.last().is_none(), "no run was begun");
    assert_eq!(fs::read_dir(&tmpfs.0).unwrap().count(), 0);
    drop(tmpfs);
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn a_read_only_directory_is_named() {
    let (bed, disk) = (Bed::with_image(), Disk::new(1000));
    let run = bed.state().join("run");
    tool("mke2fs", &["-q", "-t", "ext4", &disk.device]);
    let readonly = Mounted::device(&disk.device, &run);
    tool("mount", &["-o", "remount,ro", run.to_str().unwrap()]);
    let path = run.display().to_string();
    for more in [&["--on"][..], &["--dry-run", "--on"]] {
        let ended = bed.finish(one(&bed, more).arg(&run)).with(3);
        ended.says(&["no files can be made here: Read-only file system", &path, "name a directory"]);
    }
    assert!(bed.last().is_none(), "no run was begun");
    let state = run.join("state");
    let ended = bed.finish(one(&bed, &["--state"]).arg(&state).arg("--on").arg(bed.state())).with(3);
    ended.says(&["Read-only file system", state.to_str().unwrap(), "--state DIR"]);
    drop(readonly);
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn a_store_without_space_keeps_what_it_has_and_undoes_the_rest() {
    let (bed, dir) = (Bed::new(), scratch());
    let state = bed.state().join("run");
    let small = Mounted::tmpfs(&state, "size=16m,mode=700");
    // For longer than it takes to fill that.
    let study = native(dir.path(), 50);
    let mut command = bed.command(&["study", "run", "--yes", "--no-gentle", "--state"]);
    let mut child = bed.spawn(command.arg(&state).arg(study).arg("--on").arg(bed.state()));
    let stored = || {
        let store = vmio::store::Store::open_existing(&state.join("vmio.db")).ok()?;
        store.load(store.last().ok()??).ok()
    };
    bed.wait_for(&mut child, || stored().is_some_and(|r| !r.samples.is_empty()));
    let mut filler = fs::File::create(state.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    let ended = bed.end(child);
    // What was measured is kept, so the result is partial; and a person reads what to do.
    let ended = ended.with(4).says(&["error: run 1 broke off;", "samples are kept", "help: free some space there"]);
    let full = ["", "/journals", "/run"].map(|below| format!("the disk of {}{below} is full", state.display()));
    let err = unfolded(&ended.err);
    assert!(err.contains("No space left") || full.iter().any(|f| err.contains(f)), "{err}");
    drop(filler);
    fs::remove_file(state.join("filler")).unwrap();
    assert!(!stored().unwrap().samples.is_empty());
    assert!(vmio_node::leftovers(&state.join("journals")).is_empty());
    drop(small);
    bed.is_clean();
}

/// `qemu-system-x86_64` first in `PATH`: this script.
fn run_with_qemu(bed: &Bed, script: &str) -> Ended {
    let dir = scratch();
    let qemu = dir.path().join("qemu-system-x86_64");
    fs::write(
        &qemu,
        format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo QEMU emulator version 7.2.0 \\(planted\\) && exit 0\n{script}\n"
        ),
    )
    .unwrap();
    fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    // What it found out of KVM is of another QEMU: not for other tests.
    Ended::of(&one(bed, &["--on"]).arg(bed.state()).env("PATH", path).output().unwrap())
}

#[test]
#[ignore = "root"]
fn a_qemu_that_ends_at_once_is_told_with_what_it_said() {
    let bed = Bed::with_image();
    let ended = run_with_qemu(&bed, "echo 'planted failure' >&2; exit 7").with(1);
    let ended = ended.says(&[
        "run 1 measured nothing",
        "QEMU had ended with exit code 7",
        "  | planted failure",
        "vmio doctor",
    ]);
    assert_eq!(unfolded(&ended.err).matches("it is booted once more").count(), 1, "{}", ended.err);
    assert!(matches!(bed.last().unwrap().state, RunState::Failed(_)));
    bed.is_clean();
}

#[test]
#[ignore = "long"]
fn long_a_guest_that_never_boots_is_ended_and_reported() {
    let bed = Bed::with_image();
    let ended = run_with_qemu(&bed, "exec sleep 600").with(1);
    ended.says(&["run 1 measured nothing", "did not start; it was ended", "end of its console"]);
    bed.is_clean();
}

#[test]
#[ignore = "root"]
fn loop_devices_that_others_take_and_leave_do_no_harm() {
    let (bed, dir) = (Bed::new(), scratch());
    let file = dir.path().join("other");
    fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let shown = file.display().to_string();
    // Ends by itself between two rounds, so that none of its devices stays.
    let stop = dir.path().join("stop");
    let race = format!(
        "while [ ! -e {stop} ]; do d=$(losetup --find --show {shown}) && losetup --detach $d; done; : > {stop}.done",
        stop = stop.display()
    );
    let ended = {
        let _rival = Companion::start(Command::new("sh").args(["-c", &race]));
        let mut command = bed.command(&["study", "run", "--yes", "--no-gentle"]);
        let ended = bed.finish(command.arg(native(dir.path(), 3)).arg("--on").arg(bed.state()));
        fs::write(&stop, "").unwrap();
        poll_until("the rival has let go", || dir.path().join("stop.done").exists());
        ended
    };
    ended.with(0);
    assert_eq!(bed.samples(), 6);
    bed.is_clean();
    assert!(!tool("losetup", &["--list"]).contains(&shown));
}

#[test]
#[ignore = "root"]
fn without_root_a_file_is_measured_and_the_report_says_that_nothing_was_held() {
    let kept = Bed::with_image();
    let place = scratch();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| place.path().join(name);
    fs::copy(env!("CARGO_BIN_EXE_vmio"), at("vmio")).unwrap();
    fs::copy(fixture("file.toml"), at("file.toml")).unwrap();
    fs::create_dir(at("s")).unwrap();
    tool("cp", &["-rL", kept.state().join("images").to_str().unwrap(), at("s").to_str().unwrap()]);
    let agent = kept.state().join("images").canonicalize().unwrap();
    let agent = fs::read_dir(agent).unwrap().map(|e| e.unwrap().path().join("agent")).find(|a| a.exists()).unwrap();
    fs::copy(agent, at("vmio-agent")).unwrap();
    // Without it another image would be built, which carries none.
    let generator = vmio_rig::ours::UDP.find(&vmio_node::Local::new()).unwrap();
    fs::copy(generator, at("vmio-udp")).unwrap();
    let kernels = kept.state().join("kernels").canonicalize().unwrap();
    tool("cp", &["-r", kernels.to_str().unwrap(), at("s/kernels").to_str().unwrap()]);
    tool("chown", &["-R", "65534:65534", at("s").to_str().unwrap()]);
    let mut command = Command::new(at("vmio"));
    command.args(["study", "run", "--yes", "--no-gentle", "--json", "--state"]).arg(at("s")).arg(at("file.toml"));
    command.env("HOME", at("s")).uid(65534).gid(65534).current_dir("/");
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let held = json["environment"]["native_limits"].as_str().unwrap();
    assert!(held.starts_with("not held: "), "{held}");
    assert!(unfolded(&err).contains("the native side is not held to the guest's resources"), "{err}");
    assert_eq!(vmio_node::leftovers(&at("s/journals")), Vec::<String>::new());
}

/// Root uses no store of another user: SQLite would follow, and make, what lies beside it by names that this user can
/// exchange for links and pipes.
#[test]
#[ignore = "root"]
fn a_store_of_another_user_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (theirs, file) = (dir.path().join("theirs"), dir.path().join("theirs/vmio.db"));
    drop(vmio::store::Store::open(&file).unwrap());
    tool("chown", &["-R", "65534:65534", theirs.to_str().unwrap()]);
    let before = tool("ls", &["-lAn", "--time-style=full-iso", theirs.to_str().unwrap()]);
    for verb in [&["runs", "list"][..], &["tax", "--quick", "--yes"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_vmio")).args(verb).arg("--state").arg(&theirs).output().unwrap();
        let said = unfolded(&String::from_utf8(output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("belongs to user 65534"), "{said}");
        assert_eq!(tool("ls", &["-lAn", "--time-style=full-iso", theirs.to_str().unwrap()]), before, "{said}");
    }
}
