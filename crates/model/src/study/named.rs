//! Cells whose actors are named one by one (`[[cell]]`), as written.

use serde::{Deserialize, Serialize};

use crate::cell::{Actor, Attachment, Cell, Millis, Nic, Settings, Shape, Side, State, Subject};

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedCell {
    /// Its actors, the leading one first; never empty.
    pub actors: Vec<NamedActor>,
    /// Its settings.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub settings: Settings,
}

/// An actor, with one of `disk`, `path` and `machine`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedActor {
    /// Entry of `guests/`.
    pub side: String,
    /// Number of the guest among those of its shape, from 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub nth: u32,
    /// Differences from `[guest]`.
    #[serde(default, skip_serializing_if = "Shape::is_plain")]
    pub shape: Shape,
    /// A disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<NamedDisk>,
    /// A path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<NamedPath>,
    /// The machine itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub machine: bool,
    /// Entry of `workloads/`.
    pub workload: String,
    /// Start, in seconds after the cell's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_seconds: f64,
    /// Duration in seconds; `None` for `repeat.seconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// A disk of an actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedDisk {
    /// Entry of `disks/targets/`.
    pub target: String,
    /// State; `None` for the workload's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// How the guest sees it; `None` natively.
    #[serde(flatten)]
    pub attachment: Option<Attachment>,
}

/// A path of an actor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NamedPath {
    /// Entry of `nets/`.
    pub network: String,
    /// The peer.
    pub peer: String,
    /// Card model; `None` natively.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// Whether the host's kernel moves the packets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vhost: bool,
    /// Number of queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Size of the receive ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
    /// A co-sender's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub co_sender: Option<String>,
}

fn first() -> u32 {
    1
}

fn is_first(nth: &u32) -> bool {
    *nth == 1
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

impl NamedCell {
    /// The cell; `None` without an actor.
    pub fn cell(&self) -> Option<Cell> {
        let mut actors = self.actors.iter().map(NamedActor::actor);
        Some(Cell { lead: actors.next()?, beside: actors.collect(), settings: self.settings.clone() })
    }
}

impl From<&Cell> for NamedCell {
    fn from(cell: &Cell) -> Self {
        Self { actors: cell.actors().map(NamedActor::from).collect(), settings: cell.settings.clone() }
    }
}

impl From<&Actor> for NamedActor {
    fn from(actor: &Actor) -> Self {
        let Actor { side, subject, workload, start, duration } = actor;
        let mut named = NamedActor {
            side: side.kind.clone(),
            nth: side.nth.saturating_add(1),
            shape: side.shape.clone(),
            disk: None,
            path: None,
            machine: false,
            workload: workload.clone(),
            start_seconds: start.seconds(),
            seconds: duration.map(Millis::seconds),
        };
        match subject.clone() {
            Subject::Disk { target, attachment, state } => {
                named.disk = Some(NamedDisk { target, state, attachment });
            }
            Subject::Path { network, peer, nic, co_sender } => {
                let (nic, vhost, queues, ring) = match nic {
                    Some(Nic { model, vhost, queues, ring }) => (Some(model), vhost, queues, ring),
                    None => (None, false, None, None),
                };
                named.path = Some(NamedPath { network, peer, nic, vhost, queues, ring, co_sender });
            }
            Subject::Machine => named.machine = true,
        }
        named
    }
}

impl NamedActor {
    fn actor(&self) -> Actor {
        let nic =
            |p: &NamedPath| p.nic.clone().map(|model| Nic { model, vhost: p.vhost, queues: p.queues, ring: p.ring });
        let subject = match (&self.disk, &self.path) {
            (Some(NamedDisk { target, state, attachment }), _) => {
                Subject::Disk { target: target.clone(), attachment: attachment.clone(), state: *state }
            }
            (_, Some(p)) => {
                let (network, peer) = (p.network.clone(), p.peer.clone());
                Subject::Path { network, peer, nic: nic(p), co_sender: p.co_sender.clone() }
            }
            (None, None) => Subject::Machine,
        };
        Actor {
            side: Side { shape: self.shape.clone(), nth: self.nth.saturating_sub(1), ..Side::of(self.side.clone()) },
            subject,
            workload: self.workload.clone(),
            start: Millis::from_seconds(self.start_seconds),
            duration: self.seconds.map(Millis::from_seconds),
        }
    }
}
