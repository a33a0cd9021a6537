//! The agent as a program of its own, on its standard streams.

#![allow(clippy::unwrap_used)]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use vmio_node::{Halves, Node, Remote};

fn start(state: &std::path::Path) -> (Child, Halves) {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_vmio-agent"))
        .args(["--stdio", "--state"])
        .arg(state)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let halves = (Box::new(agent.stdout.take().unwrap()) as _, Box::new(agent.stdin.take().unwrap()) as _);
    (agent, halves)
}

#[test]
fn agent_keeps_the_contract() {
    let state = tempfile::tempdir().unwrap();
    let (mut agent, halves) = start(state.path());
    let node = Remote::connect("child", halves, Duration::from_secs(20)).unwrap();
    crate::common::check_all(&node);
    drop(node);
    assert!(agent.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
}

#[test]
fn next_agent_undoes_a_killed_ones_changes() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let (mut agent, halves) = start(&state);
    let node = Remote::connect("child", halves, Duration::from_secs(20)).unwrap();
    node.write(&dir.path().join("made"), b"x", None).unwrap();
    let process = node.spawn(&vmio_node::Exec::new("sleep").args(["1000"])).unwrap();
    agent.kill().unwrap();
    agent.wait().unwrap();
    drop(process);
    drop(node);
    assert_eq!(vmio_node::leftovers(&state).len(), 2, "a journal and a process");
    let (mut agent, halves) = start(&state);
    let node = Remote::connect("child", halves, Duration::from_secs(20)).unwrap();
    assert_eq!(vmio_node::leftovers(&state), Vec::<String>::new());
    assert!(!dir.path().join("made").exists());
    drop(node);
    assert!(agent.wait().unwrap().success());
}

#[test]
fn wrong_arguments() {
    for args in [&["--what"][..], &[], &["--port"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_vmio-agent")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains("usage: vmio-agent"));
    }
}
