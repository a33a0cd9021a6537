//! What guests share of the host's network: the card behind their bridge, and the table of tracked connections. Both
//! are of the network namespace that vmio is in, so guests in another one have neither.

use std::collections::BTreeMap;
use std::net::IpAddr;

use vmio_model::facts::{Busiest, Conntrack, Fact, Guest, Hop, HopKind, Nic, Uplink};
use vmio_node::linux::conntrack;
use vmio_node::linux::net::Interfaces;
use vmio_node::linux::{process, system};
use vmio_node::{NetworkAnswer, NetworkQuestion, Reader};

use crate::host_view::HostView;

/// Completes the cards of the guests.
pub fn settle(host: &HostView<'_>, guests: &mut [Guest]) {
    let reader = host.reader();
    let table = table(reader, guests);
    let here = Interfaces::here(reader);
    let up = system::uptime_seconds(reader).map(|seconds| seconds as u64);
    // By card, since a thousand guests may be behind one; `None` of one without a wire.
    let mut known: BTreeMap<String, Option<Uplink>> = BTreeMap::new();
    for guest in guests {
        // The host's end of a container's interface is here, wherever the container is.
        let is_here = |pid| process::same_namespace(reader, pid, "net");
        if !guest.shares_kernel() && !guest.pid.is_some_and(is_here) {
            continue;
        }
        for nic in &mut guest.nics {
            if !nic.interface.as_ref().is_some_and(|name| here.has_interface(name)) {
                continue;
            }
            let mut cards = nic.way.iter().filter(|hop| hop.here && hop.kind == HopKind::Card);
            let uplink = cards.find_map(|card| {
                let look = || here.is_ethernet_port(&card.interface).then(|| uplink(host, &here, card, up));
                known.entry(card.interface.clone()).or_insert_with(look).clone()
            });
            if let Some(uplink) = uplink {
                let from = here.dir.join(&uplink.name).display().to_string();
                nic.uplink = Fact::read(Some(uplink), from);
            }
            if nic.tap_header.is_some() {
                offloads(host, nic);
            }
            if let Some(table) = table.as_ref().filter(|_| is_tracked(nic)) {
                nic.conntrack = Fact::read(Some(table.clone()), conntrack::COUNTERS);
            }
        }
    }
}

fn uplink(host: &HostView<'_>, here: &Interfaces<'_>, card: &Hop, host_up_seconds: Option<u64>) -> Uplink {
    let name = card.interface.clone();
    // Drivers count a full ring as the one or as the other, some as both.
    let missed = ["rx_missed_errors", "rx_fifo_errors"].map(|counter| here.counter(&name, counter));
    let asked = |question| host.network(&question).ok();
    let ring = match asked(NetworkQuestion::Rings { name: name.clone() }) {
        Some(NetworkAnswer::Rings(rings)) => rings,
        _ => None,
    };
    let segmentation = match asked(NetworkQuestion::Offloads { name: name.clone() }) {
        Some(NetworkAnswer::Offloads(offloads)) => offloads.tso,
        _ => None,
    };
    Uplink {
        ring_packets: ring.map(|ring| ring.rx),
        ring_most_packets: ring.map(|ring| ring.rx_most),
        segmentation,
        driver: card.driver.clone(),
        transmit_timeouts: here.transmit_timeouts(&name),
        link_losses: here.link_losses(&name),
        received_packets: here.counter(&name, "rx_packets"),
        missed_packets: missed.into_iter().flatten().max(),
        host_up_seconds,
        name,
    }
}

/// Adds what somebody turned off at a guest's tap. `tx` and `tso` alone are what the guest's driver took
/// (`TUNSETOFFLOAD`; Linux, drivers/net/tun.c, `set_offload`), which leaves the others on.
fn offloads(host: &HostView<'_>, nic: &mut Nic) {
    let Some(name) = nic.interface.value().clone() else { return };
    let Ok(NetworkAnswer::Offloads(found)) = host.network(&NetworkQuestion::Offloads { name }) else { return };
    let each = [("tap gso", found.gso), ("tap gro", found.gro), ("tap scatter-gather", found.sg)];
    let off = each.into_iter().filter(|(_, on)| *on == Some(false)).map(|(name, _)| name.to_owned());
    nic.offloads_off.amend().extend(off);
}

/// Whether the host tracks a guest's connections: not where a bridge passes its packets to a card without the firewall,
/// nor those of a macvtap, which go past it. A bridge without a card is one that the host routes for.
fn is_tracked(nic: &Nic) -> bool {
    nic.backend.as_deref() != Some("macvtap")
        && !(nic.bridge.is_some() && nic.uplink.is_some() && *nic.bridge_netfilter == Some(false))
}

fn table(reader: &dyn Reader, guests: &[Guest]) -> Option<Conntrack> {
    let conntrack::Table { count, max } = conntrack::table(reader)?;
    let losses = conntrack::losses(reader);
    // Who fills it is looked at only where it is four fifths full.
    let nearly = count.saturating_mul(5) >= max.saturating_mul(4);
    Some(Conntrack {
        count,
        max,
        dropped_packets: losses.map(|losses| losses.dropped_packets),
        evicted: losses.map(|losses| losses.evicted),
        busiest: nearly.then(|| busiest(reader, guests)).flatten(),
    })
}

/// The guest with most connections: of a source address that the host knows by the hardware address of a guest's card.
fn busiest(reader: &dyn Reader, guests: &[Guest]) -> Option<Busiest> {
    let sources = conntrack::sources(reader)?;
    let neighbours = conntrack::neighbours(reader);
    let cards =
        guests.iter().flat_map(|g| g.nics.iter().filter_map(move |nic| Some((nic.place.target.as_deref()?, g))));
    let cards: BTreeMap<&str, &Guest> = cards.collect();
    let of = |address: &IpAddr| cards.get(neighbours.get(address)?.as_str()).copied();
    let mut by_guest: BTreeMap<&str, u64> = BTreeMap::new();
    for (address, connections) in &sources {
        if let Some(guest) = of(address) {
            *by_guest.entry(guest.name.as_str()).or_default() += connections;
        }
    }
    let (guest, connections) = by_guest.into_iter().max_by_key(|(_, connections)| *connections)?;
    Some(Busiest { guest: guest.to_owned(), connections, looked_at: sources.values().sum() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::scan;
    use super::*;
    use vmio_model::rules::{Finding, findings};
    use vmio_node::ethtool::{Offloads, Rings};
    use vmio_node::fake::Fake;

    /// A guest with a tap in a bridge with a card, on a host without vhost-net.
    fn host() -> Fake {
        let line = "/usr/bin/qemu-system-x86_64\0-name\0web1\0-nodefaults\0-netdev\0tap,id=n0,ifname=tap0,script=no\0\
                    -device\0virtio-net-pci,netdev=n0,id=net0,mac=52:54:00:00:00:07\0";
        let net = |file: &str| format!("/sys/class/net/{file}");
        Fake::new("fake")
            .file("/proc/812/comm", "qemu-system-x86\n")
            .file("/proc/812/cmdline", line)
            .file("/proc/uptime", "172800.00 1.00\n")
            .file(net("tap0/mtu"), "1500\n")
            .file(net("tap0/tun_flags"), "0x5802\n")
            .file(net("tap0/tx_queue_len"), "1000\n")
            .file(net("tap0/statistics/tx_packets"), "1000000\n")
            .file(net("tap0/statistics/tx_dropped"), "0\n")
            .symlink(net("tap0/master"), "../../virtual/net/br0")
            .file(net("br0/mtu"), "1500\n")
            .file(net("br0/bridge/stp_state"), "0\n")
            .symlink(net("br0/lower_eth0"), "../eth0")
            .symlink(net("br0/lower_tap0"), "../tap0")
            .file(net("eth0/mtu"), "1500\n")
            .file(net("eth0/type"), "1\n")
            .file(net("eth0/device/vendor"), "0x8086\n")
            .symlink(net("eth0/device/driver"), "../../../bus/pci/drivers/e1000e")
            .file(net("eth0/queues/tx-0/tx_timeout"), "0\n")
            .file(net("eth0/carrier_down_count"), "1\n")
    }

    /// A host that tracks so many connections, of 1,000, where its firewall sees what the bridge passes on.
    fn tracking(count: u64) -> Fake {
        tracks(host(), count)
            .file("/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n")
            .file("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0\n")
    }

    fn tracks(fake: Fake, count: u64) -> Fake {
        fake.file("/proc/sys/net/netfilter/nf_conntrack_count", format!("{count}\n"))
            .file("/proc/sys/net/netfilter/nf_conntrack_max", "1000\n")
    }

    fn found(fake: &Fake, rule: &str) -> Option<Finding> {
        let guests = scan(&HostView::new(fake)).guests;
        findings(&guests[0].facts()).into_iter().find(|f| f.rule == rule)
    }

    #[test]
    fn the_card_behind_a_bridge_is_found_with_what_it_lost() {
        let nic = scan(&HostView::new(&host())).guests[0].nics[0].clone();
        let uplink = nic.uplink.value().clone().unwrap();
        assert_eq!((uplink.name.as_str(), uplink.driver.as_deref()), ("eth0", Some("e1000e")));
        assert_eq!((uplink.host_up_seconds, uplink.link_losses), (Some(172_800), Some(1)));
        assert_eq!(nic.read()["uplink"], "/sys/class/net/eth0");
        assert_eq!(found(&host(), "uplink-trouble"), None);
        let asked = NetworkQuestion::Rings { name: "eth0".into() };
        let rings = NetworkAnswer::Rings(Some(Rings { rx: 256, rx_most: 4096, tx: 256, tx_most: 4096 }));
        let nic = scan(&HostView::new(&host().kernel(asked, rings))).guests[0].nics[0].clone();
        let uplink = nic.uplink.value().clone().unwrap();
        assert_eq!((uplink.ring_packets, uplink.ring_most_packets), (Some(256), Some(4096)));
        let hung = host().file("/sys/class/net/eth0/queues/tx-0/tx_timeout", "2\n");
        assert!(found(&hung, "uplink-trouble").unwrap().cause.contains("stopped sending 2 times"));
        // A card that a hypervisor plays has no such trouble.
        let played = hung.symlink("/sys/class/net/eth0/device/driver", "../../../bus/virtio/drivers/virtio_net");
        assert_eq!(found(&played, "uplink-trouble"), None);
    }

    #[test]
    fn a_tap_tells_its_header_and_what_it_dropped() {
        assert_eq!((found(&host(), "offloads-off"), found(&host(), "guest-drops")), (None, None));
        let bare = host().file("/sys/class/net/tap0/tun_flags", "0x1802\n");
        assert!(found(&bare, "offloads-off").unwrap().cause.starts_with("tap0 was opened without a header"));
        let asked = NetworkQuestion::Offloads { name: "tap0".into() };
        let off = Offloads { gso: Some(false), gro: Some(true), tso: Some(false), ..Offloads::default() };
        let by_hand = host().kernel(asked, NetworkAnswer::Offloads(off));
        assert!(found(&by_hand, "offloads-off").unwrap().cause.starts_with("Turned off: tap gso."));
        let full = host().file("/sys/class/net/tap0/statistics/tx_dropped", "2003\n");
        let cause = found(&full, "guest-drops").unwrap().cause;
        assert!(cause.contains("queue of 1000 was full") && cause.contains("a ring of 256"), "{cause}");
        let missing = found(&host(), "no-vhost").unwrap();
        assert!(missing.of_host && missing.change.libvirt.starts_with("modprobe vhost_net"), "{missing:#?}");
    }

    #[test]
    fn who_fills_the_table_is_told_by_its_address() {
        let arp = "IP address HW type Flags HW address Mask Device\n192.0.2.7 0x1 0x2 52:54:00:00:00:07 * br0\n";
        let line = |from: &str| format!("ipv4 2 tcp 6 9 ESTABLISHED src={from} dst=192.0.2.1 sport=1 dport=2\n");
        let connections = [line("192.0.2.7"), line("192.0.2.7"), line("192.0.2.7"), line("192.0.2.9")].concat();
        let full = tracking(900).file("/proc/net/nf_conntrack", connections).file("/proc/net/arp", arp);
        let cause = found(&full, "conntrack-full").unwrap().cause;
        assert!(cause.contains("900 of at most 1000") && cause.contains("guest web1 has 75 %"), "{cause}");
        // Others than root see no connections.
        let cause = found(&tracking(900), "conntrack-full").unwrap().cause;
        assert!(!cause.contains("By source"), "{cause}");
        assert_eq!(found(&tracking(100), "conntrack-full"), None);
        // Without the module of bridges' filters the firewall does not see it.
        assert_eq!(found(&tracks(host(), 900), "conntrack-full"), None);
        let mut nic = scan(&HostView::new(&host())).guests[0].nics[0].clone();
        (nic.bridge, nic.uplink) = (Fact::default(), Fact::default());
        assert!(is_tracked(&nic));
        nic.backend = "macvtap".into();
        assert!(!is_tracked(&nic));
    }
}
