//! An intermediate functional block (drivers/net/ifb.c): what a guest sends can be led through it, so that it waits
//! in the IFB's queues while it is still charged to the guest's own interface.
//!
//! Ours are known by their name and by an alias that begins with [`ALIAS`]; one without it is another's and is
//! never touched. Name, alias and state are written in one call, so that none stays without its alias.

use super::links::{
    self, Device, IFLA_IFALIAS, IFLA_IFNAME, IFLA_INFO_KIND, IFLA_LINKINFO, IFLA_TXQLEN, Link, RTM_DELLINK,
    RTM_NEWLINK, RTM_SETLINK, UP, ifinfo,
};
use super::netlink::wire::{Attributes, Request, flag};
use super::netlink::{Change, Netlink};
use super::{Error, Result};

/// What the aliases of our IFBs begin with.
const ALIAS: &str = "vmio guard";
/// Packets that an IFB's own queue holds, which nothing waits in while a pool's are there.
pub const QUEUE_PACKETS: u32 = 1000;
const KIND: &str = "ifb";
/// The longest alias (IFALIASZ, with its zero).
const LONGEST: usize = 255;

/// The name of an uplink's IFB for what guests send (`tx`; `lc` at their own interfaces) or receive (`rx`): whatever
/// its index, within the 15 bytes that a name may have.
pub fn name(way: &str, uplink: &Device) -> String {
    format!("vmio{way}{:x}", uplink.index)
}

/// Whether an interface is an IFB of ours for what guests receive.
pub fn receives(link: &Link) -> bool {
    is_ours(link) && link.device.name.starts_with("vmiorx")
}

/// Makes an IFB that is up, or finds the one that was made with the same words. `what` is for people and goes into
/// its alias; `queue_packets` is its own queue's length, which HTB takes for packets without a class.
///
/// # Errors
/// When another's interface has the name, or the kernel refuses.
pub fn make(netlink: &mut Netlink, name: &str, what: &str, queue_packets: u32) -> Result<Device> {
    links::valid(name)?;
    let alias = format!("{ALIAS}: {what}");
    if alias.len() > LONGEST {
        let why = format!("an alias holds {LONGEST} bytes, and this has {}", alias.len());
        return Err(Error::Invalid { what: format!("interface {name}"), why });
    }
    let there = links::look(netlink, name)?;
    if let Some(link) = &there {
        ours(link)?;
        if link.alias == alias && link.up && link.queue_packets == queue_packets {
            return Ok(link.device.clone());
        }
    }
    let named = || Attributes::new().with_text(IFLA_IFNAME, name);
    let mut changes = Vec::new();
    if there.is_none() {
        let kind = Attributes::new().with_text(IFLA_INFO_KIND, KIND);
        let attributes = named().with_u32(IFLA_TXQLEN, queue_packets).with_nested(IFLA_LINKINFO, kind);
        let request = Request::new(RTM_NEWLINK, flag::CREATE | flag::EXCLUSIVE, &ifinfo(0, 0, 0), attributes);
        changes.push(Change { what: format!("make interface {name} of kind {KIND}"), request });
    }
    let attributes = named().with_u32(IFLA_TXQLEN, queue_packets).with(IFLA_IFALIAS, alias.as_bytes());
    let request = Request::new(RTM_SETLINK, 0, &ifinfo(0, UP, UP), attributes);
    changes.push(Change { what: format!("set interface {name} up"), request });
    netlink.change(&changes)?;
    let link = links::look(netlink, name)?;
    let link = link.ok_or_else(|| mismatch(name, "interface", "made", "gone"))?;
    for (field, wanted, found) in [
        ("kind", KIND.to_owned(), link.kind.clone()),
        ("alias", alias, link.alias.clone()),
        ("state", "up".to_owned(), if link.up { "up".to_owned() } else { "down".to_owned() }),
        ("txqueuelen", queue_packets.to_string(), link.queue_packets.to_string()),
    ] {
        if wanted != found {
            return Err(mismatch(name, field, &wanted, &found));
        }
    }
    Ok(link.device)
}

/// The IFB of that name, if it is ours; `None` where no interface has the name.
///
/// # Errors
/// When another's interface has it, or the kernel refuses.
pub fn find(netlink: &mut Netlink, name: &str) -> Result<Option<Device>> {
    let link = links::look(netlink, name)?;
    link.map(|link| ours(&link).map(|()| link.device)).transpose()
}

/// Removes an IFB of ours, with its queues. `false` where there is none.
///
/// # Errors
/// When another's interface has the name, or the kernel refuses.
pub fn remove(netlink: &mut Netlink, name: &str) -> Result<bool> {
    let Some(device) = find(netlink, name)? else { return Ok(false) };
    let request = Request::new(RTM_DELLINK, 0, &ifinfo(device.index, 0, 0), Attributes::new());
    netlink.change(&[Change { what: format!("remove interface {name}"), request }])?;
    Ok(true)
}

/// The same of one that may be there; another's interface of that name stays.
///
/// # Errors
/// When the kernel refuses.
pub fn remove_ours(netlink: &mut Netlink, name: &str) -> Result<()> {
    match remove(netlink, name) {
        Ok(_) | Err(Error::Foreign { .. }) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Whether an interface is one that this made.
pub fn is_ours(link: &Link) -> bool {
    link.kind == KIND && link.alias.starts_with(ALIAS)
}

fn ours(link: &Link) -> Result<()> {
    if is_ours(link) {
        return Ok(());
    }
    let kind = if link.kind.is_empty() { "a device" } else { &link.kind };
    Err(Error::Foreign {
        place: link.device.name.clone(),
        what: format!("an interface of that name ({kind}, alias {:?})", link.alias),
        help: "name another, or remove it: ip link del".to_owned(),
    })
}

fn mismatch(name: &str, field: &str, wanted: &str, found: &str) -> Error {
    Error::Mismatch {
        place: format!("interface {name}"),
        field: field.to_owned(),
        wanted: wanted.to_owned(),
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_whatever_the_index() {
        for (way, index) in [("tx", 1), ("lc", 12), ("rx", u32::MAX)] {
            let name = name(way, &Device { index, name: "eth0".into() });
            assert!(links::valid(&name).is_ok(), "{name}");
        }
    }
}
