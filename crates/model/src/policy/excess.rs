//! What becomes of traffic above a maximum: it waits in a queue, or a token bucket before the queue drops it.

use std::time::Duration;

use super::units::show_time;
use super::{Class, Policy};
use crate::words::first_of;

/// What becomes of what is above a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Excess {
    /// It waits, and is dropped where the queue has no room.
    #[default]
    Queue,
    /// It is dropped at once. How long a full bucket lasts at the maximum; `None` for that of a queue's bucket.
    Drop(Option<Duration>),
}

impl Excess {
    /// As the policy has them.
    pub const WORDS: [&'static str; 2] = ["queue", "drop"];
    /// Longest burst: more is no limit for what is looked at.
    pub const MOST_BURST: Duration = Duration::from_secs(1);

    /// As the policy has it.
    pub fn word(self) -> &'static str {
        Excess::WORDS[usize::from(self.drops())]
    }

    /// Whether it is dropped at once.
    pub fn drops(self) -> bool {
        matches!(self, Excess::Drop(_))
    }

    /// How long a full bucket lasts, where that is written.
    pub fn burst(self) -> Option<Duration> {
        match self {
            Excess::Drop(burst) => burst,
            Excess::Queue => None,
        }
    }

    /// As it is shown beside other settings; `None` of a queue.
    pub fn shown(self) -> Option<String> {
        let burst = self.burst().map_or_else(String::new, |burst| format!(", burst {}", show_time(burst)));
        self.drops().then(|| format!("excess drop{burst}"))
    }
}

/// Most classes that the note names.
const NAMED: usize = 8;

/// What it means that classes drop; `None` where none does.
pub fn note(policy: &Policy) -> Option<String> {
    let drops = |class: &Class| class.excess.drops() || class.flows.iter().any(|flow| flow.excess.drops());
    let all: Vec<&str> =
        policy.classes.iter().filter(|(_, class)| drops(class)).map(|(name, _)| name.as_str()).collect();
    (!all.is_empty()).then(|| {
        format!(
            "excess is dropped: what is above a maximum of {} is lost at once and not held back in the guest. \
             Senders that do not slow down get the maximum; TCP gets a fraction of it (docs/guard.md, Excess)",
            first_of(&all, NAMED)
        )
    })
}
