//! A rate limit of a network card: the second half of `limit-in-force`. One of vmio's own guard is told with its class.
//!
//! libvirt (src/util/virnetdevbandwidth.c, `virNetDevBandwidthSet`), Proxmox VE (PVE/Network.pm, `tap_rate_limit`), LXD
//! (device_utils_network.go, `networkSetupHostVethLimits`) and Open vSwitch (lib/netdev-linux.c, `tc_add_policer`) queue
//! what goes to the guest and police what comes from it; a CNI plugin (plugins/meta/bandwidth) queues both. Behind a
//! policer of 100 Mbit/s TCP got 2.3 Mbit/s with a burst of 1 ms and 54 with one of 100 ms; behind a queue 95.7
//! ([`crate::others`]). A limit that the uplink never reaches is told among the settings alone.

use super::change::{
    AppliesAt, Names, set_anew, unlimited_by_guard, unlimited_by_hypervisor, unlimited_by_libvirt, unlimited_by_ovs,
    unlimited_by_proxmox, unlimited_by_tc,
};
use super::live::evidence;
use super::{Change, Evidence, Finding, Rule, Severity};
use crate::facts::{GUARD, Guarded, Nic, RateLimit};
use crate::policy::Direction;
use crate::rate::BitRate;

/// Longest cause; what would be beyond is left out.
const LONGEST: usize = 290;
/// A queue's burst from so many seconds of its rate on is told: for so long the limit does not hold.
const LONG_BURST: f64 = 2.0;
/// Below so many seconds TCP gets a small part of the rate.
const SMALL_BURST: f64 = 0.1;
/// Default of CloudStack's settings `vm.network.throttling.rate` and `network.throttling.rate`.
const CLOUDSTACK: &str = "The name has CloudStack's form: its default is 200 Mbit/s.";

pub(super) fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let limits = lowest(nic);
    if limits.is_empty() {
        return None;
    }
    let is_guards = limits.iter().all(|limit| limit.by == GUARD);
    let all_shared = limits.iter().all(|limit| limit.shared);
    let place = match limits.iter().find_map(|limit| limit.interface.as_deref()) {
        _ if is_guards => "change the guard's policy".to_owned(),
        Some(interface) if all_shared => format!("take it off {interface}"),
        _ => "take it off where it was set".to_owned(),
    };
    // Of containers only Proxmox VE's have a manager that sets limits by its configuration.
    let is_container = nic.backend.as_deref() == Some("veth");
    let by = |managers: &[&str]| taken_off(nic, &limits, if is_container { &["proxmox"] } else { managers });
    let change = Change {
        what: format!("If it is intended, keep it and measure with it in mind; otherwise {place}."),
        qemu: by(&[]),
        libvirt: by(&["libvirt"]),
        proxmox: by(&["proxmox"]),
        takes: AppliesAt::Running,
        sets: None,
    };
    let mut finding = rule.advice(nic, &[in_own_numbers(nic, &limits)], &cause(&limits), change);
    finding.evidence.extend(evidence(nic, "interface", &nic.interface));
    finding.title =
        if is_guards { "The network card is limited by vmio guard" } else { "The network card is limited" }.into();
    if limits.iter().any(|limit| limit.hurts_tcp()) {
        finding.severity = Severity::Advice;
    }
    // One at what all guests share is told once.
    Some(if all_shared { finding.of_host() } else { finding })
}

/// The lowest limit of each direction, where the uplink can carry more, and the guard's where that is another. One of
/// each flow counts where there is none of all.
fn lowest(nic: &Nic) -> Vec<&RateLimit> {
    let of = |way: Direction| {
        let all = nic.rate_limits.iter().filter(move |limit| limit.direction == way && !limit.part);
        let reached = || all.clone().filter(|limit| !is_unreached(nic, limit));
        let lowest = reached().min_by_key(|limit| (limit.per_flow, limit.most()));
        let guards = reached().find(|limit| limit.by == GUARD && lowest.is_some_and(|lowest| lowest.by != GUARD));
        lowest.into_iter().chain(guards).collect::<Vec<_>>()
    };
    [Direction::GuestRx, Direction::GuestTx].into_iter().flat_map(of).collect()
}

/// Whether the uplink carries no more; nearly so counts for the guard, whose classes without a maximum have its whole
/// capacity, which leaves some of the uplink free.
fn is_unreached(nic: &Nic, limit: &RateLimit) -> bool {
    let is_whole = |uplink: BitRate| limit.by == GUARD && limit.most().bits() >= uplink.bits() / 10 * 9;
    nic.uplink_bps.is_some_and(|uplink| limit.is_above(uplink) || is_whole(uplink))
}

fn cause(limits: &[&RateLimit]) -> String {
    let none_there = limits.iter().all(|limit| limit.missing);
    let mut who: Vec<&str> = Vec::new();
    for limit in limits {
        if !who.contains(&limit.shown_by()) {
            who.push(limit.shown_by());
        }
    }
    let several = who.len() > 1;
    let one = |limit: &&RateLimit| {
        let way = match limit.direction {
            Direction::GuestRx => "to the guest",
            Direction::GuestTx => "from the guest",
        };
        let own = match (limit.by.as_str(), limit.interface.as_deref().filter(|_| limit.shared)) {
            (_, Some(interface)) => format!(" at {interface}, shared by all that pass it"),
            _ if several => format!(" by {}", limit.shown_by()),
            ("libvirt", None) => format!(" ({} kB/s)", kilobytes(limit)),
            _ => String::new(),
        };
        let fate = match limit.burst_seconds() {
            _ if limit.missing && !none_there => "configured, though tc shows none now".to_owned(),
            Some(seconds) if limit.drops => format!("excess is dropped (burst {})", burst_shown(seconds)),
            None if limit.drops => "excess is dropped".to_owned(),
            Some(seconds) if seconds >= LONG_BURST => {
                format!("excess waits after a burst of {}", burst_shown(seconds))
            }
            _ => match limit.guard.as_ref().and_then(|guard| guard.waits.as_deref()) {
                Some("held") => "excess waits in the guest".to_owned(),
                Some("nic") => "excess waits in the card".to_owned(),
                _ => "excess waits".to_owned(),
            },
        };
        let each = if limit.per_flow { " for each flow" } else { "" };
        format!("{way} {}{each}{own}, {fate}", limit.most())
    };
    let ways: Vec<String> = limits.iter().map(one).collect();
    let who = who.join(" and ");
    let head = if none_there {
        format!("Configured by {who}, though tc shows no limit at the interface now")
    } else {
        format!("Limited by {who}")
    };
    let mut text = format!("{head}: {}.", ways.join("; "));
    let policed = || limits.iter().filter(|limit| limit.drops);
    let burst = policed().filter_map(|limit| limit.burst_seconds()).min_by(f64::total_cmp);
    let tcp = burst.filter(|_| policed().any(|limit| limit.hurts_tcp())).map(|seconds| {
        let part = if seconds < 0.01 { "a fraction" } else { "less, perhaps half" };
        format!("With that burst TCP gets {part} of it.")
    });
    let platform = limits.iter().find_map(|limit| limit.platform.as_deref()).and_then(|platform| match platform {
        "cloudstack" => Some(CLOUDSTACK.to_owned()),
        "nova" => Some("Nova's flavor or a Neutron policy sets it.".to_owned()),
        "kubevirt" => Some("The annotations of its template set it.".to_owned()),
        _ => None,
    });
    let dropped: u64 = limits.iter().filter_map(|limit| limit.dropped_packets).fold(0, u64::saturating_add);
    let dropped = (dropped > 0).then(|| format!("{dropped} packets were dropped so far."));
    let escapes = limits.iter().any(|limit| limit.shared && limit.direction == Direction::GuestTx);
    let escapes = escapes.then(|| "What stays on this host is not limited by it.".to_owned());
    for more in [guard_shown(limits), escapes, tcp, platform, dropped].into_iter().flatten() {
        if text.len() + 1 + more.len() <= LONGEST {
            text.push(' ');
            text.push_str(&more);
        }
    }
    text
}

/// What the guard says of its own limits among these.
fn of_guard<'a>(limits: &[&'a RateLimit]) -> Vec<&'a Guarded> {
    limits.iter().filter_map(|limit| limit.guard.as_ref()).collect()
}

/// The classes of the guard's limits, with their minima; without a daemon that it is not needed.
fn guard_shown(limits: &[&RateLimit]) -> Option<String> {
    let guards = of_guard(limits);
    let first = guards.first()?;
    if !first.runs {
        return Some("The guard's daemon does not run; its limits stay in force.".to_owned());
    }
    let mut classes: Vec<String> = Vec::new();
    for guard in guards {
        let Some(class) = &guard.class else { continue };
        let shown = format!("{class} (minimum {})", guard.min_bps);
        if !classes.contains(&shown) {
            classes.push(shown);
        }
    }
    let word = if classes.len() == 1 { "Class" } else { "Classes" };
    (!classes.is_empty()).then(|| format!("{word} {}.", classes.join(" and ")))
}

fn burst_shown(seconds: f64) -> String {
    if seconds < SMALL_BURST { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

/// libvirt's unit: 1000 bytes a second.
fn kilobytes(limit: &RateLimit) -> u64 {
    limit.rate_bps.bytes().bytes() / 1000
}

/// The limits in the numbers of who set them, and where the kernel has them.
fn in_own_numbers(nic: &Nic, limits: &[&RateLimit]) -> Option<Evidence> {
    let one = |limit: &&RateLimit| {
        let own = match limit.by.as_str() {
            "libvirt" => {
                // A macvtap has the guest's own view.
                let inbound = limit.direction == Direction::GuestRx;
                let peak =
                    limit.peak_bps.map_or_else(String::new, |peak| format!(" peak {}", peak.bytes().bytes() / 1000));
                let bound = if inbound { "inbound" } else { "outbound" };
                format!("{bound} average {}{peak} ({})", kilobytes(limit), limit.rate_bps)
            }
            _ => limit.words(),
        };
        let at = limit.at.map_or("", |_| ", seen by tc");
        format!("{own}{at}")
    };
    let value = limits.iter().map(one).collect::<Vec<String>>().join(", ");
    Some(Evidence { setting: "rate limits".into(), value, from: nic.rate_limits.source_or(&nic.from) })
}

/// The commands of the manager where it is one of `managers` and set a limit; for all others' limits, those of Open
/// vSwitch and tc(8), which hold until it is set anew.
fn taken_off(nic: &Nic, limits: &[&RateLimit], managers: &[&str]) -> String {
    let names = Names(&nic.place);
    let interface = nic.interface.as_deref().unwrap_or("TAP");
    let own: Vec<&RateLimit> = limits.iter().copied().filter(|limit| managers.contains(&limit.by.as_str())).collect();
    let other: Vec<&RateLimit> =
        limits.iter().copied().filter(|limit| !managers.contains(&limit.by.as_str())).collect();
    let mut lines = Vec::new();
    if managers == ["libvirt"] {
        lines.extend(of_platform(limits));
    }
    if own.iter().any(|limit| limit.by == "libvirt") {
        let device = nic.place.target.as_deref().unwrap_or(interface);
        lines.push(unlimited_by_libvirt(names, device, &own));
    }
    if own.iter().any(|limit| limit.by == "proxmox") {
        lines.push(unlimited_by_proxmox(names, interface));
    }
    let (of_hypervisor, other): (Vec<&RateLimit>, Vec<&RateLimit>) =
        other.into_iter().partition(|limit| limit.is_of_hypervisor());
    lines.extend(unlimited_by_hypervisor(&nic.place, &of_hypervisor));
    lines.extend(unlimited_by_guard(&of_guard(&other)));
    let (by_ovs, by_tc): (Vec<&RateLimit>, Vec<&RateLimit>) =
        other.into_iter().filter(|limit| limit.guard.is_none()).partition(|limit| limit.by == "openvswitch");
    if !by_ovs.is_empty() {
        lines.push(unlimited_by_ovs(interface, &by_ovs));
    }
    if !by_tc.is_empty() {
        lines.extend(by_tc.iter().find_map(|limit| set_anew(&limit.by)).map(str::to_owned));
        lines.push(unlimited_by_tc(interface, &by_tc));
    }
    lines.join("\n")
}

/// What sets a limit anew at each start.
fn of_platform(limits: &[&RateLimit]) -> Option<String> {
    let text = match limits.iter().find_map(|limit| limit.platform.as_deref())? {
        "cloudstack" => {
            "# CloudStack sets it anew at each start: change the network offering's rate, else the global settings\n\
             # vm.network.throttling.rate and network.throttling.rate; then stop and start the instance"
        }
        "nova" => {
            "# OpenStack sets it anew; for good:\n\
             # openstack flavor unset FLAVOR --property quota:vif_inbound_average --property quota:vif_outbound_average\n\
             # openstack port unset --qos-policy PORT"
        }
        "kubevirt" => {
            "# for good: take kubernetes.io/ingress-bandwidth and egress-bandwidth off the annotations of the template"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests;
