//! Rate limits that others have set on interfaces of a policy (libvirt, Proxmox VE, Open vSwitch, tc by hand): their
//! effect on it, the policy that replaces them, and the commands that remove them.
//!
//! Two limits in a row are never better than one: the lower one applies, the other is not met, and a policer makes TCP
//! with a short round trip fall far below both. Instead of a policer of 100 Mbit/s a queue gave TCP 95.7 Mbit/s; behind
//! the policer it got 2.3 (burst of 1 ms) to 54 (burst of 100 ms).

use serde::Serialize;

use crate::facts::{CLOUD_HYPERVISOR, FIRECRACKER, Place, RateLimit};
use crate::policy::assign::{Interface, assign};
use crate::policy::flow::Flow;
use crate::policy::units::LEAST_TIME;
use crate::policy::{Class, Direction, Entry, Kind, Matcher, Policy};
use crate::rate::BitRate;
use crate::rules::change::{
    Names, set_anew, unlimited_by_hypervisor, unlimited_by_libvirt, unlimited_by_ovs, unlimited_by_proxmox,
    unlimited_by_tc,
};

/// An interface with others' limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Limited {
    /// The interface.
    pub interface: Interface,
    /// Its guest, if known.
    pub guest: Option<String>,
    /// Its uplink, if known.
    pub uplink: Option<String>,
    /// Its names in its manager's configuration.
    pub place: Place,
    /// The limits.
    pub limits: Vec<RateLimit>,
}

/// A limit besides the policy's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Conflict {
    /// The interface.
    pub interface: String,
    /// Its guest, if known.
    pub guest: Option<String>,
    /// The other limit.
    pub limit: RateLimit,
    /// Its class in this direction; null without one.
    pub class: Option<String>,
    /// The minimum of that class, in bit/s.
    pub min_bps: Option<BitRate>,
    /// Its maximum, in bit/s.
    pub max_bps: Option<BitRate>,
    /// What comes of both together, a sentence.
    pub why: Vec<String>,
    /// The shell command that removes the limit.
    pub take_off: String,
}

/// All limits besides the policy's.
pub fn conflicts(policy: &Policy, all: &[Limited]) -> Vec<Conflict> {
    all.iter().flat_map(|limited| limited.limits.iter().map(|limit| conflict(policy, limited, limit))).collect()
}

fn conflict(policy: &Policy, limited: &Limited, limit: &RateLimit) -> Conflict {
    let entry = assign(policy, &limited.interface).map(|a| a.entry);
    let class = entry.and_then(|entry| Some((entry, entry.class_in(limit.direction)?)));
    let capacity = |entry: &Entry| policy.uplinks.get(&entry.uplink).map_or(BitRate::MAX, |uplink| uplink.capacity);
    let member = class.map(|(entry, name)| policy.class(name).member(capacity(entry)));
    let names = class.zip(member).map(|((_, name), member)| (name, member.min, member.max));
    Conflict {
        interface: limited.interface.name.clone(),
        guest: limited.guest.clone(),
        limit: limit.clone(),
        class: class.map(|(_, name)| name.to_owned()),
        min_bps: member.map(|m| m.min),
        max_bps: member.map(|m| m.max),
        why: vec![effect(limit, names)],
        take_off: take_off(limited, &limit.by),
    }
}

/// What comes of a limit and of a class with its minimum and maximum: one sentence, of what counts most.
fn effect(limit: &RateLimit, class: Option<(&str, BitRate, BitRate)>) -> String {
    let (by, most) = (limit.shown_by(), limit.most());
    if limit.missing {
        return format!("{by} is configured to limit it to {most}, but the kernel has no such limit now");
    }
    let Some((name, min, max)) = class else {
        return format!(
            "the policy has it in no class for this direction: {by}'s limit holds, and vmio knows nothing of it"
        );
    };
    if limit.hurts_tcp() && most <= max {
        return format!(
            "{by} drops what is above {most} at once: TCP gets less than that, and the figures of class {name} are not met"
        );
    }
    if most < min {
        return format!("class {name} guarantees {min}, but {by} lets no more than {most} pass");
    }
    if most < max {
        return format!("{by}'s limit of {most} holds; the maximum of class {name}, {max}, is never reached");
    }
    format!("the maximum of class {name}, {max}, holds: {by}'s limit of {most} is not lower")
}

/// The command that removes a limit from an interface.
fn take_off(limited: &Limited, by: &str) -> String {
    let (names, interface) = (Names(&limited.place), limited.interface.name.as_str());
    let own: Vec<&RateLimit> = limited.limits.iter().filter(|limit| limit.by == by).collect();
    match by {
        "libvirt" => unlimited_by_libvirt(names, limited.place.target.as_deref().unwrap_or(interface), &own),
        "proxmox" => unlimited_by_proxmox(names, interface),
        "openvswitch" => unlimited_by_ovs(interface, &own),
        FIRECRACKER | CLOUD_HYPERVISOR => unlimited_by_hypervisor(&limited.place, &own).unwrap_or_default(),
        "cni" => set_anew(by).unwrap_or_default().to_owned(),
        "lxd" | "incus" => format!("{}\n{}", set_anew(by).unwrap_or_default(), unlimited_by_tc(interface, &own)),
        _ => unlimited_by_tc(interface, &own),
    }
}

/// The policy that replaces both, and the parts of the limits that it could not take over, a sentence each.
///
/// An interface whose other limit is below its class's maximum gets a class of its own: the same with that maximum. A limit
/// below the class's minimum is not taken over: whoever wrote the policy wants more. An interface without a class gets one
/// with that maximum only. So no limit becomes a minimum, and no minimum goes down.
pub fn replaced(policy: &Policy, all: &[Limited], there: &[Interface]) -> (Policy, Vec<String>) {
    let (mut next, mut left) = (policy.clone(), Vec::new());
    for limited in all {
        let found = assign(policy, &limited.interface).map(|a| a.entry);
        let Some(uplink) = found.map(|e| e.uplink.clone()).or_else(|| limited.uplink.clone()) else {
            left.push(format!("{}: the uplink that it shares is not known", limited.interface.name));
            continue;
        };
        let capacity = policy.uplinks.get(&uplink).map_or(BitRate::MAX, |uplink| uplink.capacity);
        let mut classes = Direction::ALL.map(|way| found.and_then(|e| e.class_in(way)).map(str::to_owned));
        for (way, class) in Direction::ALL.into_iter().zip(&mut classes) {
            let lowest = limited.limits.iter().filter(|l| l.direction == way && !l.part).min_by_key(|l| l.most());
            let Some(limit) = lowest.filter(|limit| limit.most() < capacity) else { continue };
            let most = limit.most();
            let min = class.as_deref().map_or(BitRate::ZERO, |name| policy.class(name).min_on(capacity));
            if most < min {
                left.push(format!(
                    "{}: {}'s {most} on what it {} is below the minimum of class {} ({min}), so it is not taken over: \
                     take it off",
                    limited.interface.name,
                    limit.shown_by(),
                    if way == Direction::GuestTx { "sends" } else { "receives" },
                    class.as_deref().unwrap_or_default()
                ));
                continue;
            }
            let name = lowered(&mut next, class.as_deref(), most, capacity);
            if let Some(old) = class.as_ref().filter(|old| **old != name && policy.class(old).delay.is_some()) {
                left.push(format!(
                    "{}: the targets of delay of class {old} are left out; priority and queue stay",
                    limited.interface.name
                ));
            }
            *class = Some(name);
        }
        let [class, rx_class] = classes;
        if found.is_some_and(|e| e.class == class && e.rx_class == rx_class) {
            continue;
        }
        let alone = |entry: &&Entry| {
            let others =
                there.iter().filter(|i| (i.index, &i.name) != (limited.interface.index, &limited.interface.name));
            entry.matcher.is_exact() && others.filter_map(|i| assign(policy, i)).all(|a| a.entry != *entry)
        };
        if let Some(own) = found.filter(alone).and_then(|e| next.entries.iter_mut().find(|n| n.matcher == e.matcher)) {
            (own.class, own.rx_class) = (class, rx_class);
            continue;
        }
        let Some(matcher) = own_matcher(&next, &limited.interface, there) else {
            let name = &limited.interface.name;
            left.push(format!("{name}: other entries match it too: narrow them"));
            continue;
        };
        // The first match in the order of the file applies.
        let place = found.and_then(|e| next.entries.iter().position(|n| n.matcher == e.matcher));
        let entry = Entry {
            matcher,
            class,
            rx_class,
            uplink,
            addresses: found.map(|e| e.addresses.clone()).unwrap_or_default(),
            router: found.is_some_and(|e| e.router),
            place: String::new(),
        };
        next.entries.insert(place.unwrap_or(next.entries.len()), entry);
    }
    fit(&mut next, policy, &mut left);
    (next, left)
}

/// Name of a class like this one (or without any), with a lower maximum.
fn lowered(policy: &mut Policy, class: Option<&str>, most: BitRate, capacity: BitRate) -> String {
    let old = class.map_or_else(Class::default, |name| policy.class(name).clone());
    if old.max.unwrap_or(capacity) <= most
        && let Some(name) = class
    {
        return name.to_owned();
    }
    let max = old.max.map_or(most, |max| max.min(most));
    let flows = old.flows.iter().map(|f| Flow { max: f.max.map(|of_flow| of_flow.min(max)), ..f.clone() }).collect();
    // More members make targets less certain.
    let queue = old.queue_time().map(|time| time.max(LEAST_TIME));
    let new = Class { max: Some(max), queue, delay: None, flows, ..old };
    let rate = max.to_string().replace(' ', "").replace("/s", "");
    let stem: String = class.unwrap_or("limit").chars().take(32).collect();
    let mut name = format!("{stem}-{rate}");
    // A different class has that name.
    while policy.classes.get(&name).is_some_and(|other| *other != new) {
        name.push('x');
    }
    policy.classes.insert(name.clone(), new);
    name
}

/// A matcher for this interface alone, and for no name that another entry of its kind matches.
fn own_matcher(policy: &Policy, interface: &Interface, there: &[Interface]) -> Option<Matcher> {
    let others = || there.iter().filter(|other| (other.index, &other.name) != (interface.index, &interface.name));
    let vm = interface.vms.iter().filter(|vm| others().all(|o| !o.vms.contains(vm))).map(|vm| (Kind::Vm, vm));
    let netns = interface.netns.iter().filter(|n| others().all(|o| o.netns.as_ref() != Some(n)));
    let mac = interface.macs.iter().filter(|mac| others().all(|o| !o.macs.contains(mac)));
    let all = vm.chain(netns.map(|n| (Kind::Netns, n))).chain(mac.map(|mac| (Kind::Mac, mac)));
    let all = all.chain([(Kind::Name, &interface.name)]);
    let free = |m: &Matcher| m.is_exact() && policy.entries.iter().all(|e| e.matcher.overlap(m).is_none());
    all.filter_map(|(kind, text)| Matcher::new(kind, text).ok()).find(free)
}

/// Minima of named interfaces must fit, those of patterns need not: an interface taken out of a pattern loses a minimum
/// that would not fit.
fn fit(next: &mut Policy, policy: &Policy, left: &mut Vec<String>) {
    for (uplink, written) in policy.uplinks.clone() {
        for way in Direction::ALL {
            while next.minima(&uplink, way, written.capacity).iter().map(|(_, m)| *m).sum::<BitRate>()
                > written.capacity
            {
                let new = |e: &Entry| !policy.entries.iter().any(|old| old.matcher == e.matcher);
                let min = |e: &Entry| {
                    e.class_in(way).map_or(BitRate::ZERO, |class| next.class(class).min_on(written.capacity))
                };
                let last = next.entries.iter().rposition(|e| e.uplink == uplink && new(e) && min(e) > BitRate::ZERO);
                let Some(last) = last else { break };
                let name = next.entries[last].class_in(way).unwrap_or_default().to_owned();
                let class = Class { min: Some(BitRate::ZERO), delay: None, ..next.class(&name).clone() };
                let bare = format!("{name}-nomin");
                left.push(format!("{}: its minimum does not fit and is left out", next.entries[last].matcher));
                next.classes.insert(bare.clone(), class);
                let entry = &mut next.entries[last];
                *(if way == Direction::GuestTx { &mut entry.class } else { &mut entry.rx_class }) = Some(bare);
            }
        }
    }
    // Removes its classes that are no longer used.
    let used = |name: &String| next.entries.iter().any(|e| [&e.class, &e.rx_class].contains(&&Some(name.clone())));
    let gone: Vec<String> =
        next.classes.keys().filter(|name| !policy.classes.contains_key(*name) && !used(name)).cloned().collect();
    next.classes.retain(|name, _| !gone.contains(name));
}

#[cfg(test)]
mod tests;
