//! Runs that were measured once and kept: `fixtures/runs/` (README.md there).
#![allow(clippy::unwrap_used, dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use vmio::store::{Import, Imported, Store, StoreError};

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

/// Imports exports together; what became of each.
pub fn import(store: &Store, files: &[&Path]) -> Result<Vec<Imported>, StoreError> {
    let mut import = Import::default();
    let all = files.iter().map(|file| import.take(store, file)).collect::<Result<_, _>>()?;
    import.finish(store)?;
    Ok(all)
}
