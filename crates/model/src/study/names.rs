//! Names that a study may use.

use crate::cell::Subject;
use crate::result::WorkloadTraits;

/// Names of the entries of each extension point, which this crate does not know.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Of `guests/`.
    pub guests: Vec<String>,
    /// Of `disks/targets/`.
    pub targets: Vec<String>,
    /// Targets that a guest can reach by itself, as a client over a card of its own: then it has no disk of its
    /// hypervisor's.
    pub reached: Vec<String>,
    /// Of `disks/drivers/`.
    pub drivers: Vec<String>,
    /// Of `nets/`.
    pub networks: Vec<String>,
    /// Networks within one machine, where guests have no card.
    pub inside: Vec<String>,
    /// Peers of any of these networks.
    pub peers: Vec<String>,
    /// Card models of guests.
    pub nics: Vec<String>,
    /// Of `settings/`, with parsers of their values.
    pub settings: Vec<SettingName>,
    /// Of `workloads/`.
    pub workloads: Vec<WorkloadName>,
    /// Families of workloads, whose names are parsed.
    pub workload_families: Vec<Family>,
    /// Traits of a workload of either; `None` where unknown, and then nothing is refused for it.
    pub traits: Option<fn(&str) -> Option<WorkloadTraits>>,
}

/// Why a word of a study or a command line cannot be parsed, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WordError(pub String);

/// An entry of `settings/`.
#[derive(Debug, Clone, Copy)]
pub struct SettingName {
    /// Its name.
    pub name: &'static str,
    /// Parses a value to its canonical spelling.
    pub value: fn(&str) -> Result<String, WordError>,
}

/// An entry of `workloads/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadName {
    /// Its name.
    pub name: String,
    /// Its kind of subject.
    pub works_on: SubjectKind,
}

/// Kinds of subjects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A disk.
    Disk,
    /// A path of a network.
    Path,
    /// The machine itself.
    Machine,
}

impl SubjectKind {
    /// The kind of a subject.
    pub fn of(subject: &Subject) -> Self {
        match subject {
            Subject::Disk { .. } => SubjectKind::Disk,
            Subject::Path { .. } => SubjectKind::Path,
            Subject::Machine => SubjectKind::Machine,
        }
    }

    /// `a disk`.
    pub fn word(self) -> &'static str {
        match self {
            SubjectKind::Disk => "a disk",
            SubjectKind::Path => "a path of a network",
            SubjectKind::Machine => "the machine itself",
        }
    }
}

/// A family of names, too many for a list.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Grammar of the names, for messages and help: `<seq|rand>-<read|write>-…`.
    pub grammar: &'static str,
    /// One of them.
    pub example: &'static str,
    /// `None` for a word unlike this family; `Some(Err(why))` for a wrong word of the family; `Some(Ok(()))` for a
    /// right one.
    pub recognise: fn(&str) -> Option<Result<(), WordError>>,
    /// The members' kind of subject.
    pub works_on: SubjectKind,
}

impl Names {
    /// A message where a workload is judged by a figure that another one lacks, as far as both are known.
    pub fn lacks(&self, workload: &str, judged: &str) -> Option<String> {
        let traits = |name: &str| self.traits.and_then(|of| of(name));
        let judge = traits(judged)?.judge()?.clone();
        (!traits(workload)?.figures.contains(&judge)).then_some(judge.name)
    }

    /// The kind of subject of a workload of the list or of a family; `None` for an unknown one.
    pub fn works_on(&self, workload: &str) -> Option<SubjectKind> {
        let listed = self.workloads.iter().find(|w| w.name == workload).map(|w| w.works_on);
        let family = || self.workload_families.iter().find(|f| (f.recognise)(workload) == Some(Ok(())));
        listed.or_else(|| family().map(|f| f.works_on))
    }
}
