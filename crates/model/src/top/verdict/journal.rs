//! When guests wait in fsync on a file system that others write to: their fsyncs take much longer than the flushes of
//! the disk, and somebody else dirtied most of the pages that are written there.

use std::collections::BTreeMap;

use super::super::History;
use super::super::journal::{FLUSHES, Waited, Writer};
use super::super::load::{DeviceLoad, Interval, JournalLoad, JournalUser};
use super::super::share::Actor;
use super::super::words::{list, time};
use super::{Cost, Culprit, LEAST_SHARE, Resource, Verdict, about_the_same, blame, describe, flush};
use crate::words::two;

/// Least that was dirtied lately, in bytes: less delays nobody for long.
const DIRTIED: f64 = 4e6;
/// Least time of the longest fsync beyond the disk's own flushes: on a spinning disk one that is alone takes some
/// turns, for its data and for the record of the commit.
const LONG_SECONDS: f64 = 0.1;
/// Most that a victim dirtied itself, as part of what the culprits did: else it waits for its own data.
const OWN: f64 = 0.5;

/// Adds verdicts to those of disks. The line of a saturated disk that names the same users tells the waits, too.
pub(super) fn add(all: &mut Vec<Verdict>, interval: &Interval, history: &History) {
    for load in &interval.journals {
        let Some(found) = verdict(interval, load, history, all) else { continue };
        let below = |v: &Verdict| {
            let of = |d: &DeviceLoad| load.disks.contains(&d.device) && flush::saturated(d, std::slice::from_ref(v));
            interval.devices.iter().any(of)
        };
        let names = |v: &Verdict| found.culprits.iter().all(|c| v.culprits.iter().any(|other| other.who == c.who));
        match all.iter_mut().find(|v| below(v) && names(v)) {
            Some(disk) => {
                disk.line += &format!("; in fsync on {}: {}", load.name, describe(&found.costs));
                disk.costs.extend(found.costs);
            }
            None => all.push(found),
        }
    }
}

fn verdict(interval: &Interval, load: &JournalLoad, history: &History, disks: &[Verdict]) -> Option<Verdict> {
    let flush = load.flush_seconds(interval);
    let long = |w: &Waited| w.worst_seconds - FLUSHES * flush >= LONG_SECONDS;
    let waiting = load.users.iter().filter_map(|u| Some((u, u.waited(flush, interval.seconds).filter(long)?)));
    let mut waiting: Vec<(&JournalUser, Waited)> = waiting.collect();
    if waiting.is_empty() {
        return None;
    }
    let with_bytes = |writer: Writer| {
        let bytes = writer.bytes;
        (writer, bytes)
    };
    let parts: Vec<(Writer, f64)> = history.writers(load).into_iter().map(with_bytes).collect();
    let all: f64 = parts.iter().map(|(_, bytes)| bytes).sum();
    if all < DIRTIED {
        return None;
    }
    let guilty: Vec<&(Writer, f64)> =
        about_the_same(&parts, all).filter(|(_, bytes)| bytes / all >= LEAST_SHARE).collect();
    let filled: f64 = guilty.iter().map(|(_, bytes)| bytes).sum();
    let labels: Vec<&str> = guilty.iter().map(|(w, _)| w.label.as_str()).collect();
    let own: BTreeMap<&str, f64> = parts.iter().map(|(w, bytes)| (w.label.as_str(), *bytes)).collect();
    waiting.retain(|(u, _)| {
        let label = u.label();
        let dirtied = own.get(label.as_str()).copied().unwrap_or(0.0);
        !labels.contains(&label.as_str()) && dirtied < filled * OWN
    });
    // What the host's own processes do to each other is none of the guests'.
    let guests = guilty.iter().any(|(w, _)| w.guest.is_some()) || waiting.iter().any(|(u, _)| u.guest.is_some());
    if guilty.is_empty() || waiting.is_empty() || !guests {
        return None;
    }
    waiting.sort_by(|a, b| b.1.ratio.total_cmp(&a.1.ratio));
    let costs: Vec<Cost> = waiting.iter().map(|(u, waited)| cost(u, *waited)).collect();
    let culprits: Vec<Culprit> = guilty.iter().map(|(w, bytes)| culprit(interval, w, bytes / all)).collect();
    let name = &load.name;
    let flushes = if flush > 0.0 { format!(", a flush of the disk takes {}", time(flush)) } else { String::new() };
    let evidence = format!("{} MB of pages dirtied lately{flushes}", two(all / 1e6));
    let who: Vec<String> = guilty.iter().map(|(w, _)| w.label.clone()).collect();
    let line = format!(
        "fsync on {name} is slow while the page cache there is filled {}: {evidence}; {}; {}",
        blame(&culprits, "what was written there"),
        describe(&costs),
        remedy(interval, load, disks, &list(&who))
    );
    Some(Verdict { culprits, costs, ..Verdict::certain(Resource::Journal, name, evidence, line) })
}

fn culprit(interval: &Interval, writer: &Writer, share_ratio: f64) -> Culprit {
    let is_it = |i: &usize| {
        let guest = &interval.guests[*i];
        writer.guest.as_ref() == Some(&guest.name) && guest.pid == writer.pid
    };
    let actor = (0..interval.guests.len()).find(is_it).map_or(Actor::Unknown, Actor::Guest);
    Culprit { actor, who: writer.label.clone(), guest: writer.guest.clone(), pid: writer.pid, share_ratio }
}

fn cost(user: &JournalUser, waited: Waited) -> Cost {
    let guest = if user.guest.is_some() { user.name.clone() } else { user.label() };
    let words =
        format!("{guest} waits {} each time, {} at worst", time(waited.mean_seconds), time(waited.worst_seconds));
    Cost {
        guest,
        fsync_mean_seconds: Some(waited.mean_seconds),
        fsync_worst_seconds: Some(waited.worst_seconds),
        words,
        ..Cost::default()
    }
}

/// What to do. A volume on the same disk shares that disk.
fn remedy(interval: &Interval, load: &JournalLoad, disks: &[Verdict], who: &str) -> String {
    let below = interval.devices.iter().filter(|d| load.disks.contains(&d.device));
    let full =
        below.map(|d| &d.name).find(|name| disks.iter().any(|v| v.resource == Resource::Disk && v.name == **name));
    match full {
        Some(disk) => format!(
            "limit what {who} writes (disk {disk} is saturated, too), or give each a file system on a disk of its own"
        ),
        None => format!("give each a file system or volume of its own, or limit what {who} writes"),
    }
}
