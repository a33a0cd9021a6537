//! The files of a policy: those of the command line, and the TOML files in its directories.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use vmio_model::failure::{Exit, Failure};

/// Largest file that can be a policy; what is larger was named by mistake.
const MOST_BYTES: u64 = 64 << 20;

/// Every file with its text, in the order of the command line; files of a directory sorted by name.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let inside = inside(path).with_context(|| refused(path, "cannot be read"))?;
            if inside.is_empty() {
                return Err(refused(path, "contains no *.toml").into());
            }
            files.extend(inside);
        } else {
            files.push(path.clone());
        }
    }
    files.iter().map(|path| Ok((path.display().to_string(), text(path)?))).collect()
}

fn inside(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        // Editors keep hidden copies beside what is edited.
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && path.extension().is_some_and(|e| e == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn text(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.with_context(|| refused(path, "cannot be read"))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(refused(path, "is larger than 64 MiB").into());
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = good.iter().filter(|b| **b == b'\n').count() + 1;
        refused(path, &format!("line {line}, is not UTF-8 text")).into()
    })
}

fn refused(path: &Path, why: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{}: {why}", path.display()))
        .help("name the policy's file or directory with --config")
}
