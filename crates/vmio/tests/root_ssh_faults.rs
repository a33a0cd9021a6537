//! What goes wrong on another machine that is measured by `ssh`, and on the way to it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use vmio_testbed::{limit, scratch};

use crate::help::disk::{Disk, tool as run};
use crate::help::sshd::{ON_A_DISK, Server, agents, only_agents, programs_but, rounds, stand_in, study};
use crate::help::state_dir::StateDir;

#[test]
#[ignore = "root"]
fn a_broken_connection_keeps_the_run_and_cleans_up() {
    let (server, state, before) = (Server::start(), StateDir::new(), agents());
    let there = scratch();
    let rows = ON_A_DISK.replace("rand-read-1\", \"dd-read", "rand-read-1").replace(", \"lu\"", "");
    let study = study(server.dir.path(), &rows.replacen("20.0 }", "60.0 }", 1));
    rounds(&study, 3);
    let on = format!("{}{}", server.address(), there.path().display());
    let ssh = server.ssh("known", "user");
    let mut command = state.command(&["study", "run", &study, "--yes", "--on", &on]);
    let running = command.env("VMIO_SSH", &ssh).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    server.until("it measures", || state.samples() >= 2);
    assert_eq!(fs::read_dir(there.path()).unwrap().count(), 1, "its file is there");
    run("pkill", &["-KILL", "-f", &format!("^{ssh}")]);
    let ended = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(4), "{said}");
    assert!(said.contains("samples are kept") && said.contains("to continue: --resume"), "{said}");
    server.until("the file is gone there", || fs::read_dir(there.path()).unwrap().count() == 0);
    let fio = there.path().display().to_string();
    server.until("no fio is left", || !Command::new("pgrep").args(["-f", &fio]).output().unwrap().status.success());
    only_agents(&before);
    assert!((2..9).contains(&state.samples()), "{said}");
    let mut command = state.command(&["study", "run", &study, "--yes", "--on", &on, "--resume"]);
    state.finish(command.env("VMIO_SSH", &ssh)).with(0).says(&["resuming run"]);
    assert_eq!((state.samples(), state.last().unwrap().skipped), (9, Vec::new()));
    only_agents(&before);
    assert_eq!(fs::read_dir(there.path()).unwrap().count(), 0);
    state.is_clean();
}

/// A stopped `ssh` holds its connection open and carries nothing, as a way does that is cut without a word: neither end hears
/// of it.
#[test]
#[ignore = "root"]
fn long_a_way_that_is_cut_without_a_word_ends_both_ends() {
    let (server, before) = (Server::start(), agents());
    let states = [StateDir::new(), StateDir::new()];
    let there = scratch();
    let [disk, wire] = ["disk", "wire"].map(|name| server.dir.path().join(name));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&wire).unwrap();
    let studies = [
        study(&disk, &ON_A_DISK.replacen("20.0 }", "400.0 }", 1).replace(", \"dd-read\"", "")),
        study(
            &wire,
            " }\n[[matrix]]\nsides = [\"native\"]\npaths.networks = [\"wire\"]\npaths.peers = [\"peer\"]\n\
             workloads = [\"iperf3-tcp\"]\n",
        ),
    ];
    studies.iter().for_each(|study| rounds(study, 200));
    let on = format!("{}{}", server.address(), there.path().display());
    let peer = server.address().to_string();
    let ssh = server.ssh("known", "user");
    let began = |state: &StateDir, study: &str, more: &[&str]| {
        let mut command = state.command(&["study", "run", study, "--yes", "--minutes", "20"]);
        command.args(more).env("VMIO_SSH", &ssh).spawn().unwrap()
    };
    let running = [
        began(&states[0], &studies[0], &["--on", &on]),
        began(&states[1], &studies[1], &["--no-gentle", "--peer", &peer]),
    ];
    server.until("both measure", || states.iter().all(|state| state.samples() >= 2));
    run("pkill", &["-STOP", "-f", &format!("^{ssh}")]);
    let stopped = Instant::now();
    // The agents end on their own after a minute, before anybody here has noticed.
    let gone = |is: &dyn Fn() -> bool| {
        while !is() && stopped.elapsed() < limit() * 3 {
            thread::sleep(Duration::from_millis(100));
        }
    };
    gone(&|| fs::read_dir(there.path()).unwrap().count() == 0 && agents() == before);
    assert_eq!((fs::read_dir(there.path()).unwrap().count(), agents()), (0, before));
    assert!(stopped.elapsed() > Duration::from_secs(30), "they were not told");
    for (state, child) in states.iter().zip(running) {
        let ended = state.end(child).with(4);
        ended.says(&["the agent is gone: no answer in 60 s", "--resume"]);
        let run = state.last().unwrap();
        assert!(run.samples.len() >= 2 && run.skipped.is_empty(), "{:?}", run.skipped);
        state.is_clean();
    }
}

/// The cells on a disk there, without what goes through memory.
fn disk_alone() -> String {
    let rows = ON_A_DISK.replace(", \"dd-read\"", "");
    rows.split("[[matrix]]").take(2).collect::<Vec<_>>().join("[[matrix]]")
}

/// A file system on a disk of its own, mounted for whoever comes later.
struct Mounted {
    disk: Disk,
    dir: tempfile::TempDir,
}

impl Mounted {
    fn new() -> Mounted {
        let (disk, dir) = (Disk::new(600), tempfile::tempdir().unwrap());
        run("mkfs.ext4", &["-q", "-m", "0", &disk.device]);
        run("mount", &[&disk.device, &dir.path().display().to_string()]);
        Mounted { disk, dir }
    }

    /// The vmio's own file there, once there is one; else what is there.
    fn made(&self) -> Option<std::path::PathBuf> {
        let names = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("vmio-")).last()
    }

    /// Takes all of its space but so many bytes.
    fn fill(&self, but_bytes: u64) {
        let (to, mib) = (format!("of={}", self.others()), 1 << 20);
        let count = if but_bytes > 0 { (self.free_bytes() - but_bytes) / mib } else { u64::MAX / mib };
        // It fails where there is no end before the disk's.
        let wrote = Command::new("dd")
            .args(["if=/dev/zero", &to, "bs=1M", &format!("count={count}"), "conv=fsync", "status=none"])
            .status();
        assert!(wrote.is_ok() && self.free_bytes() < but_bytes + 16 * mib, "{} are free", self.free_bytes());
    }

    fn free_bytes(&self) -> u64 {
        let free = rustix::fs::statvfs(self.dir.path()).unwrap();
        free.f_bavail * free.f_frsize
    }

    fn others(&self) -> String {
        self.dir.path().join("of-others").display().to_string()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.dir.path()).status();
        let _ = &self.disk;
    }
}

#[test]
#[ignore = "root"]
fn a_remote_disk_that_others_fill_is_left_alone() {
    // The server's own mounts are those of its start. A quota is no less room to `df` than none.
    let (mounted, dir) = (Mounted::new(), tempfile::tempdir().unwrap());
    stand_in(dir.path(), "df", "printf 'Filesystem\\n/dev/x 9 1 99999999 1%% /\\n'");
    run("ip", &["link", "set", "lo", "up"]);
    let server = Server::at(&[], "127.0.0.1", &format!("SetEnv PATH={}\n", dir.path().display()));
    let (state, before) = (StateDir::new(), agents());
    let study = study(server.dir.path(), &disk_alone());
    let on = format!("{}{}", server.address(), mounted.dir.path().display());
    let began = || {
        let mut command = state.command(&["study", "run", &study, "--yes", "--on", &on]);
        state.spawn(command.env("VMIO_SSH", server.ssh("known", "user")))
    };
    // While its file is filled.
    mounted.fill(100 << 20);
    let ended = state.end(began()).with(1);
    ended.says(&["were not all written", "No space left on device", "free some there", &server.address().to_string()]);
    only_agents(&before);
    assert_eq!(mounted.made(), None);
    fs::remove_file(mounted.others()).unwrap();
    // While cells run: what they write has its blocks.
    let running = began();
    server.until("it measures", || state.samples() >= 1);
    mounted.fill(0);
    state.end(running).with(0);
    assert_eq!((state.samples(), state.last().unwrap().skipped), (4, Vec::new()));
    only_agents(&before);
    assert_eq!(mounted.made(), None);
    state.is_clean();
    // Nobody has it mounted still.
    drop(server);
}

#[test]
#[ignore = "root"]
fn what_a_machine_lacks_is_not_measured_there_and_the_rest_is() {
    let (state, before, dir) = (StateDir::new(), agents(), tempfile::tempdir().unwrap());
    programs_but(dir.path(), &["fio"]);
    run("ip", &["link", "set", "lo", "up"]);
    let server = Server::at(&[], "127.0.0.1", &format!("SetEnv PATH={}\n", dir.path().display()));
    let there = scratch();
    let both = study(server.dir.path(), &ON_A_DISK.replace(", \"dd-read\"", ""));
    let on = format!("{}{}", server.address(), there.path().display());
    let run_of = |study: &str, more: &[&str]| {
        let mut command = state.command(&["study", "run", study, "--yes", "--on", &on]);
        state.finish(command.args(more).env("VMIO_SSH", server.ssh("known", "user")))
    };
    let lacks = format!("on {}: fio: no program fio in PATH; apt install fio", server.address());
    run_of(&both, &["--dry-run"]).with(0).says(&[&lacks]);
    run_of(&both, &[]).with(0).says(&[&lacks]);
    let run = state.last().unwrap();
    assert!(run.skipped.len() == 2 && run.skipped.iter().all(|skipped| skipped.reason == lacks), "{:?}", run.skipped);
    assert_eq!(run.samples.len(), 4, "openssl and lu, twice each");
    let alone = study(server.dir.path(), &disk_alone());
    run_of(&alone, &[]).with(3).says(&["nothing can be measured here", &lacks]);
    only_agents(&before);
    assert_eq!(fs::read_dir(there.path()).unwrap().count(), 0);
    state.is_clean();
}
