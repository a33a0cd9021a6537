//! The gateways of this host's default routes (rtnetlink(7), `struct rtmsg` of include/uapi/linux/rtnetlink.h).

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::netlink::wire::{self, Attributes, Malformed, Message, Request, flag, u32_at};
use super::{Netlink, Result, links};

const RTM_GETROUTE: u16 = 26;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
/// Bytes of `struct rtmsg`, and where it has the family, the destination's length and the type.
const RTMSG: usize = 12;
const FAMILY: usize = 0;
const LENGTH: usize = 1;
const TYPE: usize = 7;
/// RTN_UNICAST.
const UNICAST: u8 = 1;
/// AF_INET, AF_INET6.
const FAMILIES: [u8; 2] = [2, 10];

/// Gateways of default routes on the networks of these uplinks: by the uplink itself, or by the bridge or bond that it
/// is a port of. Routes with several next hops are left out. Changes nothing.
///
/// # Errors
/// When the kernel gives no netlink socket, or refuses.
pub fn gateways<'a>(uplinks: impl IntoIterator<Item = &'a String>) -> Result<BTreeMap<String, Vec<IpAddr>>> {
    let mut netlink = Netlink::open()?;
    let mut routes = Vec::new();
    for family in FAMILIES {
        let mut head = [0; RTMSG];
        head[FAMILY] = family;
        let request = Request::new(RTM_GETROUTE, flag::DUMP, &head, Attributes::new());
        routes.extend(netlink.dump("list routes", &request, by_default)?);
    }
    // Without IPv6 the kernel lists the others again.
    routes.sort_unstable();
    routes.dedup();
    let all = links::all(&mut netlink)?;
    let of = |uplink: &String| {
        let link = all.iter().find(|link| link.device.name == *uplink)?;
        let is_here = |index: u32| index == link.device.index || link.master == Some(index);
        let found: Vec<IpAddr> = routes.iter().filter(|(index, _)| is_here(*index)).map(|(_, at)| *at).collect();
        (!found.is_empty()).then(|| (uplink.clone(), found))
    };
    Ok(uplinks.into_iter().filter_map(of).collect())
}

/// Of a default route: the index of its interface, and its gateway.
fn by_default(message: &Message<'_>) -> std::result::Result<Option<(u32, IpAddr)>, Malformed> {
    let (head, rest) = message.split(RTMSG)?;
    if head[LENGTH] != 0 || head[TYPE] != UNICAST {
        return Ok(None);
    }
    let attributes = wire::attributes(rest)?;
    let interface = wire::find(&attributes, RTA_OIF).and_then(|p| u32_at(p, 0));
    Ok(interface.zip(wire::find(&attributes, RTA_GATEWAY).and_then(address)))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    four.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}
