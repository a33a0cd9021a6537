//! Writes the reports of the made-up FIXTURE run into a directory, to be looked at:
//! `cargo run -p vmio --example fixture_report DIR [kvm|paper]`, the last one of a study that
//! measures a paper again.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use vmio::report::{self, Report};
use vmio::store::Store;
use vmio_model::result::Accel;

fn main() {
    let dir = std::path::PathBuf::from(std::env::args_os().nth(1).expect("a directory"));
    let made = match std::env::args().nth(2).as_deref() {
        None => common::run(Accel::Tcg),
        Some("paper") => common::paper::run(Accel::Tcg),
        Some(_) => common::run(Accel::Kvm),
    };
    std::fs::create_dir_all(&dir).unwrap();
    let store = Store::open(&dir.join("vmio.db")).unwrap();
    let run = store.load(common::store_run(&store, &made)).unwrap();
    let report = Report::of(&run);
    std::fs::write(dir.join("report.html"), report::html(&report)).unwrap();
    std::fs::write(dir.join("report.md"), report::markdown(&report)).unwrap();
    std::fs::write(dir.join("report.json"), report::json(&report)).unwrap();
    std::fs::write(dir.join("report.txt"), report::text(&report, vmio::term::Style::PLAIN)).unwrap();
}
