//! The check that tests leave nothing behind (`src/suite/inside.rs`) must itself be able to fail.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use vmio_testbed::poll_until;

/// Runs a script as `suite` runs a test; how it ended, and what was told.
fn inside(script: &str, more: &[&str]) -> (Value, Output) {
    let place = tempfile::tempdir().unwrap();
    let result = place.path().join("result");
    let mut command = Command::new(env!("CARGO_BIN_EXE_suite"));
    command.arg("inside").arg(&result).args(more).args(["--", "sh", "-c", script]).env("TMPDIR", place.path());
    let output = command.output().unwrap();
    let text = std::fs::read_to_string(Path::new(&result)).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let mut told: Value = serde_json::from_str(&text).unwrap();
    assert!(told.as_object_mut().unwrap().remove("cpu_seconds").unwrap().as_f64().unwrap() > 0.0);
    (told, output)
}

#[test]
fn leftovers_are_reported() {
    let (clean, output) = inside("sleep 0.1 & f=$TMPDIR/f; touch $f; rm $f; wait; exit 7", &[]);
    assert_eq!(clean, json!({"ended": {"code": 7}, "left": [], "unclaimed": []}));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // An orphan in a session of its own, without a variable of its parent's, and a file.
    let orphan = format!("sleep 97.{}", std::process::id());
    let (left, output) = inside(&format!("env -i setsid -f {orphan}; touch $TMPDIR/f"), &[]);
    assert_eq!((&left["ended"], output.status.code()), (&json!({"code": 0}), Some(1)));
    let lines = left["left"].to_string();
    assert!(lines.contains(&orphan) && lines.contains("temporary file"), "{lines}");
    let running = || Command::new("pgrep").args(["-fx", &orphan]).output().unwrap().stdout;
    poll_until("it was ended", || running().is_empty());
}

#[test]
fn foreign_processes_do_not_count() {
    let mut other = Command::new("sleep").arg("20").env("VMIO_OWNER", "another").spawn().unwrap();
    let (clean, output) = inside("sleep 0.5", &[]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(clean, json!({"ended": {"code": 0}, "left": [], "unclaimed": []}));
}

#[test]
fn what_does_not_end_is_ended_and_told() {
    let (late, _) = inside("sleep 98 & sleep 98", &["--limit", "3"]);
    assert_eq!(late["ended"], "timed-out");
    assert!(late["left"].to_string().contains("sleep 98"), "{late}");
}

#[test]
#[ignore = "root"]
fn root_what_others_pin_is_not_seen() {
    let suite = env!("CARGO_BIN_EXE_suite");
    let seen = format!("{suite} inside $TMPDIR/result --namespaces -- sh -c '! mountpoint -q /sys/fs/bpf'");
    let script = format!(
        "mount -t bpf bpf /sys/fs/bpf || exit 3; {seen}; code=$?; rm $TMPDIR/result; umount /sys/fs/bpf || exit 4; \
         exit $code"
    );
    let (told, output) = inside(&script, &["--namespaces"]);
    assert_eq!(told, json!({"ended": {"code": 0}, "left": [], "unclaimed": []}), "{output:?}");
}

#[test]
#[ignore = "root"]
fn root_leftovers_in_namespaces_are_reported() {
    let (clean, output) = inside("ip link add a0 type veth peer name a1 && ip link del a0", &["--namespaces"]);
    assert_eq!(clean, json!({"ended": {"code": 0}, "left": [], "unclaimed": []}), "{output:?}");
    let script = "ip link add a0 type veth peer name a1; mount -t tmpfs none /mnt; touch /var/tmp/f";
    let (left, _) = inside(script, &["--namespaces"]);
    let lines = left["left"].to_string();
    for what in ["interface a0", "mount none /mnt", "temporary file /var/tmp/f"] {
        assert!(lines.contains(what), "{what}: {lines}");
    }
}
