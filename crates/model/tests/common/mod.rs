//! The fixtures of the guard's policy.
#![allow(clippy::unwrap_used, dead_code)]

use std::path::{Path, PathBuf};

use vmio_model::policy::{Links, Loaded, Policy, PolicyError};

/// All fixtures with their kind: a file, or a directory whose files are one policy.
pub fn fixtures() -> Vec<(&'static str, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/policy");
    let mut all = Vec::new();
    for kind in ["good", "refused", "warned"] {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(root.join(kind)).unwrap().map(|e| e.unwrap().path()).collect();
        paths.retain(|p| p.is_dir() || p.extension().is_some_and(|e| e == "toml"));
        paths.sort();
        all.extend(paths.into_iter().map(|p| (kind, p)));
    }
    all
}

/// The texts of a fixture with their file names.
pub fn fixture(path: &Path) -> Vec<(String, String)> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        paths = std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
    }
    let name = |p: &Path| p.file_name().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).collect()
}

/// Parses texts as one policy.
pub fn read(files: &[(String, String)], links: &Links) -> Result<Loaded, PolicyError> {
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    Policy::read(&files, links)
}

/// The published scenario.
pub fn amamou2012() -> Policy {
    let text = include_str!("../fixtures/policy/good/amamou2012.toml");
    Policy::read(&[("amamou2012.toml", text)], &Links::default()).unwrap().policy
}
