//! The notes and the exit code of a run that has ended.

use vmio_model::failure::Exit;
use vmio_model::result::Skipped;
use vmio_model::run::Run;
use vmio_model::stats::{Convergence, Ratio, RatioPrecision, known};
use vmio_model::study::{DoneReason, Study};
use vmio_model::summary::{answers, partial, summarise};
use vmio_model::words::{count, two};

/// The exit code of a run. One without a result for any cell that was asked for counts as partial, and one whose shares
/// lack pairs.
pub fn exit_of(run: &Run) -> Exit {
    if partial(run, &summarise(run)).is_none() { Exit::Done } else { Exit::Partial }
}

/// How to raise the limit that ended a run.
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

/// How many shares are open, in words: those with too few pairs, and those with too wide an interval. `None` where all
/// are known.
pub fn open<'a>(shares: impl IntoIterator<Item = &'a Ratio>, rule: &Convergence) -> Option<String> {
    let all: Vec<RatioPrecision> = shares.into_iter().map(|share| known(share, rule)).collect();
    let of = |wanted| all.iter().filter(|known| **known == wanted).count();
    let (early, wide) = (of(RatioPrecision::NotYet), of(RatioPrecision::TooWide));
    let whole = format!("of {} shares ", all.len());
    let needs = format!("{} and {}", count(rule.min_pairs as usize, "pair"), count(rule.min_boots as usize, "boot"));
    let early_text = (early > 0).then(|| format!("{early} {whole}not known yet (each needs {needs})"));
    let whole = if early > 0 { "" } else { &whole };
    let part = rule.half_width_ratio.map_or_else(String::new, |part| format!(" or {} % of itself", two(part * 100.0)));
    let wide_text =
        (wide > 0).then(|| format!("{wide} {whole}wider than ±{} points{part}", two(rule.half_width * 100.0)));
    let texts: Vec<String> = early_text.into_iter().chain(wide_text).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
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
    if let Some(open) = open(judged.shares.iter().map(|s| &s.share_ratio), &study.repeat.convergence()) {
        let limit = limit(study, reason).map_or_else(String::new, |limit| format!("; {limit}"));
        notes.push(format!("not converged: {open}{limit}"));
    }
    if !answers(run, &judged) {
        notes.push("nothing of what was asked is known".to_owned());
    }
    notes
}
