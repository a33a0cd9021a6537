//! What puts programs in force on a machine. A plane states as data what it can hold, changes only what differs from
//! what is desired, reads back what it wrote, and takes off what it put on.
//!
//! Adding a plane: a file, or a folder, with a type that implements [`Plane`], and its line in [`ALL`].

use std::sync::Arc;

use vmio_model::control::InForce;
use vmio_model::policy::assign::Interface;
use vmio_model::policy::compile::Abilities;

use crate::desired::{Desired, Numbers, PoolKey, Seated};
use crate::keep::{KeepError, Keeper};

pub mod fake;
pub mod linux;
pub mod observe;

/// All planes, in the order in which they are shown.
pub const ALL: &[Entry] = &[linux::ENTRY, observe::ENTRY, fake::ENTRY];

/// The plane of that name.
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.abilities.plane == name)
}

/// A plane before it is opened.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// One line for help and docs.
    pub about: &'static str,
    /// What it can hold, and its name.
    pub abilities: Abilities,
    /// Whether it changes the host. Where it does not, guests' control groups are left alone, too.
    pub changes: bool,
    /// Opens it, in the network namespace of the thread; nothing is touched yet.
    pub open: fn(Options) -> Result<Box<dyn Plane>, PlaneError>,
}

/// How a plane is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// What others have put in its place is replaced, where it can be put back as it was.
    pub takeover: bool,
    /// Where it is written down what cannot be found by looking. With one that is gone with its process, what a plane puts
    /// in force may go with it, too.
    pub keeper: Keeper,
}

impl Default for Options {
    fn default() -> Options {
        Options { takeover: false, keeper: Keeper::memory() }
    }
}

/// Puts programs in force.
pub trait Plane {
    /// What it can hold.
    fn abilities(&self) -> Abilities;
    /// Makes what is in force what is desired; how many changes that took, 0 where it was so already.
    ///
    /// # Errors
    /// When a change fails, or what was written reads back otherwise.
    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError>;
    /// Whether somebody else may have changed what is in force since the last [`Plane::reconcile`], as far as that is to be had
    /// for next to nothing.
    fn disturbed(&mut self) -> bool {
        true
    }
    /// Whether nothing has passed through a pool since the last [`Plane::counts`], and nothing waits: it would give the same.
    fn still(&mut self, _pool: &PoolKey) -> bool {
        false
    }
    /// Sets what the loop found for a pool that is in force.
    ///
    /// # Errors
    /// When a change fails, or there is no such pool.
    fn adjust(&mut self, pool: &PoolKey, limits: &InForce) -> Result<(), PlaneError>;
    /// Counters of a pool's members, in their order.
    ///
    /// # Errors
    /// When they cannot be read, or there is no such pool.
    fn counts(&mut self, pool: &PoolKey) -> Result<Vec<Count>, PlaneError>;
    /// Throws away what waits at a member, given by its place in the pool's program; it counts as dropped. Nothing, where
    /// this plane has no queues.
    ///
    /// # Errors
    /// When a change fails, or there is no such member.
    fn purge(&mut self, _pool: &PoolKey, _member: usize) -> Result<(), PlaneError> {
        Ok(())
    }
    /// What came out of the stage of a pool and waits at its uplink, as of the last [`Plane::counts`]; `None` of a pool that
    /// has no stage, and where this plane makes none.
    fn behind(&mut self, _pool: &PoolKey) -> Option<Behind> {
        None
    }
    /// Bytes that have arrived at the uplink of a pool of what guests receive since it is there, whoever they were for, as they
    /// count on the wire; `None` of others, and where nobody counts them.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn arrived(&mut self, _pool: &PoolKey) -> Result<Option<u64>, PlaneError> {
        Ok(None)
    }
    /// The send buffer in force at the tap of an interface that is to be held, in bytes, or why there is none; `None` where
    /// this plane sets none.
    fn held(&mut self, _interface: &Interface) -> Option<Result<u32, Arc<NotHeld>>> {
        None
    }
    /// Of a member whose excess waits in a queue of this plane's: why one of its flows may take another's room there, in words that
    /// can follow others; `None` where it cannot.
    fn crowds(&self, _pool: &PoolKey, _seat: &Seated) -> Option<&'static str> {
        None
    }
    /// What went through the limit that a card of a pool has for a virtual function, or why that is not in force; `None`
    /// where this plane sets none in cards.
    fn carded(&mut self, _pool: &PoolKey, _function: u32) -> Option<Result<Count, Arc<NotHeld>>> {
        None
    }
    /// Whether something is in force that an earlier one has put there. It stays until the first [`Plane::reconcile`] has put
    /// what is desired beside it.
    ///
    /// # Errors
    /// When that cannot be found out.
    fn inherits(&mut self) -> Result<bool, PlaneError> {
        Ok(false)
    }
    /// Which numbers an earlier owner gave to interfaces, where what names them may still be there.
    fn numbers(&self) -> Numbers {
        Numbers::default()
    }
    /// What deserves a word about how it holds things, or what it could not know when it took them off.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
    /// It is about to go, and what is in force is to stay. Dropped without, it may stay as well.
    fn leave(&mut self) {}
    /// Takes off all that it or an earlier one put on.
    ///
    /// # Errors
    /// When something stays.
    fn undo(&mut self) -> Result<(), PlaneError>;
}

/// What went through a member's limit since it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Bytes that passed, as they count on the wire.
    pub passed_bytes: u64,
    /// Packets that were dropped at it.
    pub dropped_packets: u64,
    /// Bytes that wait now.
    pub waiting_bytes: u64,
    /// Bytes that came in at the member's own interface, as they count on the wire, wherever they went from there; `None`
    /// where nobody counts them.
    pub arrived_bytes: Option<u64>,
}

impl Count {
    /// Bytes that were offered since `before`: what passed and what came to wait. Where packets were dropped, how long they
    /// were nobody counts: then what came in at the interface, where that is known, else so many bytes for each. `None` where
    /// counters began anew.
    pub fn offered_since(&self, before: &Count, dropped_packet_bytes: u64) -> Option<u64> {
        let passed = self.passed_bytes.checked_sub(before.passed_bytes)?;
        let dropped = self.dropped_packets.checked_sub(before.dropped_packets)?;
        // What waited before and passed now was offered before.
        let queued = passed.saturating_add(self.waiting_bytes).saturating_sub(before.waiting_bytes);
        Some(match (dropped, self.arrived_bytes.zip(before.arrived_bytes)) {
            (0, _) => queued,
            (_, Some((now, before))) => now.checked_sub(before)?.max(queued),
            (dropped, None) => queued.saturating_add(dropped.saturating_mul(dropped_packet_bytes)),
        })
    }
}

/// What was in a stage's queues, at the uplink behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behind {
    /// Packets that were dropped there.
    pub dropped_packets: u64,
    /// Bytes that wait there now.
    pub waiting_bytes: u64,
}

/// What failed, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum PlaneError {
    #[error(transparent)]
    Linux(#[from] linux::Error),
    #[error(transparent)]
    Keep(#[from] KeepError),
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
    #[error("{0}: no such pool is in force")]
    NoPool(PoolKey),
    #[error("{pool}: it has no member {member}")]
    NoMember { pool: PoolKey, member: usize },
    /// A plane that holds nothing was asked to change a limit.
    #[error("{0}: nothing is in force, so there is nothing to adjust")]
    HoldsNothing(PoolKey),
    #[error("cannot start the thread that holds taps: {0}")]
    NoThread(std::io::Error),
    #[error("the thread that holds taps has ended")]
    ThreadEnded,
    /// Taps that could not be put back.
    #[error("{}", lines(.0))]
    Stays(Vec<NotHeld>),
    /// The fake plane, as a test wants it.
    #[error("{0}: the fake plane was told to fail")]
    ToldToFail(String),
}

fn lines(all: &[NotHeld]) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Why one interface's tap, or one function of a card, is not as it is to be: nobody else's trouble.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NotHeld {
    #[error("its tap's send buffer is about to be set")]
    NotYet,
    #[error("no process of its guest that is known holds its tap, so its send buffer cannot be set")]
    NoHolder,
    /// The kernel sets no queue that is off.
    #[error(
        "tap {tap}: {queues} of its queues keep a send buffer of {bytes} bytes, since its guest has switched them off; \
         undo again when they are on, or when the guest has ended"
    )]
    SwitchedOff { tap: String, queues: usize, bytes: u32 },
    #[error("{card} has no function {function} any more")]
    NoFunction { card: linux::Device, function: u32 },
    #[error("the driver of {0} sets no limits for its virtual functions")]
    NoLimits(linux::Device),
    #[error(transparent)]
    Linux(#[from] linux::Error),
    #[error(transparent)]
    Keep(#[from] KeepError),
}

impl<P: Plane + ?Sized> Plane for Box<P> {
    fn abilities(&self) -> Abilities {
        (**self).abilities()
    }
    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        (**self).reconcile(desired)
    }
    fn disturbed(&mut self) -> bool {
        (**self).disturbed()
    }
    fn still(&mut self, pool: &PoolKey) -> bool {
        (**self).still(pool)
    }
    fn adjust(&mut self, pool: &PoolKey, limits: &InForce) -> Result<(), PlaneError> {
        (**self).adjust(pool, limits)
    }
    fn counts(&mut self, pool: &PoolKey) -> Result<Vec<Count>, PlaneError> {
        (**self).counts(pool)
    }
    fn purge(&mut self, pool: &PoolKey, member: usize) -> Result<(), PlaneError> {
        (**self).purge(pool, member)
    }
    fn behind(&mut self, pool: &PoolKey) -> Option<Behind> {
        (**self).behind(pool)
    }
    fn arrived(&mut self, pool: &PoolKey) -> Result<Option<u64>, PlaneError> {
        (**self).arrived(pool)
    }
    fn held(&mut self, interface: &Interface) -> Option<Result<u32, Arc<NotHeld>>> {
        (**self).held(interface)
    }
    fn crowds(&self, pool: &PoolKey, seat: &Seated) -> Option<&'static str> {
        (**self).crowds(pool, seat)
    }
    fn carded(&mut self, pool: &PoolKey, function: u32) -> Option<Result<Count, Arc<NotHeld>>> {
        (**self).carded(pool, function)
    }
    fn inherits(&mut self) -> Result<bool, PlaneError> {
        (**self).inherits()
    }
    fn numbers(&self) -> Numbers {
        (**self).numbers()
    }
    fn notes(&self) -> Vec<String> {
        (**self).notes()
    }
    fn leave(&mut self) {
        (**self).leave();
    }
    fn undo(&mut self) -> Result<(), PlaneError> {
        (**self).undo()
    }
}

#[cfg(test)]
mod tests;
