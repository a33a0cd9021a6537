//! What an owner that was killed with SIGKILL leaves is cleaned up by the next start.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use vmio_node::{Change, Exec, Journal, Local, Node, leftovers, recover};

/// The owner that gets killed: this very test program, started again for this one "test".
#[test]
#[ignore = "started by the other test"]
fn helper_victim() {
    let Ok(dir) = std::env::var("VMIO_TEST_DIR") else { return };
    let dir = Path::new(&dir);
    let journal = Arc::new(Journal::open(&dir.join("state"), "victim").unwrap());
    let node = Local::owned(Arc::clone(&journal));
    journal.scratch_dir(&dir.join("scratch")).unwrap();
    journal.scratch_file(&dir.join("scratch/image")).unwrap();
    journal.scratch_file(&dir.join("alone")).unwrap();
    let value = std::fs::read_to_string(dir.join("value")).unwrap();
    journal.record(Change::Sysfs { path: value.clone().into(), before: "0x33".into() }).unwrap();
    node.write(Path::new(&value), b"0x3f", None).unwrap();
    // One child in its group, one that left for a session of its own.
    let script = "sleep 1000 & setsid sleep 1000 & wait";
    let _process = node.spawn(&Exec::new("sh").args(["-c", script])).unwrap();
    #[allow(clippy::print_stdout)]
    {
        println!("\nready {}", journal.cookie());
    }
    std::thread::sleep(std::time::Duration::from_secs(1000));
}

/// A process with a value of the kernel's that may be changed without root (core(5)); `value` in the
/// directory names it.
struct Holder(std::process::Child);

impl Holder {
    fn start(dir: &Path) -> Holder {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let holder = Holder(child);
        std::fs::write(dir.join("value"), holder.file()).unwrap();
        holder
    }

    fn file(&self) -> String {
        format!("/proc/{}/coredump_filter", self.0.id())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_victim(dir: &Path) -> (std::process::Child, String) {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["killed_owner::helper_victim", "--exact", "--ignored", "--nocapture"])
        .env("VMIO_TEST_DIR", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).find_map(|l| l.strip_prefix("ready ").map(str::to_owned));
    (victim, ready.unwrap())
}

fn processes(cookie: &str) -> usize {
    vmio_node::machine::marked_processes(|c| c == cookie).len()
}

#[test]
fn the_next_start_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let state = dir.join("state");
    let holder = Holder::start(dir);
    let (mut victim, cookie) = start_victim(dir);
    // The children come up one after the other.
    vmio_testbed::poll_until("all three run", || processes(&cookie) >= 3);
    // While the owner lives, nobody touches what is its own.
    assert_eq!(recover(&state).undone, Vec::<String>::new());
    assert_eq!(leftovers(&state), Vec::<String>::new());
    assert!(dir.join("alone").exists());

    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(processes(&cookie), 3, "SIGKILL leaves the children");
    assert!(leftovers(&state).len() >= 4, "{:?}", leftovers(&state));

    // Two starts at once: each change is undone by one of them.
    let (a, b) = std::thread::scope(|s| {
        let other = s.spawn(|| recover(&state));
        (recover(&state), other.join().unwrap())
    });
    assert_eq!([a.failed, b.failed].concat(), Vec::<String>::new());
    let undone = [a.undone, b.undone].concat();
    assert_eq!(undone.len(), 5, "{undone:?}");
    assert!(undone[0].contains("processes") && undone[1].contains("value of") && undone[4].contains("scratch"));
    assert_eq!(processes(&cookie), 0);
    assert_eq!(leftovers(&state), Vec::<String>::new());
    assert_eq!(std::fs::read_to_string(holder.file()).unwrap().trim(), "00000033");
    drop(holder);
    for path in ["scratch", "alone", "state/victim.journal"] {
        assert!(!dir.join(path).exists(), "{path} is left");
    }
}

#[test]
fn same_owner_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let _holder = Holder::start(dir.path());
    let (mut victim, cookie) = start_victim(dir.path());
    victim.kill().unwrap();
    victim.wait().unwrap();
    let journal = Journal::open(&dir.path().join("state"), "victim").unwrap();
    assert_eq!(processes(&cookie), 0);
    assert!(!dir.path().join("scratch").exists());
    assert_ne!(journal.cookie(), cookie);
}
