//! `memory`: how much memory the balloon of the actor's guest leaves it. What the guest gives up is the host's, for its
//! page cache or for other guests. It is set before anything is read into a page cache.
//!
//! The guest's driver gives pages up one after the other, so what counts is what reads back, and it must not give up so
//! much that its programs are killed: below about 100 MiB small ones were.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use vmio_model::cell::{Actor, Cell};
use vmio_model::study::{MIB, WordError};

use super::{Error, Fit, Result, Setting, Undos, Where};
use crate::guests::Balloon;

/// Entry `memory`.
pub struct Memory;

const NAME: &str = "memory";
/// The kernel, the agent and a workload's programs need about as much.
const LEAST_MIB: u32 = 128;
const MOST_MIB: u32 = 1 << 20;
/// How long the guest's driver may take: emulated it gave up 280 MB a second.
const LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Whether a cell has guests whose memory is set.
pub fn is_set_by(cell: &Cell) -> bool {
    cell.settings.contains_key(NAME)
}

impl Setting for Memory {
    fn name(&self) -> &'static str {
        NAME
    }
    fn about(&self) -> &'static str {
        "how much memory the balloon leaves the actor's guest, in MiB"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["256m", "1024m"]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| mib(text).map(spelled)
    }
    fn fits(&self, value: &str, actor: &Actor) -> Fit {
        if actor.side.shares_kernel() {
            return Fit::Nothing("it is for a guest with a balloon, and no actor works in one: leave it out".into());
        }
        match (mib(value), actor.side.shape.memory_mib) {
            (Ok(asked), Some(has)) if asked > has => Fit::Refused(beyond(has)),
            _ => Fit::Sets,
        }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let asked = u64::from(mib(value)?) * MIB;
        let balloon = on.balloon.ok_or_else(|| Error::Refused("the actor's guest has no balloon".into()))?;
        let before = balloon.actual_bytes().map_err(failed)?;
        if asked > before {
            return Err(Error::Refused(beyond(u32::try_from(before / MIB).unwrap_or(u32::MAX))));
        }
        let undo = Arc::clone(balloon);
        undos.in_guest(move |_| reach(&*undo, before, LIMIT).map(drop));
        reach(&**balloon, asked, LIMIT)
    }
}

/// `256m`, and no other spelling of it.
fn spelled(mib: u32) -> String {
    format!("{mib}m")
}

fn mib(text: &str) -> Result<u32, WordError> {
    let wrong = || {
        let (least, most) = (spelled(LEAST_MIB), spelled(MOST_MIB));
        WordError(format!("invalid memory {text:?}: MiB with an m, such as 256m or 1024m, {least} to {most}"))
    };
    let mib = text.strip_suffix('m').and_then(|digits| digits.parse::<u32>().ok());
    mib.filter(|mib| (LEAST_MIB..=MOST_MIB).contains(mib) && spelled(*mib) == text).ok_or_else(wrong)
}

fn beyond(has_mib: u32) -> String {
    format!("the guest has {}, and no balloon gives more: give it more by guest.memory_mib", spelled(has_mib))
}

fn failed(error: crate::guests::Error) -> Error {
    Error::Failed(error.to_string())
}

/// Has a guest brought to that, and waits until it reads back so.
fn reach(balloon: &dyn Balloon, bytes: u64, limit: Duration) -> Result<String> {
    balloon.aim_at(bytes).map_err(failed)?;
    let end = Instant::now() + limit;
    loop {
        let found = balloon.actual_bytes().map_err(failed)?;
        if found == bytes {
            return Ok(format!("{}m", found / MIB));
        }
        if Instant::now() >= end {
            let shown = |bytes: u64| format!("{} MiB", bytes / MIB);
            return Err(Error::NotAsAsked { asked: shown(bytes), found: shown(found) });
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
