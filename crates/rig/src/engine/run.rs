//! A whole run on this machine, from the first change to the last sample. Its owner undoes it by the
//! journal.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use vmio_model::run::Run;
use vmio_node::{Journal, Local, Node};

use super::bed::Bed;
use super::bed::prepare::{MustStop, Parts};
use super::measure::{self, Ended, Event, Next};
use super::plan::Planned;
use super::runner::Runner;
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

/// What is said where the others' latency is not visible: why, only where the plan has not said it.
fn blind(known: bool, why: &str) -> Vec<String> {
    let said = "gentle: cannot watch other guests' latency; the cap and one core still apply".to_owned();
    std::iter::once(said).chain((!known).then(|| format!("  {why}"))).collect()
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
            blind(planned.latency_unseen.is_some(), &why.to_string()).iter().for_each(|line| say(line));
            None
        }
    };
    let prepared = Bed::prepare(
        Parts {
            study: &planned.study,
            store: job.store,
            local,
            journal: Arc::clone(journal),
            placed: planned.placed.clone(),
            nodes: planned.nodes.clone(),
            cost: &planned.cost,
            traits: &planned.traits,
            force: job.force,
            power: &planned.power,
            pace: planned.gentle.then_some(job.gentle_share),
            watcher,
            run_dir: job.run_dir.to_owned(),
            state_dir: job.state_dir.to_owned(),
            kernel: planned.kernel.as_ref().map(|(kernel, _)| kernel),
            fetch: planned.fetch.as_ref(),
            progress: say,
        },
        run,
    );
    let mut runner = match prepared.map_err(anyhow::Error::downcast::<MustStop>) {
        Ok(bed) => Runner::on(bed),
        Err(Ok(MustStop(reason))) => return Ok(Ended::Stopped(reason)),
        Err(Err(error)) => return Err(error),
    };
    // Whatever fails in here: the bed knows how to leave storage that is sick.
    let ended = (|| {
        if planned.gentle {
            runner.bed.cap_to_share(job.gentle_share)?;
        }
        let began = Instant::now();
        let seconds = || began.elapsed().as_secs_f64();
        let ended = measure::measure(&planned.study, job.next, run, job.store, &mut runner, &seconds, tell)?;
        if matches!(ended, Ended::Done(_)) {
            runner.end_guests();
            runner.measure_rest()?;
        }
        Ok(ended)
    })();
    tell(Event::Over);
    runner.finish();
    ended
}

#[cfg(test)]
mod tests {
    use super::blind;

    #[test]
    fn what_the_plan_has_said_is_not_said_again_when_the_run_begins() {
        let (known, new) = (blind(true, "tracefs is not mounted"), blind(false, "cannot create /x: denied"));
        assert_eq!((known.len(), new[0] == known[0], new[1].as_str()), (1, true, "  cannot create /x: denied"));
        assert!(known[0].len() <= 80 && known[0].contains("the cap and one core still apply"), "{known:?}");
    }
}
