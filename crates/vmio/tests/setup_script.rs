//! `scripts/setup` with a made-up apt: it shows what it needs and installs nothing when apt would
//! remove a package (on Proxmox, Debian's QEMU would remove Proxmox). With a made-up go it builds nothing of an unknown
//! source.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Runs a part of `scripts/setup` where only a few programs and these scripts are to be had. Returns the exit
/// code and all that was said.
fn run(part: &str, scripts: &[(&str, &str)]) -> (Option<i32>, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let bin = tempfile::tempdir().unwrap();
    for program in ["bash", "sed", "id", "grep", "sort", "head", "awk"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|dir| dir.join(program))
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("no {program} in PATH"));
        symlink(found, bin.path().join(program)).unwrap();
    }
    for (name, script) in scripts {
        let path = bin.path().join(name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // `sudo` for those who run the tests without being root.
    symlink("/usr/bin/env", bin.path().join("sudo")).unwrap();
    let output =
        Command::new("bash").args(["scripts/setup", part]).current_dir(root).env("PATH", bin.path()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// `scripts/setup run` with this apt.
fn setup(simulated: &str) -> (Option<i32>, String) {
    let apt = format!("case \"$*\" in *--simulate*) echo '{simulated}';; *) echo \"ran: $*\";; esac");
    run("run", &[("apt-get", apt.as_str())])
}

#[test]
fn the_object_store_is_built_of_the_source_that_was_tested_alone() {
    let python = ("python3", "exit 0");
    let (code, said) = run("store", &[python]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("there is no go in PATH") && said.contains("help: install Go"), "{said}");
    let (code, said) = run("store", &[python, ("go", "echo go1.19.8")]);
    assert!(code == Some(3) && said.contains("there is go1.19.8 in PATH"), "{said}");
    // One that is new enough, and then:
    let new = |then: &str| format!("if [ $1 = env ]; then echo go1.26.8; exit; fi; {then}");
    let other = new(r#"echo "ran: $*" >&2; printf '{\n\t"Sum": "h1:other=",\n\t"Dir": "/nowhere"\n}\n'"#);
    let (code, said) = run("store", &[python, ("go", &other)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is not the source that was tested") && said.contains("h1:other="), "{said}");
    assert!(
        said.contains("ran: mod download -json github.com/versity/versitygw@v") && !said.contains("ran: build"),
        "{said}"
    );
    let (code, said) = run("store", &[python, ("go", &new("echo no network >&2; exit 1"))]);
    assert!(code == Some(1) && said.contains("no network") && !said.contains("building"), "{said}");
    let (code, said) = run("store", &[python, ("versitygw", "exit 0")]);
    assert_eq!((code, said.as_str()), (Some(0), ""), "it is there");
}

#[test]
fn nothing_is_installed_when_apt_would_remove_a_package() {
    let (code, said) = setup("Remv proxmox-ve [8.1]");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("vmio needs these packages: qemu-system-x86 fio"), "{said}");
    assert!(said.contains("Remv proxmox-ve") && said.contains("help: "), "{said}");
    assert!(!said.contains("ran: install"), "{said}");
}

#[test]
fn what_is_missing_is_installed_without_removing_anything() {
    let (code, said) = setup("Inst fio");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("ran: install -q -y --no-install-recommends --no-remove qemu-system-x86 fio"), "{said}");
}
