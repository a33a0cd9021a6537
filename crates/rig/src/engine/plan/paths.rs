//! Why an actor cannot work over the path that a study names.

use std::collections::BTreeMap;

use vmio_model::cell::{Cell, Nic, Side, Subject};

use super::why_not::WhyNot;
use crate::nets::{self, Network};
use crate::{nics, workloads};

/// The network of a path, or why the path cannot be.
pub(super) fn unreachable(name: &str, peer: &str, nic: Option<&Nic>) -> Result<&'static dyn Network, WhyNot> {
    let network = nets::find(name).ok_or_else(|| WhyNot::NoNetwork(name.to_owned()))?;
    if !network.peers().contains(&peer) {
        let peers = network.peers().to_vec();
        return Err(WhyNot::NoEnd { network: name.to_owned(), peer: peer.to_owned(), peers });
    }
    if let Some(nic) = nic {
        if !network.takes_guests() {
            let others = nets::ALL.iter().filter(|n| n.takes_guests()).map(|n| n.name()).collect();
            return Err(WhyNot::NoGuests { network: name.to_owned(), others });
        }
        let card = nics::find(&nic.model).ok_or_else(|| WhyNot::NoCard(nic.model.clone()))?;
        card.fits(nic).map_err(WhyNot::Card)?;
    }
    Ok(network)
}

/// Why no third end of a network can send to the peer beside the actor.
pub(super) fn no_co_sender(network: &dyn Network, peer: &str, end: &str, workload: &str) -> Option<WhyNot> {
    let others: Vec<&str> = network.peers().iter().copied().filter(|other| *other != peer).collect();
    if !others.contains(&end) {
        let larger = nets::ALL.iter().filter(|network| network.peers().len() > 1).map(|network| network.name());
        let instead = if others.is_empty() { larger.collect() } else { others };
        let (path, end) = (format!("{}.{peer}", network.name()), end.to_owned());
        return Some(WhyNot::NoCoSender { path, end, instead });
    }
    let takes = workloads::find(workload)?.takes_co_sender();
    (!takes).then(|| WhyNot::OneSender { workload: workload.to_owned() })
}

/// Why the actors of a cell cannot work at once: a guest uses one device at a time on a network that all share.
pub(super) fn two_cards_at_once(cell: &Cell) -> Option<WhyNot> {
    let mut used: BTreeMap<(Side, String), Nic> = BTreeMap::new();
    cell.with_neighbours().find_map(|actor| {
        let Subject::Path { network, nic: Some(nic), .. } = actor.subject else { return None };
        let side = actor.side.to_string();
        let before = used.entry((actor.side, network.clone())).or_insert_with(|| nic.clone());
        let is_shared = nets::find(&network).is_some_and(|network| network.is_shared());
        let cards = [before.label(), nic.label()];
        (is_shared && *before != nic).then_some(WhyNot::TwoCards { side, network, cards })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::cell::Actor;

    use super::*;

    #[test]
    fn a_guest_works_by_one_device_on_a_network_that_all_share() {
        let actor = |network: &str, nth: u32, nic: &str, peer: &str| {
            let subject = Subject::path(network, peer, Some(Nic::new(nic)));
            Cell::of(Side { nth, ..Side::of("qemu") }, subject, "iperf3-tcp").lead
        };
        let told = |one: Actor, other: Actor| {
            let mut cell = Cell::of(Side::native(), Subject::Machine, "openssl");
            cell.beside = vec![one, other];
            two_cards_at_once(&cell)
        };
        let first = || actor("shared", 0, "virtio-net", "host");
        assert_eq!(told(first(), actor("shared", 0, "virtio-net", "remote")), None);
        assert_eq!(told(first(), actor("shared", 1, "e1000", "host")), None, "another guest");
        assert_eq!(told(first(), actor("bridge", 0, "e1000", "host")), None, "a bridge of its own");
        let said = told(first(), actor("shared", 0, "e1000", "host")).unwrap().to_string();
        assert!(said.contains("by virtio-net and by e1000 at once") && said.contains("nth = 2"), "{said}");
        // As whom another one sends to, too.
        assert!(told(actor("shared", 0, "virtio-net", "neighbour"), actor("shared", 1, "e1000", "host")).is_some());
    }

    #[test]
    fn a_path_that_cannot_be_is_told() {
        let nic = |model: &str| Some(Nic::new(model));
        let told =
            |network: &str, peer: &str, nic: Option<Nic>| unreachable(network, peer, nic.as_ref()).map(Network::name);
        assert_eq!((told("veth", "host", None), told("bridge", "host", nic("e1000"))), (Ok("veth"), Ok("bridge")));
        assert!(told("veth", "remote", None).unwrap_err().to_string().contains("no end remote: it has host"));
        assert!(told("veth", "host", nic("e1000")).unwrap_err().to_string().contains("use bridge or uplink"));
        let vhost = Nic { vhost: true, ..Nic::new("e1000") };
        assert!(told("bridge", "host", Some(vhost)).unwrap_err().to_string().contains("virtio-net"));
    }

    #[test]
    fn a_second_sender_needs_an_end_and_a_workload_of_two() {
        let told = |network: &str, peer: &str, end: &str, workload: &str| {
            no_co_sender(nets::find(network).unwrap(), peer, end, workload).map(|why| why.to_string())
        };
        assert_eq!(told("shared", "remote", "neighbour", "udp-1mbit-64"), None);
        assert_eq!(told("uplink", "remote", "host", "udp-1mbit-64"), None);
        let says = |said: Option<String>, words: &str| assert!(said.as_ref().unwrap().contains(words), "{said:?}");
        says(
            told("shared", "remote", "remote", "udp-1mbit-64"),
            "can send to shared.remote at the same time as the actor: use host",
        );
        says(told("uplink", "remote", "neighbour", "udp-1mbit-64"), "neighbour");
        says(told("loopback", "host", "host", "udp-1mbit-64"), "use uplink or shared");
        says(told("shared", "remote", "host", "iperf3-tcp"), "iperf3-tcp has one sender: use udp-<rate>-<bytes>");
    }
}
