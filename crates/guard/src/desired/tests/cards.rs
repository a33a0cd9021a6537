//! Guests with a virtual function of the uplink's card.

use vmio_model::rate::MBIT as M;

use super::*;

fn assigned_vf(function: u32, vm: &str) -> DiscoveredInterface {
    let path = PacketPath { card: Some(function), ..PacketPath::default() };
    let mut found = found(0, &format!("eth0/vf{function}"), "vfio", "vfio", path);
    found.interface.vms = vec![vm.to_owned()];
    found
}

const CARDS: &str = "\
[uplink.eth0]
capacity = \"100Mbit\"
[class.gold]
priority = 2
max = \"40Mbit\"
[class.silver]
min = \"20Mbit\"
[[interface]]
match = { name = \"tap*\" }
class = \"silver\"
[[interface]]
match = { vm = \"web*\" }
class = \"gold\"
";

/// A card lends nothing: it is given what is a guest's when everybody wants all, and the rest is the others'.
#[test]
fn card_limits_reduce_the_shared_rate() {
    let mut core = start(CARDS, vec![held(1, OPEN), assigned_vf(3, "web1")]).unwrap();
    let pool = &core.desired().pools[0];
    let card = &pool.cards[0];
    assert_eq!((card.name.as_str(), card.function, card.mbit, card.min), ("eth0/vf3", 3, 40, BitRate::ZERO));
    assert_eq!(pool.seats.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["host", "tap1", "default"]);
    assert_eq!(pool.pool.capacity, 60 * M);
    assert_eq!(pool.queue, Some(Queue::Uplink));
    let status = &core.status().unwrap()[0];
    assert_eq!(status.root_bps, 60 * M);
    let shown = status.members.last().unwrap();
    assert_eq!((shown.name.as_str(), shown.limit_bps), ("eth0/vf3", Some(40 * M)));
    assert_eq!(shown.held.as_ref().unwrap().waits, QueueingPoint::Nic);
    // The minima of the host and of silver, 22 Mbit/s, are kept; 39 each are left.
    core.set_interfaces(vec![held(1, OPEN), assigned_vf(3, "web1"), assigned_vf(4, "web2")]).unwrap();
    let pool = &core.desired().pools[0];
    assert_eq!(pool.cards.iter().map(|c| c.mbit).collect::<Vec<_>>(), [39, 39]);
    assert_eq!(pool.pool.capacity, 22 * M);
    core.set_interfaces(vec![held(1, OPEN)]).unwrap();
    assert_eq!(core.desired().pools[0].pool.capacity, 100 * M);
}

#[test]
fn function_of_another_card_is_refused() {
    let mut other = assigned_vf(3, "web1");
    other.paths = [("eth1".to_owned(), PacketPath { card: Some(3), ..PacketPath::default() })].into();
    let Err(CoreError::Refused(refusal)) = start(&CARDS.replace("web*", "web1"), vec![other]) else { panic!() };
    assert!(refusal.0[0].contains("the uplink's own card"), "{refusal}");
}

#[test]
fn card_limit_is_at_least_one_megabit() {
    let tight = CARDS.replace("40Mbit", "300kbit");
    let mut core = start(&tight, vec![assigned_vf(3, "web1")]).unwrap();
    assert_eq!(core.desired().pools[0].cards[0].mbit, 1, "0 would be no limit");
    assert!(core.notes()[0].contains("less than 1 Mbit/s"), "{:?}", core.notes());
}

/// Nobody knows how long a card's queue is.
#[test]
fn targets_of_delay_are_refused_or_noted_in_cards() {
    let text = CARDS.replace("max = \"40Mbit\"\n", "min = \"30Mbit\"\nmax = \"40Mbit\"\ndelay = \"1s\"\n");
    let mut core = start(&text, vec![assigned_vf(3, "web1")]).unwrap();
    let noted = |note: &String| note.contains("does not know the targets of delay of class gold");
    let notes = core.notes();
    assert!(notes.iter().any(noted), "{notes:?}");
    let named = text.replace("web*", "web1");
    let Err(CoreError::Refused(refusal)) = start(&named, vec![assigned_vf(3, "web1")]) else { panic!() };
    assert!(refusal.0[0].contains("targets of delay of class gold; leave it out"), "{refusal}");
}

/// A card tells no packets apart.
#[test]
fn flow_classes_are_refused_or_noted_in_cards() {
    let flow = "max = \"40Mbit\"\n[[class.gold.flow]]\nname = \"voice\"\nmatch = { dscp = \"ef\" }\n";
    let text = CARDS.replace("max = \"40Mbit\"\n", flow);
    let mut core = start(&text, vec![assigned_vf(3, "web1")]).unwrap();
    assert_eq!(core.desired().pools[0].cards.len(), 1, "it is limited all the same");
    assert!(core.notes()[0].contains("does not know the flow classes of class gold"), "{:?}", core.notes());
    let named = text.replace("web*", "web1");
    let Err(CoreError::Refused(refusal)) = start(&named, vec![assigned_vf(3, "web1")]) else { panic!() };
    assert!(refusal.0[0].contains("flow classes of class gold; leave it out"), "{refusal}");
}
