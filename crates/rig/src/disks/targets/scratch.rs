//! Scratch files of targets: making them, writing them out, making holes, looking at what is
//! really there. Direct I/O throughout, so that preparing leaves nothing in the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustix::fs::{Advice, FallocateFlags, OFlags, SeekFrom, fadvise, fallocate, seek, statfs};
use rustix::io::Errno;
use vmio_node::{ChangeId, Journal, held};

use super::{Error, Result, TargetCtx};

/// Sizes are multiples of this; writing out goes in pieces of this.
pub const MIB: u64 = 1 << 20;

/// Alignment that direct I/O wants at most (logical blocks of up to 4 KiB).
const ALIGNED: usize = 4096;

/// File system types that are memory (linux/magic.h: TMPFS_MAGIC, RAMFS_MAGIC).
const IN_MEMORY: [(u32, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// What `--on` another directory mends.
pub fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path, source },
        _ => Error::Io { what, path, source },
    }
}

/// Refuses a directory on a file system that is memory. Newer kernels take O_DIRECT there, and
/// still no disk would be measured. Only looks.
///
/// # Errors
/// [`Error::NoDirect`].
pub fn not_in_memory(dir: &Path) -> Result<()> {
    let kind = statfs(dir).map_err(|e| io("look at the file system of", dir)(e.into()))?.f_type as u32;
    match IN_MEMORY.iter().find(|(magic, _)| *magic == kind) {
        Some((_, filesystem)) => Err(Error::NoDirect { dir: dir.into(), filesystem: (*filesystem).into() }),
        None => Ok(()),
    }
}

/// An empty file of `bytes` that is removed with the journal, open for direct I/O.
pub struct Scratch {
    /// Where; absolute and without links, as the kernel shows it behind a loop device. For people:
    /// who may write the directories above it may put something else there.
    pub path: PathBuf,
    /// What programs open: the very file, by its descriptor.
    pub open: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Open for reading and writing with O_DIRECT.
    pub file: File,
    /// Its line in the journal.
    pub change: ChangeId,
    /// See [`TargetCtx::pace`].
    pace: Option<f64>,
    journal: Arc<Journal>,
}

impl Scratch {
    /// Makes `vmio-<name>.raw` in the directory of the context.
    pub fn make(ctx: &TargetCtx<'_>, name: &str) -> Result<Self> {
        // A directory that is held is used by its descriptor, under the name that it was given.
        let dir = if ctx.journal.holds(&ctx.dir) {
            ctx.dir.clone()
        } else {
            ctx.dir.canonicalize().map_err(io("use", &ctx.dir))?
        };
        not_in_memory(&dir)?;
        let bytes = ctx.bytes.max(1).next_multiple_of(MIB);
        crate::disks::space::demand(ctx.node, &dir, bytes)?;
        let path = dir.join(format!("vmio-{name}.raw"));
        let (file, change) = ctx.journal.scratch_file(&path)?;
        let made = || {
            file.set_len(bytes).map_err(io("set the size of", &path))?;
            let file = match held::by_descriptor(&file).and_then(|made| open_direct(&made, OFlags::empty())) {
                Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    Err(Error::NoDirect { dir: dir.clone(), filesystem: "this file system".into() })
                }
                other => other.map_err(io("open", &path)),
            }?;
            let open = held::by_descriptor(&file).map_err(io("open", &path))?;
            Ok((file, open))
        };
        match made() {
            Ok((file, open)) => {
                Ok(Self { path, open, bytes, file, change, pace: ctx.pace, journal: Arc::clone(ctx.journal) })
            }
            Err(e) => Err(undone(ctx.journal, change, e)),
        }
    }

    /// Makes one and brings it into its first state.
    pub fn make_with<T>(ctx: &TargetCtx<'_>, name: &str, first: impl FnOnce(&Self) -> Result<T>) -> Result<Self> {
        let scratch = Self::make(ctx, name)?;
        match first(&scratch) {
            Ok(_) => Ok(scratch),
            Err(e) => Err(undone(ctx.journal, scratch.change, e)),
        }
    }

    /// Makes the whole file one hole, and sees to it that it is one. NFS before 4.2 and some
    /// servers cannot punch holes: there the file is cut to nothing and made as long as before, which
    /// leaves the same file to whoever has it open.
    pub fn punch(&self) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, 0, self.bytes) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.cut()?,
            Err(e) => return Err(io("punch holes into", &self.path)(e.into())),
        }
        self.file.sync_all().map_err(io("flush", &self.path))?;
        // A file system may keep a block or two for the file's own map.
        let left = self.allocated()?;
        if left > 64 << 10 {
            return Err(Error::NotAsAsked {
                path: self.path.clone(),
                reason: format!(
                    "{left} bytes are still allocated after all was punched out; its file system cannot hold sparse files"
                ),
            });
        }
        Ok(())
    }

    fn cut(&self) -> Result<()> {
        let cut = self.file.set_len(0).and_then(|()| self.file.set_len(self.bytes));
        cut.map_err(io("cut and lengthen", &self.path))
    }

    /// Writes data wherever there is none, and sees to it that it is there. Returns the bytes
    /// that it wrote.
    pub fn fill(&self) -> Result<u64> {
        let mut wrote = 0;
        for (start, end) in self.unwritten()? {
            let go_on = || !self.journal.is_closed();
            write_out(&self.file, start, end, self.pace, &go_on).map_err(io("write out", &self.path))?;
            wrote += end - start;
        }
        self.file.sync_all().map_err(io("flush", &self.path))?;
        let holes: u64 = self.holes()?.iter().map(|(start, end)| end - start).sum();
        let allocated = self.allocated()?;
        if holes > 0 || allocated < self.bytes {
            return Err(Error::NotAsAsked {
                path: self.path.clone(),
                reason: format!(
                    "of {} bytes written, {allocated} are allocated and {holes} read as holes; its file system compresses or \
                     shares data, so that a written-out file cannot be had there; use --on another place",
                    self.bytes
                ),
            });
        }
        Ok(wrote)
    }

    /// What must be written so that every block holds data. Where the file system tells no holes
    /// (NFS before 4.2: all of a file is data to lseek(2)) and blocks are missing, that is all.
    fn unwritten(&self) -> Result<Vec<(u64, u64)>> {
        let holes = self.holes()?;
        if holes.is_empty() && self.allocated()? < self.bytes {
            return Ok(vec![(0, self.bytes)]);
        }
        Ok(holes)
    }

    /// Ranges without data. ext4, XFS and btrfs report extents that are allocated but were never
    /// written (`fallocate`) as holes too (lseek(2), ext4 `ext4_iomap_begin_report`): after a
    /// flush, a file without holes is really written.
    fn holes(&self) -> Result<Vec<(u64, u64)>> {
        let at = |whence| match seek(&self.file, whence) {
            Ok(at) => Ok(at.min(self.bytes)),
            Err(Errno::NXIO) => Ok(self.bytes),
            Err(e) => Err(io("look for holes in", &self.path)(e.into())),
        };
        let mut holes = Vec::new();
        let mut from = 0;
        while from < self.bytes {
            let hole = at(SeekFrom::Hole(from))?;
            if hole >= self.bytes {
                break;
            }
            from = at(SeekFrom::Data(hole))?;
            holes.push((hole, from));
        }
        Ok(holes)
    }

    /// Whether its name still leads to it, and it has its size.
    pub fn intact(&self) -> Result<()> {
        still_there(&self.path, &self.file)?;
        match self.file.metadata().map_err(io("look at", &self.path))?.len() {
            size if size == self.bytes => Ok(()),
            size => Err(Error::Exchanged {
                path: self.path.clone(),
                reason: format!("it has {size} bytes instead of {}", self.bytes),
            }),
        }
    }

    /// Allocated bytes.
    pub fn allocated(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(io("look at", &self.path))?.blocks() * 512)
    }

    /// Flushes the file and takes its pages, and no others, out of the page cache.
    pub fn forget_pages(&self) -> Result<()> {
        forget_pages(&self.file, &self.path)
    }
}

/// Whether the path where a file was made still leads to it.
pub fn still_there(path: &Path, file: &File) -> Result<()> {
    held::leads_to(path, file).map_err(|astray| Error::Exchanged { path: path.into(), reason: astray.to_string() })
}

/// Writes out what the page cache holds of a file or device.
pub fn flush(path: &Path) -> Result<()> {
    File::open(path).and_then(|f| f.sync_all()).map_err(io("flush", path))
}

/// Flushes a file or device and takes its own pages out of the page cache (posix_fadvise(2)).
pub fn forget_pages(file: &File, path: &Path) -> Result<()> {
    file.sync_all().map_err(io("flush", path))?;
    fadvise(file, 0, None, Advice::DontNeed).map_err(|e| io("take the cached pages of", path)(e.into()))
}

/// Opens for reading and writing with O_DIRECT.
pub fn open_direct(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = (OFlags::DIRECT | OFlags::CLOEXEC | more).bits();
    OpenOptions::new().read(true).write(true).custom_flags(flags.cast_signed()).open(path)
}

/// Writes pseudo-random data over a range: neither zero, nor compressible, nor equal from block
/// to block. Both ends are multiples of [`ALIGNED`]. With a pace of a quarter it rests three times
/// as long as each piece took, so it uses a quarter of what the disk gives it.
///
/// # Errors
/// Of the system calls; `Interrupted` once `go_on`, asked before each piece, says no: nobody can
/// remove what is open here, and the end of a run wants to.
pub fn write_out(file: &File, start: u64, end: u64, pace: Option<f64>, go_on: &dyn Fn() -> bool) -> io::Result<()> {
    let mut memory = vec![0u8; MIB as usize + ALIGNED];
    let from = memory.as_ptr().align_offset(ALIGNED);
    let piece = &mut memory[from..from + MIB as usize];
    // xorshift64 (Marsaglia 2003).
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in piece.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let mut at = start;
    while at < end {
        let length = (end - at).min(MIB) as usize;
        for (i, block) in piece[..length].chunks_mut(ALIGNED).enumerate() {
            let offset = at + (i * ALIGNED) as u64;
            block[..8].copy_from_slice(&(offset ^ state).to_le_bytes());
        }
        if !go_on() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the run is ending"));
        }
        let began = Instant::now();
        file.write_all_at(&piece[..length], at)?;
        at += length as u64;
        if let Some(pace) = pace {
            thread::sleep(began.elapsed().mul_f64(1.0 / pace.clamp(0.01, 1.0) - 1.0));
        }
    }
    Ok(())
}

/// Takes back a change whose making failed. The first failure is the one that is told; should
/// taking back fail too, the change stays in the journal.
pub fn undone(journal: &Journal, change: ChangeId, failure: Error) -> Error {
    let _ = journal.undo(change);
    failure
}

/// Takes a scratch file away before its turn.
pub fn remove(journal: &Journal, scratch: Scratch) -> Result<()> {
    let Scratch { file, change, .. } = scratch;
    drop(file);
    Ok(journal.undo(change)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn without_holes_the_same_file_is_emptied_and_keeps_its_size() {
        let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let journal = Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap());
        let path = dir.path().join("f");
        let (file, change) = journal.scratch_file(&path).unwrap();
        let open = held::by_descriptor(&file).unwrap();
        let scratch = Scratch { path, open, bytes: 2 * MIB, file, change, pace: None, journal };
        scratch.file.set_len(scratch.bytes).unwrap();
        // What a guest has open while it is emptied.
        let open = File::open(&scratch.path).unwrap();
        scratch.fill().unwrap();
        assert!(open.metadata().unwrap().blocks() * 512 >= 2 * MIB);
        scratch.cut().unwrap();
        scratch.file.sync_all().unwrap();
        assert_eq!((open.metadata().unwrap().len(), scratch.allocated().unwrap()), (2 * MIB, 0));
        assert_eq!(open.metadata().unwrap().ino(), scratch.path.metadata().unwrap().ino());
        assert_eq!(scratch.unwritten().unwrap(), [(0, 2 * MIB)]);
        scratch.fill().unwrap();
        assert_eq!(scratch.unwritten().unwrap(), []);
    }

    #[test]
    fn the_end_of_a_run_ends_writing_out_at_the_next_piece() {
        let file = tempfile::tempfile_in(std::env::current_dir().unwrap()).unwrap();
        let left = std::cell::Cell::new(3);
        let go_on = || left.replace(left.get() - 1) > 0;
        let ended = write_out(&file, 0, 8 * MIB, None, &go_on).unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
        assert_eq!(file.metadata().unwrap().len(), 3 * MIB);
        // As a target tells it.
        let said = super::io("write out", Path::new("/dev/vg0/x"))(ended).to_string();
        assert_eq!(said, "cannot write out /dev/vg0/x: the run is ending");
    }
}
