//! The guard's policy: uplinks with their capacity, classes with minimum, maximum and priority, and
//! which interface is in which class. TOML, from one file or several that add up; the keys are in
//! `docs/guard.md`. Texts in, a policy or every problem in them out: nothing here looks at a machine.
//!
//! A class is a contract for each interface in it, not a pool that they share. A **pool** is one
//! direction of one uplink; every uplink has both, [`Direction::ALL`]. Two members are in every pool
//! besides the interfaces: `host`, the host's own traffic, and `default`, all traffic that nothing
//! matches, as one member. They are in both directions, since the host's own traffic (SSH, storage,
//! corosync) is sent and received over the same wire as the guests', and a guest that floods either
//! direction would starve it. An interface is in the pools of the directions in which it has a class.

mod abilities;
pub mod assign;
mod check;
pub mod compile;
mod effective;
pub(crate) mod glob;
pub mod groups;
mod matcher;
mod outline;
mod parse;
pub mod plan;
pub mod pool;
pub mod program;
pub mod propose;
pub mod text;
pub mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::allocate::Member;
use crate::problem::Problem;
use crate::rate::BitRate;

pub use abilities::{Abilities, Form};
pub use effective::effective_minima;
pub use matcher::{Kind, Matcher, NameError, interface_name, label};
pub use program::Framing;

/// The class of the host's own traffic, and its member in each pool.
pub const HOST: &str = "host";
/// The class of all that nothing matches, and its one member in each pool.
pub const DEFAULT: &str = "default";
/// Without a written minimum the host is guaranteed one part in so many of the capacity: 2 %.
pub const HOST_PART: u64 = 50;
/// Priority of a class that does not say.
const DEFAULT_PRIORITY: u8 = 4;

/// Which way the traffic goes, seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// What guests transmit: the uplink sends it.
    GuestTx,
    /// What guests receive: the uplink receives it.
    GuestRx,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::GuestTx, Direction::GuestRx];

    /// As JSON and messages name it.
    pub fn word(self) -> &'static str {
        match self {
            Direction::GuestTx => "guest_tx",
            Direction::GuestRx => "guest_rx",
        }
    }
}

/// A policy, read and checked as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Uplinks by name.
    pub uplinks: BTreeMap<String, Uplink>,
    /// Classes by name; [`HOST`] and [`DEFAULT`] are always among them.
    pub classes: BTreeMap<String, Class>,
    /// Who is in which class, in the order of the files. No two match the same interface.
    pub entries: Vec<Entry>,
    /// How the guard works.
    pub guard: Guard,
}

/// An interface of the host over which guests reach the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uplink {
    /// In each direction: as written, else the link speed that the kernel knows.
    pub capacity: BitRate,
    /// How a frame counts on it: as written, else with preamble and gap on a port that is known to be physical.
    pub framing: Framing,
}

/// A contract, for each interface that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// 1 is served first, 8 last.
    pub priority: u8,
    /// Guaranteed. `None` stands for the host's 2 % of the capacity.
    pub min: Option<BitRate>,
    /// Upper limit. `None` stands for the uplink's capacity.
    pub max: Option<BitRate>,
    /// Share of spare inside a priority; at least 1.
    pub weight: u32,
    /// An unused minimum is kept free, not lent.
    pub hard: bool,
    /// May use what is left when every maximum is met.
    pub over_max: bool,
    /// What else each guest with such an interface is owed, on its control group.
    pub group: groups::Limits,
}

impl Default for Class {
    fn default() -> Class {
        Class {
            priority: DEFAULT_PRIORITY,
            min: Some(BitRate::ZERO),
            max: None,
            weight: 1,
            hard: false,
            over_max: false,
            group: groups::Limits::default(),
        }
    }
}

impl Class {
    /// What a class is before anything is written of it.
    pub fn named(name: &str) -> Class {
        match name {
            HOST => Class { priority: 1, min: None, ..Class::default() },
            DEFAULT => Class { priority: 8, ..Class::default() },
            _ => Class::default(),
        }
    }

    /// The minimum on an uplink of this capacity. The host's own 2 % give way to a lower maximum that
    /// was written.
    pub fn min_on(&self, capacity: BitRate) -> BitRate {
        self.min.unwrap_or_else(|| (capacity / HOST_PART).min(self.max.unwrap_or(BitRate::MAX)))
    }

    /// The member that an interface of this class is on an uplink of this capacity; its minimum is
    /// the class's, see [`effective_minima`].
    pub fn member(&self, capacity: BitRate) -> Member {
        Member {
            priority: self.priority,
            min: self.min_on(capacity),
            max: self.max.unwrap_or(capacity),
            weight: self.weight,
            hard: self.hard,
            over_max: self.over_max,
        }
    }
}

/// One `[[interface]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which interfaces.
    pub matcher: Matcher,
    /// Class of what the guest transmits; `None`: not limited.
    pub class: Option<String>,
    /// Class of what it receives; `None`: not limited.
    pub rx_class: Option<String>,
    /// The uplink that it shares.
    pub uplink: String,
    /// Where it was written: `file:line:column`.
    pub place: String,
}

impl Entry {
    /// Its class in a direction.
    pub fn class_in(&self, direction: Direction) -> Option<&str> {
        match direction {
            Direction::GuestTx => self.class.as_deref(),
            Direction::GuestRx => self.rx_class.as_deref(),
        }
    }
}

/// How the guard works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Period of the loop, 1 ms to 10 s.
    pub period: Duration,
    /// Admit interfaces that this host cannot hold.
    pub allow_unenforced: bool,
}

impl Default for Guard {
    fn default() -> Guard {
        Guard { period: Duration::from_millis(10), allow_unenforced: false }
    }
}

/// What is known of links besides the policy. An uplink whose capacity is neither written nor
/// known here is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// Speeds that the kernel knows, by interface: the capacity where none is written.
    pub speeds: BTreeMap<String, BitRate>,
    /// Interfaces that are physical Ethernet ports: a frame takes more of them than its own bytes.
    pub physical: BTreeSet<String>,
}

/// A policy with what deserves a warning in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Warnings, in the order of the files.
    pub warnings: Vec<Problem>,
}

/// Everything that is wrong in a policy, in the order of the files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct PolicyError {
    /// The problems; never empty.
    pub problems: Vec<Problem>,
    /// What deserves a warning besides.
    pub warnings: Vec<Problem>,
}

impl Policy {
    /// Reads the files, given as (name, text), as one policy; later ones add to earlier ones.
    ///
    /// # Errors
    /// Every problem in all files at once. Where a text is no TOML, only what can be said without
    /// it: its syntax, and the other files' own keys and values.
    pub fn read(files: &[(&str, &str)], links: &Links) -> Result<Loaded, PolicyError> {
        check::read(files, None, links)
    }

    /// As [`Policy::read`], with another text over the files: what it says of a class that they know goes before what
    /// they say (`vmio guard set`). It says nothing else.
    ///
    /// # Errors
    /// As [`Policy::read`]; those of what is over the files come last.
    pub fn read_under(files: &[(&str, &str)], over: (&str, &str), links: &Links) -> Result<Loaded, PolicyError> {
        check::read(files, Some(over), links)
    }

    /// The entry that matches what an interface is known by.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.matcher.matches(kind, name))
    }

    /// The minima above 0 of all who are surely in a pool, each with who it is: the host, `default`,
    /// and the interfaces that are named without a pattern. They fit the capacity.
    pub fn minima(&self, uplink: &str, direction: Direction, capacity: BitRate) -> Vec<(String, BitRate)> {
        let host = self.class(HOST);
        let why = if host.min.is_some() { "class host" } else { "2 % of the capacity" };
        let mut minima = vec![
            (format!("host ({why})"), host.min_on(capacity)),
            ("default (class default)".to_owned(), self.class(DEFAULT).min_on(capacity)),
        ];
        for e in self.entries.iter().filter(|e| e.uplink == uplink && e.matcher.is_exact()) {
            if let Some(class) = e.class_in(direction) {
                let who = format!("{} (class {class}, {})", e.matcher, e.place);
                minima.push((who, self.class(class).min_on(capacity)));
            }
        }
        minima.retain(|(_, min)| *min > BitRate::ZERO);
        minima
    }

    /// A class that an entry names.
    pub fn class(&self, name: &str) -> &Class {
        self.classes.get(name).expect("a checked policy has every class that its entries name")
    }
}
