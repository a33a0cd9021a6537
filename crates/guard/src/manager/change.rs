//! Changes of the policy in force: from its files, by `guard set`, taken back, and after a link changed its speed. Each
//! is made as a whole or not at all, and recorded in the ledger first where it may have to be taken back.

use std::time::{Duration, Instant};

use vmio_model::policy::PolicyError;

use super::read::{Read, read, read_now};
use super::set::SetOver;
use super::unconfirmed::{Unconfirmed, Waiting};
use super::{Change, Manager, ManagerError, Senseless, set};

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

    /// Makes a change, and keeps its error for the status.
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
        // A change without a confirmation time is taken back together with one that waits.
        let until = until.or(self.waiting.as_ref().map(|waiting| waiting.until));
        if until.is_some() {
            // Of several unconfirmed changes, the policy before the first one is the confirmed one.
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
        self.changed();
        self.revision += 1;
        self.limit_groups();
        let sure = self.waiting.take().map_or(before, |waiting| waiting.before);
        self.waiting = until.map(|until| Waiting { until, before: sure });
        if self.waiting.is_none() {
            self.unconfirmed.strike(())?;
        }
        Ok(())
    }

    /// Confirms the change that waits.
    ///
    /// # Errors
    /// When none waits, or the ledger cannot be written: the change waits on.
    pub fn confirm(&mut self) -> Result<(), ManagerError> {
        if self.waiting.is_none() {
            return Err(Senseless::NothingToConfirm.into());
        }
        if self.recorded_over() != self.read.over {
            self.over.replace(SetOver(self.read.over.clone()))?;
        }
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
        // Where this fails the change waits on.
        self.daemon()?.reload(before.loaded.policy.clone())??;
        // The files still have the unconfirmed policy, which the next start must not use.
        let files_unconfirmed = before.files != self.read.files;
        if let Some(Waiting { before, .. }) = self.waiting.take() {
            self.read = before;
        }
        self.changed();
        self.revision += 1;
        self.limit_groups();
        if files_unconfirmed { Ok(()) } else { Ok(self.unconfirmed.strike(())?) }
    }

    /// Takes the change back if its time is over; returns whether it did.
    ///
    /// # Errors
    /// As [`Manager::take_back`]; it is tried again.
    pub fn expire(&mut self) -> Result<bool, ManagerError> {
        let over = self.waiting.as_ref().is_some_and(|waiting| waiting.until <= Instant::now());
        if over { self.give_up() } else { Ok(false) }
    }

    /// Takes the change that waits back before its time is over, as the guard ends; returns whether there was one.
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

    /// What was left out of the policy that the guard started with, since nobody had confirmed it.
    pub fn began_before(&self) -> Option<Unconfirmed> {
        self.began_before
    }

    /// Changes keys of a class over the files, or takes such changes away.
    ///
    /// # Errors
    /// When it makes no sense, cannot be held, or cannot be written down; nothing is changed then, but with
    /// [`ManagerError::SetStays`] the next start would put it in force.
    pub fn set(&mut self, change: &Change, confirm: Option<Duration>) -> Result<(), ManagerError> {
        let over = set::changed(&self.read.over, change)?;
        let next = read_now(&*self.texts.0, &over).map_err(|error| self.caused(change, error))?;
        // An unconfirmed change is recorded by `change`, and `confirm` records this.
        if confirm.is_some() || self.waiting.is_some() {
            return self.change(Ok(next), confirm);
        }
        if self.recorded_over() == over && over == self.read.over {
            return self.change(Ok(next), None);
        }
        self.over.record(SetOver(over)).map_err(ManagerError::Unwritten)?;
        let done = self.change(Ok(next), None);
        let in_force = self.read.over.clone();
        match (done, self.over.strike_where((), |_, SetOver(other)| *other != in_force)) {
            (Err(why), Err(unstruck)) => Err(ManagerError::SetStays(Box::new(why), unstruck)),
            // An older entry that stays does no harm: the last one counts.
            (done, _) => done,
        }
    }

    /// The error of a policy with a change, which names the change where the files are right without it.
    fn caused(&self, change: &Change, error: ManagerError) -> ManagerError {
        let ManagerError::Policy(PolicyError { problems, warnings }) = error else { return error };
        let before = match read_now(&*self.texts.0, &self.read.over) {
            Err(ManagerError::Policy(error)) => error.problems,
            _ => Vec::new(),
        };
        ManagerError::Policy(PolicyError { problems: set::caused(change, problems, &before), warnings })
    }

    /// What is set over the files, as the ledger has it.
    fn recorded_over(&self) -> String {
        self.over.last(()).map(|SetOver(over)| over).unwrap_or_default()
    }

    /// Puts the policy in force anew where the speed of a link changed whose capacity no file sets; returns whether one
    /// did.
    ///
    /// # Errors
    /// As [`Manager::apply`]; it is tried again when a speed changes once more.
    pub fn follow_links(&mut self) -> Result<bool, ManagerError> {
        // Called each second: reads only the policy's uplinks.
        let links = self.texts.0.links(Some(&self.uplinks()));
        if links == self.read.links {
            return Ok(false);
        }
        self.read.links.clone_from(&links);
        // The files as they were read: later edits wait for `apply`.
        let next = read(self.read.files.clone(), links, &self.read.over);
        if next.as_ref().is_ok_and(|next| next.loaded.policy == self.read.loaded.policy) {
            // The speed is back, as of a link that was down.
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
