//! Spare disks and file systems of a test's own.
#![allow(clippy::unwrap_used, dead_code)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use vmio_testbed::scratch;

/// Runs a program that must succeed, and gives what it said.
#[track_caller]
pub fn tool(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A loop device over a sparse file `disk` in a directory of its own.
pub struct Disk {
    pub device: String,
    dir: tempfile::TempDir,
}

impl Disk {
    pub fn new(mib: u64) -> Disk {
        Disk::with(mib, &[])
    }

    /// With more options of losetup.
    pub fn with(mib: u64, options: &[&str]) -> Disk {
        let dir = scratch();
        let file = dir.path().join("disk");
        fs::File::create(&file).unwrap().set_len(mib << 20).unwrap();
        let args = [&["--find", "--show"][..], options, &[file.to_str().unwrap()]].concat();
        Disk { device: tool("losetup", &args), dir }
    }

    /// Where a file of this name lies beside its own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Bytes of it that were ever written.
    pub fn written(&self) -> u64 {
        tool("sync", &[&self.device]);
        fs::metadata(self.path("disk")).unwrap().blocks() * 512
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

/// A mounted file system. It and its directory go with the value.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn tmpfs(dir: &Path, options: &str) -> Mounted {
        Mounted::by(&["-t", "tmpfs", "-o", options, "vmio-test"], dir)
    }

    pub fn device(device: &str, dir: &Path) -> Mounted {
        Mounted::by(&[device], dir)
    }

    fn by(what: &[&str], dir: &Path) -> Mounted {
        fs::create_dir_all(dir).unwrap();
        tool("mount", &[what, &[dir.to_str().unwrap()]].concat());
        Mounted(dir.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}
