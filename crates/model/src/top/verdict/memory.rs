//! When memory is used up: the host reads back from swap what is needed again, or the tasks of a guest's control group
//! wait for memory (kernel document accounting/psi.rst).

use super::super::load::{GuestLoad, HostMemory, Interval};
use super::super::rows::per_second;
use super::super::words::{bytes, list};
use super::{Cost, Resource, Verdict, group};
use crate::words::two;

/// Share of the time from which waiting for memory is told.
pub const STALLED: f64 = 0.10;
/// Pages a second read back from swap, from which the host swaps: about what a spinning disk can do.
const READ_BACK: f64 = 100.0;
/// Least memory of a guest in swap that is told while the host reads from it.
pub const SWAPPED_BYTES: u64 = 64 << 20;
/// Most guests in a line.
const NAMED: usize = 3;

pub(super) fn verdicts(interval: &Interval) -> Vec<Verdict> {
    let mut found: Vec<Verdict> = swapping(interval).into_iter().collect();
    let stalled = |g: &GuestLoad| g.memory_stalled_ratio.filter(|ratio| *ratio >= STALLED);
    found.extend(group(
        Resource::GuestMemory,
        interval.guests.iter().filter_map(|g| Some((g, stalled(g)?))).collect(),
        |g, share| {
            let limit = g.memory.and_then(|m| m.limit);
            let of = limit.map(|l| format!(", with {} of its limit of {}", bytes(l.used_bytes), bytes(l.limit_bytes)));
            format!("waits for memory {share} of the time{}", of.unwrap_or_default())
        },
        "wait for memory",
        ": more memory, or less work there, ends that",
    ));
    found
}

/// Pages a second that the host reads back from its swap, where these are many.
pub fn read_back(interval: &Interval) -> Option<f64> {
    let pages = interval.host_memory.swapped_in_pages?;
    Some(per_second(pages as f64, interval.seconds)).filter(|read| *read >= READ_BACK)
}

/// What the host reads back from its swap, and whose memory is there.
fn swapping(interval: &Interval) -> Option<Verdict> {
    let HostMemory { swapped_out_pages, swapped_bytes, .. } = interval.host_memory;
    let read = read_back(interval)?;
    let written = swapped_out_pages.map_or(0.0, |pages| per_second(pages as f64, interval.seconds));
    let evidence = format!(
        "{} pages a second are read back, {} written, {} are there",
        two(read),
        two(written),
        bytes(swapped_bytes)
    );
    let mut there: Vec<(&GuestLoad, u64)> = interval
        .guests
        .iter()
        .filter_map(|g| Some((g, g.memory?.swapped_bytes.filter(|swapped| *swapped >= SWAPPED_BYTES)?)))
        .collect();
    there.sort_by_key(|(_, swapped)| std::cmp::Reverse(*swapped));
    let cost = |(guest, swapped): &(&GuestLoad, u64)| {
        let words = format!("guest {} has {} of its memory there", guest.name, bytes(*swapped));
        Cost { guest: guest.name.clone(), words, ..Cost::default() }
    };
    let costs: Vec<Cost> = there.iter().map(cost).collect();
    let mut said: Vec<String> = costs.iter().take(NAMED).map(|cost| cost.words.clone()).collect();
    match costs.len() {
        0 => said.push("no guest has much of its memory there".into()),
        n if n > NAMED => said.push(format!("{} more guests", n - NAMED)),
        _ => {}
    }
    let line = format!("the host swaps: {evidence}; {}", list(&said));
    Some(Verdict { costs, ..Verdict::certain(Resource::HostMemory, "host", evidence, line) })
}
