//! What a guard does to a guest.

use schemars::JsonSchema;
use serde::Serialize;

use crate::policy::Direction;
use crate::rate::BitRate;

/// Limits of a guard on a guest's interface in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GuardRow {
    /// The interface on the host.
    pub interface: String,
    /// Its uplink.
    pub uplink: String,
    /// The direction, seen from the guest.
    pub direction: Direction,
    /// Its class.
    pub class: String,
    /// Its effective minimum.
    pub min_bps: BitRate,
    /// Its maximum.
    pub max_bps: BitRate,
    /// Its current limit; `None` without one of its own.
    pub limit_bps: Option<BitRate>,
    /// Where its excess waits: `held`, `queued`, `nic`, `none`.
    pub waits: Option<String>,
    /// Bytes waiting on the host.
    pub waiting_bytes: u64,
    /// Share of the interval in which it was held back: its packets waited or were dropped.
    pub held_ratio: Option<f64>,
    /// Packets a second dropped at its limit.
    pub drops_per_second: Option<f64>,
}
