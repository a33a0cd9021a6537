//! Who else runs on the host of a plan, and what they get of it.

use vmio_rig::engine::plan::Planned;
use vmio_rig::gentle::instance::Unseen;

/// Most other guests that are named.
const SHOWN: usize = 5;

/// Who they are, and whether they are spared.
pub(super) fn others(plan: &Planned, row: &mut dyn FnMut(&str, String)) {
    let mut who: Vec<String> = plan.others.guests.iter().take(SHOWN).map(|g| g.label()).collect();
    if let Some(more) = plan.others.guests.len().checked_sub(SHOWN).filter(|n| *n > 0) {
        who.push(format!("{more} more"));
    }
    let who = who.join(", ");
    // What cannot be capped does not run.
    let any_runs = !plan.measures_nothing();
    match (who.is_empty(), plan.gentle) {
        (true, false) => {
            let seen = plan.others.unseen();
            row("others", seen.map_or("no other guest runs on this host".into(), str::to_owned));
        }
        (true, true) => {
            let capped = if any_runs { ": bandwidth is capped" } else { ", and no cell is left to run" };
            row("others", format!("no other guest runs on this host; gentle all the same{capped}"));
            if let Some(unseen) = plan.latency_unseen.as_ref().filter(|_| any_runs) {
                unseen_latency("should one start, the run goes on when it slows down", unseen, row);
            }
        }
        (false, true) => {
            row("others", format!("{who} run here:"));
            match (any_runs, &plan.latency_unseen) {
                (true, None) => {
                    row("", "gentle, bandwidth is capped, the run ends when they slow down".into());
                }
                (true, Some(unseen)) => {
                    row("", "gentle, bandwidth is capped and one core is used: that is all they get".into());
                    unseen_latency("the run goes on when they slow down", unseen, row);
                }
                (false, _) => row("", "gentle, and no cell is left to run".into()),
            }
        }
        (false, false) => row("others", format!("{who} run here and are not spared (--no-gentle)")),
    }
}

/// What follows where others' latency is not visible, why it is not, and what to do.
fn unseen_latency(what_follows: &str, unseen: &Unseen, row: &mut dyn FnMut(&str, String)) {
    row("", format!("{what_follows}, for their latency is not visible here: {}", unseen.why));
    if let Some(mend) = &unseen.mend {
        row("", format!("help: {mend}"));
    }
}
