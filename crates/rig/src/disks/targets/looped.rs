//! A loop device over a file in a file system, by the page cache of that, as rasmusson2013 had on the host and in the guest
//! (section 3, figure 2): natively over a file of the place's file system; in a guest over a file of the same content in
//! an ext4 file system on the guest's disk. It is small, as the paper's was, whatever the size of other targets: where it is read
//! again, the page cache of its own side serves it.
//!
//! The guest's disk is made when a guest first asks for it, by `mke2fs` and `debugfs` without a mount on the host. The guest
//! mounts it read-only, so that any number of guests may; hence nobody writes to this target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::{self, Missing, Requirement, program};
use vmio_model::cell;
use vmio_model::rate::ByteRate;
use vmio_node::{Exec, Journal, Local, Node, machine};

use super::device::{LOOP_DEVICES, WholeDevice, loop_device};
use super::loopdev::LoopIoMode;
use super::scratch::{self, MIB, Scratch};
use super::{
    Demands, Error, Prepared, Result, Space, State, Target, TargetCtx, Unfit, WRITTEN_OUT, facts, holds_files,
};
use crate::disks::Storage;
use crate::disks::places::{PlaceBackend, Pool};

/// Entry `loop`.
pub const LOOP: Loop = Loop {
    name: "loop",
    about: "loop device by the page cache, over a file of the host's file system; in a guest, over a file on its disk; only read",
    on_nfs: false,
};
/// Entry `loop-nfs`: the same over a file on an NFS mount, natively. Who the machine's guests have it from would be another
/// server, so they have it not.
pub const LOOP_NFS: Loop = Loop {
    name: "loop-nfs",
    about: "loop device by the page cache, over a file on an NFS mount (--on); native only, read only",
    on_nfs: true,
};

/// A loop device by the page cache.
pub struct Loop {
    name: &'static str,
    about: &'static str,
    /// The place is an NFS mount.
    on_nfs: bool,
}

const ROOT: Requirement = Requirement {
    name: "root",
    why: "attaches loop devices",
    fix: "run as root, or leave out the targets `loop` and `loop-nfs`",
    check: require::root,
};

const NFS_CLIENT: Requirement = Requirement {
    name: "NFS client",
    why: "the target `loop-nfs` lies on an NFS mount",
    fix: "modprobe nfs, or run it in a lab host (docs/lab.md)",
    check: |reader| match reader.read_text(Path::new("/proc/filesystems")) {
        Ok(all) if all.lines().any(|line| line.split_whitespace().last() == Some("nfs4")) => Ok(()),
        _ => Err(Missing::Unlike("this kernel has no NFS client".to_owned())),
    },
};

const MKE2FS: &str = "mke2fs";
const DEBUGFS: &str = "debugfs";
/// The file in the guest's file system.
const FILE: &str = "file";
/// The paper's file had 100 MB. It is in the page cache twice, as a file and as a device, and a guest has 256 MiB mostly.
const MOST_BYTES: u64 = 100 * MIB;
/// Slowest rate at which it is expected to be copied.
const LEAST_RATE: ByteRate = ByteRate::new(4 << 20);

/// Bytes of a disk whose file system holds a file of so many: inodes and journal take 2 % and some 40 MiB of ext4.
fn disk_bytes(bytes: u64) -> u64 {
    (bytes + bytes / 32 + 64 * MIB).next_multiple_of(MIB)
}

impl Target for Loop {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn requirements(&self) -> &'static [Requirement] {
        if self.on_nfs {
            return const { &[ROOT, LOOP_DEVICES, NFS_CLIENT] };
        }
        &[
            ROOT,
            LOOP_DEVICES,
            Requirement {
                name: MKE2FS,
                why: "makes the file system of the guest's disk for the target `loop`",
                fix: "apt install e2fsprogs, or leave out the target `loop`",
                check: |reader| program(reader, MKE2FS),
            },
            Requirement {
                name: DEBUGFS,
                why: "puts the file into it",
                fix: "apt install e2fsprogs, or leave out the target `loop`",
                check: |reader| program(reader, DEBUGFS),
            },
        ]
    }
    fn space(&self, bytes: u64, attachments: u64) -> Space {
        let bytes = bytes.min(MOST_BYTES);
        let both = if attachments > 0 { bytes + disk_bytes(bytes) } else { bytes };
        Space { taken_bytes: both, prepared_bytes: both }
    }
    fn written(&self) -> bool {
        true
    }
    fn can_be(&self, state: State, native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match state {
            State::Fresh => Err(WRITTEN_OUT),
            State::WarmHost if !native => {
                Err("what its hypervisor opens is a file system with the file in it; use preallocated or device")
            }
            _ => Ok(()),
        }
    }
    fn guest_modules(&self) -> &'static [&'static str] {
        &["loop"]
    }
    fn only_read(&self) -> Option<&'static str> {
        Some(
            "a loop device by the page cache is only read, since guests mount its file system read-only: use device or preallocated",
        )
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn native_alone(&self) -> Option<&'static str> {
        self.on_nfs.then_some("loop-nfs is native only; for a guest use the target loop, on a place on NFS too")
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        let nfs = |dir| machine::may_hang(dir).is_some_and(|mount| mount.server.starts_with("NFS "));
        match backend {
            PlaceBackend::Files(dir) if self.on_nfs && nfs(dir) => Ok(()),
            _ if self.on_nfs => Err(Unfit::NoNfs),
            other => holds_files(other),
        }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let (dir, bytes) = (ctx.dir.clone(), ctx.bytes.min(MOST_BYTES));
        let small = TargetCtx { node: ctx.node, dir, pool: None, bytes, device: None, host: None, ..*ctx };
        let native = loop_device(&small, self.name, LoopIoMode::Cached)?;
        let node = Local::owned(Arc::clone(ctx.journal));
        let (journal, dir, pace) = (Arc::clone(ctx.journal), ctx.dir.clone(), ctx.pace);
        Ok(Box::new(Looped { native, disk: None, node, journal, dir, pace }))
    }
}

struct Looped {
    native: WholeDevice,
    /// What guests have.
    disk: Option<Scratch>,
    node: Local,
    journal: Arc<Journal>,
    dir: PathBuf,
    pace: Option<f64>,
}

impl Looped {
    /// A file system with the native side's file in it.
    fn make_disk(&self) -> Result<Scratch> {
        let bytes = self.native.bytes();
        let ctx = TargetCtx {
            node: &self.node,
            journal: &self.journal,
            dir: self.dir.clone(),
            pool: None,
            bytes: disk_bytes(bytes),
            device: None,
            force: false,
            pace: self.pace,
            native: false,
            host: None,
            peer: None,
        };
        Scratch::make_with(&ctx, "loop-disk", |disk| {
            let limit = Duration::from_secs((bytes / LEAST_RATE.bytes()).max(60));
            let run = |program: &str, args: &[&str]| {
                let command = Exec::new(program).args(args.iter().copied()).limit(limit);
                let output = self.node.exec(&command)?;
                if output.ok() {
                    return Ok(output.out());
                }
                Err(Error::Tool { command: command.shown(), reason: output.err().trim().to_owned() })
            };
            let at = disk.open.display().to_string();
            // Nothing is left for the guest's kernel to write out behind a measurement.
            let plain = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
            run(MKE2FS, &["-q", "-F", "-t", "ext4", "-m", "0", "-E", plain, &at])?;
            let from = self.native.behind().map(|file| file.open.display().to_string()).unwrap_or_default();
            run(DEBUGFS, &["-w", "-R", &format!("write {from} {FILE}"), &at])?;
            // It ends with 0 whatever happened.
            let said = run(DEBUGFS, &["-R", &format!("stat {FILE}"), &at])?;
            if size_in(&said) != Some(bytes) {
                let reason = format!("the file in it was to have {bytes} bytes: {}", said.trim());
                return Err(Error::Tool { command: DEBUGFS.to_owned(), reason });
            }
            disk.file.sync_all().map_err(scratch::io("flush", &disk.path))
        })
    }
}

/// The size that `debugfs -R "stat FILE"` tells: `User:     0   Group:     0   Project:     0   Size: 1048576`.
fn size_in(said: &str) -> Option<u64> {
    let words: Vec<&str> = said.split_whitespace().collect();
    words.windows(2).find(|pair| pair[0] == "Size:")?[1].parse().ok()
}

impl Prepared for Looped {
    fn native(&self) -> &Path {
        self.native.native()
    }
    fn intact(&self) -> Result<()> {
        self.native.intact()?;
        self.disk.as_ref().map_or(Ok(()), Scratch::intact)
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        if self.disk.is_none() {
            self.disk = Some(self.make_disk()?);
        }
        Ok(Storage::File(self.disk.as_ref().map(|disk| disk.open.clone()).unwrap_or_default()))
    }
    fn inside(&self) -> Option<&'static str> {
        Some(FILE)
    }
    fn attached(&self, _asked: &cell::Attachment) -> BTreeMap<String, String> {
        facts([("in_guest", format!("loop device over /{FILE} of its ext4 file system, read-only"))])
    }
    fn bytes(&self) -> u64 {
        self.native.bytes()
    }
    fn demands(&self) -> Demands {
        self.native.demands()
    }
    fn effective(&self) -> BTreeMap<String, String> {
        self.native.effective()
    }
    fn reset(&mut self, state: State) -> Result<u64> {
        if let Some(disk) = &self.disk {
            disk.forget_pages()?;
        }
        self.native.reset(state)
    }
    fn remove(self: Box<Self>, journal: &Journal) -> Result<()> {
        let Self { native, disk, .. } = *self;
        let gone = disk.map_or(Ok(()), |disk| scratch::remove(journal, disk));
        Box::new(native).remove(journal).and(gone)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::Tree;

    use super::*;

    #[test]
    fn a_loop_device_on_nfs_is_refused_elsewhere_with_what_to_do() {
        let said = LOOP_NFS.fits(&PlaceBackend::Files("/".into())).unwrap_err().to_string();
        assert!(said.contains("vmio lab run") && LOOP_NFS.native_alone().is_some(), "{said}");
        assert!(LOOP.fits(&PlaceBackend::Files("/".into())).is_ok() && LOOP.native_alone().is_none());
        let kernel = |text: &str| (NFS_CLIENT.check)(&Tree::default().file("/proc/filesystems", text, (0, 1)));
        assert!(kernel("nodev\tnfsd\n\text4\n").unwrap_err().to_string().contains("no NFS client"));
        assert_eq!(kernel("nodev\tnfs\nnodev\tnfs4\n"), Ok(()));
    }

    #[test]
    fn the_size_of_a_file_is_read_as_debugfs_tells_it() {
        let said = "Inode: 12   Type: regular    Mode:  0600   Flags: 0x80000\nUser:     0   Group:     0   Project:     0   \
                    Size: 1048576\nFile ACL: 0\n";
        assert_eq!(size_in(said), Some(1 << 20));
        assert_eq!(size_in("file: File not found by ext2_lookup"), None);
        assert!(disk_bytes(1) >= 64 * MIB && disk_bytes(1).is_multiple_of(MIB));
    }
}
