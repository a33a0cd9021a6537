//! Allocation of a pool's capacity: pure functions from a capacity, members and their demands to rates. Two algorithms
//! with one signature: [`exact`](fn@exact), vmio's own, and [`dba`], the published one (A. Amamou et al., *A Dynamic
//! Bandwidth Allocator for Virtual Machines in a Cloud Environment*, CCNC 2012, section V.A).
//!
//! All rates are whole bit/s, rounded down. The remainder of rounding (fewer bit/s than there are members) stays
//! unused: giving it to a member would make the result depend on the members' order.

pub mod dba;
mod exact;
pub mod incremental;
mod ladder;
mod level;
#[cfg(test)]
mod tests;

use crate::rate::BitRate;

pub use exact::exact;

/// A member of a pool: an interface's contract in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// 1 is served first, 8 last.
    pub priority: u8,
    /// Guaranteed rate: the effective minimum. The minima of a pool fit its capacity.
    pub min: BitRate,
    /// Limit, unless `over_max`; at least `min`.
    pub max: BitRate,
    /// Weight in sharing spare capacity within a priority; at least 1.
    pub weight: u32,
    /// An unused minimum is reserved and not lent.
    pub hard: bool,
    /// May use capacity that is left when every maximum is met.
    pub over_max: bool,
}

impl Member {
    /// What a member with this demand gets before anything is given beyond maxima.
    fn ceiling(&self, demand: Demand) -> BitRate {
        demand.up_to(self.max.max(self.min))
    }
}

/// Demand of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// This rate.
    Rate(BitRate),
    /// As much as possible: it was held back, or had a backlog.
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

/// Allocation of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// The whole: `guaranteed + spare`.
    pub rate: BitRate,
    /// The guaranteed part.
    pub guaranteed: BitRate,
    /// The part lent by others or left over.
    pub spare: BitRate,
}

impl Grant {
    fn new(guaranteed: BitRate, spare: BitRate) -> Grant {
        Grant { rate: guaranteed + spare, guaranteed, spare }
    }
}

/// The limit for a plane that only sets limits: the granted rate, and at least the effective minimum, so that a member
/// that starts to send, or a loop that died, breaks no guarantee.
pub fn cap(member: &Member, grant: &Grant) -> BitRate {
    grant.rate.max(member.min)
}
