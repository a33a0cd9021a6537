//! Clients of a guest's own. What another host serves a guest can reach by itself, over a card of its own: then its
//! hypervisor gives it no disk, and what it works on is a device that its own kernel makes.

use std::path::{Path, PathBuf};

use vmio_look::require::Requirement;
use vmio_model::cell::{Actor, Aio, Attachment, Cache};
use vmio_node::Node;

use super::Result;
use crate::disks::Storage;

/// How a guest reaches a target by itself.
pub struct OwnClient {
    /// Kernel modules that it loads, names as in `modules.dep`.
    pub modules: &'static [&'static str],
    /// Programs that run in it: its image carries them.
    pub programs: &'static [&'static str],
    /// What this machine must have.
    pub requirements: &'static [Requirement],
    /// Connects the guest with what serves the target, as the `nth` that it reaches so, from 0. Gives its device there.
    pub connect: fn(guest: &dyn Node, storage: &Storage, nth: usize) -> Result<PathBuf>,
    /// What it does before each cell, once the settings of its card are in force; `None`: nothing.
    pub renew: Option<Renew>,
}

/// Has a guest's client take note of how its card is set up; by its device, and the card.
pub type Renew = fn(guest: &dyn Node, device: &Path, card: &str) -> Result<()>;

/// How an actor's guest reaches its target by itself; `None` where it has it from its hypervisor, and for what is no guest.
pub fn of(actor: &Actor) -> Option<&'static OwnClient> {
    let by_itself = actor.attachment().is_none() && !actor.side.shares_kernel();
    super::find(actor.target()?)?.own_client().filter(|_| by_itself)
}

/// What the server of a target is asked for by a client of a guest's own: to work past its page cache.
pub fn asked() -> Attachment {
    Attachment::new("own-client", Cache::None, Aio::Threads)
}

/// What the target of an actor is asked for, by its hypervisor or by itself; `None` where no guest has it.
pub fn asked_by(actor: &Actor) -> Option<Attachment> {
    actor.attachment().cloned().or_else(|| of(actor).map(|_| asked()))
}
