//! What the host's network did to a guest's packets, by the kernel's counters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Packets for a guest at its tap, since the tap was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToGuest {
    /// Packets that the guest took.
    pub packets: u64,
    /// Packets that were dropped.
    pub dropped_packets: u64,
    /// Packets that the tap's queue holds at most.
    pub queue_packets: Option<u64>,
}

/// The host's network card behind a guest's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Uplink {
    /// Its interface.
    pub name: String,
    /// Its driver in the kernel.
    pub driver: Option<String>,
    /// How many times it stopped sending and was reset.
    pub transmit_timeouts: Option<u64>,
    /// How many times its link was lost.
    pub link_losses: Option<u64>,
    /// Packets that it received.
    pub received_packets: Option<u64>,
    /// Packets that were lost in it, since the host did not take them.
    pub missed_packets: Option<u64>,
    /// Packets that its ring for receiving holds.
    pub ring_packets: Option<u32>,
    /// The most that this ring can hold.
    pub ring_most_packets: Option<u32>,
    /// Whether it cuts TCP's large packets (TSO).
    pub segmentation: Option<bool>,
    /// Seconds since the host was started.
    pub host_up_seconds: Option<u64>,
}

/// The host's table of tracked connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Conntrack {
    /// Connections in it.
    pub count: u64,
    /// Most connections.
    pub max: u64,
    /// Packets that were dropped for lack of room since the host was started, at least.
    pub dropped_packets: Option<u64>,
    /// Connections that had to go for new ones.
    pub evicted: Option<u64>,
    /// The guest with most of those that were looked at; `None` where nobody looked.
    pub busiest: Option<Busiest>,
}

/// A guest with many connections, by their source address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Busiest {
    /// Name of the guest.
    pub guest: String,
    /// Its connections among those that were looked at.
    pub connections: u64,
    /// How many were looked at.
    pub looked_at: u64,
}
