//! `scripts/hadoop-jars` with a made-up curl: nothing is kept that is not what was tried.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs it with this curl, for this directory and these words. Returns the exit code and all that was said.
fn fetch(curl: &str, into: &Path, with: &[&str]) -> (Option<i32>, String) {
    let bin = tempfile::tempdir().unwrap();
    let path = bin.path().join("curl");
    fs::write(&path, format!("#!/bin/bash\n{curl}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let system = std::env::var_os("PATH").unwrap();
    let first = std::env::join_paths([bin.path().to_owned()].into_iter().chain(std::env::split_paths(&system)));
    let output = Command::new("bash")
        .args(["scripts/hadoop-jars", "https://repository.example/"])
        .arg(into)
        .args(with)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("PATH", first.unwrap())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_jar_that_is_not_the_one_that_was_tried_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("jars");
    // The file is what follows `-o`, the address the last argument.
    let other = r#"while [ "$1" != -o ]; do shift; done; echo other > "$2"; echo "asked: $3""#;
    let (code, said) = fetch(other, &into, &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("Hadoop's jars: 51 MB, from https://repository.example into "), "{said}");
    assert_eq!(said.matches("asked: https://repository.example/org/apache/hadoop/").count(), 1, "{said}");
    assert!(said.contains("is not the jar that was tried") && said.contains("it was not kept"), "{said}");
    assert_eq!(fs::read_dir(&into).unwrap().count(), 0, "{said}");
}

#[test]
fn a_download_that_fails_ends_it_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = fetch("echo no network >&2; exit 6", dir.path(), &[]);
    assert_eq!(code, Some(6), "{said}");
    assert_eq!(said.matches("no network").count(), 1, "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{said}");
}

#[test]
fn those_of_hdfs_are_counted_only_where_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = fetch("exit 6", dir.path(), &["hdfs"]);
    assert!(code == Some(6) && said.starts_with("Hadoop's jars: 89 MB, from "), "{said}");
    let (code, said) = fetch("exit 6", dir.path(), &["yarn"]);
    assert!(code == Some(2) && said.starts_with("usage: "), "{said}");
}
