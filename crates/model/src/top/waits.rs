//! What each guest waits for most, and how near it is to a limit.

use super::journal::Waited;
use super::load::{GuestLoad, Interval, JournalLoad};
use super::rows::{GuestRow, Wait, WaitFor, per_second};
use super::verdict::{LEAST_WANTED, Resource, Verdict, flush, held, memory};
use super::words::{bytes, percent, time};

/// Least share of throttled periods that is told.
const THROTTLED: f64 = 0.05;
/// Steal from which a guest suffers.
const STEAL: f64 = 0.10;
/// Part of the present latency above the quiet one, from which a disk makes it wait.
const SLOWER: f64 = 0.25;
/// Least part of its requests' time in the host's queue, and least requests there at once.
const QUEUED: f64 = 0.25;
const QUEUED_DEPTH: f64 = 0.1;
/// Share of a processor from which a thread is at its limit.
const FULL: f64 = 0.90;
/// Least share of dropped packets, and least number a second.
const DROPPED: f64 = 0.01;
const DROPS: f64 = 5.0;
/// Least share of the time in which a guard holds it back.
const HELD: f64 = 0.05;

/// Fills in the loads and worst waits of an interval's guests, in its order.
pub fn fill(guests: &mut [GuestRow], interval: &Interval, verdicts: &[Verdict]) {
    let fsyncs = fsyncs(interval);
    for (i, (row, load)) in guests.iter_mut().zip(&interval.guests).enumerate() {
        let mut own = fsyncs.iter().filter(|(guest, _)| *guest == i).map(|(_, waited)| *waited);
        row.worst_wait = worst(row, load, interval, verdicts, &mut own);
        row.load_ratio = nearest(row, load, interval, verdicts);
    }
}

/// Adds what a guard says, which is asked later.
pub fn add_guard(row: &mut GuestRow) {
    let held = row.guard.iter().flatten().filter_map(|limit| limit.held_ratio).reduce(f64::max);
    let Some(ratio) = held else { return };
    row.load_ratio = Some(row.load_ratio.map_or(ratio, |load| load.max(ratio)));
    if ratio >= HELD && row.worst_wait.as_ref().is_none_or(|worst| worst.ratio < ratio) {
        row.worst_wait = Some(Wait { what: WaitFor::Guard, ratio, words: format!("held {}", percent(ratio)) });
    }
}

/// What guests waited in fsync.
fn fsyncs(interval: &Interval) -> Vec<(usize, Waited)> {
    let of = |load: &JournalLoad| {
        let flush = load.flush_seconds(interval);
        let waited = load.users.iter().filter_map(|u| Some((u.guest?, u.waited(flush, interval.seconds)?)));
        waited.collect::<Vec<_>>()
    };
    interval.journals.iter().flat_map(of).collect()
}

fn worst(
    row: &GuestRow,
    load: &GuestLoad,
    interval: &Interval,
    verdicts: &[Verdict],
    fsyncs: &mut dyn Iterator<Item = Waited>,
) -> Option<Wait> {
    let s = interval.seconds;
    let wait = |what, ratio, words| Wait { what, ratio, words };
    let quota = row.throttled_ratio.filter(|r| *r >= THROTTLED);
    let wanted = load.cpu.as_ref().map_or(0.0, |c| c.vcpu.run_seconds + c.vcpu.wait_seconds);
    let steal = row.steal_ratio.filter(|r| *r > STEAL && wanted >= LEAST_WANTED * s && held(load).is_none());
    let mut found = vec![
        quota.map(|r| wait(WaitFor::Quota, r, format!("quota {}", percent(r)))),
        steal.map(|r| wait(WaitFor::Processor, r, format!("cpu {}", percent(r)))),
        queue(row, load, s),
        thread(load, s),
        swap(row, interval).or_else(|| short(row)),
    ];
    found.extend(interval.devices.iter().filter(|device| !flush::saturated(device, verdicts)).map(|device| {
        let (ratio, each) = flush::waited(load, device, s)?;
        Some(wait(WaitFor::Flush, ratio, format!("flush {}", time(each).replace(' ', ""))))
    }));
    found.extend(verdicts.iter().filter(|v| v.resource == Resource::Disk).map(|v| disk(row, v)));
    found.extend(fsyncs.map(|waited| {
        let words = format!("fsync {}", time(waited.worst_seconds).replace(' ', ""));
        Some(wait(WaitFor::Fsync, waited.ratio.min(1.0), words))
    }));
    for nic in &load.nics {
        let sides = [(WaitFor::DropsReceived, "in", nic.received), (WaitFor::DropsSent, "out", nic.sent)];
        found.extend(sides.map(|(what, way, side)| {
            let rate = per_second(side.dropped as f64, s);
            let ratio = side.dropped as f64 / (side.packets + side.dropped).max(1) as f64;
            (rate >= DROPS && ratio >= DROPPED).then(|| wait(what, ratio, format!("drops {way} {rate:.0}/s")))
        }));
    }
    found.into_iter().flatten().max_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

/// What a saturated disk costs it.
fn disk(row: &GuestRow, verdict: &Verdict) -> Option<Wait> {
    let cost = verdict.costs.iter().find(|c| c.guest == row.name)?;
    let now = cost.latency_p99_seconds?;
    // Without a quiet moment it is not known how much of that is waiting.
    let ratio = cost.quiet_latency_p99_seconds.map_or(0.5, |quiet| 1.0 - quiet / now);
    (ratio >= SLOWER).then(|| Wait {
        what: WaitFor::Disk,
        ratio,
        words: format!("disk p99 {}", time(now).replace(' ', "")),
    })
}

fn queue(row: &GuestRow, load: &GuestLoad, seconds: f64) -> Option<Wait> {
    let sides = load.disks.iter().flat_map(|d| [&d.reads, &d.writes]);
    let queued: f64 = sides.filter_map(|t| t.queued_seconds).sum();
    let all = row.disk.queue_depth? * seconds;
    let ratio = if all > 0.0 { queued / all } else { 0.0 };
    (ratio >= QUEUED && per_second(queued, seconds) >= QUEUED_DEPTH).then(|| Wait {
        what: WaitFor::DiskQueue,
        ratio,
        words: format!("disk queue {}", percent(ratio)),
    })
}

fn thread(load: &GuestLoad, seconds: f64) -> Option<Wait> {
    let (name, ran) = load.cpu.as_ref()?.busiest.as_ref()?;
    let ratio = per_second(*ran, seconds);
    let words = if name.contains("main loop") { "main loop full" } else { "I/O thread full" };
    (ratio >= FULL).then(|| Wait { what: WaitFor::IoThread, ratio, words: words.into() })
}

fn swap(row: &GuestRow, interval: &Interval) -> Option<Wait> {
    let swapped = row.swapped_bytes.filter(|swapped| *swapped >= memory::SWAPPED_BYTES)?;
    memory::read_back(interval)?;
    let ratio = swapped as f64 / (swapped + row.memory_bytes.unwrap_or(0)) as f64;
    // What it waits for memory is the reading back.
    let ratio = row.memory_stalled_ratio.map_or(ratio, |stalled| ratio.max(stalled));
    Some(Wait { what: WaitFor::Swap, ratio, words: format!("swap {}", bytes(swapped)) })
}

/// Too little memory in its control group.
fn short(row: &GuestRow) -> Option<Wait> {
    let ratio = row.memory_stalled_ratio.filter(|ratio| *ratio >= memory::STALLED)?;
    Some(Wait { what: WaitFor::Memory, ratio, words: format!("memory {}", percent(ratio)) })
}

/// How much of the limit that it is nearest to it uses; `None` where nothing is known of it.
fn nearest(row: &GuestRow, load: &GuestLoad, interval: &Interval, verdicts: &[Verdict]) -> Option<f64> {
    // One that is slow to flush has no shares.
    let full_disk = verdicts.iter().any(|v| v.resource == Resource::Disk && v.basis.is_some());
    let waits = row.worst_wait.as_ref().filter(|wait| matches!(wait.what, WaitFor::Flush | WaitFor::Swap));
    let uplink = interval.uplinks.iter().filter_map(|u| u.speed_bps).map(|speed| speed.bits()).max();
    let rate = row.sent_bps.zip(row.received_bps).map(|(sent, received)| sent.max(received));
    let fullest = load.cpu.as_ref().and_then(|c| c.fullest.as_ref()).map(|(_, ran)| per_second(*ran, interval.seconds));
    let all = [
        row.cpu_of_guest_ratio.or(row.cpu_ratio.map(|ran| ran.min(1.0))),
        fullest,
        row.cpu_of_host_ratio,
        row.disk.device_share_ratio.filter(|_| full_disk),
        rate.zip(uplink.filter(|speed| *speed > 0)).map(|(rate, speed)| rate / speed as f64),
        row.throttled_ratio,
        waits.map(|wait| wait.ratio),
        // A page cache fills any limit: that is no load until somebody waits.
        row.memory_of_limit_ratio.filter(|_| row.memory_stalled_ratio.is_some_and(|r| r >= memory::STALLED)),
    ];
    all.into_iter().flatten().reduce(f64::max)
}
