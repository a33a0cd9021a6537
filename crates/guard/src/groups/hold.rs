//! A limit that is in force: what the ledger says of it, and how it is put back.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vmio_model::policy::groups::GroupKey;
use vmio_node::held::Identity;
use vmio_node::ledger::EntryId;

use super::GuestSeen;
use super::dial::Dial;
use super::host::{Group, Host};
use super::place::Spot;

/// What the ledger has of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    guest: String,
    dir: PathBuf,
    group: Identity,
    v2: bool,
    key: GroupKey,
    /// What was there before the first one of ours.
    before: String,
    /// What is to be there.
    value: String,
}

impl Entry {
    pub fn new(guest: &GuestSeen, spot: &Spot, key: GroupKey, before: String, value: String) -> Self {
        let Spot { dir, v2, group } = spot.clone();
        Self { guest: guest.name.clone(), dir, group, v2, key, before, value }
    }

    pub fn slot(&self) -> Slot {
        Slot::of(self.group, self.key)
    }
}

/// A limit of one group, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    dev: u64,
    ino: u64,
    key: GroupKey,
}

impl Slot {
    pub fn of(group: Identity, key: GroupKey) -> Self {
        Self { dev: group.dev, ino: group.ino, key }
    }

    pub fn key(self) -> GroupKey {
        self.key
    }

    fn group(self) -> Identity {
        Identity { dev: self.dev, ino: self.ino }
    }
}

/// A limit that is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    pub guest: String,
    pub dir: PathBuf,
    v2: bool,
    pub before: String,
    /// Entries with their values, the last is in force; several only where one was killed on the way from one to the next.
    values: Vec<(EntryId, String)>,
}

/// What became of putting back.
#[derive(Debug, PartialEq, Eq)]
pub enum Back {
    /// What was there before is there again.
    Restored,
    /// There is nothing to do: the group is gone, or has it already.
    Nothing,
    /// Somebody else has set this since; it was left alone.
    Others(String),
    /// It cannot be now, and why.
    Left(String),
}

impl Holding {
    pub fn new(id: EntryId, entry: &Entry) -> Self {
        let Entry { guest, dir, v2, before, value, .. } = entry.clone();
        Self { guest, dir, v2, before, values: vec![(id, value)] }
    }

    /// Another value in the place of those before.
    pub fn add(&mut self, id: EntryId, entry: &Entry) {
        self.before.clone_from(&entry.before);
        self.values.push((id, entry.value.clone()));
    }

    /// What is to be there.
    pub fn value(&self) -> &str {
        self.values.last().map_or("", |(_, value)| value)
    }

    /// All entries but the last, which are forgotten.
    pub fn replaced(&mut self) -> Vec<EntryId> {
        let last = self.values.len().saturating_sub(1);
        self.values.drain(..last).map(|(id, _)| id).collect()
    }

    pub fn entries(self) -> impl Iterator<Item = EntryId> {
        self.values.into_iter().map(|(id, _)| id)
    }

    /// Puts back what was there before.
    pub fn put_back<H: Host>(&self, host: &H, slot: Slot) -> Back {
        let dial = Dial { key: slot.key, v2: self.v2 };
        let fails = |e: io::Error| match e.kind() {
            // The group is gone, or its controller was switched off, and with it every value.
            io::ErrorKind::NotFound => Back::Nothing,
            _ if e.raw_os_error() == Some(libc::ENODEV) => Back::Nothing,
            _ => Back::Left(format!("{}: {e}", self.dir.join(dial.file()).display())),
        };
        let group = match again(host, &self.dir, slot.group()) {
            Ok(Some(group)) => group,
            Ok(None) => return Back::Nothing,
            Err(e) => return fails(e),
        };
        let now = match dial.read(&group) {
            Ok(now) => now,
            Err(e) => return fails(e),
        };
        if now == self.before {
            return Back::Nothing;
        }
        if !self.values.iter().any(|(_, value)| *value == now) {
            return Back::Others(now);
        }
        match dial.kills(&group, &self.before) {
            Ok(Some(why)) => return Back::Left(format!("{} was there before, but {why}", self.before)),
            Ok(None) => {}
            Err(e) => return fails(e),
        }
        match dial.write(&group, &self.before).and_then(|()| dial.read(&group)) {
            Ok(found) if found == self.before => Back::Restored,
            Ok(found) => Back::Left(format!("the kernel has {found} where {} was written", self.before)),
            Err(e) => fails(e),
        }
    }
}

/// The very group, under its old name or, where its owner has renamed it (version 1, within its parent), under a new one.
fn again<H: Host>(host: &H, dir: &Path, group: Identity) -> io::Result<Option<H::Group>> {
    match host.open(dir) {
        Ok(found) if found.identity() == group => return Ok(Some(found)),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let parent = match dir.parent().map(|dir| host.open(dir)) {
        Some(Ok(parent)) => parent,
        Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => return Ok(None),
    };
    let children = parent.children()?;
    Ok(children.iter().filter_map(|name| parent.child(name).ok()).find(|child| child.identity() == group))
}
