//! Takes over from an earlier owner, and takes off what it has left: what is ours in the namespace is found by looking, and
//! what cannot be is in the ledger.

use std::collections::BTreeSet;

use super::super::classifier::{self, Bond, Classifier, Shelf};
use super::super::htb::{self, Placed, Tree, Undone};
use super::super::undo_log::PlaneLog;
use super::super::{Device, Error, Netlink, ifb, links};
use super::Linux;
use vmio_model::policy::program::Hierarchy;

/// What the plane knows of earlier owners, and how its own programs are held.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) log: PlaneLog,
    /// Where links are pinned; `None` where they are not.
    shelf: Option<Shelf>,
    /// Whether what is put in force is to outlive the process.
    outlives: bool,
    /// Whether the ledger was asked what it has, and something was found that it has nothing of.
    lost: Option<bool>,
    /// Whether what earlier owners have left is off.
    settled: bool,
    /// Why programs are not held in the better way.
    pub(super) held_by: Option<String>,
    /// What could not be known.
    pub(super) notes: Vec<String>,
}

impl Past {
    /// Nothing is touched. In a ledger that goes with its process nothing is pinned.
    pub(super) fn look(log: PlaneLog, outlives: bool) -> Past {
        let mut held_by = None;
        let shelf = match Shelf::find(log.namespace()) {
            Ok(shelf) => Some(shelf),
            Err(why) => {
                if outlives {
                    held_by = Some(format!(
                        "programs are attached as filters of clsact, behind others' of TCX: {why}, where their links \
                         could be pinned to outlive vmio; mount one (mount -t bpf bpf /sys/fs/bpf) and start anew"
                    ));
                }
                None
            }
        };
        Past { log, shelf, outlives, lost: None, settled: false, held_by, notes: Vec::new() }
    }

    /// How programs are to be held that are attached now.
    pub(super) fn bond(&self) -> Result<Bond, Error> {
        match &self.shelf {
            _ if !self.outlives => Ok(Bond::Process),
            Some(shelf) => Ok(Bond::Pinned(shelf.begin()?)),
            None => Ok(Bond::Clsact),
        }
    }

    /// The classifier, which is loaded when it is first needed.
    pub(super) fn loaded<'c>(&self, classifier: &'c mut Option<Classifier>) -> Result<&'c mut Classifier, Error> {
        match classifier {
            Some(classifier) => Ok(classifier),
            none => Ok(none.insert(Classifier::bound(self.bond()?, self.log.clone())?)),
        }
    }
}

impl Linux {
    /// Whether something of an earlier owner is in force.
    pub(super) fn finds(&mut self) -> Result<bool, Error> {
        if self.past.log.has_begun() || !htb::placed(&mut self.netlink, Placed::Ours)?.is_empty() {
            return Ok(true);
        }
        if self.past.shelf.as_ref().map(Shelf::is_used).transpose()? == Some(true) {
            return Ok(true);
        }
        Ok(links::all(&mut self.netlink)?.iter().any(ifb::is_ours))
    }

    /// Before the first change: that there are changes is written down.
    pub(super) fn begin_past(&mut self, changes: bool) -> Result<(), Error> {
        if self.past.lost.is_none() {
            let lost = !self.past.log.has_begun() && self.finds()?;
            self.past.lost = Some(lost);
            if lost {
                self.past.notes.push(
                    "the ledger has nothing of what an earlier vmio has put in force here: whether others' queues or clsact \
                     qdiscs stood there before is not known"
                        .to_owned(),
                );
            }
            if let (Some(pins), None) = (self.past.log.pins(), &self.past.shelf) {
                self.past.notes.push(format!(
                    "links were pinned below {pins}, where no bpffs is to be found: where it was unmounted they are off, \
                     else they stay until vmio sees it again"
                ));
            }
        }
        if changes {
            let pins = self.past.shelf.as_ref().filter(|_| self.past.outlives).map(Shelf::path);
            self.past.log.begin(pins)?;
        }
        Ok(())
    }

    /// Takes off what earlier owners have left and is not this one's now; how much that was.
    pub(super) fn settle(&mut self) -> Result<usize, Error> {
        if std::mem::replace(&mut self.past.settled, true) {
            return Ok(0);
        }
        let done = self.sweep();
        self.past.settled = done.is_ok();
        done
    }

    /// Programs first, then queues, then IFBs with what waits in them. The first error is given when all was tried.
    pub(super) fn sweep(&mut self) -> Result<usize, Error> {
        let mut failed = None;
        let mut gone = 0;
        let log = self.past.log.clone();
        match classifier::sweep(&mut self.netlink, self.past.shelf.as_ref(), &log, self.classifier.as_ref()) {
            Ok(swept) => {
                gone += swept.gone;
                self.past.notes.extend(swept.unknown.iter().map(|device| {
                    format!(
                        "{device}: a clsact qdisc without filters stays, since it is not known whether vmio made it; \
                         where nothing else needs it: tc qdisc del dev {device} clsact"
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
            match self.take_off(index) {
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

    /// Takes our queues off an interface, whatever it is called now, and puts back what had to go for them. One that is gone
    /// has taken them with it.
    pub(super) fn take_off(&mut self, index: u32) -> Result<bool, Error> {
        let log = &self.past.log;
        let Some(link) = links::by_index(&mut self.netlink, index)? else {
            log.is_back(index)?;
            return Ok(false);
        };
        let device = link.device;
        // Renamed, it has ours; another under its index has not, and gets nothing that was never there.
        let ours = matches!(htb::read(&mut self.netlink, &device)?, htb::Root::Ours(_));
        let foreign = log.replaced(index).filter(|(was, _)| ours || *was == device).map(|(_, foreign)| foreign);
        match htb::undo(&mut self.netlink, &device, foreign.as_ref())? {
            Undone::Left(other) if foreign.as_ref().is_some_and(|foreign| foreign.shown() != other) => {
                self.past.notes.push(format!("{device}: {other} is there by now, and was left alone"));
            }
            _ => {}
        }
        log.is_back(index)?;
        Ok(ours)
    }

    /// Interfaces that have something of this plane's now: its queues, or packets led through them.
    fn kept(&self) -> BTreeSet<u32> {
        let led = |installed: &super::InstalledPool| -> Vec<u32> {
            installed.tenants.values().filter_map(|t| t.redirect).collect()
        };
        self.pools
            .values()
            .flat_map(|installed| {
                led(installed)
                    .into_iter()
                    .chain([installed.at.index])
                    .chain(installed.stage.as_ref().map(|_| installed.uplink.index))
            })
            .collect()
    }
}

/// Puts a program in force there. Another's qdisc that has to go is written down before, and forgotten where it is back or was
/// never gone.
pub(super) fn put(
    netlink: &mut Netlink,
    log: &PlaneLog,
    at: &Device,
    hierarchy: &Hierarchy,
    numbers: &htb::Numbers,
    takeover: bool,
) -> Result<htb::Applied, Error> {
    let tree = Tree::wanted(hierarchy, numbers)?;
    let done = htb::put_over(netlink, at, &tree, takeover, |foreign| log.begin_replacing(at, foreign));
    if done.is_err() && log.replaced(at.index).is_some() && matches!(htb::read(netlink, at), Ok(htb::Root::Foreign(_)))
    {
        log.is_back(at.index)?;
    }
    done
}
