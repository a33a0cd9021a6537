//! Notes on this host's default gateways, where guests on the same network may claim to be them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use vmio_guard::source::DiscoveredInterface;
use vmio_model::policy::{Policy, Spoofing, Uplink};

/// A note for each uplink with such gateways; `known` has those of the host's default routes by uplink. The policy's
/// own `gateways` and `addresses` are protected already.
pub fn notes(policy: &Policy, found: &[DiscoveredInterface], known: &BTreeMap<String, Vec<IpAddr>>) -> Vec<String> {
    let listed: BTreeSet<IpAddr> = policy.entries.iter().flat_map(|entry| &entry.addresses).copied().collect();
    let note = |(name, uplink): (&String, &Uplink)| {
        let is_bridged = |there: &DiscoveredInterface| there.paths.get(name).is_some_and(|p| p.routed == Some(false));
        let is_open = |at: &&IpAddr| !listed.contains(*at) && !uplink.gateways.contains(at) && !is_made_of_a_mac(at);
        let open: Vec<&IpAddr> = known.get(name).into_iter().flatten().filter(is_open).collect();
        if open.is_empty() || !found.iter().any(is_bridged) {
            return None;
        }
        let all = uplink.gateways.iter().chain(open.iter().copied());
        let all: Vec<String> = all.map(|address| format!("\"{address}\"")).collect();
        let open: Vec<String> = open.iter().map(ToString::to_string).collect();
        Some(format!(
            "uplink {name}: guests without `addresses` may claim {}, the default gateway of this host; if no guest is \
             that gateway, add to the uplink: gateways = [{}]",
            open.join(" and "),
            all.join(", ")
        ))
    };
    if policy.guard.spoofing == Spoofing::Off {
        return Vec::new();
    }
    policy.uplinks.iter().filter_map(note).collect()
}

/// A link-local address that is made of its owner's MAC: no guest with another may claim it anyway.
fn is_made_of_a_mac(address: &IpAddr) -> bool {
    let IpAddr::V6(address) = address else { return false };
    address.segments()[0] & 0xffc0 == 0xfe80 && address.octets()[11..13] == [0xff, 0xfe]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use vmio_model::holding::PacketPath;
    use vmio_model::policy::Links;
    use vmio_model::policy::assign::Interface;

    use super::*;

    #[test]
    fn gateways_that_guests_may_claim_are_told() {
        let there = |routed| {
            let path = PacketPath { routed: Some(routed), ..PacketPath::default() };
            let paths = [("eth0".to_owned(), path)].into();
            [DiscoveredInterface { paths, ..Interface::default().into() }]
        };
        let told = |text: &str, found: &[DiscoveredInterface], addresses: &[&str]| {
            let policy = Policy::read(&[("guard.toml", text)], &Links::default()).unwrap().policy;
            let all: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            notes(&policy, found, &[("eth0".to_owned(), all)].into()).pop().unwrap_or_default()
        };
        let plain = "[uplink.eth0]\ncapacity = \"1Gbit\"\n";
        let both = ["192.0.2.1", "fe80::1", "fe80::ff:fe00:101"];
        let note = told(plain, &there(false), &both);
        assert!(note.contains("may claim 192.0.2.1 and fe80::1, "), "{note}");
        assert!(note.ends_with("gateways = [\"192.0.2.1\", \"fe80::1\"]"), "{note}");
        let listed = format!("{plain}gateways = [\"192.0.2.9\", \"fe80::1\"]\n");
        let note = told(&listed, &there(false), &both);
        assert!(note.ends_with("gateways = [\"192.0.2.9\", \"fe80::1\", \"192.0.2.1\"]"), "{note}");
        assert_eq!(told(plain, &there(true), &both), "", "guests are behind this host");
        assert_eq!(told(plain, &[], &both), "");
        assert_eq!(told(&format!("{plain}[guard]\nspoofing = \"off\"\n"), &there(false), &both), "");
        let guest =
            "[class.gold]\n[[interface]]\nmatch = { vm = \"gw\" }\nclass = \"gold\"\naddresses = [\"192.0.2.1\"]\n";
        assert_eq!(told(&format!("{plain}{guest}"), &there(false), &both[..1]), "", "a guest is the gateway");
    }
}
