//! The undo log entry of a limit, and its restoration.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vmio_model::policy::groups::GroupKey;
use vmio_node::held::Identity;

use super::GuestInfo;
use super::dial::Dial;
use super::host::{Group, Host};
use super::place::GuestCgroup;
use crate::undo_log::{Entry, HOST};

/// Undo log entry of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub guest: String,
    pub dir: PathBuf,
    group: Identity,
    v2: bool,
    key: GroupKey,
    /// The value before the guard's first change.
    pub before: String,
    /// The guard's value.
    pub value: String,
}

impl Entry for Limit {
    const PART: &'static str = "groups";
    type Subject = Slot;

    fn subject(&self) -> Slot {
        Slot::of(self.group, self.key)
    }

    fn namespace(&self) -> u64 {
        HOST
    }
}

impl Limit {
    pub fn new(guest: &GuestInfo, cgroup: &GuestCgroup, key: GroupKey, before: String, value: String) -> Self {
        let GuestCgroup { dir, v2, group } = cgroup.clone();
        Self { guest: guest.name.clone(), dir, group, v2, key, before, value }
    }

    /// Restores the value before, if the current one is one of `ours`.
    pub fn put_back<'a, H: Host>(&self, host: &H, mut ours: impl Iterator<Item = &'a str>) -> RestoreOutcome {
        let dial = Dial { key: self.key, v2: self.v2 };
        let fails = |e: io::Error| match e.kind() {
            // The group is gone, or its controller was switched off.
            io::ErrorKind::NotFound => RestoreOutcome::Nothing,
            _ if e.raw_os_error() == Some(libc::ENODEV) => RestoreOutcome::Nothing,
            _ => RestoreOutcome::Left(format!("{}: {e}", self.dir.join(dial.file()).display())),
        };
        let group = match reopen(host, &self.dir, self.group) {
            Ok(Some(group)) => group,
            Ok(None) => return RestoreOutcome::Nothing,
            Err(e) => return fails(e),
        };
        let now = match dial.read(&group) {
            Ok(now) => now,
            Err(e) => return fails(e),
        };
        if now == self.before {
            return RestoreOutcome::Nothing;
        }
        if !ours.any(|value| value == now) {
            return RestoreOutcome::Others(now);
        }
        match dial.kills(&group, &self.before) {
            Ok(Some(why)) => return RestoreOutcome::Left(format!("{} was there before, but {why}", self.before)),
            Ok(None) => {}
            Err(e) => return fails(e),
        }
        match dial.write(&group, &self.before).and_then(|()| dial.read(&group)) {
            Ok(found) if found == self.before => RestoreOutcome::Restored,
            Ok(found) => RestoreOutcome::Left(format!("the kernel has {found} where {} was written", self.before)),
            Err(e) => fails(e),
        }
    }
}

/// Identifies a limit by its group's inode, since the group may be renamed.
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
}

/// Result of restoring the value that was there before a limit.
#[derive(Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// The value before was restored.
    Restored,
    /// Nothing to do: the group is gone, or has the value already.
    Nothing,
    /// Somebody else has set this value since; it was left alone.
    Others(String),
    /// Not restored, and why.
    Left(String),
}

/// Opens a group by its old name or, if it was renamed (version 1, within its parent), by its inode.
fn reopen<H: Host>(host: &H, dir: &Path, group: Identity) -> io::Result<Option<H::Group>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::form_stays;

    #[test]
    fn the_form_of_entries_stays() {
        let limit =
            r#"{"guest":"a","dir":"/g","group":{"dev":1,"ino":2},"v2":true,"key":KEY,"before":"1","value":"2"}"#;
        for key in [r#""cpu_weight""#, r#""cpu_max""#, r#""memory_max""#] {
            form_stays::<Limit>("groups", &limit.replace("KEY", key));
        }
    }
}
