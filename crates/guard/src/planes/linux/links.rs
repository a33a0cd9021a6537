//! Interfaces by name: their index, kind and alias (rtnetlink(7), `struct ifinfomsg` of
//! include/uapi/linux/rtnetlink.h, attributes of include/uapi/linux/if_link.h).

use std::fmt;

use super::netlink::wire::{self, Attributes, Malformed, Message, Request, u32_at};
use super::{Error, Netlink, Result};

pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
pub(super) const RTM_SETLINK: u16 = 19;

const IFLA_ADDRESS: u16 = 1;
pub(super) const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
pub(super) const IFLA_TXQLEN: u16 = 13;
pub(super) const IFLA_LINKINFO: u16 = 18;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_IFALIAS: u16 = 20;

/// Bytes of `struct ifinfomsg`.
pub(super) const IFINFO: usize = 16;
/// IFF_UP.
pub(super) const UP: u32 = 1;
/// Bytes of a name, without the zero at its end (IFNAMSIZ).
const LONGEST_NAME: usize = 15;

/// An interface: what the kernel knows it by, and what people do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device {
    /// Of its network namespace; used again for another only after a long time.
    pub index: u32,
    /// At the time when it was found.
    pub name: String,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Which.
    pub device: Device,
    /// Its driver's kind (`ifb`, `veth`, `tun`), empty for hardware.
    pub kind: String,
    /// What somebody wrote to it (`ip link set … alias`), empty where nobody did.
    pub alias: String,
    /// Whether it is up.
    pub up: bool,
    /// Packets that its own queue holds.
    pub queue_packets: u32,
    /// Its Ethernet address, where it has one.
    pub address: Option<[u8; 6]>,
    /// Index of the bridge, bond or switch that it is a port of.
    pub master: Option<u32>,
}

/// The interface of that name in the socket's namespace.
///
/// # Errors
/// When there is none, or the kernel refuses.
pub fn find(netlink: &mut Netlink, name: &str) -> Result<Device> {
    match look(netlink, name)? {
        Some(link) => Ok(link.device),
        None => {
            Err(Error::Invalid { what: name.to_owned(), why: "there is no such interface; see: ip link".to_owned() })
        }
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

/// Whether an interface may have that name (dev_valid_name of net/core/dev.c).
///
/// # Errors
/// When it may not.
pub(super) fn valid(name: &str) -> Result<()> {
    let wrong = name.is_empty() || name.len() > LONGEST_NAME || name == "." || name == "..";
    if wrong || name.bytes().any(|b| b == b'/' || b == b':' || b == 0 || b.is_ascii_whitespace()) {
        let why = format!("no name of an interface: 1 to {LONGEST_NAME} bytes, without blank, slash and colon");
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
    Ok(Link {
        device: Device { index: u32_at(head, 4).unwrap_or(0), name: text(IFLA_IFNAME) },
        kind: wire::find(&info, IFLA_INFO_KIND).map(wire::text).unwrap_or_default(),
        alias: text(IFLA_IFALIAS),
        up: u32_at(head, 8).unwrap_or(0) & UP != 0,
        queue_packets: wire::find(&attributes, IFLA_TXQLEN).and_then(|p| u32_at(p, 0)).unwrap_or(0),
        address: wire::find(&attributes, IFLA_ADDRESS).and_then(|p| p.try_into().ok()),
        master: wire::find(&attributes, IFLA_MASTER).and_then(|p| u32_at(p, 0)),
    })
}
