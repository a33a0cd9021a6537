//! Keys of a class that may be set over the files.

use serde::{Deserialize, Serialize};
use vmio_model::policy::groups::GroupKey;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Guaranteed rate.
    Min,
    /// Limit.
    Max,
    /// 1 to 8.
    Priority,
    /// Share of spare.
    Weight,
    /// How long excess waits on this host.
    Queue,
    /// Whether the maximum holds for local traffic.
    Local,
    /// What becomes of what is above the maximum.
    Excess,
    /// How long a full bucket lasts.
    Burst,
    /// The guest's share of busy processors.
    CpuWeight,
    /// Most processors' worth of time.
    CpuMax,
    /// Most memory.
    MemoryMax,
}

impl Key {
    /// All.
    pub const ALL: [Key; 11] = [
        Key::Min,
        Key::Max,
        Key::Priority,
        Key::Weight,
        Key::Queue,
        Key::Local,
        Key::Excess,
        Key::Burst,
        Key::CpuWeight,
        Key::CpuMax,
        Key::MemoryMax,
    ];

    /// Whether it is about guests' control groups.
    pub fn is_of_groups(self) -> bool {
        matches!(self, Key::CpuWeight | Key::CpuMax | Key::MemoryMax)
    }

    /// As the command line calls it.
    pub fn option(self) -> String {
        format!("--{}", self.word().replace('_', "-"))
    }

    /// As the policy's files call it.
    pub fn word(self) -> &'static str {
        match self {
            Key::Min => "min",
            Key::Max => "max",
            Key::Priority => "priority",
            Key::Weight => "weight",
            Key::Queue => "queue",
            Key::Local => "local",
            Key::Excess => "excess",
            Key::Burst => "burst",
            Key::CpuWeight => GroupKey::CpuWeight.word(),
            Key::CpuMax => GroupKey::CpuMax.word(),
            Key::MemoryMax => GroupKey::MemoryMax.word(),
        }
    }
}
