//! Memory that moves between guests by their balloons (lu2016, section 4): what one leaves unused goes to one whose
//! reads the host's page cache answers, and back when its giver needs it. From what is seen of the guests and of the
//! host at each check to moves; a move is from what the guest has, so that it can be logged before it is made.
//!
//! Whatever is seen:
//! - A guest without a contract is not moved, except back to what it had when it had one. One of which its driver
//!   reports nothing gives nothing.
//! - Of a guest's own memory only what it has free is taken: no program's, and nothing of its page cache. What it was
//!   given, and what is above its maximum, is taken from its page cache, too. It keeps its minimum, and room to work in.
//! - Memory is given as far as the host has it for all that its guests could touch, with a reserve; none while it
//!   swaps. What a guest has is in use only when the guest touches it, so what it has not touched counts as taken.
//! - A guest has one move at a time, and one that it does not finish is stopped. For a while after one up nothing of
//!   its own is taken.
//! - A guest writes what its balloon leaves it and what its driver reports: by that it can give up its own memory, but
//!   gains no claim to more than it had.
//!
//! Its own refaults and swap-ins tell that a guest needs memory; pressure (PSI) told little, and late.

mod contract;
mod guest;
mod held;
mod stays;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use contract::{Contract, Refusal, check};
pub use guest::{Guest, Report};
use held::{Held, lowered};
pub use stays::Stays;

pub use crate::policy::memory::LEAST_BYTES;

/// The most that one move takes or gives, except what a guest gets back. A balloon takes half a second for it.
pub const STEP_BYTES: u64 = 128 << 20;
/// A balloon moves pages (virtio 1.2, section 5.5.6): it never gets to a size between.
pub const PAGE_BYTES: u64 = 4096;
/// Less is not worth a move.
pub const LEAST_MOVE_BYTES: u64 = 16 << 20;
/// The part of the host's memory that stays available, as a divisor.
pub const HOST_KEEPS: u64 = 16;
/// How long a guest must leave memory unused, or read from the host's cache, before it is moved for that.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long after it was given memory, or somebody else set its balloon, none is taken from a guest.
pub const REST: Duration = Duration::from_secs(300);
/// How long a guest may take for a move.
pub const SETTLE: Duration = Duration::from_secs(60);

/// What is seen of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Its memory.
    pub total_bytes: u64,
    /// What of it could be used without swapping, its page cache included (`MemAvailable`).
    pub available_bytes: u64,
    /// Whether it swapped since the check before (`pswpin`, `pswpout`).
    pub swaps: bool,
}

/// Why a guest is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Up: it has less than its minimum.
    Minimum,
    /// Up: it needs what was taken from it.
    Returned,
    /// Up: the host's page cache answers its reads.
    Reads,
    /// Down: it leaves memory unused, which others want.
    Idle,
    /// Down: what it was given is needed by others, or the host swaps.
    Needed,
    /// Down: it has more than its maximum.
    Maximum,
    /// It has not finished a move in time, and stays where it is.
    Stopped,
    /// To what it had before the first move.
    Undone,
}

/// A move of a guest's balloon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The guest.
    pub guest: String,
    /// Memory that its balloon leaves it now.
    pub from_bytes: u64,
    /// Memory that its balloon is to leave it.
    pub to_bytes: u64,
    /// Why.
    pub why: Why,
}

/// The guests between two checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balance {
    held: BTreeMap<String, Held>,
    /// When the last check was.
    checked: Option<Duration>,
    /// Why guests were not moved at that.
    stays: BTreeMap<String, Stays>,
}

/// The moves of a check, and what the host can still give.
struct Moves {
    spare_bytes: u64,
    all: BTreeMap<String, Move>,
}

impl Moves {
    fn put(&mut self, name: &str, guest: &Guest, to_bytes: u64, why: Why) {
        let planned = Move { guest: name.to_owned(), from_bytes: guest.actual_bytes, to_bytes, why };
        self.all.insert(name.to_owned(), planned);
    }

    /// Takes so much of what the host can give, or what is left of it, in whole pages.
    fn take(&mut self, bytes: u64) -> u64 {
        let most = bytes.min(self.spare_bytes);
        let taken = most - most % PAGE_BYTES;
        self.spare_bytes -= taken;
        taken
    }
}

impl Balance {
    /// Goes on where another one was, by what that told of its guests ([`Balance::bases`]).
    pub fn resumed(bases: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut resumed = Self::default();
        bases.into_iter().for_each(|(name, bytes)| resumed.hold(&name, bytes));
        resumed
    }

    /// Knows of a guest that nobody has moved yet, and that has so many bytes.
    pub fn adopt(&mut self, name: &str, bytes: u64) {
        self.held.insert(name.to_owned(), Held::of(bytes, Duration::ZERO));
    }

    /// Knows of a guest, unless it does already, that it had that before the first move: one that was not seen for a
    /// while is forgotten. Since it may have been moved meanwhile, nothing is taken from it for a while.
    pub fn hold(&mut self, name: &str, base_bytes: u64) {
        let new = || Held { settled_bytes: None, ..Held::of(base_bytes, Duration::ZERO) };
        self.held.entry(name.to_owned()).or_insert_with(new);
    }

    /// What each guest had before the first move: to be kept, since undo needs it when this is gone.
    pub fn bases(&self) -> impl Iterator<Item = (&str, u64)> {
        self.held.iter().map(|(name, held)| (name.as_str(), held.base_bytes))
    }

    /// The moves that are due `now` (since any fixed moment), in the order of the guests' names, at most one of each.
    /// They are taken as made: one that was not is seen at the next checks.
    pub fn check(&mut self, now: Duration, host: &Host, guests: &BTreeMap<String, Guest>) -> Vec<Move> {
        let moves = self.due(now, host, guests);
        for planned in moves.iter().filter(|planned| planned.why != Why::Stopped) {
            let Some(held) = self.held.get_mut(&planned.guest) else { continue };
            held.aim = Some((planned.to_bytes, now + SETTLE));
            (held.idle_since, held.reads_since) = (None, None);
            if planned.to_bytes > planned.from_bytes {
                held.rests_until = now + REST;
            }
        }
        moves
    }

    /// As [`Balance::check`], for who only looks: they are not taken as made, and due again at the next check.
    pub fn due(&mut self, now: Duration, host: &Host, guests: &BTreeMap<String, Guest>) -> Vec<Move> {
        let passed = self.checked.replace(now).map(|before| now.saturating_sub(before));
        for (name, guest) in guests.iter().filter(|(_, guest)| guest.contract.is_some()) {
            self.held.entry(name.clone()).or_insert_with(|| Held::of(guest.actual_bytes, Duration::ZERO));
        }
        self.held.retain(|name, held| {
            let Some(guest) = guests.get(name) else { return held.is_recent(now) };
            held.note(guest, now, passed);
            guest.contract.is_some() || held.aim.is_some() || guest.actual_bytes != held.base_bytes
        });
        let mut moves = Moves { spare_bytes: self.spare(host, guests), all: BTreeMap::new() };
        let owed = self.give_back(&mut moves, guests);
        let wanted = self.give(&mut moves, now, guests);
        self.take(&mut moves, now, guests, (owed || host.swaps, wanted));
        let stay = self.held.iter().filter(|(name, _)| !moves.all.contains_key(*name));
        let why = |(name, held): (&String, &Held)| {
            Some((name.clone(), held.stays(guests.get(name)?, now, moves.spare_bytes)))
        };
        self.stays = stay.filter_map(why).collect();
        moves.all.into_values().collect()
    }

    /// Why a guest was not moved at the last check; `None` where it was, or is not known.
    pub fn stays(&self, name: &str) -> Option<Stays> {
        self.stays.get(name).copied()
    }

    /// Moves that bring guests back to what they had, those down first; what a guest works in now stays with it.
    pub fn undo(&self, guests: &BTreeMap<String, Guest>) -> Vec<Move> {
        let of = |(name, held): (&String, &Held)| {
            let guest = guests.get(name)?;
            let now = held.has_bytes(guest);
            let to_bytes = match guest.works_in_bytes() {
                _ if held.base_bytes >= now => held.base_bytes,
                Some(works_in) => held.base_bytes.max(works_in.next_multiple_of(PAGE_BYTES)).min(now),
                // Nobody knows what it works in.
                None => now,
            };
            let planned = Move { guest: name.clone(), from_bytes: guest.actual_bytes, to_bytes, why: Why::Undone };
            (to_bytes != now).then_some(planned)
        };
        let mut moves: Vec<Move> = self.held.iter().filter_map(of).collect();
        moves.sort_by_key(|planned| planned.to_bytes > planned.from_bytes);
        moves
    }

    /// What the host can give, if each guest touched all that it has.
    fn spare(&self, host: &Host, guests: &BTreeMap<String, Guest>) -> u64 {
        if host.swaps {
            return 0;
        }
        let untouched = |(name, guest): (&String, &Guest)| {
            let aim = self.held.get(name).map_or(0, |held| held.has_bytes(guest));
            guest.actual_bytes.max(aim).saturating_sub(guest.resident_bytes)
        };
        let promised = guests.iter().map(untouched).fold(host.total_bytes / HOST_KEEPS, u64::saturating_add);
        host.available_bytes.saturating_sub(promised)
    }

    /// Brings guests to their minimum, and back to what was taken from them where they need it. Whether some of that
    /// is still owed.
    fn give_back(&self, moves: &mut Moves, guests: &BTreeMap<String, Guest>) -> bool {
        let mut owed = false;
        for (name, held) in &self.held {
            let Some(guest) = guests.get(name) else { continue };
            if held.stuck {
                moves.put(name, guest, guest.actual_bytes, Why::Stopped);
            }
            let (has, (due, why)) = (held.has_bytes(guest), held.due(guest));
            if due <= has {
                continue;
            }
            // What it has not given up yet costs nothing.
            let from = has.max(guest.actual_bytes);
            let to = from + moves.take(due.saturating_sub(from));
            owed |= to < due;
            if to > has {
                moves.put(name, guest, to, why);
            }
        }
        owed
    }

    /// Gives memory to guests whose reads the host's page cache answers, those with most of them first. Whether one
    /// would get more if there were more.
    fn give(&self, moves: &mut Moves, now: Duration, guests: &BTreeMap<String, Guest>) -> bool {
        let ready = |(name, held): (&String, &Held)| {
            let guest = guests.get(name).filter(|_| held.aim.is_none() && !moves.all.contains_key(name))?;
            let room = held.room(guest, now)?.ok()?;
            Some((guest.hit_bytes(), name.clone(), guest, room))
        };
        let mut ready: Vec<_> = self.held.iter().filter_map(ready).collect();
        ready.sort_by(|(a, first, ..), (b, second, ..)| b.cmp(a).then_with(|| first.cmp(second)));
        let mut wanted = false;
        for (_, name, guest, room) in ready {
            if moves.spare_bytes < room {
                wanted = true;
                continue;
            }
            let to = guest.actual_bytes + moves.take(room);
            moves.put(&name, guest, to, Why::Reads);
        }
        wanted
    }

    /// Takes memory: what is above a maximum; what guests were given, where it is `short`; what they leave unused,
    /// where it is that or `wanted`.
    fn take(&self, moves: &mut Moves, now: Duration, guests: &BTreeMap<String, Guest>, (short, wanted): (bool, bool)) {
        for (name, held) in self.held.iter().filter(|(_, held)| held.aim.is_none() && !held.stuck) {
            let Some(guest) = guests.get(name).filter(|_| !moves.all.contains_key(name)) else { continue };
            let Some(works_in) = guest.works_in_bytes() else { continue };
            let contract = held.contract(guest);
            let lent = held.base_bytes.max(contract.min_bytes);
            let (floor, why) = if guest.actual_bytes > contract.max_bytes {
                (contract.max_bytes.max(works_in), Why::Maximum)
            } else if short && guest.actual_bytes > lent {
                (lent.max(works_in), Why::Needed)
            } else if short || wanted {
                let Ok(keeps) = held.keeps(guest, now) else { continue };
                (keeps, Why::Idle)
            } else {
                continue;
            };
            if let Some(to) = lowered(guest, floor) {
                moves.put(name, guest, to, why);
            }
        }
    }
}
