//! Prometheus metrics of a running guard: its [`Status`] in the text format, version 0.0.4. Names follow Prometheus'
//! naming rules: base units, `_total` for counters, ratios of 0 to 1. Unknown values are left out.
//!
//! Adding a metric: a row in `figures.rs` (of waits: `delay.rs`); `docs/guard-api.md` has them all, which a test holds.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use vmio_model::sanitize;

use crate::manager::document::{MemberDocument, PoolDocument, Status};

mod delay;
mod figures;
mod memory;

use figures::Kind::{self, Counter, Gauge};
use figures::{ABOUT, DROPPED, OF_FLOWS, OF_MEMBERS, bytes, yes};

/// Type of what [`text`] gives.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What each name begins with.
pub const PREFIX: &str = "vmio_guard_";

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
    memory::guests(&mut out, status);
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
    for metric in OF_MEMBERS.iter().chain(delay::OF_MEMBERS) {
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
    delay::histograms(out, &all);
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
