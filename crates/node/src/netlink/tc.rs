//! What tc(8) shows, from the kernel's own messages: qdiscs, classes and filters with what they limit. Pure; the requests
//! are here, too, and each only reads. (`tc -j` prints plain text for HTB, and JSON for policers only in later versions.)
//!
//! Layouts: `struct tcmsg` (include/uapi/linux/rtnetlink.h), include/uapi/linux/pkt_sched.h, pkt_cls.h, gen_stats.h,
//! tc_act/tc_mirred.h. A `struct tc_ratespec` has 12 bytes, its rate in bytes a second at 8; a time is in ticks of 64 ns
//! (PSCHED_SHIFT of include/net/pkt_sched.h).

use super::wire::{self, Attributes, Malformed, Message, Request, flag, u32_at, u64_at};

/// Asks for qdiscs.
pub const RTM_GETQDISC: u16 = 38;
/// Asks for classes.
pub const RTM_GETTCLASS: u16 = 42;
/// Asks for filters.
pub const RTM_GETTFILTER: u16 = 46;

/// Where an interface's own qdisc hangs (TC_H_ROOT).
pub const AT_ROOT: u32 = u32::MAX;
/// Where clsact and ingress hang (TC_H_INGRESS).
pub const AT_HOOKS: u32 = 0xffff_fff1;
/// Where the filters of an `ingress` qdisc hang: at its handle.
pub const AT_INGRESS: u32 = 0xffff_0000;
/// Where those of `clsact` hang, of what the interface receives (TC_H_MIN_INGRESS).
pub const AT_CLSACT_INGRESS: u32 = 0xffff_fff2;
/// And of what it sends (TC_H_MIN_EGRESS).
pub const AT_CLSACT_EGRESS: u32 = 0xffff_fff3;

/// Kind, as text.
pub const TCA_KIND: u16 = 1;
/// What is of the kind.
pub const TCA_OPTIONS: u16 = 2;
/// `struct tc_stats`.
pub const TCA_STATS: u16 = 3;

/// Bytes of `struct tcmsg`.
pub const TCMSG: usize = 20;

/// ETH_P_ALL, as it goes over the wire.
const EVERYTHING: u16 = 3u16.to_be();
/// The bits of a filter's handle in which cls_u32 numbers filters; the others number its tables.
const U32_NODE: u32 = 0xfff;
/// TC_ACT_SHOT: what is above is dropped.
const DROP: u32 = 2;
/// TCA_EGRESS_REDIR of tc_mirred.h.
const REDIRECT: u32 = 1;
/// Most actions of one filter (TCA_ACT_MAX_PRIO).
const MOST_ACTIONS: u16 = 32;

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// Bytes at once; `None` where the kind has none.
    pub burst_bytes: Option<u64>,
}

/// A qdisc.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Qdisc {
    /// Index of its interface.
    pub index: u32,
    /// Its handle; 0 of one that the kernel put there by itself.
    pub handle: u32,
    /// Where it hangs: [`AT_ROOT`], [`AT_HOOKS`], a class.
    pub parent: u32,
    /// `htb`, `tbf`, `ingress`, `clsact`, …
    pub kind: String,
    /// What it limits all of its packets to: of tbf, cake and netem.
    pub limit: Option<Limit>,
    /// What it limits each flow to: of fq (`maxrate`).
    pub flow_limit: Option<Limit>,
    /// The class of what no filter classifies, of htb and hfsc; 0: none.
    pub default_class: u32,
    /// Packets that it dropped.
    pub dropped: u64,
}

/// A class of htb or hfsc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Its number.
    pub handle: u32,
    /// Its parent's.
    pub parent: u32,
    /// The most that it sends for longer than a burst: its ceiling, of one of htb without a parent its rate; `None` of
    /// one of hfsc without an upper limit.
    pub limit: Option<Limit>,
    /// Packets that it dropped.
    pub dropped: u64,
}

/// Levels of htb (TC_HTB_MAXDEPTH); those of hfsc have no bound.
const LEVELS: usize = 8;

/// What a class lets through: its lowest ceiling and those of the classes above it.
pub fn least(all: &[Class], class: u32) -> Option<Limit> {
    let above = |class: &&Class| all.iter().find(|one| one.handle == class.parent);
    let first = all.iter().find(|one| one.handle == class);
    let way = std::iter::successors(first, above).take(LEVELS).filter_map(|one| one.limit);
    way.min_by_key(|limit| limit.bytes_per_second)
}

/// A filter with a policer or a redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Its preference.
    pub preference: u16,
    /// Whether it takes all packets; else some of them.
    pub whole: bool,
    /// What its policer lets through; what is above is dropped.
    pub police: Option<Limit>,
    /// Packets that the policer dropped.
    pub dropped: u64,
    /// Index of the interface that packets are led to.
    pub redirect: Option<u32>,
}

/// `struct tcmsg` of all qdiscs, classes or filters of an interface, or of one: its handle and where it hangs.
pub fn tcmsg(index: u32, handle: u32, parent: u32) -> [u8; TCMSG] {
    let mut bytes = [0; TCMSG];
    for (at, value) in [(4, index), (8, handle), (12, parent)] {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// Asks for all qdiscs of all interfaces.
pub fn all_qdiscs() -> Request {
    list(RTM_GETQDISC, 0, 0)
}

/// Asks for the classes of an interface.
pub fn classes_of(index: u32) -> Request {
    list(RTM_GETTCLASS, index, 0)
}

/// Asks for the filters of an interface that hang at `parent`.
pub fn filters_of(index: u32, parent: u32) -> Request {
    list(RTM_GETTFILTER, index, parent)
}

fn list(kind: u16, index: u32, parent: u32) -> Request {
    Request::new(kind, flag::DUMP, &tcmsg(index, 0, parent), Attributes::new())
}

/// A qdisc of a dump.
///
/// # Errors
/// When it does not hold together.
pub fn qdisc(message: &Message<'_>) -> Result<Qdisc, Malformed> {
    let (head, attributes, kind) = parts(message)?;
    let options = wire::find(&attributes, TCA_OPTIONS).unwrap_or_default();
    let handle = u32_at(head, 8).unwrap_or(0);
    let default = match kind.as_str() {
        "htb" => htb_default(options)?,
        // `struct tc_hfsc_qopt`: the number alone.
        "hfsc" => wire::u16_at(options, 0).unwrap_or(0).into(),
        _ => 0,
    };
    Ok(Qdisc {
        index: u32_at(head, 4).unwrap_or(0),
        handle,
        parent: u32_at(head, 12).unwrap_or(0),
        limit: match kind.as_str() {
            "tbf" => tbf(options)?,
            "cake" => cake(options)?,
            "netem" => netem(options)?,
            _ => None,
        },
        flow_limit: if kind == "fq" { fq(options)? } else { None },
        default_class: if default == 0 { 0 } else { handle | (default & 0xffff) },
        dropped: dropped(&attributes),
        kind,
    })
}

/// A class of a dump, of htb and hfsc alone.
///
/// # Errors
/// When it does not hold together.
pub fn class(message: &Message<'_>) -> Result<Option<Class>, Malformed> {
    let (head, attributes, kind) = parts(message)?;
    if !matches!(kind.as_str(), "htb" | "hfsc") {
        return Ok(None);
    }
    let options = wire::attributes(wire::find(&attributes, TCA_OPTIONS).unwrap_or_default())?;
    let is_root = u32_at(head, 12) == Some(AT_ROOT);
    let limit = if kind == "htb" { htb_most(&options, is_root) } else { hfsc_ceiling(&options) };
    Ok(Some(Class {
        handle: u32_at(head, 8).unwrap_or(0),
        parent: u32_at(head, 12).unwrap_or(0),
        limit,
        dropped: dropped(&attributes),
    }))
}

/// `struct tc_htb_opt`: two rates of 12 bytes, then `buffer` and `cbuffer`. A class borrows up to its ceiling from the
/// one above it, and one at the root from none (net/sched/sch_htb.c, `htb_activate_prios`): of `rate 8mbit ceil 80mbit`
/// there came 8.1 Mbit/s.
fn htb_most(options: &[(u16, &[u8])], is_root: bool) -> Option<Limit> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 6;
    const CEIL64: u16 = 7;
    let opt = wire::find(options, PARMS)?;
    let ceiling = limit(opt, 20, wire::find(options, CEIL64), Some(28))?;
    let rate = limit(opt, 8, wire::find(options, RATE64), Some(24)).filter(|_| is_root);
    Some(rate.filter(|rate| rate.bytes_per_second < ceiling.bytes_per_second).unwrap_or(ceiling))
}

/// `struct tc_service_curve` of TCA_HFSC_USC: the slope at first, for how long, and the slope from then on, in bytes a
/// second.
fn hfsc_ceiling(options: &[(u16, &[u8])]) -> Option<Limit> {
    const USC: u16 = 3;
    let rate = u32_at(wire::find(options, USC)?, 8)?;
    (rate > 0).then(|| Limit { bytes_per_second: rate.into(), burst_bytes: None })
}

/// A filter of a dump; `None` for one that neither drops nor redirects.
///
/// # Errors
/// When it does not hold together.
pub fn filter(message: &Message<'_>) -> Result<Option<Filter>, Malformed> {
    let (head, attributes, kind) = parts(message)?;
    let (handle, info) = (u32_at(head, 8).unwrap_or(0), u32_at(head, 16).unwrap_or(0));
    // The head of a row of filters, and a table of cls_u32, are no filters.
    if handle == 0 || (kind == "u32" && handle & U32_NODE == 0) {
        return Ok(None);
    }
    let options = wire::attributes(wire::find(&attributes, TCA_OPTIONS).unwrap_or_default())?;
    // TCA_U32_ACT and _POLICE, TCA_BASIC_…, TCA_MATCHALL_ACT, TCA_FLOWER_ACT, TCA_BPF_….
    let (actions, old, all) = match kind.as_str() {
        "u32" => (7, Some(6), takes_all_u32(&options)),
        "basic" => (3, Some(4), takes_all_basic(&options)?),
        "matchall" => (2, None, true),
        "flower" => (3, None, false),
        "bpf" => (1, Some(2), false),
        _ => return Ok(None),
    };
    let mut found = Filter {
        preference: (info >> 16) as u16,
        whole: all && (info & 0xffff) as u16 == EVERYTHING,
        police: None,
        dropped: 0,
        redirect: None,
    };
    let listed = wire::attributes(wire::find(&options, actions).unwrap_or_default())?;
    for (_, action) in listed.iter().filter(|(order, _)| (1..=MOST_ACTIONS).contains(order)) {
        act(&mut found, action)?;
    }
    // A policer that was written without `action`, as libvirt, Proxmox VE and LXD do: its options alone, and its counters
    // are the filter's (net/sched/cls_api.c, `tcf_exts_dump`; act_api.c, `tcf_action_copy_stats`).
    if let Some(old) = old.and_then(|old| wire::find(&options, old)) {
        found.police = police(&wire::attributes(old)?);
        found.dropped = dropped(&attributes);
    }
    Ok((found.police.is_some() || found.redirect.is_some()).then_some(found))
}

/// One action: TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_ACT_STATS.
fn act(found: &mut Filter, action: &[u8]) -> Result<(), Malformed> {
    const KIND: u16 = 1;
    const OPTIONS: u16 = 2;
    const STATS: u16 = 4;
    const MIRRED_PARMS: u16 = 2;
    const QUEUE: u16 = 3;
    let parts = wire::attributes(action)?;
    let options = wire::attributes(wire::find(&parts, OPTIONS).unwrap_or_default())?;
    match wire::find(&parts, KIND).map(wire::text).as_deref() {
        Some("police") => {
            found.police = police(&options);
            let stats = wire::attributes(wire::find(&parts, STATS).unwrap_or_default())?;
            // `struct gnet_stats_queue`: qlen, backlog, drops.
            found.dropped = wire::find(&stats, QUEUE).and_then(|queue| u32_at(queue, 8)).unwrap_or(0).into();
        }
        Some("mirred") => {
            // `struct tc_mirred`: five numbers of any action, what it does, the interface.
            let Some(mirred) = wire::find(&options, MIRRED_PARMS) else { return Ok(()) };
            if u32_at(mirred, 20) == Some(REDIRECT) {
                found.redirect = u32_at(mirred, 24);
            }
        }
        _ => {}
    }
    Ok(())
}

/// What a policer lets through, where it drops what is above. `struct tc_police`: index, action, limit, burst, mtu, then
/// two rates.
fn police(options: &[(u16, &[u8])]) -> Option<Limit> {
    const TBF: u16 = 1;
    const RATE64: u16 = 8;
    let police = wire::find(options, TBF)?;
    if u32_at(police, 4) != Some(DROP) {
        return None;
    }
    limit(police, 28, wire::find(options, RATE64), Some(12))
}

/// Head, attributes and kind of a message.
#[allow(clippy::type_complexity)]
fn parts<'a>(message: &Message<'a>) -> Result<(&'a [u8], Vec<(u16, &'a [u8])>, String), Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let attributes = wire::attributes(rest)?;
    let kind = wire::find(&attributes, TCA_KIND).map(wire::text).unwrap_or_default();
    Ok((head, attributes, kind))
}

/// A rate at an offset, or in 64 bits where that is too small, and a burst in ticks at that rate. `None` for no limit.
fn limit(bytes: &[u8], rate_at: usize, rate64: Option<&[u8]>, burst_at: Option<usize>) -> Option<Limit> {
    let small = u64::from(u32_at(bytes, rate_at)?);
    let rate = rate64.and_then(|rate| u64_at(rate, 0)).unwrap_or(0).max(small);
    let bytes_of = |ticks: u32| u64::try_from(u128::from(ticks) * 64 * u128::from(rate) / 1_000_000_000).ok();
    let burst_bytes = burst_at.and_then(|at| bytes_of(u32_at(bytes, at)?));
    (rate > 0).then_some(Limit { bytes_per_second: rate, burst_bytes })
}

/// `struct tc_tbf_qopt`: two rates, then limit, buffer, mtu.
fn tbf(options: &[u8]) -> Result<Option<Limit>, Malformed> {
    const PARMS: u16 = 1;
    const RATE64: u16 = 4;
    const BURST: u16 = 6;
    let options = wire::attributes(options)?;
    let Some(parms) = wire::find(&options, PARMS) else { return Ok(None) };
    let found = limit(parms, 8, wire::find(&options, RATE64), Some(28));
    let burst = wire::find(&options, BURST).and_then(|burst| u32_at(burst, 0)).map(u64::from);
    Ok(found.map(|found| Limit { burst_bytes: burst.or(found.burst_bytes), ..found }))
}

fn cake(options: &[u8]) -> Result<Option<Limit>, Malformed> {
    const BASE_RATE64: u16 = 2;
    let options = wire::attributes(options)?;
    let rate = wire::find(&options, BASE_RATE64).and_then(|rate| u64_at(rate, 0)).unwrap_or(0);
    Ok((rate > 0).then_some(Limit { bytes_per_second: rate, burst_bytes: None }))
}

/// `struct tc_netem_qopt` of six numbers, and attributes behind it.
fn netem(options: &[u8]) -> Result<Option<Limit>, Malformed> {
    const QOPT: usize = 24;
    const RATE: u16 = 6;
    const RATE64: u16 = 8;
    let options = wire::attributes(options.get(QOPT..).unwrap_or_default())?;
    Ok(wire::find(&options, RATE).and_then(|rate| limit(rate, 0, wire::find(&options, RATE64), None)))
}

/// What each flow gets, unless pacing is off (`nopacing`); all bits are no limit (net/sched/sch_fq.c, `fq_dump`).
fn fq(options: &[u8]) -> Result<Option<Limit>, Malformed> {
    const RATE_ENABLE: u16 = 5;
    const FLOW_MAX_RATE: u16 = 7;
    let options = wire::attributes(options)?;
    let number = |kind| wire::find(&options, kind).and_then(|number| u32_at(number, 0));
    let rate = number(FLOW_MAX_RATE).filter(|rate| *rate != u32::MAX && *rate > 0 && number(RATE_ENABLE) != Some(0));
    Ok(rate.map(|rate| Limit { bytes_per_second: rate.into(), burst_bytes: None }))
}

/// `struct tc_htb_glob`: version, rate2quantum, defcls.
fn htb_default(options: &[u8]) -> Result<u32, Malformed> {
    const INIT: u16 = 2;
    let options = wire::attributes(options)?;
    Ok(wire::find(&options, INIT).and_then(|glob| u32_at(glob, 8)).unwrap_or(0))
}

/// Drops of `struct tc_stats`: bytes, packets, drops.
fn dropped(attributes: &[(u16, &[u8])]) -> u64 {
    wire::find(attributes, TCA_STATS).and_then(|stats| u32_at(stats, 12)).unwrap_or(0).into()
}

/// Whether all masks of `struct tc_u32_sel` are 0: a head of 16 bytes with the number of its keys, and 16 bytes each.
fn takes_all_u32(options: &[(u16, &[u8])]) -> bool {
    const SEL: u16 = 5;
    const HEAD: usize = 16;
    const KEY: usize = 16;
    let Some(sel) = wire::find(options, SEL) else { return false };
    let keys = usize::from(sel.get(2).copied().unwrap_or(0));
    (0..keys).all(|key| u32_at(sel, HEAD + key * KEY) == Some(0))
}

/// Whether there is no extended match: the kernel tells their head even where there are none (net/sched/ematch.c,
/// `tcf_em_tree_dump`).
fn takes_all_basic(options: &[(u16, &[u8])]) -> Result<bool, Malformed> {
    const EMATCHES: u16 = 2;
    const TREE_HDR: u16 = 1;
    let Some(tree) = wire::find(options, EMATCHES) else { return Ok(true) };
    let tree = wire::attributes(tree)?;
    Ok(wire::find(&tree, TREE_HDR).and_then(|head| wire::u16_at(head, 0)).unwrap_or(0) == 0)
}

#[cfg(test)]
#[path = "tc_tests.rs"]
mod tests;
