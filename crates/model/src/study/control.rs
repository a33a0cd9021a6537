//! Control cells, whose requests are those that reached the disk from a guest.
//!
//! A guest whose requests arrive smaller than its baseline's loses for two reasons that the share cannot distinguish:
//! small requests are slow on any disk, and virtualisation costs. shafer2010 (section 3.3) distinguishes them by
//! running natively at the guest's request size. Here a chain from the baseline to the guest changes one thing at each
//! link:
//! ```text
//! the workload natively
//!   reference  fio, native, direct, what reached the disk of it  -> what its program does
//!   size       the same at the guest's request size              -> what small requests cost
//!   depth      the same at the guest's queue depth               -> what a shallow queue costs
//!   guest      the very same job in the guest                    -> what virtualisation costs
//! the workload in the guest                                      -> what its program does there
//! ```
//!
//! Its ends are the guest cell's baseline and the guest cell, so the product of the links is the guest's share
//! ([`crate::summary::explain`]).
//!
//! The cells follow from the samples of round 0 alone, so a resumed run has the same. They run from round 1 on, next to
//! the cells that they explain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Study;
use crate::cell::Cell;
use crate::read_at::{LOGICAL_BLOCK_BYTES, ReadAt};
use crate::result::Sample;

/// Workloads for which guests get control cells (`[control]`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controlled {
    /// Entries of `workloads/`, all of them in the matrix.
    pub workloads: Vec<String>,
}

/// What a control cell has in common with the guest, in addition to the links before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// Nothing: request size and depth are the native baseline's.
    Reference,
    /// The request size.
    Size,
    /// Request size and queue depth.
    Depth,
    /// All: the guest runs the job of the last native link.
    Guest,
}

/// A cell that explains a guest cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// The guest cell.
    pub of: Cell,
    /// The control cell: native, or as the last link in the guest itself.
    pub cell: Cell,
    /// Its place in the chain.
    pub link: Link,
    /// Request size in bytes.
    pub request_bytes: u64,
    /// Queue depth.
    pub depth: u32,
    /// The reason, in a sentence with figures.
    pub why: String,
}

/// Below this share of the baseline's size a guest's requests count as smaller.
const SMALLER: f64 = 0.8;
/// Logical block size where a target's is not known.
const SECTOR: u64 = 512;
/// Largest request of a control cell: the limit of workloads made from their names.
const MOST_BYTES: u64 = 4 << 20;
/// Most bytes in flight, for the same reason.
const MOST_IN_FLIGHT: u64 = 64 << 20;
/// Greatest depth, for the same reason.
const MOST_DEPTH: u64 = 1024;

/// Logical block sizes by target: `logical_block_bytes` of [`crate::run::Run::effective`].
pub fn logical_blocks(effective: &BTreeMap<String, BTreeMap<String, String>>) -> BTreeMap<String, u64> {
    let block = |settings: &BTreeMap<String, String>| settings.get(LOGICAL_BLOCK_BYTES)?.parse().ok();
    let targets = effective.iter().filter_map(|(key, settings)| match ReadAt::of(key) {
        ReadAt::Target(target) => Some((target, block(settings)?)),
        _ => None,
    });
    targets.collect()
}

/// The control cells that the samples of each group's first round require, in the study's order. `blocks` has the
/// targets' logical block sizes in bytes: see [`logical_blocks`].
pub fn controls(study: &Study, samples: &[Sample], blocks: &BTreeMap<String, u64>) -> Vec<Control> {
    let Some(controlled) = &study.control else { return Vec::new() };
    let first = |cell: &Cell| samples.iter().filter(|s| s.cell == *cell).map(|s| s.round).min();
    let seen = |cell: &Cell, round: u32| {
        samples.iter().find(|s| s.round == round && s.cell == *cell).and_then(DiskRequests::of)
    };
    let wanted = |c: &Cell| c.disk().is_some_and(|d| controlled.workloads.iter().any(|w| w == d.workload));
    let cells = study.cells().into_iter().filter(|c| !c.is_native() && wanted(c));
    cells
        .filter_map(|cell| {
            let block = cell.target().and_then(|target| blocks.get(target)).copied().unwrap_or(SECTOR);
            let round = first(&cell.natively())?;
            chain(&cell, seen(&cell.natively(), round)?, seen(&cell, round)?, block)
        })
        .flatten()
        .collect()
}

/// Requests that reached the disk in the workload's direction.
#[derive(Debug, Clone, Copy)]
struct DiskRequests {
    writes: bool,
    request_bytes: f64,
    queue_depth: f64,
}

impl DiskRequests {
    fn of(sample: &Sample) -> Option<DiskRequests> {
        let (device, work) = (sample.device()?, sample.work());
        let writes = work.write_bytes > work.read_bytes;
        let (bytes, ios) =
            if writes { (device.write_bytes, device.write_ios) } else { (device.read_bytes, device.read_ios) };
        (bytes > 0 && ios > 0).then(|| DiskRequests {
            writes,
            request_bytes: bytes as f64 / ios as f64,
            queue_depth: device.queue_depth,
        })
    }
}

fn chain(guest: &Cell, base: DiskRequests, seen: DiskRequests, block: u64) -> Option<Vec<Control>> {
    if seen.request_bytes >= SMALLER * base.request_bytes {
        return None;
    }
    let (own, small) = (rounded(base.request_bytes, block), rounded(seen.request_bytes, block));
    if small >= own {
        return None;
    }
    let most = (MOST_IN_FLIGHT / own).clamp(1, MOST_DEPTH) as u32;
    let (deep, shallow) = (whole(base.queue_depth).min(most), whole(seen.queue_depth).min(most));
    let direction = if seen.writes { "write" } else { "read" };
    let cell = |link: Link, request_bytes: u64, depth: u32, why: String| Control {
        of: guest.clone(),
        cell: guest.natively().running(format!("seq-{direction}-{}-d{depth}", size(request_bytes))),
        link,
        request_bytes,
        depth,
        why,
    };
    let reference = format!(
        "the {direction}s of {} reached the disk as requests of {} bytes, {deep} in flight",
        guest.natively().key(),
        base.request_bytes.round()
    );
    let smaller = format!(
        "the {direction}s of {} reached the disk as requests of {} bytes, natively they were of {}",
        guest.key(),
        seen.request_bytes.round(),
        base.request_bytes.round()
    );
    let mut all = vec![cell(Link::Reference, own, deep, reference), cell(Link::Size, small, deep, smaller)];
    if shallow != deep {
        let why = format!(
            "{} kept {:.2} requests in flight at the disk, the native side {:.2}",
            guest.key(),
            seen.queue_depth,
            base.queue_depth
        );
        all.push(cell(Link::Depth, small, shallow, why));
    }
    all.extend(all.last().map(in_guest));
    Some(all)
}

/// The job of the last native link in the guest that it explains, on its own disk, so no other guest is booted.
fn in_guest(last: &Control) -> Control {
    let why = format!("the same job in {}: its own workload is another program", last.of.place_key());
    Control { cell: last.of.clone().running(last.cell.workload()), link: Link::Guest, why, ..last.clone() }
}

/// The nearest multiple of the block that a workload can use.
fn rounded(bytes: f64, block: u64) -> u64 {
    let block = block.max(SECTOR);
    let blocks = (bytes / block as f64).round().max(1.0) as u64;
    blocks.saturating_mul(block).min((MOST_BYTES / block).max(1) * block)
}

fn whole(depth: f64) -> u32 {
    depth.round().clamp(1.0, MOST_DEPTH as f64) as u32
}

/// A size as in workload names: in the largest unit that divides it.
fn size(bytes: u64) -> String {
    match bytes {
        b if b % (1 << 20) == 0 => format!("{}m", b >> 20),
        b if b % (1 << 10) == 0 => format!("{}k", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests;
