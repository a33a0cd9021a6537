//! Runs a study on this machine: plan, question, measuring, report. `engine` is the loop and
//! knows no machine; `rig` is the machine; `plan` looks before anything is changed.

pub mod engine;
mod environment;
mod gentle;
mod noise;
mod plan;
mod progress;
mod prove;
mod rig;
mod signals;
pub mod studies;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use vmio_model::result::{Run, RunState};
use vmio_model::rules::Severity;
use vmio_model::study::{DoneReason, Study};
use vmio_node::{Journal, Local, Node, recover};

use self::engine::{Ended, Next};
use self::plan::Planned;
use self::progress::Progress;
use self::rig::{Machine, Parts};
use crate::cli::{Context, Exit, Failure, Outcome};
use crate::report::{self, Report};
use crate::store::{NewRun, Store};
use crate::term;

/// What the user wants of a run beside the study.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Wishes {
    /// Put the scratch volume in DIR; default is where guest images are, else the state directory
    #[arg(long, value_name = "DIR")]
    pub on: Option<PathBuf>,
    /// Use this whole block device as the target `device`; ALL DATA ON IT IS LOST. Say it twice
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<PathBuf>,
    /// With --device: use it although it holds data (never when it is mounted or in use)
    #[arg(long, requires = "device")]
    pub force: bool,
    /// Spare other guests: cap the bandwidth, one core, end when they slow down (the default when others run)
    #[arg(long, conflicts_with = "no_gentle")]
    pub gentle: bool,
    /// Do not spare other guests
    #[arg(long)]
    pub no_gentle: bool,
    /// Share of the probed bandwidth that --gentle may use
    #[arg(long, value_name = "RATIO", default_value_t = 0.25)]
    pub gentle_share: f64,
    /// Most minutes of measuring, instead of the study's
    #[arg(long, value_name = "MINUTES")]
    pub minutes: Option<f64>,
    /// Most GiB to write, instead of the study's
    #[arg(long, value_name = "GIB")]
    pub gib: Option<f64>,
    /// Print the plan and stop; nothing is changed
    #[arg(long)]
    pub dry_run: bool,
    /// Go on without a question
    #[arg(long, short)]
    pub yes: bool,
    /// Go on with the last run of this study that was broken off
    #[arg(long)]
    pub resume: bool,
}

/// How a report is shown; the default is text.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Forms {
    /// Also write the report as one HTML file that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the report as Markdown
    #[arg(long)]
    pub markdown: bool,
}

/// What is done with the study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Measure it.
    Study,
    /// Measure each of its cells against itself.
    Noise,
    /// Measure it, or take a stored run, and prove a finding.
    Prove {
        /// Id of the rule; empty is the costliest finding.
        rule: String,
        /// A stored run.
        of: Option<String>,
    },
}

/// Runs a study from plan to report.
pub fn start(
    study: &Study,
    mode: Mode,
    wishes: &Wishes,
    forms: &Forms,
    fail_on: Option<Severity>,
    context: &Context,
) -> Outcome {
    check(wishes)?;
    let run = match &mode {
        Mode::Study => measure(study, engine_order(&mode), wishes, context)?,
        Mode::Noise => {
            let mut study = study.clone();
            study.name = format!("noise-{}", study.name);
            let run = measure(&study, engine_order(&mode), wishes, context)?;
            let Some(run) = run else { return Ok(Exit::Done) };
            noise::show(&run, context)?;
            return Ok(exit_of(&run));
        }
        Mode::Prove { rule, of } => {
            let base = match of {
                Some(id) => Some(stored(id, context)?),
                None => measure(study, engine_order(&mode), wishes, context)?,
            };
            let Some(base) = base else { return Ok(Exit::Done) };
            let Some(proof) = prove::study_of(&base, rule)? else {
                term::note("no finding of this run has a change that could be measured: nothing to prove");
                return finish(&base, forms, fail_on, context);
            };
            if let Some(run) = measure(&proof, engine_order(&mode), wishes, context)? {
                term::note(&format!("proof measured as run {}", run.id));
            }
            Some(base)
        }
    };
    match run {
        None => Ok(Exit::Done),
        Some(run) => finish(&run, forms, fail_on, context),
    }
}

fn engine_order(mode: &Mode) -> Next {
    if *mode == Mode::Noise { engine::next_noise } else { vmio_model::study::next }
}

/// Wishes that cannot be granted are refused before anything is looked at.
fn check(wishes: &Wishes) -> Result<(), Failure> {
    let refuse = |message: String, help: &str| Err(Failure::new(Exit::Usage, message).help(help));
    match wishes.device.as_slice() {
        [] => {}
        [a, b] if a == b => {}
        [a, b] => {
            return refuse(
                format!("--device names two devices: {} and {}", a.display(), b.display()),
                "name the same device twice; everything on it is lost",
            );
        }
        [a, ..] => {
            return refuse(
                format!("everything on {} would be lost, so it must be named exactly twice", a.display()),
                "for example: --device /dev/sdX --device /dev/sdX",
            );
        }
    }
    if !(wishes.gentle_share > 0.0 && wishes.gentle_share <= 1.0) {
        return refuse(format!("--gentle-share {} is not in 0 to 1", wishes.gentle_share), "0.25 is a quarter");
    }
    for (name, value) in [("--minutes", wishes.minutes), ("--gib", wishes.gib)] {
        if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
            return refuse(format!("{name} must be above 0"), "leave it out to use the study's own budget");
        }
    }
    Ok(())
}

fn stored(id: &str, context: &Context) -> anyhow::Result<Run> {
    let store = Store::open_existing(&context.paths.db())?;
    let number = match id {
        "last" => store.last()?.context("there is no run yet: make one with `vmio tax`")?,
        _ => id.parse().with_context(|| {
            Failure::new(Exit::Usage, format!("{id} is no run")).help("a number from `vmio runs list`, or `last`")
        })?,
    };
    Ok(store.load(number)?)
}

/// Measures a study; `None` when the user wanted the plan only, or said no.
fn measure(study: &Study, next: Next, wishes: &Wishes, context: &Context) -> anyhow::Result<Option<Run>> {
    let mut study = study.clone();
    study.repeat.max_minutes = wishes.minutes.unwrap_or(study.repeat.max_minutes);
    study.repeat.max_gib_written = wishes.gib.unwrap_or(study.repeat.max_gib_written);
    let looker = Local::new();
    let known = Store::open_existing(&context.paths.db()).ok();
    let last = known.as_ref().and_then(|s| s.last().ok().flatten().and_then(|id| s.load(id).ok()));
    let resumed = match (wishes.resume, &known) {
        (false, _) => None,
        (true, known) => {
            let found = known.as_ref().map(|s| s.unfinished(&study.name)).transpose()?.flatten();
            let Some(id) = found else {
                return Err(Failure::new(Exit::Usage, format!("no run of {} was broken off", study.name))
                    .help("`vmio runs list` shows all runs")
                    .into());
            };
            known.as_ref().map(|s| s.load(id)).transpose()?
        }
    };
    if let Some(run) = &resumed {
        study = studies::parse(&format!("run {}", run.id), &run.study_toml)?;
    }
    drop(known);
    let planned = plan::look(study, wishes, last.as_ref(), context, &looker)?;
    term::note(planned.text().trim_end());
    if wishes.dry_run {
        if context.json {
            term::print(&format!("{:#}\n", planned.json()))?;
        }
        term::note("dry run: nothing was changed");
        return Ok(None);
    }
    planned.refuse()?;
    if !wishes.yes {
        match term::confirm("Measure now?") {
            Some(true) => {}
            Some(false) => {
                term::note("nothing was done");
                return Ok(None);
            }
            None => {
                return Err(Failure::new(Exit::Usage, "nobody is there to be asked, so nothing was measured")
                    .help("say --yes to go on without a question, --dry-run for the plan alone")
                    .into());
            }
        }
    }
    execute(&planned, resumed, next, wishes, context).map(Some)
}

/// Everything from the first change to the last undo.
fn execute(
    planned: &Planned,
    resumed: Option<Run>,
    next: Next,
    wishes: &Wishes,
    context: &Context,
) -> anyhow::Result<Run> {
    let journals = context.paths.state.join("journals");
    let recovered = recover(&journals);
    for undone in &recovered.undone {
        term::note(&format!("cleaned up after a run that was killed: {undone}"));
    }
    for failed in &recovered.failed {
        term::note(&format!("warning: could not clean up: {failed}"));
    }
    let store = Store::open(&context.paths.db())?;
    let (mut run, fresh) = match resumed {
        Some(run) => {
            store.resume(run.id)?;
            term::note(&format!("resuming run {}: {} samples are there", run.id, run.samples.len()));
            (run, false)
        }
        None => (begin(planned, &store, context)?, true),
    };
    if fresh {
        for skipped in &planned.skipped {
            store.add_skipped(run.id, skipped)?;
        }
        run.skipped = planned.skipped.clone();
    }
    let journal = Arc::new(Journal::open(&journals, &format!("run-{}", run.id))?);
    let stopping = signals::on_signal({
        let (journal, db, id) = (journal.clone(), context.paths.db(), run.id);
        move |name| {
            // Processes end first, so nothing measures on while the rest is undone.
            let failed = journal.close();
            term::note(&format!(
                "\n{name}: ended; run {id} is kept, `--resume` goes on with it, `vmio runs show {id}` shows it"
            ));
            failed.iter().for_each(|f| term::note(&format!("warning: not undone: {f}")));
            if let Ok(store) = Store::open(&db) {
                let _ = store.set_state(id, &RunState::Interrupted(name.to_owned()));
            }
        }
    })
    .context("cannot wait for signals")?;
    let outcome = on_machine(planned, &mut run, next, wishes, context, &store, &journal);
    let store = stopping.exit_or(store);
    let failed = journal.close();
    failed.iter().for_each(|f| term::note(&format!("warning: not undone: {f}")));
    let state = match &outcome {
        Ok(Ended::Done(_)) => RunState::Done,
        Ok(Ended::Stopped(reason)) => RunState::Interrupted(reason.clone()),
        // With something to keep it can be taken up again.
        Err(error) if !run.samples.is_empty() => RunState::Interrupted(format!("{error:#}")),
        Err(error) => RunState::Failed(format!("{error:#}")),
    };
    store.set_state(run.id, &state)?;
    match outcome {
        Ok(Ended::Done(DoneReason::NothingToRun)) if run.samples.is_empty() => {
            let why = run.skipped.last().map_or_else(String::new, |s| format!(": {}", s.reason));
            Err(Failure::new(Exit::Precondition, format!("nothing could be measured{why}")).into())
        }
        Ok(Ended::Done(reason)) => {
            term::note(&format!("done: {reason}"));
            Ok(store.load(run.id)?)
        }
        Ok(Ended::Stopped(reason)) => {
            term::note(&format!("ended early: {reason}"));
            Ok(store.load(run.id)?)
        }
        Err(error) if run.samples.is_empty() => {
            let failure = Failure::new(kind_of(&error), format!("run {} measured nothing", run.id));
            Err(error.context(failure.help("`vmio doctor` lists what this host has and lacks")))
        }
        Err(error) => Err(error.context(
            Failure::new(Exit::Partial, format!("run {} broke off; {} samples are kept", run.id, run.samples.len()))
                .help(format!("`vmio runs show {}` shows them, --resume goes on", run.id)),
        )),
    }
}

/// A host that cannot hold the targets is an unmet precondition, anything else a failure.
fn kind_of(error: &anyhow::Error) -> Exit {
    use vmio_host::targets::Error as Target;
    match error.downcast_ref::<Target>() {
        Some(Target::Space { .. } | Target::NoDirect { .. } | Target::Refused { .. }) => Exit::Precondition,
        _ => Exit::Failed,
    }
}

fn begin(planned: &Planned, store: &Store, context: &Context) -> anyhow::Result<Run> {
    let environment = environment::of(planned, &Local::new());
    let id = store.new_run(&NewRun {
        study: &planned.study.name,
        study_toml: &planned.study.to_toml(),
        command: &context.command,
        started_unix: environment::now(),
        environment: &environment,
        workloads: &planned.traits,
    })?;
    Ok(store.load(id)?)
}

fn on_machine(
    planned: &Planned,
    run: &mut Run,
    next: Next,
    wishes: &Wishes,
    context: &Context,
    store: &Store,
    journal: &Arc<Journal>,
) -> anyhow::Result<Ended> {
    let local: Arc<dyn Node> = Arc::new(Local::owned(journal.clone()));
    let mut progress = Progress::new(&planned.study, &planned.cost);
    let say = |text: &str| term::note(text);
    let watcher =
        planned.gentle.then(|| gentle::Watcher::start(local.clone(), journal, planned.device_number(&*local)));
    let watcher = match watcher {
        None => None,
        Some(Ok(watcher)) => {
            term::note(&format!("gentle: watching the other guests for {} s before any load", gentle::QUIET.as_secs()));
            watcher.settle();
            Some(watcher)
        }
        Some(Err(why)) => {
            term::note(&format!(
                "gentle: the other guests' latency is not visible here, so only the cap and the one core hold: {why}"
            ));
            None
        }
    };
    let mut machine = Machine::prepare(
        Parts {
            study: &planned.study,
            store,
            local,
            journal: journal.clone(),
            backing: planned.backing.clone(),
            dir: planned.dir.clone(),
            device: wishes.device.first().cloned(),
            force: wishes.force,
            run_dir: context.paths.runtime.clone(),
            state_dir: context.paths.state.clone(),
            progress: &say,
        },
        run,
    )?;
    if planned.gentle {
        machine.be_gentle(wishes.gentle_share, watcher)?;
    }
    let began = Instant::now();
    let ended = engine::measure(
        &planned.study,
        next,
        run,
        store,
        &mut machine,
        &|| began.elapsed().as_secs_f64(),
        &mut |event| progress.tell(&event),
    );
    progress.end();
    machine.finish();
    ended
}

/// Shows a run and says how it ended.
fn finish(run: &Run, forms: &Forms, fail_on: Option<Severity>, context: &Context) -> Outcome {
    let store = Store::open_existing(&context.paths.db())?;
    let proofs = crate::cmd::runs::proofs_of(&store, run.id)?;
    let report = Report::of(run).with_proofs(&proofs);
    term::print(&match () {
        () if context.json => report::json(&report),
        () if forms.markdown => report::markdown(&report),
        () => report::text(&report, context.style),
    })?;
    if let Some(file) = &forms.html {
        std::fs::write(file, report::html(&report))
            .with_context(|| Failure::new(Exit::Failed, format!("cannot write {}", file.display())))?;
        term::note(&format!("report written to {}", file.display()));
    }
    if fail_on.is_some_and(|least| report.findings.iter().any(|f| f.severity >= least)) {
        return Ok(Exit::Finding);
    }
    Ok(exit_of(run))
}

fn exit_of(run: &Run) -> Exit {
    if matches!(run.state, RunState::Done) { Exit::Done } else { Exit::Partial }
}
