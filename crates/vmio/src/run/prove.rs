//! `--prove`: a study of two cells, a finding's set-up as it is and with the change applied,
//! interleaved in the same boots.

use vmio_model::failure::{Exit, Failure};
use vmio_model::kind::RunKind;
use vmio_model::rules::Finding;
use vmio_model::run::Run;
use vmio_model::study::Study;

use crate::context::Context;
use crate::report::Report;
use crate::store::Store;
use crate::studies;

/// Rounds of a proof: enough for the interval of a gain of a few percent here.
const ROUNDS: u32 = 8;
/// Minutes that a proof may take.
const MINUTES: f64 = 5.0;

/// What the plan of the base run says of the proof.
pub fn plan_note(rule: &str) -> String {
    let finding = if rule.is_empty() { "the costliest finding".to_owned() } else { format!("the finding {rule}") };
    format!(
        "{finding} is proven, if its change can be measured: a run that measures its set-up with and without the \
         change, {ROUNDS} rounds or more, at most {MINUTES:.0} min of measuring (--prove); its plan is shown first"
    )
}

/// What the plan of a proof says of the run whose finding it proves.
pub fn then_note(base: i64) -> String {
    format!("the gain is shown with the finding of run {base} (--of {base})")
}

/// The newest run of a study with a finding that can be proven.
pub fn newest(study: &Study, rule: &str, context: &Context) -> Option<Run> {
    let store = Store::open_existing(&context.paths.db()).ok()?;
    let kind = RunKind::from(study.name.as_str());
    let runs = store.list().ok()?;
    let newest = runs.iter().find(|run| run.kind == kind && run.samples > 0)?;
    let run = store.load(newest.id).ok()?;
    study_of(&run, rule).ok()??;
    Some(run)
}

/// The study that proves a finding of a run: the one of this rule, or the costliest. `None` when
/// no finding has a change that can be measured.
pub fn study_of(run: &Run, rule: &str) -> anyhow::Result<Option<Study>> {
    let report = Report::of(run);
    let rules = |of: &mut dyn Iterator<Item = &Finding>| {
        let mut names: Vec<&str> = of.map(|f| f.rule.as_str()).collect();
        names.dedup();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let mut provable = report.findings.iter().filter(|f| f.proof.is_some());
    let found = if rule.is_empty() {
        provable.next()
    } else if let Some(found) = report.findings.iter().find(|f| f.rule == rule && f.proof.is_some()) {
        Some(found)
    } else {
        let what = if report.findings.iter().any(|f| f.rule == rule) {
            format!("the finding {rule} of run {} has no change that can be measured", run.id)
        } else {
            format!("run {} has no finding {rule}", run.id)
        };
        let help = format!("findings that can be proven: {}", rules(&mut provable));
        return Err(Failure::new(Exit::Usage, what).help(help).into());
    };
    let Some(proof) = found.and_then(|f| f.proof.as_ref()) else { return Ok(None) };
    let like = studies::parse(&format!("run {}", run.id), &run.study.to_toml())?;
    let mut study = Study { name: RunKind::Proof(run.id).to_string(), ..proof.study(&like) };
    let rounds = ROUNDS.max(study.repeat.min_pairs);
    // Two more, for rounds that are interrupted or fail.
    study.repeat.max_pairs = rounds + 2;
    // Every round counts here: the gain is judged, not the share against native.
    study.repeat.min_pairs = rounds;
    study.repeat.min_boots = rounds;
    study.repeat.max_minutes = MINUTES;
    Ok(Some(study))
}
