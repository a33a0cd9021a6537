//! Runs a study on this machine: plan, question, measuring, report. `vmio_rig::engine` plans and measures; here is what
//! the user sees of it, and what is stored.

pub mod ended;
mod execute;
pub mod form;
pub mod like;
mod measure;
pub mod noise;
mod options;
mod progress;
mod prove;
pub mod reach;
pub mod signals;

use vmio_model::failure::Exit;
use vmio_model::kind::RunKind;
use vmio_model::result::Environment;
use vmio_model::rules::Severity;
use vmio_model::run::Run;
use vmio_model::study::Study;
use vmio_rig::engine::measure::{Next, next_noise};

use crate::context::{Context, Outcome};
use crate::report::{Forms, Report};
use crate::store::{RunId, RunInfo, Store, proofs_of};
use crate::term;
use measure::measure;

pub use options::RunOptions;

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
        of: Option<RunId>,
    },
}

/// Runs a study from plan to report.
pub fn start(
    study: &Study,
    mode: Mode,
    options: &RunOptions,
    forms: &Forms,
    fail_on: Option<Severity>,
    context: &Context,
) -> Outcome {
    options.check()?;
    forms.check()?;
    match mode {
        // A/A cells are not set-ups of which one is better, so there is no report of them.
        Mode::Noise => forms.has_no_report()?,
        Mode::Study | Mode::Prove { .. } => forms.suits(&format!("the study {}", study.name), &study.cells())?,
    }
    let run = match &mode {
        Mode::Study => measure(study, engine_order(&mode), options, context)?,
        Mode::Noise => {
            let mut study = study.clone();
            study.name = RunKind::Noise(study.name).to_string();
            let run = measure(&study, engine_order(&mode), options, context)?;
            let Some(run) = run else { return Ok(Exit::Done) };
            noise::show(&run, context)?;
            return Ok(ended::exit_of(&run));
        }
        Mode::Prove { rule, of } => {
            let stored = match of {
                Some(id) => {
                    let store = Store::open_existing(&context.paths.db())?;
                    Some(store.load(id.find(&store)?)?)
                }
                // The plan of a proof needs a finding: that of the newest run of this study.
                None if options.dry_run => prove::newest(study, rule, context),
                None => None,
            };
            let is_stored = stored.is_some();
            let base = match stored {
                Some(stored) => Some(stored),
                None => {
                    let options = RunOptions { then: Some(prove::plan_note(rule)), ..options.clone() };
                    measure(study, engine_order(&mode), &options, context)?
                }
            };
            let Some(base) = base else { return Ok(Exit::Done) };
            let Some(proof) = prove::study_of(&base, rule)? else {
                term::note("no finding of this run has a change that could be measured: nothing to prove");
                return finish(&base, forms, fail_on, context);
            };
            // --resume was for the base run, unless that is a stored one.
            let options = RunOptions {
                resume: options.resume && of.is_some(),
                then: options.dry_run.then(|| prove::then_note(base.id)),
                ..options.clone()
            };
            let Some(run) = measure(&proof, engine_order(&mode), &options, context)? else {
                // Only the plan, or no: what was measured now is shown all the same.
                return if is_stored { Ok(Exit::Done) } else { finish(&base, forms, fail_on, context) };
            };
            term::note(&format!("proof measured as run {}", run.id));
            Some(base)
        }
    };
    match run {
        None => Ok(Exit::Done),
        Some(run) => finish(&run, forms, fail_on, context),
    }
}

fn engine_order(mode: &Mode) -> Next {
    if *mode == Mode::Noise { next_noise } else { vmio_model::study::next }
}

/// The proofs of a run's findings; notes those that cannot be read.
pub fn proofs(store: &Store, run: i64) -> anyhow::Result<Vec<Run>> {
    let (proofs, unread) = proofs_of(store, run)?;
    unread.iter().for_each(|e| term::note(&format!("warning: a proof of this run is left out: {e}")));
    Ok(proofs)
}

/// The newest run of the same study on the same storage without `--gentle`, for a run under it.
pub fn uncapped(store: &Store, run: &Run) -> Option<Run> {
    run.environment.cap_ratio?;
    let here = |e: &Environment| (e.backing.clone(), e.cpu.clone(), e.node.clone(), e.modelled.clone());
    let same = |info: &&RunInfo| {
        let environment = &info.environment;
        info.kind == run.kind
            && info.samples > 0
            && environment.cap_ratio.is_none()
            && here(environment) == here(&run.environment)
    };
    store.load(store.list().ok()?.iter().find(same)?.id).ok()
}

/// Shows a run and says how it ended.
fn finish(run: &Run, forms: &Forms, fail_on: Option<Severity>, context: &Context) -> Outcome {
    let store = Store::open_existing(&context.paths.db())?;
    let proofs = proofs(&store, run.id)?;
    let report = Report::of(run).with_proofs(&proofs).with_uncapped(uncapped(&store, run).as_ref());
    forms.show(&report, context)?;
    if fail_on.is_some_and(|least| report.findings.iter().any(|f| f.severity >= least)) {
        return Ok(Exit::Finding);
    }
    Ok(ended::exit_of(run))
}
