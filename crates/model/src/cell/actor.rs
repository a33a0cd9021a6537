//! Actors of a cell.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Attachment, Kind, Nic, Side, State, Subject};

/// An end of a path of the actor's own kind: for a guest another guest, else another namespace.
pub const NEIGHBOUR: &str = "neighbour";

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Millis(pub u32);

impl Millis {
    /// None.
    pub const ZERO: Millis = Millis(0);
    /// One second.
    pub const SECOND: Millis = Millis(1000);

    /// From seconds, to the nearest millisecond.
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1000.0).round().clamp(0.0, f64::from(u32::MAX)) as u32)
    }

    /// In seconds.
    pub fn seconds(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// As the standard library has it.
    pub fn duration(self) -> Duration {
        Duration::from_millis(u64::from(self.0))
    }

    fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

/// `1.5s`.
impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}s", self.seconds())
    }
}

/// A side that works on a subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// The host itself, or a guest.
    pub side: Side,
    /// What it works on.
    pub subject: Subject,
    /// Entry of `workloads/`: `durable-append`, `seq-write`, …
    pub workload: String,
    /// When it starts, in milliseconds from the start of the cell.
    #[serde(rename = "start_milliseconds", default, skip_serializing_if = "Millis::is_zero")]
    pub start: Millis,
    /// How long it works, in milliseconds; `None`: as long as the study says.
    #[serde(rename = "duration_milliseconds", default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Millis>,
}

impl Actor {
    /// Its target; `None` where it works on no disk.
    pub fn target(&self) -> Option<&str> {
        match &self.subject {
            Subject::Disk { target, .. } => Some(target),
            _ => None,
        }
    }

    /// How its guest sees the target; `None` without a disk, natively, and in a container.
    pub fn attachment(&self) -> Option<&Attachment> {
        match &self.subject {
            Subject::Disk { attachment, .. } => attachment.as_ref(),
            _ => None,
        }
    }

    /// The state of its target that the study names; `None` without a disk, and where the workload's default applies.
    pub fn state(&self) -> Option<State> {
        match self.subject {
            Subject::Disk { state, .. } => state,
            _ => None,
        }
    }

    /// Whether a cache is to serve it.
    pub fn is_warm(&self) -> bool {
        self.state().is_some_and(State::is_warm)
    }

    /// Whether that is a flash cache or, below its guest, the host's page cache, and not the page cache of its own
    /// side.
    pub fn is_warm_below(&self) -> bool {
        match self.state() {
            Some(State::WarmFlash) => true,
            Some(State::WarmHost) => self.attachment().is_some(),
            Some(State::Fresh | State::Filled | State::WarmGuest) | None => false,
        }
    }

    /// The card of its guest; `None` without a path, natively, and in a container.
    pub fn nic(&self) -> Option<&Nic> {
        match &self.subject {
            Subject::Path { nic, .. } => nic.as_ref(),
            _ => None,
        }
    }

    /// The co-sender; `None` where the actor is the only sender.
    pub fn co_sender(&self) -> Option<&str> {
        match &self.subject {
            Subject::Path { co_sender, .. } => co_sender.as_deref(),
            _ => None,
        }
    }

    /// The guest at another end of its path ([`NEIGHBOUR`]): the next of its shape, with the same card. `None` natively
    /// and in containers, where a namespace takes its place.
    pub fn neighbour(&self) -> Option<Actor> {
        let Subject::Path { peer, .. } = &self.subject else { return None };
        let is_end = peer == NEIGHBOUR || self.co_sender() == Some(NEIGHBOUR);
        let is_guest = is_end && !self.side.shares_kernel();
        is_guest.then(|| Actor { side: Side { nth: self.side.nth + 1, ..self.side.clone() }, ..self.clone() })
    }

    /// Makes it the host itself, limited to its side's processors and memory, so that both have the same.
    pub(super) fn go_native(&mut self) {
        self.go_to(Kind::NATIVE.name);
    }

    /// Moves it to a side of another kind; one without a machine has no attachment or card.
    pub(super) fn go_to(&mut self, kind: &str) {
        kind.clone_into(&mut self.side.kind);
        if self.side.shares_kernel() {
            self.side.shape = self.side.shape.natively();
            self.subject.see_no_device();
        }
    }
}
