//! `mtu`: the largest packet that the interfaces of a path take, in bytes without the Ethernet header, on both ends
//! and on all between them. They are in namespaces of vmio's own and in its guests, so nothing of the host is
//! changed: they are set back for the cells to come, and go with their owner.

use std::time::Duration;

use vmio_model::cell::{Actor, Subject};
use vmio_node::{Exec, Node};

use super::{Applied, Error, Fit, Result, Setting, Undo, Where};
use crate::nets::Port;

/// Entry `mtu`.
pub struct Mtu;

/// IPv4 needs no more of a link (RFC 791, section 3.2); less than IPv6 asks for (1,280) is of no use today.
const LEAST: u32 = 576;
/// The most that veth and tap take (Linux, `ETH_MAX_MTU`).
const MOST: u32 = 65_535;

impl Setting for Mtu {
    fn name(&self) -> &'static str {
        "mtu"
    }
    fn about(&self) -> &'static str {
        "the largest packet of the actor's path, in bytes, on both ends and on all between them"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["1500", "9000"]
    }
    fn reader(&self) -> fn(&str) -> std::result::Result<String, String> {
        |text| bytes(text).map(|n| n.to_string())
    }
    fn fits(&self, actor: &Actor) -> Fit {
        match &actor.subject {
            Subject::Path { network, .. } if network == "loopback" => {
                Fit::Refused("the loopback interface has no wire whose packets could be larger".into())
            }
            Subject::Path { .. } => Fit::Sets,
            _ => Fit::Nothing("mtu is a path's, and no actor works over one".into()),
        }
    }
    fn apply(&self, value: &str, on: &Where<'_>) -> Result<Applied> {
        let wanted = bytes(value).map_err(Error::Refused)?;
        let own = Port { node: on.end.node.clone(), enter: on.end.enter.clone(), interface: own_interface(on)? };
        // Ports before their bridge, which takes no more than the least of them.
        let ports: Vec<Port> = on.ports.iter().cloned().chain([own]).collect();
        let mut before: Vec<(Port, u32)> = Vec::new();
        let set = ports.iter().try_for_each(|port| {
            before.push((port.clone(), found(port)?));
            set(port, wanted)?;
            match found(port)? {
                mtu if mtu == wanted => Ok(()),
                mtu => Err(Error::NotAsAsked { asked: wanted.to_string(), found: mtu.to_string() }),
            }
        });
        let undo: Undo = Box::new(move |_| before.iter().rev().try_for_each(|(port, mtu)| self::set(port, *mtu)));
        match set {
            Ok(()) => Ok(Applied { effective: wanted.to_string(), undo }),
            Err(e) => {
                undo(on.journal)?;
                Err(e)
            }
        }
    }
}

fn bytes(text: &str) -> std::result::Result<u32, String> {
    let wrong = || format!("{text:?} is no MTU: it is written in bytes, {LEAST} to {MOST}, like 1500 or 9000");
    let mtu = text.parse::<u32>().ok().filter(|mtu| mtu.to_string() == text);
    mtu.filter(|mtu| (LEAST..=MOST).contains(mtu)).ok_or_else(wrong)
}

/// What `ip` says on a machine, in its namespace.
fn ip(node: &dyn Node, enter: &[String], args: &[&str]) -> Result<String> {
    let mut words = enter.iter().cloned().chain(["ip".to_owned()]).chain(args.iter().map(|a| (*a).to_owned()));
    let asked = Exec::new(words.next().unwrap_or_default()).args(words).limit(Duration::from_secs(20));
    let output = node.exec(&asked)?;
    if !output.ok() {
        return Err(Error::Refused(format!("`ip {}` failed: {}", args.join(" "), output.err().trim())));
    }
    Ok(output.out())
}

/// The interface that has the actor's address: `2: eth0    inet 198.18.0.2/24 …` (ip-address(8), `-oneline`).
fn own_interface(on: &Where<'_>) -> Result<String> {
    let missing = |what: String| Error::Refused(what);
    let address = on.end.address().ok_or_else(|| missing("the actor was given no address".into()))?.to_string();
    let text = ip(&*on.end.node, &on.end.enter, &["-oneline", "address", "show", "to", &address])?;
    let name = text.split_whitespace().nth(1).map(str::to_owned);
    name.ok_or_else(|| missing(format!("no interface of {} has the address {address}", on.end.node.name())))
}

/// The MTU in force: `2: eth0@if3: <UP> mtu 1500 …` (ip-link(8)).
fn found(port: &Port) -> Result<u32> {
    let text = ip(&*port.node, &port.enter, &["-oneline", "link", "show", "dev", &port.interface])?;
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu").skip(1);
    let mtu = words.next().and_then(|word| word.parse().ok());
    mtu.ok_or_else(|| Error::Refused(format!("`ip` tells no MTU of {}: {}", port.interface, text.trim())))
}

fn set(port: &Port, mtu: u32) -> Result<()> {
    ip(&*port.node, &port.enter, &["link", "set", &port.interface, "mtu", &mtu.to_string()]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_one_spelling() {
        assert_eq!((bytes("1500"), bytes("9000")), (Ok(1500), Ok(9000)));
        for wrong in ["", "01500", "1500b", "575", "65536", "-1", "1 500", "9k"] {
            assert!(bytes(wrong).is_err_and(|why| why.contains("576 to 65535")), "{wrong}");
        }
    }
}
