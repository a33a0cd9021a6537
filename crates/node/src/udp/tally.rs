//! What a receiver counts, in bounded memory whatever arrives: it is told a datagram and the time, and knows no socket.

use std::collections::BTreeMap;

use super::delays::Delays;
use super::packet::{Kind, Packet};
use super::report::{ReceiveReport, SenderReport};
use super::seconds;

/// Most senders that are told apart.
pub const MOST_SENDERS: usize = 64;
/// Most windows; when they are full, each two become one.
pub const MOST_WINDOWS: usize = 4096;
/// A window at first.
const WINDOW_NS: u64 = 10_000_000;
/// So many sequence numbers behind the highest one it is known which have arrived.
pub const MEMORY: u64 = 65_536;

/// What has arrived.
#[derive(Debug)]
pub struct Tally {
    /// The clock that this receiver has; 0 where it is not known.
    clock: u64,
    window_ns: u64,
    /// When the first packet came.
    began_ns: Option<u64>,
    senders: BTreeMap<u64, Sender>,
    datagrams: u64,
    ends: u64,
    greetings: u64,
    strangers: u64,
    untracked: u64,
}

/// What has arrived of a sender.
#[derive(Debug)]
struct Sender {
    /// Which of the last [`MEMORY`] sequence numbers have arrived, each at its place modulo that.
    arrived: Box<[u64]>,
    highest: Option<u64>,
    /// How many it says that it sent.
    announced: Option<u64>,
    received: u64,
    bytes: u64,
    duplicates: u64,
    reordered: u64,
    too_old: u64,
    first_ns: u64,
    last_ns: u64,
    delays: Delays,
    windows: Vec<u64>,
}

/// What a sequence number is among those that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Next,
    Behind,
    Again,
    TooOld,
}

impl Sender {
    fn new(now_ns: u64) -> Self {
        Self {
            arrived: vec![0; (MEMORY / 64) as usize].into(),
            highest: None,
            announced: None,
            received: 0,
            bytes: 0,
            duplicates: 0,
            reordered: 0,
            too_old: 0,
            first_ns: now_ns,
            last_ns: now_ns,
            delays: Delays::default(),
            windows: Vec::new(),
        }
    }

    /// Marks a sequence number; whether it was marked.
    fn mark(&mut self, sequence: u64) -> bool {
        let at = sequence % MEMORY;
        let (word, bit) = (&mut self.arrived[(at / 64) as usize], 1 << (at % 64));
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    /// Unmarks a row of sequence numbers, word by word: who jumps on purpose makes no work.
    fn forget(&mut self, from: u64, to: u64) {
        if to - from >= MEMORY {
            self.arrived.fill(0);
            return;
        }
        let mut at = from;
        while at <= to {
            let bit = at % 64;
            let count = (64 - bit).min(to - at + 1);
            self.arrived[(at % MEMORY / 64) as usize] &= !((u64::MAX >> (64 - count)) << bit);
            let Some(next) = at.checked_add(count) else { break };
            at = next;
        }
    }

    fn place(&mut self, sequence: u64) -> Place {
        let next = match self.highest {
            None => true,
            Some(highest) if sequence > highest => {
                // Those in between have not arrived.
                self.forget(highest + 1, sequence);
                true
            }
            Some(highest) if highest - sequence >= MEMORY => return Place::TooOld,
            Some(_) => false,
        };
        if next {
            self.highest = Some(sequence);
        }
        match (self.mark(sequence), next) {
            (_, true) => Place::Next,
            (true, false) => Place::Again,
            (false, false) => Place::Behind,
        }
    }

    fn report(&self, name: u64, bound_ns: u64) -> SenderReport {
        let seen = self.highest.map_or(0, |highest| highest.saturating_add(1));
        // The announced number is ignored if more arrived.
        let sent = self.announced.unwrap_or(0).max(seen);
        SenderReport {
            sender: shown(name),
            sent,
            sent_is_told: self.announced.is_some_and(|announced| announced >= seen),
            received: self.received,
            bytes: self.bytes,
            lost: sent.saturating_sub(self.received),
            duplicates: self.duplicates,
            reordered: self.reordered,
            too_old: self.too_old,
            first_second: seconds(self.first_ns.saturating_sub(bound_ns)),
            last_second: seconds(self.last_ns.saturating_sub(bound_ns)),
            delay_on_one_clock: self.delays.report(),
            bytes_by_window: self.windows.clone(),
        }
    }
}

/// A sender's name as it is printed: JSON's numbers are not exact to 64 bits everywhere.
pub(super) fn shown(sender: u64) -> String {
    format!("{sender:016x}")
}

impl Tally {
    /// Nothing yet, for a receiver with this clock.
    pub fn new(clock: u64) -> Self {
        let (began_ns, senders) = (None, BTreeMap::new());
        let (datagrams, ends, greetings, strangers, untracked) = Default::default();
        Self { clock, window_ns: WINDOW_NS, began_ns, senders, datagrams, ends, greetings, strangers, untracked }
    }

    /// A datagram arrived: its answer, where it is a greeting.
    pub fn add(&mut self, bytes: &[u8], now_ns: u64) -> Option<Packet> {
        self.datagrams += 1;
        match Packet::read(bytes) {
            Some(greeting) if greeting.kind == Kind::Greeting => {
                self.greetings += 1;
                return Some(Packet { kind: Kind::Answer, ..greeting });
            }
            Some(packet) if packet.kind != Kind::Answer => self.count(packet, bytes.len() as u64, now_ns),
            _ => self.strangers += 1,
        }
        None
    }

    fn count(&mut self, packet: Packet, bytes: u64, now_ns: u64) {
        if !self.senders.contains_key(&packet.sender) && self.senders.len() >= MOST_SENDERS {
            self.untracked += 1;
            return;
        }
        let sender = self.senders.entry(packet.sender).or_insert_with(|| Sender::new(now_ns));
        if packet.kind == Kind::End {
            self.ends += 1;
            sender.announced = sender.announced.max(Some(packet.sequence));
            return;
        }
        if sender.highest.is_none() {
            sender.first_ns = now_ns;
        }
        sender.last_ns = now_ns;
        match sender.place(packet.sequence) {
            Place::Next => {}
            Place::Behind => sender.reordered += 1,
            Place::Again => {
                sender.duplicates += 1;
                return;
            }
            Place::TooOld => {
                sender.too_old += 1;
                return;
            }
        }
        sender.received += 1;
        sender.bytes += bytes;
        if packet.clock == self.clock && self.clock != 0 && packet.sent_ns <= now_ns {
            sender.delays.add(now_ns - packet.sent_ns);
        }
        let began = *self.began_ns.get_or_insert(now_ns);
        let window = self.window(now_ns.saturating_sub(began));
        // Looked up again, since windows are those of all senders.
        if let Some(sender) = self.senders.get_mut(&packet.sender) {
            if sender.windows.len() <= window {
                sender.windows.resize(window + 1, 0);
            }
            sender.windows[window] += bytes;
        }
    }

    /// The window of a time, all of them made wider until there are few enough.
    fn window(&mut self, after_ns: u64) -> usize {
        while after_ns / self.window_ns >= MOST_WINDOWS as u64 {
            self.window_ns *= 2;
            for sender in self.senders.values_mut() {
                sender.windows = sender.windows.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        (after_ns / self.window_ns) as usize
    }

    /// How many senders have said that they are done.
    pub fn done(&self) -> usize {
        self.senders.values().filter(|sender| sender.announced.is_some()).count()
    }

    /// Datagrams so far.
    pub fn datagrams(&self) -> u64 {
        self.datagrams
    }

    /// All of it, for a receiver that had its port from then on.
    pub fn report(&self, bound_ns: u64, now_ns: u64, buffer_drops: Option<u64>) -> ReceiveReport {
        ReceiveReport {
            seconds: seconds(now_ns.saturating_sub(bound_ns)),
            datagrams: self.datagrams,
            ends: self.ends,
            greetings: self.greetings,
            strangers: self.strangers,
            untracked: self.untracked,
            buffer_drops,
            real_time: false,
            window_seconds: seconds(self.window_ns),
            senders: self.senders.iter().map(|(name, sender)| sender.report(*name, bound_ns)).collect(),
        }
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
