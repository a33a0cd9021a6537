//! `--on` in a directory that belongs to another user, who plays every trick that its owner can:
//! renames what vmio made there and puts directories and links of their own in its place. No file
//! that vmio did not make is ever written, and the run says what happened. Also: what may not be
//! written at all, and what a killed run leaves running.
#![allow(clippy::unwrap_used)]

use crate::help::state_dir;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use state_dir::{Ended, StateDir, fixture, unfolded};
use vmio_testbed::{poll_for, scratch};

/// The other user: `nobody`.
const OTHER: u32 = 65534;
/// Size of the targets of the studies here: a victim of the same size is no reason to stop for fio.
const BYTES: u64 = 384 << 20;

/// A directory of the other user's, and beside it a file of root's that they want to see destroyed.
struct Hostile {
    dir: tempfile::TempDir,
    state: StateDir,
}

impl Hostile {
    fn new(state: StateDir) -> Self {
        // Its path must be open to the other user, which cargo's directory need not be.
        let dir = scratch();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(dir.path().join("home/images")).unwrap();
        for owned in ["home", "home/images"] {
            chown(dir.path().join(owned), Some(OTHER), Some(OTHER)).unwrap();
        }
        fs::File::create(dir.path().join("victim")).unwrap().set_len(BYTES).unwrap();
        fs::set_permissions(dir.path().join("victim"), fs::Permissions::from_mode(0o600)).unwrap();
        Self { dir, state }
    }

    fn images(&self) -> PathBuf {
        self.dir.path().join("home/images")
    }

    /// Starts a study there.
    fn start(&self, study: &str) -> Child {
        let mut command = self.state.command(&["study", "run", "--yes", "--no-gentle"]);
        self.state.spawn(command.arg(fixture(study)).arg("--on").arg(self.images()))
    }

    /// Runs a script as the other user, in their directory.
    fn other(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(self.images()).uid(OTHER).gid(OTHER);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }

    /// The scratch directory, once it is there.
    fn scratch(&self, run: &mut Child) -> PathBuf {
        let found = || {
            let entries = fs::read_dir(self.images()).unwrap().map(|e| e.unwrap().path());
            entries.into_iter().find(|p| p.file_name().unwrap().to_string_lossy().starts_with("vmio-scratch-"))
        };
        poll_for("a scratch directory is there", || {
            let ended = run.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {ended:?}");
            found().ok_or("it is not there")
        })
    }

    /// Renames the scratch directory and plants one of the other user's, full of links to the victim
    /// by every name that vmio gives its files.
    fn exchange(&self, scratch: &Path) {
        let name = scratch.file_name().unwrap().to_str().unwrap();
        self.other(&format!(
            "mv {name} stolen; mkdir {name}; cd {name}
             for t in sparse preallocated served device qcow2 qcow2-chain; do
               ln -s ../../../victim vmio-$t.raw
               for n in 1 2 3 4 5 6 7 8 9; do ln -s ../../../victim vmio-$t-$n.qcow2; done
             done
             printf '%s\n' '{}' > .vmio-scratch",
            name.strip_prefix("vmio-scratch-").unwrap()
        ));
    }

    /// The end of a run, and that root's file is as it was.
    #[track_caller]
    fn end(&self, run: Child) -> Ended {
        let ended = self.state.end(run);
        let seen = fs::metadata(self.dir.path().join("victim")).unwrap();
        assert_eq!((seen.len(), seen.blocks()), (BYTES, 0), "the victim was written");
        ended
    }

    /// Nothing of root's was changed, nothing of vmio's is left but what the other user made, and no
    /// loop device is held.
    #[track_caller]
    fn is_unharmed(&self) {
        self.place_is_unharmed();
        self.state.is_clean();
    }

    #[track_caller]
    fn place_is_unharmed(&self) {
        let victim = self.dir.path().join("victim");
        let seen = fs::metadata(&victim).unwrap();
        assert_eq!((seen.len(), seen.blocks()), (BYTES, 0), "the victim was written");
        for name in fs::read_dir(self.images()).unwrap().map(|e| e.unwrap().path()) {
            let owner = fs::symlink_metadata(&name).unwrap().uid();
            assert_eq!(owner, OTHER, "{} was left behind", name.display());
        }
        let loops = vmio_node::loops::loop_devices();
        assert!(loops.iter().all(|l| !l.backing.starts_with(self.dir.path())), "{loops:?}");
    }
}

fn says_what_happened(ended: Ended) -> Ended {
    assert!(!unfolded(&ended.err).contains("not undone"), "{}", ended.err);
    ended.says(&["is no longer what vmio created", "vmio wrote only to its own file and has ended the run"])
}

#[test]
#[ignore = "root"]
fn a_place_of_another_user_works_and_is_left_as_it_was() {
    let hostile = Hostile::new(StateDir::new());
    let mut command = hostile.state.command(&["study", "run", "--yes", "--no-gentle", "--minutes", "0.02"]);
    let ended = hostile.state.finish(command.arg(fixture("hostile.toml")).arg("--on").arg(hostile.images()));
    assert!(matches!(ended.code, Some(0 | 4)), "{}", ended.err);
    let run = hostile.state.last().unwrap();
    assert!(!run.samples.is_empty(), "{}", ended.err);
    // Results have names, not descriptors.
    let named = format!("{}/vmio-scratch-", hostile.images().display());
    assert!(run.samples.iter().all(|s| s.result.command.contains(&named)), "{}", run.samples[0].result.command);
    assert_eq!(fs::read_dir(hostile.images()).unwrap().count(), 0);
    hostile.is_unharmed();
}

#[test]
#[ignore = "root"]
fn links_planted_before_the_first_cell_are_not_followed() {
    let hostile = Hostile::new(StateDir::new());
    let mut run = hostile.start("hostile.toml");
    let scratch = hostile.scratch(&mut run);
    hostile.exchange(&scratch);
    let ended = hostile.end(run);
    assert!(matches!(ended.code, Some(1 | 4)), "{:?} {}", ended.code, ended.err);
    says_what_happened(ended);
    hostile.is_unharmed();
}

#[test]
#[ignore = "root"]
fn links_planted_between_cells_end_the_run_and_reach_nothing() {
    let hostile = Hostile::new(StateDir::new());
    let mut run = hostile.start("hostile.toml");
    hostile.state.wait_for_samples(&mut run, 2);
    let scratch = hostile.scratch(&mut run);
    hostile.exchange(&scratch);
    says_what_happened(hostile.end(run).with(4)).says(&["a link has taken its place", "images/stolen/vmio-"]);
    assert!(hostile.state.samples() >= 2, "what was measured is kept");
    hostile.is_unharmed();
}

/// By way of QEMU, a storage server, qemu-img and a loop device.
#[test]
#[ignore = "root"]
fn links_planted_under_a_guest_end_the_run_and_reach_nothing() {
    let hostile = Hostile::new(StateDir::with_image());
    let mut run = hostile.start("hostile-guest.toml");
    hostile.state.wait_for_samples(&mut run, 3);
    let scratch = hostile.scratch(&mut run);
    hostile.exchange(&scratch);
    says_what_happened(hostile.end(run).with(4));
    hostile.is_unharmed();
}

#[test]
#[ignore = "root"]
fn what_a_killed_run_leaves_running_ends_by_itself() {
    let hostile = Hostile::new(StateDir::with_image());
    let mut run = hostile.start("hostile-guest.toml");
    hostile.state.wait_for_samples(&mut run, 1);
    let names = marked(run.id());
    for program in ["qemu-storage-", "qemu-system-"] {
        assert!(names.iter().any(|n| n.starts_with(program)), "{names:?}");
    }
    ends_by_itself(&mut run);
    // The rest is the next start's, which finds what was renamed meanwhile.
    hostile.other("mv vmio-scratch-* stolen");
    assert_eq!(vmio_node::recover(&hostile.state.path().join("journals")).failed, Vec::<String>::new());
    hostile.place_is_unharmed();

    // The native side: fio at work.
    let hostile = Hostile::new(StateDir::new());
    let mut run = hostile.start("hostile.toml");
    let pid = run.id();
    hostile.state.wait_for(&mut run, || marked(pid).iter().any(|n| n == "fio"));
    ends_by_itself(&mut run);
    // What cannot be found is told at each start, with what finds it, until it is gone.
    hostile.other("cd ..; mv images away; mkdir images");
    let recover = || vmio_node::recover(&hostile.state.path().join("journals")).failed;
    let [said] = &recover()[..] else { panic!("one directory is missing") };
    assert!(said.contains("is not there any more: look for what vmio made there with"), "{said}");
    let find = said.split('`').nth(1).unwrap();
    let found = Command::new("sh").args(["-c", find]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("home/away/vmio-scratch-"), "{find}: {found}");
    hostile.other("cd ..; rmdir images; mv away images");
    assert_eq!(recover(), Vec::<String>::new(), "it is there again");
    hostile.place_is_unharmed();
}

/// Names of the processes that bear the mark of a run of this process.
fn marked(vmio: u32) -> Vec<String> {
    let own = |cookie: &str| cookie.contains(&format!("run-{vmio}-"));
    vmio_node::machine::marked_processes(own).into_iter().map(|p| p.name).collect()
}

/// Kills vmio with SIGKILL: without any start of another one all that it started ends soon, and
/// the process that sees to that too.
#[track_caller]
fn ends_by_itself(run: &mut Child) {
    let pid = run.id();
    let reaper = children(pid).into_iter().find(|p| comm(*p) == "vmio-warden");
    run.kill().unwrap();
    run.wait().unwrap();
    poll_for("all that it started has ended", || {
        let (left, reaper) = (marked(pid), reaper.filter(|w| comm(*w) == "vmio-warden"));
        if left.is_empty() && reaper.is_none() { Ok(()) } else { Err((left, reaper)) }
    });
    assert!(reaper.is_some());
}

/// Processes that a process started itself.
fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |task: PathBuf| fs::read_to_string(task.join("children")).unwrap_or_default();
    tasks
        .flat_map(|t| of(t.unwrap().path()).split_whitespace().map(|p| p.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Short name of a process; empty where it is gone.
fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

#[test]
#[ignore = "root"]
fn an_exchanged_place_ends_the_run() {
    let hostile = Hostile::new(StateDir::new());
    let mut run = hostile.start("hostile.toml");
    hostile.state.wait_for_samples(&mut run, 1);
    let scratch = hostile.scratch(&mut run);
    let name = scratch.file_name().unwrap().to_str().unwrap();
    hostile.other(&format!(
        "cd ..; mv images away; mkdir -p elsewhere/{name}; ln -s elsewhere images; cd elsewhere/{name}
         for t in sparse preallocated; do ln -s ../../../victim vmio-$t.raw; done"
    ));
    says_what_happened(hostile.end(run).with(4)).says(&["home/away/vmio-scratch-"]);
    let away = hostile.dir.path().join("home/away");
    assert_eq!(fs::read_dir(away).unwrap().count(), 0, "what vmio made was found and taken away");
    assert_eq!(fs::read_dir(hostile.images().join(name)).unwrap().count(), 2, "what it did not make stays");
    hostile.is_unharmed();
}
