//! Faults that only root can bring about: full and read-only file systems, devices that hold
//! data or are in use, loop devices that others take, a QEMU that is none.
#![allow(clippy::unwrap_used)]

use crate::help::disk::{Disk, Mounted, tool};
use crate::help::state_dir;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use state_dir::{Companion, Ended, StateDir, fixture, unfolded};
use vmio_model::result::RunState;
use vmio_testbed::{poll_until, scratch};

/// `one.toml` without its guest, for so many rounds.
fn native(dir: &Path, rounds: u32) -> PathBuf {
    let text = fs::read_to_string(fixture("one.toml")).unwrap();
    let text = text.replace("[\"qemu\"]", "[\"native\"]").replace("disks.drivers = [\"virtio-blk\"]\n", "");
    let file = dir.join("native.toml");
    fs::write(&file, text.replace("_pairs = 2", &format!("_pairs = {rounds}"))).unwrap();
    file
}

/// Measures `one.toml` in this state directory with more arguments.
fn one(state: &StateDir, more: &[&str]) -> Command {
    let mut command = state.command(&["study", "run"]);
    command.arg(fixture("one.toml")).args(["--yes", "--no-gentle"]).args(more);
    command
}

fn with_device(state: &StateDir, device: &str, more: &[&str]) -> Ended {
    state.finish(one(state, &["--device", device, "--device", device]).args(more))
}

#[test]
#[ignore = "root"]
fn a_device_in_use_is_refused_and_untouched() {
    let (state, disk) = (StateDir::new(), Disk::new(64));
    let content = || tool("sha256sum", &[&disk.device]);
    tool("mke2fs", &["-q", "-t", "ext4", &disk.device]);
    let before = content();
    for more in [&[][..], &["--dry-run"]] {
        with_device(&state, &disk.device, more).with(3).says(&[
            "is not used: it holds ",
            "ext4; all of it would be overwritten",
            "--force",
        ]);
    }
    {
        let _mounted = Mounted::device(&disk.device, &state.path().join("run"));
        let words = ["is mounted on", "--force does not change that"];
        with_device(&state, &disk.device, &[]).with(3).says(&words);
        with_device(&state, &disk.device, &["--force"]).with(3).says(&words);
    }
    tool("wipefs", &["--all", "--quiet", &disk.device]);
    assert_ne!(content(), before, "the look at the content sees a change");

    let mut file = fs::OpenOptions::new().write(true).open(&disk.device).unwrap();
    file.seek(SeekFrom::Start(512)).unwrap();
    file.write_all(b"EFI PART").unwrap();
    file.sync_all().unwrap();
    drop(file);
    with_device(&state, &disk.device, &[]).with(3).says(&["it holds", "GPT partition table"]);
    assert!(state.last().is_none(), "no run was begun on any of them");
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_device_that_another_program_has_to_itself_is_refused() {
    let (state, disk) = (StateDir::with_image(), Disk::new(600));
    const O_EXCL: i32 = 0o200;
    let _held = fs::OpenOptions::new().read(true).custom_flags(O_EXCL).open(&disk.device).unwrap();
    with_device(&state, &disk.device, &["--force"]).with(3).says(&["has it open", "--force does not change that"]);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_device_that_is_too_small_is_an_error_with_both_sizes() {
    let (state, disk) = (StateDir::with_image(), Disk::new(100));
    with_device(&state, &disk.device, &[]).with(1).says(&["it has 104857600 bytes and 536870912 are needed"]);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn too_little_space_is_told_before_the_run() {
    let state = StateDir::new();
    let small = Mounted::tmpfs(&state.path().join("run"), "size=300m");
    let ended = state.finish(one(&state, &["--on"]).arg(&small.0)).with(3);
    ended.says(&["not enough space on", "615 MiB are needed", "300 MiB are left", "--on"]);
    assert_eq!(fs::read_dir(&small.0).unwrap().count(), 0);
    assert!(state.last().is_none());
    drop(small);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn memory_is_no_disk() {
    let state = StateDir::new();
    let tmpfs = Mounted::tmpfs(&state.path().join("run"), "size=2g");
    let ended = state.finish(one(&state, &["--on"]).arg(tmpfs.0.join("new/dir"))).with(3);
    ended.says(&["tmpfs has no direct I/O (O_DIRECT)", "use --on a directory on a disk"]);
    assert!(state.last().is_none(), "no run was begun");
    assert_eq!(fs::read_dir(&tmpfs.0).unwrap().count(), 0);
    drop(tmpfs);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_read_only_directory_is_named() {
    let (state, disk) = (StateDir::with_image(), Disk::new(1000));
    let run = state.path().join("run");
    tool("mke2fs", &["-q", "-t", "ext4", &disk.device]);
    let readonly = Mounted::device(&disk.device, &run);
    tool("mount", &["-o", "remount,ro", run.to_str().unwrap()]);
    let path = run.display().to_string();
    for more in [&["--on"][..], &["--dry-run", "--on"]] {
        let ended = state.finish(one(&state, more).arg(&run)).with(3);
        ended.says(&["no files can be made here: Read-only file system", &path, "name a directory"]);
    }
    assert!(state.last().is_none(), "no run was begun");
    let below = run.join("state");
    let ended = state.finish(one(&state, &["--state"]).arg(&below).arg("--on").arg(state.path())).with(3);
    ended.says(&["Read-only file system", below.to_str().unwrap(), "--state DIR"]);
    drop(readonly);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_store_without_space_keeps_what_it_has() {
    let (state, dir) = (StateDir::new(), scratch());
    let full = state.path().join("run");
    let small = Mounted::tmpfs(&full, "size=16m,mode=700");
    // For longer than it takes to fill that.
    let study = native(dir.path(), 50);
    let mut command = state.command(&["study", "run", "--yes", "--no-gentle", "--state"]);
    let mut child = state.spawn(command.arg(&full).arg(study).arg("--on").arg(state.path()));
    let stored = || {
        let store = vmio::store::Store::open_existing(&full.join("vmio.db")).ok()?;
        store.load(store.last().ok()??).ok()
    };
    state.wait_for(&mut child, || stored().is_some_and(|r| !r.samples.is_empty()));
    let mut filler = fs::File::create(full.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    let ended = state.end(child);
    // What was measured is kept, so the result is partial; and a person reads what to do.
    let ended = ended.with(4).says(&["error: run 1 broke off;", " kept", "help: free some space there"]);
    let told = ["", "/journals", "/run"].map(|below| format!("the disk of {}{below} is full", full.display()));
    let err = unfolded(&ended.err);
    assert!(err.contains("No space left") || told.iter().any(|t| err.contains(t)), "{err}");
    drop(filler);
    fs::remove_file(full.join("filler")).unwrap();
    assert!(!stored().unwrap().samples.is_empty());
    assert!(vmio_node::leftovers(&full.join("journals")).is_empty());
    drop(small);
    state.is_clean();
}

/// `qemu-system-x86_64` first in `PATH`: this script.
fn run_with_qemu(state: &StateDir, script: &str) -> Ended {
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
    Ended::of(&one(state, &["--on"]).arg(state.path()).env("PATH", path).output().unwrap())
}

#[test]
#[ignore = "root"]
fn a_qemu_that_ends_at_once_is_told_with_what_it_said() {
    let state = StateDir::with_image();
    let ended = run_with_qemu(&state, "echo 'planted failure' >&2; exit 7").with(1);
    let ended = ended.says(&[
        "run 1 measured nothing",
        "QEMU had ended with exit code 7",
        "  | planted failure",
        "vmio doctor",
    ]);
    assert_eq!(unfolded(&ended.err).matches("it is booted once more").count(), 1, "{}", ended.err);
    assert!(matches!(state.last().unwrap().state, RunState::Failed(_)));
    state.is_clean();
}

#[test]
#[ignore = "long"]
fn long_a_guest_that_never_boots_is_ended_and_reported() {
    let state = StateDir::with_image();
    let ended = run_with_qemu(&state, "exec sleep 600").with(1);
    ended.says(&["run 1 measured nothing", "did not start; it was ended", "end of its console"]);
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn loop_devices_that_others_take_and_leave_do_no_harm() {
    let (state, dir) = (StateDir::new(), scratch());
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
        let mut command = state.command(&["study", "run", "--yes", "--no-gentle"]);
        let ended = state.finish(command.arg(native(dir.path(), 3)).arg("--on").arg(state.path()));
        fs::write(&stop, "").unwrap();
        poll_until("the rival has let go", || dir.path().join("stop.done").exists());
        ended
    };
    ended.with(0);
    assert_eq!(state.samples(), 6);
    state.is_clean();
    assert!(!tool("losetup", &["--list"]).contains(&shown));
}

#[test]
#[ignore = "root"]
fn without_root_a_file_is_measured() {
    let kept = StateDir::with_image();
    let place = scratch();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| place.path().join(name);
    fs::copy(env!("CARGO_BIN_EXE_vmio"), at("vmio")).unwrap();
    fs::copy(fixture("file.toml"), at("file.toml")).unwrap();
    fs::create_dir(at("s")).unwrap();
    tool("cp", &["-rL", kept.path().join("images").to_str().unwrap(), at("s").to_str().unwrap()]);
    let agent = kept.path().join("images").canonicalize().unwrap();
    let agent = fs::read_dir(agent).unwrap().map(|e| e.unwrap().path().join("agent")).find(|a| a.exists()).unwrap();
    fs::copy(agent, at("vmio-agent")).unwrap();
    // Without it another image would be built, which carries none.
    let generator = vmio_rig::ours::UDP.find(&vmio_node::Local::new()).unwrap();
    fs::copy(generator, at("vmio-udp")).unwrap();
    let kernels = kept.path().join("kernels").canonicalize().unwrap();
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
