//! A rate limit of a network card: the second half of `limit-in-force`.
//!
//! libvirt (src/util/virnetdevbandwidth.c, `virNetDevBandwidthSet`), Proxmox VE (PVE/Network.pm, `tap_rate_limit`), LXD
//! (device_utils_network.go, `networkSetupHostVethLimits`) and Open vSwitch (lib/netdev-linux.c, `tc_add_policer`) queue
//! what goes to the guest and police what comes from it; a CNI plugin (plugins/meta/bandwidth) queues both. Behind a
//! policer of 100 Mbit/s TCP got 2.3 Mbit/s with a burst of 1 ms and 54 with one of 100 ms; behind a queue 95.7
//! ([`crate::others`]). A limit that the uplink never reaches is told among the settings alone.

use super::change::{
    AppliesAt, Names, set_anew, unlimited_by_libvirt, unlimited_by_ovs, unlimited_by_proxmox, unlimited_by_tc,
};
use super::live::evidence;
use super::{Change, Evidence, Finding, Rule, Severity};
use crate::facts::{Nic, RateLimit};
use crate::policy::Direction;

/// Longest cause; what would be beyond is left out.
const LONGEST: usize = 290;
/// Below so many seconds TCP gets a small part of the rate.
const SMALL_BURST: f64 = 0.1;
/// Default of CloudStack's settings `vm.network.throttling.rate` and `network.throttling.rate`.
const CLOUDSTACK: &str = "The name has CloudStack's form: its default is 200 Mbit/s.";

pub(super) fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let limits = lowest(nic);
    if limits.is_empty() {
        return None;
    }
    let change = Change {
        what: "If it is intended, keep it and measure with it in mind; otherwise take it off where it was set.".into(),
        qemu: taken_off(nic, &limits, &[]),
        libvirt: taken_off(nic, &limits, &["libvirt"]),
        proxmox: taken_off(nic, &limits, &["proxmox"]),
        takes: AppliesAt::Running,
        sets: None,
    };
    let mut finding = rule.advice(nic, &[in_own_numbers(nic, &limits)], &cause(&limits), change);
    finding.evidence.extend(evidence(nic, "interface", &nic.interface));
    finding.title = "The network card is limited".into();
    if limits.iter().any(|limit| limit.hurts_tcp()) {
        finding.severity = Severity::Advice;
    }
    Some(finding)
}

/// The lowest limit of each direction, where the uplink can carry more.
fn lowest(nic: &Nic) -> Vec<&RateLimit> {
    let of = |way: Direction| {
        let all = nic.rate_limits.iter().filter(|limit| limit.direction == way && !limit.part);
        let reached = all.filter(|limit| !nic.uplink_bps.is_some_and(|uplink| limit.is_above(uplink)));
        reached.min_by_key(|limit| limit.most())
    };
    [Direction::GuestRx, Direction::GuestTx].into_iter().filter_map(of).collect()
}

fn cause(limits: &[&RateLimit]) -> String {
    let none_there = limits.iter().all(|limit| limit.missing);
    let mut who: Vec<&str> = limits.iter().map(|limit| limit.shown_by()).collect();
    who.dedup();
    let one = |limit: &&RateLimit| {
        let way = match limit.direction {
            Direction::GuestRx => "to the guest",
            Direction::GuestTx => "from the guest",
        };
        let own = if limit.by == "libvirt" { format!(" ({} kB/s)", kilobytes(limit)) } else { String::new() };
        let fate = match limit.burst_seconds().filter(|_| limit.drops) {
            _ if limit.missing && !none_there => "configured, though tc shows none now".to_owned(),
            Some(seconds) => format!("excess is dropped (burst {})", burst_shown(seconds)),
            None if limit.drops => "excess is dropped".to_owned(),
            None => "excess waits".to_owned(),
        };
        format!("{way} {}{own}, {fate}", limit.most())
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
    for more in [tcp, platform, dropped].into_iter().flatten() {
        if text.len() + 1 + more.len() <= LONGEST {
            text.push(' ');
            text.push_str(&more);
        }
    }
    text
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
        lines.push(unlimited_by_proxmox(names));
    }
    let (by_ovs, by_tc): (Vec<&RateLimit>, Vec<&RateLimit>) =
        other.into_iter().partition(|limit| limit.by == "openvswitch");
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
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::{LimitedAt, Place};
    use crate::rate::{BitRate, MBIT as M};
    use crate::rules::findings;
    use crate::testing::{live_nic, of_nic};

    fn nic(limits: Vec<RateLimit>) -> Nic {
        let place = Place {
            domain: Some("i-2-20-VM".into()),
            vmid: Some("101".into()),
            slot: Some("net0".into()),
            target: Some("02:00:00:00:00:20".into()),
            ..Place::default()
        };
        Nic { interface: "vnet0".into(), rate_limits: limits.into(), place, ..live_nic() }
    }

    fn found(limits: Vec<RateLimit>) -> Option<Finding> {
        findings(&of_nic(nic(limits))).into_iter().find(|f| f.rule == "limit-in-force")
    }

    /// A default of CloudStack that nobody asked for.
    fn cloudstack() -> Vec<RateLimit> {
        let rate = BitRate::new(204_800_000);
        let limit = |direction, drops| RateLimit {
            platform: Some("cloudstack".into()),
            ..RateLimit::new("libvirt", direction, rate, drops)
        };
        let sent = RateLimit { burst_bytes: Some(25_600 << 10), ..limit(Direction::GuestTx, true) };
        vec![limit(Direction::GuestRx, false), sent]
    }

    #[test]
    fn default_of_a_platform() {
        let finding = found(cloudstack()).unwrap();
        assert_eq!((finding.title.as_str(), finding.severity), ("The network card is limited", Severity::Note));
        assert_eq!(
            finding.cause,
            "Limited by libvirt: to the guest 204.8 Mbit/s (25600 kB/s), excess waits; from the guest 204.8 Mbit/s \
             (25600 kB/s), excess is dropped (burst 1.0 s). The name has CloudStack's form: its default is 200 Mbit/s. \
             Not measured here."
        );
        assert_eq!(
            finding.evidence[0].value,
            "inbound average 25600 (204.8 Mbit/s), outbound average 25600 (204.8 Mbit/s)"
        );
        let text = &finding.change.libvirt;
        assert!(text.starts_with("# CloudStack sets it anew at each start"), "{text}");
        let command = "virsh domiftune i-2-20-VM 02:00:00:00:00:20 --inbound 0 --outbound 0 --live";
        assert!(text.ends_with(command) && !text.contains("# or"), "{text}");
    }

    #[test]
    fn small_burst_costs_tcp() {
        let policed = |bytes| RateLimit {
            burst_bytes: Some(bytes),
            dropped_packets: Some(41),
            at: Some(LimitedAt::Ingress),
            ..RateLimit::new("proxmox", Direction::GuestTx, 838 * M, true)
        };
        let finding = found(vec![policed(1 << 20)]).unwrap();
        assert_eq!(finding.severity, Severity::Advice);
        assert!(
            finding.cause.contains("(burst 10 ms). With that burst TCP gets less, perhaps half of it."),
            "{}",
            finding.cause
        );
        assert!(finding.cause.contains("41 packets were dropped so far."), "{}", finding.cause);
        assert!(finding.change.proxmox.contains("qm set 101 --net0 \"$card\""), "{}", finding.change.proxmox);
        assert!(finding.change.qemu.contains("\ntc qdisc del dev vnet0 ingress"), "{}", finding.change.qemu);
        let libvirt = RateLimit { by: "libvirt".into(), ..policed(10 << 20) };
        let finding = found(vec![libvirt]).unwrap();
        assert!(finding.cause.contains("perhaps half"), "{}", finding.cause);
        let or = "# virsh domiftune i-2-20-VM 02:00:00:00:00:20 --outbound 104750,104750,104750 --live --config";
        assert!(finding.change.libvirt.ends_with(or), "{}", finding.change.libvirt);
    }

    #[test]
    fn by_hand_it_is_taken_off_where_it_hangs() {
        let limit = |direction, at| RateLimit {
            at: Some(at),
            ..RateLimit::new("tc", direction, 100 * M, direction == Direction::GuestTx)
        };
        let filter = LimitedAt::Clsact { egress: false, preference: 7 };
        let finding =
            found(vec![limit(Direction::GuestTx, filter), limit(Direction::GuestRx, LimitedAt::Root)]).unwrap();
        assert!(
            finding.cause.starts_with("Limited by tc (by hand or a script): to the guest 100 Mbit/s, excess waits;")
        );
        assert_eq!(
            finding.change.qemu,
            "tc -s qdisc show dev vnet0    # what is in force\n\
             tc qdisc del dev vnet0 root    # to the guest\n\
             tc filter del dev vnet0 ingress pref 7    # from the guest"
        );
        assert_eq!(finding.change.qemu, finding.change.libvirt);
        let end = RateLimit { interface: Some("cali9".into()), ..limit(Direction::GuestRx, LimitedAt::Root) };
        let text = found(vec![end]).unwrap().change.qemu;
        assert!(text.ends_with("tc qdisc del dev cali9 root    # to the guest"), "{text}");
    }

    #[test]
    fn open_vswitch_takes_off_its_own() {
        let switch = RateLimit::new("openvswitch", Direction::GuestTx, 10 * M, true);
        let policer = "ovs-vsctl set interface vnet0 ingress_policing_rate=0 ingress_policing_burst=0";
        assert_eq!(found(vec![switch.clone()]).unwrap().change.qemu, policer);
        let queue =
            RateLimit { at: Some(LimitedAt::Root), ..RateLimit::new("openvswitch", Direction::GuestRx, 10 * M, false) };
        let off = "qos=$(ovs-vsctl get port vnet0 qos) && ovs-vsctl clear port vnet0 qos && \
                   ovs-vsctl destroy qos \"$qos\"";
        let text = found(vec![queue.clone()]).unwrap().change.qemu;
        assert!(text.starts_with("# to the guest;") && text.ends_with(off) && !text.contains("policing"), "{text}");
        let both = found(vec![switch, queue]).unwrap().change.qemu;
        assert!(both.starts_with(policer) && both.ends_with(off), "{both}");
    }

    #[test]
    fn what_the_uplink_never_reaches_is_no_finding() {
        let limit = |direction, dropped| RateLimit {
            dropped_packets: dropped,
            ..RateLimit::new("tc", direction, 1000 * M, direction == Direction::GuestTx)
        };
        let behind = |uplink: BitRate, limits: Vec<RateLimit>| {
            let nic = Nic { uplink_bps: Some(uplink).into(), ..nic(limits) };
            let told = nic.limits_shown();
            (findings(&of_nic(nic)).into_iter().find(|f| f.rule == "limit-in-force"), told)
        };
        let rx = limit(Direction::GuestRx, None);
        let (silent, told) = behind(1000 * M, vec![rx.clone()]);
        assert_eq!(silent, None);
        assert_eq!(
            told,
            ["1 Gbit/s to the guest by tc (by hand or a script), not reached through the uplink of 1 Gbit/s"]
        );
        assert!(behind(10_000 * M, vec![rx.clone()]).0.is_some() && found(vec![rx.clone()]).is_some());
        // Only the direction that holds something back is told.
        let (both, _) = behind(1000 * M, vec![rx, limit(Direction::GuestTx, Some(41))]);
        let cause = both.unwrap().cause;
        assert!(cause.contains("from the guest") && !cause.contains("to the guest"), "{cause}");
    }

    #[test]
    fn configured_and_not_there() {
        let limits = cloudstack().into_iter().map(|limit| RateLimit { missing: true, ..limit }).collect();
        let cause = found(limits).unwrap().cause;
        assert!(
            cause.starts_with("Configured by libvirt, though tc shows no limit at the interface now: to"),
            "{cause}"
        );
        assert!(cause.len() < 330, "{cause}");
        let mut limits = cloudstack();
        limits[1].missing = true;
        let cause = found(limits).unwrap().cause;
        let ways = "Limited by libvirt: to the guest 204.8 Mbit/s (25600 kB/s), excess waits; from the guest \
                    204.8 Mbit/s (25600 kB/s), configured, though tc shows none now.";
        assert!(cause.starts_with(ways), "{cause}");
    }

    #[test]
    fn silent_without_a_limit_and_for_a_part() {
        assert_eq!(found(Vec::new()), None);
        let part = RateLimit { part: true, ..RateLimit::new("tc", Direction::GuestTx, 10 * M, true) };
        assert_eq!(found(vec![part]), None);
    }
}
