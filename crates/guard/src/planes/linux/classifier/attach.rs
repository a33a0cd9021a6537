//! The program at an interface's ingress: by a TCX link, or as a filter of a clsact qdisc.

use std::io;
use std::mem;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{AsRawLibbpf, Link, Object, ObjectBuilder, OpenObject, PrintLevel, TC_EGRESS, TC_INGRESS, TcHook};
use libbpf_sys::{BPF_F_AFTER, BPF_F_BEFORE, bpf_program__attach_tcx, bpf_tcx_opts};

use super::super::htb;
use super::super::netlink::wire::{Attributes, Request};
use super::super::netlink::{Change, Netlink};
use super::super::{Device, Error, Result};
use super::Way;
use super::lead::{INGRESS, Lead};

/// Where a program of the object looks at packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    /// What arrives at a guest's interface.
    Arrives,
    /// What leaves by an uplink, before its queues.
    Leaves,
    /// What arrives at an uplink, behind what others have there: it ends here, led away.
    Enters,
}

impl Point {
    fn program(self) -> &'static str {
        match self {
            Point::Arrives => "classify",
            Point::Leaves => "leave",
            Point::Enters => "receive",
        }
    }

    fn hook(self) -> libbpf_rs::TcAttachPoint {
        match self {
            Point::Arrives | Point::Enters => TC_INGRESS,
            Point::Leaves => TC_EGRESS,
        }
    }

    /// Where among others' programs.
    fn place(self) -> u32 {
        match self {
            Point::Arrives | Point::Leaves => BPF_F_BEFORE,
            Point::Enters => BPF_F_AFTER,
        }
    }
}

const CLSACT: &str = "clsact";
/// Where clsact's filters hang (TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS) and TC_H_MIN_EGRESS of pkt_sched.h).
const HOOKS: [u32; 2] = [INGRESS, 0xffff_fff3];
/// The qdisc itself.
const CLSACT_HANDLE: u32 = 0xffff_0000;
const CLSACT_PARENT: u32 = 0xffff_fff1;
const RTM_DELQDISC: u16 = 37;

/// The program where it is attached. It goes when this is dropped, but for what was made beside it at clsact.
pub(super) enum Attached {
    /// Goes with the link.
    Tcx(Link),
    /// A filter; whether the clsact qdisc was made for it.
    Clsact {
        /// The filter.
        filter: Filter,
        /// Nobody had one there.
        made: bool,
        /// What leads packets on to an IFB.
        lead: Option<Lead>,
    },
}

/// A filter, removed when dropped.
pub(super) struct Filter {
    hook: TcHook,
    /// The kernel's number of the program, which no other has.
    program: u32,
}

impl Filter {
    fn is_there(&self) -> bool {
        let mut hook = self.hook;
        // What libbpf says of one that is gone is no matter.
        loudly("look at the classifier's filter", || hook.query()).is_ok_and(|program| program == self.program)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // Another's may have the same place by now.
        if self.is_there() {
            let _ = loudly("take the classifier's filter off", || self.hook.detach());
        }
    }
}

impl Attached {
    pub(super) fn attach(
        object: &Object,
        netlink: &mut Netlink,
        device: &Device,
        way: Way,
        point: Point,
    ) -> Result<Self> {
        let index = device.index as i32;
        let program =
            object.progs().find(|p| p.name() == point.program()).expect("the object was built with this program");
        match way {
            Way::Tcx => loudly(&format!("attach the classifier to {device} by TCX"), || {
                let options =
                    bpf_tcx_opts { sz: size_of::<bpf_tcx_opts>() as _, flags: point.place(), ..Default::default() };
                // SAFETY: program and options outlive the call.
                let link = unsafe { bpf_program__attach_tcx(program.as_libbpf_object().as_ptr(), index, &options) };
                let failed = io::Error::last_os_error();
                let link = NonNull::new(link).ok_or(failed)?;
                // SAFETY: it is a link of our own, given away here.
                Ok(Attached::Tcx(unsafe { Link::from_ptr(link) }))
            }),
            Way::Clsact => {
                let made = !htb::has(netlink, device, CLSACT)?;
                let filter = loudly(&format!("attach the classifier to {device} by clsact"), || {
                    let mut hook = TcHook::new(program.as_fd());
                    hook.ifindex(index).attach_point(point.hook());
                    let mut hook = hook.create()?.attach()?;
                    let program = hook.query()?;
                    Ok(Filter { hook, program })
                });
                if filter.is_err() && made {
                    let _ = remove_clsact(netlink, device);
                }
                Ok(Attached::Clsact { filter: filter?, made, lead: None })
            }
        }
    }

    pub(super) fn way(&self) -> Way {
        match self {
            Attached::Tcx(_) => Way::Tcx,
            Attached::Clsact { .. } => Way::Clsact,
        }
    }

    /// Whether it is still there: not if its interface went, or somebody took it off.
    pub(super) fn is_there(&self) -> bool {
        match self {
            // A link stays when its interface goes, and has no interface then.
            Attached::Tcx(link) => link.info().is_ok_and(|i| matches!(i.info, LinkTypeInfo::Tcx(t) if t.ifindex != 0)),
            Attached::Clsact { filter, .. } => filter.is_there(),
        }
    }

    /// Whether the clsact qdisc that it hangs in was made for it.
    pub(super) fn made(&self) -> bool {
        matches!(self, Attached::Clsact { made: true, .. })
    }

    /// The clsact qdisc was made for another of ours: whoever goes last takes it off.
    pub(super) fn share(&mut self) {
        if let Attached::Clsact { made, .. } = self {
            *made = true;
        }
    }

    /// Whether what passes is led on as it was told to be: not if somebody took the filter off that does it.
    pub(super) fn is_led(&self, netlink: &mut Netlink, device: &Device) -> Result<bool> {
        match self {
            Attached::Clsact { lead: Some(lead), .. } => lead.is_there(netlink, device),
            _ => Ok(true),
        }
    }

    /// Leads what passes through that IFB, where the program itself is not to do it.
    pub(super) fn lead(&mut self, netlink: &mut Netlink, device: &Device, to: Option<u32>) -> Result<()> {
        let Attached::Clsact { lead, .. } = self else { return Ok(()) };
        if lead.as_ref().map(|l| l.to) == to {
            return Ok(());
        }
        if let Some(old) = lead.take() {
            old.remove(netlink, device)?;
        }
        *lead = to.map(|to| Lead::add(netlink, device, to)).transpose()?;
        Ok(())
    }

    /// Takes it off, and a clsact qdisc that was made for it, unless others have filters there by now.
    pub(super) fn detach(self, netlink: &mut Netlink, device: &Device) -> Result<()> {
        match self {
            Attached::Tcx(link) => drop(link),
            Attached::Clsact { filter, made, lead } => {
                let led = lead.map_or(Ok(()), |lead| lead.remove(netlink, device));
                drop(filter);
                led?;
                if made {
                    remove_clsact(netlink, device)?;
                }
            }
        }
        Ok(())
    }
}

fn remove_clsact(netlink: &mut Netlink, device: &Device) -> Result<()> {
    for hook in HOOKS {
        if htb::filters(netlink, device, hook)? {
            return Ok(());
        }
    }
    if !htb::has(netlink, device, CLSACT)? {
        return Ok(());
    }
    let fixed = htb::tcmsg(device.index, CLSACT_HANDLE, CLSACT_PARENT);
    let request = Request::new(RTM_DELQDISC, 0, &fixed, Attributes::new());
    netlink.change(&[Change { what: format!("remove qdisc clsact from {device}"), request }])
}

/// The object as built; libelf wants it aligned.
pub(super) fn open() -> libbpf_rs::Result<OpenObject> {
    #[repr(C, align(16))]
    struct Aligned<T: ?Sized>(T);
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/classify.bpf.o")));
    ObjectBuilder::default().name("vmio_guard")?.open_memory(&OBJECT.0)
}

/// What libbpf says while it works, for the error instead of the terminal.
static LOG: Mutex<String> = Mutex::new(String::new());

pub(super) fn loudly<T>(what: &str, work: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T> {
    // libbpf has one place for its messages, so one at a time.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let keep = |_: PrintLevel, text: String| LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    let before = libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    let done = work();
    libbpf_rs::set_print(before);
    let log = mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner));
    done.map_err(|source| Error::Bpf { what: what.to_owned(), source, log })
}
