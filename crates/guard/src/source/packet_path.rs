//! The path of packets between an interface and an uplink, as far as it decides whether a packet that waits at the
//! uplink is still charged to the interface: bridges, veth pairs, VLANs and bonds, and whether a bridge calls the
//! firewall.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use vmio_model::holding::PacketPath;

use crate::planes::linux::links::Link;

/// Longest chain of bridges that is followed.
const STEPS: usize = 8;

/// Settings of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Host {
    /// Whether every bridge hands its packets to the IP firewall (`net.bridge.bridge-nf-call-iptables` and its kin).
    pub every_bridge: Option<bool>,
}

impl Host {
    /// This host's, in the network namespace of the thread.
    pub fn here() -> Host {
        let on = |call: &str| match fs::read_to_string(format!("/proc/sys/net/bridge/bridge-nf-call-{call}")) {
            Ok(text) => Some(text.trim() != "0"),
            // Without the module there is no such file.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        };
        let mut all = ["iptables", "ip6tables", "arptables"].into_iter().map(on);
        Host { every_bridge: all.try_fold(false, |any, one| Some(any || one?)) }
    }

    fn calls(&self, bridge: &Link) -> Option<bool> {
        if bridge.kind != "bridge" {
            // A bond, a team, Open vSwitch: none asks the firewall of bridges.
            return Some(false);
        }
        if bridge.asks_firewall { Some(true) } else { self.every_bridge }
    }
}

/// The connections between the interfaces of a host.
pub struct Map<'a> {
    by_index: BTreeMap<u32, &'a Link>,
    /// Ports by the index of their bridge, bond or switch.
    ports: BTreeMap<u32, Vec<&'a Link>>,
    host: &'a Host,
    /// Paths by (bridge, uplink), the same for all of the bridge's ports.
    cache: BTreeMap<(u32, u32), PacketPath>,
}

impl<'a> Map<'a> {
    /// From a list of links.
    pub fn of(links: &'a [Link], host: &'a Host) -> Map<'a> {
        let by_index = links.iter().map(|link| (link.device.index, link)).collect();
        let mut ports: BTreeMap<u32, Vec<&Link>> = BTreeMap::new();
        for link in links {
            if let Some(master) = link.master {
                ports.entry(master).or_default().push(link);
            }
        }
        Map { by_index, ports, host, cache: BTreeMap::new() }
    }

    /// The path from an interface to an uplink, by their indexes.
    pub fn path(&mut self, interface: u32, uplink: u32) -> PacketPath {
        let Some(link) = self.by_index.get(&interface).copied() else { return NO_PATH };
        let Some(master) = link.master.filter(|master| self.by_index.contains_key(master)) else {
            // An interface in no bridge is routed, or does not reach that uplink.
            return NO_PATH;
        };
        if self.is_own_way(link, uplink) {
            return self.from(master, interface, uplink);
        }
        // A bridge may have thousands of ports.
        if let Some(path) = self.cache.get(&(master, uplink)) {
            return *path;
        }
        let path = self.from(master, interface, uplink);
        self.cache.insert((master, uplink), path);
        path
    }

    /// Whether the uplink can be reached by the interface itself, so that its path is not that of the other ports.
    fn is_own_way(&self, link: &Link, uplink: u32) -> bool {
        is_over(&self.by_index, link, uplink) || self.beyond(link).is_some()
    }

    /// The bridge at the other end of a veth pair in this namespace.
    fn beyond(&self, port: &Link) -> Option<u32> {
        let other = port.tied_to.filter(|_| port.tied_in.is_none() && port.kind == "veth");
        other.and_then(|other| self.by_index.get(&other)?.master)
    }

    /// Searches from a bridge over veth pairs of this namespace and VLANs to the uplink's bridge.
    fn from(&self, master: u32, interface: u32, uplink: u32) -> PacketPath {
        let (mut passed, mut next) = (BTreeSet::new(), vec![master]);
        let mut bridge_netfilter = Some(false);
        for _ in 0..STEPS {
            let mut behind = Vec::new();
            for index in std::mem::take(&mut next) {
                let Some(bridge) = self.by_index.get(&index).filter(|_| passed.insert(index)) else { continue };
                bridge_netfilter = match (bridge_netfilter, self.host.calls(bridge)) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                };
                let leaves = self.ports.get(&index).into_iter().flatten().chain([bridge]);
                for port in leaves.filter(|link| link.device.index != interface) {
                    if is_over(&self.by_index, port, uplink) {
                        return PacketPath { bridge_netfilter, routed: Some(false), card: None };
                    }
                    behind.extend(self.beyond(port));
                }
            }
            next = behind;
        }
        PacketPath { bridge_netfilter, routed: Some(true), card: None }
    }
}

const NO_PATH: PacketPath = PacketPath { bridge_netfilter: Some(false), routed: Some(true), card: None };

/// Whether a port is the uplink, a VLAN over it, or the bond that it is in.
fn is_over(by_index: &BTreeMap<u32, &Link>, port: &Link, uplink: u32) -> bool {
    let mut at = port;
    for _ in 0..STEPS {
        if at.device.index == uplink
            || by_index.get(&uplink).is_some_and(|u| u.master == Some(at.device.index) && at.kind != "bridge")
        {
            return true;
        }
        match at.tied_to.filter(|_| at.tied_in.is_none() && at.kind != "veth").and_then(|below| by_index.get(&below)) {
            Some(below) if below.device != at.device => at = below,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(links: &[Link], host: &Host, interface: u32, uplink: u32) -> PacketPath {
        Map::of(links, host).path(interface, uplink)
    }

    use crate::planes::linux::Device;

    fn link(index: u32, name: &str, kind: &str) -> Link {
        let device = Device { index, name: name.to_owned() };
        Link { device, kind: kind.to_owned(), up: true, ..Link::default() }
    }

    fn port(mut link: Link, master: u32) -> Link {
        link.master = Some(master);
        link
    }

    fn tied(mut link: Link, to: u32) -> Link {
        link.tied_to = Some(to);
        link
    }

    const NONE: Host = Host { every_bridge: Some(false) };

    fn asks(link: Link) -> Link {
        Link { asks_firewall: true, ..link }
    }

    #[test]
    fn one_bridge() {
        let links = |bridge| [port(link(2, "eth0", ""), 3), bridge, port(link(4, "tap0", "tun"), 3)];
        let bridge = || link(3, "br0", "bridge");
        let to = |bridge, host| path(&links(bridge), &host, 4, 2);
        assert_eq!(to(bridge(), NONE), PacketPath { bridge_netfilter: Some(false), routed: Some(false), card: None });
        assert_eq!(to(asks(bridge()), NONE).bridge_netfilter, Some(true));
        assert_eq!(to(bridge(), Host { every_bridge: Some(true) }).bridge_netfilter, Some(true));
        assert_eq!(to(bridge(), Host { every_bridge: None }).bridge_netfilter, None);
        assert_eq!(to(asks(bridge()), Host { every_bridge: None }).bridge_netfilter, Some(true));
    }

    #[test]
    fn firewall_bridge_of_proxmox() {
        // Proxmox: tap100i0 - fwbr100i0 - fwln100i0 = fwpr100p0 - vmbr0 - bond0.7 over bond0 of eth0.
        let mut links = [
            port(link(2, "eth0", ""), 9),
            link(9, "bond0", "bond"),
            tied(port(link(10, "bond0.7", "vlan"), 3), 9),
            link(3, "vmbr0", "bridge"),
            tied(port(link(4, "fwpr100p0", "veth"), 3), 5),
            tied(port(link(5, "fwln100i0", "veth"), 6), 4),
            link(6, "fwbr100i0", "bridge"),
            port(link(7, "tap100i0", "tun"), 6),
        ];
        let bridged = PacketPath { bridge_netfilter: Some(false), routed: Some(false), card: None };
        for uplink in [2, 9, 10] {
            assert_eq!(path(&links, &NONE, 7, uplink), bridged, "{uplink}");
        }
        for bridge in [3, 6] {
            links[bridge].asks_firewall = true;
            assert_eq!(path(&links, &NONE, 7, 2).bridge_netfilter, Some(true));
            links[bridge].asks_firewall = false;
        }
    }

    #[test]
    fn routed_interfaces() {
        let links = [
            link(2, "eth0", ""),
            link(3, "virbr0", "bridge"),
            port(link(4, "vnet0", "tun"), 3),
            link(5, "tap9", "tun"),
            // Its other end is in a container: nothing goes on from there.
            Link { tied_in: Some(0), ..tied(port(link(6, "veth7", "veth"), 3), 4) },
        ];
        assert_eq!(path(&links, &NONE, 4, 2).routed, Some(true));
        assert_eq!(path(&links, &NONE, 5, 2).routed, Some(true));
    }

    #[test]
    fn circle_of_bridges() {
        let links = [
            link(2, "eth0", ""),
            link(3, "br0", "bridge"),
            link(4, "br1", "bridge"),
            tied(port(link(5, "a0", "veth"), 3), 6),
            tied(port(link(6, "a1", "veth"), 4), 5),
            tied(port(link(7, "b0", "veth"), 3), 8),
            tied(port(link(8, "b1", "veth"), 4), 7),
            port(link(9, "tap0", "tun"), 3),
        ];
        assert_eq!(path(&links, &NONE, 9, 2).routed, Some(true));
    }
}
