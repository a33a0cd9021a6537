//! What the tests of this folder share: a journal and a directory on a disk, both gone at the end.

#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use vmio_node::{Change, Exec, Journal, Local, Node};
use vmio_rig::disks::targets::TargetCtx;

pub mod cells;
pub mod guest;

/// A place to work.
pub struct Bed {
    /// Undoes all at the end, before the directory goes (fields are dropped in order).
    pub journal: Arc<Journal>,
    pub node: Local,
    dir: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Self {
        let dir = vmio_testbed::scratch();
        let journal = Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap());
        Self { node: Local::owned(Arc::clone(&journal)), journal, dir }
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    /// The same node, for what keeps it.
    pub fn shared(&self) -> Arc<dyn Node> {
        Arc::new(Local::owned(Arc::clone(&self.journal)))
    }

    pub fn ctx(&self, mib: u64) -> TargetCtx<'_> {
        TargetCtx {
            node: &self.node,
            journal: &self.journal,
            dir: self.dir(),
            pool: None,
            bytes: mib << 20,
            device: None,
            force: false,
            pace: None,
            native: true,
            host: None,
            peer: None,
        }
    }

    /// What is in the directory beside the journal.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(self.dir()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|n| n != "journal");
        names.sort();
        names
    }

    /// Runs a program that must succeed.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.node.exec(&Exec::new(program).args(args.iter().copied())).unwrap();
        assert!(output.ok(), "{program} {args:?}: {}", output.err());
        output.out()
    }

    /// A small file system of its own, without blocks that only root can take; it lies below the directory.
    pub fn small_filesystem(&self, mib: u64) -> PathBuf {
        let (device, _) = self.losetup("small", mib);
        self.run("mkfs.ext4", &["-q", "-m", "0", device.to_str().unwrap()]);
        let mount = self.dir().join("mnt");
        self.journal.scratch_dir(&mount).unwrap();
        self.journal.record(Change::Mount { target: mount.clone() }).unwrap();
        self.run("mount", &[device.to_str().unwrap(), mount.to_str().unwrap()]);
        mount
    }

    /// Takes all the space that is left of a file system; gives the file that has it.
    pub fn fill(&self, mount: &Path) -> PathBuf {
        let eater = mount.join("eater");
        let args = ["if=/dev/zero", "bs=64k", "conv=fsync", &format!("of={}", eater.display())];
        let full = self.node.exec(&Exec::new("dd").args(args).limit(vmio_testbed::limit())).unwrap();
        assert!(full.err().contains("No space left"), "{full:?}");
        eater
    }

    /// A loop device over a new file, made by losetup as somebody else would.
    pub fn losetup(&self, name: &str, mib: u64) -> (PathBuf, PathBuf) {
        let file = self.dir().join(name);
        (self.losetup_over(&file, mib), file)
    }

    /// The same over a new file anywhere.
    pub fn losetup_over(&self, file: &Path, mib: u64) -> PathBuf {
        std::fs::File::create(file).unwrap().set_len(mib << 20).unwrap();
        self.journal.record(Change::file(file)).unwrap();
        self.journal.record(Change::loop_over(file)).unwrap();
        // A device on which others left partitions behind is not empty.
        let partitions = |n: u32| (1..16).any(|p| Path::new(&format!("/sys/block/loop{n}/loop{n}p{p}")).exists());
        for number in (0..256).filter(|&n| !partitions(n)) {
            let device = PathBuf::from(format!("/dev/loop{number}"));
            let taken = Path::new(&format!("/sys/block/loop{number}/loop")).exists();
            let cmd = Exec::new("losetup").args([device.to_str().unwrap(), file.to_str().unwrap()]);
            if device.exists() && !taken && self.node.exec(&cmd).unwrap().ok() {
                return device;
            }
        }
        panic!("no free loop device");
    }
}

/// Loop devices whose files lie in a directory.
pub fn loops_over(dir: &Path) -> Vec<PathBuf> {
    vmio_node::loops::loop_devices().into_iter().filter(|l| l.backing.starts_with(dir)).map(|l| l.device).collect()
}

/// Sets an interface `up` or `down` in whichever of the namespaces that this process holds has it; whether one has.
pub fn set_link(interface: &str, state: &str) -> bool {
    let me = std::process::id();
    let mut held = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_net = std::fs::read_link(&path).ok()?.display().to_string().starts_with("net:");
        is_net.then(|| format!("--net=/proc/{me}/fd/{}", path.file_name().unwrap().to_str().unwrap()))
    });
    let set = |net: String| {
        let args = [net.as_str(), "--", "ip", "link", "set", interface, state];
        Command::new("nsenter").args(args).output().unwrap().status.success()
    };
    held.any(set)
}
