//! The limits of each guest by the guard of this host, which is asked at its socket. Without a guard these columns are
//! left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use vmio_guard::api::client::{Client, ClientError};
use vmio_guard::manager::document::{MemberDocument, PoolDocument, Status};
use vmio_model::policy::pool::called;
use vmio_model::top::load::Interval;
use vmio_model::top::rows::{GuardRow, GuestRow};

/// How long an answer may take, since the screen waits for it.
const LIMIT: Duration = Duration::from_secs(1);
/// How long a guard that did not answer is not asked again.
const AGAIN: Duration = Duration::from_secs(30);

/// The counters of a member.
#[derive(Debug, Clone, Copy)]
struct MemberCounters {
    held_seconds: f64,
    dropped: u64,
}

/// Counters by uplink, direction and member.
type Counts = BTreeMap<(String, &'static str, String), MemberCounters>;

/// A guard that is asked at each interval.
pub struct Guard {
    client: Client,
    last: Option<(Instant, Counts)>,
    /// When it failed, and how.
    failed: Option<(Instant, String)>,
}

impl Guard {
    /// The guard of that socket, if one listens.
    pub fn at(socket: &Path) -> Guard {
        Guard { client: Client::at(socket).within(LIMIT), last: None, failed: None }
    }

    /// Adds its limits to each guest; the guests are those of the interval, in its order. Returns a note where a guard
    /// runs and cannot be asked.
    pub fn ask(&mut self, interval: &Interval, guests: &mut [GuestRow]) -> Option<String> {
        if let Some((_, why)) = self.failed.as_ref().filter(|(at, _)| at.elapsed() < AGAIN) {
            return Some(why.clone());
        }
        let asked = self.client.get::<Status>("/v1/status");
        self.failed = None;
        match asked {
            Ok(status) => {
                self.last = Some(beside(&status, self.last.take(), interval, guests));
                None
            }
            Err(ClientError::Nobody(_)) => {
                self.last = None;
                None
            }
            Err(error) => {
                let why = format!("limits of guests are not shown: {error}");
                self.failed = Some((Instant::now(), why.clone()));
                Some(why)
            }
        }
    }
}

/// Adds the guard's figures to each guest; returns its counters.
fn beside(
    status: &Status,
    last: Option<(Instant, Counts)>,
    interval: &Interval,
    guests: &mut [GuestRow],
) -> (Instant, Counts) {
    let now = Instant::now();
    let mut counts = Counts::new();
    let mut members: BTreeMap<&str, Vec<GuardRow>> = BTreeMap::new();
    for (pool, member) in status.pools.iter().flat_map(|pool| pool.members.iter().map(move |member| (pool, member))) {
        let key = (pool.uplink.clone(), pool.direction.word(), member.name.clone());
        let counted = MemberCounters { held_seconds: member.held_seconds_total, dropped: member.dropped_packets_total };
        let since = last.as_ref().and_then(|(at, all)| Some((now.duration_since(*at).as_secs_f64(), *all.get(&key)?)));
        members.entry(&member.name).or_default().push(row(pool, member, since));
        counts.insert(key, counted);
    }
    for (guest, load) in guests.iter_mut().zip(&interval.guests) {
        let of = load.nics.iter().filter_map(|nic| {
            let mut rows = members.get(&*called(&nic.interface))?.clone();
            rows.iter_mut().for_each(|row| row.interface.clone_from(&nic.interface));
            Some(rows)
        });
        guest.guard = Some(of.flatten().collect());
    }
    (now, counts)
}

fn row(pool: &PoolDocument, member: &MemberDocument, since: Option<(f64, MemberCounters)>) -> GuardRow {
    let since = since.filter(|(seconds, _)| *seconds > 0.0);
    GuardRow {
        interface: member.name.clone(),
        uplink: pool.uplink.clone(),
        direction: pool.direction,
        class: member.class.clone(),
        min_bps: member.min_effective_bps,
        max_bps: member.max_bps,
        limit_bps: member.limit_bps,
        waits: member.excess.as_ref().map(|excess| excess.waits.clone()),
        waiting_bytes: member.waiting_bytes,
        // The guard counts whole seconds, so time before this interval may be in it.
        held_ratio: since
            .map(|(seconds, before)| ((member.held_seconds_total - before.held_seconds) / seconds).clamp(0.0, 1.0)),
        drops_per_second: since.and_then(|(seconds, before)| {
            Some(member.dropped_packets_total.checked_sub(before.dropped)? as f64 / seconds)
        }),
    }
}

#[cfg(test)]
mod tests;
