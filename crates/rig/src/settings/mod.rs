//! What is set around a cell: applied before it, read back, undone after it. What is set on the host is in the
//! journal first, so that it is undone after SIGKILL too; a guest's own node takes back what was written to it.
//!
//! Adding a setting: a file with a type that implements [`Setting`], and its line in [`ALL`].

use vmio_model::cell::Actor;
use vmio_model::study::SettingName;
use vmio_node::Journal;

use crate::workloads::End;

mod read_ahead;

/// All settings, in the order in which they are shown.
pub const ALL: &[&dyn Setting] = &[&read_ahead::ReadAhead];

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
    fn reader(&self) -> fn(&str) -> std::result::Result<String, String>;
    /// What it does for an actor, as far as that is known before anything is made.
    fn fits(&self, actor: &Actor) -> Fit;
    /// Sets it for an actor that it fits, and reads it back.
    ///
    /// # Errors
    /// When it cannot or must not be set, or reads back otherwise; then nothing of it is left.
    fn apply(&self, value: &str, on: &Where<'_>) -> Result<Applied>;
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
    /// Takes note of what is changed on the host.
    pub journal: &'a Journal,
}

/// Undoes something that was set.
pub type Undo = Box<dyn FnOnce(&Journal) -> Result<()> + Send>;

/// What was set.
pub struct Applied {
    /// What is in force, as read back, in the spelling of values.
    pub effective: String,
    /// Takes it back.
    pub undo: Undo,
}

/// Result of this folder.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something is not set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot or must not be set there, however often it is tried.
    #[error("{0}")]
    Refused(String),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::cell::{Aio, Attachment, Cache, Cell, NATIVE, Nic, Side, Subject};

    use super::*;
    use crate::disks::targets;

    /// An actor on each sort of subject, in a guest and natively, on each target.
    fn actors() -> Vec<Actor> {
        let mut all = Vec::new();
        for kind in [NATIVE, "qemu"] {
            let guests = kind != NATIVE;
            let attachment = guests.then(|| Attachment::new("virtio-blk", Cache::None, Aio::Native));
            let disk =
                |t: &&dyn targets::Target| Subject::Disk { target: t.name().into(), attachment: attachment.clone() };
            let nic = guests.then(|| Nic::new("virtio-net"));
            let others = [
                Subject::Path { network: "veth".into(), peer: "host".into(), nic },
                Subject::Machine,
                Subject::Cluster { nodes: 3 },
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
            // They are part of a cell's name, and keys of a TOML table.
            assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'), "{name}");
            assert!(ALL[..i].iter().all(|s| s.name() != name), "{name} twice");
            assert!(!setting.about().is_empty() && !setting.examples().is_empty(), "{name}");
            assert_eq!(find(name).unwrap().name(), name);
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
            for wrong in ["", " ", "-1", "nonsense", "\u{0}"] {
                let said = read(wrong).unwrap_err();
                assert!(setting.examples().iter().any(|e| said.contains(e)), "{name}={wrong:?}: {said}");
            }
            let fits: Vec<Fit> = actors().iter().map(|actor| setting.fits(actor)).collect();
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
