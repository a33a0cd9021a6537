//! What a policy says and what holds where it says nothing: for a terminal the sums, and what is written besides rates;
//! for programs all of it.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_guard::manager::document::local_note;
use vmio_model::policy::delay::{self, DelayTarget};
use vmio_model::policy::flow::{Flow, FlowMatch};
use vmio_model::policy::groups::GroupKey;
use vmio_model::policy::memory::Memory;
use vmio_model::policy::queueless::{self, NeedsQueues};
use vmio_model::policy::{Class, DEFAULT, Direction, Entry, Framing, HOST, Policy, excess, units};
use vmio_model::rate::BitRate;

use crate::fit;
use crate::report::format::count;

/// Most interfaces whose addresses are shown; there may be thousands.
const SHOWN: usize = 20;

/// A policy for a terminal; with the classes that local traffic may exceed. This host may have `refused` it.
pub fn text(policy: &Policy, exceeded_locally: &[String], refused: bool) -> String {
    let (named, patterns): (Vec<_>, Vec<_>) = policy.entries.iter().partition(|e| e.matcher.is_exact());
    let head = format!(
        "The policy is valid{}: {}, {} named, {}.",
        if refused { ", but not on this host (see below)" } else { "" },
        count(policy.uplinks.len(), "uplink"),
        count(named.len(), "interface"),
        count(patterns.len(), "pattern")
    );
    let mut lines = Vec::new();
    for (uplink, written) in &policy.uplinks {
        for direction in Direction::ALL {
            let minima = policy.minima(uplink, direction, written.capacity);
            let sum: BitRate = minima.iter().map(|(_, min)| *min).sum();
            let (direction, members) = (direction.word(), count(minima.len(), "member"));
            lines.push(format!("{uplink} {direction}: {sum} of {} guaranteed to {members}", written.capacity));
        }
        lines.extend(queues(policy, uplink).map(|queues| format!("{uplink} {}: {queues}", Direction::GuestTx.word())));
    }
    lines.extend(policy.classes.iter().filter_map(|(name, class)| of_class(name, class)));
    let mut said = policy.entries.iter().filter_map(of_entry);
    lines.extend(said.by_ref().take(SHOWN));
    let more = said.count();
    if more > 0 {
        lines.push(format!("and {more} more interfaces with addresses or as routers: vmio guard check --json"));
    }
    lines.extend(of_guard(policy));
    let exceeded: Vec<&str> = exceeded_locally.iter().map(String::as_str).collect();
    lines.extend(local_note(&exceeded));
    lines.extend(excess::note(policy));
    let lines = lines.iter().map(|line| fit::paragraph("  ", 4, line));
    fit::paragraph("", 0, &head) + &lines.collect::<String>()
}

/// Whether an uplink has no queue of what guests send, or what it has one for where a class there drops its excess.
fn queues(policy: &Policy, uplink: &str) -> Option<String> {
    match policy.needs_queues(uplink) {
        None => Some(queueless::SHOWN.to_owned()),
        Some(NeedsQueues::Sharing) => None,
        Some(key) => Some(format!("queues behind the token buckets, for {key}")),
    }
}

/// What is written of a class besides rates.
fn of_class(name: &str, class: &Class) -> Option<String> {
    let targets = class.delay.iter().flat_map(|target| of_target(class, target));
    let queue = class.queue_time().map(queue);
    let local = class.limit_local.then(|| "local limit".to_owned());
    let above = class.excess.shown();
    let group = GroupKey::ALL.iter().filter_map(|key| Some(format!("{} {}", key.word(), class.group.shown(*key)?)));
    let memory = class.memory.into_iter().flat_map(of_memory);
    let flow = |flow: &Flow| flow.name.clone() + if flow.excess.drops() { " (excess drop)" } else { "" };
    let flows: Vec<String> = class.flows.iter().map(flow).collect();
    let flows = (!flows.is_empty()).then(|| format!("flow classes {}", flows.join(" ")));
    let said = targets.chain(queue).chain(local).chain(above).chain(group).chain(memory).chain(flows);
    let said: Vec<String> = said.collect();
    (!said.is_empty()).then(|| format!("class {name}: {}", said.join(", ")))
}

/// What a class says of its guests' balloons.
fn of_memory(memory: Memory) -> impl Iterator<Item = String> {
    let min = format!("memory_min {}", units::show_bytes(memory.min_bytes));
    let max = memory.max_bytes.map(|max| format!("memory_max {}", units::show_bytes(max)));
    let moves = memory.moves.then(|| "memory_move true".to_owned());
    [Some(min), max, moves].into_iter().flatten()
}

/// Targets of a class, and what was chosen for them besides the queue.
fn of_target(class: &Class, target: &DelayTarget) -> Vec<String> {
    let times = [("delay", target.delay), ("jitter", target.jitter)];
    let mut said: Vec<String> =
        times.into_iter().filter_map(|(word, time)| Some(format!("{word} {}", units::show_time(time?)))).collect();
    said.push(format!("priority {}", class.priority));
    said.extend(target.longest.map(longest));
    said
}

/// The longest wait of a packet.
pub fn longest(wait: std::time::Duration) -> String {
    format!("waits at most {}", delay::shown(wait))
}

/// What is written of interfaces besides their classes.
fn of_entry(entry: &Entry) -> Option<String> {
    let said: Vec<String> = identity(&entry.addresses, entry.router).collect();
    (!said.is_empty()).then(|| format!("{}: {}", entry.matcher, said.join(", ")))
}

/// What becomes of a class's local traffic; `host` and `default` have none of their own.
fn local(name: &str, class: &Class) -> Option<&'static str> {
    Some(class.local_word()).filter(|_| ![HOST, DEFAULT].contains(&name))
}

/// The length of a queue, as written or chosen.
pub fn queue(time: std::time::Duration) -> String {
    format!("queue {}", units::show_time(time))
}

/// What a guest may claim to be.
pub fn identity(addresses: &[IpAddr], router: bool) -> impl Iterator<Item = String> {
    let addresses = (!addresses.is_empty()).then(|| format!("addresses {}", listed(addresses).join(" ")));
    addresses.into_iter().chain(router.then(|| "router".to_owned()))
}

/// What the guard does about others, and the addresses that no guest may claim.
pub fn of_guard(policy: &Policy) -> Vec<String> {
    let guard = &policy.guard;
    let measures = if guard.measure_delay { ", measure_delay true" } else { "" };
    let (on_conflict, spoofing) = (guard.on_conflict.word(), guard.spoofing.word());
    let conduct = format!("guard: on_conflict {on_conflict}, spoofing {spoofing}{measures}");
    let gateways = policy.uplinks.iter().filter(|(_, uplink)| !uplink.gateways.is_empty());
    let gateways = gateways.map(|(name, uplink)| format!("{name}: gateways {}", listed(&uplink.gateways).join(" ")));
    std::iter::once(conduct).chain(gateways).collect()
}

fn listed(addresses: &[IpAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// What a policy says, with what holds where it says nothing.
#[derive(Serialize, JsonSchema)]
pub struct Settings<'a> {
    /// Settings of the guard.
    guard: GuardSettings,
    /// Uplinks, by name.
    uplinks: Vec<UplinkSettings<'a>>,
    /// Classes, by name; `host` and `default` are always among them.
    classes: Vec<ClassSettings<'a>>,
    /// Interfaces, in the order of the files.
    interfaces: Vec<EntrySettings<'a>>,
}

/// Settings of the guard.
#[derive(Serialize, JsonSchema)]
struct GuardSettings {
    /// Period of the loop.
    period_seconds: f64,
    /// Whether interfaces are admitted that cannot be limited on this host.
    allow_unenforced: bool,
    /// What becomes of others' queues in place of the guard's: `report` or `restore`.
    on_conflict: &'static str,
    /// What becomes of packets that claim another's address: `off`, `warn` or `drop`.
    spoofing: &'static str,
    /// Whether it is measured how long packets wait in their queues.
    measure_delay: bool,
}

/// An uplink.
#[derive(Serialize, JsonSchema)]
struct UplinkSettings<'a> {
    /// Its name.
    name: &'a str,
    /// Capacity of each direction.
    capacity_bps: BitRate,
    /// How a frame counts: `ethernet` or `none`.
    framing: &'static str,
    /// IP addresses on its network that no guest may claim.
    gateways: Vec<String>,
    /// Whether what guests send has no queue there: all that the policy asks for are maxima, by token buckets.
    queueless: bool,
}

/// A class.
#[derive(Serialize, JsonSchema)]
struct ClassSettings<'a> {
    /// Its name.
    name: &'a str,
    /// 1 is served first, 8 last.
    priority: u8,
    /// Guaranteed rate; null of `host` where it has 2 % of the capacity.
    min_bps: Option<BitRate>,
    /// Limit; null for the capacity.
    max_bps: Option<BitRate>,
    /// Share of spare inside its priority.
    weight: u32,
    /// What becomes of an unused minimum: `soft` (lent) or `hard` (kept free).
    reserve: &'static str,
    /// Whether it may use what is left when every maximum is met.
    over_max: bool,
    /// How long excess may wait on this host, as written or chosen for the targets; null for room for TCP.
    queue_seconds: Option<f64>,
    /// Target: longest wait of a packet; null for none.
    delay_seconds: Option<f64>,
    /// Target: largest difference between the waits of two packets; null for none.
    jitter_seconds: Option<f64>,
    /// Longest wait of a packet beside the members that the policy names; null without a target, or an interface.
    longest_wait_seconds: Option<f64>,
    /// Local traffic: `count` or `limit`; null of `host` and `default`, which have none of their own.
    local: Option<&'static str>,
    /// What becomes of what is above its maximum: `queue` or `drop`.
    excess: &'static str,
    /// How long a full bucket of what is dropped lasts; null for that of a queue's bucket, and without one.
    burst_seconds: Option<f64>,
    /// Its flow classes, in the order in which they match.
    flows: Vec<FlowSettings<'a>>,
    /// Weight of the guest's control group on busy processors; null for no change.
    cpu_weight: Option<u16>,
    /// Limit of the guest's processor time in microseconds of each 100 ms; null for no change.
    cpu_max_us: Option<u64>,
    /// Limit of the guest's memory; null for no change.
    memory_max_bytes: Option<u64>,
    /// What the guest's balloon always leaves it; null where its balloon is left alone.
    memory_min_bytes: Option<u64>,
    /// The most that its balloon leaves it; null for what it was started with, and without a minimum.
    balloon_max_bytes: Option<u64>,
    /// Whether its balloon is moved, and it is not only told what would be moved.
    memory_move: bool,
}

/// A flow class: what a packet must have to belong to it is all that is not null.
#[derive(Serialize, JsonSchema)]
struct FlowSettings<'a> {
    /// Its name.
    name: &'a str,
    /// 1 is served first, 8 last.
    priority: u8,
    /// Guaranteed of what its interface gets.
    min_bps: BitRate,
    /// Limit; null for that of the interface.
    max_bps: Option<BitRate>,
    /// What becomes of what is above it: `queue` or `drop`.
    excess: &'static str,
    /// As of the class.
    burst_seconds: Option<f64>,
    /// Differentiated services code point.
    dscp: Option<u8>,
    /// Number of the IP protocol.
    protocol: Option<u8>,
    /// Ranges of ports, both ends included; empty for any.
    ports: &'a [(u16, u16)],
    /// Network of the other end.
    address: Option<String>,
}

impl<'a> FlowSettings<'a> {
    fn of(flow: &'a Flow) -> Self {
        let FlowMatch { dscp, protocol, ports, address } = &flow.matcher;
        FlowSettings {
            name: &flow.name,
            priority: flow.priority,
            min_bps: flow.min,
            max_bps: flow.max,
            excess: flow.excess.word(),
            burst_seconds: flow.excess.burst().map(|time| time.as_secs_f64()),
            dscp: *dscp,
            protocol: *protocol,
            ports,
            address: address.map(|network| network.to_string()),
        }
    }
}

/// Interfaces that an entry matches.
#[derive(Serialize, JsonSchema)]
struct EntrySettings<'a> {
    /// What it matches, as in `plan`: an interface's name, or its kind and a name.
    #[serde(rename = "match")]
    matcher: String,
    /// Class of what the guest sends; null for no limit.
    class: Option<&'a str>,
    /// Class of what it receives; null for no limit.
    rx_class: Option<&'a str>,
    /// Its uplink.
    uplink: &'a str,
    /// IP addresses that the guest may claim, and no others; empty where the policy names none.
    addresses: Vec<String>,
    /// Whether the guest routes for others.
    router: bool,
    /// Where it is written: file, line and column.
    place: &'a str,
}

impl<'a> Settings<'a> {
    /// Of a policy.
    pub fn of(policy: &'a Policy) -> Settings<'a> {
        let guard = GuardSettings {
            period_seconds: policy.guard.period.as_secs_f64(),
            allow_unenforced: policy.guard.allow_unenforced,
            on_conflict: policy.guard.on_conflict.word(),
            spoofing: policy.guard.spoofing.word(),
            measure_delay: policy.guard.measure_delay,
        };
        let uplinks = policy.uplinks.iter().map(|(name, uplink)| UplinkSettings {
            name,
            capacity_bps: uplink.capacity,
            framing: if uplink.framing == Framing::ETHERNET { "ethernet" } else { "none" },
            gateways: listed(&uplink.gateways),
            queueless: policy.needs_queues(name).is_none(),
        });
        let classes = policy.classes.iter().map(|(name, class)| ClassSettings {
            name,
            priority: class.priority,
            min_bps: class.min,
            max_bps: class.max,
            weight: class.weight,
            reserve: if class.hard { "hard" } else { "soft" },
            over_max: class.over_max,
            queue_seconds: class.queue_time().map(|time| time.as_secs_f64()),
            delay_seconds: class.delay.and_then(|target| target.delay).map(|time| time.as_secs_f64()),
            jitter_seconds: class.delay.and_then(|target| target.jitter).map(|time| time.as_secs_f64()),
            longest_wait_seconds: class.delay.and_then(|target| target.longest).map(|time| time.as_secs_f64()),
            local: local(name, class),
            excess: class.excess.word(),
            burst_seconds: class.excess.burst().map(|time| time.as_secs_f64()),
            flows: class.flows.iter().map(FlowSettings::of).collect(),
            cpu_weight: class.group.cpu_weight,
            cpu_max_us: class.group.cpu_max,
            memory_max_bytes: class.group.memory_max,
            memory_min_bytes: class.memory.map(|memory| memory.min_bytes),
            balloon_max_bytes: class.memory.and_then(|memory| memory.max_bytes),
            memory_move: class.memory.is_some_and(|memory| memory.moves),
        });
        let interfaces = policy.entries.iter().map(|entry| EntrySettings {
            matcher: entry.matcher.label(),
            class: entry.class.as_deref(),
            rx_class: entry.rx_class.as_deref(),
            uplink: &entry.uplink,
            addresses: listed(&entry.addresses),
            router: entry.router,
            place: &entry.place,
        });
        Settings { guard, uplinks: uplinks.collect(), classes: classes.collect(), interfaces: interfaces.collect() }
    }
}
