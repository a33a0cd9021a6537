//! Planes enforce policies' programs on a host. A plane states as data what it can enforce, changes only what differs
//! from the desired state, reads back what it wrote, and removes what it added.
//!
//! Adding a plane: a file, or a folder, with a type that implements [`Plane`], and its line in [`ALL`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use vmio_model::control::AppliedLimits;
use vmio_model::policy::Abilities;
use vmio_model::rate::BitRate;

use crate::desired::{Desired, Numbers, PoolKey};
use crate::undo_log::{UndoLog, UndoLogError};

mod delay;
pub mod fake;
pub mod linux;
pub mod observe;

pub use delay::DelayCount;

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
    /// Its name and abilities.
    pub abilities: Abilities,
    /// Whether it changes the host; where it does not, guests' control groups are left alone as well.
    pub changes: bool,
    /// Opens it, in the network namespace of the thread. Changes nothing.
    pub open: fn(Options) -> Result<Box<dyn Plane>, PlaneError>,
}

/// How a plane is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether a foreign qdisc is replaced, if it can be restored.
    pub takeover: bool,
    /// Undo log for what the kernel does not show. Where the log ends with its process, limits may end with it.
    pub log: UndoLog,
}

impl Default for Options {
    fn default() -> Options {
        Options { takeover: false, log: UndoLog::memory() }
    }
}

/// Enforces programs. No method has a default, so that a wrapper has to forward all of them.
pub trait Plane {
    /// What it can enforce.
    fn abilities(&self) -> Abilities;
    /// Puts the desired state in force; returns the number of changes.
    ///
    /// # Errors
    /// When a change fails, or a value reads back differently.
    fn reconcile(&mut self, desired: &Desired) -> Result<usize, PlaneError>;
    /// Changes a setting of a pool in force.
    ///
    /// # Errors
    /// When a change fails, or there is no such pool or member.
    fn set(&mut self, pool: &PoolKey, setting: Setting<'_>) -> Result<(), PlaneError>;
    /// Reads the scope, and no more. Changes nothing in force.
    ///
    /// # Errors
    /// When it cannot be read, or there is no such pool.
    fn observe(&mut self, scope: Scope<'_>) -> Result<Observation, PlaneError>;
    /// Removes all limits, also an earlier guard's. Dropping the plane without this may leave limits in force.
    ///
    /// # Errors
    /// When something remains.
    fn undo(&mut self) -> Result<(), PlaneError>;
}

/// A change of a pool between two reconciliations.
#[derive(Debug, Clone, Copy)]
pub enum Setting<'a> {
    /// The loop's limits.
    Limits(&'a AppliedLimits),
    /// Drops what waits in the queue of a member, given by its index in the pool's program. Does nothing where a plane
    /// has no queues.
    Emptied(usize),
}

/// What [`Plane::observe`] reads.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// What an earlier guard left; reads everything.
    Earlier,
    /// The plane as a whole; cheap.
    Plane,
    /// Whether something may have been changed from outside; called some times a second.
    Disturbed,
    /// Counters of a pool's members; called each period of the loop.
    Counts(&'a PoolKey),
    /// As [`Scope::Counts`], and the rest of the pool's state.
    Pool(&'a PoolKey),
}

/// State that was read. What the [`Scope`] does not include, or the plane cannot tell, has its default: something may
/// have been changed from outside, and packets may have passed.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// [`Scope::Earlier`]: limits of an earlier guard are in force. They stay until the first [`Plane::reconcile`] has
    /// put the desired state beside them.
    pub inherits: bool,
    /// [`Scope::Earlier`]: numbers that an earlier guard gave to interfaces.
    pub numbers: Numbers,
    /// [`Scope::Disturbed`]: nothing was changed from outside since the last reconciliation.
    pub undisturbed: bool,
    /// [`Scope::Plane`]: notes on how limits are enforced, and on what could not be determined while removing them.
    pub notes: Vec<String>,
    /// [`Scope::Counts`]: the counters are the same as last time, nothing waits, and excess waits where it did.
    pub still: bool,
    /// [`Scope::Counts`]: counters of the members, in their order.
    pub counts: Arc<[Count]>,
    /// [`Scope::Counts`]: the stage's backlog at the uplink; `None` of a pool without one.
    pub backlog: Option<StageBacklog>,
    /// [`Scope::Counts`]: how often the pool was interrupted; while it is not in force, its counters stand still.
    pub interruptions: Interruptions,
    /// [`Scope::Pool`]: where each member's excess waits, by the index of its interface; empty where a plane has no
    /// queues.
    pub queues: BTreeMap<u32, MemberQueue>,
    /// [`Scope::Pool`]: what members send or receive beside the uplink, by the index of their interface; empty where a
    /// plane does not count it.
    pub local: BTreeMap<u32, LocalCount>,
    /// [`Scope::Pool`]: counters of members' flow classes, in their order and the rest last, by the index of the
    /// interface; of members without flow classes none.
    pub flows: BTreeMap<u32, Vec<FlowCount>>,
    /// [`Scope::Pool`]: how long members' packets have waited, in the members' order; empty where a plane does not
    /// measure it, and `None` of members of which it is not measured.
    pub delays: Vec<Option<Arc<DelayCount>>>,
    /// [`Scope::Pool`]: bytes on the wire that arrived at the uplink, of a pool of received traffic; `None` of others,
    /// and where they are not counted.
    pub arrived_bytes: Option<u64>,
    /// [`Scope::Pool`]: counters of each virtual function that the card limits, or why its limit is not in force.
    pub cards: BTreeMap<u32, Result<Count, Arc<NotHeld>>>,
}

/// Times that a pool that had been put in force was not any more, or not as it should be: however much of it another
/// program changed at once, that is one interruption.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interruptions {
    /// How often.
    pub total: u64,
    /// How long in all, each from the last look at which nothing had been reported as changed.
    pub time: Duration,
    /// Why it is not in force now, and what to do.
    pub now: Option<String>,
    /// What was in its way or was changed last, and was put right at once.
    pub put_right: Option<String>,
}

/// Where the excess of a member waits.
#[derive(Debug, Clone)]
pub struct MemberQueue {
    /// The tap's send buffer in bytes, or why it is not set; `None` where it is not to be set.
    pub held: Option<Result<u32, Arc<NotHeld>>>,
    /// Why one flow may take another's room in the member's queue, as a clause; `None` where it cannot.
    pub crowds: Option<&'static str>,
    /// What another program limits the same traffic to at the member's own interface.
    pub other: Option<OtherLimit>,
}

/// A limit of another program at a member's own interface, beside the guard's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherLimit {
    /// Kind of its qdisc: `tbf`, `htb`.
    pub kind: String,
    /// The most that it lets through.
    pub rate_bps: BitRate,
}

/// Traffic of a member beside the uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalCount {
    /// Bytes, as they would count on the wire, since the plane counts.
    pub bytes: u64,
    /// Whether its maximum holds for all that it sends.
    pub limited: bool,
    /// Bytes of all that it sends that wait at its own interface.
    pub waiting_bytes: u64,
    /// Packets of all that it sends that were dropped there.
    pub dropped_packets: u64,
}

/// Counters of a flow class of a member, since its queue was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowCount {
    /// Its name in the class.
    pub name: String,
    /// Bytes on the wire that passed.
    pub passed_bytes: u64,
    /// Packets that were dropped at its queue.
    pub dropped_packets: u64,
    /// Bytes that wait now.
    pub waiting_bytes: u64,
}

/// Counters of a member's limit since it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Bytes on the wire that passed.
    pub passed_bytes: u64,
    /// Packets that were dropped at it.
    pub dropped_packets: u64,
    /// Bytes that wait now; without those of flow classes that are at their maximum.
    pub waiting_bytes: u64,
    /// Bytes on the wire that came in at the member's interface, whatever their destination; `None` where not counted.
    pub arrived_bytes: Option<u64>,
    /// What it claimed to be and is not.
    pub claimed: Claimed,
}

/// Packets of a guest that claimed an address of another, or that are too many of the kind that asks for addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claimed {
    /// Packets with another's Ethernet address, and those of ARP and neighbour discovery that claim one.
    pub packets: u64,
    /// Of those, how many were dropped.
    pub dropped: u64,
    /// Further packets of ARP and neighbour discovery that were dropped since they were too many.
    pub floods: u64,
}

impl Count {
    /// Bytes that were offered since `before`: those that passed or began to wait. The length of dropped packets is not
    /// counted; where packets were dropped this is what came in at the interface, or where that is unknown adds
    /// `dropped_packet_bytes` for each. `None` where counters started again at zero.
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

/// Packets that left a stage's IFB and were dropped or wait at the uplink.
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

/// Why one tap or one virtual function is not limited; the others are.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NotHeld {
    #[error("its tap's send buffer is about to be set")]
    NotYet,
    #[error("no known process of its guest has its tap open, so its send buffer cannot be set")]
    NoHolder,
    /// It is set again at each look; between two looks the process takes all from its guest's ring.
    #[error("its process keeps setting its tap's send buffer back, so its excess is dropped here")]
    SetBack,
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
