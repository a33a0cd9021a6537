//! A cell: what is measured at once. It is one or more **actors**, each a **side** (a guest of some
//! shape, or the host itself) that runs a workload on a **subject** (a disk, a path of a network, the
//! machine itself), under **settings**. The names in it are entries of the extension points
//! in `vmio-rig`; this crate does not know what the entries do.

mod actor;
mod arch;
mod baseline;
mod disk;
mod key;
mod kind;
mod side;
mod state;
mod subject;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rate::BitRate;

pub use actor::{Actor, Millis, NEIGHBOUR};
pub use arch::Arch;
pub use baseline::{Baseline, Like};
pub use disk::{Aio, Attachment, Cache, DetectZeroes, Options};
pub use kind::{Kind, Vmm};
pub use side::{Shape, Side};
pub use state::State;
pub use subject::{Nic, Subject};

/// Settings around a cell, by the names of the entries of `vmio-rig`'s `settings`, with values as they write them:
/// `read-ahead` -> `4096k`.
pub type Settings = BTreeMap<String, String>;

/// One cell of a study.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The actor that the cell is named and judged by.
    #[serde(flatten)]
    pub lead: Actor,
    /// Actors that work at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Actor>,
    /// Its settings; anything else stays as found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: Settings,
}

/// A cell of one actor on a disk, as most rules use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnDisk<'a> {
    /// The side.
    pub side: &'a Side,
    /// The target.
    pub target: &'a str,
    /// How the guest sees it; `None` natively.
    pub attachment: Option<&'a Attachment>,
    /// The workload.
    pub workload: &'a str,
}

impl Cell {
    /// A cell of one actor.
    pub fn of(side: Side, subject: Subject, workload: impl Into<String>) -> Self {
        let lead = Actor { side, subject, workload: workload.into(), start: Millis::ZERO, duration: None };
        Self { lead, beside: Vec::new(), settings: Settings::new() }
    }

    /// A cell of one actor on a disk: a guest of this kind with this attachment, or native without one.
    pub fn on(kind: &str, target: impl Into<String>, attachment: Option<Attachment>, workload: &str) -> Self {
        Self::of(Side::of(kind), Subject::Disk { target: target.into(), attachment, state: None }, workload)
    }

    /// Its actors, the leading one first.
    pub fn actors(&self) -> impl Iterator<Item = &Actor> {
        std::iter::once(&self.lead).chain(&self.beside)
    }

    /// What its setting `rate` lets over the link to another host, each way; `None` without one.
    pub fn link_rate(&self) -> Option<BitRate> {
        let mbit: u64 = self.settings.get("rate")?.strip_suffix("mbit")?.parse().ok()?;
        mbit.checked_mul(1_000_000).map(BitRate::new)
    }

    /// What the hypervisor of the guests in these cells is called in messages: that of the first. Where there are none,
    /// of the guests that vmio would make.
    pub fn hypervisor<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> &'a str {
        let named = cells.into_iter().flat_map(Cell::actors).find_map(|actor| actor.side.hypervisor());
        named.unwrap_or(Kind::QEMU.hypervisor)
    }

    /// Its actors and their neighbours: all that need a machine and a place in a network.
    pub fn with_neighbours(&self) -> impl Iterator<Item = Actor> {
        self.actors().flat_map(|actor| [actor.clone()].into_iter().chain(actor.neighbour()))
    }

    /// Its actors, mutable.
    pub fn actors_mut(&mut self) -> impl Iterator<Item = &mut Actor> {
        std::iter::once(&mut self.lead).chain(&mut self.beside)
    }

    /// The cell as one actor on a disk; `None` for any other, and where a page cache serves it.
    pub fn disk(&self) -> Option<OnDisk<'_>> {
        let Actor { side, subject: Subject::Disk { target, attachment, .. }, workload, .. } = &self.lead else {
            return None;
        };
        let of_a_disk = self.is_alone() && !self.is_warm();
        of_a_disk.then_some(OnDisk { side, target, attachment: attachment.as_ref(), workload })
    }

    /// The leading actor's target; `None` where it works on no disk.
    pub fn target(&self) -> Option<&str> {
        self.lead.target()
    }

    /// How the leading actor's guest sees its disk; `None` without a disk, and natively.
    pub fn attachment(&self) -> Option<&Attachment> {
        self.lead.attachment()
    }

    /// The same, mutable.
    #[cfg(test)]
    pub(crate) fn attachment_mut(&mut self) -> Option<&mut Attachment> {
        match &mut self.lead.subject {
            Subject::Disk { attachment, .. } => attachment.as_mut(),
            _ => None,
        }
    }

    /// The leading actor's workload.
    pub fn workload(&self) -> &str {
        &self.lead.workload
    }

    /// The same cell with another workload of the leading actor.
    #[must_use]
    pub fn running(mut self, workload: impl Into<String>) -> Self {
        self.lead.workload = workload.into();
        self
    }

    /// Whether it has no guest.
    pub fn is_native(&self) -> bool {
        self.actors().all(|a| a.side.is_native())
    }

    /// Whether it has one actor only.
    pub fn is_alone(&self) -> bool {
        self.beside.is_empty()
    }

    /// Whether a page cache is to serve any of its actors.
    pub fn is_warm(&self) -> bool {
        self.actors().any(Actor::is_warm)
    }

    /// The targets that it works on.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.actors().filter_map(Actor::target)
    }

    /// The same cell on the host itself: the default baseline.
    pub fn natively(&self) -> Self {
        let mut cell = self.clone();
        cell.actors_mut().for_each(Actor::go_native);
        cell
    }
}

#[cfg(test)]
mod tests;
