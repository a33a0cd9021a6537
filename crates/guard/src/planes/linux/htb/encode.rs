//! Qdiscs and classes as netlink messages: `struct tcmsg` (include/uapi/linux/rtnetlink.h), HTB's and the size
//! table's structures (include/uapi/linux/pkt_sched.h).

use serde::Serialize;
use vmio_model::rate::ByteRate;

use super::super::netlink::wire::{self, Attributes, Malformed, u16_at, u32_at, u64_at};

pub use vmio_node::netlink::tc::tcmsg;
pub(super) use vmio_node::netlink::tc::{AT_HOOKS, AT_ROOT, RTM_GETTFILTER, TCA_OPTIONS, TCA_STATS};
pub(in super::super) use vmio_node::netlink::tc::{RTM_GETQDISC, RTM_GETTCLASS, TCA_KIND, TCMSG};

pub(super) const RTM_NEWQDISC: u16 = 36;
pub(super) const RTM_DELQDISC: u16 = 37;
pub(super) const RTM_NEWTCLASS: u16 = 40;
pub(super) const RTM_DELTCLASS: u16 = 41;

pub(super) const TCA_XSTATS: u16 = 4;
pub(in super::super) const TCA_STATS2: u16 = 7;
pub(super) const TCA_STAB: u16 = 8;

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;

const TCA_STAB_BASE: u16 = 1;

/// Bytes of `struct tc_htb_opt`.
const HTB_OPT: usize = 44;
/// TC_LINKLAYER_ETHERNET: the kernel counts by itself and wants no rate table.
const ETHERNET: u8 = 1;
/// HTB's version (TC_HTB_PROTOVER).
const VERSION: u32 = 3;
/// What divides a rate to get a quantum where none is given; each class of ours has one.
const RATE_TO_QUANTUM: u32 = 10;

/// Settings of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Class {
    /// Its own.
    pub rate: ByteRate,
    /// Not exceeded.
    pub ceil: ByteRate,
    /// Ticks of 64 ns at the rate.
    pub burst: u32,
    /// Ticks of 64 ns at the ceiling.
    pub cburst: u32,
    /// Bytes borrowed in one turn.
    pub quantum: u32,
    /// 0 first.
    pub prio: u32,
    /// What each packet counts beside itself.
    pub overhead: u16,
    /// What each packet counts at least, with that.
    pub mpu: u16,
}

/// `struct tc_ratespec`.
fn rate_spec(rate: ByteRate, overhead: u16, mpu: u16) -> Vec<u8> {
    let mut bytes = vec![0, ETHERNET];
    bytes.extend(overhead.to_ne_bytes());
    bytes.extend(0i16.to_ne_bytes());
    bytes.extend(mpu.to_ne_bytes());
    bytes.extend(u32::try_from(rate.bytes()).unwrap_or(u32::MAX).to_ne_bytes());
    bytes
}

/// A class's options. The 64-bit rates are given always; the kernel gives them back where 32 bits are too few.
pub(super) fn class(class: &Class) -> Attributes {
    let mut opt = rate_spec(class.rate, class.overhead, class.mpu);
    opt.extend(rate_spec(class.ceil, class.overhead, class.mpu));
    for value in [class.burst, class.cburst, class.quantum, 0, class.prio] {
        opt.extend(value.to_ne_bytes());
    }
    Attributes::new()
        .with(TCA_HTB_PARMS, &opt)
        .with_u64(TCA_HTB_RATE64, class.rate.bytes())
        .with_u64(TCA_HTB_CEIL64, class.ceil.bytes())
}

/// A class from its options.
pub(super) fn class_of(options: &[u8]) -> Result<Class, Malformed> {
    let attributes = wire::attributes(options)?;
    let opt = wire::find(&attributes, TCA_HTB_PARMS).ok_or_else(|| Malformed("has a class without values".into()))?;
    if opt.len() < HTB_OPT {
        return Err(Malformed(format!("has a class of {} bytes", opt.len())));
    }
    let (small, short) = (|at| u32_at(opt, at).unwrap_or(0), |at| u16_at(opt, at).unwrap_or(0));
    let large = |kind| wire::find(&attributes, kind).and_then(|p| u64_at(p, 0)).unwrap_or(0);
    Ok(Class {
        rate: ByteRate::new(u64::from(small(8)).max(large(TCA_HTB_RATE64))),
        ceil: ByteRate::new(u64::from(small(20)).max(large(TCA_HTB_CEIL64))),
        burst: small(24),
        cburst: small(28),
        quantum: small(32),
        prio: small(40),
        overhead: short(2).max(short(14)),
        mpu: short(6).max(short(18)),
    })
}

/// The qdisc's options.
pub(super) fn qdisc(default: u16) -> Attributes {
    let glob: Vec<u8> =
        [VERSION, RATE_TO_QUANTUM, u32::from(default), 0, 0].iter().flat_map(|v| v.to_ne_bytes()).collect();
    Attributes::new().with(TCA_HTB_INIT, &glob)
}

/// The default class from the qdisc's options.
pub(super) fn default_of(options: &[u8]) -> Result<u32, Malformed> {
    let attributes = wire::attributes(options)?;
    let glob = wire::find(&attributes, TCA_HTB_INIT).and_then(|glob| u32_at(glob, 8));
    glob.ok_or_else(|| Malformed("has an HTB qdisc without values".into()))
}

/// How many entries a size table has (`struct tc_sizespec`): the kernel gives its base alone.
pub(super) fn entries_of(stab: &[u8]) -> Result<u32, Malformed> {
    let attributes = wire::attributes(stab)?;
    let base = wire::find(&attributes, TCA_STAB_BASE).and_then(|base| u32_at(base, 20));
    base.ok_or_else(|| Malformed("has a size table without a base".into()))
}
