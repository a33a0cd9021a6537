//! What is said of a run that came to its end, and the code that it ends with.

use vmio_model::failure::Exit;
use vmio_model::result::{Run, RunState, Skipped};
use vmio_model::study::{DoneReason, Study};
use vmio_model::summary::{answers, summarise};

/// The code that a run ends with. One that measured nothing of what it was asked is no more than a part of it.
pub fn exit_of(run: &Run) -> Exit {
    let whole = matches!(run.state, RunState::Done) && answers(run, &summarise(run));
    if whole { Exit::Done } else { Exit::Partial }
}

/// What would let a run go on that this ended.
fn limit(study: &Study, reason: DoneReason) -> Option<String> {
    match reason {
        DoneReason::TimeBudget => Some("--minutes raises the limit".to_owned()),
        DoneReason::ByteBudget => Some("--gib raises the limit".to_owned()),
        DoneReason::MaxPairs => {
            Some(format!("for more rounds raise repeat.max_pairs of the study ({} now)", study.repeat.max_pairs))
        }
        DoneReason::Converged | DoneReason::FewestRounds | DoneReason::LeftOut | DoneReason::NothingToRun => None,
    }
}

/// Why a run ended by itself, what it lacks, and what would help, a line each.
pub fn notes(study: &Study, run: &Run, reason: DoneReason) -> Vec<String> {
    let judged = summarise(run);
    let mut notes = vec![format!("done: {reason}")];
    let (cells, skipped) = (study.cells(), Skipped::keys(&judged.skipped));
    let missing = cells.iter().filter(|cell| skipped.contains(&cell.key())).count();
    if missing > 0 {
        notes.push(format!("{missing} of {} cells could not be measured; the report says why", cells.len()));
    }
    let open = judged.shares.iter().filter(|s| !s.converged).count();
    if open > 0 {
        let limit = limit(study, reason).map_or_else(String::new, |limit| format!("; {limit}"));
        notes.push(format!("{open} of {} shares did not converge{limit}", judged.shares.len()));
    }
    if !answers(run, &judged) {
        notes.push("nothing of what was asked is known".to_owned());
    }
    notes
}
