//! What control cells ([`crate::study::control`]) say: how much of a guest's loss small requests
//! and a shallow queue would cost without any guest, and what is left for virtualisation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shares::{pairs, unrounded};
use crate::cell::Cell;
use crate::result::{BANDWIDTH, Run};
use crate::stats::{Convergence, Ratio, paired_ratio};
use crate::study::Study;
use crate::study::control::{Control, Link, controls, logical_blocks};

/// A native cell of the chain from the baseline to a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Asked {
    /// Key of the cell.
    pub key: String,
    /// Bytes a request that it asks for.
    pub request_bytes: u64,
    /// Requests that it keeps in flight.
    pub depth: u32,
}

/// Why a guest cell gets what it gets. All ratios are of bandwidth, paired by round; below 1 is a
/// loss. Their product is the guest over the reference, as far as the same rounds have them all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Key of the guest cell.
    pub key: String,
    /// The guest cell.
    pub cell: Cell,
    /// What was seen in the first round, in a sentence.
    pub why: String,
    /// Native, direct, at the baseline's own request size and queue depth.
    pub reference: Asked,
    /// The same at the guest's request size.
    pub size: Asked,
    /// The same at the guest's request size and queue depth; `None` where that depth was the
    /// baseline's own.
    pub depth: Option<Asked>,
    /// Cost of the small requests: `size` over `reference`.
    pub small_requests_ratio: Option<Ratio>,
    /// Cost of the shallow queue: `depth` over `size`.
    pub shallow_queue_ratio: Option<Ratio>,
    /// What is left for virtualisation: the guest over the native cell that asks for the same.
    pub rest_ratio: Option<Ratio>,
    /// Whether all that is there comes from the fewest pairs and boots.
    pub enough: bool,
}

impl Explanation {
    /// The native cell that asks for what the guest asked the disk for.
    pub fn nearest(&self) -> &Asked {
        self.depth.as_ref().unwrap_or(&self.size)
    }
}

/// The control cells of a run.
pub(super) fn of_run(run: &Run) -> Vec<Control> {
    match toml::from_str::<Study>(&run.study_toml) {
        Ok(study) => controls(&study, &run.samples, &logical_blocks(&run.effective)),
        // A run of another version, or made without a study.
        Err(_) => Vec::new(),
    }
}

/// Explains the guest cells that have controls, in the order in which these were chosen.
pub(super) fn explain(run: &Run, controls: &[Control], rule: &Convergence) -> Vec<Explanation> {
    let chains = controls.chunk_by(|a, b| a.of == b.of);
    chains.filter_map(|chain| one(run, chain, rule)).collect()
}

fn one(run: &Run, chain: &[Control], rule: &Convergence) -> Option<Explanation> {
    let link = |wanted: Link| chain.iter().find(|c| c.link == wanted);
    let (reference, size, depth) = (link(Link::Reference)?, link(Link::Size)?, link(Link::Depth));
    let guest = &size.of;
    let ratio = |base: &Cell, test: &Cell| {
        paired_ratio(&unrounded(&pairs(&run.samples, base, test, |s| s.result.figure(BANDWIDTH))))
    };
    let asked = |c: &Control| Asked { key: c.cell.key(), request_bytes: c.request_bytes, depth: c.depth };
    let small_requests_ratio = ratio(&reference.cell, &size.cell);
    let shallow_queue_ratio = depth.and_then(|d| ratio(&size.cell, &d.cell));
    let rest_ratio = ratio(&depth.unwrap_or(size).cell, guest);
    let wanted = [Some(&small_requests_ratio), depth.map(|_| &shallow_queue_ratio), Some(&rest_ratio)];
    let enough = wanted
        .into_iter()
        .flatten()
        .all(|r| r.is_some_and(|r: Ratio| r.pairs >= rule.min_pairs && r.boots >= rule.min_boots));
    Some(Explanation {
        key: guest.key(),
        cell: guest.clone(),
        why: depth.map_or_else(|| size.why.clone(), |d| format!("{}; {}", size.why, d.why)),
        reference: asked(reference),
        size: asked(size),
        depth: depth.map(asked),
        small_requests_ratio,
        shallow_queue_ratio,
        rest_ratio,
        enough,
    })
}
