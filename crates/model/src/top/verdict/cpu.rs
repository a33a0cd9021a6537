//! When processors are used up: the host's, a guest's own, its quota of them, or the one that a thread has.
//!
//! Steal as the host sees it: time in which a vCPU's thread was runnable and waited for a processor (run delay), as a
//! share of the time in which it was runnable.

use super::super::History;
use super::super::load::{GuestLoad, HostCpu, Interval};
use super::super::share::Actor;
use super::super::words::percent;
use super::{Cost, LEAST_WANTED, Resource, Verdict, blame, culprits, describe, group, held};

/// Steal from which a guest suffers.
pub const STEAL: f64 = 0.10;
/// Share from which the host's processors are busy.
const BUSY: f64 = 0.80;
/// PSI from which busy processors without steal are used up.
const STALLED: f64 = 0.50;
/// Share of its processors that this host's own hypervisor took, from which it is told.
const STOLEN: f64 = 0.10;
/// Share from which a guest's vCPUs, or a thread, are used up.
const FULL: f64 = 0.90;
/// Seconds of an interval below which full processors are told only when the last one had them, too: a single
/// processor is often full for that long.
const SHORT: f64 = 0.9;

pub(super) fn verdicts(interval: &Interval, history: &History) -> Vec<Verdict> {
    let s = interval.seconds;
    let mut found = Vec::new();
    let host = host(interval, history);
    let saturated = host.is_some();
    // What the line of the host says of a guest is not said again.
    let told: Vec<Actor> = host.iter().flat_map(|v| &v.culprits).map(|c| c.actor).collect();
    let all = interval.guests.iter().enumerate();
    let others = all.filter(|(i, g)| !told.contains(&Actor::Guest(*i)) && held(g).is_none());
    let others: Vec<&GuestLoad> = others.map(|(_, g)| g).collect();
    found.extend(host);
    found.extend(stolen(interval));
    let waits = |g: &&GuestLoad| held(g).is_none() && steal(g, s).is_some_and(|r| r > STEAL);
    found.extend(group(
        Resource::GuestCpu,
        interval.guests.iter().filter_map(|g| Some((g, held(g)?))).collect(),
        |_, share| format!("is held back by its CPU quota: throttled in {share} of its periods"),
        "are held back by their CPU quotas (throttled in so many of their periods)",
        "; a larger quota, or fewer threads at once, helps",
    ));
    if !saturated {
        let waiting = interval.guests.iter().filter(waits).filter_map(|g| Some((g, steal(g, s)?)));
        let though = interval
            .host_cpu
            .busy_ratio(s)
            .map_or(String::new(), |b| format!(" though the host's are {} busy", percent(b)));
        found.extend(group(
            Resource::GuestCpu,
            waiting.collect(),
            |_, share| format!("waits for a processor {share} of the time that it wants to run"),
            "wait for processors",
            &(though + ": see pinning and CPU limits, or short bursts of others"),
        ));
    }
    let full = |g: &GuestLoad| vcpu_ratio(g, s).filter(|r| *r >= FULL);
    let nameless = "its threads have no names; debug-threads=on gives them some";
    found.extend(group(
        Resource::GuestCpu,
        others.iter().copied().filter_map(|g| Some((g, full(g)?))).collect(),
        |g, share| {
            let guessed = g.cpu.as_ref().is_some_and(|c| c.guessed);
            let how = if guessed { format!(" ({nameless})") } else { String::new() };
            format!("uses {share} of its virtual CPUs{how}")
        },
        "use all of their virtual CPUs",
        ": what is slow there needs more of them, or less work",
    ));
    let one = |g: &GuestLoad| {
        let (_, ran) = g.cpu.as_ref()?.fullest.as_ref()?;
        Some(ran / s).filter(|r| *r >= FULL && full(g).is_none())
    };
    found.extend(group(
        Resource::GuestCpu,
        others.iter().copied().filter_map(|g| Some((g, one(g)?))).collect(),
        |g, share| {
            let name = g.cpu.as_ref().and_then(|c| c.fullest.as_ref()).map_or("a thread", |(name, _)| name.as_str());
            format!("keeps one processor full: {name} ({share})")
        },
        "keep a processor full each",
        "; what one virtual CPU does there is as fast as it gets",
    ));
    found.extend(interval.guests.iter().filter_map(|g| thread(g, s)));
    found
}

/// What the host's own hypervisor gave to others (`steal` of `/proc/stat`, proc_stat(5)).
fn stolen(interval: &Interval) -> Option<Verdict> {
    let HostCpu { cpus, stolen_seconds, .. } = interval.host_cpu;
    let all = f64::from(cpus) * interval.seconds;
    let ratio = (all > 0.0).then(|| (stolen_seconds / all).min(1.0)).filter(|r| *r >= STOLEN)?;
    let evidence = format!("{} of its processors' time", percent(ratio));
    let line = format!("this host is a virtual machine itself: its hypervisor takes {evidence} for others");
    Some(Verdict::certain(Resource::HostCpu, "host", evidence, line))
}

fn steal(guest: &GuestLoad, seconds: f64) -> Option<f64> {
    let vcpu = guest.cpu.as_ref()?.vcpu;
    vcpu.wait_ratio().filter(|_| vcpu.run_seconds + vcpu.wait_seconds >= LEAST_WANTED * seconds)
}

/// Share of the time in which its vCPUs were runnable.
fn vcpu_ratio(guest: &GuestLoad, seconds: f64) -> Option<f64> {
    let cpu = guest.cpu.as_ref().filter(|c| c.vcpus > 0)?;
    Some((cpu.vcpu.run_seconds + cpu.vcpu.wait_seconds) / (f64::from(cpu.vcpus) * seconds))
}

fn host(interval: &Interval, history: &History) -> Option<Verdict> {
    let (cpu, s) = (interval.host_cpu, interval.seconds);
    let busy = cpu.busy_ratio(s)?;
    let (mut ran, mut waited) = (0.0, 0.0);
    let free = interval.guests.iter().filter(|g| held(g).is_none());
    for vcpu in free.filter_map(|g| g.cpu.as_ref()).map(|c| c.vcpu) {
        ran += vcpu.run_seconds;
        waited += vcpu.wait_seconds;
    }
    let told = ran + waited > LEAST_WANTED * s;
    let steal = if told { waited / (ran + waited) } else { 0.0 };
    // Threads that a quota stopped count there, too: `throttle_cfs_rq` (Linux kernel/sched/fair.c) does not tell PSI.
    let stalled = cpu.stalled_ratio.filter(|_| interval.guests.iter().all(|g| held(g).is_none()));
    let waiting = steal > STEAL || stalled.is_some_and(|r| r >= STALLED);
    // As many busy threads as processors wait for nobody, and leave nothing for others.
    let full = busy >= HostCpu::FULL && (s >= SHORT || history.was_full());
    if !full && (busy < BUSY || !waiting) {
        return None;
    }
    let mut evidence = format!("{} processors {} busy", cpu.cpus, percent(busy));
    if told {
        evidence += &format!(", virtual CPUs wait {} of the time that they want to run", percent(steal));
    }
    if let Some(ratio) = cpu.stalled_ratio {
        evidence += &format!(", some task waits {} of the time (PSI)", percent(ratio));
    }
    let mut parts: Vec<(Actor, f64)> = interval
        .guests
        .iter()
        .enumerate()
        .filter_map(|(i, g)| Some((Actor::Guest(i), g.cpu.as_ref()?.run_seconds())))
        .collect();
    let processes = interval.processes.iter().flatten().enumerate();
    parts.extend(processes.map(|(i, p)| (Actor::Process(i), p.run_seconds)));
    let known: f64 = parts.iter().map(|(_, ran)| ran).sum();
    let all = cpu.busy_seconds.max(known);
    // Short-lived processes, interrupts, and processes that were not read. Where processes are known it is many small
    // ones, which count only if they are most of the work.
    let rest = all - known;
    if interval.processes.is_none() {
        parts.push((Actor::Unknown, rest));
    } else if rest > all / 2.0 {
        parts.push((Actor::ShortLived, rest));
    }
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let culprits = culprits(interval, &parts, all);
    let guilty = |i: usize| culprits.iter().any(|c| c.actor == Actor::Guest(i));
    let mut costs: Vec<Cost> = interval
        .guests
        .iter()
        .enumerate()
        .filter(|(i, g)| !guilty(*i) && held(g).is_none())
        .filter_map(|(_, g)| {
            let ratio = self::steal(g, s).filter(|r| *r > STEAL)?;
            let words = format!("{} waits {} of the time that it wants to run", g.name, percent(ratio));
            Some(Cost { guest: g.name.clone(), steal_ratio: Some(ratio), words, ..Cost::default() })
        })
        .collect();
    costs.sort_by(|a, b| b.steal_ratio.unwrap_or(0.0).total_cmp(&a.steal_ratio.unwrap_or(0.0)));
    let said = if costs.is_empty() && !waiting && cpu.stalled_ratio.is_some() {
        "nobody waits for a processor yet".into()
    } else if costs.is_empty() {
        let others = culprits.iter().any(|c| c.guest.is_some());
        if others { "no other guest waits much" } else { "no guest waits much" }.into()
    } else {
        describe(&costs)
    };
    let line = format!("host CPU is saturated {}: {evidence}; {said}", blame(&culprits, "the work"));
    Some(Verdict { culprits, costs, ..Verdict::certain(Resource::HostCpu, "host", evidence, line) })
}

/// A thread that moves its data alone. Other threads, and unknown ones, say nothing about I/O when they fill a
/// processor.
fn thread(guest: &GuestLoad, seconds: f64) -> Option<Verdict> {
    let (name, ran) = guest.cpu.as_ref()?.busiest.as_ref()?;
    let ratio = ran / seconds;
    if ratio < FULL {
        return None;
    }
    let evidence = format!("{} of a processor", percent(ratio));
    let line = format!("{name} of guest {} is at its limit: {evidence}; what it moves waits for it", guest.name);
    Some(Verdict::certain(Resource::GuestIo, &guest.name, evidence, line))
}
