//! Real QEMU processes to be looked at: stopped before the first instruction (`-S`), so that dozens
//! fit on a small machine, each in mounts and a network namespace of its own. Whatever they have there
//! ends with them.
#![allow(clippy::unwrap_used, dead_code)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::schema::fits;
use serde_json::Value;
use vmio_testbed::poll_for;
use vmio_testbed::process::Companion;
pub use vmio_testbed::scratch;

pub mod found;

/// What every guest begins with.
const COMMON: &str = "-S -nodefaults -display none -m 64";

/// Name of a guest of these tests, which no other guest on the machine has.
pub fn name(short: &str) -> String {
    format!("vmio-test-{}-{short}", std::process::id())
}

/// Starts a guest. `prepare` is shell that runs in its namespaces first and ends in `&&`, or is
/// empty; `args` are split at spaces.
pub fn start(short: &str, prepare: &str, args: &str) -> Companion {
    let script = format!("mount -t sysfs sysfs /sys && {prepare} exec \"$@\"");
    let name = format!("guest={},debug-threads=on", name(short));
    let child = Command::new("unshare")
        .args(["--mount", "--net", "--", "sh", "-c", &script, "sh", "qemu-system-x86_64", "-name", &name])
        .args(COMMON.split(' '))
        .args(args.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    Companion(child)
}

/// Waits until a guest is up: its vCPU's thread is there, and its disks are open.
pub fn wait(short: &str, guest: &mut Companion) {
    poll_for(&format!("{short}: QEMU is up"), || {
        assert_eq!(guest.0.try_wait().unwrap(), None, "{short}: QEMU did not start");
        Some(()).filter(|()| !guest.threads("CPU ").is_empty()).ok_or("no thread of a processor")
    });
}

/// A file of a MiB whose blocks all hold data.
pub fn raw(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(format!("{name}.raw"));
    let mut file = File::create(&path).unwrap();
    file.write_all(&[0x5a; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    path
}

/// A file of 2 GiB with nothing in it.
pub fn sparse(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(format!("{name}.raw"));
    File::create(&path).unwrap().set_len(2 << 30).unwrap();
    path
}

/// A qcow2 image over another one, or over none.
pub fn qcow2(dir: &Path, name: &str, size: &str, below: Option<&Path>) -> PathBuf {
    let path = dir.join(format!("{name}.qcow2"));
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", "qcow2"]);
    if let Some(below) = below {
        command.args(["-F", "qcow2", "-b"]).arg(below);
    }
    assert!(command.arg(&path).arg(size).status().unwrap().success());
    path
}

/// `vmio scan --json` with further arguments; it ends with 0.
pub fn scan(state: &Path, more: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_vmio"))
        .args(["scan", "--json", "--state"])
        .arg(state)
        .args(more)
        // By which a test knows what this has started (`silent::io_workers`).
        .env("VMIO_STATE", state)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    fits("scan", &String::from_utf8(output.stdout.clone()).unwrap());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {err}"))
}

/// A guest of a scan by its short name.
pub fn guest<'a>(scan: &'a Value, short: &str) -> &'a Value {
    let name = name(short);
    let found = scan["guests"].as_array().unwrap().iter().find(|g| g["name"] == name.as_str());
    found.unwrap_or_else(|| panic!("{name} was not found"))
}
