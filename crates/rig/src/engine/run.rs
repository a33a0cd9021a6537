//! A whole run on this machine, from the first change to the last sample. Its owner undoes it by the
//! journal.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use vmio_model::result::Run;
use vmio_node::{Journal, Local, Node};

use super::machine::{Machine, MustStop, Parts};
use super::measure::{self, Ended, Event, Next};
use super::plan::Planned;
use super::store::Store;
use super::watcher::{self, Watcher};

/// What is to be done, and with what.
pub struct Job<'a> {
    /// The study, and what was found out of the machine.
    pub planned: &'a Planned,
    /// Order of the steps.
    pub next: Next,
    /// Where other guests are spared: share of the native speed that a workload may use, above 0 to 1.
    pub gentle_share: f64,
    /// Use the user's own device whatever it holds.
    pub force: bool,
    /// Sockets of the guests.
    pub run_dir: &'a Path,
    /// Images, and whether KVM works.
    pub state_dir: &'a Path,
    /// Where results go.
    pub store: &'a dyn Store,
    /// Takes note of every change.
    pub journal: &'a Arc<Journal>,
    /// Told what is being done.
    pub say: fn(&str),
}

/// Makes what the cells need, and measures until the study has what it wants.
///
/// # Errors
/// What failed; what was measured until then is stored.
pub fn run(job: &Job<'_>, run: &mut Run, tell: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<Ended> {
    let Job { planned, journal, say, .. } = job;
    let local: Arc<dyn Node> = Arc::new(Local::owned(Arc::clone(journal)));
    let watcher = planned.gentle.then(|| Watcher::start(local.clone(), journal, &planned.devices(&*local), *say));
    let watcher = match watcher {
        None => None,
        Some(Ok(watcher)) => {
            say(&format!("gentle: watching the other guests for {} s before any load", watcher::QUIET.as_secs()));
            watcher.settle();
            Some(watcher)
        }
        Some(Err(why)) => {
            say(&format!(
                "gentle: the other guests' latency is not visible here, so only the cap and the one core hold: {why}"
            ));
            None
        }
    };
    let prepared = Machine::prepare(
        Parts {
            study: &planned.study,
            store: job.store,
            local,
            journal: Arc::clone(journal),
            placed: planned.placed.clone(),
            cost: &planned.cost,
            force: job.force,
            pace: planned.gentle.then_some(job.gentle_share),
            watcher,
            run_dir: job.run_dir.to_owned(),
            state_dir: job.state_dir.to_owned(),
            progress: say,
        },
        run,
    );
    let mut machine = match prepared.map_err(anyhow::Error::downcast::<MustStop>) {
        Ok(machine) => machine,
        Err(Ok(MustStop(reason))) => return Ok(Ended::Stopped(reason)),
        Err(Err(error)) => return Err(error),
    };
    // Whatever fails in here: the machine knows how to leave storage that is sick.
    let ended = (|| {
        if planned.gentle {
            machine.be_gentle(job.gentle_share)?;
        }
        if let Some(reason) = machine.precondition(&planned.traits, &planned.cost.rates.refilled_targets)? {
            return Ok(Ended::Stopped(reason));
        }
        let began = Instant::now();
        let seconds = || began.elapsed().as_secs_f64();
        measure::measure(&planned.study, job.next, run, job.store, &mut machine, &seconds, tell)
    })();
    tell(Event::Over);
    machine.finish();
    ended
}
