//! What a hypervisor asks of its host for the disks of its guest: system calls, and requests by io_uring. All figures
//! are sums over an interval.

use super::Latency;

/// Requests of one kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Calls {
    /// Their bytes; of submissions the requests that these handed over.
    pub done: u64,
    /// Sum of their times, each from its beginning to its end.
    pub seconds: f64,
    /// These times, counted.
    pub latency: Latency,
}

impl Calls {
    /// Adds others.
    pub fn add(&mut self, more: &Calls) {
        self.done += more.done;
        self.seconds += more.seconds;
        self.latency.merge(&more.latency);
    }

    /// How many they are.
    pub fn number(&self) -> u64 {
        self.latency.requests()
    }
}

/// Requests of a hypervisor by kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallLoad {
    /// Reads.
    pub reads: Calls,
    /// Writes.
    pub writes: Calls,
    /// Flushes (fsync and its like) and discards.
    pub flushes: Calls,
    /// Calls of io_submit(2). The requests that they hand over end without a system call, so those are not timed.
    pub submissions: Calls,
}

impl CallLoad {
    /// Writes and flushes together.
    pub fn changes(&self) -> Calls {
        let mut all = self.writes.clone();
        all.add(&self.flushes);
        all
    }
}
