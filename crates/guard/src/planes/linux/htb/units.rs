//! Rates, sizes and times in the kernel's units.
//!
//! How a value is rounded, so that what is read back must be equal:
//! - **rate, ceil**: whole bytes a second (`psched_ratecfg_precompute` of net/sched/sch_generic.c keeps them in 64 bits):
//!   bit/s divided by 8, rounded down, at least 1.
//! - **burst, cburst**: not bytes but the time in which the rate (the ceiling) gives them, in ticks of 64 ns
//!   (`PSCHED_SHIFT` of include/net/pkt_sched.h), 32 bits: rounded up, so that the bucket holds at least what was
//!   asked for; at most 2^32 - 1 ticks, 274 s.
//! - **quantum, prio, limit** of the queue, **overhead, mpu**: as they are. Framing is a class's, not the qdisc's (a size
//!   table): the kernel has added the headers of each segment of a packet that is cut later (`qdisc_pkt_len_init` of
//!   net/core/dev.c) before a class adds its overhead, and a size table would throw that away.
//! - A root class keeps the quantum and priority of its first moment and uses neither: they are not compared.

use vmio_model::policy::program::{Framing, Leaf};
use vmio_model::rate::{BitRate, ByteRate};

use super::super::{Error, Result};
use super::TICK_NS;
use super::encode::Class;

/// Priorities of HTB (TC_HTB_NUMPRIO).
const PRIORITIES: u8 = 8;

/// The class of a leaf, or of a flow class in one.
///
/// # Errors
/// Where it has senseless values.
pub(super) fn class(leaf: &Leaf, framing: Framing, named: &str) -> Result<Class> {
    let wrong = if leaf.rate_bps == BitRate::ZERO {
        "a rate of 0 is none for HTB: its least is 8 bit/s"
    } else if leaf.ceil_bps < leaf.rate_bps {
        "its ceiling is below its rate"
    } else if leaf.priority >= PRIORITIES {
        "priorities are 0 to 7"
    } else if leaf.burst_bytes == 0 || leaf.queue_bytes == 0 {
        "a burst or queue of 0 lets nothing pass"
    } else if leaf.quantum_bytes == 0 || i32::try_from(leaf.quantum_bytes).is_err() {
        "a quantum is 1 to 2147483647 bytes"
    } else {
        let (rate, ceil) = (bytes(leaf.rate_bps), bytes(leaf.ceil_bps));
        return Ok(Class {
            rate,
            ceil,
            burst: ticks(leaf.burst_bytes, rate),
            cburst: ticks(leaf.burst_bytes.max(leaf.policed_bytes), ceil),
            quantum: leaf.quantum_bytes,
            prio: u32::from(leaf.priority),
            overhead: short(framing.overhead_bytes),
            mpu: short(framing.least_bytes),
        });
    };
    Err(invalid(named, wrong))
}

/// As the kernel takes it; what is more is taken as its most.
pub(super) fn short(bytes: u32) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// As the kernel counts it, at least 1.
pub(super) fn bytes(rate: BitRate) -> ByteRate {
    rate.bytes().max(ByteRate::new(1))
}

/// Ticks in which a rate gives so many bytes.
pub(super) fn ticks(burst: u32, rate: ByteRate) -> u32 {
    let ticks = (u128::from(burst) * 1_000_000_000).div_ceil(u128::from(rate.bytes().max(1)) * TICK_NS);
    u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
}

/// What is asked for makes no sense.
pub(super) fn invalid(what: &str, why: &str) -> Error {
    Error::Invalid { what: what.to_owned(), why: why.to_owned() }
}
