//! Puts a tree in force, reads it back, and removes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::netlink::Change;
use super::super::netlink::wire::{Attributes, Request, flag};
use super::super::{Device, Error, Netlink, Result};
use super::debts::Cause;
use super::encode::{
    self, AT_ROOT, RTM_DELQDISC, RTM_DELTCLASS, RTM_NEWQDISC, RTM_NEWTCLASS, TCA_KIND, TCA_OPTIONS, TCA_STAB, tcmsg,
};
use super::flow_tree;
use super::queue::Queue;
use super::read::{Foreign, FoundQueue, InForce, Root, read, read_classes, read_leaves, reread};
use super::steps::{Step, difference, mismatch};
use super::tree::{Tree, WantedLeaf};
use super::{HANDLE, ROOT_CLASS, classid, place, queue_handle};

/// So many classes are read back one by one: that is faster than a list down to lists of some hundred.
const ONE_BY_ONE: usize = 16;

/// Result of [`put`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Each step; none where all was in force already.
    pub steps: Vec<Step>,
    /// The foreign qdisc that was replaced, for [`undo`]; [`put_over`] has it recorded before.
    pub replaced: Option<Foreign>,
}

/// Result of [`undo`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// Ours was there and is gone.
    Removed,
    /// Nothing of ours was there any more; what had to go for it is back all the same, if anything had.
    Gone,
    /// A foreign qdisc was left alone; its name.
    Left(String),
}

/// Puts a tree in force on what leaves an interface: the difference to what is there, in as few calls as can be, and
/// reads it back. Where all is in force, nothing is sent.
///
/// With `takeover` another's qdisc is replaced if it can be put back as it was. What fails on the way to a first
/// tree is taken off again; what fails on the way to another one stands, and the next call goes on from there.
///
/// # Errors
/// When another's qdisc is in the place, the kernel refuses, or what is read back is not what was written.
pub fn put(netlink: &mut Netlink, device: &Device, wanted: &Tree, takeover: bool) -> Result<Applied> {
    put_over(netlink, device, wanted, Cause::Policy, takeover, |_| Ok(()))
}

/// As [`put`], for any cause; `before` is called with another's qdisc that is about to be replaced, and nothing is done
/// where it fails.
///
/// # Errors
/// As [`put`], and what `before` gives.
pub fn put_over(
    netlink: &mut Netlink,
    device: &Device,
    wanted: &Tree,
    cause: Cause,
    takeover: bool,
    before: impl FnOnce(&Foreign) -> Result<()>,
) -> Result<Applied> {
    let (actual, replaced) = match look(netlink, device, wanted, cause)? {
        Root::Kernels { .. } => (None, None),
        Root::Ours(found) => (Some(found.owing(cause)), None),
        Root::Foreign(foreign) => {
            refuse(device, &foreign, takeover)?;
            before(&foreign)?;
            (None, Some(foreign))
        }
    };
    let steps = difference(wanted, actual.as_ref());
    if steps.is_empty() {
        return Ok(Applied { steps, replaced: None });
    }
    let changes: Vec<Change> = steps.iter().flat_map(|s| changes(device, s, replaced.is_some())).collect();
    let is_first = actual.is_none();
    let done = netlink.change(&changes).and_then(|()| verify(netlink, device, wanted, actual, &steps, cause));
    if let Err(e) = done {
        if is_first {
            // The first error matters.
            let _ = undo(netlink, device, replaced.as_ref());
        }
        return Err(e);
    }
    Ok(Applied { steps, replaced })
}

/// Drops what waits in a leaf, by replacing its queue.
///
/// # Errors
/// When the kernel refuses.
pub fn purge(netlink: &mut Netlink, device: &Device, minor: u16, queue: Queue) -> Result<()> {
    let steps = [Step::RemoveQueue { minor, handle: queue_handle(minor) }, Step::SetQueue { minor, queue }];
    let changes: Vec<Change> = steps.iter().flat_map(|step| changes(device, step, false)).collect();
    netlink.change(&changes)
}

/// Takes our qdisc off, with all that is in it, and puts back what had to go for it; otherwise the kernel puts its own
/// there.
///
/// # Errors
/// When the kernel refuses, or what was put back is not what was there.
pub fn undo(netlink: &mut Netlink, device: &Device, replaced: Option<&Foreign>) -> Result<Undone> {
    let (undone, back) = match read_leaves(netlink, device)? {
        Root::Foreign(other) => return Ok(Undone::Left(other.shown())),
        Root::Ours(_) => (Undone::Removed, changes(device, &Step::RemoveRoot, false)),
        Root::Kernels { .. } => (Undone::Gone, Vec::new()),
    };
    let changes: Vec<Change> = match replaced {
        Some(foreign) => vec![restore(device, foreign)],
        None => back,
    };
    netlink.change(&changes)?;
    if let Some(foreign) = replaced {
        let found = match read_leaves(netlink, device)? {
            Root::Foreign(found) if found == *foreign => return Ok(undone),
            Root::Foreign(found) => found.shown(),
            Root::Ours(_) => "vmio's".to_owned(),
            Root::Kernels { kind } => kind,
        };
        let (place, wanted) = (device.to_string(), format!("{} as it was", foreign.shown()));
        return Err(Error::Mismatch { place, field: "qdisc".to_owned(), wanted, found });
    }
    Ok(undone)
}

/// Removes another's qdisc from the root of an interface, whatever it is; the kernel puts its own there.
///
/// # Errors
/// When the kernel refuses.
pub fn evict(netlink: &mut Netlink, device: &Device) -> Result<()> {
    let request = Request::new(RTM_DELQDISC, 0, &tcmsg(device.index, 0, AT_ROOT), Attributes::new());
    netlink.take_away(Change { what: format!("remove another program's qdisc of {device}"), request })
}

/// Whether [`put`] may use the place.
///
/// # Errors
/// When another's qdisc is in it, or the kernel refuses.
pub fn may_put(netlink: &mut Netlink, device: &Device, takeover: bool) -> Result<()> {
    match read_leaves(netlink, device)? {
        Root::Foreign(foreign) => refuse(device, &foreign, takeover),
        Root::Kernels { .. } | Root::Ours(_) => Ok(()),
    }
}

fn refuse(device: &Device, foreign: &Foreign, takeover: bool) -> Result<()> {
    let remove = format!("remove it: tc qdisc del dev {} root", device.name);
    let help = match (&foreign.lost, takeover) {
        (None, true) => return Ok(()),
        (None, false) => {
            format!("`vmio guard run --takeover` replaces it and puts it back when the guard is undone; or {remove}")
        }
        (Some(lost), _) => format!("it cannot be taken over, since {lost}; {remove}"),
    };
    Err(Error::Foreign { place: device.to_string(), what: foreign.shown(), help })
}

/// What is in force. The loop changes no queues and no flow classes, and something else many times a second: it takes
/// what is in leaves for what it should be, which is read for a policy, and where the kernel tells of another's change.
fn look(netlink: &mut Netlink, device: &Device, wanted: &Tree, cause: Cause) -> Result<Root> {
    if cause == Cause::Policy {
        return read(netlink, device);
    }
    Ok(match read_classes(netlink, device)? {
        Root::Ours(found) => Root::Ours(found.filled(wanted)),
        other => other,
    })
}

impl InForce {
    /// With what is wanted in those leaves that are there.
    pub(super) fn filled(self, wanted: &Tree) -> InForce {
        let there = |minor: u16| self.classes.contains_key(&minor);
        let queue = |(minor, leaf): (&u16, &WantedLeaf)| {
            let (kind, queue) = if wanted.flow_trees.contains_key(minor) {
                (flow_tree::KIND, None)
            } else {
                (leaf.queue.kind(), Some(leaf.queue))
            };
            (*minor, FoundQueue { kind: kind.to_owned(), handle: queue_handle(*minor), queue })
        };
        let queues = wanted.leaves.iter().filter(|(minor, _)| there(**minor)).map(queue).collect();
        let nested = wanted.flow_trees.iter().filter(|(minor, _)| there(**minor));
        let flow_trees = nested.map(|(minor, flows)| (*minor, Arc::clone(flows))).collect();
        InForce { queues, flow_trees, ..self }
    }
}

/// Whether what is wanted is what is in force now. Where a few classes were changed of many that had just been read,
/// these alone are read anew: a list has all queues of all interfaces.
fn verify(
    netlink: &mut Netlink,
    device: &Device,
    wanted: &Tree,
    before: Option<InForce>,
    steps: &[Step],
    cause: Cause,
) -> Result<()> {
    let wrong = |place: String, field: &str, wanted: String, found: String| {
        Err(Error::Mismatch { place, field: field.to_owned(), wanted, found })
    };
    // A first tree is read as a whole.
    let cause = if before.is_some() { cause } else { Cause::Policy };
    let touched: Option<BTreeSet<u16>> = steps.iter().map(Step::minor).collect();
    let now = match before.zip(touched).filter(|(_, touched)| touched.len() <= ONE_BY_ONE) {
        Some((before, touched)) => {
            let nested = |step: &Step| matches!(step, Step::SetFlows { .. }).then(|| step.minor()).flatten();
            let nested = steps.iter().filter_map(nested).collect();
            Root::Ours(reread(netlink, device, before, touched, &nested)?)
        }
        None => look(netlink, device, wanted, cause)?,
    };
    match now {
        Root::Ours(found) => match mismatch(wanted, &found.settled()) {
            None => Ok(()),
            Some((minor, field, wanted, found)) => wrong(place(device, minor), field, wanted, found),
        },
        Root::Kernels { kind } => wrong(device.to_string(), "qdisc", "htb 7a00:".to_owned(), kind),
        Root::Foreign(foreign) => wrong(device.to_string(), "qdisc", "htb 7a00:".to_owned(), foreign.shown()),
    }
}

/// A step as requests. `over`: another's qdisc is replaced.
fn changes(device: &Device, step: &Step, over: bool) -> Vec<Change> {
    let index = device.index;
    let htb = || Attributes::new().with_text(TCA_KIND, "htb");
    let at_root = tcmsg(index, HANDLE, AT_ROOT);
    let add = flag::CREATE | flag::EXCLUSIVE;
    let class = |minor: u16, class, flags| {
        let parent = if minor == ROOT_CLASS { HANDLE } else { classid(ROOT_CLASS) };
        let attributes = htb().with_nested(TCA_OPTIONS, encode::class(class));
        Request::new(RTM_NEWTCLASS, flags, &tcmsg(index, classid(minor), parent), attributes)
    };
    let request = match step {
        Step::RemoveRoot => Request::new(RTM_DELQDISC, 0, &at_root, Attributes::new()),
        Step::AddRoot { default } => {
            let attributes = htb().with_nested(TCA_OPTIONS, encode::qdisc(*default));
            let flags = if over { flag::CREATE | flag::REPLACE } else { add };
            Request::new(RTM_NEWQDISC, flags, &at_root, attributes)
        }
        // HTB has no change of its own; without options the size table alone is exchanged, for none.
        Step::RemoveSizes => Request::new(RTM_NEWQDISC, 0, &at_root, htb()),
        Step::AddClass { minor, class: settings } => class(*minor, settings, add),
        Step::SetClass { minor, class: settings } => class(*minor, settings, 0),
        Step::RemoveQueue { minor, handle } => {
            Request::new(RTM_DELQDISC, 0, &tcmsg(index, *handle, classid(*minor)), Attributes::new())
        }
        Step::SetQueue { minor, queue } => {
            let fixed = tcmsg(index, queue_handle(*minor), classid(*minor));
            Request::new(RTM_NEWQDISC, flag::CREATE | flag::REPLACE, &fixed, queue.attributes())
        }
        Step::SetFlows { minor, flows } => return flows.changes(device, *minor),
        Step::RemoveClass { minor } => {
            Request::new(RTM_DELTCLASS, 0, &tcmsg(index, classid(*minor), 0), Attributes::new())
        }
    };
    vec![Change { what: format!("{step} on {device}"), request }]
}

/// Another's qdisc instead of ours, at once.
fn restore(device: &Device, foreign: &Foreign) -> Change {
    let mut attributes = Attributes::new().with_text(TCA_KIND, &foreign.kind);
    if let Some(options) = &foreign.options {
        attributes = attributes.with(TCA_OPTIONS, options);
    }
    if let Some(sizes) = &foreign.sizes {
        attributes = attributes.with(TCA_STAB, sizes);
    }
    let fixed = tcmsg(device.index, foreign.handle, AT_ROOT);
    let request = Request::new(RTM_NEWQDISC, flag::CREATE | flag::REPLACE, &fixed, attributes);
    Change { what: format!("put {} back on {device}", foreign.shown()), request }
}
