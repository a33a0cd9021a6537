//! Prometheus metrics of a running guard: its [`Status`] in the text format, version 0.0.4. Names follow Prometheus'
//! naming rules: base units, `_total` for counters, ratios of 0 to 1. Unknown values are left out.
//!
//! Adding a metric: a row in [`ABOUT`], [`OF_MEMBERS`] or [`OF_FLOWS`]; `docs/guard-api.md` has them all, which a test
//! holds.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use vmio_model::rate::BitRate;
use vmio_model::sanitize;

use crate::manager::document::{FlowDocument, LocalDocument, MemberDocument, PoolDocument, Status};

/// Type of what [`text`] gives.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What each name begins with.
pub const PREFIX: &str = "vmio_guard_";

/// What Prometheus calls a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

/// The one figure that members and uplinks have.
const DROPPED: &str = "dropped_packets_total";

/// A figure of the guard itself.
struct About {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&Status) -> Option<f64>,
}

/// A figure of each member.
struct OfMember {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// A label besides those that all have.
    label: Option<(&'static str, &'static str)>,
    value: fn(&MemberDocument) -> Option<f64>,
}

const fn about(name: &'static str, kind: Kind, help: &'static str, value: fn(&Status) -> Option<f64>) -> About {
    About { name, kind, help, value }
}

const fn of(name: &'static str, kind: Kind, help: &'static str, value: fn(&MemberDocument) -> Option<f64>) -> OfMember {
    OfMember { name, kind, help, label: None, value }
}

use Kind::{Counter, Gauge};

/// Figures of the guard itself.
const ABOUT: &[About] = &[
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
];

/// Figures of each member; [`members`] adds where its excess waits.
const OF_MEMBERS: &[OfMember] = &[
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
type OfFlow = (&'static str, Kind, &'static str, fn(&FlowDocument) -> u64);

/// Figures of members' flow classes.
const OF_FLOWS: &[OfFlow] = &[
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
fn bytes(rate: BitRate) -> f64 {
    rate.bits() as f64 / 8.0
}

fn yes(is: bool) -> f64 {
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

/// All of it.
pub fn text(status: &Status) -> String {
    let mut out = Text(String::new());
    out.head(
        "build_info",
        Gauge,
        "Version of the running vmio, the plane that enforces limits, and the algorithm that sets them.",
    );
    let info = [("version", &*status.vmio_version), ("plane", &*status.plane), ("algorithm", &*status.algorithm)];
    out.labelled("build_info", &info, 1.0);
    for metric in ABOUT {
        if let Some(value) = (metric.value)(status) {
            out.head(metric.name, metric.kind, metric.help);
            out.labelled(metric.name, &[], value);
        }
    }
    loop_times(&mut out, status);
    appeared(&mut out, status);
    pools(&mut out, status, Gauge, "capacity_bytes_per_second", "Capacity of the uplink in this direction.", |pool| {
        Some(bytes(pool.capacity_bps))
    });
    pools(
        &mut out,
        status,
        Gauge,
        "shared_bytes_per_second",
        "Rate that the members share now; 0 while nothing is in force.",
        |pool| Some(bytes(pool.shared_bps)),
    );
    pools(
        &mut out,
        status,
        Gauge,
        "in_force",
        "1 while the limits are in force, 0 while something is in their way.",
        |pool| Some(yes(pool.not_in_force.is_none())),
    );
    let help =
        "Times that limits were broken from outside: another program changed or replaced them, or the uplink was gone.";
    pools(&mut out, status, Counter, "interruptions_total", help, |pool| Some(pool.interruptions_total as f64));
    let help =
        "Time in which limits were broken from outside, each from the last look at which they were as they should be.";
    let name = "interrupted_seconds_total";
    pools(&mut out, status, Counter, name, help, |pool| Some(pool.interrupted_seconds_total));
    let help = "Rate that the guests share in their queues before the uplink, where they have those.";
    pools(&mut out, status, Gauge, "stage_shared_bytes_per_second", help, |pool| {
        Some(bytes(pool.stage.as_ref()?.shared_bps))
    });
    let help = "Bytes that have left the guests' queues before the uplink and wait at it now.";
    pools(&mut out, status, Gauge, "stage_waiting_bytes", help, |pool| Some(pool.stage.as_ref()?.waiting_bytes as f64));
    let help = "Bytes that arrived at the uplink, with the framing of the wire.";
    pools(&mut out, status, Counter, "arrived_bytes_total", help, |pool| Some(pool.arrived_bytes_total? as f64));
    let help = "1 while the uplink is full of received traffic: the loss happens before this host, which cannot \
                prevent it.";
    pools(&mut out, status, Gauge, "link_full", help, |pool| Some(yes(pool.link_full?)));
    members(&mut out, status);
    out.0
}

fn loop_times(out: &mut Text, status: &Status) {
    let name = "loop_duration_seconds";
    out.head(name, Kind::Histogram, "Processing time of the control loop's periods.");
    for bucket in &status.loops.buckets {
        let most = bucket.at_most_seconds.to_string();
        out.labelled(&format!("{name}_bucket"), &[("le", &most)], bucket.total as f64);
    }
    let periods = status.loops.periods_total as f64;
    out.labelled(&format!("{name}_bucket"), &[("le", "+Inf")], periods);
    out.labelled(&format!("{name}_sum"), &[], status.loops.seconds_total);
    out.labelled(&format!("{name}_count"), &[], periods);
}

fn appeared(out: &mut Text, status: &Status) {
    let name = "appear_duration_seconds";
    out.head(
        name,
        Kind::Summary,
        "Time from an interface's appearance until its limit is in force; quantiles of the last 1,000.",
    );
    let appeared = &status.appeared;
    for (quantile, value) in [("0.5", appeared.p50_seconds), ("0.99", appeared.p99_seconds)] {
        if let Some(value) = value {
            out.labelled(name, &[("quantile", quantile)], value);
        }
    }
    out.labelled(&format!("{name}_sum"), &[], appeared.seconds_total);
    out.labelled(&format!("{name}_count"), &[], appeared.total as f64);
}

fn pools(out: &mut Text, status: &Status, kind: Kind, name: &str, help: &str, value: fn(&PoolDocument) -> Option<f64>) {
    let all: Vec<_> = status.pools.iter().filter_map(|pool| Some((pool, value(pool)?))).collect();
    if all.is_empty() {
        return;
    }
    out.head(name, kind, help);
    for (pool, value) in all {
        out.labelled(name, &[("uplink", &pool.uplink), ("direction", pool.direction.word())], value);
    }
}

/// Writes labels once per member, not once per figure, since there may be thousands of members.
fn members(out: &mut Text, status: &Status) {
    let labels = |pool: &PoolDocument, member: &MemberDocument| {
        let (uplink, direction) = (escaped(&pool.uplink), pool.direction.word());
        let (name, class) = (escaped(&member.name), escaped(&member.class));
        format!("uplink=\"{uplink}\",direction=\"{direction}\",member=\"{name}\",class=\"{class}\"")
    };
    let mut all = Vec::new();
    let mut written_labels = BTreeSet::new();
    for (pool, member) in status.pools.iter().flat_map(|pool| pool.members.iter().map(move |member| (pool, member))) {
        let labels = labels(pool, member);
        // Prometheus rejects a text with duplicate labels.
        if written_labels.insert(labels.clone()) {
            all.push((labels, member));
        }
    }
    for metric in OF_MEMBERS {
        let mut headed = false;
        for (labels, member) in &all {
            let Some(value) = (metric.value)(member) else { continue };
            if !std::mem::replace(&mut headed, true) {
                out.head(metric.name, metric.kind, metric.help);
            }
            // Writing to a string does not fail.
            let _ = write!(out.0, "{PREFIX}{}{{{labels}", metric.name);
            if let Some((label, value)) = metric.label {
                let _ = write!(out.0, ",{label}=\"{value}\"");
            }
            let _ = writeln!(out.0, "}} {value}");
        }
        if metric.name == DROPPED {
            stage_drops(out, status);
        }
    }
    for (name, kind, help, value) in OF_FLOWS {
        let mut headed = false;
        for (labels, flow) in all.iter().flat_map(|(labels, m)| m.flows.iter().map(move |flow| (labels, flow))) {
            if !std::mem::replace(&mut headed, true) {
                out.head(name, *kind, help);
            }
            let _ = writeln!(out.0, "{PREFIX}{name}{{{labels},flow=\"{}\"}} {}", escaped(&flow.name), value(flow));
        }
    }
    let name = "enforcement";
    let mut headed = false;
    for (labels, member) in &all {
        let Some(excess) = &member.excess else { continue };
        if !std::mem::replace(&mut headed, true) {
            out.head(name, Gauge, "1; the label says where the member's excess waits: held, queued, nic or none.");
        }
        let _ = writeln!(out.0, "{PREFIX}{name}{{{labels},waits=\"{}\"}} 1", escaped(&excess.waits));
    }
}

/// Drops behind the guests' queues, which belong to no guest.
fn stage_drops(out: &mut Text, status: &Status) {
    for pool in &status.pools {
        if let Some(stage) = &pool.stage {
            let labels = [("uplink", pool.uplink.as_str()), ("direction", pool.direction.word()), ("place", "uplink")];
            out.labelled(DROPPED, &labels, stage.dropped_packets_total as f64);
        }
    }
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: Kind, help: &str) {
        let _ = writeln!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {}", kind.word());
    }

    fn labelled(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(label, v)| format!("{label}=\"{}\"", escaped(v))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{PREFIX}{name}{labels} {value}");
    }
}

/// A label's value. Interface names may have nearly any character; control characters are replaced.
fn escaped(text: &str) -> String {
    sanitize::line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests;
