//! What is set around a cell: applied before it, read back, undone after it. What is changed on the
//! host is in the journal first, so that it is undone after SIGKILL too; what is set in a guest or in a namespace of vmio's
//! own goes with it.
//!
//! Adding a setting: a file with a type that implements [`Setting`], and its line in [`ALL`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use vmio_look::require::Requirement;
use vmio_model::cell::Actor;
use vmio_model::result::{Mark, WorkloadTraits};
use vmio_model::study::{GuardPolicy, SettingName, WordError};
use vmio_node::Journal;

use crate::guests::Balloon;
use crate::nets::Port;
use crate::workloads::End;

mod bridge_netfilter;
mod by_hand;
#[cfg(test)]
mod example;
mod guard;
pub mod memory;
mod mtu;
mod offloads;
mod ports;
mod rate;
mod read_ahead;
mod uplink;

/// All settings, in the order in which they are shown, and put: what comes later may build on what is there.
pub const ALL: &[&dyn Setting] = &[
    &memory::Memory,
    &read_ahead::ReadAhead,
    &mtu::Mtu,
    &offloads::Offloads,
    &bridge_netfilter::BridgeNetfilter,
    &rate::Rate,
    &guard::Guard,
];

/// The setting of that name.
pub fn find(name: &str) -> Option<&'static dyn Setting> {
    ALL.iter().copied().find(|s| s.name() == name)
}

/// Names and readers of values, for the reader of studies.
pub fn names() -> Vec<SettingName> {
    ALL.iter().map(|s| SettingName { name: s.name(), value: s.reader() }).collect()
}

/// A setting.
pub trait Setting: Sync {
    /// Name in studies and results.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// Values that it takes, for help, docs and tests.
    fn examples(&self) -> &'static [&'static str];
    /// Gives a value its one spelling, or says what is wrong with it.
    fn reader(&self) -> fn(&str) -> Result<String, WordError>;
    /// What this machine must have.
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    /// What it is around an actor with such a workload where the cell does not name it. None: as it was found.
    fn by_default(&self, _actor: &Actor, _workload: &WorkloadTraits) -> Option<ByDefault> {
        None
    }
    /// What is in force for an actor now, in the spelling of values; `None` where that cannot be told.
    fn found(&self, _end: &End) -> Option<String> {
        None
    }
    /// What such a value does for an actor, as far as that is known before anything is made.
    fn fits(&self, value: &str, actor: &Actor) -> Fit;
    /// Sets it for an actor that it fits, and reads it back: what is in force, in the spelling of values. Before
    /// each change it says how that is taken back; that is done after the cell, and at once where it fails.
    ///
    /// # Errors
    /// When it cannot or must not be set, or reads back otherwise.
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String>;
}

/// What a setting is where a cell does not name it, so that both sides have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByDefault {
    /// The value.
    pub value: &'static str,
    /// What says of a sample that it had another one, which must not be changed; `None`: it is set wherever there is one.
    pub otherwise: Option<Mark>,
}

/// What a setting does for an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// It is set.
    Sets,
    /// Nothing: the actor has nothing that it is a setting of. Why.
    Nothing(String),
    /// It must not be set. Why, and what to do.
    Refused(String),
}

/// For whom something is set.
pub struct Where<'a> {
    /// The actor.
    pub actor: &'a Actor,
    /// Where its workload runs, and its disk or address there.
    pub end: &'a End,
    /// The balloon of its guest; `None` where it has none, or works in none.
    pub balloon: Option<&'a Arc<dyn Balloon>>,
    /// The interfaces of its path on the host's side; none where it works over no path.
    pub ports: &'a [Port],
    /// Its guest's own card, where that reaches what serves its disk by itself.
    pub card: Option<&'a Port>,
    /// The interfaces of all actors of the cell, in their order, and which of them this one is.
    pub cell: (&'a [&'a [Port]], usize),
    /// What the study says of policies for a guard.
    pub guards: &'a BTreeMap<String, GuardPolicy>,
    /// A directory of vmio's own, which sockets may lie in.
    pub run_dir: &'a Path,
    /// Takes note of what is changed on the host.
    pub journal: &'a Journal,
}

/// Undoes something that was set.
type Undo = Box<dyn FnOnce(&Journal) -> Result<()> + Send>;

/// How what was set is taken back.
#[derive(Default)]
pub struct Undos(Vec<(bool, Undo)>);

impl Undos {
    /// Of a change on the host.
    pub fn on_host(&mut self, undo: impl FnOnce(&Journal) -> Result<()> + Send + 'static) {
        self.0.push((true, Box::new(undo)));
    }

    /// Of a change in a guest.
    pub fn in_guest(&mut self, undo: impl FnOnce(&Journal) -> Result<()> + Send + 'static) {
        self.0.push((false, Box::new(undo)));
    }

    /// Whether nothing was set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes it back, the last change first. One that cannot be taken back keeps none of the others.
    ///
    /// # Errors
    /// The first that could not be, and whether any of those is on the host.
    pub fn take_back(self, journal: &Journal) -> Result<(), Left> {
        let mut left: Option<Left> = None;
        for (host, undo) in self.0.into_iter().rev() {
            let Err(error) = undo(journal) else { continue };
            left = Some(match left {
                None => Left { on_host: host, error },
                Some(first) => Left { on_host: first.on_host || host, ..first },
            });
        }
        left.map_or(Ok(()), Err)
    }
}

/// What could not be taken back.
#[derive(Debug)]
pub struct Left {
    /// Whether some of it is the host's, where cells to come would meet it: a guest is booted anew.
    pub on_host: bool,
    /// Why.
    pub error: Error,
}

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something is not set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot or must not be set there, however often it is tried.
    #[error("{0}")]
    Refused(String),
    /// It was not set; another time it may be.
    #[error("{0}")]
    Failed(String),
    /// The kernel has something else in force.
    #[error("{asked} was asked for and {found} is in force")]
    NotAsAsked {
        /// What was asked for.
        asked: String,
        /// What was read back.
        found: String,
    },
    /// From the node or the journal.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}

/// What cannot be read is refused.
impl From<WordError> for Error {
    fn from(WordError(why): WordError) -> Self {
        Self::Refused(why)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::cell::{Aio, Attachment, Cache, Cell, Nic, Side, Subject};

    use super::*;
    use crate::disks::targets;

    /// An actor on each sort of subject, in a guest and natively, on each target.
    fn actors() -> Vec<Actor> {
        let mut all = Vec::new();
        for kind in ["native", "qemu"] {
            let guests = kind == "qemu";
            let attachment = guests.then(|| Attachment::new("virtio-blk", Cache::None, Aio::Native));
            let disk = |t: &&dyn targets::Target| {
                let target = t.name().to_owned();
                Subject::Disk { target, attachment: attachment.clone(), state: None }
            };
            let nic = guests.then(|| Nic::new("virtio-net"));
            let others = [
                Subject::path("veth", "host", nic.clone()),
                Subject::path("uplink", "remote", nic.clone()),
                Subject::path("loopback", "host", nic),
                Subject::Machine,
            ];
            let subjects = targets::ALL.iter().map(disk).chain(others);
            all.extend(subjects.map(|subject| Cell::of(Side::of(kind), subject, "some-work").lead));
        }
        all
    }

    #[test]
    fn contract_of_every_setting() {
        for (i, setting) in ALL.iter().enumerate() {
            let name = setting.name();
            assert!(ALL[..i].iter().all(|s| s.name() != name), "{name} twice");
            assert_eq!(find(name).unwrap().name(), name);
        }
        let example: &dyn Setting = &example::QueueLength;
        for setting in ALL.iter().copied().chain([example]) {
            let name = setting.name();
            // They are part of a cell's name, and keys of a TOML table.
            assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'), "{name}");
            assert!(!setting.about().is_empty() && !setting.examples().is_empty(), "{name}");
            let read = setting.reader();
            for example in setting.examples() {
                assert_eq!(read(example).as_deref(), Ok(*example), "{name}: one value, one spelling");
                assert!(
                    !example.contains([' ', ',', '/', '[', ']', '&', '=']),
                    "{name}={example}: cell keys use these"
                );
                // What is nearly that is refused, or is given that spelling.
                for other in
                    [format!(" {example}"), format!("{example} "), example.to_uppercase(), format!("0{example}")]
                {
                    assert!(read(&other).is_err() || read(&other).as_deref() == Ok(*example), "{name}={other}");
                }
            }
            // Where values are names that a study gives, any word may be one.
            let senseless = if name == guard::Guard.name() { "No sense" } else { "nonsense" };
            for wrong in ["", " ", "-1", senseless, "No sense", "\u{0}"] {
                let WordError(said) = read(wrong).unwrap_err();
                assert!(setting.examples().iter().any(|e| said.contains(e)), "{name}={wrong:?}: {said}");
            }
            let value = setting.examples()[0];
            let fits: Vec<Fit> = actors().iter().map(|actor| setting.fits(value, actor)).collect();
            assert!(fits.contains(&Fit::Sets), "{name} is set for nobody");
            for fit in fits {
                let (Fit::Nothing(why) | Fit::Refused(why)) = fit else { continue };
                assert!(!why.is_empty() && !why.ends_with('.'), "{name}: {why}");
            }
        }
        assert_eq!(names().len(), ALL.len());
        assert!(find("nonsense").is_none());
    }
}
