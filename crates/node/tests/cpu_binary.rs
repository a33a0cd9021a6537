//! The kernels as a program of its own: what it prints, and how it ends.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use vmio_node::cpu::Report;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vmio-cpu")).args(args).output().unwrap()
}

#[test]
fn kernel_prints_one_line() {
    let output = run(&["stream-triad", "--size", "1048576", "--seconds", "0.1"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    let report: Report = serde_json::from_str(&text).unwrap();
    assert_eq!((report.kernel.as_str(), report.counts.as_str(), report.size), ("stream-triad", "bytes", 1 << 20));
    // What has begun is finished; three arrays are moved a run.
    assert!(report.seconds >= 0.1 && report.done == report.runs as f64 * 3.0 * f64::from(1 << 20), "{report:?}");
}

#[test]
fn errors_and_version() {
    let wrong = run(&["fft", "--seconds", "1"]);
    let stderr = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        wrong.status.code() == Some(2) && stderr.contains("no fft") && stderr.contains("usage: vmio-cpu"),
        "{stderr}"
    );
    assert!(String::from_utf8(run(&["--version"]).stdout).unwrap().starts_with("vmio-cpu "));
}
