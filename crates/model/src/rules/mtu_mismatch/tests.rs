#![allow(clippy::unwrap_used)]
use super::*;
use crate::facts::{CommandLineOption, Fact, Place};
use crate::rules::change::AppliesAt;
use crate::rules::findings;
use crate::testing::{live_nic, of_nic, way};

/// A card whose guest, tap and network card of the host have these MTUs.
fn nic(guest: u64, tap: u64, card: u64) -> Nic {
    let place = Place { vmid: Some("101".into()), slot: Some("net0".into()), ..Place::default() };
    Nic { guest_mtu_bytes: Some(guest).into(), mtu_bytes: Some(tap).into(), way: way(card).into(), place, ..live_nic() }
}

fn told(guest: u64, tap: u64, card: u64) -> Nic {
    Nic { host_mtu_bytes: Some(guest).into(), ..nic(guest, tap, card) }
}

fn found(nic: &Nic) -> Option<Finding> {
    live(&RULE, nic)
}

#[test]
fn what_a_guest_sends_and_gets_must_fit() {
    let severity = |nic: &Nic| found(nic).map(|finding| finding.severity);
    for silent in [nic(1500, 1500, 1500), nic(1500, 9000, 1500), nic(1450, 1500, 1450), told(9000, 9000, 9000)] {
        assert_eq!(severity(&silent), None, "{silent:?}");
    }
    assert_eq!(severity(&nic(1500, 1450, 1500)), Some(Severity::Advice));
    assert_eq!(severity(&nic(1500, 1500, 1450)), Some(Severity::Advice));
    assert_eq!(severity(&told(9000, 9000, 1500)), Some(Severity::Warning));
    assert_eq!(severity(&told(9000, 1500, 9000)), Some(Severity::Warning));
    // The bridge's own MTU decides nothing.
    let bridge = Nic { bridge_mtu_bytes: Some(1300).into(), ..nic(1500, 1500, 1500) };
    assert_eq!(severity(&bridge), None);
    // Without a bridge the host answers that a packet is too big; the device promises too much all the same.
    let routed = |nic: Nic| Nic { way: Vec::<Hop>::new().into(), bridge: None.into(), ..nic };
    assert_eq!(severity(&routed(nic(1500, 1450, 1500))), None);
    assert_eq!(severity(&routed(told(8942, 1500, 1500))), Some(Severity::Warning));
    // What is not known is no reason, nor is a network of the hypervisor's own.
    assert_eq!(severity(&Nic { guest_mtu_bytes: None.into(), ..nic(1500, 1450, 1450) }), None);
    assert_eq!(severity(&Nic { backend: "user".into(), ..nic(1500, 1450, 1450) }), None);
    assert!(findings(&of_nic(nic(1500, 1450, 1500))).iter().any(|finding| finding.rule == RULE.id));
}

#[test]
fn each_narrow_interface_is_named_with_what_it_passes() {
    let cause = |nic: &Nic| found(nic).unwrap().cause;
    let both = cause(&nic(1500, 1450, 1400));
    assert!(both.contains("tap0 passes 1450 to it and eth0 passes 1400 from it"), "{both}");
    assert!(both.contains("A guest that got 1400 by DHCP is not affected"), "{both}");
    let one = cause(&told(9000, 9000, 1500));
    assert!(one.contains("(its card's host_mtu says so), but eth0 passes 1500 from it:"), "{one}");
    assert!(!one.contains("DHCP"), "{one}");
    let evidence = found(&nic(1500, 1450, 1400)).unwrap().evidence;
    let way = evidence.iter().find(|e| e.setting == "way").unwrap();
    assert_eq!(way.value, "tap0 1500, br0 1500, eth0 1400");
}

#[test]
fn open_vswitch_counts_what_it_drops() {
    let mut way = way(1500);
    way[1].kind = HopKind::OvsBridge;
    let on_ovs = |nic: Nic, errors| Nic { way: way.clone().into(), tap_errors: Some(errors).into(), ..nic };
    let counted = found(&on_ovs(nic(1500, 1450, 1500), 7)).unwrap();
    assert_eq!(counted.severity, Severity::Warning);
    assert!(counted.cause.contains(" 7 were dropped at tap0."), "{}", counted.cause);
    assert_eq!(found(&on_ovs(nic(1500, 1450, 1500), 0)).unwrap().severity, Severity::Advice);
    let raised = found(&on_ovs(told(8942, 1500, 9000), 0));
    // The card behind it is as narrow as the tap here.
    assert!(raised.unwrap().change.qemu.contains("host_mtu=1500"));
    way.truncate(2);
    let raised = found(&Nic { way: way.into(), ..told(8942, 1500, 9000) }).unwrap();
    assert!(
        raised.change.qemu.starts_with("ovs-vsctl set Interface tap0 mtu_request=8942\n"),
        "{}",
        raised.change.qemu
    );
}

#[test]
fn a_tap_too_narrow_for_what_the_guest_is_told_is_raised() {
    let change = found(&told(9000, 1500, 9000)).unwrap().change;
    assert!(change.qemu.starts_with("ip link set dev tap0 mtu 9000\n"), "{}", change.qemu);
    assert_eq!((change.ways().len(), change.takes), (1, AppliesAt::Running));
    // A pod's, in its own namespace: the host may have another tap of that name.
    let mut way = way(9000);
    way[0].here = false;
    let backend = Fact::read(Some("tap".to_owned()), CommandLineOption::new(812, "netdev"));
    let pod = Nic { way: way.into(), backend, ..told(9000, 1500, 9000) };
    let change = found(&pod).unwrap().change;
    assert!(change.qemu.starts_with("nsenter -t 812 -n ip link set dev tap0 mtu 9000\n"), "{}", change.qemu);
    let unknown = found(&Nic { backend: "tap".into(), ..pod }).unwrap().change;
    assert!(unknown.qemu.starts_with("nsenter -t PID -n ip link"), "{}", unknown.qemu);
}

#[test]
fn a_guest_is_told_less_where_the_host_passes_less() {
    let change = found(&told(9000, 9000, 1400)).unwrap().change;
    assert_eq!(change.takes, AppliesAt::NextStart);
    assert_eq!(
        change.qemu,
        "# in its own -device: set this, keep all else\nhost_mtu=1400\n# or instead, where all behind passes 9000 \
         bytes on (a card's link may be reset):\n# ip link set dev eth0 mtu 9000"
    );
    assert!(change.libvirt.contains("\n<mtu size='1400'/>\n"), "{}", change.libvirt);
    assert!(change.proxmox.contains("sed -nE '/^net0: /{s///;s/,mtu=[^,]*//g;p}'"), "{}", change.proxmox);
    assert!(change.proxmox.contains("qm set 101 --net0 \"$card,mtu=1400\" && "), "{}", change.proxmox);
    // The bridge's own is said as Proxmox says it.
    let as_bridge = found(&told(9000, 9000, 1500)).unwrap().change;
    assert!(as_bridge.proxmox.contains("\"$card,mtu=1\" && "), "{}", as_bridge.proxmox);
    // An emulated card has no such key, nor has -nic.
    let e1000 = found(&Nic { model: "e1000".into(), ..nic(1500, 1450, 1500) }).unwrap().change;
    assert_eq!(e1000.takes, AppliesAt::InGuest);
    assert!(!e1000.qemu.contains("host_mtu") && !e1000.proxmox.contains("qm "));
    let mut given = told(9000, 9000, 1400);
    given.place.given = Some(vec!["-nic tap".into()]);
    let given = found(&given).unwrap().change.qemu;
    assert!(given.lines().all(|line| line.starts_with('#')), "{given}");
}

#[test]
fn a_containers_pair_asks_both_ends() {
    let veth = |nic: Nic| Nic { model: "veth".into(), backend: "veth".into(), ..nic };
    let routed = found(&Nic { way: Vec::<Hop>::new().into(), ..veth(nic(1500, 1450, 1500)) }).unwrap();
    assert!(routed.cause.contains("1500 bytes (set in it), but tap0 passes 1450 to it:"), "{}", routed.cause);
    assert_eq!((routed.severity, routed.change.takes), (Severity::Advice, AppliesAt::InGuest));
}

#[test]
fn a_measured_one_names_what_the_ends_and_the_link_took() {
    let all = findings(&(RULE.fixture.0)());
    let found = all.iter().find(|found| found.rule == RULE.id).unwrap();
    assert!(found.cause.contains("packets of 9000 bytes and the bridge's uplink of 1500"), "{}", found.cause);
}
