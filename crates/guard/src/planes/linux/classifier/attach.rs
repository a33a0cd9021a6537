//! The program at an interface's ingress: by a TCX link, or as a filter of a clsact qdisc.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{AsRawLibbpf, Link, Object, OpenObject, ProgramAttachType, TcHook};
use libbpf_sys::{bpf_program__attach_tcx, bpf_tcx_opts};
use vmio_look::trace::loader::{self, Aligned};

use super::super::netlink::wire::{Attributes, Request};
use super::super::netlink::{Change, Netlink};
use super::super::undo_log::PlaneLog;
use super::super::{Device, Error, Result, htb, links};
use super::filters::{self, FilterOwner, ListedFilter};
use super::pins::Pins;
use super::point::{AttachMode, INGRESS, Point};
use super::redirect::RedirectFilter;

/// The qdisc in which filters hang.
const CLSACT: &str = "clsact";
const CLSACT_HANDLE: u32 = 0xffff_0000;
const CLSACT_PARENT: u32 = 0xffff_fff1;
const RTM_DELQDISC: u16 = 37;

/// Whether programs outlive the process.
#[derive(Debug)]
pub enum Bond {
    /// No: TCX links end with it, and filters of clsact are removed when the classifier is dropped. For tests, and
    /// without a ledger on disk.
    Process,
    /// Yes, as pinned TCX links.
    Pinned(Pins),
    /// Yes, as filters of clsact.
    Clsact,
}

/// An attached program.
pub(super) enum Attached {
    /// The link, and the name of its pin.
    Tcx(Link, String),
    /// A filter of a clsact qdisc.
    Clsact {
        /// The filter.
        filter: Filter,
        /// Which program it is.
        point: Point,
        /// Redirects the packets to an IFB.
        redirect: Option<RedirectFilter>,
    },
}

/// A filter.
pub(super) struct Filter {
    hook: TcHook,
    /// The kernel's number of the program, which no other has.
    program: u32,
}

impl Filter {
    fn is_there(&self) -> bool {
        let mut hook = self.hook;
        loudly("look at the classifier's filter", || hook.query()).is_ok_and(|program| program == self.program)
    }
}

impl Attached {
    pub(super) fn attach(
        object: &Object,
        netlink: &mut Netlink,
        device: &Device,
        mode: AttachMode,
        point: Point,
        held: (&Bond, &PlaneLog),
    ) -> Result<Self> {
        let (bond, log) = held;
        let index = device.index as i32;
        let program =
            object.progs().find(|p| p.name() == point.program()).expect("the object was built with this program");
        match mode {
            AttachMode::Tcx => {
                let (what, name) = (format!("attach the classifier to {device} by TCX"), point.pin(device.index));
                // An earlier guard's link gets this program atomically.
                let old = loudly(&what, || Ok(if let Bond::Pinned(pins) = bond { pins.open(&name) } else { None }))?;
                if let Some(mut link) = old.filter(|link| at_point(link, device.index, point)) {
                    loudly(&what, || link.update_prog(&program))?;
                    return Ok(Attached::Tcx(link, name));
                }
                let link = loudly(&what, || {
                    let options =
                        bpf_tcx_opts { sz: size_of::<bpf_tcx_opts>() as _, flags: point.place(), ..Default::default() };
                    // SAFETY: program and options outlive the call.
                    let link = unsafe { bpf_program__attach_tcx(program.as_libbpf_object().as_ptr(), index, &options) };
                    let failed = io::Error::last_os_error();
                    let link = NonNull::new(link).ok_or(failed)?;
                    // SAFETY: it is a link of our own, given away here.
                    Ok(unsafe { Link::from_ptr(link) })
                })?;
                if let Bond::Pinned(pins) = bond {
                    pins.pin(link.as_fd(), &name)?;
                }
                Ok(Attached::Tcx(link, name))
            }
            AttachMode::Clsact => {
                // An earlier guard's filter is replaced atomically.
                let all = filters::list(netlink, device, point.parent())?;
                let old = all.iter().find(|filter| filter.owner == FilterOwner::Program(point));
                if htb::hook(netlink, device)?.is_none() {
                    log.begin_clsact(device)?;
                }
                let filter = loudly(&format!("attach the classifier to {device} by clsact"), || {
                    let mut hook = TcHook::new(program.as_fd());
                    hook.ifindex(index).attach_point(point.hook()).handle(filters::handle(point));
                    hook.priority(old.map_or(0, |old| old.preference.into())).replace(old.is_some());
                    let mut hook = hook.create()?.attach()?;
                    let program = hook.query()?;
                    Ok(Filter { hook, program })
                });
                if filter.is_err() {
                    let _ = remove_clsact(netlink, device, log, false);
                }
                Ok(Attached::Clsact { filter: filter?, point, redirect: RedirectFilter::find(netlink, device, point)? })
            }
        }
    }

    pub(super) fn mode(&self) -> AttachMode {
        match self {
            Attached::Tcx(..) => AttachMode::Tcx,
            Attached::Clsact { .. } => AttachMode::Clsact,
        }
    }

    /// Whether it is still attached and pinned.
    pub(super) fn is_there(&self, bond: &Bond) -> bool {
        match self {
            // A link outlives its interface, with index 0.
            Attached::Tcx(link, name) => {
                let pinned = if let Bond::Pinned(pins) = bond { pins.has(name) } else { true };
                pinned && link.info().is_ok_and(|i| matches!(i.info, LinkTypeInfo::Tcx(t) if t.ifindex != 0))
            }
            Attached::Clsact { filter, .. } => filter.is_there(),
        }
    }

    /// Whether a filter is this one, or its redirect filter.
    pub(super) fn is(&self, filter: &ListedFilter) -> bool {
        let Attached::Clsact { point, redirect, .. } = self else { return false };
        filter.owner == FilterOwner::Program(*point) || redirect.as_ref().is_some_and(|redirect| redirect.is(filter))
    }

    /// Whether the redirect filter, if there is one, still exists.
    pub(super) fn is_redirected(&self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        match self {
            Attached::Clsact { redirect: Some(redirect), .. } => redirect.is_there(netlink, device),
            _ => Ok(true),
        }
    }

    /// Redirects packets to an IFB by a filter, where the program itself cannot.
    pub(super) fn set_redirect(&mut self, netlink: &mut Netlink, device: &Device, to: Option<u32>) -> Result<()> {
        let Attached::Clsact { redirect, point, .. } = self else { return Ok(()) };
        if redirect.as_ref().map(|r| r.to) == to {
            return Ok(());
        }
        if let Some(old) = redirect.take() {
            old.remove(netlink, device)?;
        }
        *redirect = to.map(|to| RedirectFilter::add(netlink, device, *point, to)).transpose()?;
        Ok(())
    }

    /// Detaches it, and removes a clsact qdisc that was made for it, unless it has other filters.
    pub(super) fn detach(self, netlink: &mut Netlink, device: &Device, held: (&Bond, &PlaneLog)) -> Result<()> {
        let (bond, log) = held;
        match self {
            Attached::Tcx(link, name) => {
                if let Bond::Pinned(pins) = bond {
                    pins.unpin(&name)?;
                }
                drop(link);
                Ok(())
            }
            Attached::Clsact { mut filter, redirect, .. } => {
                let removed = redirect.map_or(Ok(()), |redirect| redirect.remove(netlink, device));
                // A foreign filter may have the place by now.
                let sure = filter.is_there();
                if sure {
                    let _ = loudly("take the classifier's filter off", || filter.hook.detach());
                }
                removed?;
                remove_clsact(netlink, device, log, sure)
            }
        }
    }
}

/// Whether a link is attached at this point of this interface.
fn at_point(link: &Link, index: u32, point: Point) -> bool {
    let Ok(LinkTypeInfo::Tcx(at)) = link.info().map(|info| info.info) else { return false };
    let ingress = matches!(at.attach_type, ProgramAttachType::TcxIngress);
    at.ifindex == index && ingress == (point.parent() == INGRESS)
}

/// Removes a clsact qdisc that the guard made, if it has no filters left, and strikes it out; also where it or its
/// interface is gone. `sure`: no other interface can have the index.
pub(super) fn remove_clsact(netlink: &mut Netlink, device: &Device, log: &PlaneLog, sure: bool) -> Result<()> {
    let Some(made) = log.made_clsact(device.index) else { return Ok(()) };
    let there = links::by_index(netlink, device.index)?;
    let same = there.is_some_and(|link| sure || link.device.name == made.name);
    if !same || htb::hook(netlink, device)?.as_deref() != Some(CLSACT) {
        return log.strike_clsact(device.index);
    }
    if !filters::all(netlink, device)?.is_empty() {
        return Ok(());
    }
    let fixed = htb::tcmsg(device.index, CLSACT_HANDLE, CLSACT_PARENT);
    let request = Request::new(RTM_DELQDISC, 0, &fixed, Attributes::new());
    netlink.take_away(Change { what: format!("remove qdisc clsact from {device}"), request })?;
    log.strike_clsact(device.index)
}

/// The compiled object.
pub(super) fn open() -> libbpf_rs::Result<OpenObject> {
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/classify.bpf.o")));
    loader::open("vmio_guard", OBJECT)
}

/// Runs libbpf calls; an error has libbpf's messages.
pub(in crate::planes::linux) fn loudly<T>(what: &str, work: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T> {
    loader::loudly(work).map_err(|(source, log)| Error::Bpf { what: what.to_owned(), source, log })
}
