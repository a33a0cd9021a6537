//! The way of a card's packets on this host: from its interface through bridges, those of Open vSwitch and veth pairs
//! to the network cards by which they leave, and how fast these are. Where a bridge has a card, a VLAN, a bond or a
//! tunnel among its ports, the way ends there; else it goes on by veth pairs and patch ports, the nearest first: so
//! Proxmox VE's firewall (`fwbr`, PVE/Network.pm, `create_firewall_bridge_linux`), Neutron's hybrid plug and a pod's own
//! bridge are followed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use vmio_model::facts::{Fact, Hop, HopKind, Nic};
use vmio_model::rate::BitRate;
use vmio_node::linux::net::{InterfaceKind, Interfaces, Port};

use crate::behind::Behind;
use crate::host_view::HostView;
use crate::ovs::DATAPATH;

/// Most bridges that are looked behind.
const MOST_BRIDGES: usize = 16;
/// Most ports of a bridge in a guest's own namespace that are looked at, members of a bond, and interfaces that a
/// bridge sends by.
const MOST_PORTS: usize = 64;
/// Most ports of one of this machine's bridges that are looked at.
const MOST_HOST_PORTS: usize = 4096;
/// Longest chain of bonds and VLANs below a port.
const STEPS: usize = 3;

/// Puts MTU, bridge and way of a card's interface; `all` are the interfaces of its namespace.
pub fn settle(host: &HostView<'_>, all: &Interfaces<'_>, nic: &mut Nic, name: &str) {
    let dir = all.dir.display();
    nic.mtu_bytes = Fact::read(all.mtu_bytes(name), format!("{dir}/{name}/mtu"));
    let here = all.is_here();
    let kind = match nic.backend.as_deref() {
        Some("macvtap") => HopKind::Macvlan,
        Some("veth") => kind_of(all.kind(name)),
        _ => HopKind::Tap,
    };
    let hop =
        |interface: &str, kind, mtu_bytes| Hop { interface: interface.to_owned(), kind, mtu_bytes, driver: None, here };
    let mut way = vec![hop(name, kind, *nic.mtu_bytes)];
    let from = format!("{dir}/{name}/master");
    match all.master(name) {
        Some(master) if master == DATAPATH => {
            let bridge = here.then(|| host.ovs().ok()?.bridge_of(name)).flatten();
            let (bridge, from) =
                bridge.map_or((master.as_str(), from), |bridge| (bridge, "ovs-vsctl list Bridge".into()));
            way.push(hop(bridge, HopKind::OvsBridge, None));
            nic.tap_errors = Fact::read(all.transmit_errors(name), format!("{dir}/{name}/statistics/tx_errors"));
            nic.bridge = Fact::read(Some(bridge.to_owned()), from);
        }
        Some(master) => {
            let mtu = all.bridge_mtu_bytes(&master);
            if mtu.is_some() {
                nic.bridge_mtu_bytes = Fact::read(mtu, format!("{from}/mtu"));
                way.push(hop(&master, HopKind::Bridge, mtu));
            }
            nic.bridge = Fact::read(Some(master), from);
        }
        None => {}
    }
    let (way, speed) = Walk { host, all }.on(way);
    nic.way = Fact::read(way, format!("{dir}, lower_* of its bridges"));
    // A macvtap has the speed of what it sends by (drivers/net/macvlan.c, `macvlan_ethtool_get_link_ksettings`).
    let speed = if kind == HopKind::Macvlan && here { speed_of(all, [name]) } else { speed };
    if speed.is_some() {
        nic.uplink_bps = Fact::read(speed, "/sys/class/net, speed of what it sends by");
    }
}

/// A search for the network cards behind a bridge.
struct Walk<'a> {
    host: &'a HostView<'a>,
    /// The interfaces of the guest's namespace.
    all: &'a Interfaces<'a>,
}

impl Walk<'_> {
    /// The way from an interface and its bridge, as far as it can be seen, and the speed of its end where there is no
    /// other. Ends of veth pairs beside it are other guests'.
    fn on(&self, way: Vec<Hop>) -> (Vec<Hop>, Option<BitRate>) {
        let mut only = true;
        let (mut next, mut passed, mut routed) = (VecDeque::from([way.clone()]), BTreeSet::new(), None);
        while let Some(way) = next.pop_front().filter(|_| passed.len() < MOST_BRIDGES) {
            let Some(bridge) = way.last().filter(|last| last.kind.is_bridge()).cloned() else {
                // No bridge: here the host routes, or a namespace begins that is not seen.
                routed.get_or_insert(way);
                continue;
            };
            if !passed.insert((bridge.here, bridge.interface.clone())) {
                continue;
            }
            let behind = self.behind(&bridge);
            let on = |hops: Vec<Hop>| way.iter().cloned().chain(hops).collect::<Vec<Hop>>();
            let unseen = behind.patched.iter().filter(|hop| !passed.contains(&(hop.here, hop.interface.clone())));
            only &= !behind.others && unseen.count() + usize::from(!behind.leave.is_empty()) <= 1;
            if !behind.leave.is_empty() {
                return (on(behind.leave.clone()), behind.speed.filter(|_| only));
            }
            let beyond = || behind.pairs.iter().filter_map(|port| self.beyond(port, bridge.here)).collect();
            // Patch ports first: they are few, and lead on; behind a pair there may be another guest.
            next.extend(behind.patched.iter().map(|hop| on(vec![hop.clone()])));
            next.extend(behind.beyond.get_or_init(beyond).iter().cloned().map(on));
        }
        (routed.unwrap_or(way), None)
    }

    /// The interfaces of the guest's namespace, or of vmio's own.
    fn interfaces(&self, here: bool) -> Interfaces<'_> {
        if here { Interfaces::here(self.host.reader()) } else { self.all.clone() }
    }

    /// What a bridge sends by.
    fn behind(&self, bridge: &Hop) -> Arc<Behind> {
        let ports = || match bridge.kind {
            HopKind::OvsBridge if bridge.here => self.ovs_ports(bridge),
            HopKind::OvsBridge => Vec::new(),
            _ if bridge.here => self.interfaces(true).ports(&bridge.interface, MOST_HOST_PORTS),
            _ => self.all.ports(&bridge.interface, MOST_PORTS),
        };
        let look = || {
            let (leave, pairs): (Vec<Port>, Vec<Port>) =
                ports().into_iter().partition(|port| port.kind != InterfaceKind::Veth);
            let names = || leave.iter().map(|port| port.name.as_str());
            let all_seen = bridge.here && leave.len() < MOST_PORTS;
            let speed = all_seen.then(|| speed_of(&self.interfaces(true), names())).flatten();
            let hops = leave.into_iter().flat_map(|port| self.with_below(port, bridge.here));
            let (leave, patched) = (hops.take(MOST_PORTS).collect(), self.patched(bridge));
            Arc::new(Behind { leave, speed, others: self.has_others(bridge), pairs, beyond: OnceLock::new(), patched })
        };
        if bridge.here { self.host.bridges().get(&bridge.interface, look) } else { look() }
    }

    /// Whether packets leave a bridge by ports that are no interfaces of the kernel's: tunnels of Open vSwitch, DPDK's
    /// cards. Those of DPDK's guests are none of them.
    fn has_others(&self, bridge: &Hop) -> bool {
        let is_other = |kind: &str| {
            !matches!(kind, "" | "system" | "internal" | "patch" | "dpdkvhostuser" | "dpdkvhostuserclient")
        };
        bridge.kind == HopKind::OvsBridge
            && self.host.ovs().is_ok_and(|ovs| ovs.of_bridge(&bridge.interface).any(|(_, port)| is_other(&port.kind)))
    }

    /// The ports of a bridge of Open vSwitch that are the kernel's interfaces; taps among them are other guests'.
    fn ovs_ports(&self, bridge: &Hop) -> Vec<Port> {
        let Ok(ovs) = self.host.ovs() else { return Vec::new() };
        let here = self.interfaces(true);
        let of_kernel =
            ovs.of_bridge(&bridge.interface).filter(|(_, port)| matches!(port.kind.as_str(), "" | "system"));
        here.leading_on(of_kernel.map(|(name, _)| name).filter(|name| here.has_interface(name)))
    }

    /// The bridges at the other ends of a bridge's patch ports.
    fn patched(&self, bridge: &Hop) -> Vec<Hop> {
        if bridge.kind != HopKind::OvsBridge || !bridge.here {
            return Vec::new();
        }
        let Ok(ovs) = self.host.ovs() else { return Vec::new() };
        let peers = ovs.of_bridge(&bridge.interface).filter_map(|(_, port)| ovs.bridge_of(port.peer.as_deref()?));
        peers.map(ovs_bridge).collect()
    }

    /// A veth pair from this end, and the bridge that its other end is in. `None` where that end is in a namespace that
    /// is not seen: another container's. What leaves the guest's own namespace is not another's.
    fn beyond(&self, port: &Port, here: bool) -> Option<Vec<Hop>> {
        let from = self.interfaces(here);
        let index = from.link_index(&port.name)?;
        let is_end = |of: &Interfaces<'_>, end: &str| from.is_other_end(&port.name, of, end);
        let inside = || self.all.with_index(index).filter(|end| is_end(self.all, end)).map(|end| (end, false));
        let outside = || {
            let end = self.host.interface(index)?;
            is_end(&self.interfaces(true), end).then(|| (end.to_owned(), true))
        };
        let end = if here { outside() } else { inside().or_else(outside) };
        let first = hop(port.clone(), here);
        let Some((end, end_here)) = end else { return (!here).then(|| vec![first]) };
        let there = self.interfaces(end_here);
        let last = hop(there.port(&end), end_here);
        let bridge = there.master(&end).map(|master| match master.as_str() {
            DATAPATH if end_here => {
                let bridge = self.host.ovs().ok().and_then(|ovs| ovs.bridge_of(&end));
                ovs_bridge(bridge.unwrap_or(DATAPATH))
            }
            _ => {
                let mtu_bytes = there.bridge_mtu_bytes(&master);
                let kind = if mtu_bytes.is_some() { HopKind::Bridge } else { HopKind::Other };
                Hop { interface: master, kind, mtu_bytes, driver: None, here: end_here }
            }
        });
        Some([first, last].into_iter().chain(bridge).collect())
    }

    /// A port and what it sends by: the members of a bond, the interface below a VLAN.
    fn with_below(&self, port: Port, here: bool) -> Vec<Hop> {
        let all = self.interfaces(here);
        let (mut hops, mut next) = (Vec::new(), vec![port]);
        for _ in 0..=STEPS {
            let stacked = |port: &&Port| matches!(port.kind, InterfaceKind::Vlan | InterfaceKind::Bond);
            let names = next.iter().filter(stacked).flat_map(|port| all.below(&port.name, MOST_PORTS));
            let names: Vec<String> = names.take(MOST_PORTS).collect();
            hops.extend(next.drain(..).map(|port| hop(port, here)));
            next = names.iter().map(|name| all.port(name)).filter(|port| port.kind != InterfaceKind::Bridge).collect();
        }
        hops
    }
}

/// How fast these interfaces of this machine are together; `None` where that is not known of each.
fn speed_of<'n>(here: &Interfaces<'_>, names: impl IntoIterator<Item = &'n str>) -> Option<BitRate> {
    let all = names.into_iter().map(|name| speed_bps(here, name, STEPS).map(u128::from)).sum::<Option<u128>>()?;
    (all > 0).then(|| BitRate::of_sum(all))
}

/// How fast an interface is; one without a link not at all. A VLAN tells what is below it, and a bond the sum of the
/// members that it sends by, without those whose speed is not known (drivers/net/bonding/bond_main.c,
/// `bond_ethtool_get_link_ksettings`). A bridge tells the fastest of its ports, guests' taps too (net/bridge/br_device.c,
/// `br_get_link_ksettings`), which is no speed of what it sends by.
fn speed_bps(here: &Interfaces<'_>, name: &str, steps: usize) -> Option<u64> {
    if here.has_carrier(name) == Some(false) {
        return Some(0);
    }
    let speed = here.speed_bps(name)?;
    let is_known = |below: &String| {
        steps > 0 && here.kind(below) != InterfaceKind::Bridge && speed_bps(here, below, steps - 1).is_some()
    };
    here.below(name, MOST_PORTS).iter().all(is_known).then_some(speed)
}

fn ovs_bridge(name: &str) -> Hop {
    Hop { interface: name.to_owned(), kind: HopKind::OvsBridge, mtu_bytes: None, driver: None, here: true }
}

fn hop(port: Port, here: bool) -> Hop {
    Hop { interface: port.name, kind: kind_of(port.kind), mtu_bytes: port.mtu_bytes, driver: port.driver, here }
}

fn kind_of(kind: InterfaceKind) -> HopKind {
    match kind {
        InterfaceKind::Tap => HopKind::Tap,
        InterfaceKind::Macvlan => HopKind::Macvlan,
        InterfaceKind::Bridge => HopKind::Bridge,
        InterfaceKind::Veth => HopKind::Veth,
        InterfaceKind::Vlan => HopKind::Vlan,
        InterfaceKind::Bond => HopKind::Bond,
        InterfaceKind::Tunnel => HopKind::Tunnel,
        InterfaceKind::Card => HopKind::Card,
        InterfaceKind::Other => HopKind::Other,
    }
}

#[cfg(test)]
mod tests;
