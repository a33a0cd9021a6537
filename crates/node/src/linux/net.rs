//! Network: interfaces (`/sys/class/net`, Linux Documentation/ABI/testing/sysfs-class-net), their counters
//! (`net/dev`, proc_pid_net(5)).

mod ports;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::{Reader, Result};
pub use ports::{InterfaceKind, Port};

/// The interfaces of the network namespace that the process that looks is in.
const HERE: &str = "/sys/class/net";
/// A file among the interfaces that is none (Linux drivers/net/bonding/bond_sysfs.c).
const NO_INTERFACE: &str = "bonding_masters";

/// Interfaces as a `/sys/class/net` shows them. That is of the network namespace in which its sysfs was mounted,
/// whoever looks.
#[derive(Clone)]
pub struct Interfaces<'a> {
    reader: &'a dyn Reader,
    /// The directory.
    pub dir: PathBuf,
}

impl<'a> Interfaces<'a> {
    /// Those of this machine.
    pub fn here(reader: &'a dyn Reader) -> Self {
        Self::shown_at(reader, HERE)
    }

    /// Those that a sysfs elsewhere shows: below the root directory of another process, who may have put anything
    /// there.
    pub fn shown_at(reader: &'a dyn Reader, dir: impl Into<PathBuf>) -> Self {
        Self { reader, dir: dir.into() }
    }

    /// Their names, sorted.
    ///
    /// # Errors
    /// When the directory cannot be listed.
    pub fn names(&self) -> Result<Vec<String>> {
        let own = self.is_here();
        let mut names = if own { self.reader.list(&self.dir) } else { self.reader.list_foreign(&self.dir) }?;
        names.retain(|name| name != NO_INTERFACE);
        Ok(names)
    }

    fn file(&self, name: &str, file: &str) -> PathBuf {
        self.dir.join(name).join(file)
    }

    /// Whether a name's files are the kernel's own: in this machine's sysfs, and of a name that leads nowhere else.
    /// They are read as such; all others as files that others control.
    fn is_own(&self, name: &str) -> bool {
        self.is_here() && is_name(name)
    }

    fn text(&self, name: &str, file: &str) -> Result<String> {
        let path = self.file(name, file);
        if self.is_own(name) { self.reader.read_text(&path) } else { self.reader.read_foreign_text(&path) }
    }

    fn link(&self, name: &str, file: &str) -> Result<Option<PathBuf>> {
        let path = self.file(name, file);
        if self.is_own(name) { self.reader.link(&path) } else { self.reader.link_foreign(&path) }
    }

    fn number<T: FromStr>(&self, name: &str, file: &str) -> Option<T> {
        self.text(name, file).ok()?.trim().parse().ok()
    }

    fn has(&self, name: &str, file: &str) -> bool {
        let path = self.file(name, file);
        let found = if self.is_own(name) { self.reader.stat(&path) } else { self.reader.stat_foreign(&path) };
        matches!(found, Ok(Some(_)))
    }

    /// The interface with this hardware address, as `aa:bb:cc:dd:ee:ff`.
    pub fn with_address(&self, address: &str) -> Option<String> {
        let has = |name: &String| {
            let found = self.text(name, "address");
            found.is_ok_and(|found| found.trim().eq_ignore_ascii_case(address))
        };
        self.names().ok()?.into_iter().find(has)
    }

    /// Whether there is such an interface; what is no name is none.
    pub fn has_interface(&self, name: &str) -> bool {
        is_name(name) && self.has(name, "mtu")
    }

    /// Its number.
    pub fn index(&self, name: &str) -> Option<u32> {
        self.number(name, "ifindex")
    }

    /// Number of what it is tied to: the other end of a veth pair, the interface below a VLAN. Its own where it is
    /// tied to none.
    pub fn link_index(&self, name: &str) -> Option<u32> {
        self.number(name, "iflink")
    }

    /// The interface with a number.
    pub fn with_index(&self, index: u32) -> Option<String> {
        self.names().ok()?.into_iter().find(|name| self.index(name) == Some(index))
    }

    /// Largest packet in bytes.
    pub fn mtu_bytes(&self, name: &str) -> Option<u64> {
        self.number(name, "mtu")
    }

    /// What it is a port of: a bridge, a bond, a switch.
    pub fn master(&self, name: &str) -> Option<String> {
        let to = self.link(name, "master").ok()??;
        Some(to.file_name()?.to_string_lossy().into_owned())
    }

    /// Largest packet in bytes that a master passes on, where it is a bridge of Linux. Other masters (Open vSwitch's
    /// `ovs-system`, a team) pass larger packets than their own MTU says.
    pub fn bridge_mtu_bytes(&self, master: &str) -> Option<u64> {
        self.has(master, "bridge").then(|| self.mtu_bytes(master)).flatten()
    }

    /// Whether a bridge hands what it passes on to its namespace's firewall, by its own word
    /// (Documentation/networking/ip-sysctl.rst; net/bridge/br_netfilter_hooks.c asks both this and [`NETFILTER`]).
    /// `None` where it does not say.
    pub fn bridge_netfilter(&self, master: &str) -> Option<bool> {
        let each = ["iptables", "ip6tables"].map(|which| self.number::<u8>(master, &format!("bridge/nf_call_{which}")));
        each.into_iter().flatten().map(|on| on != 0).reduce(|one, other| one || other)
    }

    /// Whether there is hardware behind it, a virtual machine's too. Of this machine's interfaces.
    pub fn is_device(&self, name: &str) -> bool {
        self.reader.stat(&self.file(name, "device")).is_ok_and(|found| found.is_some())
    }

    /// The kernel's driver of its device; `None` where there is no hardware behind it. Of this machine's interfaces.
    pub fn driver(&self, name: &str) -> Option<String> {
        let to = self.reader.link(&self.file(name, "device/driver")).ok()??;
        Some(to.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether frames leave it on an Ethernet wire: there is hardware behind it that is no hypervisor's, and its
    /// addresses are Ethernet's (`ARPHRD_ETHER` of include/uapi/linux/if_arp.h). Of this machine's interfaces.
    pub fn is_ethernet_port(&self, name: &str) -> bool {
        let virtual_card = |driver: String| PARAVIRTUAL.contains(&driver.as_str());
        self.is_device(name)
            && self.number(name, "type") == Some(ARPHRD_ETHER)
            && !self.driver(name).is_some_and(virtual_card)
    }

    /// How many queues it sends by. Of this machine's interfaces.
    pub fn transmit_queues(&self, name: &str) -> Option<u32> {
        let queues = self.reader.list(&self.file(name, "queues")).ok()?;
        u32::try_from(queues.iter().filter(|queue| queue.starts_with("tx-")).count()).ok()
    }

    /// Flags of a tun or tap interface (`IFF_*` of include/uapi/linux/if_tun.h; drivers/net/tun.c, `tun_flags_show`);
    /// `None` where it is neither.
    pub fn tun_flags(&self, name: &str) -> Option<u32> {
        let text = self.text(name, "tun_flags").ok()?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    }

    /// Packets that its queue holds at most. A tap's ring towards its reader is as long (drivers/net/tun.c,
    /// `tun_queue_resize`).
    pub fn queue_packets(&self, name: &str) -> Option<u64> {
        self.number(name, "tx_queue_len")
    }

    /// A counter since it was made (Documentation/ABI/testing/sysfs-class-net-statistics): `tx_dropped`.
    pub fn counter(&self, name: &str, counter: &str) -> Option<u64> {
        self.number(name, &format!("statistics/{counter}"))
    }

    /// How many times its link was lost since it was made (Documentation/ABI/testing/sysfs-class-net).
    pub fn link_losses(&self, name: &str) -> Option<u64> {
        self.number(name, "carrier_down_count")
    }

    /// How many times a queue that it sends by was stuck and the card was reset (`tx_timeout` of each queue,
    /// Documentation/ABI/testing/sysfs-class-net-queues). Of this machine's interfaces.
    pub fn transmit_timeouts(&self, name: &str) -> Option<u64> {
        let queues = self.reader.list(&self.file(name, "queues")).ok()?;
        let counts = queues.iter().filter(|queue| queue.starts_with("tx-"));
        let counts: Vec<u64> =
            counts.filter_map(|queue| self.number(name, &format!("queues/{queue}/tx_timeout"))).collect();
        (!counts.is_empty()).then(|| counts.iter().fold(0, |sum: u64, n| sum.saturating_add(*n)))
    }

    /// Whether there is a link at it; `None` where it is down, since then it does not say (`EINVAL`). Of this machine's
    /// interfaces.
    pub fn has_carrier(&self, name: &str) -> Option<bool> {
        Some(self.reader.read_text(&self.file(name, "carrier")).ok()?.trim() == "1")
    }

    /// Speed of the link in bit/s; `None` where it is not known: see [`speed_bps`]. Of this machine's interfaces.
    pub fn speed_bps(&self, name: &str) -> Option<u64> {
        speed_bps(&self.reader.read_text(&self.file(name, "speed")).ok()?)
    }
}

/// What the module br_netfilter is set by: whether the bridges of the network namespace of whoever reads it hand what
/// they pass on to iptables, ip6tables and arptables (Documentation/networking/ip-sysctl.rst). Not there without the
/// module.
pub const NETFILTER: [&str; 3] = [
    "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "/proc/sys/net/bridge/bridge-nf-call-ip6tables",
    "/proc/sys/net/bridge/bridge-nf-call-arptables",
];

/// Whether this kernel has netfilter of bridges, in whatever network namespace; `None` where that cannot be told.
pub fn has_bridge_netfilter(reader: &dyn Reader) -> Option<bool> {
    reader.stat(Path::new(NETFILTER[0])).ok().map(|found| found.is_some())
}

/// Whether the bridges of the network namespace of whoever looks hand packets of IP to its firewall, by [`NETFILTER`].
pub fn bridges_call_netfilter(reader: &dyn Reader) -> Option<bool> {
    let on = |path: &str| Some(reader.read_text(Path::new(path)).ok()?.trim() != "0");
    let [ip, ip6, _] = NETFILTER;
    Some(on(ip)? || on(ip6)?)
}

/// `IFF_VNET_HDR` of include/uapi/linux/if_tun.h: each packet of the tap has a header that carries its offloads.
pub const IFF_VNET_HDR: u32 = 0x4000;

/// `ARPHRD_ETHER` of include/uapi/linux/if_arp.h.
const ARPHRD_ETHER: u32 = 1;

/// Drivers of cards that a hypervisor plays: no wire follows them (drivers/net of Linux: virtio_net.c, xen-netfront.c,
/// vmxnet3, hyperv/netvsc_drv.c, google/gve, amazon/ena).
const PARAVIRTUAL: [&str; 6] = ["virtio_net", "vif", "vmxnet3", "hv_netvsc", "gve", "ena"];

/// Whether a word, of a command line for one, can be an interface's name: a path is none (Linux net/core/dev.c,
/// `dev_valid_name`).
pub fn is_name(word: &str) -> bool {
    !matches!(word, "" | "." | "..") && !word.contains('/')
}

/// Speed in bit/s of the content of a `speed`, which is in Mbit/s. Not known is 0, -1 in 32 bits, signed or not
/// (`SPEED_UNKNOWN` of include/uapi/linux/ethtool.h; drivers that show it as an unsigned number say 4294967295), or -1
/// in the 16 bits that were the whole field once (65535; ethtool(8) knows all three, ethtool.c, `dump_link_caps`). Of
/// a link that is down and of most virtual ones the file cannot be read (`EINVAL`).
pub fn speed_bps(text: &str) -> Option<u64> {
    let mbit: u64 = text.trim().parse().ok()?;
    let unknown = [0, u64::from(u16::MAX), u64::from(u32::MAX)];
    (!unknown.contains(&mbit)).then(|| mbit.checked_mul(1_000_000)).flatten()
}

/// What went through an interface in one direction since it appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Packets that were thrown away for lack of room.
    pub dropped: u64,
}

/// The file whose content [`traffic`] takes apart, of the network namespace that whoever reads it is in.
pub fn traffic_file() -> &'static Path {
    Path::new("/proc/net/dev")
}

/// As [`traffic_file`], of the network namespace that the thread that reads it is in.
pub fn thread_traffic_file() -> &'static Path {
    Path::new("/proc/thread-self/net/dev")
}

/// The content of a `net/dev`: of each interface its name, what it received and what it sent. Nothing is allocated.
/// A line with a field that is no number is left out.
pub fn traffic(text: &str) -> impl Iterator<Item = (&str, Traffic, Traffic)> {
    text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let mut all = [0u64; 16];
        let mut words = rest.split_ascii_whitespace();
        for field in &mut all {
            *field = words.next()?.parse().ok()?;
        }
        // Of each side: bytes packets errs drop, and four more.
        let side = |at: usize| Traffic { bytes: all[at], packets: all[at + 1], dropped: all[at + 3] };
        Some((name.trim(), side(0), side(8)))
    })
}

/// Names of the interfaces in the content of a `net/dev`.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Fake, Local};

    #[test]
    fn speeds_that_no_link_has_are_unknown() {
        assert_eq!((speed_bps("1000\n"), speed_bps("400000\n")), (Some(1_000_000_000), Some(400_000_000_000)));
        for unknown in ["-1\n", "4294967295\n", "65535\n", "0\n", "x", "", "18446744073709551615\n"] {
            assert_eq!(speed_bps(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn an_interface_says_what_it_is_tied_to() {
        let fake = Fake::new("fake")
            .file("/sys/class/net/bonding_masters", "")
            .file("/sys/class/net/eth0/device/vendor", "")
            .file("/sys/class/net/eth0/speed", "10000\n")
            .symlink("/sys/class/net/eth0/device/driver", "../../../../bus/virtio/drivers/virtio_net")
            .file("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n")
            .file("/sys/class/net/eth0/queues/tx-0/tx_timeout", "0\n")
            .file("/sys/class/net/eth0/queues/tx-1/tx_timeout", "0\n")
            .file("/sys/class/net/veth1/ifindex", "9\n")
            .file("/sys/class/net/veth1/iflink", "2\n")
            .file("/sys/class/net/veth1/mtu", "1500\n")
            .symlink("/sys/class/net/veth1/master", "../../devices/virtual/net/br0")
            .file("/sys/class/net/br0/mtu", "9000\n")
            .file("/sys/class/net/br0/bridge/stp_state", "0\n")
            .file("/sys/class/net/ovs-system/mtu", "1500\n");
        let here = Interfaces::here(&fake);
        assert_eq!(here.names().unwrap(), ["br0", "eth0", "ovs-system", "veth1"]);
        assert_eq!(
            (here.index("veth1"), here.link_index("veth1"), here.mtu_bytes("veth1")),
            (Some(9), Some(2), Some(1500))
        );
        assert_eq!((here.with_index(9).as_deref(), here.with_index(8)), (Some("veth1"), None));
        assert_eq!((here.master("veth1").as_deref(), here.master("eth0")), (Some("br0"), None));
        assert_eq!((here.bridge_mtu_bytes("br0"), here.bridge_mtu_bytes("ovs-system")), (Some(9000), None));
        assert_eq!((here.speed_bps("eth0"), here.speed_bps("br0")), (Some(10_000_000_000), None));
        assert!(here.is_device("eth0") && !here.is_device("br0"));
        assert_eq!((here.driver("eth0").as_deref(), here.driver("br0")), (Some("virtio_net"), None));
        assert_eq!((here.transmit_queues("eth0"), here.transmit_queues("br0")), (Some(2), None));
        assert!(here.has_interface("br0"));
        for none in ["", "..", "br0/../br0", "eth9", "eth0"] {
            assert!(!here.has_interface(none), "{none}");
        }
        let local = Local::new();
        assert!(Interfaces::here(&local).has_interface("lo"));
    }

    #[test]
    fn a_tap_and_an_uplink_tell_what_was_lost() {
        let fake = Fake::new("fake")
            .file("/sys/class/net/tap0/tun_flags", "0x5802\n")
            .file("/sys/class/net/tap0/tx_queue_len", "1000\n")
            .file("/sys/class/net/tap0/statistics/tx_dropped", "2003\n")
            .file("/sys/class/net/eth0/carrier_down_count", "7\n")
            .file("/sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n")
            .file("/sys/class/net/eth0/queues/tx-0/tx_timeout", "2\n")
            .file("/sys/class/net/eth0/queues/tx-1/tx_timeout", "1\n");
        let here = Interfaces::here(&fake);
        assert_eq!((here.tun_flags("tap0"), here.tun_flags("eth0")), (Some(0x5802), None));
        assert_eq!((here.queue_packets("tap0"), here.counter("tap0", "tx_dropped")), (Some(1000), Some(2003)));
        assert_eq!((here.link_losses("eth0"), here.link_losses("tap0")), (Some(7), None));
        assert_eq!((here.transmit_timeouts("eth0"), here.transmit_timeouts("tap0")), (Some(3), None));
    }

    #[test]
    fn traffic_of_interfaces() {
        let dev = "Inter-| x\n face |bytes\n tap0: 100 2 0 1 0 0 0 0 700 8 0 3 0 0 0 0\n\
                   eth0:100 2 0 x 0 0 0 0 700 8 0 3 0 0 0 0\n eth1: 1 2\n";
        let received = Traffic { bytes: 100, packets: 2, dropped: 1 };
        let sent = Traffic { bytes: 700, packets: 8, dropped: 3 };
        assert_eq!(traffic(dev).collect::<Vec<_>>(), [("tap0", received, sent)]);
        assert_eq!(names(dev).collect::<Vec<_>>(), ["tap0", "eth0", "eth1"]);
    }
}
