//! Bad input, and hosts that lack what a run needs: each is a clear error with its exit code,
//! before anything is changed. Neither root nor QEMU is needed for these.
#![allow(clippy::unwrap_used)]

#[path = "common/bed.rs"]
mod bed;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use bed::{Bed, fixture};

/// A directory with links to the programs of these names, to serve as the whole `PATH`.
fn programs(bed: &Bed, names: &[&str]) -> PathBuf {
    let dir = bed.state().join("images");
    fs::create_dir(&dir).unwrap();
    for name in names {
        let path = dir.join(name);
        if *name == "qemu-system-x86_64" {
            // What a plan asks of QEMU without starting it.
            fs::write(&path, "#!/bin/sh\necho 'QEMU emulator version 7.2.0'\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        } else {
            symlink("/bin/true", &path).unwrap();
        }
    }
    dir
}

#[test]
fn every_bad_study_is_refused_with_file_line_key_and_what_was_meant() {
    let bed = Bed::new();
    let dir = fixture("bad_studies");
    let mut seen = 0;
    for path in fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()) {
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        seen += 1;
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut command = bed.command(&["study", "run", &format!("./{name}"), "--dry-run"]);
        let ended = bed.finish(command.current_dir(&dir)).with(2);
        assert!(ended.out.is_empty(), "{name}: {}", ended.out);
        let (said, help) = ended.err.split_once("\n  help: ").unwrap_or_else(|| panic!("{name}: {}", ended.err));
        assert!(help.contains("docs/study.md"), "{name}: {help}");
        // The choice there is grows with every entry of an extension point.
        let said: Vec<&str> = said
            .trim_start_matches("error: ")
            .lines()
            .map(|l| l.trim_start_matches("./"))
            .map(|l| l.split(" (there is ").next().unwrap().split("; there is ").next().unwrap())
            .collect();
        let wanted = fs::read_to_string(path.with_extension("err")).unwrap();
        assert_eq!(said, wanted.lines().collect::<Vec<_>>(), "{name}");
    }
    assert!(seen >= 15, "{seen} fixtures in {}", dir.display());
    bed.is_clean();
}

#[test]
fn a_study_that_is_not_there_is_named() {
    let bed = Bed::new();
    bed.vmio(&["study", "run", "qick"]).with(2).says(&["no study is called qick", "one of quick, full, sparse"]);
    bed.vmio(&["study", "run", "./not/there.toml"]).with(2).says(&["./not/there.toml", "No such file"]);
}

#[test]
fn without_a_terminal_nothing_is_measured_unasked() {
    let bed = Bed::new();
    let path = programs(&bed, &["qemu-system-x86_64", "fio"]);
    let mut command = bed.command(&["study", "run"]);
    let ended = bed.finish(command.arg(fixture("file.toml")).env("PATH", path)).with(2);
    let ended = ended.says(&["Plan: For the tests of faults, without root", "there is nobody to ask", "--yes"]);
    assert!(ended.out.is_empty());
    assert!(bed.last().is_none(), "not even a run was begun");
    bed.is_clean();
}

#[test]
fn what_the_host_lacks_is_named_with_its_mend() {
    for (there, missing, mend) in [
        (&["fio"][..], "QEMU: none of qemu-system-x86_64", "apt install qemu-system-x86"),
        (&["qemu-system-x86_64"][..], "fio: no program fio in PATH", "apt install fio"),
    ] {
        let bed = Bed::new();
        let path = programs(&bed, there);
        let mut command = bed.command(&["study", "run"]);
        let ended = bed.finish(command.arg(fixture("file.toml")).arg("--yes").env("PATH", path)).with(3);
        ended.says(&["not run", "error: nothing can be measured here", missing, mend, "vmio doctor"]);
        assert!(bed.last().is_none());
        bed.is_clean();
    }
}

/// Runs as nobody, also where the tests run as root.
#[test]
fn without_root_the_block_device_is_refused_by_name() {
    let place = tempfile::Builder::new().prefix("vmio-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("vmio");
    fs::copy(env!("CARGO_BIN_EXE_vmio"), &program).unwrap();
    let study = place.path().join("one.toml");
    fs::copy(fixture("one.toml"), &study).unwrap();
    let mut command = std::process::Command::new(&program);
    command.args(["study", "run", "--yes"]).arg(&study).arg("--state").arg(place.path().join("state"));
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.current_dir("/").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("not root; run as root, or leave out the target `device`"), "{said}");
    assert!(!place.path().join("state").exists());
}

#[test]
fn a_device_is_named_twice_or_not_at_all() {
    let bed = Bed::new();
    let quick = |devices: &[&str]| {
        let mut command = bed.command(&["tax", "--yes"]);
        devices.iter().for_each(|d| {
            command.args(["--device", d]);
        });
        bed.finish(&mut command)
    };
    quick(&["/dev/sdx"]).with(2).says(&["everything on /dev/sdx would be lost", "named exactly twice"]);
    quick(&["/dev/sdx", "/dev/sdy"]).with(2).says(&["two devices: /dev/sdx and /dev/sdy"]);
    quick(&["/dev/sdx", "/dev/sdx", "/dev/sdx"]).with(2).says(&["named exactly twice"]);
    quick(&["/dev/not-there", "/dev/not-there"]).with(3).says(&["/dev/not-there"]);
    let file = bed.state().join("images");
    fs::write(&file, "x").unwrap();
    quick(&[file.to_str().unwrap(); 2]).with(3).says(&["is not used: it is not a block device"]);
    bed.vmio(&["tax", "--force"]).with(2).says(&["--device"]);
    assert!(bed.last().is_none());
}

#[test]
fn budgets_and_shares_that_make_no_sense_are_refused() {
    let bed = Bed::new();
    for (args, word) in [
        (["--minutes", "0"], "--minutes must be above 0"),
        (["--minutes", "NaN"], "--minutes must be above 0"),
        (["--gib", "inf"], "--gib must be above 0"),
        (["--gentle-share", "1.5"], "--gentle-share 1.5 is not in 0 to 1"),
        (["--minutes", "soon"], "invalid value 'soon'"),
    ] {
        let all = [&["tax", "--yes"][..], &args].concat();
        bed.vmio(&all).with(2).says(&[word]);
    }
    bed.vmio(&["tax", "--gentle", "--no-gentle"]).with(2).says(&["cannot be used with"]);
    bed.vmio(&["tax", "--resume", "--yes"]).with(2).says(&["no run of quick was interrupted"]);
    bed.vmio(&["tax", "--prove", "--of", "last", "--yes"]).with(3).says(&["there are no runs yet"]);
    bed.is_clean();
}

#[test]
fn a_directory_that_cannot_be_written_is_named_before_anything_is_done() {
    let bed = Bed::new();
    let path = programs(&bed, &["qemu-system-x86_64", "fio"]);
    // Even root cannot make directories there.
    let mut command = bed.command(&["study", "run", "--yes", "--state", "/proc/sys/vmio"]);
    let ended = bed.finish(command.arg(fixture("file.toml")).env("PATH", path).arg("--on").arg(bed.state())).with(3);
    ended.says(&["cannot create the directory /proc/sys/vmio", "--state DIR"]);
    assert!(!Path::new("/proc/sys/vmio").exists());
}

/// Each kind of file target on a file system without direct I/O: refused before anything is made.
#[test]
fn a_place_in_memory_is_refused_for_every_kind_of_file() {
    let bed = Bed::new();
    let path = programs(&bed, &["qemu-system-x86_64", "fio", "qemu-img", "qemu-storage-daemon"]);
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let study = fs::read_to_string(fixture("file.toml")).unwrap();
    for target in ["sparse", "preallocated", "served", "qcow2", "qcow2-chain"] {
        let file = bed.state().join("images/study.toml");
        fs::write(&file, study.replace("\"sparse\"", &format!("\"{target}\""))).unwrap();
        let mut command = bed.command(&["study", "run", "--yes", "--on"]);
        let ended = bed.finish(command.arg(memory.path()).arg(&file).env("PATH", &path)).with(3);
        ended.says(&["Plan:", "error: ", "tmpfs has no direct I/O (O_DIRECT)", "--on a directory on a disk"]);
        assert!(bed.last().is_none(), "{target}: no run was begun");
        assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0, "{target}");
    }
    bed.is_clean();
}

/// A plan reckons with all that a target takes: images for each way to see them, and the raw twin.
#[test]
fn a_plan_says_what_images_take() {
    let bed = Bed::new();
    let path = programs(&bed, &["qemu-system-x86_64", "fio", "qemu-img", "qemu-storage-daemon"]);
    let study = fs::read_to_string(fixture("file.toml")).unwrap();
    let file = bed.state().join("images/study.toml");
    let plan = |target: &str| {
        fs::write(&file, study.replace("\"sparse\"", &format!("\"{target}\""))).unwrap();
        let mut command = bed.command(&["study", "run", "--dry-run", "--json"]);
        let ended = bed.finish(command.arg("--on").arg(bed.state()).arg(&file).env("PATH", &path)).with(0);
        let json: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        json["cost"]["peak_space_bytes"].as_f64().unwrap() / 1.2 / f64::from(1 << 20)
    };
    // 512 MiB once; the twin and two images of 512 + 32 MiB; the twin, the base and an overlay.
    let near = |got: f64, want: f64| (got - want).abs() < 1.0;
    assert!(near(plan("served"), 512.0));
    assert!(near(plan("qcow2"), 512.0 + 2.0 * 544.0));
    assert!(near(plan("qcow2-full-l2"), 512.0 + 2.0 * 544.0));
    assert!(near(plan("qcow2-chain"), 512.0 + 2.0 * 544.0));
}
