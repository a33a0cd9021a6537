//! Delay and jitter as targets of a class: how long its packets may wait on this host, and by how much their waits may
//! differ. A packet that finds the queue empty does not wait, so the longest wait is also the largest difference, and
//! the stricter of the two targets holds for both. The check of a policy chooses what it leaves open, and refuses
//! targets that are below the bound of [`super::compile::waits`].

use std::collections::BTreeMap;
use std::time::Duration;

use super::Class;

/// Priority of a class with a target, where none is written: behind the host, before all others.
pub const PRIORITY: u8 = 2;

/// Targets of a class, and what was chosen for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelayTarget {
    /// Longest wait of a packet.
    pub delay: Option<Duration>,
    /// Largest difference between the waits of two packets.
    pub jitter: Option<Duration>,
    /// The queue that was chosen; `None` where the class has one written, or no interface.
    pub queue: Option<Duration>,
    /// Longest wait beside the certain members of its pools; `None` where the class has no interface.
    pub longest: Option<Duration>,
}

impl DelayTarget {
    /// The target that holds for both.
    pub fn strictest(&self) -> Duration {
        self.delay.into_iter().chain(self.jitter).min().unwrap_or(Duration::MAX)
    }
}

/// Whether any class has a target: then waits are measured where nothing else is written.
pub fn has_targets(classes: &BTreeMap<String, Class>) -> bool {
    classes.values().any(|class| class.delay.is_some())
}

/// A wait in milliseconds, rounded up to a tenth.
pub fn shown(wait: Duration) -> String {
    format!("{:.1} ms", (wait.as_secs_f64() * 10_000.0).ceil() / 10.0)
}
