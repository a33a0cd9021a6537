//! How long members' packets wait.

use std::fmt::Write as _;

use super::figures::Kind::{Counter, Gauge};
use super::figures::{Kind, OfMember, of, yes};
use super::{PREFIX, Text};
use crate::manager::document::{MemberDocument, SettingsDocument};

/// The histogram of all waits.
const WAITS: &str = "delay_seconds";

/// Figures of each member.
pub(super) const OF_MEMBERS: &[OfMember] = &[
    of(
        "delay_median_seconds",
        Gauge,
        "Half of the last second's packets waited no longer in the member's queue.",
        |m| m.delay.as_ref()?.median_seconds,
    ),
    of("delay_p99_seconds", Gauge, "99 % of the last second's packets waited no longer in the member's queue.", |m| {
        m.delay.as_ref()?.p99_seconds
    }),
    of(
        "delay_jitter_seconds",
        Gauge,
        "Difference between that and the shortest wait of the last second's packets.",
        |m| m.delay.as_ref()?.jitter_seconds,
    ),
    of("delay_target_seconds", Gauge, "How long a packet may wait, by the member's class.", |m| {
        m.settings.as_ref()?.delay_seconds
    }),
    of("delay_jitter_target_seconds", Gauge, "How far the waits of two packets may lie apart, by its class.", |m| {
        m.settings.as_ref()?.jitter_seconds
    }),
    of("delay_missed", Gauge, "1 while a target of delay or jitter is missed, for 2 s or more.", |m| {
        targeted(m)?;
        Some(yes(m.delay.as_ref()?.missed_seconds.is_some()))
    }),
    of("delay_misses_total", Counter, "Times that a target of delay or jitter was missed, for 2 s or more.", |m| {
        targeted(m)?;
        Some(m.delay.as_ref()?.misses_total as f64)
    }),
];

/// The settings of a member whose class has a target.
fn targeted(member: &MemberDocument) -> Option<&SettingsDocument> {
    member.settings.as_ref().filter(|of| of.delay_seconds.is_some() || of.jitter_seconds.is_some())
}

/// The waits of all members' packets since they are measured, with the labels of each.
pub(super) fn histograms(out: &mut Text, all: &[(String, &MemberDocument)]) {
    let mut headed = false;
    for (labels, delay) in all.iter().filter_map(|(labels, m)| Some((labels, m.delay.as_ref()?))) {
        if !std::mem::replace(&mut headed, true) {
            out.head(WAITS, Kind::Histogram, "How long packets waited in the member's queue on this host.");
        }
        let mut bucket = |most: &str, total: u64| {
            // Writing to a string does not fail.
            let _ = writeln!(out.0, "{PREFIX}{WAITS}_bucket{{{labels},le=\"{most}\"}} {total}");
        };
        delay.buckets.iter().for_each(|b| bucket(&b.at_most_seconds.to_string(), b.total));
        bucket("+Inf", delay.packets_total);
        let _ = writeln!(out.0, "{PREFIX}{WAITS}_sum{{{labels}}} {}", delay.wait_seconds_total);
        let _ = writeln!(out.0, "{PREFIX}{WAITS}_count{{{labels}}} {}", delay.packets_total);
    }
}
