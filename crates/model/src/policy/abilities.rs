//! Abilities of a plane, for which pools are compiled.

use serde::Serialize;

use crate::rate::BitRate;

/// Sharing of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// By itself, as a [`Hierarchy`](super::program::Hierarchy).
    Hierarchy,
    /// Not at all: it only sets limits.
    Limits,
}

/// Abilities of a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// Its name.
    pub plane: &'static str,
    /// How it shares.
    pub form: Form,
    /// It reserves idle minima.
    pub hard: bool,
    /// It gives capacity beyond maxima when all are met.
    pub over_max: bool,
    /// Its lowest rate.
    pub least_bps: BitRate,
    /// Its highest rate.
    pub most_bps: BitRate,
    /// Its rates are multiples of this.
    pub step_bps: BitRate,
    /// Largest packet in bytes: 65,536 where packets are segmented behind it.
    pub packet_bytes: u32,
    /// Most members of a pool.
    pub members: usize,
    /// It can limit received traffic.
    pub receive: bool,
    /// It can limit virtual functions in cards.
    pub card_rates: bool,
}

impl Abilities {
    /// Linux's HTB on an interface that segments behind the queue: 64-bit rates in bytes a second (`TCA_HTB_RATE64`),
    /// eight priorities. 8 kbit/s is the lowest rate that was tried. The kernel numbers classes in 16 bits; a class, its
    /// queue and the packets' mark of it have one number in common, of which 14,834 are free for members.
    pub const HTB: Abilities = Abilities {
        plane: "linux",
        form: Form::Hierarchy,
        hard: false,
        over_max: false,
        least_bps: BitRate::new(8_000),
        most_bps: BitRate::new(800_000_000_000),
        step_bps: BitRate::new(8),
        packet_bytes: 65_536,
        members: 14_834,
        receive: true,
        card_rates: true,
    };
}
