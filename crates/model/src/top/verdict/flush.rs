//! When a disk is slow to flush: what a guest wrote is safe once the disk has written out its cache, and who commits
//! (fsync(2)) waits for that, however fast the writes themselves are.
//!
//! The kernel sends one flush at a time for all requests that wait for one (Linux block/blk-flush.c), and counts
//! flushes by disk (kernel document admin-guide/iostats.rst, from 5.5). A guest's writes that took about as long as a
//! flush waited for one.

use super::super::load::{Device, DeviceLoad, GuestLoad, Interval, Transfer};
use super::super::rows::{mean_flush, per_second};
use super::super::words::{number, percent, time};
use super::{Cost, Resource, Verdict, describe};
use crate::words::two;

/// Mean time of a flush from which it is slow: etcd wants 99 % of its commits within 10 ms (its FAQ, of
/// `wal_fsync_duration_seconds`).
const SLOW_SECONDS: f64 = 0.010;
/// Share of the time in which a flush is under way, from which it is told.
const UNDER_WAY: f64 = 0.25;
/// Part of a flush's time from which a write waited for one.
const WAITED: f64 = 0.5;
/// Share of the time from which a guest waits for flushes.
const WAITS: f64 = 0.10;

/// Verdicts, after those on disks and journals, which tell the flushes, too.
pub(super) fn verdicts(interval: &Interval, told: &[Verdict]) -> Vec<Verdict> {
    let journal = |load: &DeviceLoad| {
        let of = |v: &Verdict| interval.journals.iter().any(|j| j.name == v.name && j.disks.contains(&load.device));
        told.iter().any(|v| v.resource == Resource::Journal && of(v))
    };
    let other = |load: &&DeviceLoad| !saturated(load, told);
    let found = interval.devices.iter().filter(other).filter_map(|load| Some((load, verdict(interval, load)?)));
    found.filter(|(load, v)| !v.costs.is_empty() || !journal(load)).map(|(_, v)| v).collect()
}

/// Whether a disk is saturated: how long a write waits for a flush is not known then.
pub fn saturated(load: &DeviceLoad, verdicts: &[Verdict]) -> bool {
    let name = name(load);
    verdicts.iter().any(|v| v.resource == Resource::Disk && v.basis.is_some() && v.name == name)
}

fn name(load: &DeviceLoad) -> String {
    if load.name.is_empty() { number(load.device) } else { load.name.clone() }
}

fn verdict(interval: &Interval, load: &DeviceLoad) -> Option<Verdict> {
    let (s, name) = (interval.seconds, name(load));
    let (mean, share) = slow(load, s)?;
    let rate = two(per_second(load.flushes.requests as f64, s));
    let mut waits: Vec<(f64, &GuestLoad)> =
        interval.guests.iter().filter_map(|g| Some((waited(g, load, s)?.0, g))).collect();
    waits.sort_by(|a, b| b.0.total_cmp(&a.0));
    let cost = |(ratio, guest): (f64, &GuestLoad)| {
        let words = format!("{} waits for them {} of the time", guest.name, percent(ratio));
        Cost { guest: guest.name.clone(), words, ..Cost::default() }
    };
    let costs: Vec<Cost> = waits.into_iter().map(cost).collect();
    let evidence =
        format!("{rate} flushes a second take {} each, one is under way {} of the time", time(mean), percent(share));
    let said = if costs.is_empty() { "no guest is seen to wait for them".into() } else { describe(&costs) };
    let line = format!("disk {name} is slow to flush: {evidence}; {said}");
    Some(Verdict { costs, ..Verdict::certain(Resource::Disk, &name, evidence, line) })
}

/// The flushes of a saturated disk in words; empty where they are not slow.
pub(super) fn also(load: &DeviceLoad, seconds: f64) -> String {
    slow(load, seconds).map_or(String::new(), |(mean, _)| format!(", a flush takes {}", time(mean)))
}

/// Mean time of a disk's flushes, and the share of the time in which one is under way, where they are slow.
fn slow(load: &DeviceLoad, seconds: f64) -> Option<(f64, f64)> {
    let share = per_second(load.flushes.request_seconds, seconds).min(1.0);
    mean_flush(load).filter(|mean| *mean >= SLOW_SECONDS && share >= UNDER_WAY).map(|mean| (mean, share))
}

/// Share of the time in which a guest waits for slow flushes of a disk, and their mean time.
pub fn waited(guest: &GuestLoad, load: &DeviceLoad, seconds: f64) -> Option<(f64, f64)> {
    let (mean, share) = slow(load, seconds)?;
    let writes = writes(guest, load.device);
    let ratio = match &writes.latency {
        Some(latency) => per_second(latency.seconds_from(mean * WAITED), seconds).min(1.0),
        // Without times it may be that of others who write there, too.
        None if writes.any() => share,
        None => 0.0,
    };
    (ratio >= WAITS).then_some((ratio, mean))
}

fn writes(guest: &GuestLoad, device: Device) -> Transfer {
    let mut sum = Transfer::default();
    guest.disks.iter().filter(|d| d.device == Some(device)).for_each(|d| sum.add(&d.writes));
    sum
}
