//! The name of a cell, which is its key in the store and in reports.

use super::{Actor, Cell, Millis};

impl Cell {
    /// Stable name: `device/qemu/virtio-blk,none,native/seq-write`, `device/native/seq-write`,
    /// `veth.host/native/iperf3-tcp`, `machine/qemu/openssl`. A state named by the study follows its target,
    /// `preallocated+warm-host/native/dd-read`. Actors are joined by ` & `; settings come last, `device/native/seq-read
    /// [read-ahead=4096k]`.
    pub fn key(&self) -> String {
        let actors: Vec<String> = self.actors().map(Actor::key).collect();
        actors.join(" & ") + &self.set()
    }

    /// The key without the leading actor's workload: `device/qemu/virtio-blk,none,native`.
    pub fn place_key(&self) -> String {
        let beside: Vec<String> = self.beside.iter().map(|actor| format!(" & {}", actor.key())).collect();
        self.lead.place_key() + &beside.concat() + &self.set()
    }

    fn set(&self) -> String {
        if self.settings.is_empty() {
            return String::new();
        }
        let all: Vec<String> = self.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!(" [{}]", all.join(", "))
    }
}

impl Actor {
    /// Its part of the cell's name.
    pub fn key(&self) -> String {
        let start = if self.start == Millis::ZERO { String::new() } else { format!("@{}", self.start) };
        let duration = self.duration.map_or_else(String::new, |d| format!("~{d}"));
        format!("{}/{}{start}{duration}", self.place_key(), self.workload)
    }

    /// The same without its workload.
    pub fn place_key(&self) -> String {
        let place = format!("{}/{}", self.subject.place(), self.side);
        self.subject.seen_by().map_or(place.clone(), |seen| format!("{place}/{seen}"))
    }
}
