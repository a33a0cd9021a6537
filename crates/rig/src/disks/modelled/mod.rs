//! Making a modelled disk ([`vmio_model::modelled`]) and taking it down: two files in the memory of a process of vmio's
//! own ([`server`]), both parts of one disk. Over the first lies a loop device with direct I/O, whose counters are the
//! disk's, and ext4 on that; over the second one the target `device` puts one, so that no file system is below it.
//!
//! Every step is in the journal before it is made: the directory, the FUSE mount, the loop device, the file system's mount;
//! the server bears the owner's mark, and the connection ends with it. So whatever ends the owner, the server goes
//! first, requests under way fail instead of hanging, and what is left can be unmounted. What lies on the disk is not
//! removed file by file: it goes with the disk ([`Change::OwnDisk`]).

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vmio_look::require::{Requirement, kernel, program, root};
use vmio_model::modelled::{ModelAccuracy, ModelledDisk};
use vmio_node::helper::{Helper, Running};
use vmio_node::linux::system;
use vmio_node::{Change, ChangeId, Exec, Journal, Node, Reader};

use super::space::gib;
use super::targets::loopdev::{self, Attached};

mod replies;
pub mod server;

/// First argument of the server, before its order.
const WORD: &str = "modelled-disk-of-a-run";
/// Its name.
const NAME: &CStr = c"vmio-modelled";
/// The file that it serves for a file system.
const DISK: &str = "disk";
/// The file that it serves for the target `device`.
const WHOLE: &str = "whole";
/// The kernel's name for the connection's file system: `fuse.vmio`.
const FILESYSTEM: &str = "fuse.vmio";
/// How long the server has for touching its memory: a gigabyte takes about a second.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// How long its answers are waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long `mkfs.ext4` may take: the model does not pace it.
const MKFS_LIMIT: Duration = Duration::from_secs(120);
/// What the file system takes for itself, beside a part of all.
const FILESYSTEM_BYTES: u64 = 96 << 20;
/// Memory that is left to the host beside the disk and the guests.
const LEFT_BYTES: u64 = 512 << 20;

/// What it needs of the machine.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement { name: "root", why: "mounts the modelled disk", fix: "run as root", check: root },
    Requirement {
        name: "FUSE",
        why: "has vmio serve the modelled disk",
        fix: "modprobe fuse",
        check: |reader| kernel(reader, "FUSE", "/dev/fuse"),
    },
    Requirement {
        name: "loop devices",
        why: "make the served file a disk with counters",
        fix: "modprobe loop",
        check: |reader| kernel(reader, "loop devices", "/dev/loop-control"),
    },
    Requirement {
        name: "mkfs.ext4",
        why: "makes the file system that targets lie on",
        fix: "apt install e2fsprogs",
        check: |reader| program(reader, "mkfs.ext4"),
    },
];

/// What a server is told at its start.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// Of both files.
    bytes: u64,
    /// Of the second one.
    whole_bytes: u64,
    disk: ModelledDisk,
}

/// What a server is told later; it answers each with how well it kept the model.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Word {
    /// Answer as the model says from now on.
    Pace,
    /// Answer at once.
    Free,
    /// Only answer.
    Tell,
}

/// The size of a disk on which targets of so many bytes are made: as asked for, else with what the file system and a
/// margin take.
pub fn size(disk: &ModelledDisk, needed_bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    let own = needed_bytes + needed_bytes / 4 + FILESYSTEM_BYTES;
    disk.bytes.unwrap_or(own.div_ceil(MIB) * MIB)
}

/// Why there is no room for a disk: what is too small.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NoRoom {
    #[error(
        "the modelled disk of {} is too small for targets of {}; give it a larger size= or none",
        gib(*bytes), gib(*needed_bytes)
    )]
    Disk { bytes: u64, needed_bytes: u64 },
    #[error(
        "a modelled disk lies in memory: {} for the disk and {} for guests and host are needed, and {} are available; \
         free some, or use a study with a smaller size.target_mib",
        gib(*bytes), gib(*beside_bytes), gib(*available_bytes)
    )]
    Memory { bytes: u64, beside_bytes: u64, available_bytes: u64 },
}

/// Whether targets and memory allow for a disk of this size beside guests of `guest_bytes`: what is left, in words.
///
/// # Errors
/// What is too small, with the figures and what to do.
pub fn room(reader: &dyn Reader, disk: &ModelledDisk, needed_bytes: u64, guest_bytes: u64) -> Result<String, NoRoom> {
    let bytes = size(disk, needed_bytes);
    let fits = bytes.saturating_sub(FILESYSTEM_BYTES) / 5 * 4;
    if fits < needed_bytes {
        return Err(NoRoom::Disk { bytes, needed_bytes });
    }
    let available_bytes = system::memory_bytes(reader, "MemAvailable").unwrap_or(0);
    let beside_bytes = guest_bytes + LEFT_BYTES;
    if available_bytes < bytes + beside_bytes {
        return Err(NoRoom::Memory { bytes, beside_bytes, available_bytes });
    }
    Ok(format!("{} of memory, of {} available", gib(bytes), gib(available_bytes)))
}

/// A modelled disk that is there.
#[derive(Debug)]
pub struct Modelled {
    /// Where its file system is mounted.
    pub dir: PathBuf,
    /// The loop device below it, whose counters are the disk's.
    pub device: PathBuf,
    /// What the server serves without a file system.
    pub whole: PathBuf,
    server: Server,
    /// The file system's mount, the loop device and the connection's mount, in the order in which they go.
    changes: Vec<ChangeId>,
}

/// The server's process, and the way to talk to it.
#[derive(Debug)]
struct Server(Running);

/// This program as a server. A program whose `main` does not know it (a test's) gives its own.
pub fn helper() -> Helper {
    Helper::new(NAME, &[WORD])
}

impl Modelled {
    /// Makes a disk of `bytes`, the last `whole_bytes` of it without a file system, below `above`, a directory of vmio's
    /// own. What was made up to an error is in the journal.
    ///
    /// # Errors
    /// What cannot be made, and why.
    pub fn make(
        (node, journal): (&dyn Node, &Journal),
        disk: &ModelledDisk,
        (bytes, whole_bytes): (u64, u64),
        above: &Path,
        helper: Helper,
    ) -> anyhow::Result<Self> {
        fs::create_dir_all(above).map_err(failed("make", above))?;
        let top =
            above.canonicalize().map_err(failed("look up", above))?.join(format!("modelled-{}", journal.cookie()));
        journal.scratch_dir(&top)?;
        let [served, dir] = ["served", "disk"].map(|name| top.join(name));
        for dir in [&served, &dir] {
            fs::create_dir(dir).map_err(failed("make", dir))?;
        }
        let (connection, connected) = connect(journal, &served)?;
        let server = Server::start(journal, &Order { bytes, whole_bytes, disk: disk.clone() }, connection, helper)?;
        let file = served.join(DISK);
        let open = OpenOptions::new().read(true).write(true).open(&file).map_err(failed("open", &file))?;
        let Attached { device, change: attached, file: alone, .. } =
            loopdev::attach_own(node.reader(), journal, &file, &open)?;
        // mkfs wants it for itself.
        drop((open, alone));
        make_filesystem(node, &device)?;
        let flags = MountFlags::NOATIME | MountFlags::NODEV | MountFlags::NOSUID;
        let on_disk = || mount(&device, &dir, "ext4", flags, None::<&std::ffi::CStr>).map_err(io::Error::from);
        let ((), mounted) = journal
            .make(Change::OwnDisk { target: dir.clone() }, on_disk)?
            .map_err(failed("mount the disk on", &dir))?;
        let mut made =
            Self { dir, device, whole: served.join(WHOLE), server, changes: vec![mounted, attached, connected] };
        // Nothing of the making waits to be written under the model.
        let opened = File::open(&made.dir).map_err(failed("open", &made.dir))?;
        rustix::fs::syncfs(&opened).map_err(|e| failed("write out", &made.dir)(e.into()))?;
        made.server.ask(Word::Pace)?;
        Ok(made)
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.server.0.child.id()
    }

    /// How well the model was kept so far.
    ///
    /// # Errors
    /// When the server is gone or says nothing.
    pub fn kept(&mut self) -> io::Result<ModelAccuracy> {
        self.server.ask(Word::Tell)
    }

    /// Takes it down, and says how well the model was kept. What fails is undone by the journal at the latest.
    ///
    /// # Errors
    /// When the server is gone or says nothing, or something could not be undone.
    pub fn remove(mut self, journal: &Journal) -> anyhow::Result<ModelAccuracy> {
        // What is still to be written need not keep the model's time.
        let kept = self.server.ask(Word::Free)?;
        for change in std::mem::take(&mut self.changes) {
            journal.undo(change)?;
        }
        Ok(kept)
    }
}

impl Server {
    fn start(journal: &Journal, order: &Order, connection: OwnedFd, mut helper: Helper) -> anyhow::Result<Self> {
        helper.args.push(serde_json::to_string(order)?.into());
        // It is closed here with that: the connection must end with the server alone.
        let mut server = Self(journal.serve_by(&helper, connection)?);
        let ready: Result<(), String> = server.hear(READY_LIMIT)?;
        ready.map_err(|why| anyhow::anyhow!("the server of the modelled disk: failed: {why}"))?;
        Ok(server)
    }

    fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> io::Result<T> {
        let gone = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(e.kind(), "the server of the modelled disk has ended"),
            _ => e,
        };
        Ok(self.0.line.receive(Some(Instant::now() + limit)).map_err(gone)?.0)
    }

    fn ask(&mut self, word: Word) -> io::Result<ModelAccuracy> {
        self.0.line.send(&word, &[], Some(Instant::now() + ANSWER_LIMIT))?;
        self.hear(ANSWER_LIMIT)
    }
}

/// Opens a FUSE connection and mounts it; the server answers it later.
fn connect(journal: &Journal, served: &Path) -> anyhow::Result<(OwnedFd, ChangeId)> {
    let fuse = Path::new("/dev/fuse");
    let connection = OpenOptions::new().read(true).write(true).open(fuse).map_err(failed("open", fuse))?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", connection.as_raw_fd());
    let options = std::ffi::CString::new(options)?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    let make = || mount("vmio", served, FILESYSTEM, flags, Some(options.as_c_str())).map_err(io::Error::from);
    let change = Change::Mount { target: served.to_owned() };
    let ((), mounted) = journal.make(change, make)?.map_err(failed("mount the modelled disk's server on", served))?;
    Ok((connection.into(), mounted))
}

/// ext4 as it is made by default, but at once: nothing is left for the kernel to do while others measure.
fn make_filesystem(node: &dyn Node, device: &Path) -> anyhow::Result<()> {
    let mkfs = vmio_look::require::find_program(node.reader(), "mkfs.ext4").unwrap_or_else(|| "mkfs.ext4".into());
    let args = ["-q", "-F", "-m", "0", "-T", "largefile", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
    let made = Exec::new(mkfs.display().to_string()).args(args).args([device.display().to_string()]).limit(MKFS_LIMIT);
    let output = node.exec(&made)?;
    anyhow::ensure!(output.ok(), "`{}` failed: {}", made.shown(), output.err().trim());
    Ok(())
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> anyhow::Error {
    let path = path.to_owned();
    move |e| anyhow::Error::new(e).context(format!("cannot {what} {}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::Tree;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_is_asked_for_before_it_is_taken() {
        let machine = Tree::of(&[("/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")]);
        let room = |text: &str, needed, guests| room(&machine, &ModelledDisk::parse(text).unwrap(), needed, guests);
        assert_eq!(room("40MB/s", GIB, GIB / 4).unwrap(), "1.3 GiB of memory, of 4.0 GiB available");
        let told = room("40MB/s", 3 * GIB, GIB / 4).unwrap_err().to_string();
        assert!(told.contains("3.8 GiB for the disk") && told.contains("4.0 GiB are available"), "{told}");
        let told = room("40MB/s,size=1GiB", GIB, 0).unwrap_err().to_string();
        assert!(told.contains("too small") && told.contains("size="), "{told}");
        assert!(room("40MB/s,size=2GiB", GIB, 0).is_ok());
    }
}
