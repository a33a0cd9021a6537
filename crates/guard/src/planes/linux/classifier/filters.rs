//! Filters of clsact, and which of them are a guard's: its programs have handles of their own, and its redirect filters
//! a cookie in their action (TCA_ACT_COOKIE, Linux 4.11), so that the next guard finds and replaces them
//! (include/uapi/linux/pkt_cls.h, net/sched/cls_bpf.c, cls_u32.c).

use super::super::htb;
use super::super::netlink::wire::{self, Attributes, Malformed, Message, Request, flag, u32_at};
use super::super::netlink::{Change, Netlink};
use super::super::{Device, Result};
use super::point::{EGRESS, INGRESS, Point};

pub(super) const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const HOOKS: [u32; 2] = [INGRESS, EGRESS];
/// ETH_P_ALL, as it goes over the wire.
const EVERYTHING: u16 = 3u16.to_be();
/// Handles of our programs, with the point's number: `vmi` in ASCII.
const HANDLE: u32 = 0x766d_6900;
/// Cookie in the action of a redirect filter; the point's number follows.
const COOKIE: &[u8] = b"vmio guard";

pub(super) const TCA_KIND: u16 = 1;
pub(super) const TCA_OPTIONS: u16 = 2;
pub(super) const TCA_U32_ACT: u16 = 7;
pub(super) const TCA_ACT_OPTIONS: u16 = 2;
pub(super) const TCA_ACT_COOKIE: u16 = 6;
pub(super) const TCA_MIRRED_PARMS: u16 = 2;
/// The bits of a filter's handle in which cls_u32 numbers filters; the others number its tables.
const U32_NODE: u32 = 0xfff;

/// A filter in the kernel's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListedFilter {
    pub(super) parent: u32,
    pub(super) preference: u16,
    handle: u32,
    pub(super) owner: FilterOwner,
}

/// Owner and purpose of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilterOwner {
    /// A guard's program.
    Program(Point),
    /// A guard's redirect to the interface of that index.
    Redirect(Point, u32),
    Other,
}

/// The handle of a point's program.
pub(super) fn handle(point: Point) -> u32 {
    HANDLE | point as u32
}

/// The cookie of the redirect filter behind a point's program.
pub(super) fn cookie(point: Point) -> Vec<u8> {
    [COOKIE, &[point as u8]].concat()
}

/// Those at a hook of an interface; none where there is no such hook.
pub(super) fn list(netlink: &mut Netlink, device: &Device, parent: u32) -> Result<Vec<ListedFilter>> {
    let request = Request::new(RTM_GETTFILTER, flag::DUMP, &htb::tcmsg(device.index, 0, parent), Attributes::new());
    netlink.dump(&format!("list filters of {device}"), &request, |m| parse(m, parent))
}

/// Those at all hooks of an interface.
pub(super) fn all(netlink: &mut Netlink, device: &Device) -> Result<Vec<ListedFilter>> {
    let mut all = Vec::new();
    for parent in HOOKS {
        all.extend(list(netlink, device, parent)?);
    }
    Ok(all)
}

/// Removes a guard's filter, if it exists.
pub(super) fn remove(netlink: &mut Netlink, device: &Device, filter: &ListedFilter) -> Result<()> {
    let (kind, what) = match filter.owner {
        FilterOwner::Program(_) => ("bpf", "remove the classifier from"),
        FilterOwner::Redirect(..) => ("u32", "end leading what arrives at"),
        FilterOwner::Other => return Ok(()),
    };
    let mut fixed = place(device, filter.parent, filter.preference);
    // A redirect's preference is the guard's alone: it is removed with its table.
    if let FilterOwner::Program(_) = filter.owner {
        fixed[8..12].copy_from_slice(&filter.handle.to_ne_bytes());
    }
    let request = Request::new(RTM_DELTFILTER, 0, &fixed, Attributes::new().with_text(TCA_KIND, kind));
    netlink.take_away(Change { what: format!("{what} {device}"), request })
}

/// `struct tcmsg`, with preference and protocol in its last number.
pub(super) fn place(device: &Device, parent: u32, preference: u16) -> [u8; htb::TCMSG] {
    let mut fixed = htb::tcmsg(device.index, 0, parent);
    let info = u32::from(preference) << 16 | u32::from(EVERYTHING);
    fixed[16..].copy_from_slice(&info.to_ne_bytes());
    fixed
}

fn parse(message: &Message<'_>, parent: u32) -> std::result::Result<Option<ListedFilter>, Malformed> {
    let (head, rest) = message.split(htb::TCMSG)?;
    let number = |at| u32_at(head, at).unwrap_or(0);
    let (handle, info) = (number(8), number(16));
    let attributes = wire::attributes(rest)?;
    let kind = wire::find(&attributes, TCA_KIND).map(wire::text).unwrap_or_default();
    // The head of a row of filters, and a table of cls_u32, are no filters.
    if handle == 0 || (kind == "u32" && handle & U32_NODE == 0) {
        return Ok(None);
    }
    let whole = (info & 0xffff) as u16 == EVERYTHING;
    let options = wire::find(&attributes, TCA_OPTIONS).unwrap_or_default();
    let owner = match kind.as_str() {
        "bpf" if whole => Point::ALL.into_iter().find(|p| self::handle(*p) == handle).map(FilterOwner::Program),
        "u32" if whole => redirect(options)?,
        _ => None,
    };
    Ok(Some(ListedFilter {
        parent,
        preference: (info >> 16) as u16,
        handle,
        owner: owner.unwrap_or(FilterOwner::Other),
    }))
}

/// Reads the first action of a cls_u32 filter, if it has the guard's cookie.
fn redirect(options: &[u8]) -> std::result::Result<Option<FilterOwner>, Malformed> {
    let inside = |bytes: &[u8], kind| -> std::result::Result<Vec<u8>, Malformed> {
        Ok(wire::find(&wire::attributes(bytes)?, kind).unwrap_or_default().to_vec())
    };
    let action = inside(&inside(options, TCA_U32_ACT)?, 1)?;
    let said = inside(&action, TCA_ACT_COOKIE)?;
    let Some(point) = Point::ALL.into_iter().find(|p| cookie(*p) == said) else { return Ok(None) };
    // `ifindex` of struct tc_mirred.
    let to = u32_at(&inside(&inside(&action, TCA_ACT_OPTIONS)?, TCA_MIRRED_PARMS)?, 24);
    Ok(to.map(|to| FilterOwner::Redirect(point, to)))
}
