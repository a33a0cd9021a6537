//! A rate limit of a network device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::Direction;
use crate::rate::BitRate;

/// A rate limit of a network device that vmio did not set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateLimit {
    /// Direction, seen from the guest.
    pub direction: Direction,
    /// Its owner: `libvirt`, `proxmox`, `openvswitch`.
    pub by: String,
    /// Average rate, in bit/s.
    pub rate_bps: BitRate,
    /// Peak rate while capacity is free, in bit/s; null where it is not higher.
    pub peak_bps: Option<BitRate>,
    /// Burst, in bytes; null for a default.
    pub burst_bytes: Option<u64>,
    /// Whether excess is dropped (policing) instead of queued.
    pub drops: bool,
}

impl RateLimit {
    /// The highest rate for longer than a burst.
    pub fn most(&self) -> BitRate {
        self.peak_bps.map_or(self.rate_bps, |peak| peak.max(self.rate_bps))
    }
}
