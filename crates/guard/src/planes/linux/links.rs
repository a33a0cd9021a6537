//! Interfaces by name: their index, kind and alias (rtnetlink(7), `struct ifinfomsg` of
//! include/uapi/linux/rtnetlink.h, attributes of include/uapi/linux/if_link.h).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::netlink::wire::{self, Attributes, Malformed, Message, Request, flag, u32_at, u64_at};
use super::{Error, Netlink, Result};

pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
pub(super) const RTM_GETLINK: u16 = 18;
pub(super) const RTM_SETLINK: u16 = 19;

const IFLA_ADDRESS: u16 = 1;
pub(super) const IFLA_IFNAME: u16 = 3;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
pub(super) const IFLA_TXQLEN: u16 = 13;
pub(super) const IFLA_LINKINFO: u16 = 18;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_IFALIAS: u16 = 20;

/// Bytes of `struct ifinfomsg`.
pub(super) const IFINFO: usize = 16;
const IFLA_LINK: u16 = 5;
const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_DATA: u16 = 2;
/// IFLA_BR_NF_CALL_IPTABLES, _IP6TABLES, _ARPTABLES.
const IFLA_BR_NF_CALLS: std::ops::RangeInclusive<u16> = 36..=38;
const IFLA_TARGET_NETNSID: u16 = 46;
pub(super) const IFLA_EXT_MASK: u16 = 29;
/// RTEXT_FILTER_SKIP_STATS: what the interface has counted is not asked for.
const WITHOUT_COUNTERS: u32 = 8;
const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_PID: u16 = 2;
const NETNSA_FD: u16 = 3;

/// IFF_UP.
pub(super) const UP: u32 = 1;
/// IFF_LOOPBACK.
const LOOPBACK: u32 = 8;
/// Bytes of a name, without the zero at its end (IFNAMSIZ).
const LONGEST_NAME: usize = 15;

/// An interface: its index and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Device {
    /// Index in its network namespace; not reused for a long time.
    pub index: u32,
    /// At the time when it was found.
    pub name: String,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Properties of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Which.
    pub device: Device,
    /// Its driver's kind (`ifb`, `veth`, `tun`), empty for hardware.
    pub kind: String,
    /// What somebody wrote to it (`ip link set … alias`), empty where nobody did.
    pub alias: String,
    /// Whether it is up.
    pub up: bool,
    /// Whether it is a loopback interface.
    pub loopback: bool,
    /// Packets that its own queue holds.
    pub queue_packets: u32,
    /// Kind of its own qdisc, of what it sends: `noqueue`, `htb`, `tbf`.
    pub qdisc: String,
    /// Its Ethernet address, where it has one.
    pub address: Option<[u8; 6]>,
    /// Index of the bridge, bond or switch that it is a port of.
    pub master: Option<u32>,
    /// Index of what it is tied to: the other end of a veth pair, the interface below a VLAN; itself where it is tied
    /// to none.
    pub tied_to: Option<u32>,
    /// Of a bridge: whether it hands its packets to the IP firewall itself (`nf_call_iptables` and its kin).
    pub asks_firewall: bool,
    /// Where what it is tied to is in another network namespace, the number that this one has for that.
    pub tied_in: Option<i32>,
}

/// The interface of that name in the socket's namespace.
///
/// # Errors
/// When there is none, or the kernel refuses.
pub fn find(netlink: &mut Netlink, name: &str) -> Result<Device> {
    match look(netlink, name)? {
        Some(link) => Ok(link.device),
        None => Err(Error::NoInterface(name.to_owned())),
    }
}

/// What the interface of that name is; `None` where there is none.
///
/// # Errors
/// When the name cannot be one, or the kernel refuses.
pub fn look(netlink: &mut Netlink, name: &str) -> Result<Option<Link>> {
    valid(name)?;
    let attributes = Attributes::new().with_text(IFLA_IFNAME, name);
    let request = Request::new(RTM_GETLINK, 0, &ifinfo(0, 0, 0), attributes);
    netlink.ask(&format!("look at interface {name}"), &request, |m| link(m).map(Some))
}

/// What the interface of that index is; `None` where there is none.
///
/// # Errors
/// When the kernel refuses.
pub fn by_index(netlink: &mut Netlink, index: u32) -> Result<Option<Link>> {
    let request = Request::new(RTM_GETLINK, 0, &ifinfo(index, 0, 0), Attributes::new());
    netlink.ask(&format!("look at interface {index}"), &request, |m| link(m).map(Some))
}

/// Packets and bytes that an interface has received; `None` where there is none.
///
/// # Errors
/// When the kernel refuses.
pub fn received(netlink: &mut Netlink, index: u32) -> Result<Option<(u64, u64)>> {
    counted(netlink, index, [0, 16])
}

/// Packets and bytes that an interface has sent; `None` where there is none. Unlike a question about a qdisc, this one
/// is told to nobody else on any kernel.
///
/// # Errors
/// When the kernel refuses.
pub fn sent(netlink: &mut Netlink, index: u32) -> Result<Option<(u64, u64)>> {
    counted(netlink, index, [8, 24])
}

/// Two counters of an interface, by their place in `struct rtnl_link_stats64` of if_link.h.
fn counted(netlink: &mut Netlink, index: u32, [first, second]: [usize; 2]) -> Result<Option<(u64, u64)>> {
    let request = Request::new(RTM_GETLINK, 0, &ifinfo(index, 0, 0), Attributes::new());
    let take = |m: &Message<'_>| {
        let (_, rest) = m.split(IFINFO)?;
        let attributes = wire::attributes(rest)?;
        let number = |at| wire::find(&attributes, IFLA_STATS64).and_then(|stats| u64_at(stats, at));
        Ok(Some((number(first).unwrap_or(0), number(second).unwrap_or(0))))
    };
    netlink.ask(&format!("read the counters of interface {index}"), &request, take)
}

/// All interfaces of the socket's namespace.
///
/// # Errors
/// When the kernel refuses.
pub fn all(netlink: &mut Netlink) -> Result<Vec<Link>> {
    let attributes = Attributes::new().with_u32(IFLA_EXT_MASK, WITHOUT_COUNTERS);
    let request = Request::new(RTM_GETLINK, flag::DUMP, &ifinfo(0, 0, 0), attributes);
    netlink.dump("list interfaces", &request, |m| link(m).map(Some))
}

/// What the interface of that index is in another namespace, by the number that this one has for it (Linux 4.20);
/// `None` where there is none.
///
/// # Errors
/// When the kernel refuses: it needs CAP_NET_ADMIN there.
pub fn by_index_in(netlink: &mut Netlink, namespace: i32, index: u32) -> Result<Option<Link>> {
    let attributes = Attributes::new()
        .with_u32(IFLA_TARGET_NETNSID, namespace.cast_unsigned())
        .with_u32(IFLA_EXT_MASK, WITHOUT_COUNTERS);
    let request = Request::new(RTM_GETLINK, 0, &ifinfo(index, 0, 0), attributes);
    netlink.ask(&format!("look at interface {index} of namespace {namespace}"), &request, |m| link(m).map(Some))
}

/// Whose network namespace is meant.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// That of a process.
    Process(u32),
    /// What `ip netns` keeps open by a name, or another file of a namespace.
    File(std::os::fd::BorrowedFd<'a>),
}

/// The number that the socket's namespace has for another one; `None` where no interface here has anything to do with
/// it, or it is gone.
///
/// # Errors
/// When the kernel refuses otherwise.
pub fn namespace_number(netlink: &mut Netlink, of: Of<'_>) -> Result<Option<i32>> {
    use std::os::fd::AsRawFd;
    let attributes = match of {
        Of::Process(pid) => Attributes::new().with_u32(NETNSA_PID, pid),
        Of::File(file) => Attributes::new().with_u32(NETNSA_FD, file.as_raw_fd().cast_unsigned()),
    };
    // struct rtgenmsg, filled up.
    let request = Request::new(RTM_GETNSID, 0, &[0; 4], attributes);
    let take = |m: &Message<'_>| {
        let (_, rest) = m.split(4)?;
        let found = wire::find(&wire::attributes(rest)?, NETNSA_NSID).and_then(|p| u32_at(p, 0));
        // NETNSA_NSID_NOT_ASSIGNED is -1.
        Ok(found.map(u32::cast_signed).filter(|number| *number >= 0))
    };
    match netlink.ask("ask the number of a network namespace", &request, take) {
        // A process that has ended, a file that is of no network namespace (ESRCH, EINVAL).
        Err(Error::Refused { source, .. }) if matches!(source.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => {
            Ok(None)
        }
        done => done,
    }
}

/// Whether an interface may have that name (dev_valid_name of net/core/dev.c).
///
/// # Errors
/// When it may not.
pub(super) fn valid(name: &str) -> Result<()> {
    let wrong = name.is_empty() || name.len() > LONGEST_NAME || name == "." || name == "..";
    if wrong || name.bytes().any(|b| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace()) {
        let why = format!("not an interface name: 1 to {LONGEST_NAME} bytes, without blank, slash and colon");
        return Err(Error::Invalid { what: format!("{name:?}"), why });
    }
    Ok(())
}

/// `struct ifinfomsg`.
pub(super) fn ifinfo(index: u32, flags: u32, change: u32) -> [u8; IFINFO] {
    let mut bytes = [0; IFINFO];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

fn link(message: &Message<'_>) -> std::result::Result<Link, Malformed> {
    let (head, rest) = message.split(IFINFO)?;
    let attributes = wire::attributes(rest)?;
    let text = |kind| wire::find(&attributes, kind).map(wire::text).unwrap_or_default();
    let info = wire::find(&attributes, IFLA_LINKINFO).map(wire::attributes).transpose()?.unwrap_or_default();
    let kind = wire::find(&info, IFLA_INFO_KIND).map(wire::text).unwrap_or_default();
    let data = wire::find(&info, IFLA_INFO_DATA).map(wire::attributes).transpose();
    // What other kinds put there need not be attributes.
    let data = if kind == "bridge" { data?.unwrap_or_default() } else { Vec::new() };
    let asks_firewall = data.iter().any(|(k, on)| IFLA_BR_NF_CALLS.contains(k) && on.first() == Some(&1));
    Ok(Link {
        device: Device { index: u32_at(head, 4).unwrap_or(0), name: text(IFLA_IFNAME) },
        kind,
        alias: text(IFLA_IFALIAS),
        up: u32_at(head, 8).unwrap_or(0) & UP != 0,
        loopback: u32_at(head, 8).unwrap_or(0) & LOOPBACK != 0,
        queue_packets: wire::find(&attributes, IFLA_TXQLEN).and_then(|p| u32_at(p, 0)).unwrap_or(0),
        qdisc: text(IFLA_QDISC),
        address: wire::find(&attributes, IFLA_ADDRESS).and_then(|p| p.try_into().ok()),
        master: wire::find(&attributes, IFLA_MASTER).and_then(|p| u32_at(p, 0)),
        asks_firewall,
        tied_to: wire::find(&attributes, IFLA_LINK).and_then(|p| u32_at(p, 0)),
        tied_in: wire::find(&attributes, IFLA_LINK_NETNSID).and_then(|p| u32_at(p, 0)).map(u32::cast_signed),
    })
}
