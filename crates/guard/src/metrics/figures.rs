//! The figures: name, type, help and value of each, of the guard itself, of its members and of their flow classes.

use vmio_model::rate::BitRate;

use crate::manager::document::{FlowDocument, LocalDocument, MemberDocument, Status};

/// What Prometheus calls a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// The one figure that members and uplinks have.
pub(super) const DROPPED: &str = "dropped_packets_total";

/// A figure of the guard itself.
pub(super) struct About {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) value: fn(&Status) -> Option<f64>,
}

/// A figure of each member.
pub(super) struct OfMember {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    /// A label besides those that all have.
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) value: fn(&MemberDocument) -> Option<f64>,
}

const fn about(name: &'static str, kind: Kind, help: &'static str, value: fn(&Status) -> Option<f64>) -> About {
    About { name, kind, help, value }
}

pub(super) const fn of(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&MemberDocument) -> Option<f64>,
) -> OfMember {
    OfMember { name, kind, help, label: None, value }
}

use Kind::{Counter, Gauge};

/// Figures of the guard itself.
pub(super) const ABOUT: &[About] = &[
    about("start_time_seconds", Gauge, "When the daemon was started, in seconds since the epoch.", |s| {
        Some(s.started_unix_seconds)
    }),
    about("policy_revision", Gauge, "Revision of the policy in force: counts each change since the start.", |s| {
        Some(s.policy.revision as f64)
    }),
    about("policy_refused", Gauge, "1 if the last change of the policy was refused.", |s| {
        Some(yes(s.policy.refused.is_some()))
    }),
    about("policy_files_differ", Gauge, "1 if the files have changed since they were put in force.", |s| {
        Some(yes(s.policy.files_differ))
    }),
    about("policy_unconfirmed_seconds", Gauge, "Time until the change in force reverts unless it is confirmed.", |s| {
        s.policy.taken_back_in_seconds
    }),
    about("trouble", Gauge, "1 while something goes wrong: vmio guard status says what.", |s| {
        Some(yes(s.trouble.is_some()))
    }),
    about("loop_period_seconds", Gauge, "Period of the control loop, as the policy has it.", |s| {
        Some(s.loops.period_seconds)
    }),
    about(
        "loop_periods_total",
        Counter,
        "Periods of the control loop since the start; 0 where the kernel needs none.",
        |s| Some(s.loops.periods_total as f64),
    ),
    about("loop_last_seconds", Gauge, "Processing time of the control loop's last period.", |s| {
        Some(s.loops.last_seconds)
    }),
    about("loop_longest_seconds", Gauge, "Processing time of the control loop's longest period.", |s| {
        Some(s.loops.longest_seconds)
    }),
    about(
        "corrected_changes_total",
        Counter,
        "Queues, classes, filters and limits that other programs changed and the guard corrected.",
        |s| Some(s.loops.corrected_changes_total as f64),
    ),
    about("memory_moves_total", Counter, "Moves of guests' memory since the start.", |s| {
        Some(s.memory_moves_total as f64)
    }),
];

/// Figures of each member; [`super::text`] adds where its excess waits.
pub(super) const OF_MEMBERS: &[OfMember] = &[
    of(
        "offered_bytes_total",
        Counter,
        "Bytes that passed or were queued; in seconds with drops, those that came in at the interface.",
        |m| m.offered_bps.map(|_| m.offered_bytes_total as f64),
    ),
    of("passed_bytes_total", Counter, "Bytes that passed, with the framing of the wire.", |m| {
        Some(m.passed_bytes_total as f64)
    }),
    OfMember {
        name: DROPPED,
        kind: Counter,
        help: "Packets that were dropped. Place queue: at the member's limit; uplink: after all limits, at the uplink.",
        label: Some(("place", "queue")),
        value: |m| Some(m.dropped_packets_total as f64),
    },
    of("spoofed_packets_total", Counter, "Packets of the guest that claimed an address that is not its own.", |m| {
        of_guest(m, m.spoofed_packets_total)
    }),
    of(
        "spoofed_dropped_packets_total",
        Counter,
        "Packets that claimed an address that is not the guest's own and were dropped.",
        |m| of_guest(m, m.spoofed_dropped_packets_total),
    ),
    of(
        "resolution_dropped_packets_total",
        Counter,
        "Packets of ARP and neighbour discovery that were dropped because the guest sent too many.",
        |m| of_guest(m, m.resolution_dropped_packets_total),
    ),
    of("waiting_bytes", Gauge, "Bytes that wait now in the member's queue on the host.", |m| {
        Some(m.waiting_bytes as f64)
    }),
    of("send_buffer_bytes", Gauge, "Send buffer of the guest's tap that is in force now.", |m| {
        m.excess.as_ref()?.send_buffer_bytes.map(f64::from)
    }),
    of(
        "held_seconds_total",
        Counter,
        "Time in which the member wanted more than it got: its packets waited or were dropped.",
        |m| Some(m.held_seconds_total),
    ),
    of(
        "local_bytes_total",
        Counter,
        "Bytes that the member sent or received and that never reach the uplink (local traffic).",
        |m| Some(m.local.as_ref()?.bytes_total as f64),
    ),
    of(
        "local_limited",
        Gauge,
        "1 if the member's maximum holds for local traffic, too; 0 if local traffic is not limited.",
        |m| Some(yes(m.local.as_ref()?.limited)),
    ),
    of(
        "interface_waiting_bytes",
        Gauge,
        "Bytes that wait now at the member's own interface, where all that it sends is limited there.",
        |m| limited(m).map(|local| local.waiting_bytes as f64),
    ),
    of("interface_dropped_packets_total", Counter, "Packets that were dropped at the member's own interface.", |m| {
        limited(m).map(|local| local.dropped_packets_total as f64)
    }),
    of("limit_bytes_per_second", Gauge, "Limit of the member that is in force now.", |m| m.limit_bps.map(bytes)),
    of(
        "min_effective_bytes_per_second",
        Gauge,
        "Minimum of the member; less than its class has where not all minima fit.",
        |m| Some(bytes(m.min_effective_bps)),
    ),
    of("max_bytes_per_second", Gauge, "Maximum of the member, by its class.", |m| Some(bytes(m.max_bps))),
    of("guarantee_wanted_seconds_total", Counter, "Time in which the member needed its minimum.", |m| {
        guaranteed(m, m.guarantee_wanted_seconds_total)
    }),
    of("guarantee_met_seconds_total", Counter, "Time in which the member needed its minimum and got it.", |m| {
        guaranteed(m, m.guarantee_met_seconds_total)
    }),
    of(
        "guarantee_met_ratio",
        Gauge,
        "Share of the last minute in which the member got its minimum, of the time in which it needed it.",
        |m| m.guarantee_met_ratio,
    ),
    of(
        "breaches_total",
        Counter,
        "Times that the member did not get the minimum that it needed, for 2 s or more.",
        |m| guaranteed(m, m.breaches_total as f64),
    ),
    of(
        "flooded_seconds_total",
        Counter,
        "Time in which the member received less than its minimum while its uplink was full.",
        |m| guaranteed(m, m.flooded_seconds_total),
    ),
    of("flooded", Gauge, "1 while the member receives less than its minimum from an uplink that is full.", |m| {
        guaranteed(m, yes(m.flooded_seconds.is_some()))
    }),
    of("breached", Gauge, "1 while the member does not get the minimum that it needs.", |m| {
        guaranteed(m, yes(m.breached_seconds.is_some()))
    }),
];

/// A figure of each flow class.
pub(super) type OfFlow = (&'static str, Kind, &'static str, fn(&FlowDocument) -> u64);

/// Figures of members' flow classes.
pub(super) const OF_FLOWS: &[OfFlow] = &[
    ("flow_passed_bytes_total", Counter, "Bytes of a flow class that passed, since its queue was made.", |f| {
        f.passed_bytes_total
    }),
    ("flow_dropped_packets_total", Counter, "Packets of a flow class that were dropped at its queue.", |f| {
        f.dropped_packets_total
    }),
    ("flow_waiting_bytes", Gauge, "Bytes of a flow class that wait in its queue.", |f| f.waiting_bytes),
];

/// Local traffic of a member whose maximum holds for all that it sends.
fn limited(member: &MemberDocument) -> Option<&LocalDocument> {
    member.local.as_ref().filter(|local| local.limited)
}

/// A rate in the base unit.
pub(super) fn bytes(rate: BitRate) -> f64 {
    rate.bits() as f64 / 8.0
}

pub(super) fn yes(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// A figure that `host` and `default` do not have.
fn of_guest(member: &MemberDocument, value: u64) -> Option<f64> {
    member.excess.as_ref().map(|_| value as f64)
}

/// Whether a member has a guarantee, or had one that was counted.
fn guaranteed(member: &MemberDocument, value: f64) -> Option<f64> {
    (member.min_effective_bps > BitRate::ZERO || value > 0.0).then_some(value)
}
