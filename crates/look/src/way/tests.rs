use vmio_model::facts::{Provenance, Subject, way_shown};
use vmio_node::Fake;
use vmio_node::fake::says;

use super::*;

/// An interface below a directory like `/sys/class/net`; `more` are names of its files with their content.
fn interface(fake: Fake, dir: &str, name: &str, mtu: u32, more: &[(&str, &str)]) -> Fake {
    let fake = fake.file(format!("{dir}/{name}/mtu"), format!("{mtu}\n"));
    more.iter().fold(fake, |fake, (file, content)| fake.file(format!("{dir}/{name}/{file}"), *content))
}

/// Makes an interface a port of another.
fn port(fake: Fake, dir: &str, name: &str, master: &str) -> Fake {
    fake.symlink(format!("{dir}/{name}/master"), format!("../{master}"))
        .symlink(format!("{dir}/{master}/lower_{name}"), format!("../{name}"))
}

const HERE: &str = "/sys/class/net";
const TAP: &[(&str, &str)] = &[("tun_flags", "0x1802\n")];
const BRIDGE: &[(&str, &str)] = &[("uevent", "DEVTYPE=bridge\n"), ("bridge/stp_state", "0\n")];

fn tap(fake: Fake, name: &str, master: &str) -> Fake {
    port(interface(fake, HERE, name, 1500, TAP), HERE, name, master)
}

fn bridge(fake: Fake, name: &str) -> Fake {
    interface(fake, HERE, name, 1500, BRIDGE)
}

fn veth(fake: Fake, dir: &str, name: &str, mtu: u32, (index, other): (u32, u32)) -> Fake {
    let (index, other) = (format!("{index}\n"), format!("{other}\n"));
    interface(fake, dir, name, mtu, &[("ifindex", index.as_str()), ("iflink", other.as_str())])
}

fn card(fake: Fake, name: &str, mtu: u32) -> Fake {
    interface(fake, HERE, name, mtu, &[]).symlink(format!("{HERE}/{name}/device/driver"), "../drivers/igb")
}

fn settled(fake: &Fake, dir: &str, name: &str) -> Nic {
    let from = Provenance::Transcript { name: "made up".into() };
    let mut nic = Nic { backend: "tap".into(), ..Nic::unknown(Subject::net("a", name), from) };
    settle(&HostView::new(fake), &Interfaces::shown_at(fake, dir), &mut nic, name);
    nic
}

fn way(fake: &Fake, name: &str) -> String {
    way_shown(&settled(fake, HERE, name).way)
}

#[test]
fn a_way_ends_at_the_cards_of_a_bridge() {
    let fake = bridge(Fake::new("fake"), "br0");
    let fake = tap(tap(fake, "tap0", "br0"), "tap1", "br0");
    assert_eq!(way(&fake, "tap0"), "tap0 1500, br0 1500");
    let fake = port(card(fake, "eth0", 1450), HERE, "eth0", "br0");
    let found = settled(&fake, HERE, "tap0");
    assert_eq!(way_shown(&found.way), "tap0 1500, br0 1500, eth0 1450");
    let last = &found.way[2];
    assert_eq!((last.kind, last.driver.as_deref(), last.here), (HopKind::Card, Some("igb"), true));
    assert_eq!((found.bridge.as_deref(), *found.bridge_mtu_bytes), (Some("br0"), Some(1500)));
    // Without a bridge the host routes.
    assert_eq!(way(&interface(fake, HERE, "tap9", 1400, TAP), "tap9"), "tap9 1400");
}

#[test]
fn bonds_and_vlans_are_followed_to_their_cards() {
    let fake = tap(bridge(Fake::new("fake"), "br0"), "tap0", "br0");
    let fake = port(interface(fake, HERE, "bond0.5", 1500, &[("uevent", "DEVTYPE=vlan\n")]), HERE, "bond0.5", "br0");
    let fake = interface(fake, HERE, "bond0", 9000, &[("uevent", "DEVTYPE=bond\n")])
        .symlink("/sys/class/net/bond0.5/lower_bond0", "../bond0");
    let fake = port(card(fake, "eth0", 9000), HERE, "eth0", "bond0");
    assert_eq!(way(&fake, "tap0"), "tap0 1500, br0 1500, bond0.5 1500, bond0 9000, eth0 9000");
}

#[test]
fn speed_of_all_that_a_bridge_sends_by() {
    let with = |fake: Fake, name: &str, file: &str, said: &str| fake.file(format!("{HERE}/{name}/{file}"), said);
    let of = |fake: &Fake| *settled(fake, HERE, "tap0").uplink_bps;
    let plain = || port(card(tap(bridge(Fake::new("fake"), "br0"), "tap0", "br0"), "eth0", 1500), HERE, "eth0", "br0");
    assert_eq!((of(&plain()), of(&with(plain(), "eth0", "speed", "-1\n"))), (None, None));
    let one = || with(plain(), "eth0", "speed", "1000\n");
    assert_eq!(of(&one()), Some(BitRate::new(1_000_000_000)));
    // Another one whose speed is not known may carry anything; one without a link carries nothing.
    let two = || port(card(one(), "eth1", 1500), HERE, "eth1", "br0");
    assert_eq!((of(&two()), of(&with(two(), "eth1", "speed", "4294967295\n"))), (None, None));
    assert_eq!(of(&with(two(), "eth1", "speed", "10000\n")), Some(BitRate::new(11_000_000_000)));
    assert_eq!(of(&with(two(), "eth1", "carrier", "0\n")), Some(BitRate::new(1_000_000_000)));
    // A bond has a speed of its own; its members' are not added.
    let bond = || tap(bridge(Fake::new("fake"), "br0"), "tap0", "br0");
    let bond = || port(interface(bond(), HERE, "bond0", 1500, &[("uevent", "DEVTYPE=bond\n")]), HERE, "bond0", "br0");
    let bond = || port(card(with(bond(), "bond0", "speed", "2000\n"), "eth0", 1500), HERE, "eth0", "bond0");
    assert_eq!(of(&with(bond(), "eth0", "speed", "1000\n")), Some(BitRate::new(2_000_000_000)));
    // It leaves out members whose speed is not known, and a bridge tells that of a tap.
    assert_eq!((of(&bond()), of(&with(bond(), "eth0", "carrier", "0\n"))), (None, Some(BitRate::new(2_000_000_000))));
    let vlan = || {
        let vlan = bridge(tap(bridge(Fake::new("fake"), "br5"), "tap0", "br5"), "br0");
        port(
            interface(vlan, HERE, "br0.5", 1500, &[("uevent", "DEVTYPE=vlan\n"), ("speed", "10\n")]),
            HERE,
            "br0.5",
            "br5",
        )
    };
    assert_eq!(of(&vlan()), Some(BitRate::new(10_000_000)));
    assert_eq!(of(&vlan().symlink(format!("{HERE}/br0.5/lower_br0"), "../br0")), None);
}

/// PVE/Network.pm, `create_firewall_bridge_linux`: a bridge of its own for each card, joined by a pair.
#[test]
fn proxmoxs_firewall_is_followed_and_other_guests_are_not() {
    let mut fake = bridge(Fake::new("fake"), "vmbr0");
    for (n, vmid) in [101, 102].into_iter().enumerate() {
        let index = 10 * (n as u32 + 1);
        let [firewall, inner, outer] = ["fwbr", "fwln", "fwpr"].map(|name| format!("{name}{vmid}"));
        fake = tap(bridge(fake, &firewall), &format!("tap{vmid}"), &firewall);
        fake = port(veth(fake, HERE, &inner, 1500, (index, index + 1)), HERE, &inner, &firewall);
        fake = port(veth(fake, HERE, &outer, 1500, (index + 1, index)), HERE, &outer, "vmbr0");
    }
    assert_eq!(way(&fake, "tap101"), "tap101 1500, fwbr101 1500");
    let fake = port(card(fake, "eno1", 1400), HERE, "eno1", "vmbr0");
    assert_eq!(way(&fake, "tap101"), "tap101 1500, fwbr101 1500, fwln101 1500, fwpr101 1500, vmbr0 1500, eno1 1400");
}

/// A pod's bridge has a port whose other end is on the host; numbers of interfaces are each namespace's own.
#[test]
fn a_pods_way_goes_on_in_the_hosts_namespace() {
    let pod = "/proc/7/root/sys/class/net";
    let fake = interface(Fake::new("fake"), pod, "k6t-eth0", 1500, BRIDGE);
    let fake = port(interface(fake, pod, "tap0", 1500, TAP), pod, "tap0", "k6t-eth0");
    let fake = port(veth(fake, pod, "eth0", 1450, (3, 20)), pod, "eth0", "k6t-eth0");
    let unseen = settled(&fake, pod, "tap0").way;
    assert_eq!(way_shown(&unseen), "tap0 1500, k6t-eth0 1500, eth0 1450");
    // Another pod's pair has that number, too, but does not name this one.
    let wrong = veth(fake, HERE, "cali9", 1450, (20, 4));
    assert_eq!(way_shown(&settled(&wrong, pod, "tap0").way), way_shown(&unseen));
    let fake = veth(wrong, HERE, "cali9", 1450, (20, 3));
    let seen = settled(&fake, pod, "tap0").way;
    assert_eq!(way_shown(&seen), "tap0 1500, k6t-eth0 1500, eth0 1450, cali9 1450");
    assert_eq!(seen.iter().map(|hop| hop.here).collect::<Vec<bool>>(), [false, false, false, true]);
    // On the host the other ends of pods' pairs lead to pods, not to a card.
    let fake = port(bridge(fake, "cni0"), HERE, "cali9", "cni0");
    assert_eq!(way(&tap(fake, "tap8", "cni0"), "tap8"), "tap8 1500, cni0 1500");
}

#[test]
fn ports_of_open_vswitch_go_on_by_patch_ports() {
    let port = || {
        interface(Fake::new("fake"), HERE, "tap0", 1500, TAP)
            .file("/sys/class/net/tap0/statistics/tx_errors", "7\n")
            .symlink("/sys/class/net/tap0/master", "../ovs-system")
    };
    let unasked = settled(&port(), HERE, "tap0");
    assert_eq!((way_shown(&unasked.way).as_str(), *unasked.tap_errors), ("tap0 1500, ovs-system", Some(7)));
    assert_eq!(unasked.way[1].kind, HopKind::OvsBridge);
    let fake = |said: &str| {
        card(port(), "eth0", 1500)
            .symlink("/sys/class/net/eth0/master", "../ovs-system")
            .file("/sys/class/net/eth0/speed", "1000\n")
            .file("/run/openvswitch/db.sock", "")
            .installed("ovs-vsctl")
            .program("ovs-vsctl", says(said))
    };
    // What goes by a tunnel does not leave by that card.
    let tunnel = crate::ovs::tests::SAID.replacen(r#""tap1","system""#, r#""vx","vxlan""#, 1);
    assert_eq!(*settled(&fake(&tunnel), HERE, "tap0").uplink_bps, None);
    let asked = settled(&fake(crate::ovs::tests::SAID), HERE, "tap0");
    assert_eq!(*asked.uplink_bps, Some(BitRate::new(1_000_000_000)));
    assert_eq!(way_shown(&asked.way), "tap0 1500, br-int, br-ex, eth0 1500");
    assert_eq!((asked.bridge.as_deref(), asked.read()["bridge"].as_str()), (Some("br-int"), "ovs-vsctl list Bridge"));
}

/// Bridges that lead to each other, and one with more ports than anybody has.
#[test]
fn circles_and_crowds_come_to_an_end() {
    let fake = tap(bridge(bridge(Fake::new("fake"), "br0"), "br1"), "tap0", "br0");
    let fake = port(veth(fake, HERE, "a", 1500, (5, 6)), HERE, "a", "br0");
    let fake = port(veth(fake, HERE, "b", 1500, (6, 5)), HERE, "b", "br1");
    assert_eq!(way(&fake, "tap0"), "tap0 1500, br0 1500");
    let crowded = tap(bridge(Fake::new("fake"), "br0"), "tap0", "br0");
    let crowd = (0..100).fold(crowded, |fake, n| {
        let name = format!("eth{n}");
        port(card(fake, &name, 1500), HERE, &name, "br0")
    });
    assert_eq!(settled(&crowd, HERE, "tap0").way.len(), 2 + MOST_PORTS);
}
