//! Verdicts: one line for each resource that is used up, with its users, the cost to others, and the evidence.
//!
//! - [`disk`]: a disk; - [`flush`]: its cache; - [`journal`]: fsync on a file system; - [`cpu`]: the host's
//!   processors, a guest's own, its quota, one of its threads; - [`memory`]: the host's swap, a guest's memory;
//! - [`net`]: an uplink, a guest's interface.

use schemars::JsonSchema;
use serde::Serialize;

use super::History;
use super::load::{GuestLoad, Interval};
use super::share::{Actor, Basis};
use super::words::{list, percent};

mod cpu;
mod disk;
pub(super) mod flush;
mod journal;
pub(super) mod memory;
mod net;

/// Resource that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Resource {
    /// A disk.
    Disk,
    /// fsync on a file system with a journal.
    Journal,
    /// The host's processors.
    HostCpu,
    /// A guest's virtual CPUs.
    GuestCpu,
    /// The host's memory.
    HostMemory,
    /// A guest's memory.
    GuestMemory,
    /// A thread of a guest's hypervisor that moves its I/O.
    GuestIo,
    /// A link out of the host.
    Uplink,
    /// A guest's interface.
    Interface,
}

/// Least share of one processor that virtual CPUs want, for a judgement of how long they wait: of next to nothing a
/// large part is soon waited for.
pub const LEAST_WANTED: f64 = 0.05;

/// Share of the periods of a guest's CPU quota in which it is throttled, from which the quota holds it back: Kubernetes
/// alerts from there (kubernetes-mixin, CPUThrottlingHigh).
const THROTTLED: f64 = 0.25;

/// Share of its periods in which a guest's quota holds it back; `None` where it does not. Its threads wait for the next
/// period then, which counts as waiting for a processor (run delay), so nothing else is told of that.
pub fn held(guest: &GuestLoad) -> Option<f64> {
    guest.throttled_ratio.filter(|ratio| *ratio >= THROTTLED)
}

/// A verdict.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    /// What is used up.
    pub resource: Resource,
    /// Its name: `vda`, `/srv`, `host`, `web1`, `eth0`.
    pub name: String,
    /// Whether it is certain; a disk that was never quiet may just be busy.
    pub certain: bool,
    /// Its users, by share, descending: one, or several with similar shares.
    pub culprits: Vec<Culprit>,
    /// Basis of their shares, for a disk.
    pub basis: Option<Basis>,
    /// Why it counts as used up.
    pub evidence: String,
    /// Its cost to others.
    pub costs: Vec<Cost>,
    /// All in one line.
    pub line: String,
    /// The guests that it is about, where `name` is not one of them.
    #[serde(skip)]
    pub guests: Vec<String>,
}

impl Verdict {
    /// A certain verdict without culprits.
    fn certain(resource: Resource, name: &str, evidence: String, line: String) -> Self {
        let (culprits, costs, guests) = (Vec::new(), Vec::new(), Vec::new());
        Self { resource, name: name.to_owned(), certain: true, culprits, basis: None, evidence, costs, line, guests }
    }
}

/// A user of a resource that is used up.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Culprit {
    /// The user in the interval.
    #[serde(skip)]
    pub actor: Actor,
    /// `guest flood`, `backup (rsync)`.
    pub who: String,
    /// Its name, if it is a guest.
    pub guest: Option<String>,
    /// The guest's process, or the process; the busiest of several.
    pub pid: Option<u32>,
    /// Its share of the total.
    pub share_ratio: f64,
}

/// Cost to a guest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Cost {
    /// Its name; of a process of no guest what it is: `process (postgres)`.
    pub guest: String,
    /// Latency that 99 % of its requests do not exceed now.
    pub latency_p99_seconds: Option<f64>,
    /// The same in intervals of this session in which the culprits had less than 10 % of the disk's time; `None`
    /// without such an interval with enough of its requests.
    pub quiet_latency_p99_seconds: Option<f64>,
    /// Share of the time in which its vCPUs were runnable that they waited.
    pub steal_ratio: Option<f64>,
    /// Mean time of its fsyncs.
    pub fsync_mean_seconds: Option<f64>,
    /// The longest of them.
    pub fsync_worst_seconds: Option<f64>,
    /// In words.
    pub words: String,
}

/// All verdicts on an interval. Empty when nothing is used up, as far as known.
pub fn verdicts(interval: &Interval, history: &History) -> Vec<Verdict> {
    if interval.seconds <= 0.0 {
        return Vec::new();
    }
    let mut all = disk::verdicts(interval, history);
    journal::add(&mut all, interval, history);
    let slow = flush::verdicts(interval, &all);
    all.extend(slow);
    all.extend(cpu::verdicts(interval, history));
    all.extend(memory::verdicts(interval));
    all.extend(net::verdicts(interval));
    all
}

/// Message when nothing is used up.
pub fn nothing(interval: &Interval) -> String {
    if interval.seconds.is_nan() || interval.seconds <= 0.0 {
        return "no time passed between two readings".into();
    }
    let busy = interval.host_cpu.busy_ratio(interval.seconds).map(|b| format!("processors {} busy", percent(b)));
    let blind = (!interval.traced).then(|| "seen without tracing".to_owned());
    let known: Vec<String> = busy.into_iter().chain(blind).collect();
    if known.is_empty() {
        "nothing is saturated".into()
    } else {
        format!("nothing is saturated ({})", known.join("; "))
    }
}

/// Shares of at least this part of the largest count as similar.
const ABOUT_THE_SAME: f64 = 0.75;
/// Least share of a single culprit.
const LEAST_SHARE: f64 = 0.2;
/// Most costs in a line.
const TOLD: usize = 3;
/// Most names in a line.
const NAMED: usize = 4;

/// One line for all guests with the same problem, by share, descending; `one` is the text for a single guest.
fn group(
    resource: Resource,
    mut guests: Vec<(&GuestLoad, f64)>,
    one: impl Fn(&GuestLoad, String) -> String,
    many: &str,
    then: &str,
) -> Option<Verdict> {
    guests.sort_by(|a, b| b.1.total_cmp(&a.1));
    match guests[..] {
        [] => return None,
        [(guest, share)] => {
            let evidence = one(guest, percent(share));
            let line = format!("guest {} {evidence}{then}", guest.name);
            return Some(Verdict::certain(resource, &guest.name, evidence, line));
        }
        _ => {}
    }
    let named = |name: &dyn Fn(&GuestLoad, f64) -> String| {
        let more = guests.len().checked_sub(NAMED).filter(|n| *n > 0).map(|n| format!("{n} more"));
        list(&guests.iter().take(NAMED).map(|(g, share)| name(g, *share)).chain(more).collect::<Vec<_>>())
    };
    let with_shares = named(&|g, share| format!("{} ({})", g.name, percent(share)));
    let (line, evidence) = (format!("guests {with_shares} {many}{then}"), format!("{} guests {many}", guests.len()));
    let name = named(&|g, _| g.name.clone());
    let all = guests.iter().map(|(g, _)| g.name.clone()).collect();
    Some(Verdict { guests: all, ..Verdict::certain(resource, &name, evidence, line) })
}

/// The parts with the largest share, out of all in descending order.
fn culprits(interval: &Interval, parts: &[(Actor, f64)], all: f64) -> Vec<Culprit> {
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
            Actor::ShortLived | Actor::Unknown => None,
        },
        share_ratio: part / all,
    };
    about_the_same(parts, all).map(culprit).collect()
}

/// The largest part, and those that are nearly as large, out of all in descending order.
fn about_the_same<T>(parts: &[(T, f64)], all: f64) -> impl Iterator<Item = &(T, f64)> {
    let largest = parts.first().map_or(0.0, |(_, part)| *part);
    parts.iter().take_while(move |(_, part)| all > 0.0 && *part > 0.0 && *part >= largest * ABOUT_THE_SAME)
}

/// `by guest a (83 % of X)`, `by no single one: guest a 46 % and guest b 44 % of X`.
fn blame(culprits: &[Culprit], of: &str) -> String {
    let share = |c: &Culprit| format!("{} {}", c.who, percent(c.share_ratio));
    match culprits {
        [] => "by nothing visible".into(),
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
fn describe(costs: &[Cost]) -> String {
    let mut parts: Vec<String> = costs.iter().take(TOLD).map(|c| c.words.clone()).collect();
    if costs.len() > TOLD {
        parts.push(format!("{} more guests", costs.len() - TOLD));
    }
    list(&parts)
}
