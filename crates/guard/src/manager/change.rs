//! Changes of the policy in force: from its files, over them, taken back, and as links change their speed. Each is whole or
//! not at all, and what is needed to take it back is written down before it is made.

use std::time::{Duration, Instant};

use super::read::{Read, read, read_now};
use super::set::SetOver;
use super::unconfirmed::Waiting;
use super::{Change, Manager, ManagerError, Senseless, set};
use crate::undo_log::UndoLogError;

impl Manager {
    /// Reads the files anew and puts them in force. With `confirm` what was in force before comes back unless
    /// [`Manager::confirm`] is called within so long.
    ///
    /// # Errors
    /// When the policy is wrong or cannot be held; what was in force stays.
    pub fn apply(&mut self, confirm: Option<Duration>) -> Result<(), ManagerError> {
        let next = read_now(&*self.texts.0, &self.read.over);
        self.follow_files(next, confirm)
    }

    /// What nobody may be there to hear is kept for the status.
    fn follow_files(
        &mut self,
        next: Result<Read, ManagerError>,
        confirm: Option<Duration>,
    ) -> Result<(), ManagerError> {
        let done = self.change(next, confirm);
        self.refused = done.as_ref().err().map(ToString::to_string);
        self.refused_for_link = false;
        done
    }

    fn change(&mut self, next: Result<Read, ManagerError>, confirm: Option<Duration>) -> Result<(), ManagerError> {
        let next = next?;
        let until = confirm.map(|limit| Instant::now() + limit);
        // What comes without a word while a change waits is taken back with it.
        let until = until.or(self.waiting.as_ref().map(|waiting| waiting.until));
        if until.is_some() {
            // Of changes in a row, what was in force before the first is what somebody was sure of.
            let sure = self.waiting.as_ref().map_or(&self.read, |waiting| &waiting.before);
            self.unconfirmed.add(sure, &next).map_err(ManagerError::Unwritten)?;
        }
        if let Err(error) = self.daemon()?.reload(next.loaded.policy.clone())? {
            if self.waiting.is_none() && until.is_some() {
                self.unconfirmed.strike(())?;
            }
            return Err(error.into());
        }
        self.refused = None;
        let before = std::mem::replace(&mut self.read, next);
        self.revision += 1;
        self.group();
        let sure = self.waiting.take().map_or(before, |waiting| waiting.before);
        self.waiting = until.map(|until| Waiting { until, before: sure });
        if self.waiting.is_none() {
            self.unconfirmed.strike(())?;
        }
        Ok(())
    }

    /// The change that waits is to stay.
    ///
    /// # Errors
    /// When none waits, or that it stays cannot be written down: it waits on.
    pub fn confirm(&mut self) -> Result<(), ManagerError> {
        if self.waiting.is_none() {
            return Err(Senseless::NothingToConfirm.into());
        }
        self.write_down(&self.read.over)?;
        self.unconfirmed.strike(())?;
        self.waiting = None;
        Ok(())
    }

    /// Takes the change back that waits.
    ///
    /// # Errors
    /// When none waits, or what was in force before cannot be held any more.
    pub fn take_back(&mut self) -> Result<(), ManagerError> {
        let Some(Waiting { before, .. }) = &self.waiting else {
            return Err(Senseless::NothingToTakeBack.into());
        };
        // It waits on where this fails.
        self.daemon()?.reload(before.loaded.policy.clone())??;
        // The files still say what nobody has confirmed, which the next start must know.
        let known = before.files != self.read.files;
        if let Some(Waiting { before, .. }) = self.waiting.take() {
            self.read = before;
        }
        self.revision += 1;
        self.group();
        if known { Ok(()) } else { Ok(self.unconfirmed.strike(())?) }
    }

    /// Takes the change back whose time is over; whether there was one.
    ///
    /// # Errors
    /// As [`Manager::take_back`]; it is tried again.
    pub fn expire(&mut self) -> Result<bool, ManagerError> {
        let over = self.waiting.as_ref().is_some_and(|waiting| waiting.until <= Instant::now());
        if over { self.give_up() } else { Ok(false) }
    }

    /// Takes the change back that waits, for which nobody will be there when its time is over; whether there was one.
    ///
    /// # Errors
    /// As [`Manager::take_back`].
    pub fn give_up(&mut self) -> Result<bool, ManagerError> {
        if self.waiting.is_none() || self.daemon.is_none() {
            return Ok(false);
        }
        self.take_back()?;
        Ok(true)
    }

    /// Whether what is in force since the start is older than the files, whose change nobody has confirmed.
    pub fn began_before(&self) -> bool {
        self.began_before
    }

    /// Changes keys of a class over the files, or takes such changes away.
    ///
    /// # Errors
    /// When it makes no sense, cannot be held, or cannot be written down; nothing is changed then.
    pub fn set(&mut self, change: &Change, confirm: Option<Duration>) -> Result<(), ManagerError> {
        let over = set::changed(&self.read.over, change)?;
        let next = read_now(&*self.texts.0, &over)?;
        // What waits for a confirmation is written down with it.
        if confirm.is_some() || self.waiting.is_some() {
            return self.change(Ok(next), confirm);
        }
        let before = self.read.over.clone();
        self.write_down(&over).map_err(ManagerError::Unwritten)?;
        let done = self.change(Ok(next), None);
        if done.is_err() {
            self.write_down(&before)?;
        }
        done
    }

    /// Writes down what is set over the files.
    fn write_down(&self, over: &str) -> Result<(), UndoLogError> {
        let before = self.over.last(()).map(|SetOver(over)| over).unwrap_or_default();
        if before == over { Ok(()) } else { self.over.replace(SetOver(over.to_owned())) }
    }

    /// Puts the same policy in force anew where a link's speed has changed, whose capacity no file says; whether it had.
    ///
    /// # Errors
    /// As [`Manager::apply`]; it is tried again when a speed changes once more.
    pub fn follow_links(&mut self) -> Result<bool, ManagerError> {
        // Each second: of a thousand links only those that matter.
        let links = self.texts.0.links(Some(&self.uplinks()));
        if links == self.read.links {
            return Ok(false);
        }
        self.read.links.clone_from(&links);
        // Not what the files say by now: nobody has asked for that yet.
        let next = read(self.read.files.clone(), links, &self.read.over);
        if next.as_ref().is_ok_and(|next| next.loaded.policy == self.read.loaded.policy) {
            // Such as a link that was down for a while.
            if std::mem::take(&mut self.refused_for_link) {
                self.refused = None;
            }
            return Ok(true);
        }
        let done = self.follow_files(next, None);
        self.refused_for_link = done.is_err();
        done.map(|()| true)
    }
}
