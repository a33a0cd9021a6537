//! Loop devices, mounts and control groups of a dead owner are undone. Needs root.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use vmio_node::{Change, Exec, Journal, Local, Node, leftovers, recover};

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Directories for one new control group, in the first hierarchy that there is.
fn cgroup(name: &str) -> Option<PathBuf> {
    let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    roots.iter().map(Path::new).find(|r| r.join("cgroup.procs").exists()).map(|r| r.join(name))
}

fn loops_over(file: &Path) -> usize {
    vmio_node::loops::loop_devices().iter().filter(|l| l.backing == file).count()
}

/// Makes a file, a loop device over it, a file system on that, a mount of it, and a control group
/// with a process in it, each one written down first.
fn make_all(journal: &Arc<Journal>, dir: &Path) -> (PathBuf, PathBuf, Option<PathBuf>) {
    let (image, target) = (dir.join("image"), dir.join("target"));
    journal.scratch_dir(dir).unwrap();
    journal.scratch_file(&image).unwrap().0.set_len(16 << 20).unwrap();
    run("mke2fs", &["-q", image.to_str().unwrap()]);
    journal.record(Change::dir(&target)).unwrap();
    std::fs::create_dir(&target).unwrap();
    journal.record(Change::loop_over(&image)).unwrap();
    journal.record(Change::Mount { target: target.clone() }).unwrap();
    run("mount", &["-o", "loop", image.to_str().unwrap(), target.to_str().unwrap()]);
    let group = cgroup(journal.cookie());
    let mut cmd = Exec::new("sh").args(["-c", "cd \"$0\" && exec sleep 1000", target.to_str().unwrap()]);
    if let Some(group) = &group {
        journal.record(Change::Cgroup { paths: vec![group.clone()] }).unwrap();
        std::fs::create_dir(group).unwrap();
        cmd.cgroup_procs = vec![group.join("cgroup.procs")];
    }
    std::mem::forget(Local::owned(Arc::clone(journal)).spawn(&cmd).unwrap());
    (image, target, group)
}

fn assert_gone(dir: &Path, image: &Path, group: Option<&Path>) {
    assert_eq!(loops_over(image), 0);
    assert!(!std::fs::read_to_string("/proc/mounts").unwrap().contains(dir.to_str().unwrap()));
    assert!(!dir.exists());
    assert!(group.is_none_or(|g| !g.exists()), "{group:?}");
}

/// Says that a part of a test runs in mounts of its own.
const ALONE: &str = "VMIO_TEST_ALONE";

/// Runs a part of this program in a mount namespace of its own. Whoever makes one meanwhile has a copy of all that is
/// mounted here (mount_namespaces(7)), and with it the loop device in use for as long as that lives: other tests do.
fn in_own_mounts(part: &str) {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--"]).arg(std::env::current_exe().unwrap());
    let output = command.args([part, "--exact", "--ignored", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // No test of that name is a success, too.
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

#[test]
#[ignore = "root"]
fn a_living_owner_undoes_everything() {
    if !is_alone() {
        return in_own_mounts("root_undo::a_living_owner_undoes_everything");
    }
    let temp = tempfile::tempdir().unwrap();
    let (state, dir) = (temp.path().join("state"), temp.path().join("scratch"));
    let journal = Arc::new(Journal::open(&state, "owner").unwrap());
    let (image, _, group) = make_all(&journal, &dir);
    assert_eq!(loops_over(&image), 1);
    assert_eq!(journal.undo_all(), Vec::<String>::new());
    assert_gone(&dir, &image, group.as_deref());
}

/// The owner that gets killed.
#[test]
#[ignore = "root: started by the other test"]
fn helper_victim() {
    let Ok(dir) = std::env::var("VMIO_TEST_DIR") else { return };
    let dir = Path::new(&dir);
    let journal = Arc::new(Journal::open(&dir.join("state"), "owner").unwrap());
    let (_, _, group) = make_all(&journal, &dir.join("scratch"));
    std::fs::write(dir.join("ready"), group.map_or(String::new(), |g| g.to_str().unwrap().into())).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1000));
}

#[test]
#[ignore = "root"]
fn next_start_undoes_a_killed_owners_changes() {
    if !is_alone() {
        return in_own_mounts("root_undo::next_start_undoes_a_killed_owners_changes");
    }
    let temp = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["root_undo::helper_victim", "--exact", "--ignored", "--nocapture"])
        .env("VMIO_TEST_DIR", temp.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let ready = temp.path().join("ready");
    vmio_testbed::poll_until("the victim has made all", || {
        assert!(victim.try_wait().unwrap().is_none(), "the victim failed");
        std::fs::read_to_string(&ready).is_ok_and(|r| !r.is_empty() || cgroup("x").is_none())
    });
    victim.kill().unwrap();
    victim.wait().unwrap();
    let (state, scratch) = (temp.path().join("state"), temp.path().join("scratch"));
    let image = scratch.join("image");
    assert_eq!(loops_over(&image), 1);
    let left = leftovers(&state);
    assert!(["journal", "process", "loop device"].iter().all(|w| left.iter().any(|l| l.starts_with(w))), "{left:?}");
    let done = recover(&state);
    assert_eq!(done.failed, Vec::<String>::new());
    let group = std::fs::read_to_string(&ready).unwrap();
    assert_gone(&scratch, &image, (!group.is_empty()).then_some(Path::new(&group)));
    assert_eq!(leftovers(&state), Vec::<String>::new());
}

/// Another user's journal is not obeyed, wherever it lies; nor is one's own below another user's directory.
#[test]
#[ignore = "root"]
fn a_journal_of_another_user_is_refused_and_told() {
    use std::os::unix::fs::{PermissionsExt, chown};
    const STRANGER: u32 = 65534;
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().canonicalize().unwrap().join(name);
    let (journals, shadow) = (at("above/journals"), at("shadow"));
    std::fs::create_dir_all(&journals).unwrap();
    std::fs::write(&shadow, "root:x:").unwrap();
    let change = |body: String| format!("{{\"do\":1,\"change\":{body}}}\n");
    let head = format!(
        "{{\"vmio_journal\":1,\"owner\":\"run\",\"cookie\":\"nobodys\",\"boot_id\":\"{}\",\"pid\":1,\"start_ticks\":1}}\n",
        vmio_node::machine::boot_id()
    );
    let path = journals.join("planted.journal");
    let plant = |body: String| {
        std::fs::write(&path, head.clone() + &change(body)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let shown = shadow.display();
    for body in [
        format!("{{\"file\":{{\"path\":\"{shown}\"}}}}"),
        format!("{{\"sysfs\":{{\"path\":\"{shown}\",\"before\":\"mallory::0:0\"}}}}"),
    ] {
        let refused = |why: &str| {
            let done = recover(&journals);
            assert!(done.undone.is_empty() && done.failed.len() == 1 && done.failed[0].contains(why), "{done:?}");
            assert_eq!(std::fs::read_to_string(&shadow).unwrap(), "root:x:");
        };
        plant(body.clone());
        chown(&path, Some(STRANGER), None).unwrap();
        refused("it belongs to user 65534");
        chown(&path, Some(0), None).unwrap();
        for dir in [&journals, &at("above")] {
            chown(dir, Some(STRANGER), None).unwrap();
            refused("belongs to user 65534, so others could write what vmio believes");
            assert!(matches!(Journal::open(&journals, "run"), Err(vmio_node::Error::Untrusted { .. })));
            chown(dir, Some(0), None).unwrap();
        }
        // Root's own, but out of bounds.
        refused("shadow");
    }
}
