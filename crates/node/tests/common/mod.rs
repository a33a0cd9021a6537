//! The checks that every machine on which commands run must pass, whatever lies between.

#![allow(clippy::unwrap_used, clippy::print_stderr, dead_code)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vmio_node::{End, Error, Exec, Node, SamplePlan};
use vmio_testbed::poll_until;

/// A check: what it shows, and the check itself, on a node with an empty directory of its own.
pub type Check = (&'static str, fn(&dyn Node, &Path));

/// All checks of a real machine.
pub const CHECKS: &[Check] = &[
    ("files are written, read, listed and looked at", files),
    ("a missing path is told with its name", missing),
    ("links are read, not followed", links),
    ("a mode is set whatever the umask", modes),
    ("a large file is put and read back whole", large_file),
    ("the kernel's files are read to their end", kernel_files),
    ("exit codes and signals", ends),
    ("both outputs, binary and apart", outputs),
    ("input of any size, and environment", input),
    ("too much output is cut and said so", truncated),
    ("a program that is not there", no_program),
    ("a control group that is not there", no_group),
    ("oom_score_adj", oom_score),
    ("a time limit ends the whole tree", limit),
    ("kill, try_wait and wait again", kill),
    ("a dropped process is gone", dropped),
    ("what is left of a command's group goes with it", leftover_children),
    ("two commands at once", two_at_once),
    ("samples on the node's clock", samples),
];

/// Runs all checks; panics with the name of the one that fails.
pub fn check_all(node: &dyn Node) {
    for (name, check) in CHECKS {
        let dir = tempfile::tempdir().unwrap();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(node, dir.path())));
        assert!(result.is_ok(), "{}: {name}", node.name());
    }
}

pub fn sh(script: &str) -> Exec {
    Exec::new("sh").args(["-c", script]).limit(Duration::from_secs(60))
}

fn alive(pid: u32) -> bool {
    // A zombie has an empty command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|c| !c.is_empty())
}

fn files(node: &dyn Node, dir: &Path) {
    let file = dir.join("with blank");
    node.write(&file, b"longer than what follows", None).unwrap();
    node.write(&file, b"\0binary\xff", None).unwrap();
    assert_eq!(node.read(&file).unwrap(), b"\0binary\xff");
    assert_eq!(node.read_text(&file).unwrap(), "\0binary\u{fffd}");
    node.write(&dir.join("a"), b"", None).unwrap();
    assert_eq!(node.list(dir).unwrap(), ["a", "with blank"]);
    let stat = node.stat(&file).unwrap().unwrap();
    assert_eq!((stat.size, stat.mode & 0o170_000), (8, 0o100_000));
    assert_eq!(node.stat(dir).unwrap().unwrap().mode & 0o170_000, 0o040_000);
    assert_eq!(node.stat(Path::new("/dev/null")).unwrap().unwrap().rdev, (1, 3));
    assert!(!node.name().is_empty());
    assert_eq!(node.reader().name(), node.name());
}

fn missing(node: &dyn Node, dir: &Path) {
    missing_in_memory(node, dir);
    let path = dir.join("missing");
    assert!(matches!(node.write(&path.join("x"), b"", None), Err(Error::File { what: "write", .. })));
}

/// What also a machine without real directories must say of a missing path.
pub fn missing_in_memory(node: &dyn Node, dir: &Path) {
    let path = dir.join("missing");
    assert_eq!(node.stat(&path).unwrap(), None);
    let error = node.read(&path).unwrap_err();
    assert!(
        matches!(&error, Error::File { what: "read", path: p, source, .. }
        if *p == path && source.kind() == std::io::ErrorKind::NotFound),
        "{error:?}"
    );
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert!(matches!(node.list(&path), Err(Error::File { what: "list", .. })));
    assert!(matches!(node.put(&path, &dir.join("x"), None), Err(Error::File { what: "read", .. })));
}

fn links(node: &dyn Node, dir: &Path) {
    let file = dir.join("f");
    node.write(&file, b"x", None).unwrap();
    std::os::unix::fs::symlink("/nowhere at all", dir.join("l")).unwrap();
    assert_eq!(node.link(&dir.join("l")).unwrap().unwrap(), Path::new("/nowhere at all"));
    assert_eq!(node.link(&file).unwrap(), None);
    assert_eq!(node.link(&dir.join("none")).unwrap(), None);
}

fn modes(node: &dyn Node, dir: &Path) {
    let file = dir.join("f");
    node.write(&file, b"#!/bin/sh\nexit 5\n", Some(0o777)).unwrap();
    assert_eq!(node.stat(&file).unwrap().unwrap().mode & 0o7777, 0o777);
    node.put(&file, &dir.join("g"), Some(0o700)).unwrap();
    assert_eq!(node.stat(&dir.join("g")).unwrap().unwrap().mode & 0o7777, 0o700);
    assert_eq!(node.exec(&Exec::new(dir.join("g").to_str().unwrap())).unwrap().end, End::Exit(5));
}

fn large_file(node: &dyn Node, dir: &Path) {
    let data: Vec<u8> = (0..50_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (from, to) = (dir.join("from"), dir.join("to"));
    std::fs::write(&from, &data).unwrap();
    node.put(&from, &to, None).unwrap();
    assert!(std::fs::read(&to).unwrap() == data, "the copy differs");
    assert!(node.read(&to).unwrap() == data, "what is read differs");
}

fn kernel_files(node: &dyn Node, _: &Path) {
    assert!(node.read_text(Path::new("/proc/self/status")).unwrap().contains("Name:"));
    assert!(node.list(Path::new("/sys/class")).unwrap().contains(&"block".to_owned()));
    assert!(node.read_text(Path::new("/proc/kallsyms")).unwrap().len() > 100_000);
    let (a, b) = (node.clock_seconds().unwrap(), node.clock_seconds().unwrap());
    assert!(0.0 < a && a <= b);
}

fn ends(node: &dyn Node, _: &Path) {
    assert_eq!(node.exec(&sh("exit 0")).unwrap().end, End::Exit(0));
    assert!(node.exec(&sh("true")).unwrap().ok());
    assert_eq!(node.exec(&sh("exit 37")).unwrap().end, End::Exit(37));
    assert_eq!(node.exec(&sh("kill -TERM $$")).unwrap().end, End::Signal(15));
}

fn outputs(node: &dyn Node, _: &Path) {
    let output = node.exec(&sh(r"printf '\000\377out'; printf 'err\001' >&2")).unwrap();
    assert_eq!(output.stdout, b"\0\xffout");
    assert_eq!(output.stderr, b"err\x01");
    assert!(!output.truncated);
    let big = node.exec(&sh("head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2")).unwrap();
    assert_eq!((big.stdout.len(), big.stderr.len(), big.ok()), (5_000_000, 3_000_000, true));
}

fn input(node: &dyn Node, _: &Path) {
    assert_eq!(node.exec(&sh("cat; echo $X")).unwrap().out(), "\n", "no input is the end of the file");
    let mut cmd = sh("cat; printf %s \"$X\"");
    cmd.stdin = vec![7; 3_000_000];
    cmd.env.insert("X".into(), "a b".into());
    let output = node.exec(&cmd).unwrap();
    assert_eq!(output.stdout.len(), 3_000_003);
    assert!(output.stdout.ends_with(b"\x07a b"));
    // A command that does not read its input is none the worse.
    assert_eq!(node.exec(&Exec { stdin: vec![7; 3_000_000], ..sh("exit 3") }).unwrap().end, End::Exit(3));
}

fn truncated(node: &dyn Node, _: &Path) {
    let output = node.exec(&Exec { keep_bytes: 1000, ..sh("head -c 200000 /dev/zero; echo end >&2") }).unwrap();
    assert_eq!((output.stdout.len(), output.truncated, output.ok()), (1000, true, true));
    assert_eq!(output.err(), "end\n");
}

fn no_program(node: &dyn Node, _: &Path) {
    no_program_in_memory(node);
}

pub fn no_program_in_memory(node: &dyn Node) {
    let program = "/nowhere/nothing".to_owned();
    let error = node.spawn(&Exec::new(&program)).err().unwrap();
    assert!(
        matches!(&error, Error::Spawn { program: p, source, .. }
        if *p == program && source.kind() == std::io::ErrorKind::NotFound),
        "{error:?}"
    );
}

fn no_group(node: &dyn Node, dir: &Path) {
    let error = node.exec(&Exec { cgroup_procs: vec![dir.join("cgroup.procs")], ..sh("true") }).unwrap_err();
    assert!(matches!(&error, Error::File { what: "open", .. }), "{error:?}");
    // Any file takes the "0" that the child writes of itself before it executes.
    let file = dir.join("cgroup.procs");
    node.write(&file, b"", None).unwrap();
    let output =
        node.exec(&Exec { cgroup_procs: vec![file.clone()], ..sh("cat \"$0\"").args([file.to_str().unwrap()]) });
    assert_eq!(output.unwrap().out(), "0");
    let error = node.exec(&Exec { cgroup_procs: vec![PathBuf::from("/dev/full")], ..sh("true") }).unwrap_err();
    assert!(matches!(&error, Error::Spawn { .. }) && error.to_string().contains("cannot enter /dev/full"), "{error}");
}

fn oom_score(node: &dyn Node, _: &Path) {
    let output = node.exec(&Exec { oom_score_adj: Some(900), ..sh("cat /proc/self/oom_score_adj") }).unwrap();
    assert_eq!(output.out(), "900\n");
    let error = node.exec(&Exec { oom_score_adj: Some(2000), ..sh("true") }).unwrap_err();
    assert!(error.to_string().contains("oom_score_adj"), "{error}");
}

fn limit(node: &dyn Node, dir: &Path) {
    let pids = dir.join("pids");
    let script = format!("sleep 100 & echo $! >> '{0}'; echo $$ >> '{0}'; echo begun; sleep 100", pids.display());
    let begin = Instant::now();
    let output = node.exec(&sh(&script).limit(Duration::from_secs(3))).unwrap();
    assert_eq!(output.end, End::TimedOut);
    assert_eq!(output.out(), "begun\n");
    assert!(begin.elapsed() < Duration::from_secs(50));
    for pid in std::fs::read_to_string(&pids).unwrap().lines() {
        let pid = pid.parse().unwrap();
        poll_until("what outlived the limit is gone", || !alive(pid));
    }
}

fn kill(node: &dyn Node, _: &Path) {
    let mut process = node.spawn(&sh("sleep 100")).unwrap();
    poll_until("it is there", || alive(process.pid()));
    assert_eq!(process.try_wait().unwrap(), None);
    process.kill().unwrap();
    assert_eq!(process.wait(None).unwrap().end, End::Signal(9));
    assert_eq!(process.wait(None).unwrap().end, End::Signal(9));
    assert_eq!(process.try_wait().unwrap().unwrap().end, End::Signal(9));
    process.kill().unwrap();
}

fn dropped(node: &dyn Node, _: &Path) {
    let process = node.spawn(&sh("sleep 100")).unwrap();
    let pid = process.pid();
    drop(process);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "neither running nor a zombie");
}

fn leftover_children(node: &dyn Node, _: &Path) {
    let output = node.exec(&sh("sleep 100 & echo $!")).unwrap();
    assert_eq!(output.end, End::Exit(0));
    let pid = output.out().trim().parse().unwrap();
    poll_until("what was left is gone", || !alive(pid));
}

fn two_at_once(node: &dyn Node, dir: &Path) {
    // Each waits for the other's file: one after the other they would never end.
    let meet = |mine: &str, other: &str| {
        let (mine, other) = (dir.join(mine), dir.join(other));
        let script = format!(": > '{}'; while [ ! -e '{}' ]; do sleep 0.01; done", mine.display(), other.display());
        node.exec(&sh(&script)).unwrap().end
    };
    let ends = std::thread::scope(|s| {
        let first = s.spawn(|| meet("a", "b"));
        let second = s.spawn(|| meet("b", "a"));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(ends, (End::Exit(0), End::Exit(0)));
}

fn samples(node: &dyn Node, dir: &Path) {
    let file = dir.join("f");
    node.write(&file, b"1", None).unwrap();
    let paths = vec![file.clone(), dir.join("missing"), "/proc/uptime".into()];
    let before = node.clock_seconds().unwrap();
    let sampling = node.sample(&SamplePlan { paths, interval: Duration::from_millis(10) }).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    node.write(&file, b"2", None).unwrap();
    let samples = sampling.stop().unwrap();
    let after = node.clock_seconds().unwrap();
    let (first, last) = (samples.first().unwrap(), samples.last().unwrap());
    assert_eq!((&first.contents[0][..], &last.contents[0][..]), (&b"1"[..], &b"2"[..]));
    assert!(samples.len() >= 2 && samples.iter().all(|s| s.contents.len() == 3 && s.contents[1].is_empty()));
    assert!(samples.is_sorted_by(|a, b| a.seconds < b.seconds));
    assert!(before <= first.seconds && last.seconds <= after);
}

/// An agent in this process, and the client's end of the stream to it.
pub struct InProcess {
    pub stream: std::os::unix::net::UnixStream,
    pub agent: std::thread::JoinHandle<()>,
    pub state: tempfile::TempDir,
}

pub fn start_agent() -> InProcess {
    let (theirs, stream) = std::os::unix::net::UnixStream::pair().unwrap();
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().join("state");
    let agent = std::thread::spawn(move || {
        let port = vmio_node::stream::Port::new(theirs, Some(Duration::from_millis(200)));
        let agent =
            vmio_node::Agent { state: dir, poweroff: None, log: |text| eprintln!("agent: {text}"), silence: None };
        agent.serve(port.clone(), Box::new(port));
    });
    InProcess { stream, agent, state }
}

impl InProcess {
    pub fn halves(&self) -> vmio_node::Halves {
        (Box::new(self.stream.try_clone().unwrap()), Box::new(self.stream.try_clone().unwrap()))
    }

    pub fn connect(&self) -> vmio_node::Remote {
        vmio_node::Remote::connect("guest0", self.halves(), Duration::from_secs(20)).unwrap()
    }

    /// Hangs up, waits for the agent's end, and looks for what it left.
    pub fn end(self) {
        let Self { stream, agent, state } = self;
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        agent.join().unwrap();
        assert_eq!(vmio_node::leftovers(&state.path().join("state")), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(state.path().join("state")).map_or(0, Iterator::count), 0);
    }
}
