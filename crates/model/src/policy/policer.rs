//! Token buckets of maxima above which is dropped, as a plane is told.

use serde::Serialize;

use super::flow::FlowMatch;
use crate::rate::BitRate;

/// A token bucket: what finds it empty is dropped. A packet that is larger than the bucket passes when it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Policer {
    /// What passes in the long run.
    pub rate_bps: BitRate,
    /// What may pass at once.
    pub burst_bytes: u32,
}

/// The buckets of a member.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Policers {
    /// Of all its traffic.
    pub own: Option<Policer>,
    /// Its flow classes in the order in which they match, up to the last that has one, each with its packets.
    pub flows: Vec<(FlowMatch, Option<Policer>)>,
}
