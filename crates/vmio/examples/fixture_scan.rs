//! Writes the forms of a scan of a made-up host into a directory, to be looked at:
//! `cargo run -p vmio --example fixture_scan DIR`.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/scan.rs"]
mod scan;

use vmio::report::scan as report;
use vmio::term::Style;

fn main() {
    let dir = std::path::PathBuf::from(std::env::args_os().nth(1).expect("a directory"));
    std::fs::create_dir_all(&dir).unwrap();
    let view = scan::view();
    let write = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
    write("scan.html", report::html(&view));
    write("scan.json", report::json(&view));
    write("scan.prom", report::prometheus(&view));
    write("nagios.txt", report::nagios::nagios(&view, None).0);
    for width in [80, 120] {
        write(&format!("scan-{width}.txt"), report::overview(&view, Style::PLAIN, width));
    }
    for row in &view.rows {
        let name = &row.guest.name;
        write(&format!("{name}.txt"), report::detail(row, Style::PLAIN, name == "web1"));
    }
}
