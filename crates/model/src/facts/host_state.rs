//! What the host as a whole is like: facts that every guest on it shares, read once a scan.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was seen of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostState {
    /// What chooses the frequency of its processors; empty where the kernel does not, as mostly on a host that is a
    /// guest itself.
    pub governors: Vec<Governor>,
    /// Merging of pages of the same content (KSM), where it is on.
    pub ksm: Option<Ksm>,
    /// Where it swaps to; null without swap.
    pub swap: Option<Swap>,
    /// Its memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// What of it could be used without swapping, the page cache included.
    pub available_bytes: Option<u64>,
}

/// Processors whose frequency is chosen in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Governor {
    /// Scaling driver: `acpi-cpufreq`, `intel_pstate`, `amd-pstate-epp`.
    pub driver: String,
    /// Governor: `performance`, `powersave`, `schedutil`.
    pub governor: String,
    /// What a driver that chooses by itself prefers: `performance`, `balance_power`; null for other drivers.
    pub preference: Option<String>,
    /// The processors by number.
    pub cpus: Vec<u32>,
}

/// Merging of pages of the same content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ksm {
    /// Bytes of memory that it saves.
    pub saved_bytes: u64,
    /// Memory of the host in bytes.
    pub memory_bytes: u64,
    /// Seconds of a processor that its thread took since boot.
    pub run_seconds: u64,
    /// Seconds since boot.
    pub up_seconds: u64,
    /// Whether pages of several NUMA nodes become one.
    pub across_nodes: bool,
}

/// Where a host swaps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Swap {
    /// To compressed memory (zram) alone.
    Zram,
    /// To a disk or a file.
    Disk,
}
