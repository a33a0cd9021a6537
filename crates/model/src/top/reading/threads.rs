//! Processor time of a guest by its threads.

use super::super::load::{CpuLoad, ThreadLoad, ThreadTime};
use super::super::words::clean;
use super::{GuestReading, Part, ThreadReading};

/// CPU time of a guest between two readings; `None` where nothing is known of it.
pub(super) fn cpu_load(was: &GuestReading, now: &GuestReading, seconds: f64) -> Option<CpuLoad> {
    let group = now.group_run_ns.zip(was.group_run_ns).and_then(|(now, was)| now.checked_sub(was));
    if now.threads.is_empty() && group.is_none() {
        return None;
    }
    let mut load = CpuLoad::default();
    load.rest.run_seconds = group.unwrap_or(0) as f64 * 1e-9;
    let ran: Vec<(&ThreadReading, ThreadTime)> = now.threads.iter().map(|t| (t, time(was, t, seconds))).collect();
    let guessed = guessed(now, &ran);
    load.guessed = !guessed.is_empty();
    for (i, (thread, ran)) in ran.iter().enumerate() {
        match thread.part {
            _ if thread.part == Part::Vcpu || guessed.contains(&i) => {
                load.vcpus += 1;
                load.vcpu.add(*ran);
            }
            Part::Io | Part::Pool => load.io.add(*ran),
            _ => load.rest.add(*ran),
        }
        let most = |of: &Option<(String, f64)>| of.as_ref().map_or(0.0, |(_, seconds)| *seconds);
        if matches!(thread.part, Part::Io | Part::Main) && ran.run_seconds > most(&load.busiest) {
            load.busiest = Some((clean(&thread.name), ran.run_seconds));
        }
        let runnable = (ran.run_seconds + ran.wait_seconds).min(seconds);
        if matches!(thread.part, Part::Vcpu | Part::Rest) && runnable > most(&load.fullest) {
            let name = match thread.part {
                Part::Vcpu => clean(&thread.name),
                _ => format!("thread {}", thread.tid),
            };
            load.fullest = Some((name, runnable));
        }
    }
    // Where vCPU threads are unknown, one thread may run everything.
    load.busiest = load.busiest.filter(|_| load.vcpus > 0 && !load.guessed);
    Some(load)
}

/// The threads that must be vCPUs where none has a name: QEMU before 10.1 names them with `debug-threads=on` alone. As
/// many of the unknown ones as the guest has vCPUs, the busiest.
fn guessed(now: &GuestReading, ran: &[(&ThreadReading, ThreadTime)]) -> Vec<usize> {
    let Some(vcpus) = now.vcpus.filter(|_| ran.iter().all(|(t, _)| t.part != Part::Vcpu)) else { return Vec::new() };
    let mut unknown: Vec<usize> = (0..ran.len()).filter(|i| ran[*i].0.part == Part::Rest).collect();
    let wanted = |i: usize| ran[i].1.run_seconds + ran[i].1.wait_seconds;
    unknown.sort_by(|a, b| wanted(*b).total_cmp(&wanted(*a)));
    unknown.truncate(vcpus as usize);
    unknown
}

/// Time of a thread between two readings.
fn time(was: &GuestReading, now: &ThreadReading, seconds: f64) -> ThreadTime {
    let old = was.threads.iter().find(|t| t.tid == now.tid);
    // A new thread began in this interval, and its counters with it. A reused id has a smaller count, and began in it
    // too.
    let since = |old: Option<u64>, now: u64| {
        let passed = now.checked_sub(old.unwrap_or(0)).unwrap_or(now);
        (passed as f64 * 1e-9).min(seconds)
    };
    ThreadTime {
        run_seconds: since(old.map(|t| t.run_ns), now.run_ns),
        wait_seconds: since(old.map(|t| t.wait_ns), now.wait_ns),
    }
}

/// The threads of a guest that ran, the busiest first, at most `most`.
pub fn busiest(was: &GuestReading, now: &GuestReading, seconds: f64, most: usize) -> Vec<ThreadLoad> {
    let load = |t: &ThreadReading| ThreadLoad { tid: t.tid, name: clean(&t.name), time: time(was, t, seconds) };
    let mut all: Vec<ThreadLoad> = now.threads.iter().map(load).filter(|t| t.time.run_seconds > 0.0).collect();
    all.sort_by(|a, b| b.time.run_seconds.total_cmp(&a.time.run_seconds));
    all.truncate(most);
    all
}
