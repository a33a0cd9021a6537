//! What generator and receiver print: one line of JSON each.

use serde::{Deserialize, Serialize};

/// What the generator did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SendReport {
    /// Which sender it was, as in the receiver's report.
    pub sender: String,
    /// Bytes of payload of each packet.
    pub bytes: u64,
    /// Seconds from the first moment of the schedule until all was sent: the schedule's length at least.
    pub seconds: f64,
    /// Packets that were due: `sent` and `never_sent` together.
    pub scheduled: u64,
    /// Packets that the kernel took. What a queue of the sender's own machine dropped afterwards is lost, not
    /// never sent: the kernel does not tell.
    pub sent: u64,
    /// Packets that were due and are not sent, by the reason.
    pub never_sent: NeverSent,
    /// Packets that were sent later than [`SendReport::allowed_late_seconds`] after they were due.
    pub late: u64,
    /// By how much a packet may be late: 1 ms or eight gaps between packets, whichever is more; the least of all rates.
    pub allowed_late_seconds: f64,
    /// By how much the latest one was.
    pub worst_late_seconds: f64,
    /// Whether it had real-time priority, which is root's to give.
    pub real_time: bool,
    /// Whether it waited where the socket's buffer was full (`--blocking`).
    pub blocking: bool,
    /// Packets that were not due any more when a sender that waits was let on; not among `scheduled`.
    pub held_back: u64,
    /// Seconds that it waited so.
    pub held_seconds: f64,
    /// Bits of payload a second that were sent.
    pub sent_bits_per_second: f64,
}

/// Packets that were due and are not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NeverSent {
    /// The socket's buffer was full (EAGAIN).
    pub buffer_full: u64,
    /// The kernel had no room (ENOBUFS, ENOMEM).
    pub no_room: u64,
    /// Nobody has the port at the other end (ECONNREFUSED).
    pub refused: u64,
    /// Another error.
    pub other: u64,
    /// The generator was behind its schedule until the end: these were never come to. They count as late.
    pub no_time: u64,
}

impl NeverSent {
    /// All of them.
    pub fn all(&self) -> u64 {
        let Self { buffer_full, no_room, refused, other, no_time } = *self;
        [buffer_full, no_room, refused, other, no_time].into_iter().fold(0, u64::saturating_add)
    }
}

impl SendReport {
    /// The share of what was due that the generator itself was late with or never came to; 0 where nothing was due.
    pub fn late_ratio(&self) -> f64 {
        let late = self.late.saturating_add(self.never_sent.no_time);
        if self.scheduled == 0 { 0.0 } else { late as f64 / self.scheduled as f64 }
    }
}

/// What the receiver saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiveReport {
    /// Seconds from when it had its port to its end.
    pub seconds: f64,
    /// Datagrams in all: those of `senders`, `ends`, `greetings`, `strangers` and `untracked` together.
    pub datagrams: u64,
    /// Datagrams that say how many a sender sent.
    pub ends: u64,
    /// Datagrams that ask whether the receiver is there. Each was answered.
    pub greetings: u64,
    /// Datagrams that are no packets of a generator.
    pub strangers: u64,
    /// Packets of more senders than are told apart (64).
    pub untracked: u64,
    /// Datagrams that its own socket's buffer had no room for: lost, but not on the way. `None` where the kernel does
    /// not tell.
    pub buffer_drops: Option<u64>,
    /// Whether it had real-time priority.
    pub real_time: bool,
    /// Seconds of each entry of `bytes_by_window`: 0.01, or twice that as often as needed to have 4,096 at most.
    pub window_seconds: f64,
    /// Each sender, in the order of their names.
    pub senders: Vec<SenderReport>,
}

/// What the receiver saw of a sender. `received` and `lost` are together `sent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SenderReport {
    /// Which sender, as in its own report.
    pub sender: String,
    /// Packets that it sent: as it said at its end, else as far as its highest sequence number tells.
    pub sent: u64,
    /// Whether it said so itself. Without, those that were lost at the end are not known.
    pub sent_is_told: bool,
    /// Packets that arrived, each once.
    pub received: u64,
    /// Bytes of payload of those.
    pub bytes: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Packets that arrived once more.
    pub duplicates: u64,
    /// Packets that arrived behind one with a higher number; they are received.
    pub reordered: u64,
    /// Packets that arrived so far behind that it is not known whether they had arrived before; they are not received.
    pub too_old: u64,
    /// Seconds from when the receiver had its port to the first packet, and to the last.
    pub first_second: f64,
    /// See there.
    pub last_second: f64,
    /// From sending to receipt, both as the programs saw them; only where both have one clock, which is told by the
    /// kernel's boot and time namespace: on one host, never in a guest and its host.
    pub delay_on_one_clock: Option<Delay>,
    /// Bytes of payload that arrived in each window, from the receiver's first packet of any sender on.
    pub bytes_by_window: Vec<u64>,
}

/// Times from sending to receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Packets that were timed.
    pub packets: u64,
    /// Their mean.
    pub mean_seconds: f64,
    /// (percentile 0 to 100, seconds), rising, within 1.6 %.
    pub percentiles: Vec<(f64, f64)>,
}
