//! A meter of the user's is tried before anything is measured, so that no run ends without what it was to tell.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use vmio_node::Node;

use super::super::command::{self, LIMIT};
use super::super::power_command::PowerCommand;
use super::super::{ProbeSubject, Unseen};

/// Watches a meter as it is watched in a cell.
///
/// # Errors
/// Why it tells too little of such a cell.
pub(super) fn tells(node: &Arc<dyn Node>, meter: &ProbeSubject, seconds: f64) -> Result<(), Unseen> {
    let watched = |time: Duration| {
        let mut notes = Vec::new();
        let seen = command::start(&PowerCommand, meter, node).and_then(|looking| {
            thread::sleep(time);
            looking.stop(&mut notes)
        });
        seen.map(drop).map_err(|why| match why {
            // Why a run ends is stored, and its command may have a password in it.
            Unseen::Command { said, .. } => Unseen::Command { command: "--power-command".to_owned(), said },
            Unseen::FewReadings | Unseen::SeldomTold { .. } => {
                notes.insert(0, why.to_string());
                Unseen::TooSlow { seconds, why: notes.join("; ") }
            }
            why => why,
        })
    };
    // A long cell is waited out only where less does not do.
    let cell = Duration::from_secs_f64(seconds);
    let first = watched(cell.min(LIMIT));
    if first.is_ok() || cell <= LIMIT { first } else { watched(cell) }
}
