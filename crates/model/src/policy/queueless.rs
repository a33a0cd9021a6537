//! What needs queues at an uplink, of what guests send. A policy that asks for maxima alone, each of which drops what
//! is above it, is enforced by token buckets, and the uplink keeps the queue that it has. Whether it does depends on
//! the policy alone and not on the guests that are there, so that none that comes or goes changes it.

use std::collections::BTreeSet;
use std::fmt;

use super::{Class, DEFAULT, Direction, HOST, Policy, Uplink};
use crate::rate::BitRate;

/// How an uplink without queues is shown.
pub const SHOWN: &str = "no queue; maxima by token bucket";

/// What of a policy only queues enforce at an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedsQueues<'a> {
    /// No class on it drops its excess, so what it asks for is how members share.
    Sharing,
    /// A key of a class.
    Key {
        /// The class.
        class: &'a str,
        /// The key; of `priority` and `weight` that it differs from those of `host`.
        key: &'static str,
    },
}

impl fmt::Display for NeedsQueues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NeedsQueues::Sharing => f.write_str("no class on it has excess = \"drop\""),
            NeedsQueues::Key { class, key } => write!(f, "class.{class}.{key}"),
        }
    }
}

impl Policy {
    /// The first thing for which an uplink needs queues of what guests send; `None` where token buckets enforce all
    /// that the policy asks for: a class on it drops its excess; and each class on it, with `host` and `default`, has
    /// the same priority and weight, no minimum, no maximum unless it drops, no length of a queue, no target of delay,
    /// and no flow classes.
    pub fn needs_queues(&self, uplink: &str) -> Option<NeedsQueues<'_>> {
        let Some(Uplink { capacity, .. }) = self.uplinks.get(uplink) else { return Some(NeedsQueues::Sharing) };
        let entries = self.entries.iter().filter(|entry| entry.uplink == uplink);
        let guests: BTreeSet<&str> = entries.filter_map(|entry| entry.class_in(Direction::GuestTx)).collect();
        if !guests.iter().any(|name| self.class(name).excess.drops()) {
            return Some(NeedsQueues::Sharing);
        }
        let host = self.class(HOST);
        let mut all = [HOST, DEFAULT].into_iter().chain(guests);
        all.find_map(|class| Some(NeedsQueues::Key { class, key: queued(self.class(class), host, *capacity)? }))
    }
}

/// The first key of a class that only queues enforce.
fn queued(class: &Class, host: &Class, capacity: BitRate) -> Option<&'static str> {
    let drops = class.excess.drops();
    let keys = [
        ("delay", class.delay.is_some()),
        ("queue", class.queue.is_some()),
        ("min", class.min_on(capacity) > BitRate::ZERO),
        ("max", class.max.is_some() && !drops),
        ("priority", class.priority != host.priority),
        ("weight", class.weight != host.weight),
        ("local", class.limit_local && !drops),
        ("flow", !class.flows.is_empty()),
    ];
    keys.into_iter().find(|(_, is_asked)| *is_asked).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::policy::Links;
    use crate::policy::delay::DelayTarget;

    const TEXT: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[uplink.eth1]
capacity = \"1Gbit\"
[class.host]
min = \"0bit\"
priority = 4
[class.default]
priority = 4
[class.low]
max = \"10Mbit\"
excess = \"drop\"
local = \"limit\"
[class.open]
[class.gold]
min = \"10Mbit\"
[[interface]]
match = { name = \"tap*\" }
class = \"low\"
rx_class = \"gold\"
uplink = \"eth0\"
[[interface]]
match = { name = \"veth*\" }
class = \"open\"
uplink = \"eth0\"
[[interface]]
match = { name = \"vnet*\" }
class = \"gold\"
uplink = \"eth1\"
";

    /// Of this text, at this uplink.
    fn needs(text: &str, uplink: &str) -> Option<String> {
        let policy = Policy::read(&[("guard.toml", text)], &Links::default()).unwrap().policy;
        policy.needs_queues(uplink).map(|needs| needs.to_string())
    }

    #[test]
    fn maxima_alone_need_no_queues() {
        assert_eq!(needs(TEXT, "eth0"), None, "what is received, and another uplink's classes, are no matter");
        let sharing = Some("no class on it has excess = \"drop\"");
        assert_eq!(needs(TEXT, "eth1").as_deref(), sharing);
        assert_eq!(needs(TEXT, "eth2").as_deref(), sharing, "it has no such uplink");
        let waits = TEXT.replace("excess = \"drop\"\nlocal = \"limit\"\n", "");
        assert_eq!(needs(&waits, "eth0").as_deref(), sharing);
    }

    #[test]
    fn each_key_that_only_queues_enforce_is_named() {
        for (line, instead, named) in [
            ("min = \"0bit\"\n", "", "class.host.min"),
            ("min = \"0bit\"\n", "min = \"0bit\"\nmax = \"900Mbit\"\n", "class.host.max"),
            ("[class.default]\npriority = 4", "[class.default]", "class.default.priority"),
            ("priority = 4\n[class.default]", "[class.default]", "class.default.priority"),
            ("[class.open]", "[class.open]\nmin = \"1Mbit\"", "class.open.min"),
            ("[class.open]", "[class.open]\nmax = \"1Mbit\"", "class.open.max"),
            ("[class.open]", "[class.open]\npriority = 3", "class.open.priority"),
            ("[class.open]", "[class.open]\nweight = 2", "class.open.weight"),
            ("[class.open]", "[class.open]\nqueue = \"20ms\"", "class.open.queue"),
            ("[class.open]", "[class.open]\nlocal = \"limit\"", "class.open.local"),
            ("local = \"limit\"", "queue = \"20ms\"", "class.low.queue"),
            ("local = \"limit\"", "min = \"1Mbit\"", "class.low.min"),
            ("local = \"limit\"", "[[class.low.flow]]\nname = \"ef\"\nmatch = { dscp = \"ef\" }", "class.low.flow"),
        ] {
            assert!(TEXT.contains(line), "{line}");
            assert_eq!(needs(&TEXT.replacen(line, instead, 1), "eth0").as_deref(), Some(named), "{instead}");
        }
    }

    #[test]
    fn a_target_of_delay_needs_a_queue() {
        let mut policy = Policy::read(&[("guard.toml", TEXT)], &Links::default()).unwrap().policy;
        policy.classes.get_mut("open").unwrap().delay = Some(DelayTarget::default());
        assert_eq!(policy.needs_queues("eth0"), Some(NeedsQueues::Key { class: "open", key: "delay" }));
    }
}
