//! What a plane can hold by itself: what pools are compiled for.

use serde::Serialize;

use crate::rate::BitRate;

/// How a plane shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// By itself, as a [`Hierarchy`](super::program::Hierarchy).
    Hierarchy,
    /// Not at all: it knows a limit a member.
    Limits,
}

/// What a plane can hold by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// Its name.
    pub plane: &'static str,
    /// How it shares.
    pub form: Form,
    /// It keeps an idle minimum free.
    pub hard: bool,
    /// It serves beyond maxima when all are met.
    pub over_max: bool,
    /// The lowest rate that it takes.
    pub least_bps: BitRate,
    /// The highest.
    pub most_bps: BitRate,
    /// Rates are whole multiples of this.
    pub step_bps: BitRate,
    /// The largest packet that it handles as one, in bytes: 65,536 where packets are segmented behind it.
    pub packet_bytes: u32,
    /// Most members of a pool.
    pub members: usize,
    /// It can limit what guests receive.
    pub receive: bool,
    /// It sets limits in cards whose virtual functions guests have.
    pub card_rates: bool,
}

impl Abilities {
    /// Linux' HTB on an interface that segments behind the queue: 64-bit rates in bytes a second
    /// (`TCA_HTB_RATE64`), eight priorities. 8 kbit/s is the least that was tried.
    pub const HTB: Abilities = Abilities {
        plane: "linux",
        form: Form::Hierarchy,
        hard: false,
        over_max: false,
        least_bps: BitRate::new(8_000),
        most_bps: BitRate::new(800_000_000_000),
        step_bps: BitRate::new(8),
        packet_bytes: 65_536,
        members: 10_000,
        receive: true,
        card_rates: true,
    };
}
