#![allow(clippy::unwrap_used)]
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
    let finding = found(vec![limit(Direction::GuestTx, filter), limit(Direction::GuestRx, LimitedAt::Root)]).unwrap();
    assert!(finding.cause.starts_with("Limited by tc (by hand or a script): to the guest 100 Mbit/s, excess waits;"));
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
    assert_eq!(told, ["1 Gbit/s to the guest by tc (by hand or a script), not reached through the uplink of 1 Gbit/s"]);
    assert!(behind(10_000 * M, vec![rx.clone()]).0.is_some() && found(vec![rx.clone()]).is_some());
    // Only the direction that holds something back is told.
    let (both, _) = behind(1000 * M, vec![rx, limit(Direction::GuestTx, Some(41))]);
    let cause = both.unwrap().cause;
    assert!(cause.contains("from the guest") && !cause.contains("to the guest"), "{cause}");
}

fn guards(direction: Direction, mbit: u64, waits: &str) -> RateLimit {
    let guard = Guarded {
        uplink: "eth0".into(),
        class: Some("gold".into()),
        min_bps: 10 * M,
        waits: Some(waits.into()),
        runs: true,
        state: None,
    };
    RateLimit { guard: Some(guard), ..RateLimit::new(GUARD, direction, mbit * M, false) }
}

#[test]
fn the_guards_own_limits_are_told_with_class_and_command() {
    let both = || vec![guards(Direction::GuestRx, 20, "queued"), guards(Direction::GuestTx, 40, "held")];
    let finding = found(both()).unwrap();
    assert_eq!(finding.title, "The network card is limited by vmio guard");
    assert_eq!(
        finding.cause,
        "Limited by vmio guard: to the guest 20 Mbit/s, excess waits; from the guest 40 Mbit/s, excess waits in the \
         guest. Class gold (minimum 10 Mbit/s). Not measured here."
    );
    let text = &finding.change.qemu;
    assert!(text.starts_with("vmio guard status --verbose "), "{text}");
    assert!(text.contains("\nvmio guard set class gold --max RATE ") && !text.contains("tc qdisc"), "{text}");
    assert_eq!((&finding.change.libvirt, &finding.change.proxmox), (text, text));
    let left = |limit: RateLimit| {
        let guard = limit.guard.map(|guard| Guarded { class: None, runs: false, state: Some("/x y".into()), ..guard });
        RateLimit { guard, ..limit }
    };
    let finding = found(both().into_iter().map(left).collect()).unwrap();
    assert!(finding.cause.contains("The guard's daemon does not run; its limits stay in force."), "{}", finding.cause);
    let undo = "vmio guard undo --state '/x y'    # removes all of its limits";
    assert!(finding.change.qemu.contains(undo), "{}", finding.change.qemu);
}

/// A class without a maximum is held to the guard's capacity, which is all guests' together.
#[test]
fn the_guards_whole_capacity_is_no_limit_of_a_card() {
    let behind = |mbit| {
        let limits = vec![guards(Direction::GuestTx, mbit, "held")];
        let nic = Nic { uplink_bps: Some(1000 * M).into(), ..nic(limits) };
        findings(&of_nic(nic)).iter().any(|f| f.rule == "limit-in-force")
    };
    assert_eq!([behind(950), behind(800)], [false, true]);
}

#[test]
fn a_lower_limit_of_another_does_not_hide_the_guards() {
    let mut limits = cloudstack();
    limits.extend([guards(Direction::GuestRx, 900, "queued"), guards(Direction::GuestTx, 900, "held")]);
    let finding = found(limits).unwrap();
    let head = "Limited by libvirt and vmio guard: to the guest 204.8 Mbit/s by libvirt, excess waits; to the guest \
                900 Mbit/s by vmio guard, excess waits; from the guest";
    assert!(finding.cause.starts_with(head) && finding.cause.len() < 330, "{}", finding.cause);
    assert_eq!(finding.title, "The network card is limited");
    let text = &finding.change.libvirt;
    assert!(text.contains("virsh domiftune") && text.contains("vmio guard status"), "{text}");
}

#[test]
fn configured_and_not_there() {
    let limits = cloudstack().into_iter().map(|limit| RateLimit { missing: true, ..limit }).collect();
    let cause = found(limits).unwrap().cause;
    assert!(cause.starts_with("Configured by libvirt, though tc shows no limit at the interface now: to"), "{cause}");
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

#[test]
fn what_each_flow_may_have_is_told_where_nothing_limits_all() {
    let each = RateLimit { per_flow: true, ..RateLimit::new("tc", Direction::GuestRx, 10 * M, false) };
    let all = RateLimit::new("tc", Direction::GuestRx, 50 * M, false);
    let cause = |limits| found(limits).unwrap().cause;
    assert!(cause(vec![each.clone()]).contains("to the guest 10 Mbit/s for each flow, excess waits."));
    assert!(cause(vec![each, all]).contains("to the guest 50 Mbit/s, excess waits."));
}

#[test]
fn what_all_share_is_told_once_with_its_interface() {
    let tbf = |bytes| RateLimit {
        interface: Some("eth0".into()),
        shared: true,
        at: Some(LimitedAt::Root),
        burst_bytes: Some(bytes),
        ..RateLimit::new("tc", Direction::GuestTx, 100 * M, false)
    };
    let finding = found(vec![tbf(10_000)]).unwrap();
    let head = "Limited by tc (by hand or a script): from the guest 100 Mbit/s at eth0, shared by all that pass it, excess \
                waits. What stays on this host is not limited by it.";
    assert!(finding.of_host && finding.cause.starts_with(head), "{finding:#?}");
    assert!(finding.change.what.ends_with("take it off eth0."), "{}", finding.change.what);
    assert!(
        finding.change.qemu.ends_with("\ntc qdisc del dev eth0 root    # from the guest"),
        "{}",
        finding.change.qemu
    );
    // Beside one of its own: each where it hangs.
    let own = RateLimit { at: Some(LimitedAt::Root), ..RateLimit::new("tc", Direction::GuestRx, 50 * M, false) };
    let finding = found(vec![tbf(10_000), own]).unwrap();
    assert!(!finding.of_host);
    for line in ["tc qdisc del dev eth0 root    # from the guest", "tc qdisc del dev vnet0 root    # to the guest"] {
        assert!(finding.change.qemu.contains(line), "{}", finding.change.qemu);
    }
}

/// Kubernetes gives the bandwidth plugin a burst of 2^31 bits where an annotation names a rate alone.
#[test]
fn a_queue_that_lets_a_long_burst_pass_says_so() {
    let tbf = |bytes| RateLimit {
        burst_bytes: Some(bytes),
        at: Some(LimitedAt::Root),
        ..RateLimit::new("cni", Direction::GuestRx, 100 * M, false)
    };
    let cause = found(vec![tbf(268_435_456)]).unwrap().cause;
    assert!(cause.contains("to the guest 100 Mbit/s, excess waits after a burst of 21.5 s."), "{cause}");
    assert!(found(vec![tbf(131_072)]).unwrap().cause.contains("excess waits."));
}

#[test]
fn what_the_hypervisor_holds_itself_is_taken_off_there() {
    let of = |by: &str, direction| {
        let place = Place { device_id: Some("eth0".into()), ..Place::default() };
        let limits = vec![RateLimit::new(by, direction, 100 * M, false)].into();
        let all = findings(&of_nic(Nic { rate_limits: limits, place, ..live_nic() }));
        all.into_iter().find(|f| f.rule == "limit-in-force").unwrap()
    };
    let sent = of("firecracker", Direction::GuestTx);
    assert!(
        sent.cause.starts_with("Limited by Firecracker's rate limiter: from the guest 100 Mbit/s"),
        "{}",
        sent.cause
    );
    let body = "-d '{\"iface_id\":\"eth0\",\"tx_rate_limiter\":{\"bandwidth\":{\"refill_time\":0,\"size\":0}}}'";
    assert!(sent.change.qemu.contains(body) && !sent.change.qemu.contains("tc "), "{}", sent.change.qemu);
    assert_eq!(sent.change.ways().len(), 1, "the same for all");
    let received = of("cloud-hypervisor", Direction::GuestRx).change.qemu;
    assert!(received.contains("--net with id=eth0") && received.contains("bw_size"), "{received}");
}

#[test]
fn a_container_of_proxmox_is_set_by_its_own_tool() {
    let limit = RateLimit::new("proxmox", Direction::GuestRx, 100 * M, false);
    let place = Place { vmid: Some("105".into()), slot: Some("net0".into()), ..Place::default() };
    let (interface, backend) = ("veth105i0".into(), "veth".into());
    let own = Nic { interface, backend, place, rate_limits: vec![limit].into(), ..live_nic() };
    let all = findings(&of_nic(own));
    let change = &all.iter().find(|f| f.rule == "limit-in-force").unwrap().change;
    assert_eq!(change.ways().len(), 1, "a container has no other way");
    let text = &change.qemu;
    assert!(text.contains("pct config 105") && text.ends_with("pct set 105 --net0 \"$card\""), "{text}");
}
