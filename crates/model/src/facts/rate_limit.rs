//! A rate limit of a network device.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::Direction;
use crate::rate::BitRate;

/// A rate limit of a network device, no matter who set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RateLimit {
    /// Direction, seen from the guest.
    pub direction: Direction,
    /// Its owner: `libvirt`, `proxmox`, `openvswitch`, `cni`, `lxd`, `incus`, `firecracker`, `cloud-hypervisor`,
    /// `guard` (vmio's own); `tc` where that is not known.
    pub by: String,
    /// Average rate, in bit/s.
    pub rate_bps: BitRate,
    /// Configured rate within a burst, in bit/s; null where there is none.
    pub peak_bps: Option<BitRate>,
    /// Burst, in bytes; null for a default.
    pub burst_bytes: Option<u64>,
    /// Whether excess is dropped (policing) instead of queued.
    pub drops: bool,
    /// Where the kernel has it; null where only a configuration says it.
    #[serde(default)]
    pub at: Option<LimitedAt>,
    /// Packets that it dropped so far, by the kernel's count; null where that is not known.
    #[serde(default)]
    pub dropped_packets: Option<u64>,
    /// Whether it is on some of the packets only.
    #[serde(default)]
    pub part: bool,
    /// Whether each flow (a TCP connection) may have as much: fq's `maxrate`.
    #[serde(default)]
    pub per_flow: bool,
    /// Whether it is configured, and the kernel has nothing of it.
    #[serde(default)]
    pub missing: bool,
    /// The platform behind its owner: `cloudstack`, `nova`, `kubevirt`; null where none is known.
    #[serde(default)]
    pub platform: Option<String>,
    /// The interface that the kernel has it at, where that is not the card's own: the end of a pod's veth pair on the
    /// host, or the uplink or routed bridge that it shares.
    #[serde(default)]
    pub interface: Option<String>,
    /// Whether it is on all that pass that interface: other guests' packets, too.
    #[serde(default)]
    pub shared: bool,
    /// What vmio's guard says of a limit of its own; null of all others'.
    #[serde(default)]
    pub guard: Option<Guarded>,
}

/// A limit of vmio's own guard (`vmio guard`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Guarded {
    /// The uplink whose capacity is shared.
    pub uplink: String,
    /// Class of the card; null where no daemon runs that knows it.
    pub class: Option<String>,
    /// Minimum as far as all fit, in bit/s.
    pub min_bps: BitRate,
    /// Where excess waits: `held` in the guest, `queued` on this host, `nic` in the card; null where no daemon runs that
    /// knows it.
    pub waits: Option<String>,
    /// Whether the daemon runs; its limits stay in force without it.
    pub runs: bool,
    /// The state directory that a command must name; null for the default.
    pub state: Option<String>,
}

/// The owner's name of limits of vmio's own guard.
pub const GUARD: &str = "guard";

/// The owner's name of limits that Firecracker holds itself (its docs/design.md, "I/O Rate Limiting").
pub const FIRECRACKER: &str = "firecracker";
/// The same of Cloud Hypervisor (its docs/io_throttling.md).
pub const CLOUD_HYPERVISOR: &str = "cloud-hypervisor";

/// Where the kernel limits the packets of an interface, which is where tc(8) takes the limit away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedAt {
    /// Its own qdisc: what it sends.
    Root,
    /// An `ingress` qdisc: what it receives.
    Ingress,
    /// A filter of `clsact`, beside which others' may hang.
    Clsact {
        /// Whether it is on what the interface sends.
        egress: bool,
        /// Preference of the filter.
        preference: u16,
    },
}

/// Below so many seconds of its rate, a policer's burst is too small for TCP: Open vSwitch asks for 80 % of a second
/// (Documentation/faq/qos.rst: "to make sure TCP works", 8000 kbit for 10000 kbit/s).
pub const TCP_BURST_SECONDS: f64 = 0.8;

impl RateLimit {
    /// One of which nothing else is known.
    pub fn new(by: impl Into<String>, direction: Direction, rate_bps: BitRate, drops: bool) -> Self {
        Self {
            direction,
            by: by.into(),
            rate_bps,
            peak_bps: None,
            burst_bytes: None,
            drops,
            at: None,
            dropped_packets: None,
            part: false,
            per_flow: false,
            missing: false,
            platform: None,
            interface: None,
            shared: false,
            guard: None,
        }
    }

    /// The highest rate for longer than a burst. The peak is none: libvirt's class is at the root of htb, and has nothing
    /// to borrow up to it (net/sched/sch_htb.c, `htb_activate_prios`).
    pub fn most(&self) -> BitRate {
        self.rate_bps
    }

    /// Whether an uplink of this speed never carries as much. What stays on this host may be faster: a limit that has
    /// dropped packets did hold something back.
    pub fn is_above(&self, uplink: BitRate) -> bool {
        self.most() >= uplink && self.dropped_packets.unwrap_or(0) == 0
    }

    /// For how long its burst lasts at its rate.
    pub fn burst_seconds(&self) -> Option<f64> {
        let rate = Some(self.rate_bps).filter(|rate| *rate > BitRate::ZERO)?;
        Some(self.burst_bytes? as f64 * 8.0 / rate.bits() as f64)
    }

    /// Whether it drops what is above with so small a burst that TCP gets less than the rate.
    pub fn hurts_tcp(&self) -> bool {
        self.drops && !self.missing && self.burst_seconds().is_none_or(|seconds| seconds < TCP_BURST_SECONDS)
    }

    /// Whether the guest's own hypervisor holds it, so that the kernel shows nothing of it.
    pub fn is_of_hypervisor(&self) -> bool {
        [FIRECRACKER, CLOUD_HYPERVISOR].contains(&self.by.as_str())
    }

    /// Display name of its owner.
    pub fn shown_by(&self) -> &str {
        match self.by.as_str() {
            "proxmox" => "Proxmox VE",
            "openvswitch" => "Open vSwitch",
            "cni" => "a CNI plugin",
            "lxd" => "LXD",
            "incus" => "Incus",
            "tc" => "tc (by hand or a script)",
            GUARD => "vmio guard",
            FIRECRACKER => "Firecracker's rate limiter",
            CLOUD_HYPERVISOR => "Cloud Hypervisor's rate limiter",
            other => other,
        }
    }

    /// In words: `204.8 Mbit/s to the guest by libvirt`, `100 Mbit/s to the guest by a CNI plugin at cali9`.
    pub fn words(&self) -> String {
        let way = match self.direction {
            Direction::GuestRx => "to the guest",
            Direction::GuestTx => "from the guest",
        };
        let part = if self.part { ", of a part of its packets" } else { "" };
        let each = if self.per_flow { " for each flow" } else { "" };
        let missing = if self.missing { ", configured only" } else { "" };
        let at = self.interface.as_ref().map_or_else(String::new, |interface| format!(" at {interface}"));
        let shared = if self.shared { ", shared" } else { "" };
        format!("{}{each} {way} by {}{at}{shared}{part}{missing}", self.most(), self.shown_by())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::MBIT as M;

    #[test]
    fn burst_in_seconds_and_what_it_means_for_tcp() {
        let limit =
            |bytes| RateLimit { burst_bytes: bytes, ..RateLimit::new("libvirt", Direction::GuestTx, 100 * M, true) };
        assert_eq!(limit(Some(12_500_000)).burst_seconds(), Some(1.0));
        assert!(!limit(Some(12_500_000)).hurts_tcp() && limit(Some(1 << 20)).hurts_tcp() && limit(None).hurts_tcp());
        assert!(!RateLimit { drops: false, ..limit(Some(1)) }.hurts_tcp());
        assert_eq!(limit(None).words(), "100 Mbit/s from the guest by libvirt");
        let at = RateLimit { interface: Some("cali9".into()), missing: true, ..limit(None) };
        assert_eq!(at.words(), "100 Mbit/s from the guest by libvirt at cali9, configured only");
    }

    #[test]
    fn what_an_uplink_never_reaches() {
        let limit = RateLimit::new("tc", Direction::GuestRx, 1000 * M, false);
        assert!(limit.is_above(1000 * M) && limit.is_above(100 * M) && !limit.is_above(1001 * M));
        assert!(!RateLimit { peak_bps: Some(2000 * M), ..limit.clone() }.is_above(1500 * M));
        assert!(!RateLimit { dropped_packets: Some(1), ..limit }.is_above(100 * M));
    }
}
