//! What an operator should look at, and whether guarantees are kept.

use vmio_guard::manager::document::{GuestDocument, MemberDocument, PoolDocument, Status};
use vmio_guard::planes::observe;
use vmio_model::policy::Direction;

use super::delay;
use super::pools::{cut, long_time, shown};
use crate::report::format::{self, count};

/// By kind, the worst last.
pub fn all(status: &Status, state: &str) -> [(&'static str, Vec<String>); 9] {
    let policy = &status.policy;
    let waits = policy.taken_back_in_seconds;
    let waits = waits.map(|left| format!("this change reverts in {left:.0} s; to keep it: vmio guard confirm{state}"));
    let differ = || format!("the files have changed since; to put them in force: vmio guard apply{state}");
    let differ = policy.files_differ.then(differ);
    let refused = policy.refused.iter().map(|why| format!("the last change was refused: {why}"));
    [
        ("waits", waits.into_iter().collect()),
        ("files", differ.into_iter().chain(refused).collect()),
        ("spoofed", spoofed(status, state)),
        ("flooded", flooded(status, state)),
        ("limited", limited(status, state)),
        ("delay", late(status, state)),
        ("breach", breaches(status, state)),
        ("not in force", interrupted(status)),
        ("trouble", status.trouble.iter().cloned().collect()),
    ]
}

/// The answer, and whether it is a good one.
pub fn answer(status: &Status) -> (bool, String) {
    if status.plane == observe::NAME {
        return (true, "observing: nothing is limited".to_owned());
    }
    let pool = |pool: &PoolDocument| format!("{} {}", pool.uplink, pool.direction.word());
    let off: Vec<String> = status.pools.iter().filter(|pool| pool.not_in_force.is_some()).map(pool).collect();
    let except = except(status);
    let down: String = status.uplinks_down.iter().map(|uplink| format!("; {uplink} is down")).collect();
    let in_force = match (status.pools.is_empty(), off.is_empty()) {
        (true, _) => "no uplink is in force".to_owned(),
        (false, true) => format!("in force{except}{down}"),
        (false, false) => format!("not in force on {}", off.join(", ")),
    };
    let broken = members(status).filter(|(_, member)| member.breached_seconds.is_some()).count();
    let guarantees = match broken {
        0 => "no guarantee is broken now".to_owned(),
        1 => "1 guarantee is broken now".to_owned(),
        more => format!("{more} guarantees are broken now"),
    };
    let late = members(status).filter(|(_, m)| m.delay.as_ref().is_some_and(|d| d.missed_seconds.is_some())).count();
    let delays = match late {
        0 => String::new(),
        late => format!("; targets of delay missed by {}", count(late, "member")),
    };
    let is_flooded = members(status).any(|(_, member)| member.flooded_seconds.is_some());
    let flooded = if is_flooded { "; flooded: see above" } else { "" };
    let trouble = if status.trouble.is_some() { "; trouble: see above" } else { "" };
    let holds = off.is_empty() && except.is_empty() && down.is_empty();
    let good = holds && broken == 0 && late == 0 && status.trouble.is_none();
    (good, format!("{in_force}; {guarantees}{delays}{flooded}{trouble}"))
}

/// What is not in force although the uplinks are; empty for nothing.
pub fn except(status: &Status) -> String {
    let is_off = |guest: &&GuestDocument| guest.limits.iter().any(|limit| limit.value.is_none());
    match status.guests.iter().filter(is_off).count() {
        0 => String::new(),
        guests => format!(", except processors and memory of {}", count(guests, "guest")),
    }
}

/// All members, each with its pool.
fn members(status: &Status) -> impl Iterator<Item = (&PoolDocument, &MemberDocument)> {
    status.pools.iter().flat_map(|pool| pool.members.iter().map(move |member| (pool, member)))
}

/// Uplinks' directions of which nothing is in force now.
fn interrupted(status: &Status) -> Vec<String> {
    let line = |pool: &PoolDocument| {
        Some(format!("{} {}: {}", pool.uplink, pool.direction.word(), pool.not_in_force.as_ref()?))
    };
    status.pools.iter().filter_map(line).collect()
}

/// Members whose packets have claimed addresses of others.
fn spoofed(status: &Status, state: &str) -> Vec<String> {
    let sent = members(status).filter(|(pool, _)| pool.direction == Direction::GuestTx);
    let line = |(_, member): (&PoolDocument, &MemberDocument)| {
        (member.spoofed_packets_total > 0).then(|| {
            let (all, dropped) = (member.spoofed_packets_total, member.spoofed_dropped_packets_total);
            let packets = count(all as usize, "packet");
            let name = shown(member);
            format!("{name}: {packets} so far claimed addresses that are not its own, {dropped} of them dropped")
        })
    };
    cut(sent.filter_map(line).collect(), state)
}

/// Members whose minimum of receiving this host cannot hold now, since the link before it is full.
fn flooded(status: &Status, state: &str) -> Vec<String> {
    let line = |(pool, member): (&PoolDocument, &MemberDocument)| {
        Some(format!(
            "{} {} {}: receives {} of its minimum of {} while the link is full, for {} now: the loss happens before \
             this host, which cannot prevent it",
            pool.uplink,
            pool.direction.word(),
            shown(member),
            member.rate_bps.map_or_else(|| "less".to_owned(), format::rate),
            format::rate(member.min_effective_bps),
            long_time(member.flooded_seconds?)
        ))
    };
    cut(members(status).filter_map(line).collect(), state)
}

/// Members whose minimum another program's limit makes impossible.
fn limited(status: &Status, state: &str) -> Vec<String> {
    let line = |(pool, member): (&PoolDocument, &MemberDocument)| {
        let other = member.other_limit.as_ref().filter(|other| other.rate_bps < member.min_effective_bps)?;
        let (rate, min) = (format::rate(other.rate_bps), format::rate(member.min_effective_bps));
        let (uplink, way, name) = (&pool.uplink, pool.direction.word(), shown(member));
        let help = "what removes it: vmio guard check --host";
        Some(format!(
            "{uplink} {way} {name}: {} {rate} of another program is below the minimum of {min}; {help}",
            other.kind
        ))
    };
    cut(members(status).filter_map(line).collect(), state)
}

/// Members of which a target of delay or jitter is missed now.
fn late(status: &Status, state: &str) -> Vec<String> {
    let line = |(pool, member): (&PoolDocument, &MemberDocument)| {
        let long = long_time(member.delay.as_ref()?.missed_seconds?);
        let what = delay::figures(member).unwrap_or_else(|| "nothing passes".to_owned());
        Some(format!("{} {} {}: {what}; missed for {long} now", pool.uplink, pool.direction.word(), shown(member)))
    };
    cut(members(status).filter_map(line).collect(), state)
}

/// Members whose guarantee is not kept now.
fn breaches(status: &Status, state: &str) -> Vec<String> {
    let line = |(pool, member): (&PoolDocument, &MemberDocument)| {
        let (seconds, min) = (member.breached_seconds?, format::rate(member.min_effective_bps));
        let got = member.rate_bps.map_or_else(|| "less".to_owned(), format::rate);
        let what = match &pool.not_in_force {
            Some(_) => format!("nothing holds its minimum of {min}"),
            None => format!("gets {got} of the minimum of {min} that it needs"),
        };
        let long = if seconds > 0.0 { format!(", for {} now", long_time(seconds)) } else { String::new() };
        Some(format!("{} {} {}: {what}{long}", pool.uplink, pool.direction.word(), shown(member)))
    };
    cut(members(status).filter_map(line).collect(), state)
}
