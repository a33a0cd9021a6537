//! What TestDFSIO says, as fixtures of real runs, and what it is told.

#![allow(clippy::unwrap_used)]
use vmio_model::figure::check;
use vmio_model::result::BANDWIDTH;
use vmio_node::End;

use super::*;
use crate::workloads::disk::tests::ctx;

// Of real runs: the lines that it logged itself, and those of others that look like them. The path was made short.
const WRITE: &str = include_str!("../../../tests/fixtures/dfsio/write.err");
const READ: &str = include_str!("../../../tests/fixtures/dfsio/read.err");
const ASKED: u64 = 16 << 20;

fn complaint(log: &str, writes: bool, asked: u64) -> String {
    work(log, writes, asked).unwrap_err().to_string()
}

#[test]
fn bytes_and_time_are_those_of_the_task() {
    let write = work(WRITE, true, ASKED).unwrap();
    assert_eq!((write.read_bytes, write.write_bytes, write.ios), (0, ASKED, 16));
    assert!((write.seconds - 0.012).abs() < 1e-9, "{}", write.seconds);
    let read = work(READ, false, ASKED).unwrap();
    assert_eq!((read.read_bytes, read.write_bytes, read.ios), (ASKED, 0, 16));
    assert!((read.seconds - 0.006).abs() < 1e-9, "{}", read.seconds);
}

#[test]
fn what_it_was_not_told_is_no_result() {
    assert_eq!(complaint(READ, true, ASKED), "it was to write, and its summary is of \"read\"");
    assert_eq!(complaint(WRITE, true, ASKED + 1), "it moved 16777216 bytes of 16777217");
    let twice = format!("{WRITE}{WRITE}");
    assert!(complaint(&twice, true, ASKED).contains("more than once"), "{twice}");
    let short = WRITE.replace("Exec time = 12", "Exec time = 0");
    assert_eq!(complaint(&short, true, ASKED), "it took less than a millisecond");
}

#[test]
fn a_log_without_a_result_is_quoted() {
    let said = complaint("java.io.IOException: Job failed!\n", true, ASKED);
    assert!(said.contains("no ----- TestDFSIO ----- :") && said.contains("Job failed!"), "{said}");
    let (bytes, _) = WRITE.split_once("[LocalJobRunner Map Task Executor #0] INFO org.apache.hadoop.fs").unwrap();
    let summary = WRITE.lines().find(|line| line.ends_with("----- : write")).unwrap();
    let said = complaint(&format!("{bytes}{summary}\n"), true, ASKED);
    assert!(said.contains("no Number of bytes processed ="), "{said}");
    let bad = WRITE.replace("Exec time = 12", "Exec time = 1e3");
    assert_eq!(complaint(&bad, true, ASKED), "no number after `Exec time =` in \"1e3\"");
}

fn output(code: i32) -> Output {
    Output { end: End::Exit(code), stdout: WRITE.into(), stderr: READ.into(), truncated: false }
}

#[test]
fn each_direction_has_a_rate_and_both_together_the_bandwidth() {
    let got = result("guest0", "unshare".into(), ASKED, &output(0)).unwrap();
    assert_eq!(check(&ENTRY.traits().figures, &got.figures), Ok(()));
    let near = |figure: &str, seconds: f64, bytes: u64| {
        let found = got.figure(figure).unwrap();
        assert!((found * seconds / bytes as f64 - 1.0).abs() < 1e-9, "{figure}: {found}");
    };
    near(WRITE_RATE, 0.012, ASKED);
    near(READ_RATE, 0.006, ASKED);
    near(BANDWIDTH, 0.018, 2 * ASKED);
    let work = got.disk_work();
    assert_eq!((work.read_bytes, work.write_bytes, work.ios), (ASKED, ASKED, 32));
    assert!(got.raw["write"].to_string().contains("Exec time = 12"), "{}", got.raw);
    let failed = result("guest0", "unshare".into(), ASKED, &output(1)).unwrap_err().to_string();
    assert!(failed.contains("guest0") && failed.contains("Exit(1)"), "{failed}");
    let swapped = Output { stdout: READ.into(), stderr: WRITE.into(), ..output(0) };
    assert!(result("guest0", "unshare".into(), ASKED, &swapped).is_err());
}

#[test]
fn the_file_is_of_twice_the_memory_and_fits_into_its_file_system() {
    assert_eq!((file_bytes(256 << 20), file_bytes(512 << 20)), (512 << 20, 1 << 30));
    assert!(ENTRY.bytes_needed(512 << 20) > (1 << 30) + BESIDE_BYTES);
    let exec = command(&ctx(), 512 << 20, "/jars");
    assert_eq!(exec.program, UNSHARE);
    assert_eq!(exec.args[..4], ["--mount", "--uts", "sh", "-c"]);
    assert_eq!(exec.args[5..], ["sh", "/scratch/target", "786432k", "512MB", "/jars"]);
    assert!(!exec.args[4].contains('\n'), "it is shown in one line");
}

#[test]
fn what_lacks_is_named_with_its_path() {
    let bare = vmio_node::Fake::new("bare");
    let said = (JRE.check)(&bare).unwrap_err().to_string();
    assert_eq!(said, format!("{JAVA} is missing"));
    assert_eq!((JRE.check)(&bare.file(JAVA, "")), Ok(()));
}
