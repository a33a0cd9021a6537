//! Measured resources of a host; a report has a headline for each.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SubjectKind, WordError};
use crate::cell::Cell;
use crate::result::WorkloadTraits;

/// Groups of workloads ([`WorkloadTraits::group`]) that memory limits.
pub const OF_MEMORY: [&str; 2] = ["memory", "stream"];

/// Resource that a workload measures, by its subject, and on the machine itself by its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Nature")]
pub enum HostResource {
    /// Disks.
    Storage,
    /// Paths of networks.
    Network,
    /// The machine itself, except groups of memory.
    Cpu,
    /// The machine itself, groups of memory.
    Memory,
}

impl HostResource {
    /// In display order.
    pub const ALL: [HostResource; 4] =
        [HostResource::Storage, HostResource::Network, HostResource::Cpu, HostResource::Memory];

    /// The resource of a workload, by its kind of subject and its group.
    pub fn of(kind: SubjectKind, group: Option<&str>) -> HostResource {
        match kind {
            SubjectKind::Disk => HostResource::Storage,
            SubjectKind::Path => HostResource::Network,
            SubjectKind::Machine if group.is_some_and(|group| OF_MEMORY.contains(&group)) => HostResource::Memory,
            SubjectKind::Machine => HostResource::Cpu,
        }
    }

    /// The resource of a cell, by its leading actor.
    pub fn of_cell(cell: &Cell, workloads: &[WorkloadTraits]) -> HostResource {
        let traits = workloads.iter().find(|w| w.name == cell.workload());
        HostResource::of(SubjectKind::of(&cell.lead.subject), traits.and_then(|w| w.group.as_deref()))
    }

    /// Name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            HostResource::Storage => "storage",
            HostResource::Network => "network",
            HostResource::Cpu => "cpu",
            HostResource::Memory => "memory",
        }
    }

    /// Heading in reports.
    pub fn heading(self) -> &'static str {
        match self {
            HostResource::Storage => "Storage",
            HostResource::Network => "Network",
            HostResource::Cpu => "Processor",
            HostResource::Memory => "Memory",
        }
    }
}

impl fmt::Display for HostResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for HostResource {
    type Err = WordError;

    fn from_str(word: &str) -> Result<Self, WordError> {
        let none = || WordError(format!("one of {}", HostResource::ALL.map(HostResource::word).join(", ")));
        HostResource::ALL.into_iter().find(|n| n.word() == word).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_has_a_word_that_is_read_back() {
        for resource in HostResource::ALL {
            assert_eq!(resource.to_string().parse(), Ok(resource));
            assert_eq!(serde_json::to_value(resource).unwrap(), resource.word());
        }
        assert_eq!("disk".parse::<HostResource>(), Err(WordError("one of storage, network, cpu, memory".to_owned())));
    }

    #[test]
    fn the_machines_workloads_are_told_apart_by_their_group() {
        assert_eq!(HostResource::of(SubjectKind::Machine, Some("stream")), HostResource::Memory);
        assert_eq!(HostResource::of(SubjectKind::Machine, Some("integer")), HostResource::Cpu);
        assert_eq!(HostResource::of(SubjectKind::Machine, None), HostResource::Cpu);
        assert_eq!(HostResource::of(SubjectKind::Disk, Some("memory")), HostResource::Storage);
    }
}
