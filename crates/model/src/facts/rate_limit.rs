//! A limit of what a network device may send or receive, as whoever set it means it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::Direction;
use crate::rate::BitRate;

/// What somebody else than vmio lets a network device send or receive at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateLimit {
    /// Which way, seen from the guest.
    pub direction: Direction,
    /// Who set it: `libvirt`, `proxmox`, `openvswitch`.
    pub by: String,
    /// What goes through in the long run, in bit/s.
    pub rate_bps: BitRate,
    /// What goes through where nobody else wants it, in bit/s; null where that is no more.
    pub peak_bps: Option<BitRate>,
    /// What goes through at once, in bytes; null where that is left to a default.
    pub burst_bytes: Option<u64>,
    /// Whether what is above it is dropped at once (a policer) instead of waiting in a queue.
    pub drops: bool,
}

impl RateLimit {
    /// The most that goes through for longer than a burst.
    pub fn most(&self) -> BitRate {
        self.peak_bps.map_or(self.rate_bps, |peak| peak.max(self.rate_bps))
    }
}
