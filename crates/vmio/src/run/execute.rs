//! A run from the first change to the last undo.

use std::sync::Arc;

use anyhow::Context as _;
use vmio_model::failure::{Exit, Failure};
use vmio_model::result::RunState;
use vmio_model::run::Run;
use vmio_model::study::DoneReason;
use vmio_model::words::count;
use vmio_node::{Journal, Local};
use vmio_rig::engine::measure::{Ended, Next};
use vmio_rig::engine::plan::Planned;
use vmio_rig::engine::{self, Job, environment};

use super::progress::Progress;
use super::{RunOptions, signals};
use crate::context::Context;
use crate::store::{NewRun, Store, StoreError};
use crate::term;

/// Everything from the first change to the last undo.
pub fn execute(
    planned: &Planned,
    resumed: Option<Run>,
    next: Next,
    options: &RunOptions,
    context: &Context,
) -> anyhow::Result<Run> {
    let journals = context.recovered_journals()?;
    let store = Store::open(&context.paths.db())?;
    // One run at a time: two would measure each other. The lock is the journal's.
    let journal = Arc::new(Journal::open(&journals, "run")?);
    let _closed_at_the_end = Closing(journal.clone());
    journal.start_reaper()?;
    let (mut run, fresh) = match resumed {
        Some(run) => {
            store.resume(run.id)?;
            term::note(&format!("resuming run {}: {} so far", run.id, count(run.samples.len(), "sample")));
            (run, false)
        }
        None => (begin(planned, &store, context)?, true),
    };
    if fresh {
        run.skipped = planned.skipped();
        for skipped in &run.skipped {
            store.add_skipped(run.id, skipped)?;
        }
    }
    let stopping = signals::on_signal({
        let (journal, db, id) = (journal.clone(), context.paths.db(), run.id);
        move |name| {
            // Processes end first, so nothing measures on while the rest is undone.
            let failed = journal.close();
            term::note(&format!(
                "\n{name}: ended; run {id} is kept. To see it: vmio runs show {id}; to continue: --resume"
            ));
            failed.iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
            if let Ok(store) = Store::open(&db) {
                let _ = store.set_state(id, &RunState::Interrupted(name.to_owned()));
            }
        }
    })
    .context("cannot set up signal handling")?;
    let mut progress = Progress::new(&planned.study, &planned.cost, &run.samples);
    let job = Job {
        planned,
        next,
        gentle_share: options.gentle_share,
        force: options.force,
        run_dir: &context.paths.runtime,
        state_dir: &context.paths.state,
        store: &store,
        journal: &journal,
        say: term::note,
    };
    let outcome = engine::run(&job, &mut run, &mut |event| progress.tell(&event));
    let store = stopping.exit_or(store);
    let failed = journal.close();
    failed.iter().for_each(|f| term::note(&format!("warning: could not be undone: {f}")));
    let state = match &outcome {
        Ok(Ended::Done(_)) => RunState::Done,
        Ok(Ended::Stopped(reason)) => RunState::Interrupted(reason.to_string()),
        // A run with samples can be resumed.
        Err(error) if !run.samples.is_empty() => RunState::Interrupted(format!("{error:#}")),
        Err(error) => RunState::Failed(format!("{error:#}")),
    };
    if let Err(e) = store.set_state(run.id, &state) {
        // Why it ended matters more; a run that says "running" without an owner is shown as broken off.
        if outcome.is_ok() {
            return Err(e.into());
        }
        term::note(&format!("warning: how the run ended could not be stored: {e}"));
    }
    match outcome {
        Ok(Ended::Done(DoneReason::NothingToRun)) if run.samples.is_empty() => {
            let why = run.skipped.last().map_or_else(String::new, |s| format!(": {}", s.reason));
            Err(Failure::new(Exit::Precondition, format!("nothing could be measured{why}")).into())
        }
        Ok(Ended::Done(reason)) => {
            super::ended::notes(&planned.study, &run, reason).iter().for_each(|note| term::note(note));
            Ok(store.load(run.id)?)
        }
        Ok(Ended::Stopped(reason)) => {
            term::note(&format!("ended early: {reason}"));
            Ok(store.load(run.id)?)
        }
        Err(error) if run.samples.is_empty() => {
            let failure = Failure::new(kind_of(&error), format!("run {} measured nothing", run.id));
            let help = if is_full(&error) {
                "free some space there, or keep the state elsewhere: --state DIR"
            } else {
                "`vmio doctor` lists what this host has and lacks"
            };
            Err(error.context(failure.help(help)))
        }
        Err(error) => {
            let shows = format!("to see them: vmio runs show {}; to continue: --resume", run.id);
            let help = if is_full(&error) { format!("free some space there; then {shows}") } else { shows };
            let n = run.samples.len();
            let are = if n == 1 { "is" } else { "are" };
            let said = format!("run {} broke off; {} {are} kept", run.id, count(n, "sample"));
            Err(error.context(Failure::new(Exit::Partial, said).help(help)))
        }
    }
}

/// Undoes everything when dropped, also when the measuring thread panics.
struct Closing(Arc<Journal>);

impl Drop for Closing {
    fn drop(&mut self) {
        for failed in self.0.close() {
            term::note(&format!("warning: could not be undone: {failed}"));
        }
    }
}

/// Whether an error says that a disk is full.
fn is_full(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref::<StoreError>(), Some(StoreError::Full { .. }))
            || cause.downcast_ref::<std::io::Error>().is_some_and(crate::files::is_full)
    })
}

/// A host that cannot hold the targets is an unmet precondition, anything else a failure.
fn kind_of(error: &anyhow::Error) -> Exit {
    use vmio_rig::disks::targets::Error as Target;
    match error.downcast_ref::<Target>() {
        Some(
            Target::Space(vmio_rig::disks::space::Error::Space { .. })
            | Target::NoDirect { .. }
            | Target::Refused { .. }
            | Target::Place { .. },
        ) => Exit::Precondition,
        _ => Exit::Failed,
    }
}

fn begin(planned: &Planned, store: &Store, context: &Context) -> anyhow::Result<Run> {
    let environment = environment::of(planned, &Local::new());
    let id = store.new_run(&NewRun {
        kind: &planned.study.name.as_str().into(),
        study: &planned.study,
        command: &context.command,
        started_unix: environment::now(),
        environment: &environment,
        workloads: &planned.traits,
    })?;
    Ok(store.load(id)?)
}
