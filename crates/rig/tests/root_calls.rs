//! The times of a process's system calls and of its requests by io_uring, against fio's own report.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::Bed;
use crate::root_blocktrace::tracing;
use serde_json::Value;
use vmio_look::trace::calls::CallTrace;
use vmio_model::top::calls::CallLoad;
use vmio_testbed::{must_be_root, skip};

/// What fio reports of its job with this engine, and what was counted of its process.
fn counted(device: &Path, engine: &str) -> Option<(Value, CallLoad)> {
    // The programs are loaded by then, which takes long on a busy machine: it is watched before its first request.
    let mut trace = CallTrace::start(&vmio_node::Local::new()).unwrap();
    let fio = Command::new("fio")
        .args(["--name=load", "--thread", "--direct=1", "--rw=randrw", "--bs=8k", "--fsync=8"])
        .args(["--startdelay=2", "--time_based", "--runtime=1", "--rate_iops=600,300", "--output-format=json"])
        // fio says in its report what it thinks of several requests at once of an engine that has one.
        .arg(if engine == "psync" { "--iodepth=1" } else { "--iodepth=4" })
        .args([format!("--ioengine={engine}"), format!("--filename={}", device.display())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = fio.id();
    trace.watch(&BTreeSet::from([pid])).unwrap();
    let output = fio.wait_with_output().unwrap();
    let load = trace.take().unwrap().remove(&pid).unwrap();
    trace.watch(&BTreeSet::new()).unwrap();
    assert!(trace.take().unwrap().is_empty());
    assert_eq!(trace.lost(), 0, "{engine}");
    if !output.status.success() {
        skip(&format!("fio has no engine {engine} here"));
        return None;
    }
    if let Some(tracepoint) = trace.lacks().filter(|_| engine == "io_uring") {
        skip(&format!("the kernel has no tracepoint {tracepoint}"));
        return None;
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some((report["jobs"][0].clone(), load))
}

/// A figure of fio's report.
fn of(job: &Value, path: &str) -> f64 {
    job.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {job}"))
}

/// At most 2 % apart, or three.
fn close(what: &str, ours: u64, theirs: f64) {
    println!("{what}: fio {theirs}, vmio {ours}");
    assert!(theirs > 0.0, "{what}: a load that is not there proves nothing");
    assert!((ours as f64 - theirs).abs() <= (0.02 * theirs).max(3.0), "{what}: fio {theirs}, vmio {ours}");
}

#[test]
#[ignore = "root"]
fn calls_agree_with_fio() {
    must_be_root();
    if tracing().is_none() {
        return;
    }
    let bed = Bed::new();
    let (device, _) = bed.losetup("load", 64);
    // Written out first, so that every read finds its block.
    let mut whole = std::fs::File::options().write(true).open(&device).unwrap();
    whole.write_all(&vec![0x5a; 64 << 20]).unwrap();
    whole.sync_all().unwrap();
    drop(whole);
    for engine in ["psync", "io_uring"] {
        let Some((job, load)) = counted(&device, engine) else { continue };
        for (key, calls) in [("read", &load.reads), ("write", &load.writes)] {
            close(&format!("{engine}: {key}s"), calls.number(), of(&job, &format!("/{key}/total_ios")));
            let requests = calls.done / (8 << 10);
            close(&format!("{engine}: 8 KiB by {key}s"), requests, of(&job, &format!("/{key}/total_ios")));
            // fio's begins before and ends after it, as late as fio gets a processor again.
            let (ours, theirs) =
                (calls.seconds / calls.number() as f64, of(&job, &format!("/{key}/lat_ns/mean")) * 1e-9);
            println!("{engine}: mean of {key}s: fio {theirs:.6}, vmio {ours:.6}");
            assert!(ours <= theirs * 1.1 && ours >= theirs * 0.02, "{engine}, {key}: fio {theirs}, vmio {ours}");
        }
        close(&format!("{engine}: flushes"), load.flushes.number(), of(&job, "/sync/total_ios"));
        assert_eq!(load.submissions.number(), 0, "{engine}");
    }
    let Some((job, load)) = counted(&device, "libaio") else { return };
    let all = of(&job, "/read/total_ios") + of(&job, "/write/total_ios");
    // It flushes by io_submit, too, or by fsync.
    assert!(load.submissions.done as f64 >= 0.98 * all, "fio {all}, vmio {}", load.submissions.done);
    assert!((load.reads.number() as f64) < 0.02 * all, "{} reads told twice", load.reads.number());
}
