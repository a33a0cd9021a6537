//! When processors are used up: the host's, a guest's own, or the one that a thread has.
//!
//! Steal as the host sees it: time in which a vCPU's thread could have run and waited for a
//! processor (run delay), as a share of the time in which it wanted to run.

use super::super::load::{GuestLoad, Interval};
use super::super::words::{list, percent};
use super::share::Actor;
use super::{Cost, Resource, Verdict, blame, culprits, told};

/// Steal above this is felt.
pub const STEAL: f64 = 0.10;
/// The host's processors count as busy from here.
const BUSY: f64 = 0.80;
/// With PSI alone: so much of the time some task waited.
const STALLED: f64 = 0.50;
/// A guest's virtual CPUs, or a thread, count as used up from here.
const FULL: f64 = 0.90;
/// A guest that wanted less than this share of one processor is not judged.
const LEAST: f64 = 0.05;
/// Names told in a line.
const NAMED: usize = 4;

pub(super) fn verdicts(interval: &Interval) -> Vec<Verdict> {
    let s = interval.seconds;
    let mut found = Vec::new();
    let host = host(interval);
    let saturated = host.is_some();
    found.extend(host);
    let waits = |g: &&GuestLoad| steal(g, s).is_some_and(|r| r > STEAL);
    if !saturated {
        let held: Vec<&GuestLoad> = interval.guests.iter().filter(waits).collect();
        found.extend(group(
            &held,
            Resource::GuestCpu,
            |g| steal(g, s),
            "waits for a processor",
            |names| {
                format!("guests {names} wait for processors though the host has free ones: see pinning and CPU limits")
            },
            "though the host has free ones: see its pinning and CPU limit",
        ));
    }
    let full: Vec<&GuestLoad> =
        interval.guests.iter().filter(|g| vcpu_ratio(g, s).is_some_and(|r| r >= FULL)).collect();
    found.extend(group(
        &full,
        Resource::GuestCpu,
        |g| vcpu_ratio(g, s),
        "uses",
        |names| format!("guests {names} use all of their virtual CPUs: what is slow in them needs more, or less work"),
        "of its virtual CPUs: what is slow in it needs more, or less work",
    ));
    found.extend(interval.guests.iter().filter_map(|g| thread(g, s)));
    found
}

fn steal(guest: &GuestLoad, seconds: f64) -> Option<f64> {
    let vcpu = guest.cpu.as_ref()?.vcpu;
    vcpu.wait_ratio().filter(|_| vcpu.run_seconds + vcpu.wait_seconds >= LEAST * seconds)
}

/// Part of the time in which its virtual CPUs wanted to run.
fn vcpu_ratio(guest: &GuestLoad, seconds: f64) -> Option<f64> {
    let cpu = guest.cpu.as_ref().filter(|c| c.vcpus > 0)?;
    Some((cpu.vcpu.run_seconds + cpu.vcpu.wait_seconds) / (f64::from(cpu.vcpus) * seconds))
}

fn host(interval: &Interval) -> Option<Verdict> {
    let (cpu, s) = (interval.host_cpu, interval.seconds);
    let there = f64::from(cpu.cpus) * s - cpu.stolen_seconds;
    if there <= 0.0 {
        return None;
    }
    let busy = (cpu.busy_seconds / there).min(1.0);
    let (mut ran, mut waited) = (0.0, 0.0);
    for vcpu in interval.guests.iter().filter_map(|g| g.cpu.as_ref()).map(|c| c.vcpu) {
        ran += vcpu.run_seconds;
        waited += vcpu.wait_seconds;
    }
    let steal = if ran + waited > LEAST * s { waited / (ran + waited) } else { 0.0 };
    let stalled = cpu.stalled_ratio.unwrap_or(0.0);
    if busy < BUSY || (steal <= STEAL && stalled < STALLED) {
        return None;
    }
    let mut evidence =
        format!("{} processors {} busy, virtual CPUs wait {} of their time", cpu.cpus, percent(busy), percent(steal));
    if let Some(ratio) = cpu.stalled_ratio {
        evidence += &format!(", some task waits {} of the time (PSI)", percent(ratio));
    }
    let mut parts: Vec<(Actor, f64)> = interval
        .guests
        .iter()
        .enumerate()
        .filter_map(|(i, g)| Some((Actor::Guest(i), g.cpu.as_ref()?.run_seconds())))
        .collect();
    let guests: f64 = parts.iter().map(|(_, ran)| ran).sum();
    let all = cpu.busy_seconds.max(guests);
    parts.push((Actor::Unknown, all - guests));
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let culprits = culprits(interval, &parts, all);
    let guilty = |g: &GuestLoad| culprits.iter().any(|c| c.guest.as_ref() == Some(&g.name));
    let mut costs: Vec<Cost> = interval
        .guests
        .iter()
        .filter(|g| !guilty(g))
        .filter_map(|g| {
            let ratio = self::steal(g, s).filter(|r| *r > STEAL)?;
            let words = format!("{} waits {} of its time for a processor", g.name, percent(ratio));
            Some(Cost { guest: g.name.clone(), steal_ratio: Some(ratio), words, ..Cost::default() })
        })
        .collect();
    costs.sort_by(|a, b| b.steal_ratio.unwrap_or(0.0).total_cmp(&a.steal_ratio.unwrap_or(0.0)));
    let said = if costs.is_empty() {
        let others = culprits.iter().any(|c| c.guest.is_some());
        if others { "no other guest waits much" } else { "no guest waits much" }.into()
    } else {
        told(&costs)
    };
    let line = format!("host CPU is saturated {}: {evidence}; {said}", blame(&culprits, "the work"));
    Some(Verdict { culprits, costs, ..Verdict::certain(Resource::HostCpu, "host", evidence, line) })
}

/// One line for a guest or, when there are many, for all of them.
fn group(
    guests: &[&GuestLoad],
    resource: Resource,
    ratio: impl Fn(&GuestLoad) -> Option<f64>,
    does: &str,
    many: impl Fn(&str) -> String,
    then: &str,
) -> Vec<Verdict> {
    if guests.len() > NAMED {
        let mut names: Vec<String> = guests.iter().take(NAMED).map(|g| g.name.clone()).collect();
        names.push(format!("{} more", guests.len() - NAMED));
        let line = many(&list(&names));
        return vec![Verdict::certain(resource, &list(&names), format!("{} guests", guests.len()), line)];
    }
    let one = |g: &&GuestLoad| {
        let evidence = format!("{does} {} of the time", percent(ratio(g).unwrap_or(0.0)));
        let line = match does {
            "uses" => format!("guest {} uses {} {then}", g.name, percent(ratio(g).unwrap_or(0.0))),
            _ => format!("guest {} {evidence} {then}", g.name),
        };
        Verdict::certain(resource, &g.name, evidence, line)
    };
    guests.iter().map(one).collect()
}

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
