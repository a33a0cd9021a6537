//! The next step of a run: a pure function of the study and the store, so that an interrupted run is resumed by calling
//! it again.
//!
//! A **round** runs each open cell once. The cells of one baseline (itself and all that are compared with it) run next
//! to each other, so that drift affects both sides alike. Every second round is the reverse of the one before it, so
//! that over two rounds each cell of a group ran as often before as after each other; the pair's own order is drawn
//! from the seed. A study with steady state runs one group after another instead, each until it is done. Rounds are
//! assigned to boots in blocks ([`super::Repeat::rounds_of_boot`]): changing the side takes a boot, and the effect of
//! a boot must differ between the pairs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::control::Control;
use super::{GIB, Study};
use crate::cell::Cell;
use crate::stats::{Ratio, converged};

/// Seed of the order of the cells; a constant, so that a resumed run keeps its order.
const SEED: u64 = 0x766d_696f;

/// A sample that was taken, or failed: either way it is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SampleKey {
    /// [`Cell::key`] of its cell.
    pub cell: String,
    /// Its round.
    pub round: u32,
    /// Its boot.
    pub boot: u32,
}

/// Cost of the run so far, earlier parts of a resumed run included.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Seconds of measuring.
    pub seconds: f64,
    /// Bytes written to the backing device.
    pub bytes_written: u64,
}

/// State of the run.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Samples in the store.
    pub done: &'a [SampleKey],
    /// Keys of cells that cannot run here (requirements unmet, guest did not boot).
    pub skipped: &'a BTreeSet<String>,
    /// Share so far of each compared cell, by key: see [`crate::summary::share_of`].
    pub shares: &'a BTreeMap<String, Ratio>,
    /// Control cells that a group's first round required ([`super::controls`]); they run from its second on.
    pub controls: &'a [Control],
    /// Keys of native writing cells whose disk is not steady yet; empty without steady state in the study: see
    /// [`crate::summary::steady`].
    pub unsteady: &'a BTreeSet<String>,
    /// Cost so far.
    pub spent: Spent,
    /// The current boot; `None` at the start and after resuming.
    pub boot: Option<u32>,
}

/// The next step.
#[derive(Debug, Clone, PartialEq)]
// There is one at a time.
#[allow(clippy::large_enum_variant)]
pub enum Step {
    /// End the running guests and boot new ones, with this number of the boot.
    Boot {
        /// Its number, from 0.
        boot: u32,
    },
    /// Run one cell.
    Run {
        /// The cell.
        cell: Cell,
        /// The round to store it under.
        round: u32,
        /// The boot to store it under.
        boot: u32,
    },
    /// End of the run.
    Done(DoneReason),
}

/// Why a run ended regularly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoneReason {
    /// Every share converged.
    Converged,
    /// Without comparisons there are no shares: each cell ran the fewest rounds.
    FewestRounds,
    /// Everything possible was measured, and some cells were skipped.
    LeftOut,
    /// Some cells reached the most pairs without converging.
    MaxPairs,
    /// `max_minutes` is used up.
    TimeBudget,
    /// `max_gib_written` is used up.
    ByteBudget,
    /// No cell of the study can run here.
    NothingToRun,
}

impl std::fmt::Display for DoneReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DoneReason::Converged => "every share is known to the wanted width",
            DoneReason::FewestRounds => "each cell ran its rounds",
            DoneReason::LeftOut => "what could be measured is there; the rest is under \"Not measured\" in the report",
            DoneReason::MaxPairs => "the most pairs were measured; what is wider is marked \"not converged\"",
            DoneReason::TimeBudget => "the time budget (repeat.max_minutes) is spent",
            DoneReason::ByteBudget => "the write budget (repeat.max_gib_written) is spent",
            DoneReason::NothingToRun => "no cell of the study can run on this machine",
        })
    }
}

/// The budget that is used up, if any.
pub fn budget(study: &Study, spent: Spent) -> Option<DoneReason> {
    if spent.seconds >= study.repeat.max_minutes * 60.0 {
        return Some(DoneReason::TimeBudget);
    }
    let most = study.repeat.max_gib_written.map(|gib| gib * GIB as f64);
    most.is_some_and(|most| spent.bytes_written as f64 >= most).then_some(DoneReason::ByteBudget)
}

/// The next step. Budgets are checked before each step, so one cell can exceed them.
pub fn next(study: &Study, progress: &Progress<'_>) -> Step {
    let groups: Vec<Vec<Cell>> = study.groups().into_iter().map(|g| runnable(study, g, progress.skipped)).collect();
    if groups.iter().all(Vec::is_empty) {
        return Step::Done(DoneReason::NothingToRun);
    }
    let open: Vec<Vec<Cell>> = groups.into_iter().map(|g| open(study, g, progress)).filter(|g| !g.is_empty()).collect();
    if open.is_empty() {
        return Step::Done(nothing_open(study, progress));
    }
    if let Some(reason) = budget(study, progress.spent) {
        return Step::Done(reason);
    }
    for turn in turns(study, open) {
        if let Some((cell, round)) = in_turn(study, &turn, progress) {
            let (boot, starts) = boot_for(study, progress, &cell.key(), round);
            return if starts { Step::Boot { boot } } else { Step::Run { cell, round, boot } };
        }
    }
    Step::Done(DoneReason::MaxPairs)
}

/// Groups that run together: all open ones, round by round; with steady state one group after another, each until it is
/// done, since workloads affect each other's disk state.
fn turns(study: &Study, open: Vec<Vec<Cell>>) -> Vec<Vec<Vec<Cell>>> {
    if study.repeat.steady_state { open.into_iter().map(|group| vec![group]).collect() } else { vec![open] }
}

/// The next cell of these groups and its round; `None` after the most rounds.
fn in_turn(study: &Study, open: &[Vec<Cell>], progress: &Progress<'_>) -> Option<(Cell, u32)> {
    let controlled = with_controls(open, progress);
    let own: BTreeSet<String> = if study.repeat.steady_state {
        study.groups_of(open).chain(controlled.iter().flatten().cloned()).map(|cell| cell.key()).collect()
    } else {
        progress.done.iter().map(|s| s.cell.clone()).collect()
    };
    let done: Vec<&SampleKey> = progress.done.iter().filter(|s| own.contains(&s.cell)).collect();
    let following = || progress.done.iter().map(|s| s.round).max().map_or(0, |round| round.saturating_add(1));
    let first = done.iter().map(|s| s.round).min().unwrap_or_else(following);
    let last = done.iter().map(|s| s.round).max();
    let missing = |round: u32, ran: &BTreeSet<&str>| {
        let cells = if round == first { open } else { &controlled[..] };
        order(cells, round).into_iter().find(|cell| !ran.contains(cell.key().as_str())).cloned()
    };
    if let Some(last) = last {
        let ran = done.iter().filter(|s| s.round == last).map(|s| s.cell.as_str()).collect();
        if let Some(cell) = missing(last, &ran) {
            return Some((cell, last));
        }
    }
    let round = following();
    (round - first < study.repeat.max_pairs).then(|| Some((missing(round, &BTreeSet::new())?, round)))?
}

/// Why no group is open: all are converged, unless cells were left out.
fn nothing_open(study: &Study, progress: &Progress<'_>) -> DoneReason {
    let (cells, rule) = (study.cells(), study.repeat.convergence());
    let compared: Vec<String> = cells.iter().filter(|cell| study.compares(cell)).map(Cell::key).collect();
    let known = |key: &String| progress.shares.get(key).is_some_and(|share| converged(share, &rule));
    if !compared.is_empty() && compared.iter().all(known) {
        DoneReason::Converged
    } else if compared.is_empty() && cells.iter().all(|cell| runs(cell, progress)) {
        DoneReason::FewestRounds
    } else {
        DoneReason::LeftOut
    }
}

/// The boot of this round, which begins with this cell, and whether it must be started. A boot ends after its block of
/// rounds, never within one; a resumed run starts a new boot.
fn boot_for(study: &Study, progress: &Progress<'_>, cell: &str, round: u32) -> (u32, bool) {
    let Some(current) = progress.boot else {
        return (progress.done.iter().map(|s| s.boot.saturating_add(1)).max().unwrap_or(0), true);
    };
    let rounds: BTreeSet<u32> = progress.done.iter().filter(|s| s.boot == current).map(|s| s.round).collect();
    let of_cell = progress.done.iter().filter(|s| s.cell == cell && s.boot != current);
    let before: BTreeSet<u32> = of_cell.map(|s| s.boot).collect();
    let full = !rounds.contains(&round) && rounds.len() as u32 >= study.repeat.rounds_of_boot(before.len() as u32);
    if full { (current.saturating_add(1), true) } else { (current, false) }
}

/// Cells of a group that can run. Without the baseline there would be no pairs.
fn runnable(study: &Study, group: Vec<Cell>, skipped: &BTreeSet<String>) -> Vec<Cell> {
    if group.first().is_some_and(|head| study.baseline.is(head) && skipped.contains(&head.key())) {
        return Vec::new();
    }
    group.into_iter().filter(|cell| !skipped.contains(&cell.key())).collect()
}

/// Cells of a group that need more rounds: those without a converged share, and their baseline. A group without
/// comparisons runs the fewest rounds.
fn open(study: &Study, group: Vec<Cell>, progress: &Progress<'_>) -> Vec<Cell> {
    let rule = study.repeat.convergence();
    let rounds = |cell: &Cell| progress.done.iter().filter(|s| s.cell == cell.key()).count() as u32;
    // A cell with controls continues until its whole chain ran in the fewest rounds.
    let explained = |cell: &Cell| {
        let own = progress.controls.iter().filter(|c| c.of == *cell && runs(&c.cell, progress)).map(|c| c.cell.key());
        let own: BTreeSet<String> = own.collect();
        let chain = own.iter().cloned().chain([cell.key(), cell.natively().key()]);
        own.is_empty() || common_rounds(progress.done, &chain.collect()) >= rule.min_pairs as usize
    };
    let known = |cell: &Cell| progress.shares.get(&cell.key()).is_some_and(|r| converged(r, &rule)) && explained(cell);
    let compared = |cell: &Cell| study.compares(cell);
    if !group.iter().any(compared) {
        let most = |cell: &Cell| {
            if progress.unsteady.contains(&cell.key()) { study.repeat.max_pairs } else { study.repeat.min_pairs }
        };
        return group.into_iter().filter(|cell| rounds(cell) < most(cell)).collect();
    }
    // Figures of a disk that is not steady yet do not count.
    if group.first().is_some_and(|baseline| progress.unsteady.contains(&baseline.key())) {
        return group;
    }
    let group: Vec<Cell> = group.into_iter().filter(|cell| !compared(cell) || !known(cell)).collect();
    if group.iter().any(compared) { group } else { Vec::new() }
}

/// Number of rounds in which all of these cells ran.
fn common_rounds(done: &[SampleKey], keys: &BTreeSet<String>) -> usize {
    let mut rounds: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for sample in done.iter().filter(|s| keys.contains(&s.cell)) {
        rounds.entry(sample.round).or_default().insert(&sample.cell);
    }
    rounds.values().filter(|ran| ran.len() == keys.len()).count()
}

fn runs(cell: &Cell, progress: &Progress<'_>) -> bool {
    !progress.skipped.contains(&cell.key())
}

/// The groups with their control cells.
fn with_controls(groups: &[Vec<Cell>], progress: &Progress<'_>) -> Vec<Vec<Cell>> {
    let mut groups = groups.to_vec();
    for group in &mut groups {
        for control in progress.controls.iter().filter(|c| runs(&c.cell, progress)) {
            if group.contains(&control.of) && !group.contains(&control.cell) {
                group.push(control.cell.clone());
            }
        }
    }
    groups
}

/// The cells of a round in order.
fn order(groups: &[Vec<Cell>], round: u32) -> Vec<&Cell> {
    let pair = u64::from(round / 2);
    let mut groups: Vec<Vec<&Cell>> = groups.iter().map(|g| g.iter().collect()).collect();
    // The first two rounds keep the study's order of groups, in which results are shown.
    if pair > 0 {
        shuffle(&mut groups, |g| mix(SEED ^ pair, &g[0].natively().key()));
    }
    for group in &mut groups {
        shuffle(group, |cell| mix(SEED ^ pair, &cell.key()));
    }
    let mut cells: Vec<&Cell> = groups.into_iter().flatten().collect();
    if round % 2 == 1 {
        cells.reverse();
    }
    cells
}

/// Sorts by a hash: a shuffle in which closing a cell does not change the order of the others.
fn shuffle<T>(items: &mut [T], hash: impl Fn(&T) -> u64) {
    items.sort_by_key(|item| hash(item));
}

/// FNV-1a of the key, followed by splitmix64's mixer.
fn mix(seed: u64, key: &str) -> u64 {
    let mut h = key.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}
