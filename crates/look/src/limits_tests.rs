#![allow(clippy::unwrap_used)]
use super::kernel::{GUARD, LXD_CLASS, SWITCH_CLASS, SWITCH_PREFERENCE};
use super::*;
use vmio_model::facts::{Hop, LimitedAt, Provenance, Subject};
use vmio_model::policy::Direction;
use vmio_node::fake::{Fake, says};
use vmio_node::netlink::tc::{self, Class, Filter, Limit, Qdisc};
use vmio_node::{NetworkAnswer, NetworkQuestion};

const INDEX: u32 = 7;

/// A machine with an interface, whose kernel says this of its qdiscs.
fn host(name: &str, qdiscs: Vec<Qdisc>) -> Fake {
    let dir = format!("/sys/class/net/{name}");
    let fake =
        Fake::new("fake").file(format!("{dir}/ifindex"), format!("{INDEX}\n")).file(format!("{dir}/mtu"), "1500\n");
    fake.kernel(NetworkQuestion::Qdiscs, NetworkAnswer::Qdiscs(qdiscs))
}

fn qdisc(kind: &str, parent: u32) -> Qdisc {
    let handle = if parent == tc::AT_HOOKS { 0xffff_0000 } else { 0x0001_0000 };
    Qdisc { index: INDEX, handle, parent, kind: kind.into(), ..Qdisc::default() }
}

fn rate(bytes_per_second: u64, burst_bytes: Option<u64>) -> Limit {
    Limit { bytes_per_second, burst_bytes }
}

fn class(handle: u32, parent: u32, bytes_per_second: u64) -> Class {
    Class { handle, parent, limit: Some(rate(bytes_per_second, None)), dropped: 0 }
}

fn policer(limit: Limit) -> Filter {
    Filter { preference: 50, whole: true, police: Some(limit), dropped: 41, redirect: None }
}

fn classes(all: Vec<Class>) -> (NetworkQuestion, NetworkAnswer) {
    (NetworkQuestion::Classes { index: INDEX }, NetworkAnswer::Classes(all))
}

fn filters(parent: u32, all: Vec<Filter>) -> (NetworkQuestion, NetworkAnswer) {
    (NetworkQuestion::Filters { index: INDEX, parent }, NetworkAnswer::Filters(all))
}

fn guest(kind: &str, interface: &str, backend: &str, configured: Vec<RateLimit>) -> Guest {
    let from = Provenance::Transcript { name: "test".into() };
    let nic = Nic {
        interface: interface.into(),
        backend: backend.into(),
        rate_limits: configured.into(),
        ..Nic::unknown(Subject::net("web1", interface), from)
    };
    Guest { name: "web1".into(), kind: kind.into(), nics: vec![nic], ..Guest::default() }
}

/// The limits of the only card, and what could not be read.
fn settled(fake: &Fake, mut guest: Guest) -> (Nic, Vec<Unread>) {
    let unread = settle(&HostView::new(fake), std::slice::from_mut(&mut guest));
    (guest.nics.remove(0), unread)
}

/// Direction, owner, Mbit/s, whether excess is dropped.
fn told(nic: &Nic) -> Vec<(&'static str, &str, u64, bool)> {
    let all = nic.rate_limits.iter();
    all.map(|l| (l.direction.word(), l.by.as_str(), l.most().bits() / 1_000_000, l.drops)).collect()
}

#[test]
fn libvirts_limits_and_the_kernels_are_the_same() {
    let mut root = qdisc("htb", tc::AT_ROOT);
    root.default_class = 0x0001_0001;
    let (classes, classes_are) = classes(vec![class(0x0001_0001, tc::AT_ROOT, 25_600_000)]);
    let (filters, filters_are) = filters(tc::AT_INGRESS, vec![policer(rate(25_600_000, Some(26_214_000)))]);
    let fake = host("vnet0", vec![root, qdisc("ingress", tc::AT_HOOKS)])
        .kernel(classes, classes_are)
        .kernel(filters, filters_are);
    let configured = |direction, drops| RateLimit::new("libvirt", direction, BitRate::new(204_800_000), drops);
    let own = vec![configured(Direction::GuestRx, false), configured(Direction::GuestTx, true)];
    let mut guest = guest("qemu", "vnet0", "tap", own);
    guest.ids.insert("domain".into(), "i-2-20-VM".into());
    let (nic, unread) = settled(&fake, guest);
    assert_eq!(unread, []);
    assert_eq!(told(&nic), [("guest_rx", "libvirt", 204, false), ("guest_tx", "libvirt", 204, true)]);
    let [inbound, outbound] = &nic.rate_limits[..] else { panic!("{nic:?}") };
    assert_eq!((inbound.at, outbound.at), (Some(LimitedAt::Root), Some(LimitedAt::Ingress)));
    assert_eq!((outbound.burst_bytes, outbound.dropped_packets), (Some(26_214_000), Some(41)));
    assert_eq!(outbound.platform.as_deref(), Some("cloudstack"));
    assert_eq!(nic.limits_shown()[1], "204.8 Mbit/s from the guest by libvirt");
}

#[test]
fn limits_by_hand_are_told_and_those_of_the_guard_are_not() {
    let mut root = qdisc("tbf", tc::AT_ROOT);
    root.limit = Some(rate(12_500_000, Some(10_000)));
    let (nic, _) = settled(&host("tap0", vec![root.clone()]), guest("qemu", "tap0", "tap", Vec::new()));
    assert_eq!(told(&nic), [("guest_rx", "tc", 100, false)]);
    // A macvtap sends what the guest sends.
    let (nic, _) = settled(&host("tap0", vec![root]), guest("qemu", "tap0", "macvtap", Vec::new()));
    assert_eq!(told(&nic), [("guest_tx", "tc", 100, false)]);
    let mut guards = qdisc("htb", tc::AT_ROOT);
    (guards.handle, guards.default_class) = (GUARD, GUARD | 1);
    let (classes, classes_are) = classes(vec![class(GUARD | 1, tc::AT_ROOT, 1_000_000)]);
    let fake = host("tap0", vec![guards]).kernel(classes, classes_are);
    assert!(settled(&fake, guest("qemu", "tap0", "tap", Vec::new())).0.rate_limits.is_empty());
}

#[test]
fn limits_of_interfaces_of_no_known_guest_are_read() {
    let mut root = qdisc("tbf", tc::AT_ROOT);
    root.limit = Some(rate(625_000, Some(10_000)));
    let fake = host("veth1", vec![root]);
    let (all, unread) = at_interfaces(&HostView::new(&fake), [("veth1", INDEX), ("veth2", INDEX + 1)]);
    assert_eq!(all.keys().collect::<Vec<_>>(), ["veth1"]);
    let [limit] = &all["veth1"][..] else { panic!("{all:?}") };
    assert_eq!((limit.by.as_str(), limit.direction, limit.rate_bps.bits()), ("tc", Direction::GuestRx, 5_000_000));
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn policer_of_clsact_has_its_preference_and_one_of_a_part_is_marked() {
    let part = Filter { whole: false, ..policer(rate(1_250_000, None)) };
    let (filters, filters_are) = filters(tc::AT_CLSACT_INGRESS, vec![policer(rate(12_500_000, None)), part]);
    let fake = host("tap0", vec![qdisc("clsact", tc::AT_HOOKS)]).kernel(filters, filters_are);
    let (nic, _) = settled(&fake, guest("qemu", "tap0", "tap", Vec::new()));
    assert_eq!(told(&nic), [("guest_tx", "tc", 100, true), ("guest_tx", "tc", 10, true)]);
    assert_eq!(nic.rate_limits[0].at, Some(LimitedAt::Clsact { egress: false, preference: 50 }));
    assert!(!nic.rate_limits[0].part && nic.rate_limits[1].part);
}

#[test]
fn pod_behind_a_cni_plugin() {
    let mut root = qdisc("tbf", tc::AT_ROOT);
    root.limit = Some(rate(12_500_000, None));
    let ifb = Qdisc { index: 9, limit: Some(rate(6_250_000, None)), ..qdisc("tbf", tc::AT_ROOT) };
    let lead = Filter { police: None, dropped: 0, redirect: Some(9), ..policer(rate(0, None)) };
    let (filters, filters_are) = filters(tc::AT_INGRESS, vec![lead]);
    let fake = host("veth1", vec![root, qdisc("ingress", tc::AT_HOOKS), ifb])
        .file("/sys/class/net/bwp1/ifindex", "9\n")
        .kernel(filters, filters_are);
    let (nic, _) = settled(&fake, guest("container", "veth1", "veth", Vec::new()));
    assert_eq!(told(&nic), [("guest_rx", "cni", 100, false), ("guest_tx", "cni", 50, false)]);
}

#[test]
fn container_of_lxd() {
    let mut root = qdisc("htb", tc::AT_ROOT);
    root.default_class = LXD_CLASS;
    // The class above it is lower.
    let all = vec![class(LXD_CLASS, 0x0001_0001, 25_000_000), class(0x0001_0001, tc::AT_ROOT, 12_500_000)];
    let ((classes, classes_are), (filters, filters_are)) =
        (classes(all), filters(tc::AT_INGRESS, vec![policer(rate(12_500_000, Some(1 << 20)))]));
    let fake = host("veth1", vec![root, qdisc("ingress", tc::AT_HOOKS)])
        .kernel(classes, classes_are)
        .kernel(filters, filters_are);
    let (nic, _) = settled(&fake, guest("container", "veth1", "veth", Vec::new()));
    assert_eq!(told(&nic), [("guest_rx", "lxd", 100, false), ("guest_tx", "lxd", 100, true)]);
}

#[test]
fn configured_limit_that_the_kernel_lacks() {
    let configured = vec![RateLimit::new("proxmox", Direction::GuestRx, BitRate::new(8_000_000), false)];
    // The kernel's own queue says nothing.
    let bare = host("tap0", vec![Qdisc { handle: 0, ..qdisc("fq_codel", tc::AT_ROOT) }]);
    let (nic, _) = settled(&bare, guest("qemu", "tap0", "tap", configured.clone()));
    assert!(nic.rate_limits[0].missing);
    // Of an interface that is not here nothing is known.
    let (nic, _) = settled(&bare, guest("qemu", "tap1", "tap", configured));
    assert!(!nic.rate_limits[0].missing);
}

#[test]
fn each_direction_may_be_missing_by_itself() {
    let limit = |direction, drops| RateLimit::new("libvirt", direction, BitRate::new(100_000_000), drops);
    let both = || vec![limit(Direction::GuestRx, false), limit(Direction::GuestTx, true)];
    let missing = |qdiscs: Vec<Qdisc>, backend: &str| {
        let (nic, _) = settled(&host("tap0", qdiscs), guest("qemu", "tap0", backend, both()));
        nic.rate_limits.iter().map(|limit| limit.missing).collect::<Vec<bool>>()
    };
    let kernels = || Qdisc { handle: 0, ..qdisc("fq_codel", tc::AT_ROOT) };
    let own = || Qdisc { limit: Some(rate(12_500_000, None)), ..qdisc("tbf", tc::AT_ROOT) };
    assert_eq!(missing(vec![own()], "tap"), [false, true]);
    assert_eq!(missing(vec![kernels(), qdisc("ingress", tc::AT_HOOKS)], "tap"), [true, false]);
    // A filter of clsact may be on either.
    assert_eq!(missing(vec![kernels(), qdisc("clsact", tc::AT_HOOKS)], "tap"), [false, false]);
    assert_eq!(missing(vec![kernels(), qdisc("ingress", tc::AT_HOOKS)], "macvtap"), [false, true]);
    // One that is down has no qdiscs.
    assert_eq!(missing(Vec::new(), "tap"), [false, false]);
}

/// `tc qdisc add dev tap0 root fq maxrate 100mbit`
#[test]
fn what_each_flow_may_have_is_told_as_such() {
    let root = Qdisc { flow_limit: Some(rate(12_500_000, None)), ..qdisc("fq", tc::AT_ROOT) };
    let fake = host("tap0", vec![root]);
    let own = RateLimit::new("libvirt", Direction::GuestRx, BitRate::new(100_000_000), false);
    let (nic, _) = settled(&fake, guest("qemu", "tap0", "tap", vec![own]));
    let words: Vec<String> = nic.rate_limits.iter().map(|limit| limit.words()).collect();
    assert_eq!(
        words,
        ["100 Mbit/s to the guest by libvirt", "100 Mbit/s for each flow to the guest by tc (by hand or a script)"]
    );
    let (all, _) = at_interfaces(&HostView::new(&fake), [("tap0", INDEX)]);
    assert!(all.is_empty(), "{all:?}");
}

/// A machine's tap has them as a container's veth pair does.
#[test]
fn machine_of_incus() {
    let root = Qdisc { default_class: LXD_CLASS, ..qdisc("htb", tc::AT_ROOT) };
    let (classes, classes_are) = classes(vec![class(LXD_CLASS, tc::AT_ROOT, 12_500_000)]);
    let fake = host("tap7", vec![root]).kernel(classes, classes_are);
    let own = |manager: Option<&str>| {
        let manager = manager.map(str::to_owned);
        let guest = Guest { manager, ..guest("qemu", "tap7", "tap", Vec::new()) };
        told(&settled(&fake, guest).0)[0].1.to_owned()
    };
    assert_eq!([own(Some("incus")), own(Some("lxd")), own(None)], ["incus", "lxd", "tc"]);
}

/// lib/netdev-linux.c, `htb_class_set`: queue 0 is class 1:1, below 1:fffe.
#[test]
fn queues_of_open_vswitch_are_its_own() {
    let switch =
        Hop { interface: "br-int".into(), kind: HopKind::OvsBridge, mtu_bytes: None, driver: None, here: true };
    for kind in ["htb", "hfsc"] {
        let root = Qdisc { default_class: 0x0001_0001, ..qdisc(kind, tc::AT_ROOT) };
        let all = vec![class(0x0001_0001, SWITCH_CLASS, 12_500_000), class(SWITCH_CLASS, tc::AT_ROOT, 625_000)];
        let (classes, classes_are) = classes(all);
        let fake = host("tap7", vec![root]).kernel(classes, classes_are);
        let mut port = guest("qemu", "tap7", "tap", Vec::new());
        assert_eq!(told(&settled(&fake, port.clone()).0), [("guest_rx", "tc", 5, false)]);
        port.nics[0].way = vec![switch.clone()].into();
        assert_eq!(told(&settled(&fake, port).0), [("guest_rx", "openvswitch", 5, false)]);
    }
    // One by hand, beside Open vSwitch's policer.
    let root = Qdisc { limit: Some(rate(12_500_000, None)), ..qdisc("tbf", tc::AT_ROOT) };
    let policer = Filter { preference: SWITCH_PREFERENCE, ..policer(rate(1_250_000, None)) };
    let (filters, filters_are) = filters(tc::AT_INGRESS, vec![policer]);
    let fake = host("tap7", vec![root, qdisc("ingress", tc::AT_HOOKS)]).kernel(filters, filters_are);
    let mut port = guest("qemu", "tap7", "tap", Vec::new());
    port.nics[0].way = vec![switch].into();
    let all = [("guest_rx", "tc", 100, false), ("guest_tx", "openvswitch", 10, true)];
    assert_eq!(told(&settled(&fake, port).0), all);
}

/// libvirt writes its limit to the port of Open vSwitch, which has it policed by the kernel, or by the hardware.
#[test]
fn libvirts_limit_at_a_port_of_open_vswitch_is_one() {
    let switch =
        Hop { interface: "br-int".into(), kind: HopKind::OvsBridge, mtu_bytes: None, driver: None, here: true };
    let settled = |fake: Fake, own: Vec<RateLimit>| {
        let fake = fake
            .file("/run/openvswitch/db.sock", "")
            .installed("ovs-vsctl")
            .program("ovs-vsctl", says(crate::ovs::tests::SAID));
        let mut guest = guest("qemu", "tap0", "tap", own);
        guest.nics[0].way = vec![switch.clone()].into();
        settled(&fake, guest).0
    };
    let own = || vec![RateLimit::new("libvirt", Direction::GuestTx, BitRate::new(100_000_000), true)];
    let policer = Filter { preference: SWITCH_PREFERENCE, ..policer(rate(12_500_000, None)) };
    let (filters, filters_are) = filters(tc::AT_INGRESS, vec![policer]);
    let fake = || host("tap0", vec![qdisc("ingress", tc::AT_HOOKS)]).kernel(filters.clone(), filters_are.clone());
    let nic = settled(fake(), own());
    assert_eq!(told(&nic), [("guest_tx", "libvirt", 100, true)]);
    assert_eq!((nic.rate_limits[0].at, nic.rate_limits[0].missing), (Some(LimitedAt::Ingress), false));
    assert_eq!(told(&settled(fake(), Vec::new())), [("guest_tx", "openvswitch", 100, true)]);
    let bare = host("tap0", vec![Qdisc { handle: 0, ..qdisc("fq_codel", tc::AT_ROOT) }]);
    let nic = settled(bare, own());
    assert_eq!((told(&nic), nic.rate_limits[0].missing), (vec![("guest_tx", "libvirt", 100, true)], false));
}

#[test]
fn limits_in_another_network_namespace_are_not_read() {
    let fake = host("tap0", Vec::new()).symlink("/proc/self/ns/net", "net:[1]").symlink("/proc/812/ns/net", "net:[2]");
    let mut guest = Guest { pid: Some(812), ..guest("qemu", "tap0", "tap", Vec::new()) };
    settle(&HostView::new(&fake), std::slice::from_mut(&mut guest));
    let unread = &guest.unread[0];
    assert_eq!((guest.unread.len(), unread.what.as_str()), (1, "limits (tc) of tap0"));
    assert!(unread.mend.contains("nsenter -t 812 -n tc -s qdisc show dev tap0"), "{unread:?}");
}

/// A CNI plugin limits a pod's end of the veth pair, here; its tap is in the pod.
#[test]
fn limits_of_a_pod_are_those_at_its_end_here() {
    let root = Qdisc { limit: Some(rate(12_500_000, None)), ..qdisc("tbf", tc::AT_ROOT) };
    let fake = host("cali9", vec![root]).symlink("/proc/self/ns/net", "net:[1]").symlink("/proc/812/ns/net", "net:[2]");
    let hop =
        |interface: &str, kind, here| Hop { interface: interface.into(), kind, mtu_bytes: None, driver: None, here };
    let mut guest = Guest { pid: Some(812), ..guest("qemu", "tap0", "tap", Vec::new()) };
    guest.nics[0].way =
        vec![hop("tap0", HopKind::Tap, false), hop("eth0", HopKind::Veth, false), hop("cali9", HopKind::Veth, true)]
            .into();
    settle(&HostView::new(&fake), std::slice::from_mut(&mut guest));
    let limit = &guest.nics[0].rate_limits[0];
    assert_eq!(
        (told(&guest.nics[0]), limit.interface.as_deref()),
        (vec![("guest_rx", "cni", 100, false)], Some("cali9"))
    );
    assert!(guest.unread[0].why.contains("those at cali9, which its packets pass here, were read"), "{guest:?}");
}

/// By hand at the one card behind a bridge, and of a network of libvirt's at its bridge, which the host routes for.
#[test]
fn what_all_guests_of_a_bridge_share_is_told_as_such() {
    let hop =
        |interface: &str, kind| Hop { interface: interface.into(), kind, mtu_bytes: None, driver: None, here: true };
    let settled = |way: Vec<Hop>, at: &str, own: Vec<RateLimit>| {
        let root = Qdisc { limit: Some(rate(12_500_000, Some(10_000))), dropped: 9, ..qdisc("tbf", tc::AT_ROOT) };
        let mut guest = guest("qemu", "tap7", "tap", own);
        guest.nics[0].way = way.into();
        guest.ids.insert("openstack".into(), "x".into());
        settled(&host(at, vec![root]), guest).0
    };
    let bridged = || vec![hop("tap7", HopKind::Tap), hop("br0", HopKind::Bridge), hop("eth0", HopKind::Card)];
    let nic = settled(bridged(), "eth0", Vec::new());
    assert_eq!(told(&nic), [("guest_tx", "tc", 100, false)]);
    let limit = &nic.rate_limits[0];
    assert_eq!((limit.interface.as_deref(), limit.shared, limit.dropped_packets), (Some("eth0"), true, None));
    assert_eq!(limit.words(), "100 Mbit/s from the guest by tc (by hand or a script) at eth0, shared");
    assert_eq!(limit.platform, None, "Nova sets limits of ports, none of the uplink");
    // Beside what is configured for the card itself.
    let own = RateLimit::new("libvirt", Direction::GuestTx, BitRate::new(100_000_000), true);
    assert_eq!(settled(bridged(), "eth0", vec![own]).rate_limits.len(), 2);
    let routed = || vec![hop("tap7", HopKind::Tap), hop("virbr0", HopKind::Bridge)];
    assert_eq!(told(&settled(routed(), "virbr0", Vec::new())), [("guest_rx", "tc", 100, false)]);
    // What is bridged does not pass the bridge's own queue, and of two cards each has a part.
    assert!(settled(bridged(), "br0", Vec::new()).rate_limits.is_empty());
    let two = [bridged(), vec![hop("eth1", HopKind::Card)]].concat();
    assert!(settled(two, "eth0", Vec::new()).rate_limits.is_empty());
}

#[test]
fn qdisc_that_is_not_taken_apart_is_told() {
    let fake = host("tap0", vec![qdisc("cbq", tc::AT_ROOT)]);
    let mut guest = guest("qemu", "tap0", "tap", Vec::new());
    settle(&HostView::new(&fake), std::slice::from_mut(&mut guest));
    assert!(guest.unread[0].why.contains("cbq") && guest.nics[0].rate_limits.is_empty(), "{guest:?}");
}

#[test]
fn platform_by_the_name_of_the_domain() {
    let of = |domain: &str| {
        let mut guest = Guest::default();
        guest.ids.insert("domain".into(), domain.into());
        platform(&guest)
    };
    assert_eq!((of("i-2-20-VM"), of("i-x-20-VM"), of("web-1")), (Some("cloudstack"), None, None));
}
