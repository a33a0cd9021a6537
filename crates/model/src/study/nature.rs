//! The natures of a host's speed, which a report has a headline each of.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Sort, WordError};
use crate::cell::Cell;
use crate::result::WorkloadTraits;

/// Groups of workloads ([`WorkloadTraits::group`]) that memory is the limit of.
pub const OF_MEMORY: [&str; 2] = ["memory", "stream"];

/// What a workload needs of the host, by its subject, and on the machine itself by its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Nature {
    /// Disks.
    Storage,
    /// Paths of networks.
    Network,
    /// The machine itself, by what is in no group of memory.
    Cpu,
    /// The machine itself, by the groups of memory.
    Memory,
}

impl Nature {
    /// All, in the order in which they are shown.
    pub const ALL: [Nature; 4] = [Nature::Storage, Nature::Network, Nature::Cpu, Nature::Memory];

    /// Of a workload of this group, if it is in any, on a subject of this sort.
    pub fn of(sort: Sort, group: Option<&str>) -> Nature {
        match sort {
            Sort::Disk => Nature::Storage,
            Sort::Path => Nature::Network,
            Sort::Machine if group.is_some_and(|group| OF_MEMORY.contains(&group)) => Nature::Memory,
            Sort::Machine => Nature::Cpu,
        }
    }

    /// Of a cell, by what its leading actor does.
    pub fn of_cell(cell: &Cell, workloads: &[WorkloadTraits]) -> Nature {
        let traits = workloads.iter().find(|w| w.name == cell.workload());
        Nature::of(Sort::of(&cell.lead.subject), traits.and_then(|w| w.group.as_deref()))
    }

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Nature::Storage => "storage",
            Nature::Network => "network",
            Nature::Cpu => "cpu",
            Nature::Memory => "memory",
        }
    }

    /// As it is headed in reports.
    pub fn heading(self) -> &'static str {
        match self {
            Nature::Storage => "Storage",
            Nature::Network => "Network",
            Nature::Cpu => "Processor",
            Nature::Memory => "Memory",
        }
    }
}

impl fmt::Display for Nature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Nature {
    type Err = WordError;

    fn from_str(word: &str) -> Result<Self, WordError> {
        let none = || WordError(format!("one of {}", Nature::ALL.map(Nature::word).join(", ")));
        Nature::ALL.into_iter().find(|n| n.word() == word).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_has_a_word_that_is_read_back() {
        for nature in Nature::ALL {
            assert_eq!(nature.to_string().parse(), Ok(nature));
            assert_eq!(serde_json::to_value(nature).unwrap(), nature.word());
        }
        assert_eq!("disk".parse::<Nature>(), Err(WordError("one of storage, network, cpu, memory".to_owned())));
    }

    #[test]
    fn the_machines_workloads_are_told_apart_by_their_group() {
        assert_eq!(Nature::of(Sort::Machine, Some("stream")), Nature::Memory);
        assert_eq!(Nature::of(Sort::Machine, Some("integer")), Nature::Cpu);
        assert_eq!(Nature::of(Sort::Machine, None), Nature::Cpu);
        assert_eq!(Nature::of(Sort::Disk, Some("memory")), Nature::Storage);
    }
}
