//! The other guests on the host of a plan, and how they are spared.

use vmio_model::words::verb;
use vmio_rig::engine::plan::Planned;
use vmio_rig::gentle::instance::Unseen;

use super::Rows;

/// Most other guests that are named.
const SHOWN: usize = 5;

/// The other guests, and whether they are spared.
pub(super) fn others(plan: &Planned, rows: &mut Rows) {
    let mut who: Vec<String> = plan.others.guests.iter().take(SHOWN).map(|g| g.label()).collect();
    if let Some(more) = plan.others.guests.len().checked_sub(SHOWN).filter(|n| *n > 0) {
        who.push(format!("{more} more"));
    }
    let (who, n) = (who.join(", "), plan.others.guests.len());
    let (run, they_slow) = (verb(n, "run"), if n == 1 { "it slows" } else { "they slow" });
    // What cannot be capped does not run.
    let any_runs = !plan.measures_nothing();
    match (who.is_empty(), plan.gentle) {
        (true, false) => {
            rows.put("others", plan.others.unseen().unwrap_or("no other guest runs on this host"));
        }
        (true, true) => {
            let capped = if any_runs { ": bandwidth capped" } else { "; no cell is left to run" };
            rows.put("others", format!("no other guest runs on this host; --gentle given{capped}"));
            if let Some(unseen) = plan.latency_unseen.as_ref().filter(|_| any_runs) {
                unseen_latency("should one start, the run continues when it slows down", unseen, rows);
            }
        }
        (false, true) => {
            rows.put("others", format!("{who} {run} here:"));
            match (any_runs, &plan.latency_unseen) {
                (true, None) => {
                    rows.put("", format!("gentle: bandwidth capped; the run ends when {they_slow} down"));
                }
                (true, Some(unseen)) => {
                    rows.put("", "gentle: bandwidth capped, one core used. Other guests get no further protection");
                    unseen_latency(&format!("the run continues when {they_slow} down"), unseen, rows);
                }
                (false, _) => rows.put("", "gentle: no cell is left to run"),
            }
        }
        (false, false) => rows.put("others", format!("{who} {run} here unprotected (--no-gentle)")),
    }
}

/// Where others' latency is not visible: what the run does then, why it is not, and what would help.
fn unseen_latency(what_follows: &str, unseen: &Unseen, rows: &mut Rows) {
    rows.put("", format!("other guests' latency cannot be watched: {}; {what_follows}", unseen.why));
    if let Some(help) = &unseen.mend {
        rows.put("", format!("help: {help}"));
    }
}
