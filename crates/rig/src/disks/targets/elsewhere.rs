//! Targets that are made on a node that is not this host, the side `ssh`: `preallocated`, a file that is made, filled
//! and removed by that machine's agent, whose journal has it, so that it goes also when the connection breaks; and
//! `device`, the user's own, which the agent checks, holds and opens as this host's own is
//! ([`vmio_node::device_safety`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_look::backing::Backing;
use vmio_model::cell;
use vmio_model::rate::ByteRate;
use vmio_node::linux::mounts;
use vmio_node::{Exec, FileIdentity, Journal, Node, RemoteDevice};

use super::{Demands, Error, Prepared, Result, State, facts, volume};
use crate::disks::Storage;
use crate::disks::space::{gib, with_margin};
use crate::nodes::Measured;

/// What a target is made from on another machine.
pub struct Elsewhere<'a> {
    /// The machine.
    pub node: &'a Arc<dyn Node>,
    /// Where files are made there, and the user's own device.
    pub own: &'a Measured,
    /// Name of a file.
    pub file: &'a str,
    /// Bytes wanted.
    pub bytes: u64,
}

/// How a target is made there.
pub type Make = fn(&Elsewhere<'_>) -> Result<Box<dyn Prepared>>;

/// The target that can be made on another machine.
pub const PREALLOCATED: &str = "preallocated";
/// The user's own device there.
pub const DEVICE: &str = "device";
const MIB: u64 = 1 << 20;
/// Slowest rate at which it is expected to be filled.
const LEAST_RATE: ByteRate = ByteRate::new(1 << 20);
/// How long a look at a file system may take.
const LOOK_LIMIT: Duration = Duration::from_secs(30);
/// File systems that are memory.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// Why no file is made in a directory of another machine.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NoFile {
    #[error(
        "{at} on {machine} is a device, and all data on it would be lost: leave it out of --on and name it twice, \
         --device {at} --device {at}", at = dir.display()
    )]
    Device { dir: PathBuf, machine: String },
    #[error("{} on {machine} is not a directory: name one, --on ADDRESS/DIR", dir.display())]
    NoDirectory { dir: PathBuf, machine: String },
    #[error("{} is not there on {machine}: name a directory, --on ADDRESS/DIR", dir.display())]
    NotThere { dir: PathBuf, machine: String },
    #[error("{} on {machine} is {filesystem}, which is memory: name another, --on ADDRESS/DIR", dir.display())]
    Memory { dir: PathBuf, machine: String, filesystem: String },
    #[error(
        "not enough space in {} on {machine}: {} are needed (20 % to spare included), {} are left; free some, name \
         another directory, --on ADDRESS/DIR, or use a study with a smaller size.target_mib",
        dir.display(), gib(*needed_bytes), gib(*free_bytes)
    )]
    Space { dir: PathBuf, machine: String, needed_bytes: u64, free_bytes: u64 },
    /// It cannot be asked.
    #[error(transparent)]
    Unknown(#[from] Error),
}

/// What is below a directory of another machine, in words, where a file of so many bytes can be made there. Only looks.
///
/// # Errors
/// Why it cannot, and what to do.
pub fn look(node: &dyn Node, dir: &Path, bytes: u64) -> Result<String, NoFile> {
    let (dir, machine) = (dir.to_owned(), node.name().to_owned());
    match node.stat(&dir).map_err(Error::from)? {
        Some(there) if there.is_directory() => {}
        Some(there) if there.is_block() => return Err(NoFile::Device { dir, machine }),
        Some(_) => return Err(NoFile::NoDirectory { dir, machine }),
        None => return Err(NoFile::NotThere { dir, machine }),
    }
    let all = mounts::own(node.reader()).map_err(Error::from)?;
    let filesystem = mounts::holding(&all, &dir).map(|mount| mount.filesystem.clone()).unwrap_or_default();
    if IN_MEMORY.contains(&filesystem.as_str()) {
        return Err(NoFile::Memory { dir, machine, filesystem });
    }
    let (free_bytes, needed_bytes) = (free_bytes(node, &dir)?, with_margin(bytes));
    if free_bytes < needed_bytes {
        return Err(NoFile::Space { dir, machine, needed_bytes, free_bytes });
    }
    Ok(Backing::of(node.reader(), &dir).map_or(filesystem, |backing| backing.describe()))
}

/// As df(1) of coreutils and of busybox says it: the fourth column of the last line, in blocks of 1024 bytes.
fn free_bytes(node: &dyn Node, dir: &Path) -> Result<u64> {
    let command = Exec::new("df").args(["-P", "-k", "--", &dir.display().to_string()]).limit(LOOK_LIMIT);
    let output = node.exec(&command)?;
    let blocks = output.out().lines().last().and_then(|line| line.split_whitespace().nth(3)?.parse::<u64>().ok());
    match blocks {
        Some(blocks) if output.ok() => Ok(blocks.saturating_mul(1024)),
        _ => Err(Error::Tool { command: command.shown(), reason: output.err().trim().to_owned() }),
    }
}

/// Makes the file, and writes it out.
///
/// # Errors
/// When it cannot be made or written.
pub fn file(ctx: &Elsewhere<'_>) -> Result<Box<dyn Prepared>> {
    let Elsewhere { node, own, file, bytes } = *ctx;
    file_at(node, own.dir.join(file), bytes)
}

/// The same at this path.
///
/// # Errors
/// When it cannot be made or written.
pub fn file_at(node: &Arc<dyn Node>, path: PathBuf, bytes: u64) -> Result<Box<dyn Prepared>> {
    // From here on it is in the agent's journal. Who owns the directory may exchange its name at any time, so programs open
    // what the agent has open. fio would replace a file that is too short by one of its own.
    let made = node.make_file(&path, bytes)?;
    let at = made.path();
    fill(&**node, &at, &path, bytes)?;
    let allocated = node.stat(&at)?.map_or(0, |found| found.allocated);
    let effective = facts([("allocated_bytes", allocated.to_string())]);
    let kind = Kind::File { path, made: made.is };
    Ok(Box::new(Made { node: Arc::clone(node), kind, at, bytes, logical_block_bytes: 4096, effective }))
}

/// Opens the user's own device, which was looked at already, and writes out so many bytes of it. Where none was named
/// it is a file.
///
/// # Errors
/// When it may not be overwritten, is too small, or cannot be written.
pub fn device(ctx: &Elsewhere<'_>) -> Result<Box<dyn Prepared>> {
    let Elsewhere { node, own, bytes, .. } = *ctx;
    let Some(device) = &own.device else { return file(ctx) };
    let bytes = bytes.max(1).next_multiple_of(MIB);
    holds(device, bytes)?;
    let at = node.open_held_device(device, own.force)?.path();
    fill(&**node, &at, &device.asked, bytes)?;
    let logical_block_bytes = volume::logical_block_bytes(&**node, Path::new(&device.name));
    let effective = facts([
        ("device", device.named()),
        ("disk", device.identity.describe()),
        ("logical_block_bytes", logical_block_bytes.to_string()),
    ]);
    Ok(Box::new(Made { node: Arc::clone(node), kind: Kind::Device, at, bytes, logical_block_bytes, effective }))
}

/// Whether a device is large enough.
///
/// # Errors
/// How large it is, and what to do.
pub fn holds(device: &RemoteDevice, bytes: u64) -> Result<()> {
    let size = device.identity.bytes / MIB * MIB;
    if size >= bytes {
        return Ok(());
    }
    Err(Error::NotAsAsked {
        path: device.asked.clone(),
        reason: format!("it has {size} bytes and {bytes} are needed; use a study with a smaller size.target_mib"),
    })
}

/// Writes something out with fio, in data that cannot be compressed: cells on it need that program anyway.
fn fill(node: &dyn Node, at: &Path, shown: &Path, bytes: u64) -> Result<()> {
    let fill = Exec::new("fio")
        .args([
            "--name=fill",
            &format!("--filename={}", at.display()),
            "--rw=write",
            "--bs=1M",
            &format!("--size={bytes}"),
            "--direct=1",
            "--fallocate=none",
            "--end_fsync=1",
            "--refill_buffers",
            "--eta=never",
            "--output-format=terse",
        ])
        .limit(Duration::from_secs((bytes / LEAST_RATE.bytes()).max(60)));
    let output = node.exec(&fill)?;
    if output.ok() {
        return Ok(());
    }
    let said = output.err();
    let why = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
    let full = said.contains("No space left on device") || said.contains("Disk quota exceeded");
    let mend = if full { "; free some there, or use a study with a smaller size.target_mib" } else { "" };
    let reason = format!("{bytes} bytes of {} on {} were not all written: {why}{mend}", shown.display(), node.name());
    Err(Error::Tool { command: "fio".to_owned(), reason })
}

struct Made {
    node: Arc<dyn Node>,
    kind: Kind,
    /// What programs open: what the agent has open.
    at: PathBuf,
    bytes: u64,
    logical_block_bytes: u32,
    effective: BTreeMap<String, String>,
}

enum Kind {
    /// A file, by its name and what was made.
    File { path: PathBuf, made: FileIdentity },
    /// The user's own.
    Device,
}

impl Prepared for Made {
    fn native(&self) -> &Path {
        &self.at
    }
    fn intact(&self) -> Result<()> {
        let Kind::File { path, made } = &self.kind else { return Ok(()) };
        match self.node.reader().identity(path)? {
            Some(found) if found.is(made) && found.stat.size == self.bytes => Ok(()),
            _ => {
                let reason = format!("it is not the file on {} that was made", self.node.name());
                Err(Error::Exchanged { path: path.clone(), reason })
            }
        }
    }
    fn attach(&mut self, _asked: &cell::Attachment) -> Result<Storage> {
        Ok(match self.kind {
            Kind::File { .. } => Storage::File(self.at.clone()),
            Kind::Device => Storage::BlockDevice(self.at.clone()),
        })
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn demands(&self) -> Demands {
        Demands { logical_block_bytes: self.logical_block_bytes, direct: true }
    }
    fn effective(&self) -> BTreeMap<String, String> {
        self.effective.clone()
    }
    /// Every block holds data, whatever was written; cells on it go past the page cache.
    fn reset(&mut self, _state: State) -> Result<u64> {
        Ok(0)
    }
    /// The agent's journal removes it, at the end of the session.
    fn remove(self: Box<Self>, _journal: &Journal) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, says};

    use super::*;

    fn machine(kind: &str, free: &'static str) -> Fake {
        Fake::new("there")
            .file("/srv/data/x", "")
            .file("/srv/file", "")
            .file("/proc/self/mountinfo", format!("22 1 254:0 / / rw - {kind} /dev/vda rw\n"))
            .command(move |cmd| {
                let line =
                    format!("Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 9 1 {free} 1% /\n");
                (cmd.program == "df").then(|| says(line))
            })
    }

    #[test]
    fn a_file_goes_where_there_is_a_disk_with_room() {
        let look = |kind: &str, free: &'static str, dir: &str| {
            look(&machine(kind, free), Path::new(dir), 100 << 20).map_err(|why| why.to_string())
        };
        assert!(look("ext4", "122881", "/srv/data").is_ok());
        let said = look("ext4", "122879", "/srv/data").unwrap_err();
        assert!(said.contains("120 MiB are needed") && said.contains("on there"), "{said}");
        assert!(look("tmpfs", "999999", "/srv/data").unwrap_err().contains("tmpfs, which is memory"));
        assert!(look("ext4", "999999", "/srv/none").unwrap_err().contains("not there on there"));
        assert!(look("ext4", "999999", "/srv/file").unwrap_err().contains("not a directory"));
        assert!(look("ext4", "-", "/srv/data").unwrap_err().starts_with("df -P"), "what is no number is no room");
    }
}
