//! Who gets how much of a pool: pure functions from a capacity, members and their demands to
//! rates. Two algorithms behind one signature: [`exact`](fn@exact), vmio's own, and [`dba`], the published
//! one (A. Amamou et al., *A Dynamic Bandwidth Allocator for Virtual Machines in a Cloud
//! Environment*, CCNC 2012, section V.A).
//!
//! All rates are whole bit/s, rounded down. What rounding leaves over (fewer bit/s than there are
//! members) stays unused: given to anybody it would make the result depend on the members' order.

pub mod dba;
mod exact;
pub mod incremental;
mod ladder;
mod level;
#[cfg(test)]
mod tests;

use crate::rate::BitRate;

pub use exact::exact;

/// One member of a pool: the contract that an interface has in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// 1 is served first, 8 last.
    pub priority: u8,
    /// Guaranteed. The *effective* minimum: all of a pool's together fit its capacity.
    pub min: BitRate,
    /// Not exceeded, unless `over_max`; at least `min`.
    pub max: BitRate,
    /// Its part of what is spare inside a priority, beside the others' weights; at least 1.
    pub weight: u32,
    /// An unused minimum is kept free, not lent.
    pub hard: bool,
    /// May use what is left when every maximum is met.
    pub over_max: bool,
}

impl Member {
    /// A member that wants `demand` is served up to here before anything goes beyond maxima.
    fn ceiling(&self, demand: Demand) -> BitRate {
        demand.up_to(self.max.max(self.min))
    }
}

/// What a member asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// So much.
    Rate(BitRate),
    /// All that it can get: it was held back, or had a backlog.
    Unbounded,
}

impl Demand {
    /// The smaller of the demand and `limit`.
    pub fn up_to(self, limit: BitRate) -> BitRate {
        match self {
            Demand::Rate(rate) => rate.min(limit),
            Demand::Unbounded => limit,
        }
    }
}

/// What a member gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// All that it gets: `guaranteed + spare`.
    pub rate: BitRate,
    /// The part that it is owed.
    pub guaranteed: BitRate,
    /// The part that others leave.
    pub spare: BitRate,
}

impl Grant {
    fn new(guaranteed: BitRate, spare: BitRate) -> Grant {
        Grant { rate: guaranteed + spare, guaranteed, spare }
    }
}

/// The limit for a plane that knows only limits: the granted rate, and never less than the effective
/// minimum, so that a member that wakes up, or a loop that died, breaks no guarantee.
pub fn cap(member: &Member, grant: &Grant) -> BitRate {
    grant.rate.max(member.min)
}
