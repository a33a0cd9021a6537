//! `scripts/setup` with a made-up apt: it shows what it needs and installs nothing when apt would
//! remove a package (on Proxmox, Debian's QEMU would remove Proxmox).
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Runs `scripts/setup run` where only a few programs and this apt are to be had. Returns the exit
/// code and all that was said.
fn setup(simulated: &str) -> (Option<i32>, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let bin = tempfile::tempdir().unwrap();
    for program in ["bash", "sed", "id", "grep", "sort", "head", "awk"] {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|dir| dir.join(program))
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("no {program} in PATH"));
        symlink(found, bin.path().join(program)).unwrap();
    }
    let apt = bin.path().join("apt-get");
    let text = format!("#!/bin/bash\ncase \"$*\" in *--simulate*) echo '{simulated}';; *) echo \"ran: $*\";; esac\n");
    fs::write(&apt, text).unwrap();
    fs::set_permissions(&apt, fs::Permissions::from_mode(0o755)).unwrap();
    // `sudo` for those who run the tests without being root.
    symlink("/usr/bin/env", bin.path().join("sudo")).unwrap();
    let output =
        Command::new("bash").args(["scripts/setup", "run"]).current_dir(root).env("PATH", bin.path()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
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
