//! A policy as text, which [`Policy::read`] reads back equal except for its places.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::delay;
use super::flow::Flow;
use super::groups::GroupKey;
use super::units::show_time;
use super::{Class, DEFAULT_PRIORITY, Excess, Framing, Guard, Policy, memory};
use crate::rate::BitRate;

/// The whole policy as TOML. Every capacity is written, also one known from the kernel.
pub fn text(policy: &Policy) -> String {
    let mut out = String::new();
    let Guard { period, allow_unenforced, on_conflict, spoofing, measure_delay } = policy.guard;
    let guard = Guard { measure_delay: delay::has_targets(&policy.classes), ..Guard::default() };
    if policy.guard != guard {
        let _ = write!(out, "[guard]\nperiod = \"{}\"\n", show_time(period));
        if allow_unenforced {
            out.push_str("allow_unenforced = true\n");
        }
        if measure_delay != guard.measure_delay {
            let _ = writeln!(out, "measure_delay = {measure_delay}");
        }
        for (word, is, other) in [
            ("on_conflict", on_conflict.word(), guard.on_conflict.word()),
            ("spoofing", spoofing.word(), guard.spoofing.word()),
        ] {
            if is != other {
                let _ = writeln!(out, "{word} = \"{is}\"");
            }
        }
    }
    for (name, uplink) in &policy.uplinks {
        let framing = if uplink.framing == Framing::ETHERNET { "ethernet" } else { "none" };
        let (name, capacity) = (key(name), uplink.capacity);
        let _ = write!(out, "{}[uplink.{name}]\ncapacity = \"{capacity}\"\nframing = \"{framing}\"\n", apart(&out));
        if !uplink.gateways.is_empty() {
            let _ = writeln!(out, "gateways = {}", list(&uplink.gateways));
        }
    }
    for (name, class) in &policy.classes {
        // For the built-in classes only differences are written.
        let implicit = Class::named(name);
        if *class == implicit && (name == super::HOST || name == super::DEFAULT) {
            continue;
        }
        let _ = write!(out, "{}[class.{}]\n{}", apart(&out), key(name), keys(class, &implicit));
        out.extend(class.flows.iter().map(|flow| of_flow(&key(name), flow)));
    }
    for entry in &policy.entries {
        let (kind, who) = (entry.matcher.kind.word(), quoted(&entry.matcher.text));
        let _ = write!(out, "{}[[interface]]\nmatch = {{ {kind} = {who} }}\n", apart(&out));
        for (word, class) in [("class", &entry.class), ("rx_class", &entry.rx_class)] {
            if let Some(class) = class {
                let _ = writeln!(out, "{word} = {}", quoted(class));
            }
        }
        let _ = writeln!(out, "uplink = {}", quoted(&entry.uplink));
        if !entry.addresses.is_empty() {
            let _ = writeln!(out, "addresses = {}", list(&entry.addresses));
        }
        if entry.router {
            out.push_str("router = true\n");
        }
    }
    out
}

/// Addresses as a list.
fn list(addresses: &[IpAddr]) -> String {
    let all: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    format!("[{}]", all.join(", "))
}

/// A blank line between sections.
fn apart(before: &str) -> &'static str {
    if before.is_empty() { "" } else { "\n" }
}

fn keys(class: &Class, implicit: &Class) -> String {
    let mut out = String::new();
    let priority = if class.delay.is_some() { delay::PRIORITY } else { implicit.priority };
    if class.priority != priority {
        let _ = writeln!(out, "priority = {}", class.priority);
    }
    for (word, rate) in [("min", class.min.filter(|min| Some(*min) != implicit.min)), ("max", class.max)] {
        if let Some(rate) = rate {
            let _ = writeln!(out, "{word} = \"{rate}\"");
        }
    }
    if class.weight != implicit.weight {
        let _ = writeln!(out, "weight = {}", class.weight);
    }
    let target = class.delay.unwrap_or_default();
    for (word, time) in [("queue", class.queue), ("delay", target.delay), ("jitter", target.jitter)] {
        if let Some(time) = time {
            let _ = writeln!(out, "{word} = \"{}\"", show_time(time));
        }
    }
    out.push_str(&of_excess(class.excess));
    for key in GroupKey::ALL {
        if let Some(value) = class.group.shown(key) {
            let value = if key == GroupKey::CpuWeight { value } else { quoted(&value) };
            let _ = writeln!(out, "{} = {value}", key.word());
        }
    }
    out.extend(class.memory.as_ref().map(memory::text));
    let switches = [
        (class.hard, "reserve = \"hard\"\n"),
        (class.over_max, "over_max = true\n"),
        (class.limit_local, "local = \"limit\"\n"),
    ];
    for (is, line) in switches {
        if is {
            out.push_str(line);
        }
    }
    out
}

fn of_excess(excess: Excess) -> String {
    if !excess.drops() {
        return String::new();
    }
    let burst = excess.burst().map_or_else(String::new, |burst| format!("burst = \"{}\"\n", show_time(burst)));
    format!("excess = \"{}\"\n{burst}", excess.word())
}

fn of_flow(class: &str, flow: &Flow) -> String {
    let (name, matcher) = (&flow.name, &flow.matcher);
    let mut out = format!("[[class.{class}.flow]]\nname = \"{name}\"\nmatch = {{ {matcher} }}\n");
    for (word, rate) in [("min", Some(flow.min).filter(|min| *min > BitRate::ZERO)), ("max", flow.max)] {
        if let Some(rate) = rate {
            let _ = writeln!(out, "{word} = \"{rate}\"");
        }
    }
    out.push_str(&of_excess(flow.excess));
    if flow.priority != DEFAULT_PRIORITY {
        let _ = writeln!(out, "priority = {}", flow.priority);
    }
    out
}

/// A TOML key, quoted where needed.
fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { name.to_owned() } else { quoted(name) }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::policy::Links;

    fn read(text: &str) -> Policy {
        let mut policy = Policy::read(&[("guard.toml", text)], &Links::default()).unwrap().policy;
        policy.entries.iter_mut().for_each(|entry| entry.place.clear());
        policy
    }

    #[test]
    fn what_is_written_reads_back_as_the_same() {
        let policy = read(
            r#"
[guard]
period = "2500us"
allow_unenforced = true
on_conflict = "restore"
spoofing = "drop"
measure_delay = false
[uplink.eth0]
capacity = "2.5Gbit"
framing = "ethernet"
[uplink."eth.1"]
capacity = "12345678bit"
gateways = ["192.0.2.1", "2001:db8::1"]
[class.host]
min = "0bit"
[class.default]
max = "10Mbit"
priority = 7
[class."a.b"]
priority = 1
min = "1Mbit"
max = "3.5Mbit"
weight = 3
reserve = "hard"
over_max = true
queue = "25ms"
local = "limit"
cpu_weight = 400
cpu_max = "150.5%"
memory_max = "4GiB"
[[class."a.b".flow]]
name = "voice"
match = { dscp = "ef", protocol = "udp", ports = [5060, "16384-32767"], address = "2001:db8::/32" }
min = "1Mbit"
max = "2Mbit"
priority = 1
[[class."a.b".flow]]
name = "bulk"
match = { ports = [873] }
max = "1Mbit"
excess = "drop"
burst = "20ms"
[class.plain]
max = "9Mbit"
excess = "drop"
memory_min = "1.5GiB"
memory_max = "3GiB"
memory_move = true
[class.prompt]
min = "500Mbit"
delay = "20ms"
jitter = "17500us"
[class.later]
priority = 4
memory_min = "256MiB"
min = "100Mbit"
queue = "2ms"
jitter = "200ms"
[[interface]]
match = { name = "prompt*" }
class = "prompt"
rx_class = "later"
uplink = "eth0"
[[interface]]
match = { vm = "we\\b\"*" }
class = "plain"
uplink = "eth0"
[[interface]]
match = { mac = "52:54:00:12:34:56" }
rx_class = "a.b"
class = "plain"
uplink = "eth.1"
addresses = ["192.0.2.7", "2001:db8::7"]
router = true
"#,
        );
        assert_eq!(read(&text(&policy)), policy, "{}", text(&policy));
        let plain = read("[uplink.eth0]\ncapacity = \"1Gbit\"\n");
        assert_eq!(text(&plain), "[uplink.eth0]\ncapacity = \"1 Gbit/s\"\nframing = \"none\"\n");
        let targeted = read("[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.gold]\nmin = \"9Mbit\"\ndelay = \"1s\"\n");
        assert!(!plain.guard.measure_delay && targeted.guard.measure_delay, "waits are measured for a target");
        assert!(!text(&targeted).contains("[guard]"));
        assert_eq!(read(&text(&targeted)), targeted);
    }
}
