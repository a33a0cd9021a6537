//! Subjects that an actor works on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Attachment, State};

/// A subject.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A disk.
    Disk {
        /// Entry of `disks/targets/`: `device`, `sparse`, `preallocated`.
        target: String,
        /// How the guest sees it; `None` natively and in a container.
        attachment: Option<Attachment>,
        /// State before the work; `None` for the workload's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<State>,
    },
    /// A path of a network, from the actor to a peer.
    Path {
        /// Entry of `nets/`, which makes the path and names its ends.
        network: String,
        /// The other end's name in the network: `host`.
        peer: String,
        /// The guest's card; `None` natively and in a container.
        nic: Option<Nic>,
        /// The co-sender's end, which sends to the peer like the actor, by its name in the network: `neighbour`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        co_sender: Option<String>,
    },
    /// The machine itself: its processors and memory.
    Machine,
}

/// A network card as a guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CellNic")]
pub struct Nic {
    /// The device model: `virtio-net`, `e1000`.
    pub model: String,
    /// Whether the host's kernel moves the packets (vhost-net) and not the hypervisor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vhost: bool,
    /// Number of queues; `None` for the hypervisor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Receive ring size in descriptors; `None` for the hypervisor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring: Option<u32>,
}

impl Nic {
    /// A card of this model with defaults.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), vhost: false, queues: None, ring: None }
    }

    /// `virtio-net+vhost+q4+r1024`.
    pub fn label(&self) -> String {
        let vhost = if self.vhost { "+vhost" } else { "" };
        let queues = self.queues.map_or_else(String::new, |n| format!("+q{n}"));
        let ring = self.ring.map_or_else(String::new, |n| format!("+r{n}"));
        format!("{}{vhost}{queues}{ring}", self.model)
    }
}

impl Subject {
    /// A path of two ends.
    pub fn path(network: impl Into<String>, peer: impl Into<String>, nic: Option<Nic>) -> Self {
        Self::Path { network: network.into(), peer: peer.into(), nic, co_sender: None }
    }

    /// Its name without attachment or card: `device`, `device+warm-host`, `veth.host`, `shared.remote+neighbour`,
    /// `machine`.
    pub fn place(&self) -> String {
        match self {
            Subject::Disk { target, state: Some(state), .. } => format!("{target}+{state}"),
            Subject::Disk { target, .. } => target.clone(),
            Subject::Path { network, peer, co_sender: Some(end), .. } => format!("{network}.{peer}+{end}"),
            Subject::Path { network, peer, .. } => format!("{network}.{peer}"),
            Subject::Machine => "machine".to_owned(),
        }
    }

    /// Attachment or card: `virtio-blk,none,native`, `e1000`; `None` where it has none.
    pub fn seen_by(&self) -> Option<String> {
        match self {
            Subject::Disk { attachment, .. } => attachment.as_ref().map(Attachment::label),
            Subject::Path { nic, .. } => nic.as_ref().map(Nic::label),
            Subject::Machine => None,
        }
    }

    /// Removes attachment and card, as for a side under the host's kernel, with the host's page cache.
    pub(crate) fn see_no_device(&mut self) {
        match self {
            Subject::Disk { attachment, state, .. } => {
                *attachment = None;
                *state = state.map(State::natively);
            }
            Subject::Path { nic, .. } => *nic = None,
            Subject::Machine => {}
        }
    }

    /// Whether it is a disk.
    pub fn is_disk(&self) -> bool {
        matches!(self, Subject::Disk { .. })
    }
}
