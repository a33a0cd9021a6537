//! The check that tests leave nothing behind (`examples/leaks.rs`) must itself be able to fail.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

fn leaks(script: &str) -> Output {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("examples/leaks");
    let place = tempfile::tempdir().unwrap();
    Command::new(program).args(["sh", "-c", script]).env("TMPDIR", place.path()).output().unwrap()
}

#[test]
fn what_a_command_leaves_is_told_and_its_code_is_kept() {
    let clean = leaks("sleep 0.1 & f=$TMPDIR/f; touch $f; rm $f; wait; exit 7");
    assert_eq!(clean.status.code(), Some(7), "{clean:?}");
    // An orphan in a session of its own, without a variable of its parent's, and a file.
    let left = leaks("env -i setsid -f sleep 97; touch $TMPDIR/f");
    assert_eq!(left.status.code(), Some(1));
    let said = String::from_utf8(left.stderr).unwrap();
    assert!(said.contains("sleep 97") && said.contains("temporary file"), "{said}");
    let running = Command::new("pgrep").args(["-fx", "sleep 97"]).output().unwrap();
    assert!(running.stdout.is_empty(), "it was ended: {running:?}");
}

#[test]
fn what_others_start_meanwhile_does_not_count() {
    let mut other = Command::new("sleep").arg("20").env("VMIO_OWNER", "another").spawn().unwrap();
    let clean = leaks("sleep 0.5");
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(clean.status.success(), "{clean:?}");
}
