//! Joins the kernel's list of links with the guests that use them.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::facts::Nic;
use vmio_model::holding::PacketPath;
use vmio_model::policy::assign::Interface;

use super::cards::AssignedVf;
use super::guests::GuestNetwork;
use super::packet_path::{Host, Map};
use crate::interface::DiscoveredInterface;
use crate::planes::linux::functions::Function;
use crate::planes::linux::links::Link;

/// Interfaces that may be a guest's: not loopback, not an uplink, nothing that has ports, no IFB.
pub fn found(
    links: &[Link],
    guests: &[GuestNetwork],
    namespaces: &BTreeMap<i32, String>,
    addresses: &BTreeMap<u32, [u8; 6]>,
    host: &Host,
    uplinks: &BTreeSet<String>,
) -> Vec<DiscoveredInterface> {
    let masters: BTreeSet<u32> = links.iter().filter_map(|link| link.master).collect();
    let uplink_links: Vec<(&str, u32)> = links
        .iter()
        .filter(|link| uplinks.contains(&link.device.name))
        .map(|link| (link.device.name.as_str(), link.device.index))
        .collect();
    let of_guest = |link: &&Link| {
        let (kind, index) = (link.kind.as_str(), link.device.index);
        let used = uplinks.contains(&link.device.name) || masters.contains(&index);
        !link.loopback && !used && !matches!(kind, "bridge" | "bond" | "team" | "ifb" | "vlan" | "vxlan")
    };
    let mut map = Map::of(links, host);
    // Where two guests claim an interface the first one has it.
    let mut guest_of: BTreeMap<&str, (&GuestNetwork, &Nic)> = BTreeMap::new();
    for (guest, nic) in guests.iter().flat_map(|guest| guest.nics.iter().map(move |nic| (guest, nic))) {
        if let Some(name) = nic.interface.as_deref() {
            guest_of.entry(name).or_insert((guest, nic));
        }
    }
    let mut all: Vec<DiscoveredInterface> = Vec::new();
    for link in links.iter().filter(of_guest) {
        let (name, index) = (&link.device.name, link.device.index);
        let guest_of = guest_of.get(name.as_str()).copied();
        let vms = guest_of.map(|(guest, _)| std::iter::once(&guest.name).chain(&guest.names).cloned().collect());
        // The guest's configured address, or that of the other end of a veth.
        let given = guest_of.and_then(|(_, nic)| nic.place.target.clone()).filter(|mac| is_address(mac));
        let other_end = || addresses.get(&index).map(text);
        let paths = uplink_links.iter().map(|(name, uplink)| ((*name).to_owned(), map.path(index, *uplink)));
        all.push(DiscoveredInterface {
            interface: Interface {
                index,
                name: name.clone(),
                macs: given.or_else(other_end).into_iter().collect(),
                vms: vms.unwrap_or_default(),
                netns: link.tied_in.and_then(|number| namespaces.get(&number).cloned()),
            },
            nic: guest_of.map(|(_, nic)| nic.clone()),
            pids: guest_of.map(|(guest, _)| guest.pids.clone()).unwrap_or_default(),
            memory_bytes: guest_of.and_then(|(guest, _)| guest.memory_bytes),
            paths: paths.collect(),
        });
    }
    all.sort_by(|a, b| a.interface.cmp(&b.interface));
    all
}

/// Existing virtual functions that guests drive; their only uplink is their card.
pub fn assigned_vfs(
    guests: &[GuestNetwork],
    functions: &BTreeMap<String, BTreeMap<u32, Function>>,
) -> Vec<DiscoveredInterface> {
    let of_guest = |guest: &GuestNetwork| {
        let found = |vf: &AssignedVf| {
            let function = functions.get(&vf.card)?.get(&vf.function)?;
            let address = (function.address != [0; 6]).then(|| text(&function.address));
            let path = PacketPath { card: Some(vf.function), ..PacketPath::default() };
            Some(DiscoveredInterface {
                interface: Interface {
                    // It is no interface of this kernel.
                    index: 0,
                    name: vf.name(),
                    macs: address.into_iter().collect(),
                    vms: std::iter::once(&guest.name).chain(&guest.names).cloned().collect(),
                    netns: None,
                },
                nic: Some(vf.nic.clone()),
                pids: guest.pids.clone(),
                memory_bytes: guest.memory_bytes,
                paths: [(vf.card.clone(), path)].into(),
            })
        };
        guest.assigned_vfs.iter().filter_map(found).collect::<Vec<_>>()
    };
    guests.iter().flat_map(of_guest).collect()
}

/// As it is written.
pub(super) fn text(address: &[u8; 6]) -> String {
    let [a, b, c, d, e, f] = address;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn is_address(text: &str) -> bool {
    let mut parts = text.split(':');
    let two = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
    parts.by_ref().take(6).filter(|part| two(part)).count() == 6 && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use vmio_model::facts::{Provenance, Subject};
    use vmio_model::policy::assign::assign;
    use vmio_model::policy::{Links, Policy};

    use super::*;
    use crate::planes::linux::Device;

    const POLICY: &str = "\
[uplink.eth0]
capacity = \"1Gbit\"
[class.gold]
min = \"100Mbit\"
[[interface]]
match = { vm = \"MATCHED\" }
class = \"gold\"
";

    /// A guest on a tap. While it migrates on one host, two processes have the same name, UUID and address.
    fn web1(pid: u32, tap: &str) -> GuestNetwork {
        let from = Provenance::Transcript { name: "test".into() };
        let mut nic =
            Nic { interface: Some(tap.to_owned()).into(), ..Nic::unknown(Subject::net("web1", "net0"), from) };
        nic.place.target = Some("52:54:00:00:00:01".into());
        GuestNetwork {
            name: "web1".into(),
            names: vec!["6f6b1c1e-0c2f-4b7e-9d0a-0b1f6a6f0001".into()],
            pids: vec![pid],
            apart: false,
            memory_bytes: None,
            nics: vec![nic],
            assigned_vfs: Vec::new(),
        }
    }

    fn link(index: u32, name: &str, kind: &str) -> Link {
        Link { device: Device { index, name: name.into() }, kind: kind.into(), ..Link::default() }
    }

    #[test]
    fn migrating_guest_has_its_class_at_both_taps() {
        let links = [link(2, "eth0", ""), link(7, "vnet0", "tun"), link(9, "vnet3", "tun"), link(11, "vnet4", "tun")];
        let uplinks = ["eth0".to_owned()].into();
        let there = |guests: &[GuestNetwork]| {
            found(&links, guests, &BTreeMap::new(), &BTreeMap::new(), &Host::default(), &uplinks)
        };
        for matched in ["web1", "web*", "6F6B1C1E-0C2F-4B7E-9D0A-0B1F6A6F0001"] {
            let text = POLICY.replace("MATCHED", matched);
            let policy = Policy::read(&[("guard.toml", &*text)], &Links::default()).unwrap().policy;
            let gold = |found: &[DiscoveredInterface]| -> Vec<(String, Vec<u32>)> {
                let seated = found.iter().filter(|f| assign(&policy, &f.interface).is_some());
                seated.map(|f| (f.interface.name.clone(), f.pids.clone())).collect()
            };
            let (source, target) = (web1(100, "vnet0"), web1(200, "vnet3"));
            let both = [("vnet0".to_owned(), vec![100]), ("vnet3".to_owned(), vec![200])];
            assert_eq!(gold(&there(std::slice::from_ref(&source))), both[..1]);
            assert_eq!(gold(&there(&[source.clone(), target.clone()])), both, "{matched}");
            assert_eq!(gold(&there(&[target.clone(), source])), both, "in whichever order they are found");
            assert_eq!(gold(&there(&[target])), both[1..]);
        }
    }
}
