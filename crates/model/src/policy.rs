//! The guard's policy: uplinks with their capacity, classes with minimum, maximum and priority, and the class of each
//! interface. TOML, from one or several files that add up; `docs/guard.md` has the keys. The input are texts, the
//! result a policy or all problems: nothing here reads a machine.
//!
//! A class is a contract for each of its interfaces, not a pool that they share. A **pool** is one direction of one
//! uplink; every uplink has both, [`Direction::ALL`]. Every pool has two further members: `host`, the host's own
//! traffic, and `default`, all unmatched traffic as one member. They are in both directions, since the host's own
//! traffic (SSH, storage, corosync) uses the same wire as the guests', and a guest that floods either direction would
//! starve it. An interface is in the pools of the directions in which it has a class.

mod abilities;
pub mod assign;
mod check;
pub mod compile;
mod conduct;
pub mod delay;
mod effective;
pub mod excess;
pub mod flow;
pub(crate) mod glob;
pub mod groups;
mod matcher;
pub mod memory;
mod outline;
mod parse;
pub mod plan;
pub mod policer;
pub mod pool;
pub mod program;
pub mod propose;
pub mod queueless;
pub mod text;
pub mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::allocate::Member;
use crate::problem::Problem;
use crate::rate::BitRate;

pub use abilities::{Abilities, Form};
pub use conduct::{OnConflict, Spoofing};
pub use effective::effective_minima;
pub use excess::Excess;
pub use matcher::{Kind, Matcher, NameError, interface_name, label};
pub use program::Framing;

/// Class of the host's own traffic, and its member in each pool.
pub const HOST: &str = "host";
/// Class of all unmatched traffic, and its member in each pool.
pub const DEFAULT: &str = "default";
/// Default minimum of the host: one part in this many of the capacity, 2 %.
pub const HOST_PART: u64 = 50;
/// Default priority of a class.
pub const DEFAULT_PRIORITY: u8 = 4;

/// Direction of traffic, seen from the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Transmitted by guests: the uplink sends it.
    GuestTx,
    /// Received by guests: the uplink receives it.
    GuestRx,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::GuestTx, Direction::GuestRx];

    /// Name in JSON and messages.
    pub fn word(self) -> &'static str {
        match self {
            Direction::GuestTx => "guest_tx",
            Direction::GuestRx => "guest_rx",
        }
    }
}

/// A checked policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Uplinks by name.
    pub uplinks: BTreeMap<String, Uplink>,
    /// Classes by name; [`HOST`] and [`DEFAULT`] are always among them.
    pub classes: BTreeMap<String, Class>,
    /// The interfaces' classes, in the order of the files. No two match the same interface.
    pub entries: Vec<Entry>,
    /// Settings of the guard.
    pub guard: Guard,
}

/// An interface of the host over which guests reach the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Capacity of each direction: as written, else the link speed of the kernel.
    pub capacity: BitRate,
    /// Framing of its packets: as written, else preamble and gap on a physical port.
    pub framing: Framing,
    /// IP addresses on its network that no guest may claim: of routers, and of others that are no guests here.
    pub gateways: Vec<IpAddr>,
}

/// A contract, for each interface that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// 1 is served first, 8 last.
    pub priority: u8,
    /// Guaranteed rate. `None` for the host's 2 % of the capacity.
    pub min: Option<BitRate>,
    /// Limit. `None` for the uplink's capacity.
    pub max: Option<BitRate>,
    /// Weight in sharing spare capacity within a priority; at least 1.
    pub weight: u32,
    /// An unused minimum is reserved and not lent.
    pub hard: bool,
    /// May use capacity that is left when every maximum is met.
    pub over_max: bool,
    /// Longest time that its excess waits on this host; `None` for room for TCP ([`compile`]).
    pub queue: Option<Duration>,
    /// Targets of delay and jitter.
    pub delay: Option<delay::DelayTarget>,
    /// What becomes of what is above its maximum.
    pub excess: Excess,
    /// Its maximum holds for all that a guest sends, also for what does not leave by the uplink.
    pub limit_local: bool,
    /// Limits on each guest's control group.
    pub group: groups::Limits,
    /// Memory of each guest, by its balloon; `None` where that is left alone.
    pub memory: Option<memory::Memory>,
    /// Parts of its traffic, each with a share of its own.
    pub flows: Vec<flow::Flow>,
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
            queue: None,
            delay: None,
            excess: Excess::default(),
            limit_local: false,
            group: groups::Limits::default(),
            memory: None,
            flows: Vec::new(),
        }
    }
}

impl Class {
    /// The default class of this name.
    pub fn named(name: &str) -> Class {
        match name {
            HOST => Class { priority: 1, min: None, ..Class::default() },
            DEFAULT => Class { priority: 8, ..Class::default() },
            _ => Class::default(),
        }
    }

    /// Longest time that its excess waits on this host: as written, else as chosen for its targets.
    pub fn queue_time(&self) -> Option<Duration> {
        self.queue.or(self.delay.and_then(|delay| delay.queue))
    }

    /// What becomes of its local traffic, in the policy's word.
    pub fn local_word(&self) -> &'static str {
        if self.limit_local { "limit" } else { "count" }
    }

    /// The minimum on an uplink of this capacity. The host's default of 2 % is limited by a written maximum.
    pub fn min_on(&self, capacity: BitRate) -> BitRate {
        self.min.unwrap_or_else(|| (capacity / HOST_PART).min(self.max.unwrap_or(BitRate::MAX)))
    }

    /// The rate that an interface of this class never exceeds on an uplink of this capacity.
    pub fn most_on(&self, capacity: BitRate) -> BitRate {
        if self.over_max { capacity } else { self.max.unwrap_or(capacity).min(capacity) }
    }

    /// The member of an interface of this class on an uplink of this capacity. Its minimum is the class's; see
    /// [`effective_minima`].
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
    /// The interfaces.
    pub matcher: Matcher,
    /// Class of transmitted traffic; `None` for no limit.
    pub class: Option<String>,
    /// Class of received traffic; `None` for no limit.
    pub rx_class: Option<String>,
    /// Its uplink.
    pub uplink: String,
    /// IP addresses that the guest may claim, and no others; empty where they are not known.
    pub addresses: Vec<IpAddr>,
    /// Whether the guest routes for others.
    pub router: bool,
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

/// Settings of the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Period of the loop, 1 ms to 10 s.
    pub period: Duration,
    /// Admit interfaces that cannot be limited on this host.
    pub allow_unenforced: bool,
    /// What becomes of others' queues in place of the guard's.
    pub on_conflict: OnConflict,
    /// What becomes of packets that claim another's address.
    pub spoofing: Spoofing,
    /// Whether it is measured how long packets wait in their queues; unwritten where a class has a target of delay.
    pub measure_delay: bool,
}

impl Default for Guard {
    fn default() -> Guard {
        Guard {
            period: Duration::from_millis(10),
            allow_unenforced: false,
            on_conflict: OnConflict::default(),
            spoofing: Spoofing::default(),
            measure_delay: false,
        }
    }
}

/// Link properties beside the policy. An uplink without a written or known capacity is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Links {
    /// Link speeds of the kernel by interface, used where no capacity is written.
    pub speeds: BTreeMap<String, BitRate>,
    /// Physical Ethernet ports, which have framing.
    pub physical: BTreeSet<String>,
}

/// A policy with its warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Warnings, in the order of the files.
    pub warnings: Vec<Problem>,
}

/// All problems of a policy, in the order of the files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct PolicyError {
    /// The problems; never empty.
    pub problems: Vec<Problem>,
    /// Warnings besides.
    pub warnings: Vec<Problem>,
}

impl Policy {
    /// Parses the files, given as (name, text), as one policy; later ones add to earlier ones.
    ///
    /// # Errors
    /// All problems of all files. A file that is no TOML has its syntax errors only; the other files' keys and values
    /// are still checked. Checks across files wait until all are TOML.
    pub fn read(files: &[(&str, &str)], links: &Links) -> Result<Loaded, PolicyError> {
        check::read(files, None, links)
    }

    /// As [`Policy::read`], with a text that overrides keys of existing classes (`vmio guard set`) and contains nothing
    /// else.
    ///
    /// # Errors
    /// As [`Policy::read`]; those of the overriding text come last.
    pub fn read_under(files: &[(&str, &str)], over: (&str, &str), links: &Links) -> Result<Loaded, PolicyError> {
        check::read(files, Some(over), links)
    }

    /// The entry that matches an interface by one of its names.
    pub fn find(&self, kind: Kind, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.matcher.matches(kind, name))
    }

    /// The minima above 0 of the certain members of a pool, with their names: the host, `default`, and interfaces named
    /// without a pattern. They fit the capacity.
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

    /// Classes with a written maximum that interfaces may exceed by local traffic: what they send to other guests of
    /// the host, to the host itself, or into its tunnels. Not where all that guests send to an uplink passes queues
    /// before it (`staged`), whatever their class says.
    pub fn exceeded_locally(&self, staged: impl Fn(&str) -> bool) -> Vec<&str> {
        let to_others = |entry: &&Entry| !staged(&entry.uplink);
        let sent = |name: &str| self.entries.iter().filter(to_others).any(|e| e.class.as_deref() == Some(name));
        let open = |(name, class): &(&String, &Class)| class.max.is_some() && !class.limit_local && sent(name);
        self.classes.iter().filter(open).map(|(name, _)| name.as_str()).collect()
    }

    /// The class of an entry.
    pub fn class(&self, name: &str) -> &Class {
        self.classes.get(name).expect("a checked policy has every class that its entries name")
    }
}
