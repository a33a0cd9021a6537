//! Verdicts: one line for each thing that is used up, with who uses it and what that costs the
//! others, each with its evidence.
//!
//! - [`disk`]: a disk; - [`cpu`]: the host's processors, a guest's own, one of its threads;
//! - [`net`]: an uplink, a guest's interface.

use schemars::JsonSchema;
use serde::Serialize;

use super::History;
use super::load::Interval;
use super::share::{Actor, Basis};
use super::words::{list, percent};

mod cpu;
mod disk;
mod net;

/// What is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A disk.
    Disk,
    /// The host's processors.
    HostCpu,
    /// A guest's virtual CPUs.
    GuestCpu,
    /// A thread of a guest's hypervisor that moves its I/O.
    GuestIo,
    /// A link out of the host.
    Uplink,
    /// A guest's interface.
    Interface,
}

/// A line of the answer.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    /// What is used up.
    pub resource: Resource,
    /// Its name: `vda`, `host`, `web1`, `eth0`.
    pub name: String,
    /// Whether that is certain; a disk that was never seen quiet may just be busy.
    pub certain: bool,
    /// Who uses it up, the largest share first: one, or several of about the same share.
    pub culprits: Vec<Culprit>,
    /// What their shares are shares of, of a disk.
    pub basis: Option<Basis>,
    /// Why it counts as used up.
    pub evidence: String,
    /// What it costs the others.
    pub costs: Vec<Cost>,
    /// All of it in a line.
    pub line: String,
}

impl Verdict {
    /// A certain one that blames nobody.
    fn certain(resource: Resource, name: &str, evidence: String, line: String) -> Self {
        let (culprits, costs) = (Vec::new(), Vec::new());
        Self { resource, name: name.to_owned(), certain: true, culprits, basis: None, evidence, costs, line }
    }
}

/// Who uses a thing up.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Culprit {
    /// Which of the interval's.
    #[serde(skip)]
    pub actor: Actor,
    /// `guest flood`, `backup (rsync)`.
    pub who: String,
    /// Its name where it is a guest.
    pub guest: Option<String>,
    /// The process of the guest, or the process that it is; the busiest of several.
    pub pid: Option<u32>,
    /// Its share of all that was used.
    pub share_ratio: f64,
}

/// What it costs a guest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Cost {
    /// Its name.
    pub guest: String,
    /// Latency that 99 % of its requests do not exceed now.
    pub latency_p99_seconds: Option<f64>,
    /// The same in intervals of this session in which the culprits had less than 10 % of the disk's
    /// time; `None` when no such interval with enough of its requests was seen.
    pub quiet_latency_p99_seconds: Option<f64>,
    /// Share of the time in which its virtual CPUs wanted to run that they waited.
    pub steal_ratio: Option<f64>,
    /// In words.
    pub words: String,
}

/// Every verdict on an interval. Empty: nothing is used up, as far as could be seen.
pub fn verdicts(interval: &Interval, history: &History) -> Vec<Verdict> {
    if interval.seconds <= 0.0 {
        return Vec::new();
    }
    let mut all = disk::verdicts(interval, history);
    all.extend(cpu::verdicts(interval));
    all.extend(net::verdicts(interval));
    all
}

/// What is said when nothing is used up.
pub fn nothing(interval: &Interval) -> String {
    if interval.seconds.is_nan() || interval.seconds <= 0.0 {
        return "no time passed between two readings".into();
    }
    let blind = if interval.traced { "" } else { " (as far as can be seen without tracing)" };
    format!("nothing is saturated{blind}")
}

/// Shares of at least this part of the largest count as about the same.
const ABOUT_THE_SAME: f64 = 0.75;
/// Below this share nobody is to blame alone.
const LEAST_SHARE: f64 = 0.2;
/// Costs told in a line.
const TOLD: usize = 3;

/// Those with the largest share, of all parts in falling order.
fn culprits(interval: &Interval, parts: &[(Actor, f64)], all: f64) -> Vec<Culprit> {
    let largest = parts.first().map_or(0.0, |(_, part)| *part);
    let about = parts.iter().take_while(|(_, part)| all > 0.0 && *part > 0.0 && *part >= largest * ABOUT_THE_SAME);
    let culprit = |(who, part): &(Actor, f64)| Culprit {
        actor: *who,
        who: who.label(interval),
        guest: match who {
            Actor::Guest(i) => Some(interval.guests[*i].name.clone()),
            _ => None,
        },
        pid: match who {
            Actor::Guest(i) => interval.guests[*i].pid,
            Actor::Other(i) => Some(interval.others[*i].pid).filter(|pid| *pid != 0),
            Actor::Process(i) => interval.processes.as_ref().and_then(|all| Some(all.get(*i)?.pid)),
            Actor::Unknown => None,
        },
        share_ratio: part / all,
    };
    about.map(culprit).collect()
}

/// `by guest a (83 % of X)`, `by no single one: guest a 46 % and guest b 44 % of X`.
fn blame(culprits: &[Culprit], of: &str) -> String {
    let share = |c: &Culprit| format!("{} {}", c.who, percent(c.share_ratio));
    match culprits {
        [] => "by nobody that can be seen".into(),
        [one] if one.share_ratio >= LEAST_SHARE => format!("by {} ({} of {of})", one.who, percent(one.share_ratio)),
        [one] => format!("by many: the largest is {} with {} of {of}", one.who, percent(one.share_ratio)),
        some if some.len() > 4 => format!(
            "by no single one: {} have about the same share, {} of {of} each",
            some.len(),
            percent(some[0].share_ratio)
        ),
        some => format!("by no single one: {} of {of}", list(&some.iter().map(share).collect::<Vec<_>>())),
    }
}

/// The costs in words, the worst first; the rest as a number.
fn told(costs: &[Cost]) -> String {
    let mut parts: Vec<String> = costs.iter().take(TOLD).map(|c| c.words.clone()).collect();
    if costs.len() > TOLD {
        parts.push(format!("{} more guests", costs.len() - TOLD));
    }
    list(&parts)
}
