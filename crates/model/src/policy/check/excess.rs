//! Checks of what is dropped above a maximum.

use std::time::Duration;

use super::{Check, DEFAULT, HOST};
use crate::policy::excess::Excess;
use crate::policy::parse::{At, ClassDraft, FlowDraft};
use crate::policy::units::show_time;

impl Check<'_> {
    /// What becomes of the excess of a class; what rules it out is noted.
    pub fn excess(&mut self, class: &str, written: &ClassDraft) -> Excess {
        let key = format!("class.{class}");
        let drops = written.excess.as_ref().filter(|drops| drops.value);
        if let Some(at) = drops.filter(|_| [HOST, DEFAULT].contains(&class)) {
            self.problem(
                at,
                &format!("{key}.excess"),
                "\"drop\" is of guests: what is the host's, or no guest's, waits",
            );
            return Excess::Queue;
        }
        if let Some((at, _)) = drops.zip(written.over_max.as_ref().filter(|over| over.value)) {
            let what = "\"drop\" and over_max = true contradict each other: what is dropped cannot use what is left";
            self.problem(at, &format!("{key}.excess"), what);
        }
        self.dropped(&key, "", (&written.excess, &written.burst), written.max.is_some())
    }

    /// The same of a flow class.
    pub fn excess_of_flow(&mut self, key: &str, flow: &str, draft: &FlowDraft) -> Excess {
        self.dropped(key, flow, (&draft.excess, &draft.burst), draft.max.is_some())
    }

    fn dropped(
        &mut self,
        key: &str,
        who: &str,
        (excess, burst): (&Option<At<bool>>, &Option<At<Duration>>),
        has_max: bool,
    ) -> Excess {
        let drops = excess.as_ref().filter(|drops| drops.value);
        if let Some(at) = drops.filter(|_| !has_max) {
            let what = format!("{who}\"drop\" needs a max: without one nothing is above it");
            self.problem(at, &format!("{key}.excess"), what);
        }
        if let Some(at) = burst {
            let what = match at.value {
                _ if drops.is_none() => format!("{who}needs excess = \"drop\": without it there is no bucket"),
                time if time > Excess::MOST_BURST => format!("{who}{} is out of range: 1 ms to 1 s", show_time(time)),
                _ => String::new(),
            };
            if !what.is_empty() {
                self.problem(at, &format!("{key}.burst"), what);
            }
        }
        drops.map_or(Excess::Queue, |_| Excess::Drop(burst.as_ref().map(|at| at.value)))
    }
}
