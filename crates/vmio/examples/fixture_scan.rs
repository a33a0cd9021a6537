//! Writes the forms of a scan of a made-up host into a directory, to be looked at:
//! `cargo run -p vmio --example fixture_scan DIR`.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/scan.rs"]
mod scan;

use vmio::report::scan::{html, json};

fn main() {
    let dir = std::path::PathBuf::from(std::env::args_os().nth(1).expect("a directory"));
    std::fs::create_dir_all(&dir).unwrap();
    let view = scan::view();
    let pages = [("scan.html".to_owned(), html(&view)), ("scan.json".to_owned(), json(&view))];
    for (name, text) in scan::golden(&view).into_iter().chain(pages) {
        std::fs::write(dir.join(name), text).unwrap();
    }
}
