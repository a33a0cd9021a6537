//! A policy of a study by plain HTB, put once by tc(8) as by hand: a root class with the link's rate, below it a class
//! for each actor with its minimum as rate, its maximum as ceiling and its priority, and a u32 filter for its address.
//! What matches no filter has a class of its own. Quanta and queues are as tc has them by default (tc-htb(8), "r2q").

use vmio_model::policy::Class;
use vmio_model::rate::BitRate;
use vmio_model::study::GuardPolicy;

use super::rate::at_root;
use super::uplink::{ends, plugged};
use super::{Error, Result, Undos, Where};
use crate::nets::Port;

/// The root class, that of the rest, and the first actor's; minor numbers are hexadecimal.
const ROOT: usize = 1;
const REST: usize = 2;
const FIRST: usize = 0x10;
/// The rate of a class without a minimum: HTB has none of 0.
const LEAST: BitRate = BitRate::new(8_000);

/// Puts it for the actor at this place: with the first one all classes, with each its filter.
pub(super) fn put(policy: &GuardPolicy, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
    let (all, place) = on.cell;
    let (_, uplink) = ends(on.ports)?;
    let device = uplink.interface.as_str();
    let mut found = "plain HTB".to_owned();
    if place == 0 {
        let carries = plugged(on.ports)?.carries;
        let classes = policy.contracts(all.len(), carries).map_err(|why| Error::Refused(why.to_string()))?;
        let made = uplink.clone();
        undos.on_host(move |_| remove(&made));
        for line in lines(device, &classes, carries) {
            uplink.tell("tc", &line.split(' ').collect::<Vec<_>>())?;
        }
        if !is_there(uplink)? {
            let (asked, found) = ("plain HTB".to_owned(), "another queue".to_owned());
            return Err(Error::NotAsAsked { asked, found });
        }
        let mut told: Vec<String> = classes.iter().map(said).collect();
        told.dedup();
        found = format!("plain HTB; {} on {device}", told.join("; "));
    }
    if policy.is_unmatched(place) {
        return Ok(found);
    }
    let none = "plain HTB tells actors apart by their addresses, and a disk has none: use another policy";
    let address = on.end.address().ok_or_else(|| Error::Refused(none.into()))?;
    let (from, to) = (format!("{address}/32"), format!("1:{:x}", FIRST + place));
    let filter = ["filter", "add", "dev", device, "parent", "1:", "protocol", "ip", "prio", "1", "u32"];
    uplink.tell("tc", &[&filter[..], &["match", "ip", "src", &from, "flowid", &to]].concat())?;
    Ok(found)
}

/// `rate 60 Mbit/s, ceil 120 Mbit/s, prio 0`.
fn said(class: &Class) -> String {
    let most = class.max.map_or_else(String::new, |max| format!(", ceil {max}"));
    format!("rate {}{most}, prio {}", class.min.unwrap_or(LEAST).max(LEAST), class.priority.saturating_sub(1))
}

/// The arguments of tc, a command a line.
fn lines(device: &str, classes: &[Class], carries: BitRate) -> Vec<String> {
    let class = |parent: &str, minor: usize, rate: BitRate, ceil: BitRate, prio: u8| {
        let (rate, ceil) = (rate.max(LEAST).bits(), ceil.max(LEAST).bits());
        format!(
            "class add dev {device} parent {parent} classid 1:{minor:x} htb rate {rate}bit ceil {ceil}bit prio {prio}"
        )
    };
    let mut all = vec![
        format!("qdisc replace dev {device} root handle 1: htb default {REST:x}"),
        class("1:", ROOT, carries, carries, 0),
        class("1:1", REST, LEAST, carries, 7),
    ];
    let one = |(nth, of): (usize, &Class)| {
        let (min, max) = (of.min_on(carries), of.max.unwrap_or(carries).min(carries));
        class("1:1", FIRST + nth, min, max, of.priority.saturating_sub(1))
    };
    all.extend(classes.iter().enumerate().map(one));
    all
}

/// Takes the queue off, if it is there: then the link has none, as before `rate`.
fn remove(uplink: &Port) -> Result<()> {
    let removed = uplink.tell("tc", &["qdisc", "del", "dev", &uplink.interface, "root"]);
    removed.or_else(|e| if is_there(uplink)? { Err(e) } else { Ok(()) })
}

/// Whether the root queue is HTB.
fn is_there(uplink: &Port) -> Result<bool> {
    Ok(at_root(uplink, "htb")?.is_some())
}

#[cfg(test)]
mod tests {
    use vmio_model::rate::MBIT as M;

    use super::*;

    #[test]
    fn a_class_each_below_the_links_rate() {
        let first = Class { priority: 1, min: Some(60 * M), max: Some(120 * M), ..Class::default() };
        let last = Class { priority: 3, min: Some(BitRate::ZERO), max: None, ..Class::default() };
        let told = lines("wire", &[first.clone(), last], 200 * M);
        assert_eq!(told[0], "qdisc replace dev wire root handle 1: htb default 2");
        assert_eq!(told[3], "class add dev wire parent 1:1 classid 1:10 htb rate 60000000bit ceil 120000000bit prio 0");
        assert_eq!(told[4], "class add dev wire parent 1:1 classid 1:11 htb rate 8000bit ceil 200000000bit prio 2");
        assert_eq!(said(&first), "rate 60 Mbit/s, ceil 120 Mbit/s, prio 0");
    }
}
