//! Storage whose server takes requests and never answers: vmio says so of what lies there, goes on with the rest, and
//! always ends. Who waits for such a server sleeps in the kernel, where SIGKILL does not reach it; so what is left
//! behind is a process of vmio's own, and it goes when the server answers.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::help::disk::tool;
use crate::help::{live, silent, state_dir};
use crate::root_scan::{NOBODY, guest, inherited, stand_in, unread};

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::OFlags;
use rustix::process::Signal;
use serde_json::Value;
use silent::{SERVER, Silent};
use state_dir::{StateDir, signal};
use vmio_testbed::{poll_for, poll_until, skip};

/// The file system, or a word that there is none.
fn silent(found: Option<Silent>) -> Option<Silent> {
    if found.is_none() {
        skip("no FUSE here");
    }
    found
}

/// A study without guests on a written-out file.
fn study(dir: &Path, workload: &str, seconds: f64, rounds: u32) -> PathBuf {
    let text = format!(
        "name = \"silent\"\ntitle = \"t\"\n[guest]\nvcpus = 1\nmemory_mib = 192\n[size]\ntarget_mib = 384\n\
         [repeat]\nmin_pairs = {rounds}\nmax_pairs = {rounds}\nmin_boots = 1\nhalf_width = 0.5\nseconds = {seconds:.1}\n\
         max_minutes = 10.0\nmax_gib_written = 50.0\n\
         [[matrix]]\nsides = [\"native\"]\ndisks = {{ targets = [\"preallocated\"] }}\nworkloads = [\"{workload}\"]\n"
    );
    let path = dir.join("silent.toml");
    fs::write(&path, text).unwrap();
    path
}

#[test]
#[ignore = "root"]
fn an_image_there_is_told_by_scan_and_the_rest_is_read() {
    let dir = live::scratch();
    let Some(silent) = silent(Silent::at(dir.path().join("silent"), 1 << 20)) else { return };
    let (image, own) = (silent.file(), live::raw(dir.path(), "own"));
    let open = [inherited(&image, OFlags::RDWR), inherited(&own, OFlags::RDWR)];
    let running = stand_in(NOBODY, &guest("there", &[(&image, "raw")]));
    let other = stand_in(NOBODY, &guest("here", &[(&own, "raw")]));
    drop(open);
    // A look has a second, which may be too short on a busy machine.
    let scan = || live::scan(dir.path(), &[]);
    let about = |seen: &Value| -> Vec<String> {
        unread(live::guest(seen, "there")).into_iter().filter(|told| told.contains(silent::DISK)).collect()
    };
    poll_for("while it answers it is read", || {
        Some(about(&scan())).filter(|told| !told.is_empty()).map_or(Ok(()), Err)
    });
    silent.falls_silent();
    // `scan` waits for the end of vmio, which a thread of its own there would keep from ending.
    let seen = poll_for("the other guest is read", || {
        let seen = scan();
        if live::guest(&seen, "here")["disks"][0]["sparse"] == false { Ok(seen) } else { Err(seen) }
    });
    let (told, image) = (about(&seen), image.display().to_string());
    assert!(told.iter().any(|t| t.contains(&image) && t.contains("no answer within 1 s")), "{told:#?}");
    assert!(silent.waiting() > 0);
    assert!(!silent::io_workers(dir.path()).is_empty(), "somebody waits there, whom no signal reaches");
    silent.answers();
    poll_until("it ends when the server answers", || silent::io_workers(dir.path()).is_empty());
    drop((running, other));
}

#[test]
#[ignore = "root"]
fn a_place_there_is_refused_in_words_and_ctrl_c_ends_the_plan() {
    let state = StateDir::new();
    let scratch = live::scratch();
    let Some(silent) = silent(Silent::at(scratch.path().join("silent"), 1 << 20)) else { return };
    silent.falls_silent();
    // By a link, too, which the table of mounts does not know.
    let link = scratch.path().join("link");
    std::os::unix::fs::symlink(&silent.dir, &link).unwrap();
    let plan = |on: &Path| state.command(&["tax", "--quick", "--dry-run", "--on", on.to_str().unwrap()]);
    // Each waits for the server in vain, all at the same time.
    let refused = [&silent.dir, &link].map(|on| state.spawn(&mut plan(on)));
    poll_until("both ask the server", || silent.waiting() >= 2);
    let ended = state.spawn(&mut plan(&silent.dir));
    poll_until("the third asks, too", || silent.waiting() >= 3);
    signal(ended.id(), Signal::INT);
    state.end(ended).with(4);
    for child in refused {
        let words = ["the storage does not respond", SERVER, "of vmio in the kernel"];
        state.end(child).with(3).says(&words);
    }
    silent.answers();
    drop(silent);
    poll_until("all end when the server answers", || state.processes("tax").is_empty());
    state.is_clean();
}

#[test]
#[ignore = "root"]
fn a_journal_with_a_file_there_keeps_no_run() {
    let state = StateDir::new();
    let (scratch, dir) = (live::scratch(), tempfile::tempdir().unwrap());
    let Some(silent) = silent(Silent::at(scratch.path().join("silent"), 1 << 20)) else { return };
    let (study, place) = (study(dir.path(), "seq-write", 0.2, 2), state.path().join("run"));
    let file = silent.file();
    let journals = state.path().join("journals");
    vmio_node::private_dir(&journals).unwrap();
    let journal = journals.join("left-run.journal");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = format!(
        "{{\"vmio_journal\":1,\"owner\":\"run\",\"cookie\":\"nobodys\",\"boot_id\":\"{}\",\"pid\":1,\"start_ticks\":1}}\n\
         {{\"scratch\":\"{}\"}}\n{{\"do\":1,\"change\":{{\"file\":{{\"path\":\"{}\"}}}}}}\n",
        boot.trim(),
        silent.dir.display(),
        file.display()
    );
    let mut options = fs::File::options();
    let mut made = options.write(true).create_new(true).mode(0o600).open(&journal).unwrap();
    std::io::Write::write_all(&mut made, text.as_bytes()).unwrap();
    fs::create_dir_all(&place).unwrap();
    let run = || {
        let args = ["study", "run", study.to_str().unwrap(), "--yes", "--no-gentle", "--on", place.to_str().unwrap()];
        state.vmio(&args).with(0)
    };
    silent.falls_silent();
    let told = format!("cannot remove {}: {SERVER} does not answer", file.display());
    run().says(&["could not clean up", &told, "see that the server is up"]);
    assert!(journal.exists() && silent.has_file() && silent.waiting() > 0);
    silent.answers();
    run().says(&["cleaned up after a killed run", &file.display().to_string()]);
    assert!(!journal.exists() && !silent.has_file());
    drop(silent);
    state.is_clean();
}

/// A disk over the file, with a file system on it: the run's place looks like any other.
struct Disk {
    device: String,
    point: PathBuf,
}

impl Disk {
    fn over(file: &Path, point: PathBuf) -> Disk {
        let device = tool("losetup", &["--find", "--show", "--direct-io=on", file.to_str().unwrap()]);
        tool("mke2fs", &["-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0", &device]);
        fs::create_dir(&point).unwrap();
        tool("mount", &[&device, point.to_str().unwrap()]);
        Disk { device, point }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.point).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
        let _ = fs::remove_dir(&self.point);
    }
}

#[test]
#[ignore = "root"]
fn ctrl_c_ends_a_run_whose_disk_fell_silent_and_the_next_start_undoes_it() {
    let state = StateDir::new();
    let (scratch, dir) = (live::scratch(), tempfile::tempdir().unwrap());
    let found = Silent::for_a_loop_device(scratch.path().join("silent"), 640 << 20);
    let Some(silent) = silent(found) else { return };
    let disk = Disk::over(&silent.file(), scratch.path().join("place"));
    let (study, place) = (self::study(dir.path(), "rand-write-1", 1.0, 20), disk.point.join("vms"));
    fs::create_dir(&place).unwrap();
    let args = ["study", "run", study.to_str().unwrap(), "--yes", "--no-gentle", "--on", place.to_str().unwrap()];
    let mut child = state.spawn(&mut state.command(&args));
    state.wait_for_samples(&mut child, 1);
    silent.falls_silent();
    poll_until("fio waits for the disk", || silent.waiting() > 0);
    signal(child.id(), Signal::INT);
    let ended = state.end(child);
    ended.with(4).says(&[SERVER]);
    silent.answers();
    poll_until("all end when the server answers", || state.processes("").is_empty());
    // The next start undoes the rest, whatever it measures.
    let (study, place) = (self::study(dir.path(), "seq-write", 0.2, 2), state.path().join("run"));
    fs::create_dir_all(&place).unwrap();
    let args = ["study", "run", study.to_str().unwrap(), "--yes", "--no-gentle", "--on", place.to_str().unwrap()];
    state.vmio(&args).with(0);
    assert_eq!(fs::read_dir(disk.point.join("vms")).unwrap().count(), 0, "nothing is left on the disk");
    // Whoever looks at all devices just now has it open; until they close it, it would lie over a file of nobody's.
    let attached = Path::new("/sys/block").join(disk.device.trim_start_matches("/dev/")).join("loop");
    drop(disk);
    poll_until("the loop device lets go of its file", || !attached.exists());
    drop(silent);
    state.is_clean();
}
