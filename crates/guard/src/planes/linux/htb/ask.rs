//! Asks the kernel for qdiscs and classes.

use super::super::netlink::wire::{self, Attributes, Malformed, Message, Request, flag, u32_at};
use super::super::{Device, Netlink, Result};
use super::encode::{RTM_GETQDISC, TCA_KIND, TCA_OPTIONS, TCA_STAB, TCMSG, tcmsg};
use super::shown;

/// A qdisc of an interface.
#[derive(Clone)]
pub(super) struct Qdisc {
    pub(super) handle: u32,
    pub(super) parent: u32,
    pub(super) kind: String,
    pub(super) options: Option<Vec<u8>>,
    pub(super) sizes: Option<Vec<u8>>,
}

/// For one of an interface.
pub(in super::super) fn one(kind: u16, device: &Device, handle: u32, parent: u32) -> Request {
    Request::new(kind, flag::ECHO, &tcmsg(device.index, handle, parent), Attributes::new())
}

/// For all that have this parent, or for all of the interface.
pub(in super::super) fn list(kind: u16, index: u32, parent: u32) -> Request {
    Request::new(kind, flag::DUMP, &tcmsg(index, 0, parent), Attributes::new())
}

/// A qdisc, as the kernel gives it.
///
/// # Errors
/// Where the answer makes no sense.
pub(super) fn qdisc(message: &Message<'_>) -> std::result::Result<Qdisc, Malformed> {
    let (head, rest) = message.split(TCMSG)?;
    let attributes = wire::attributes(rest)?;
    let bytes = |kind| wire::find(&attributes, kind).map(<[u8]>::to_vec);
    Ok(Qdisc {
        handle: u32_at(head, 8).unwrap_or(0),
        parent: u32_at(head, 12).unwrap_or(0),
        kind: wire::find(&attributes, TCA_KIND).map(wire::text).unwrap_or_default(),
        options: bytes(TCA_OPTIONS),
        sizes: bytes(TCA_STAB),
    })
}

/// The qdisc in a class of any hierarchy.
pub(super) fn queue_in(netlink: &mut Netlink, device: &Device, id: u32) -> Result<Option<Qdisc>> {
    let what = format!("read the queue of class {} of {device}", shown(id));
    let queue = netlink.ask(&what, &one(RTM_GETQDISC, device, 0, id), |m| qdisc(m).map(Some))?;
    // One that the kernel put there by itself has no handle, and is in no list.
    Ok(queue.filter(|queue| queue.handle != 0))
}
