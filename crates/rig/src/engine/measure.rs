//! The measuring loop: asks the study what is next, has the rig do it, stores the sample at once.
//!
//! It knows no machine: a [`Rig`] boots guests and runs cells. All that it decides from is in the
//! store, so a run that was broken off by any means goes on by calling [`measure`] again.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::cell::Cell;
use vmio_model::result::{Sample, Skipped};
use vmio_model::run::Run;
use vmio_model::stats::Ratio;
use vmio_model::study::control::{Control, controls, logical_blocks};
use vmio_model::study::plan::budget_bytes;
use vmio_model::study::schedule;
use vmio_model::study::{DoneReason, Progress, Spent, Step, Study};

use crate::engine::so_far::SoFar;
use crate::engine::stop::StopCause;
use crate::engine::store::Store;

/// Boots guests and runs cells.
pub trait Rig {
    /// Ends the guests that run, if any, and boots those that the study needs.
    fn boot(&mut self, boot: u32) -> anyhow::Result<()>;
    /// Runs one cell, probes around it.
    fn cell(&mut self, cell: &Cell, round: u32, boot: u32) -> anyhow::Result<Sample>;
    /// Writes over what a group's cells write to, before its first round: the study asks for steady state. A reason to
    /// end the run, if there is one.
    fn precondition(&mut self, _group: &[Cell]) -> anyhow::Result<Option<StopCause>> {
        Ok(None)
    }
    /// Bytes that this writes.
    fn precondition_bytes(&self, _group: &[Cell]) -> u64 {
        0
    }
    /// A reason to stop now: the other guests on the host suffer (`--gentle`).
    fn must_stop(&mut self) -> Option<StopCause> {
        None
    }
    /// Bytes written beside the cells: targets made and brought into the state that a cell needs, earlier
    /// parts of a resumed run included.
    fn written_beside(&self) -> u64 {
        0
    }
    /// Bytes that a cell writes at most, those to bring its target into its state included.
    fn most_bytes(&self, _cell: &Cell) -> u64 {
        0
    }
    /// Whether the run is being ended from outside (Ctrl-C): then a failure says nothing of a cell.
    fn ending(&self) -> bool {
        false
    }
}

/// Why a cell cannot run on this rig however often it is tried. It is left out at once, and its guest
/// goes on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Impossible(pub String);

/// What happens, for the person who waits.
#[derive(Debug)]
pub enum Event<'a> {
    /// Guests are being booted.
    Boot(u32),
    /// A cell begins.
    Cell(&'a Cell, u32),
    /// A cell was stored.
    Stored(&'a Sample),
    /// A round is complete; the shares so far, by cell.
    Round(u32, &'a BTreeMap<String, Ratio>),
    /// A cell failed and is tried once more.
    Retry(&'a Cell, &'a str),
    /// A cell failed twice and is left out.
    GaveUp(&'a Cell, &'a str),
    /// A cell is left out without having been tried again, or at all.
    LeftOut(&'a Cell, &'a str),
    /// No more cells are run.
    Over,
}

/// Order of the steps: a study's own, or A/A pairs.
pub type Next = fn(&Study, &Progress<'_>) -> Step;

/// How the loop ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// By the study's own rule.
    Done(DoneReason),
    /// Because the rig said so.
    Stopped(StopCause),
}

/// A cell may fail this often before it is left out.
const ATTEMPTS: u32 = 2;

/// Measures until the study has what it wants or a budget is spent. `run` is what the store
/// holds already; `seconds` is a clock that started at 0 with this call.
pub fn measure(
    study: &Study,
    next: Next,
    run: &mut Run,
    store: &dyn Store,
    rig: &mut dyn Rig,
    seconds: &dyn Fn() -> f64,
    tell: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<Ended> {
    let mut so_far = SoFar::of(study, run);
    let earlier_seconds = so_far.spent.seconds;
    let mut boot = None;
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    let mut round_told = None;
    // What cells wrote that came to no sample.
    let mut lost_bytes = 0;
    // Cells of groups that would write more than what is left of the budget; the others go on.
    let mut too_much: BTreeSet<String> = BTreeSet::new();
    // Cells left out whose guests were looked for.
    let mut looked_at = 0;
    let groups = if study.repeat.steady_state { study.groups() } else { Vec::new() };
    // Those whose targets were brought into the state that their cells are to find.
    let mut conditioned = BTreeSet::new();
    loop {
        if run.skipped.len() != looked_at {
            for skipped in without_baseline(study, run) {
                tell(Event::LeftOut(&skipped.cell, &skipped.reason));
                store.add_skipped(run.id, &skipped)?;
                run.skipped.push(skipped);
            }
            looked_at = run.skipped.len();
        }
        let mut skipped = Skipped::keys(&run.skipped);
        skipped.extend(too_much.iter().cloned());
        let now = Spent {
            seconds: earlier_seconds + seconds(),
            bytes_written: [so_far.spent.bytes_written, rig.written_beside(), lost_bytes]
                .into_iter()
                .fold(0, u64::saturating_add),
        };
        let controls = controls(study, &run.samples, &logical_blocks(&run.effective));
        let SoFar { done, shares, unsteady, .. } = &so_far;
        let progress = Progress { done, skipped: &skipped, shares, controls: &controls, unsteady, spent: now, boot };
        let step = next(study, &progress);
        let upcoming = if let Step::Run { round, .. } = &step { Some(*round) } else { None };
        // A budget may cut a round short: that one is not complete.
        let over =
            matches!(&step, Step::Done(reason) if !matches!(reason, DoneReason::TimeBudget | DoneReason::ByteBudget));
        if let (Some(last), true) = (done.last().map(|k| k.round), upcoming.is_some() || over)
            && upcoming != Some(last)
            && round_told != Some(last)
        {
            round_told = Some(last);
            tell(Event::Round(last, shares));
        }
        if let Some(reason) = rig.must_stop() {
            return Ok(Ended::Stopped(reason));
        }
        match step {
            Step::Done(DoneReason::TimeBudget) => return Ok(Ended::Done(DoneReason::TimeBudget)),
            Step::Done(_) if !too_much.is_empty() => return Ok(Ended::Done(DoneReason::ByteBudget)),
            Step::Done(reason) => return Ok(Ended::Done(reason)),
            Step::Boot { boot: number } => {
                if let Some(stopped) = boot_guests(rig, number, tell)? {
                    return Ok(stopped);
                }
                boot = Some(number);
            }
            Step::Run { cell, .. } if now.bytes_written.saturating_add(rig.most_bytes(&cell)) > budget_bytes(study) => {
                let of_it = study.groups().into_iter().filter(|group| group.contains(&cell)).flatten();
                too_much.extend(of_it.map(|cell| cell.key()).chain([cell.key()]));
            }
            Step::Run { cell, .. }
                if let Some(at) = turn_of(&groups, &controls, &cell)
                    && conditioned.insert(at) =>
            {
                if now.bytes_written.saturating_add(rig.precondition_bytes(&groups[at])) > budget_bytes(study) {
                    return Ok(Ended::Done(DoneReason::ByteBudget));
                }
                if let Some(reason) = rig.precondition(&groups[at])? {
                    return Ok(Ended::Stopped(reason));
                }
            }
            Step::Run { cell, round, boot: number } => {
                tell(Event::Cell(&cell, round));
                match rig.cell(&cell, round, number) {
                    Ok(sample) => {
                        store.add_sample(run.id, &sample)?;
                        tell(Event::Stored(&sample));
                        run.samples.push(sample);
                        so_far.add_last(study, run);
                    }
                    // Noted as skipped, the cell would be missing from the run when it is resumed.
                    Err(error) if rig.ending() => return Err(error),
                    Err(error) => {
                        lost_bytes += if error.is::<Impossible>() { 0 } else { rig.most_bytes(&cell) };
                        // On storage that is full or gone nothing more can be measured.
                        if let Some(why) = rig.must_stop() {
                            return Ok(Ended::Stopped(why));
                        }
                        let reason = format!("{error:#}");
                        let impossible = error.is::<Impossible>();
                        let count = failures.entry(cell.key()).or_default();
                        *count += 1;
                        if *count < ATTEMPTS && !impossible {
                            tell(Event::Retry(&cell, &reason));
                        } else {
                            let told = if impossible { Event::LeftOut } else { Event::GaveUp };
                            tell(told(&cell, &reason));
                            let skipped = Skipped { cell: cell.clone(), reason };
                            store.add_skipped(run.id, &skipped)?;
                            run.skipped.push(skipped);
                        }
                        // Whatever went wrong in a guest, the next cell gets a sound one.
                        if !cell.is_native()
                            && !impossible
                            && let Some(stopped) = boot_guests(rig, number, tell)?
                        {
                            return Ok(stopped);
                        }
                    }
                }
            }
        }
    }
}

/// The place of the group that a cell is of: its own, or that of the guest that it explains.
fn turn_of(groups: &[Vec<Cell>], controls: &[Control], cell: &Cell) -> Option<usize> {
    let explains = |group: &Vec<Cell>| controls.iter().any(|c| c.cell == *cell && group.contains(&c.of));
    groups.iter().position(|group| group.contains(cell)).or_else(|| groups.iter().position(explains))
}

/// Cells that were not tried and will not be, since what they are compared with is left out.
fn without_baseline(study: &Study, run: &Run) -> Vec<Skipped> {
    let left_out = Skipped::keys(&run.skipped);
    let measured: BTreeSet<String> = run.samples.iter().map(|s| s.cell.key()).collect();
    let why = |cell: &Cell| {
        let base = study.baseline.of(cell).filter(|base| base != cell)?.key();
        let tried = || left_out.contains(&cell.key()) || measured.contains(&cell.key());
        let lost = left_out.contains(&base) && !tried();
        lost.then(|| format!("what it is compared with, {base}, could not be measured"))
    };
    study.cells().into_iter().filter_map(|cell| Some(Skipped { reason: why(&cell)?, cell })).collect()
}

/// Boots the guests. On storage that is full or gone none can be, and the run ends as it does after
/// a cell.
fn boot_guests(rig: &mut dyn Rig, number: u32, tell: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<Option<Ended>> {
    tell(Event::Boot(number));
    let Err(error) = rig.boot(number) else { return Ok(None) };
    if !rig.ending()
        && let Some(why) = rig.must_stop()
    {
        return Ok(Some(Ended::Stopped(why)));
    }
    Err(error.context(format!("boot {number} of the guest failed")))
}

/// The order of an A/A run (`--noise`): each cell twice in a row, in rounds 2k and 2k+1, a boot a
/// pair; [`summary::noise`] sets the two against each other.
pub fn next_noise(study: &Study, progress: &Progress<'_>) -> Step {
    if let Some(reason) = schedule::budget(study, progress.spent) {
        return Step::Done(reason);
    }
    let cells = study.cells_but(progress.skipped);
    if cells.is_empty() {
        return Step::Done(DoneReason::NothingToRun);
    }
    let ran: BTreeSet<(&str, u32)> = progress.done.iter().map(|k| (k.cell.as_str(), k.round)).collect();
    for pair in 0..study.repeat.max_pairs {
        for cell in &cells {
            for round in [2 * pair, 2 * pair + 1] {
                if ran.contains(&(cell.key().as_str(), round)) {
                    continue;
                }
                return match progress.boot {
                    Some(boot) if boot == pair => Step::Run { cell: cell.clone(), round, boot },
                    _ => Step::Boot { boot: pair },
                };
            }
        }
    }
    Step::Done(DoneReason::MaxPairs)
}
