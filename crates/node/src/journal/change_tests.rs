//! What is undone, and what is not.

#![allow(clippy::unwrap_used)]

use super::*;

const SCOPE: Scope<'_> = Scope { cookie: "me", same_boot: true, held: &[] };

#[test]
fn missing_objects_are_undone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("never");
    for change in [
        Change::Process { cookie: "nobody-has-this".into() },
        Change::file(&path),
        Change::dir(&path),
        Change::loop_over(&path),
        Change::Mount { target: path.clone() },
        Change::OwnDisk { target: path.clone() },
        Change::Cgroup { paths: vec![path.clone()] },
        Change::TraceInstance { path: dir.path().join("instances/vmio-never") },
        Change::Sysfs { path: "/proc/0/comm".into(), before: "1".into() },
        Change::Mapped(Mapped::of("nobody-has-this")),
    ] {
        change.undo(&SCOPE).unwrap();
    }
}

#[test]
fn only_marked_directories_are_emptied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("precious"), "x").unwrap();
    let change = Change::dir(&path);
    assert!(change.undo(&SCOPE).unwrap_err().to_string().contains("not touched"));
    fs::write(path.join(SCRATCH_MARKER), "another\n").unwrap();
    assert!(change.undo(&SCOPE).unwrap_err().to_string().contains("not touched"));
    assert!(path.join("precious").exists());
    fs::write(path.join(SCRATCH_MARKER), "me\n").unwrap();
    change.undo(&SCOPE).unwrap();
    assert!(!path.exists());
    // Killed before the mark was written; then nothing else is in it.
    fs::create_dir(&path).unwrap();
    fs::write(path.join(SCRATCH_MARKER), "").unwrap();
    fs::write(path.join("precious"), "x").unwrap();
    assert!(change.undo(&SCOPE).unwrap_err().to_string().contains("not touched"));
    assert!(path.join(SCRATCH_MARKER).exists());
    fs::remove_file(path.join("precious")).unwrap();
    change.undo(&SCOPE).unwrap();
    assert!(!path.exists());
    // A link put in its place is never followed.
    let target = dir.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join(SCRATCH_MARKER), "me\n").unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert!(change.undo(&SCOPE).unwrap_err().to_string().contains("no longer a directory"));
    assert!(target.join(SCRATCH_MARKER).exists());
}

#[test]
fn only_instances_of_vmio_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    for wrong in ["instances/other", "vmio-x", "elsewhere/vmio-x"] {
        let path = dir.path().join(wrong);
        fs::create_dir_all(&path).unwrap();
        let change = Change::TraceInstance { path: path.clone() };
        assert!(change.undo(&SCOPE).unwrap_err().to_string().contains("not touched"));
        assert!(path.exists());
    }
    let path = dir.path().join("instances/vmio-x");
    fs::create_dir(&path).unwrap();
    Change::TraceInstance { path: path.clone() }.undo(&SCOPE).unwrap();
    assert!(!path.exists());
}

#[test]
fn value_is_restored_within_the_same_boot() {
    // A value that each process may set for itself (core(5)).
    let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let path = PathBuf::from(format!("/proc/{}/coredump_filter", process.id()));
    let value = || fs::read_to_string(&path).unwrap().trim().to_owned();
    fs::write(&path, "0x3f").unwrap();
    let change = Change::Sysfs { path: path.clone(), before: "0x33".into() };
    change.undo(&Scope { cookie: "me", same_boot: false, held: &[] }).unwrap();
    assert_eq!(value(), "0000003f");
    change.undo(&SCOPE).unwrap();
    assert_eq!(value(), "00000033");
    process.kill().unwrap();
    process.wait().unwrap();
    change.undo(&SCOPE).unwrap();
}

#[test]
fn files_on_an_own_disk_go_with_it() {
    let disk = [Change::OwnDisk { target: "/run/vmio/disk".into() }, Change::Mount { target: "/mnt".into() }];
    let goes = |change: Change| change.goes_with_a_disk(&disk);
    assert!(goes(Change::file("/run/vmio/disk/scratch/a")) && goes(Change::dir("/run/vmio/disk/scratch")));
    for stays in ["/run/vmio/disk", "/run/vmio/disk2/a", "/mnt/a", "/run/vmio/disk/../a"] {
        assert!(!goes(Change::file(stays)), "{stays}");
    }
    assert!(!goes(Change::loop_over("/run/vmio/disk/a")), "a loop device is the machine's");
}

#[test]
fn display_and_relative_paths() {
    let change = Change::Cgroup { paths: vec!["/sys/fs/cgroup/x".into(), "y".into()] };
    assert_eq!(change.to_string(), "control group /sys/fs/cgroup/x");
    assert_eq!(change.relative_path(), Some(Path::new("y")));
}
