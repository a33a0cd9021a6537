//! What is set around a cell: applied before it, read back, journalled, undone after it.
//!
//! Adding a setting: a file with a type that implements [`Setting`], and its line in [`ALL`].

use std::path::Path;

use vmio_model::cell::Actor;
use vmio_model::study::SettingName;
use vmio_node::Journal;

use crate::workloads::End;

/// All settings, in the order in which they are shown.
pub const ALL: &[&dyn Setting] = &[];

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
    /// Gives a value its one spelling, or says what is wrong with it.
    fn reader(&self) -> fn(&str) -> Result<String, String>;
    /// Whether it means anything to this actor, else why not.
    ///
    /// # Errors
    /// Why not.
    fn fits(&self, actor: &Actor) -> Result<(), String>;
    /// Sets it for an actor. What it returns undoes that.
    ///
    /// # Errors
    /// When it cannot be set, or reads back otherwise.
    fn apply(&self, value: &str, on: &Where<'_>) -> anyhow::Result<Applied>;
}

/// For whom something is set.
pub struct Where<'a> {
    /// The actor.
    pub actor: &'a Actor,
    /// Where its workload runs, and the path of its disk there.
    pub end: &'a End,
    /// The file or device on the host below its disk; `None` where it has none.
    pub native: Option<&'a Path>,
    /// Takes note of what is changed on the host.
    pub journal: &'a Journal,
}

/// What was set.
#[derive(Default)]
pub struct Applied {
    /// What it is in force as, as read back.
    pub effective: String,
    /// Undoes it.
    pub undo: Option<Box<dyn FnOnce(&Journal) -> anyhow::Result<()> + Send>>,
}
