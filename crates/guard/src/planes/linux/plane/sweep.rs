//! Takes over from an earlier guard, and removes what it left: the kernel shows which objects in the namespace are a
//! guard's, and the ledger has the rest.

use std::collections::BTreeSet;

use super::super::classifier::{self, Bond, Classifier, PinDirectory};
use super::super::htb::{self, Cause, Placed, Tree, Undone};
use super::super::undo_log::PlaneLog;
use super::super::{Device, Error, ifb, links};
use super::Linux;
use vmio_model::policy::program::Hierarchy;

/// The traces of earlier guards, and where links are pinned.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) log: PlaneLog,
    /// Where links are pinned, if they are.
    pin_directory: Option<PinDirectory>,
    /// Whether limits outlive the process.
    outlives: bool,
    /// Whether limits were found that the ledger lacks; None before it was checked.
    lost: Option<bool>,
    /// Whether an earlier guard's leftovers were removed.
    settled: bool,
    /// Why links are not pinned.
    pub(super) held_by: Option<String>,
    /// Notes on what could not be determined.
    pub(super) notes: Vec<String>,
}

impl Past {
    /// Changes nothing. Without a ledger on disk nothing is pinned.
    pub(super) fn look(log: PlaneLog, outlives: bool) -> Past {
        let mut held_by = None;
        let pin_directory = match PinDirectory::find(log.namespace()) {
            Ok(pin_directory) => Some(pin_directory),
            Err(why) => {
                if outlives {
                    held_by = Some(format!(
                        "eBPF programs of others at the same interfaces, if there are any, run before the guard's, because \
                         {why}: mount bpffs (mount -t bpf bpf /sys/fs/bpf) and restart the guard"
                    ));
                }
                None
            }
        };
        Past { log, pin_directory, outlives, lost: None, settled: false, held_by, notes: Vec::new() }
    }

    /// How new programs are attached.
    pub(super) fn bond(&self) -> Result<Bond, Error> {
        match &self.pin_directory {
            _ if !self.outlives => Ok(Bond::Process),
            Some(pin_directory) => Ok(Bond::Pinned(pin_directory.begin()?)),
            None => Ok(Bond::Clsact),
        }
    }

    /// The classifier; loads it at the first call.
    pub(super) fn loaded<'c>(&self, classifier: &'c mut Option<Classifier>) -> Result<&'c mut Classifier, Error> {
        match classifier {
            Some(classifier) => Ok(classifier),
            none => Ok(none.insert(Classifier::bound(self.bond()?, self.log.clone())?)),
        }
    }
}

impl Linux {
    /// Whether limits of an earlier guard are in force.
    pub(super) fn finds(&mut self) -> Result<bool, Error> {
        if self.past.log.has_begun() || !htb::placed(&mut self.netlink, Placed::Ours)?.is_empty() {
            return Ok(true);
        }
        if self.past.pin_directory.as_ref().map(PinDirectory::is_used).transpose()? == Some(true) {
            return Ok(true);
        }
        Ok(links::all(&mut self.netlink)?.iter().any(ifb::is_ours) || classifier::has_filters(&mut self.netlink)?)
    }

    /// Checks the ledger once, and records that limits are in force if there will be `changes`.
    pub(super) fn begin_past(&mut self, changes: bool) -> Result<(), Error> {
        if self.past.lost.is_none() {
            let lost = !self.past.log.has_begun() && self.finds()?;
            self.past.lost = Some(lost);
            if lost {
                self.past.notes.push(
                    "the ledger has no record of what an earlier vmio installed here: whether queues or clsact qdiscs \
                     of others existed before is unknown"
                        .to_owned(),
                );
            }
            if let (Some(pins), None) = (self.past.log.pins(), &self.past.pin_directory) {
                self.past.notes.push(format!(
                    "links were pinned below {pins}, where bpffs is not mounted: where it was unmounted they are off, \
                     else they stay until vmio sees it again"
                ));
            }
        }
        if changes {
            let pins = self.past.pin_directory.as_ref().filter(|_| self.past.outlives).map(PinDirectory::path);
            self.past.log.begin(pins)?;
        }
        Ok(())
    }

    /// Removes, once, what earlier guards left and this one does not use; returns the number of objects.
    pub(super) fn settle(&mut self) -> Result<usize, Error> {
        if std::mem::replace(&mut self.past.settled, true) {
            return Ok(0);
        }
        let done = self.sweep();
        self.past.settled = done.is_ok();
        done
    }

    /// Removes programs first, then queues, then IFBs. Tries all, and returns the first error.
    pub(super) fn sweep(&mut self) -> Result<usize, Error> {
        let mut failed = None;
        let mut gone = 0;
        let log = self.past.log.clone();
        match classifier::sweep(&mut self.netlink, self.past.pin_directory.as_ref(), &log, self.classifier.as_ref()) {
            Ok(swept) => {
                gone += swept.gone;
                self.past.notes.extend(swept.unknown.iter().map(|device| {
                    format!(
                        "{device}: a clsact qdisc without filters stays, since it is unknown whether vmio created it; \
                         if nothing else needs it: tc qdisc del dev {device} clsact"
                    )
                }));
                self.past.notes.extend(swept.shared.iter().map(|device| {
                    format!("{device}: the clsact qdisc that vmio made stays, since others have filters in it")
                }));
            }
            Err(e) => failed = Some(e),
        }
        let kept = self.kept();
        let mut at: Vec<u32> = match htb::placed(&mut self.netlink, Placed::Ours) {
            Ok(all) => all.into_iter().collect(),
            Err(e) => return Err(failed.unwrap_or(e)),
        };
        at.extend(log.replaced_at());
        at.retain(|index| !kept.contains(index));
        at.sort_unstable();
        at.dedup();
        for index in at {
            match self.remove_queues(index) {
                Ok(done) => gone += usize::from(done),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        match links::all(&mut self.netlink) {
            Ok(all) => {
                for link in all.iter().filter(|link| ifb::is_ours(link) && !kept.contains(&link.device.index)) {
                    match ifb::remove(&mut self.netlink, &link.device.name) {
                        Ok(done) => gone += usize::from(done),
                        Err(e) => failed = failed.or(Some(e)),
                    }
                }
            }
            Err(e) => failed = failed.or(Some(e)),
        }
        failed.map_or(Ok(gone), Err)
    }

    /// Removes our queues from an interface, by its index, and restores the qdisc that was replaced. The interface may
    /// be gone.
    pub(super) fn remove_queues(&mut self, index: u32) -> Result<bool, Error> {
        let log = &self.past.log;
        let Some(link) = links::by_index(&mut self.netlink, index)? else {
            log.strike_replaced(index)?;
            return Ok(false);
        };
        let device = link.device;
        // Another interface may have the index by now; it must not get the replaced qdisc.
        let ours = matches!(htb::read_leaves(&mut self.netlink, &device)?, htb::Root::Ours(_));
        let foreign = log.replaced(index).filter(|(was, _)| ours || *was == device).map(|(_, foreign)| foreign);
        match htb::undo(&mut self.netlink, &device, foreign.as_ref())? {
            Undone::Left(other) if foreign.as_ref().is_some_and(|foreign| foreign.shown() != other) => {
                self.past.notes.push(format!("{device}: {other} has been installed meanwhile; left as is"));
            }
            _ => {}
        }
        log.strike_replaced(index)?;
        Ok(ours)
    }

    /// Indexes of interfaces with queues of this plane, or with a redirect to them.
    fn kept(&self) -> BTreeSet<u32> {
        let redirects = |installed: &super::InstalledPool| -> Vec<u32> {
            installed.tenants.values().filter_map(|t| t.redirect).collect()
        };
        self.pools
            .values()
            .flat_map(|installed| {
                redirects(installed)
                    .into_iter()
                    .chain([installed.at.index])
                    .chain(installed.stage.as_ref().map(|_| installed.uplink.index))
                    .chain(installed.local.caps.as_ref().map(|caps| caps.ifb.index))
            })
            .collect()
    }
}

impl Linux {
    /// Makes an IFB, or finds it, and puts a hierarchy in force there for a policy. Returns it with the steps, and 1 if
    /// it was made or set anew. After a failure it is removed, unless the pool `had` it.
    pub(super) fn put_on_ifb(
        &mut self,
        name: &str,
        what: &str,
        hierarchy: &Hierarchy,
        numbers: &htb::Numbers,
        takeover: bool,
        had: bool,
    ) -> Result<(Device, Vec<htb::Step>, usize), Error> {
        let sent = self.netlink.changes();
        let ifb = ifb::make(&mut self.netlink, name, what, ifb::QUEUE_PACKETS)?;
        let made = usize::from(self.netlink.changes() != sent);
        let done = self.put(&ifb, hierarchy, numbers, Cause::Policy, takeover);
        if done.is_err() && !had {
            // The error that led here says more than one that follows from it.
            let _ = ifb::remove(&mut self.netlink, name);
        }
        done.map(|applied| (ifb, applied.steps, made))
    }

    /// Puts a hierarchy in force at an interface, for a cause. A foreign qdisc is recorded before it is replaced, and
    /// struck out if the change failed and it is still or again there.
    pub(super) fn put(
        &mut self,
        at: &Device,
        hierarchy: &Hierarchy,
        numbers: &htb::Numbers,
        cause: Cause,
        takeover: bool,
    ) -> Result<htb::Applied, Error> {
        let (netlink, log) = (&mut self.netlink, &self.past.log);
        let tree = Tree::wanted_with(self.built.entry(at.index).or_default(), hierarchy, numbers)?;
        let done = htb::put_over(netlink, at, &tree, cause, takeover, |foreign| log.begin_replacing(at, foreign));
        if done.is_err()
            && let Some((_, was)) = log.replaced(at.index)
            && matches!(htb::read_leaves(netlink, at), Ok(htb::Root::Foreign(found)) if found == was)
        {
            log.strike_replaced(at.index)?;
        }
        done
    }

    /// Forgets what was built for interfaces that have no queues of this plane any more.
    pub(super) fn forget_built(&mut self) {
        let kept = self.kept();
        self.built.retain(|index, _| kept.contains(index));
    }
}
