//! When a disk is used up.
//!
//! The time with any request in flight (iostat's %util) is no sign: a flash disk serves many at once and is at 100 %
//! long before it is full. A disk is used up when more requests only make all of them wait. Signs, each named in the
//! line:
//! - requests take at least [`SLOWER`] times as long as at this disk when little is asked of it (from
//!   [`History::quiet_seconds`]: this session, this direction, this request size), or those of one
//!   direction do ([`History::slowed`]), and at least [`DEEP`] are there at once (Little's law, from
//!   the sum of their times);
//! - or a large part of their time passes in the host's queue, because the disk takes no more.
//!
//! Without a quiet moment, [`FULL`] requests at once are reported as "may be".

use super::super::History;
use super::super::latency::BUCKET_ERROR;
use super::super::load::{Device, DeviceLoad, GuestLoad, Interval, Transfer};
use super::super::rows::{per_second, totals};
use super::super::share::{self, Actor, Basis, Identity};
use super::super::words::{number, percent, time};
use super::{Cost, Culprit, Resource, Verdict, blame, culprits, describe, flush};
use crate::words::{count, two};

/// Factor over the quiet latency from which requests wait.
const SLOWER: f64 = 2.0;
/// Requests at once below which none waits for another.
const DEEP: f64 = 2.0;
/// Requests at once from which a disk of unknown speed may be used up.
pub const FULL: f64 = 4.0;
/// Share of the requests' time in the host's queue from which the disk is full.
pub const QUEUED: f64 = 0.25;

pub(super) fn verdicts(interval: &Interval, history: &History) -> Vec<Verdict> {
    let mut found: Vec<(f64, Verdict)> = interval
        .devices
        .iter()
        .filter_map(|load| {
            let (certain, evidence, depth) = signs(interval, load, history)?;
            let evidence = evidence + &flush::also(load, interval.seconds);
            Some((depth, verdict(interval, load, history, certain, evidence)))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, verdict)| verdict).collect()
}

/// Whether it is certain, the evidence, and the depth; `None` when the disk is not used up.
fn signs(interval: &Interval, load: &DeviceLoad, history: &History) -> Option<(bool, String, f64)> {
    let (requests, spent) = totals(load);
    let depth = per_second(spent, interval.seconds);
    if requests == 0 || depth < DEEP {
        return None;
    }
    let each = spent / requests as f64;
    let at_once = format!("{} requests at once, {} each", two(depth), time(each));
    let queued = queued(interval, load.device).filter(|(ratio, at_device)| {
        // A scheduler or limit that holds requests back from an idle disk does not make it full.
        *ratio >= QUEUED && *at_device >= 1.0
    });
    let quiet = history.quiet_seconds(load);
    let slower = match quiet {
        Some(quiet) if each >= quiet * SLOWER => Some(format!(", {} in quiet moments", time(quiet))),
        // One direction waits, though most requests have a size not seen before.
        Some(_) => history
            .slowed(load, SLOWER)
            .map(|(side, now, quiet)| format!("; {side} take {}, {} in quiet moments", time(now), time(quiet))),
        None => None,
    };
    let waits = queued.map(|(ratio, _)| format!(", {} of that in the host's queue", percent(ratio)));
    if slower.is_some() || waits.is_some() {
        return Some((true, at_once + &slower.unwrap_or_default() + &waits.unwrap_or_default(), depth));
    }
    let unknown = quiet.is_none() && depth >= FULL;
    unknown.then(|| (false, at_once + "; no quiet moment was seen yet to compare with", depth))
}

/// Share of the requests' time in the host's queue, and their number at the disk itself.
fn queued(interval: &Interval, device: Device) -> Option<(f64, f64)> {
    let all = interval.guests.iter().map(|g| &g.disks).chain(interval.others.iter().map(|o| &o.disks)).flatten();
    let (mut waited, mut served) = (0.0, 0.0);
    for side in all.filter(|d| d.device == Some(device)).flat_map(|d| [&d.reads, &d.writes]).filter(|t| t.any()) {
        waited += side.queued_seconds?;
        served += side.device_seconds?;
    }
    let sum = waited + served;
    (interval.traced && sum > 0.0).then(|| (waited / sum, per_second(served, interval.seconds)))
}

fn verdict(interval: &Interval, load: &DeviceLoad, history: &History, certain: bool, evidence: String) -> Verdict {
    let basis = share::basis(interval, Some(load.device));
    let parts = share::parts(interval, Some(load.device), basis);
    let all: f64 = parts.iter().map(|(_, part)| part).sum();
    let culprits = culprits(interval, &parts, all);
    let neighbours: Vec<usize> = parts
        .iter()
        .filter_map(|(who, _)| match who {
            Actor::Guest(i) if culprits.iter().all(|c| c.actor != *who) => Some(*i),
            _ => None,
        })
        .collect();
    let mut costs: Vec<Cost> =
        neighbours.iter().filter_map(|i| cost(interval, *i, load.device, &culprits, history)).collect();
    costs.sort_by(|a, b| factor(b).total_cmp(&factor(a)));
    let costs_said =
        if costs.is_empty() { without_costs(interval, &culprits, neighbours.len()) } else { describe(&costs) };
    let costs_said = costs_said + &could_be(interval, &culprits, basis);
    let name = if load.name.is_empty() { number(load.device) } else { load.name.clone() };
    let state = if certain { "is saturated" } else { "may be saturated" };
    let line = format!("disk {name} {state} {}: {evidence}; {costs_said}", blame(&culprits, basis.words()));
    let (resource, basis, guests) = (Resource::Disk, Some(basis), Vec::new());
    Verdict { resource, name, certain, culprits, basis, evidence, costs, line, guests }
}

/// The factor of a slowdown, where it exceeds the error of two percentiles of buckets.
fn slower(now: f64, quiet: f64) -> Option<f64> {
    (quiet > 0.0 && now > quiet * (1.0 + BUCKET_ERROR)).then(|| now / quiet)
}

/// Severity of a cost, for sorting: the factor of the slowdown, then latencies without a factor, then costs without a
/// slowdown.
fn factor(cost: &Cost) -> f64 {
    let now = cost.latency_p99_seconds.unwrap_or(0.0);
    match cost.quiet_latency_p99_seconds {
        Some(quiet) => slower(now, quiet).map_or(-1.0, |times| 1e6 + times),
        None => now,
    }
}

fn on(guest: &GuestLoad, device: Device) -> Transfer {
    let mut sum = Transfer::default();
    guest.disks.iter().filter(|d| d.device == Some(device)).for_each(|d| sum.add(&d.both()));
    sum
}

fn cost(interval: &Interval, i: usize, device: Device, culprits: &[Culprit], history: &History) -> Option<Cost> {
    let guest = &interval.guests[i];
    let now = on(guest, device).latency?.p99_seconds()?;
    let hogs: Vec<Identity> = culprits.iter().map(|c| c.actor.identity(interval)).collect();
    let quiet = history.without(device, &Actor::Guest(i).identity(interval), &hogs).p99_seconds();
    let they = if hogs.len() == 1 { "that one was" } else { "those were" };
    let words = match quiet.map(|quiet| (quiet, slower(now, quiet))) {
        Some((quiet, Some(times))) => {
            format!("{} p99 {}, {} while {they} quiet ({}x)", guest.name, time(now), time(quiet), two(times))
        }
        Some((quiet, None)) => {
            format!("{} p99 {}, no worse than while {they} quiet ({})", guest.name, time(now), time(quiet))
        }
        None => format!("{} p99 {} (no quieter moment seen yet)", guest.name, time(now)),
    };
    let latency_p99_seconds = Some(now);
    Some(Cost {
        guest: guest.name.clone(),
        latency_p99_seconds,
        quiet_latency_p99_seconds: quiet,
        words,
        ..Cost::default()
    })
}

/// Users that may be behind unknown traffic: guests with bytes on unknown disks.
fn could_be(interval: &Interval, culprits: &[Culprit], basis: Basis) -> String {
    let known = culprits.iter().all(|c| c.guest.is_some());
    match share::unplaced(interval).first() {
        Some((most, _)) if basis == Basis::Bytes && !known => {
            format!("; could be guest {}, whose disks are unknown", interval.guests[*most].name)
        }
        _ => String::new(),
    }
}

fn without_costs(interval: &Interval, culprits: &[Culprit], neighbours: usize) -> String {
    let guests = culprits.iter().filter(|c| c.guest.is_some()).count();
    let known = interval.traced;
    match neighbours {
        0 if guests > 0 => "no other guest used it".into(),
        0 => "no guest used it".into(),
        n if known => format!("{} did too little to show what it costs", count(n, "other guest")),
        _ => "the cost to others is unknown without tracing".into(),
    }
}
