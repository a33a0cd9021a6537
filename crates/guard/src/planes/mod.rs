//! Planes enforce policies' programs on a host. A plane states as data what it can enforce, changes only what differs
//! from the desired state, reads back what it wrote, and removes what it added.
//!
//! Adding a plane: a file, or a folder, with a type that implements [`Plane`], and its line in [`ALL`].

use std::collections::BTreeMap;
use std::sync::Arc;

use vmio_model::control::AppliedLimits;
use vmio_model::policy::Abilities;

use crate::desired::{Desired, Numbers, PoolKey};
use crate::undo_log::{UndoLog, UndoLogError};

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
    /// Whether another's qdisc in its place is replaced, where it can be put back as it was.
    pub takeover: bool,
    /// Undo log for what cannot be found out by looking. Where the log ends with its process, what a plane puts in
    /// force may end with it, too.
    pub log: UndoLog,
}

impl Default for Options {
    fn default() -> Options {
        Options { takeover: false, log: UndoLog::memory() }
    }
}

/// Puts programs in force: four verbs. None has a default, so that who wraps a plane passes on all that it says.
pub trait Plane {
    /// What it can hold.
    fn abilities(&self) -> Abilities;
    /// Makes what is in force what is desired; how many changes that took, 0 where it was so already.
    ///
    /// # Errors
    /// When a change fails, or what was written reads back otherwise.
    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError>;
    /// Sets something of a pool that is in force.
    ///
    /// # Errors
    /// When a change fails, or there is no such pool or member.
    fn set(&mut self, pool: &PoolKey, setting: Setting<'_>) -> Result<(), PlaneError>;
    /// Reads what is asked for, and no more. It changes nothing that is in force.
    ///
    /// # Errors
    /// When it cannot be read, or there is no such pool.
    fn observe(&mut self, scope: Scope<'_>) -> Result<Observation, PlaneError>;
    /// Takes off all that it or an earlier one put on. Dropped without, what is in force may stay.
    ///
    /// # Errors
    /// When something stays.
    fn undo(&mut self) -> Result<(), PlaneError>;
}

/// What is set of a pool, between two times that it is reconciled.
#[derive(Debug, Clone, Copy)]
pub enum Setting<'a> {
    /// Limits, as the loop found them.
    Limits(&'a AppliedLimits),
    /// Nothing waits at a member any more, given by its place in the pool's program: what did is thrown away, and counts as
    /// dropped. Nothing, where a plane has no queues.
    Emptied(usize),
}

/// What is read of a plane.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// What an earlier one has left, which takes a look at all that is there.
    Earlier,
    /// The plane as a whole, for next to nothing.
    Plane,
    /// Whether others may have changed something, some times a second: what the kernel does not tell is looked at.
    Disturbed,
    /// What the members of a pool have counted: the loop's look, each period.
    Counts(&'a PoolKey),
    /// As [`Scope::Counts`], and all else that is known of the pool.
    Pool(&'a PoolKey),
}

/// What was read of a plane. What its [`Scope`] has not asked for, and what a plane cannot tell, is as in the default: that
/// somebody may have changed something, and that something may have passed.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// [`Scope::Earlier`]: something is in force that an earlier one has put there. It stays until the first
    /// [`Plane::reconcile`] has put what is desired beside it.
    pub inherits: bool,
    /// [`Scope::Earlier`]: which numbers an earlier owner gave to interfaces, where what names them may still be there.
    pub numbers: Numbers,
    /// [`Scope::Disturbed`]: nobody else can have changed what is in force since it was reconciled.
    pub undisturbed: bool,
    /// [`Scope::Plane`]: what deserves a word about how it holds things, or what it could not know when it took them off.
    pub notes: Vec<String>,
    /// [`Scope::Counts`]: nothing has passed through the pool since it was counted last, and nothing waits: it is the same.
    pub still: bool,
    /// [`Scope::Counts`]: counters of the members, in their order.
    pub counts: Vec<Count>,
    /// [`Scope::Counts`]: what came out of the stage of the pool and waits at its uplink; `None` of one that has no stage, and
    /// where this plane makes none.
    pub backlog: Option<StageBacklog>,
    /// [`Scope::Pool`]: by the index of its interface, where a member's excess waits; nothing where this plane has no
    /// queues.
    pub queues: BTreeMap<u32, MemberQueue>,
    /// [`Scope::Pool`]: bytes that have arrived at the uplink of a pool of what guests receive since it is there, whoever they
    /// were for, as they count on the wire; `None` of others, and where nobody counts them.
    pub arrived_bytes: Option<u64>,
    /// [`Scope::Pool`]: by virtual function, what went through the limit that a card has for it, or why that is not in force;
    /// nothing where this plane sets none in cards.
    pub cards: BTreeMap<u32, Result<Count, Arc<NotHeld>>>,
}

/// Where the excess of a member waits.
#[derive(Debug, Clone)]
pub struct MemberQueue {
    /// Of one whose tap is to be held: the send buffer in force there, in bytes, or why there is none.
    pub held: Option<Result<u32, Arc<NotHeld>>>,
    /// Of one whose excess waits in a queue of this plane's: why one of its flows may take another's room there, in words that
    /// can follow others; `None` where it cannot.
    pub crowds: Option<&'static str>,
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

/// Packets of a stage at the uplink behind it: dropped and waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageBacklog {
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
    UndoLog(#[from] UndoLogError),
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
    UndoLog(#[from] UndoLogError),
}

impl<P: Plane + ?Sized> Plane for Box<P> {
    fn abilities(&self) -> Abilities {
        (**self).abilities()
    }
    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        (**self).reconcile(desired)
    }
    fn set(&mut self, pool: &PoolKey, setting: Setting<'_>) -> Result<(), PlaneError> {
        (**self).set(pool, setting)
    }
    fn observe(&mut self, scope: Scope<'_>) -> Result<Observation, PlaneError> {
        (**self).observe(scope)
    }
    fn undo(&mut self) -> Result<(), PlaneError> {
        (**self).undo()
    }
}

#[cfg(test)]
mod tests;
