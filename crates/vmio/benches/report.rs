//! How long a person waits: `vmio --help`, `vmio runs list`, a report from the store in each form,
//! and `vmio explain` of a run, as processes, the store's file in the page cache. Prints the median
//! and the worst of 20.
//! `cargo bench -p vmio --bench report`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::process::{Command, Stdio};
use std::time::Instant;

use vmio::store::Store;
use vmio_model::result::Accel;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    let mut run = common::run(Accel::Kvm);
    // Raw output as large as fio's json+ of a real job.
    let bins: serde_json::Value =
        (0..2000).map(|i| (format!("{}", i * 512), serde_json::json!(i))).collect::<serde_json::Map<_, _>>().into();
    run.samples.iter_mut().for_each(|s| s.result.raw = serde_json::json!({ "said": s.result.raw, "clat_ns": bins }));
    let started = Instant::now();
    common::store_run(&store, &run);
    let each = started.elapsed().as_secs_f64() * 1e3 / run.samples.len() as f64;
    println!("{:<36} {each:7.2} ms", format!("a sample stored (of {})", run.samples.len()));
    let page = dir.path().join("report.html");
    for args in [
        &["--help"][..],
        &["runs", "list"],
        &["runs", "show", "1"],
        &["runs", "show", "1", "--json"],
        &["runs", "show", "1", "--html", page.to_str().unwrap()],
        &["runs", "export", "1"],
        // Where the time of a request goes: at most 200 ms, whatever the run has.
        &["explain", "1"],
        &["explain", "1", "--json"],
        &["explain", "1", "--html", page.to_str().unwrap()],
    ] {
        let mut times: Vec<f64> = (0..20)
            .map(|_| {
                let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
                command.args(args).env("VMIO_STATE", dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
                let started = Instant::now();
                assert!(command.status().unwrap().success());
                started.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let name = args.join(" ").replace(page.to_str().unwrap(), "FILE");
        println!("{:<36} {:7.2} ms, worst {:.2} ms", format!("vmio {name}"), times[10], times[19]);
    }
}
