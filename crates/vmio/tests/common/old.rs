//! What an older vmio measured and said: `fixtures/runs/` (README.md there).
#![allow(clippy::unwrap_used, dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of `fixtures/runs/`, unpacked.
pub fn bytes(name: &str) -> Vec<u8> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/runs/{name}.gz"));
    let output = Command::new("gzip").arg("-dc").arg(&packed).output().expect("gzip(1) is there");
    assert!(output.status.success(), "{}: {}", packed.display(), String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The same as JSON.
pub fn json(name: &str) -> serde_json::Value {
    serde_json::from_slice(&bytes(name)).unwrap()
}

/// The same as a file in this directory.
pub fn file(name: &str, dir: &Path) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes(name)).unwrap();
    path
}

/// A store of format 1 as an older vmio made it, as this directory's own.
pub fn store(dir: &Path) -> PathBuf {
    let path = dir.join("vmio.db");
    std::fs::rename(file("format-1.db", dir), &path).unwrap();
    path
}
