//! Where an interface's excess waits: in the guest, in a queue on the host, or nowhere. A pure function of the guest's
//! network device ([`Nic`]), the path from it to the uplink, and the plane's abilities.
//!
//! A packet that waits on the host is charged to its tap until something orphans it (Linux `skb_orphan`). With a finite
//! send buffer (`TUNSETSNDBUF`) the guest's hypervisor then stops taking packets, the guest's own ring fills, and the
//! excess costs the host nothing. Measurements by topology are in `docs/guard-linux.md`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::facts::{Fact, Nic};
use crate::policy::{Abilities, Direction};
use crate::rate::BitRate;

/// Where excess waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Waits")]
pub enum QueueingPoint {
    /// In the guest's ring.
    Held,
    /// In a queue on the host.
    Queued,
    /// In the network card.
    Nic,
    /// Nowhere: there is no limit.
    None,
}

impl QueueingPoint {
    /// Name in JSON and metrics.
    pub fn word(self) -> &'static str {
        match self {
            QueueingPoint::Held => "held",
            QueueingPoint::Queued => "queued",
            QueueingPoint::Nic => "nic",
            QueueingPoint::None => "none",
        }
    }
}

/// Device with the queue in which an interface's packets wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// The uplink: the cheaper one.
    Uplink,
    /// An intermediate device (IFB). Transmitted packets are redirected right behind the interface, before anything can
    /// orphan them; received ones where they arrive at the uplink. About twice the cost per packet.
    Ifb,
}

/// What lies between an interface and the uplink and decides whether a packet that waits at the uplink is still charged
/// to the interface. `None` for unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[schemars(rename = "Way")]
pub struct PacketPath {
    /// A bridge on it passes its packets to the IP firewall (`bridge-nf-call-*`), as Proxmox's firewall needs it.
    pub bridge_netfilter: Option<bool>,
    /// The host routes or translates between them.
    pub routed: Option<bool>,
    /// The guest drives this virtual function of the uplink's card (SR-IOV), so that no packet passes the kernel.
    pub card: Option<u32>,
}

impl PacketPath {
    /// Whether a packet at the uplink is still charged to its interface; `None` where only a test could tell.
    fn keeps_charge(self) -> Option<bool> {
        match (self.bridge_netfilter, self.routed) {
            // Both use the IP layer's receive path, which orphans packets (net/ipv4/ip_input.c, `ip_rcv_core`).
            (Some(true), _) | (_, Some(true)) => Some(false),
            (Some(false), Some(false)) => Some(true),
            _ => None,
        }
    }
}

/// How an interface is limited in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Holding {
    /// Where excess waits.
    pub waits: QueueingPoint,
    /// The queue's device; `None` where vmio has no queue.
    pub queue: Option<Queue>,
    /// Send buffer for the tap, in bytes; `None` where it is not changed.
    pub send_buffer_bytes: Option<u32>,
    /// The reason, in a sentence.
    pub reason: String,
}

impl Holding {
    fn new(waits: QueueingPoint, queue: Option<Queue>, reason: impl Into<String>) -> Holding {
        Holding { waits, queue, send_buffer_bytes: None, reason: reason.into() }
    }
}

/// Smallest send buffer of a tap, in bytes: packets that are segmented late (64 KiB) still pass with less, but a buffer
/// of 1 stalls the guest. 20,000 to 65,536 worked at 20 Mbit/s.
const LEAST_SEND_BUFFER: u64 = 20_000;
/// Largest send buffer of a tap, in bytes.
const MOST_SEND_BUFFER: u64 = 4 << 20;

/// The send buffer for a limit: 10 ms of it.
pub fn send_buffer_bytes(limit: BitRate) -> u32 {
    let bytes = (limit.bytes().bytes() / 100).clamp(LEAST_SEND_BUFFER, MOST_SEND_BUFFER);
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// How an interface with this limit is held.
pub fn holding(nic: &Nic, way: PacketPath, plane: &Abilities, direction: Direction, limit: BitRate) -> Holding {
    let backend = known(&nic.backend);
    let Some(backend) = backend else {
        return Holding::new(
            QueueingPoint::None,
            None,
            "what it is connected to on the host could not be read; run vmio as root",
        );
    };
    if known(&nic.model) == Some("vfio") {
        return card(way, plane, direction);
    }
    if let Some(reason) = unreachable(backend) {
        return Holding::new(QueueingPoint::None, None, reason);
    }
    match direction {
        Direction::GuestRx if plane.receive => Holding::new(
            QueueingPoint::Queued,
            Some(Queue::Ifb),
            "received traffic is queued, so that TCP senders slow down",
        ),
        Direction::GuestRx => Holding::new(QueueingPoint::None, None, "this plane cannot limit what guests receive"),
        Direction::GuestTx => sends(nic, backend, way, limit),
    }
}

/// How an interface without a known guest is held: a container's, an unused one, or one of a guest that could not be
/// read. Its packets pass this host in any case.
pub fn of_nobody(plane: &Abilities, direction: Direction) -> Holding {
    match direction {
        Direction::GuestRx if !plane.receive => {
            Holding::new(QueueingPoint::None, None, "this plane cannot limit what guests receive")
        }
        _ => {
            let queue = if direction == Direction::GuestRx { Queue::Ifb } else { Queue::Uplink };
            Holding::new(QueueingPoint::Queued, Some(queue), "no guest is known behind it")
        }
    }
}

fn sends(nic: &Nic, backend: &str, way: PacketPath, limit: BitRate) -> Holding {
    match (backend, known(&nic.model)) {
        ("tap", Some("virtio-net")) => {
            let charged = way.keeps_charge();
            let queue = if charged == Some(true) { Queue::Uplink } else { Queue::Ifb };
            let reason = match charged {
                Some(true) => "its tap is charged for what waits at the uplink, so the guest's own ring fills",
                Some(false) => {
                    "a firewall or route hides the uplink's queue from the tap, so the queue is right behind the tap, \
                     and the guest's own ring fills"
                }
                None => {
                    "whether the tap sees the uplink's queue could not be read, so the queue is right behind the tap, \
                     and the guest's own ring fills"
                }
            };
            Holding {
                send_buffer_bytes: Some(send_buffer_bytes(limit)),
                ..Holding::new(QueueingPoint::Held, Some(queue), reason)
            }
        }
        ("tap", Some(model)) => Holding::new(
            QueueingPoint::Queued,
            Some(Queue::Uplink),
            format!(
                "QEMU's queue before an emulated {model} is unbounded, so nothing can be held back in the guest; give \
                 it virtio-net"
            ),
        ),
        ("tap", None) => Holding::new(
            QueueingPoint::Queued,
            Some(Queue::Uplink),
            "which card the guest sees could not be read, so its tap was not changed",
        ),
        _ => {
            let reason = match way.keeps_charge() {
                // What orphans a tap's packets orphans a socket's too.
                Some(false) => "a firewall or route hides the queue from the sender: excess packets are dropped",
                Some(true) | None => "its programs see the queue and wait; what does not wait (UDP) fills the queue",
            };
            Holding::new(QueueingPoint::Queued, Some(Queue::Uplink), reason)
        }
    }
}

/// A card passed through: its packets bypass this host's kernel.
fn card(way: PacketPath, plane: &Abilities, direction: Direction) -> Holding {
    let what = match direction {
        Direction::GuestRx => "and cards limit only what their virtual functions send",
        Direction::GuestTx if !plane.card_rates => "and this plane sets no limit in the card",
        Direction::GuestTx if way.card.is_none() => {
            "and it is not known to be a virtual function of the uplink's own card"
        }
        Direction::GuestTx => {
            let reason =
                "the guest has a virtual function of the uplink's card, which limits what that sends (max_tx_rate)";
            return Holding::new(QueueingPoint::Nic, None, reason);
        }
    };
    let why = format!("the guest has the card itself: its packets do not pass this host's kernel, {what}");
    Holding::new(QueueingPoint::None, None, why)
}

/// Why packets of such an interface cannot be limited on the host.
fn unreachable(backend: &str) -> Option<&'static str> {
    match backend {
        "tap" | "veth" => None,
        "vhost-user" => Some("its packets go to a switch in another process and never pass this host's kernel"),
        "vdpa" => Some("its packets go from the guest to the card and never pass this host's kernel"),
        "macvtap" => Some("a macvtap's packets pass no device of this host on which a queue could be charged to it"),
        "user" | "passt" | "socket" => Some(
            "its packets leave through a socket of the hypervisor's process; they cannot be distinguished from other \
             programs'",
        ),
        _ => Some("vmio does not know this kind of connection"),
    }
}

fn known(fact: &Fact<Option<String>>) -> Option<&str> {
    fact.value().as_deref()
}

#[cfg(test)]
mod tests;
