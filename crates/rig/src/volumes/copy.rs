//! Volumes that are copied while no program uses them, and that grow.

use std::os::fd::OwnedFd;

use super::attachment::Attachment;
use super::{Error, Name, Pool, Result, Volume};

impl Pool {
    /// Makes a volume of the bytes that another one has now.
    ///
    /// # Errors
    /// The volume is in use, since what a guest has not flushed would be missing; or as [`Pool::create`].
    pub fn snapshot(&self, name: &Name, new: &Name) -> Result<Volume> {
        let (source, bytes) = self.unused(name)?;
        self.make(new, || self.store.copy((name, &source, bytes), new))?;
        Ok(Volume { name: new.clone(), bytes })
    }

    /// Makes a volume larger, its new bytes zeros.
    ///
    /// # Errors
    /// The volume is in use, or it would become smaller; no space, and then it is as it was.
    pub fn resize(&self, name: &Name, bytes: u64) -> Result<Volume> {
        let _changing = self.lock()?;
        self.store.finish_growth(name)?;
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
        self.store.finish_growth(name)?;
        let (file, now) = self.volume(name)?;
        self.grow(name, (&file, now), bytes)
    }

    fn grow(&self, name: &Name, (file, now): (&OwnedFd, u64), asked: u64) -> Result<Volume> {
        let bytes = self.store.fitted(asked)?;
        if bytes < now {
            return Err(Error::Smaller { name: name.clone(), bytes: now });
        }
        self.store.grow(name, file, now, bytes)?;
        Ok(Volume { name: name.clone(), bytes })
    }
}
