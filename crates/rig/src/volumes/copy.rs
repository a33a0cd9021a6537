//! Volumes that are copied while no program uses them, and that grow.

use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, copy_file_range, fsync, ftruncate};
use rustix::io::Errno;

use super::attachment::Attachment;
use super::{BLOCK, Error, Name, Pool, Result, Volume};

/// Bytes that the kernel copies in one call.
const AT_ONCE: usize = 64 << 20;

impl Pool {
    /// Makes a volume of the bytes that another one has now. File systems that share blocks (XFS, Btrfs) copy none.
    ///
    /// # Errors
    /// The volume is in use, since what a guest has not flushed would be missing; or as [`Pool::create`].
    pub fn snapshot(&self, name: &Name, new: &Name) -> Result<Volume> {
        let (source, bytes) = self.unused(name)?;
        self.make(new, |file| self.copy(name, &source, file, bytes))?;
        Ok(Volume { name: new.clone(), bytes })
    }

    fn copy(&self, name: &Name, source: &OwnedFd, to: &OwnedFd, bytes: u64) -> Result<()> {
        let (mut read, mut written) = (0, 0);
        while written < bytes {
            let count = usize::try_from(bytes - written).unwrap_or(AT_ONCE).min(AT_ONCE);
            match copy_file_range(source, Some(&mut read), to, Some(&mut written), count) {
                Ok(0) => return Err(self.failed("copy the whole of", &name.file(), Errno::IO)),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::FBIG | Errno::DQUOT) => {
                    return Err(Error::NoSpace { path: self.path.clone(), bytes });
                }
                Err(e) => return Err(self.failed("copy", &name.file(), e)),
            }
        }
        Ok(())
    }

    /// Makes a volume larger, its new bytes zeros that are reserved.
    ///
    /// # Errors
    /// The volume is in use, or it would become smaller; no space, and then it is as it was.
    pub fn resize(&self, name: &Name, bytes: u64) -> Result<Volume> {
        let _changing = self.lock()?;
        let (file, now) = self.unused(name)?;
        self.grow(name, (&file, now), bytes)
    }

    /// Makes a volume larger that a guest has. Its server keeps the size that it found when it was started.
    pub(super) fn grow_attached(&self, name: &Name, attachment: &Attachment, bytes: u64) -> Result<Volume> {
        let _changing = self.lock()?;
        match self.attachment(name)? {
            Some(there) if there == *attachment => {}
            Some(there) => return Err(Error::Attached { name: name.clone(), guest: there.holder.guest }),
            None => return Err(Error::Detached(name.clone())),
        }
        let (file, now) = self.volume(name)?;
        self.grow(name, (&file, now), bytes)
    }

    fn grow(&self, name: &Name, (file, now): (&OwnedFd, u64), bytes: u64) -> Result<Volume> {
        if bytes == 0 || !bytes.is_multiple_of(BLOCK) {
            return Err(Error::Size(bytes));
        }
        if bytes < now {
            return Err(Error::Smaller { name: name.clone(), bytes: now });
        }
        // The size changes in one step, after all of the space is there.
        if let Err(why) = self.reserve(file, FallocateFlags::KEEP_SIZE, bytes, bytes - now) {
            // Gives back what was reserved behind the end.
            let _ = ftruncate(file, now);
            return Err(why);
        }
        ftruncate(file, bytes).map_err(|e| self.failed("resize", &name.file(), e))?;
        fsync(file).map_err(|e| self.failed("sync", &name.file(), e))?;
        Ok(Volume { name: name.clone(), bytes })
    }
}
