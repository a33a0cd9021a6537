//! `mtu`: the largest packet that the interfaces of a path take, in bytes without the Ethernet header, on both ends
//! and on all between them. They are in namespaces of vmio's own and in its guests, so nothing of the host is
//! changed: they are set back for the cells to come, and go with their owner.

use vmio_model::cell::Actor;

use super::ports::{OfPorts, over_a_wire};
use super::{Error, Fit, Result, Setting, Undos, Where};
use crate::nets::Port;
use crate::nics;

/// Entry `mtu`.
pub struct Mtu;

/// IPv4 needs no more of a link (RFC 791, section 3.2); less than IPv6 asks for (1,280) is of no use today.
const LEAST: u32 = 576;
/// The most that a veth, a tap and a bridge take (ETH_MAX_MTU); what a guest's card takes is its own.
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
    fn fits(&self, value: &str, actor: &Actor) -> Fit {
        let card = actor.nic().and_then(|nic| nics::find(&nic.model));
        match (over_a_wire(actor, "it is", "could be larger"), card, bytes(value)) {
            (Fit::Sets, Some(card), Ok(wanted)) if wanted > card.most_mtu_bytes() => {
                Fit::Refused(format!("{} takes packets of {} bytes at most", card.name(), card.most_mtu_bytes()))
            }
            (fit, ..) => fit,
        }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let wanted = bytes(value).map_err(Error::Refused)?;
        OfPorts { found, set, shown: |_, mtu| mtu.to_string() }.put(value, wanted, on, undos)
    }
}

fn bytes(text: &str) -> std::result::Result<u32, String> {
    let wrong = || format!("{text:?} is no MTU: it is written in bytes, {LEAST} to {MOST}, like 1500 or 9000");
    let mtu = text.parse::<u32>().ok().filter(|mtu| mtu.to_string() == text);
    mtu.filter(|mtu| (LEAST..=MOST).contains(mtu)).ok_or_else(wrong)
}

/// The MTU in force: `2: eth0@if3: <UP> mtu 1500 …` (ip-link(8)).
fn found(port: &Port) -> Result<u32> {
    let text = port.ask("ip", &["-oneline", "link", "show", "dev", &port.interface])?;
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu").skip(1);
    let mtu = words.next().and_then(|word| word.parse().ok());
    mtu.ok_or_else(|| Error::Failed(format!("`ip` tells no MTU of {}: {}", port.interface, text.trim())))
}

fn set(port: &Port, mtu: u32) -> Result<()> {
    port.tell("ip", &["link", "set", &port.interface, "mtu", &mtu.to_string()])
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
