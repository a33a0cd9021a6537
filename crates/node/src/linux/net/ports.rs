//! What an interface is, and what a bridge's ports lead to: by the files of an interface's directory in
//! `/sys/class/net`. Who made the directory may have put anything there, so names are bounded.

use std::path::Path;

use super::{HERE, Interfaces, is_name};

/// Longest name of an interface (`IFNAMSIZ` of include/uapi/linux/if.h, less its last byte).
const LONGEST_NAME: usize = 15;
/// Most veth pairs of one bridge that are told, and most other ports.
const MOST_PORTS: usize = 64;
/// Subsystem of the devices by which Xen serves guests (Documentation/ABI/stable/sysfs-bus-xen-backend).
const XEN_BACK_END: &str = "xen-backend";
/// Begins the links of an interface to those that it sends by: the ports of a bridge or of a bond, the interface below
/// a VLAN (Linux net/core/dev.c, `netdev_adjacent_sysfs_add`); to those of its own network namespace alone.
const LOWER: &str = "lower_";

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceKind {
    /// A tap, a tun or a back end of Xen's: a guest or another process is behind it (`tun_flags`, Linux
    /// drivers/net/tun.c).
    Tap,
    /// A macvlan or macvtap.
    Macvlan,
    /// A bridge of Linux.
    Bridge,
    /// An end of a veth pair.
    Veth,
    /// A VLAN over another interface.
    Vlan,
    /// A bond or a team.
    Bond,
    /// A tunnel: VXLAN, GENEVE, GRE, IP in IP.
    Tunnel,
    /// A network card, a virtual machine's too.
    Card,
    /// Anything else: a dummy, a bridge of Open vSwitch.
    Other,
}

/// An interface with what decides where its packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: InterfaceKind,
    /// Largest packet in bytes.
    pub mtu_bytes: Option<u64>,
    /// The kernel's driver of a card.
    pub driver: Option<String>,
}

impl Interfaces<'_> {
    /// Whether these are this machine's.
    pub fn is_here(&self) -> bool {
        self.dir == Path::new(HERE)
    }

    /// What an interface is. The kernel names the kind of bridges, VLANs, bonds and tunnels as `DEVTYPE` of `uevent`
    /// (`SET_NETDEV_DEVTYPE`), and of nothing else here.
    pub fn kind(&self, name: &str) -> InterfaceKind {
        if self.has(name, "tun_flags") {
            return InterfaceKind::Tap;
        }
        let uevent = self.text(name, "uevent").unwrap_or_default();
        match uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=")) {
            Some("bridge") => return InterfaceKind::Bridge,
            Some("vlan") => return InterfaceKind::Vlan,
            Some("bond") => return InterfaceKind::Bond,
            Some("vxlan" | "geneve") => return InterfaceKind::Tunnel,
            _ if self.has(name, "bridge") => return InterfaceKind::Bridge,
            _ if self.has(name, "device") => {
                let guests = self.device_link(name, "subsystem").is_some_and(|to| to == XEN_BACK_END);
                return if guests { InterfaceKind::Tap } else { InterfaceKind::Card };
            }
            _ => {}
        }
        let link = self.link_index(name);
        // A tunnel of IP that is bound to no interface (net/ipv4/ip_tunnel.c, `ip_tunnel_get_iflink`).
        if link == Some(0) {
            return InterfaceKind::Tunnel;
        }
        let tied = link.is_some_and(|to| Some(to) != self.index(name));
        match (tied, self.below(name, 1).is_empty()) {
            (true, true) => InterfaceKind::Veth,
            (true, false) => InterfaceKind::Macvlan,
            (false, false) => InterfaceKind::Bond,
            (false, true) => InterfaceKind::Other,
        }
    }

    /// An interface with what decides where its packets go.
    pub fn port(&self, name: &str) -> Port {
        self.port_of(name, self.kind(name))
    }

    fn port_of(&self, name: &str, kind: InterfaceKind) -> Port {
        let driver = (kind == InterfaceKind::Card).then(|| self.device_link(name, "driver")).flatten();
        Port { name: name.to_owned(), kind, mtu_bytes: self.mtu_bytes(name), driver }
    }

    /// The name at the end of a link of its device.
    fn device_link(&self, name: &str, link: &str) -> Option<String> {
        let to = self.link(name, &format!("device/{link}")).ok()??;
        Some(to.file_name()?.to_string_lossy().into_owned())
    }

    /// Names of the interfaces that it sends by, the first `most` of them, sorted: a bridge's ports, a bond's, the one
    /// below a VLAN.
    pub fn below(&self, name: &str, most: usize) -> Vec<String> {
        let dir = self.dir.join(name);
        let all = if self.is_own(name) { self.reader.list(&dir) } else { self.reader.list_foreign(&dir) };
        let all = all.unwrap_or_default();
        let names = all.iter().filter_map(|entry| entry.strip_prefix(LOWER));
        let names = names.filter(|name| is_name(name) && name.len() <= LONGEST_NAME);
        names.take(most).map(str::to_owned).collect()
    }

    /// The ports of a bridge behind which packets may go on, of its first `most`.
    pub fn ports(&self, bridge: &str, most: usize) -> Vec<Port> {
        self.leading_on(self.below(bridge, most).iter().map(String::as_str))
    }

    /// Those of these interfaces behind which packets may go on: not those of guests (taps), nor those that lead
    /// nowhere (dummies). Veth pairs and others are counted apart, so that many containers do not hide the card.
    pub fn leading_on<'n>(&self, names: impl Iterator<Item = &'n str>) -> Vec<Port> {
        let (mut pairs, mut others) = (0, 0);
        let has_room = |port: &Port| {
            let count = if port.kind == InterfaceKind::Veth { &mut pairs } else { &mut others };
            *count += 1;
            *count <= MOST_PORTS
        };
        // Most ports are guests' taps, of which nothing else is read.
        let ports = names.filter_map(|name| {
            let kind = self.kind(name);
            (!matches!(kind, InterfaceKind::Tap | InterfaceKind::Other)).then(|| self.port_of(name, kind))
        });
        ports.filter(has_room).collect()
    }

    /// The other end of a veth pair by its number, if that is it: a number may be of another network namespace, but
    /// then the two do not name each other.
    pub fn is_other_end(&self, name: &str, of: &Interfaces<'_>, end: &str) -> bool {
        let own = self.index(name).zip(self.link_index(name));
        own.is_some() && own == of.link_index(end).zip(of.index(end))
    }

    /// Packets that could not be sent by it: `statistics/tx_errors` (ABI/testing/sysfs-class-net-statistics). Open
    /// vSwitch counts there those that are larger than its MTU (net/openvswitch/vport.c, `ovs_vport_send`); a bridge of
    /// Linux counts them nowhere.
    pub fn transmit_errors(&self, name: &str) -> Option<u64> {
        self.number(name, "statistics/tx_errors")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fake;

    fn tied(fake: Fake, name: &str, index: u32, to: u32) -> Fake {
        fake.file(format!("/sys/class/net/{name}/ifindex"), format!("{index}\n"))
            .file(format!("/sys/class/net/{name}/iflink"), format!("{to}\n"))
    }

    #[test]
    fn interfaces_are_told_apart() {
        let uevent = |fake: Fake, name: &str| {
            fake.file(format!("/sys/class/net/{name}0/uevent"), format!("DEVTYPE={name}\nINTERFACE={name}0\n"))
        };
        let fake =
            ["bridge", "vlan", "bond", "vxlan", "geneve"].iter().fold(Fake::new("fake"), |f, name| uevent(f, name));
        let fake = fake
            .file("/sys/class/net/tap0/tun_flags", "0x1802\n")
            .file("/sys/class/net/old0/bridge/stp_state", "0\n")
            .file("/sys/class/net/eth0/device/vendor", "0x8086\n")
            .file("/sys/class/net/eth0/uevent", "INTERFACE=eth0\nIFINDEX=2\n")
            .symlink("/sys/class/net/team0/lower_eth0", "../eth0")
            .symlink("/sys/class/net/macvtap0/lower_eth0", "../eth0");
        let fake = tied(tied(tied(tied(fake, "veth0", 7, 8), "macvtap0", 9, 2), "team0", 10, 10), "dummy0", 11, 11);
        let fake = tied(fake, "gretap1", 12, 0);
        let here = Interfaces::here(&fake);
        let of = |name: &str| here.kind(name);
        assert_eq!([of("bridge0"), of("old0")], [InterfaceKind::Bridge; 2]);
        assert_eq!([of("vxlan0"), of("geneve0"), of("gretap1")], [InterfaceKind::Tunnel; 3]);
        assert_eq!([of("bond0"), of("team0")], [InterfaceKind::Bond; 2]);
        assert_eq!(
            [of("tap0"), of("vlan0"), of("eth0")],
            [InterfaceKind::Tap, InterfaceKind::Vlan, InterfaceKind::Card]
        );
        assert_eq!(
            [of("veth0"), of("macvtap0"), of("dummy0")],
            [InterfaceKind::Veth, InterfaceKind::Macvlan, InterfaceKind::Other]
        );
    }

    #[test]
    fn ports_of_processes_and_of_nobody_lead_nowhere() {
        let fake = Fake::new("fake")
            .file("/sys/class/net/tap0/tun_flags", "0x1802\n")
            .file("/sys/class/net/eth0/mtu", "1500\n")
            .file("/sys/class/net/eth0/statistics/tx_errors", "7\n")
            .symlink("/sys/class/net/eth0/device/driver", "../../../bus/pci/drivers/e1000e")
            .symlink("/sys/class/net/vif1.0/device/subsystem", "../../../bus/xen-backend");
        let fake = ["dummy0", "eth0", "tap0", "vif1.0", "a-name-too-long-for-any"]
            .iter()
            .fold(fake, |fake, name| fake.symlink(format!("/sys/class/net/br0/lower_{name}"), format!("../{name}")));
        let here = Interfaces::here(&fake);
        let (name, driver) = ("eth0".to_owned(), Some("e1000e".to_owned()));
        let eth0 = Port { name, kind: InterfaceKind::Card, mtu_bytes: Some(1500), driver };
        assert_eq!((here.ports("br0", 9), here.ports("br0", 1)), (vec![eth0], vec![]));
        assert_eq!((here.transmit_errors("eth0"), here.transmit_errors("tap0")), (Some(7), None));
    }

    #[test]
    fn many_containers_do_not_hide_the_card() {
        let fake = Fake::new("fake")
            .file("/sys/class/net/nic0/device/vendor", "0x8086\n")
            .symlink("/sys/class/net/br0/lower_nic0", "../nic0");
        let fake = (0..100_u32).fold(fake, |fake, n| {
            let name = format!("fwpr{n}p0");
            tied(fake, &name, 2 * n + 10, 2 * n + 11)
                .symlink(format!("/sys/class/net/br0/lower_{name}"), format!("../{name}"))
        });
        let ports = Interfaces::here(&fake).ports("br0", 4096);
        assert_eq!(ports.iter().filter(|port| port.kind == InterfaceKind::Veth).count(), MOST_PORTS);
        assert_eq!(ports.last().map(|port| (port.name.as_str(), port.kind)), Some(("nic0", InterfaceKind::Card)));
    }

    #[test]
    fn the_ends_of_a_pair_name_each_other() {
        let fake = tied(tied(tied(Fake::new("fake"), "a", 7, 8), "b", 8, 7), "c", 8, 8);
        let here = Interfaces::here(&fake);
        assert!(here.is_other_end("a", &here, "b") && !here.is_other_end("a", &here, "c"));
        assert!(!here.is_other_end("gone", &here, "b") && here.is_here());
        assert!(!Interfaces::shown_at(&fake, "/proc/7/root/sys/class/net").is_here());
    }
}
