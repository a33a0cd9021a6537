//! When a link is used up: an uplink near its speed or with drops, a guest's interface with drops.

use super::super::load::{Interval, Packets, UplinkLoad};
use super::super::rows::per_second;
use super::super::share::Actor;
use super::super::words::{bits, percent};
use super::{Culprit, Resource, Verdict, blame, culprits};
use crate::words::two;

/// Share of its speed from which an uplink is used up.
const FULL: f64 = 0.90;
/// The rule of `vmio scan` about packets for a guest that were dropped.
const REMEDY: &str = "guest-drops";
/// Least share of dropped packets, and least number a second.
const DROPPED: f64 = 0.01;
const DROPS: f64 = 5.0;

pub(super) fn verdicts(interval: &Interval) -> Vec<Verdict> {
    let sides = |u| [(u, true), (u, false)];
    let mut found: Vec<Verdict> =
        interval.uplinks.iter().flat_map(sides).filter_map(|(u, sends)| uplink(interval, u, sends)).collect();
    for guest in &interval.guests {
        for nic in &guest.nics {
            let to = drops(&nic.received, interval.seconds);
            let from = drops(&nic.sent, interval.seconds);
            found.extend(to.map(|words| {
                let name = &guest.name;
                let full = nic.queue_packets.map(|n| format!(", whose queue of {n} is full (vmio scan: {REMEDY})"));
                let full = full.unwrap_or_default();
                let line =
                    format!("guest {name} does not take its packets fast enough: {words} at {}{full}", nic.interface);
                interface(name, &nic.interface, words, line)
            }));
            found.extend(from.map(|words| {
                let line = format!("the host drops what guest {} sends: {words} at {}", guest.name, nic.interface);
                interface(&guest.name, &nic.interface, words, line)
            }));
        }
    }
    found
}

/// A verdict on an interface of a guest.
fn interface(guest: &str, name: &str, evidence: String, line: String) -> Verdict {
    Verdict { guests: vec![guest.to_owned()], ..Verdict::certain(Resource::Interface, name, evidence, line) }
}

/// Significant drops: `320 packets a second (4 %) dropped`.
fn drops(side: &Packets, seconds: f64) -> Option<String> {
    let rate = per_second(side.dropped as f64, seconds);
    let ratio = side.dropped as f64 / (side.packets + side.dropped).max(1) as f64;
    (rate >= DROPS && ratio >= DROPPED).then(|| format!("{} packets a second ({}) dropped", two(rate), percent(ratio)))
}

fn uplink(interval: &Interval, load: &UplinkLoad, sends: bool) -> Option<Verdict> {
    let s = interval.seconds;
    let side = if sends { &load.sent } else { &load.received };
    let rate = per_second(side.bytes as f64 * 8.0, s);
    let dropped = drops(side, s);
    let full = load.speed_bps.filter(|speed| rate >= speed.bits() as f64 * FULL);
    if full.is_none() && dropped.is_none() {
        return None;
    }
    let way = if sends { "sending" } else { "receiving" };
    let mut evidence = match full {
        Some(speed) => format!("{} of {} {way}", bits(rate), bits(speed.bits() as f64)),
        None => format!("{} {way}", bits(rate)),
    };
    if let Some(dropped) = dropped {
        evidence += &format!(", {dropped}");
    }
    // Guests also talk to each other, without the uplink: a share is of all their traffic.
    let mut parts: Vec<(Actor, f64)> = interval
        .guests
        .iter()
        .enumerate()
        .map(|(i, g)| {
            (Actor::Guest(i), g.nics.iter().map(|n| if sends { n.sent.bytes } else { n.received.bytes }).sum::<u64>())
        })
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(who, bytes)| (who, bytes as f64))
        .collect();
    let guests: f64 = parts.iter().map(|(_, bytes)| bytes).sum();
    let all = guests.max(side.bytes as f64);
    if all > guests {
        parts.push((Actor::Unknown, all - guests));
    }
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    // Drops alone do not fill the link. And guests that moved more than the link talk to each other: whose packets used
    // it is unknown.
    let by_uplink = guests <= side.bytes as f64;
    let culprits: Vec<Culprit> = if full.is_some() && by_uplink { culprits(interval, &parts, all) } else { Vec::new() };
    let line = match full {
        None => format!("uplink {} drops packets: {evidence}", load.name),
        Some(_) if !by_uplink => format!("uplink {} is saturated, by which guest is unknown: {evidence}", load.name),
        Some(_) => format!("uplink {} is saturated {}: {evidence}", load.name, blame(&culprits, "what was moved")),
    };
    Some(Verdict { culprits, ..Verdict::certain(Resource::Uplink, &load.name, evidence, line) })
}
