//! `mtu`: the largest packet that the interfaces of a path take, in bytes without the Ethernet header, on both ends
//! and on all between them; or, as most mismatches are, more on both ends and where the actor is plugged in than the
//! bridge and its uplink take. They are in namespaces of vmio's own and in its guests, so nothing of the host is
//! changed: they are set back for the cells to come, and go with their owner.

use vmio_model::cell::Actor;
use vmio_model::result::WorkloadTraits;
use vmio_model::study::WordError;

use super::ports::{OfPorts, is_linked, is_served_over_link, over_a_wire};
use super::{ByDefault, Error, Fit, Result, Setting, Undos, Where};
use crate::nets::{LINK_MTU, Port};
use crate::nics;

/// Entry `mtu`.
pub struct Mtu;

/// IPv4 needs no more of a link (RFC 791, section 3.2); less than IPv6 asks for (1,280) is of no use today.
const LEAST: u32 = 576;
/// What interfaces have where nobody says anything.
const ETHERNET: &str = "1500";
/// The most that a veth, a tap and a bridge take (ETH_MAX_MTU); what a guest's card takes is its own.
const MOST: u32 = 65_535;

impl Setting for Mtu {
    fn name(&self) -> &'static str {
        "mtu"
    }
    fn about(&self) -> &'static str {
        "the largest packet of the actor's path, in bytes, all along it or over a link that takes less"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["1500", "9000", "9000-over-1500"]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| Mtus::read(text).map(|_| text.to_owned())
    }
    /// The link to what serves a disk stands at more, which connections are made with.
    fn by_default(&self, actor: &Actor, _workload: &WorkloadTraits) -> Option<ByDefault> {
        is_served_over_link(actor).then_some(ByDefault { value: ETHERNET, otherwise: None })
    }
    fn fits(&self, value: &str, actor: &Actor) -> Fit {
        let card = actor.nic().and_then(|nic| nics::find(&nic.model));
        match (over_a_wire(actor, "it is", "could be larger"), card, Mtus::read(value)) {
            (Fit::Sets, Some(card), Ok(Mtus { ends, .. })) if ends > card.most_mtu_bytes => {
                Fit::Refused(format!("{} takes packets of {} bytes at most", card.name, card.most_mtu_bytes))
            }
            (Fit::Sets, _, Ok(mtus)) if mtus.ends > LINK_MTU && is_served_over_link(actor) => Fit::Refused(format!(
                "connections to what serves the disk are made with an MTU of {LINK_MTU}: use that or less"
            )),
            (Fit::Sets, _, Ok(mtus)) if mtus.link < mtus.ends && is_served_over_link(actor) => {
                Fit::Refused("a connection to what serves the disk would not outlive that: write one MTU".into())
            }
            (Fit::Sets, _, Ok(mtus)) if mtus.link < mtus.ends && !is_linked(actor) => {
                Fit::Refused("no link between hosts is on the way: use the network uplink with the peer remote".into())
            }
            (fit, ..) => fit,
        }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let Mtus { ends, link } = Mtus::read(value)?;
        let plug = on.ports.iter().find(|port| port.is_plug);
        // The bridge and its uplink: in the host's namespace, as what the actor is plugged in by is.
        let is_link = |port: &Port| plug.is_some_and(|plug| port.enter == plug.enter && !port.is_plug);
        if link < ends && !on.ports.iter().any(is_link) {
            return Err(Error::Refused("nothing between the ends could take less".into()));
        }
        let wanted = |port: &Port| if is_link(port) { link } else { ends };
        OfPorts { found, set, shown: |_, mtu| mtu.to_string() }.put(value, wanted, on, undos)
    }
}

/// What both ends take, and what the link between the hosts takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mtus {
    ends: u32,
    link: u32,
}

impl Mtus {
    /// `1500`, or `9000-over-1500`.
    fn read(text: &str) -> Result<Mtus, WordError> {
        let Some((ends, link)) = text.split_once("-over-") else {
            return bytes(text).map(|all| Mtus { ends: all, link: all });
        };
        let mtus = Mtus { ends: bytes(ends)?, link: bytes(link)? };
        let alike = || format!("{text:?}: the link takes less than the ends, as in 9000-over-1500; else write one MTU");
        if mtus.link < mtus.ends { Ok(mtus) } else { Err(WordError(alike())) }
    }
}

fn bytes(text: &str) -> Result<u32, WordError> {
    let wrong = || {
        WordError(format!(
            "invalid MTU {text:?}: bytes, {LEAST} to {MOST}, such as 1500 or 9000, or 9000-over-1500 for a \
             link that takes less than its ends"
        ))
    };
    let mtu = text.parse::<u32>().ok().filter(|mtu| mtu.to_string() == text);
    mtu.filter(|mtu| (LEAST..=MOST).contains(mtu)).ok_or_else(wrong)
}

/// The MTU in force: `2: eth0@if3: <UP> mtu 1500 …` (ip-link(8)).
fn found(port: &Port) -> Result<u32> {
    let text = port.ask("ip", &["-oneline", "link", "show", "dev", &port.interface])?;
    let mut words = text.split_whitespace().skip_while(|word| *word != "mtu").skip(1);
    let mtu = words.next().and_then(|word| word.parse().ok());
    mtu.ok_or_else(|| Error::Failed(format!("`ip` shows no MTU of {}: {}", port.interface, text.trim())))
}

fn set(port: &Port, mtu: u32) -> Result<()> {
    port.tell("ip", &["link", "set", &port.interface, "mtu", &mtu.to_string()])
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Cell, Side, Subject};

    use super::*;

    #[test]
    fn one_value_one_spelling() {
        assert_eq!((bytes("1500"), bytes("9000")), (Ok(1500), Ok(9000)));
        for wrong in ["", "01500", "1500b", "575", "65536", "-1", "1 500", "9k"] {
            assert!(bytes(wrong).is_err_and(|why| why.0.contains("576 to 65535")), "{wrong}");
        }
        let fits = |network: &str, peer: &str| {
            let path = Subject::path(network, peer, None);
            Mtu.fits("9000-over-1500", &Cell::of(Side::native(), path, "iperf3-tcp").lead)
        };
        assert_eq!(fits("uplink", "remote"), Fit::Sets);
        let (network, peer, co_sender) = ("uplink".into(), "remote".into(), Some("host".into()));
        let both = Cell::of(Side::native(), Subject::Path { network, peer, nic: None, co_sender }, "udp-1mbit-64").lead;
        assert!(matches!(Mtu.fits("9000", &both), Fit::Refused(why) if why.contains("second sender")));
        assert!(matches!(fits("bridge", "host"), Fit::Refused(why) if why.contains("no link between hosts")));
        let disk = Cell::on("native", "nbd", None, "dd-read").lead;
        assert_eq!(Mtu.fits("9000", &disk), Fit::Sets);
        assert!(matches!(Mtu.fits("9001", &disk), Fit::Refused(why) if why.contains("9000")));
        assert!(matches!(Mtu.fits("9000-over-1500", &disk), Fit::Refused(why) if why.contains("write one MTU")));
        assert_eq!(Mtus::read("9000-over-1500"), Ok(Mtus { ends: 9000, link: 1500 }));
        for wrong in ["1500-over-9000", "1500-over-1500"] {
            assert!(Mtus::read(wrong).is_err_and(|why| why.0.contains("takes less than the ends")), "{wrong}");
        }
        for wrong in ["9000-over-", "-over-1500", "9000-over-1500-over-600", "9000-over-01500"] {
            assert!(Mtus::read(wrong).is_err_and(|why| why.0.contains("invalid MTU")), "{wrong}");
        }
    }
}
