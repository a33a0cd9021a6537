//! Results of control cells ([`crate::study::control`]): the parts of a guest's loss that its program, small requests
//! and a shallow queue cause also natively, and the rest for virtualisation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shares::{pairs, unrounded};
use crate::cell::Cell;
use crate::result::BANDWIDTH;
use crate::run::Run;
use crate::stats::{Convergence, Pair, Ratio, paired_ratio};
use crate::study::control::{Control, Link, controls, logical_blocks};

/// A cell of the chain from the baseline to a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Asked")]
pub struct ChainCell {
    /// Key of the cell.
    pub key: String,
    /// Its request size in bytes.
    pub request_bytes: u64,
    /// Its queue depth.
    pub depth: u32,
}

/// The difference between a cell of a chain and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Differs {
    /// The program, on the same side: the workload's own and fio with the requests that reached the disk.
    Program,
    /// The request size.
    Size,
    /// The queue depth.
    Depth,
    /// The side: the same job natively and in the guest.
    Virtualisation,
    /// Side and program together, in a run without a cell between them.
    Rest,
}

/// A link of a chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ChainLink")]
pub struct Step {
    /// What differs.
    pub differs: Differs,
    /// Key of the cell before.
    pub from: String,
    /// Key of the cell after.
    pub to: String,
    /// After over before; `None` where either was not measured.
    pub ratio: Option<Ratio>,
}

/// Causes of a guest cell's share. All ratios are of bandwidth, paired by round; below 1 is a loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Key of the guest cell.
    pub key: String,
    /// The guest cell.
    pub cell: Cell,
    /// What the first round showed, in a sentence.
    pub why: String,
    /// Native, direct, at the baseline's own request size and queue depth.
    pub reference: ChainCell,
    /// The same at the guest's request size.
    pub size: ChainCell,
    /// The same at the guest's request size and queue depth; `None` where that depth was the baseline's.
    pub depth: Option<ChainCell>,
    /// The last native job in the guest; `None` where it was not measured.
    #[serde(default)]
    pub guest: Option<ChainCell>,
    /// The chain from the baseline to the guest cell. Its ratios are of the same rounds, so if all are known their
    /// product is `share_ratio`.
    #[serde(default)]
    pub links: Vec<Step>,
    /// The guest cell over its baseline in the rounds of `links`.
    #[serde(default)]
    pub share_ratio: Option<Ratio>,
    /// Cost of small requests: `size` over `reference`, in all rounds with both.
    pub small_requests_ratio: Option<Ratio>,
    /// Cost of a shallow queue: `depth` over `size`, in all rounds with both.
    pub shallow_queue_ratio: Option<Ratio>,
    /// The guest cell over the native cell with the same requests, in all rounds with both.
    pub rest_ratio: Option<Ratio>,
    /// Whether these three, as far as they exist, have the fewest pairs and boots.
    pub enough: bool,
    /// Whether all of `links` were measured in enough rounds.
    #[serde(default)]
    pub links_enough: bool,
}

impl Explanation {
    /// The native cell with the guest's requests.
    pub fn nearest(&self) -> &ChainCell {
        self.depth.as_ref().unwrap_or(&self.size)
    }

    /// Number of rounds of the chain's ratios.
    pub fn rounds(&self) -> u32 {
        self.share_ratio.map_or(0, |ratio| ratio.pairs)
    }

    /// Whether all links were measured, so that their product is the share.
    pub fn is_whole(&self) -> bool {
        self.share_ratio.is_some() && self.links.iter().all(|link| link.ratio.is_some())
    }
}

/// The control cells of a run.
pub(super) fn of_run(run: &Run) -> Vec<Control> {
    controls(&run.study, &run.samples, &logical_blocks(&run.effective))
}

/// Explains the guest cells with controls, in the order of their choice.
pub(super) fn explain(run: &Run, controls: &[Control], rule: &Convergence) -> Vec<Explanation> {
    let chains = controls.chunk_by(|a, b| a.of == b.of);
    chains.filter_map(|chain| one(run, chain, rule)).collect()
}

fn one(run: &Run, chain: &[Control], rule: &Convergence) -> Option<Explanation> {
    let link = |wanted: Link| chain.iter().find(|c| c.link == wanted);
    let (reference, size, depth) = (link(Link::Reference)?, link(Link::Size)?, link(Link::Depth));
    let guest = &size.of;
    let ratio = |base: &Cell, test: &Cell| {
        paired_ratio(&unrounded(&pairs(&run.samples, (base, test), rule, |s| s.result.figure(BANDWIDTH))))
    };
    let asked = |c: &Control| ChainCell { key: c.cell.key(), request_bytes: c.request_bytes, depth: c.depth };
    let chained = Chained::of(run, chain, guest);
    let (links, share_ratio) = (chained.links(), chained.share());
    let small_requests_ratio = ratio(&reference.cell, &size.cell);
    let shallow_queue_ratio = depth.and_then(|d| ratio(&size.cell, &d.cell));
    let rest_ratio = ratio(&depth.unwrap_or(size).cell, guest);
    let of_depth = depth.map(|_| shallow_queue_ratio);
    let wanted: Vec<Option<Ratio>> = [small_requests_ratio, rest_ratio].into_iter().chain(of_depth).collect();
    let known = |r: &Ratio| r.pairs >= rule.min_pairs && r.boots >= rule.min_boots;
    Some(Explanation {
        key: guest.key(),
        cell: guest.clone(),
        why: depth.map_or_else(|| size.why.clone(), |d| format!("{}; {}", size.why, d.why)),
        reference: asked(reference),
        size: asked(size),
        depth: depth.map(asked),
        guest: link(Link::Guest).filter(|c| ran(run, &c.cell)).map(asked),
        links_enough: links.iter().all(|link| link.ratio.as_ref().is_some_and(known)),
        enough: wanted.iter().all(|r| r.as_ref().is_some_and(known)),
        links,
        share_ratio,
        small_requests_ratio,
        shallow_queue_ratio,
        rest_ratio,
    })
}

/// The cells of a chain from the baseline to the guest cell, with their bandwidth in the rounds that all of them have,
/// those that never ran excepted.
struct Chained<'a> {
    cells: Vec<(Differs, &'a Cell)>,
    first: Cell,
    /// Figures of the first cell and then of `cells`, by round, with its boot; 0 for one that never ran.
    rounds: Vec<(u32, Vec<f64>)>,
}

impl<'a> Chained<'a> {
    fn of(run: &Run, chain: &'a [Control], guest: &'a Cell) -> Chained<'a> {
        let differs = |c: &Control| match c.link {
            Link::Reference => Differs::Program,
            Link::Size => Differs::Size,
            Link::Depth => Differs::Depth,
            Link::Guest => Differs::Virtualisation,
        };
        let first = guest.natively();
        // Older versions had no guest cell in chains; before the second round all cells are outstanding.
        let later = |s: &crate::result::Sample| s.round > 0 && chain.iter().any(|c| c.cell == s.cell);
        let older = run.samples.iter().any(later);
        let there = |c: &&Control| c.link != Link::Guest || !older || ran(run, &c.cell);
        let mut cells: Vec<(Differs, &Cell)> = chain.iter().filter(there).map(|c| (differs(c), &c.cell)).collect();
        let in_guest = cells.iter().any(|(_, cell)| !cell.is_native());
        cells.push((if in_guest { Differs::Program } else { Differs::Rest }, guest));
        let figures: Vec<BTreeMap<u32, (u32, f64)>> =
            std::iter::once(&first).chain(cells.iter().map(|c| c.1)).map(|cell| figures(run, cell)).collect();
        let rounds = figures.last().into_iter().flatten().filter_map(|(round, (boot, _))| {
            let of = |all: &BTreeMap<u32, (u32, f64)>| {
                if all.is_empty() {
                    Some(0.0)
                } else {
                    all.get(round).filter(|(other, _)| other == boot).map(|(_, figure)| *figure)
                }
            };
            Some((*boot, figures.iter().map(of).collect::<Option<Vec<f64>>>()?))
        });
        Chained { rounds: rounds.collect(), cells, first }
    }

    /// The ratio of two of them; `None` where one never ran.
    fn ratio(&self, base: usize, test: usize) -> Option<Ratio> {
        let pair = |(boot, all): &(u32, Vec<f64>)| Pair { boot: *boot, base: all[base], test: all[test] };
        paired_ratio(&self.rounds.iter().map(pair).collect::<Vec<Pair>>())
    }

    fn links(&self) -> Vec<Step> {
        let key = |i: usize| if i == 0 { self.first.key() } else { self.cells[i - 1].1.key() };
        let step = |(i, (differs, _)): (usize, &(Differs, &Cell))| Step {
            differs: *differs,
            from: key(i),
            to: key(i + 1),
            ratio: self.ratio(i, i + 1),
        };
        self.cells.iter().enumerate().map(step).collect()
    }

    fn share(&self) -> Option<Ratio> {
        self.ratio(0, self.cells.len())
    }
}

fn ran(run: &Run, cell: &Cell) -> bool {
    run.samples.iter().any(|s| s.cell == *cell)
}

/// Bandwidth by round, with the boot; rounds without one are left out, as in [`paired_ratio`].
fn figures(run: &Run, cell: &Cell) -> BTreeMap<u32, (u32, f64)> {
    let of = run.samples.iter().filter(|s| s.cell == *cell);
    let figure = |s: &crate::result::Sample| s.result.figure(BANDWIDTH).filter(|x| *x > 0.0 && x.is_finite());
    of.filter_map(|s| Some((s.round, (s.boot, figure(s)?)))).collect()
}

#[cfg(test)]
mod tests;
