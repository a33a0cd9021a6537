//! Network devices of a domain's XML (<https://libvirt.org/formatdomain.html#network-interfaces>).

use std::net::IpAddr;

use roxmltree::Node;
use vmio_model::facts::{Nic, Place, Provenance, RateLimit, Subject};
use vmio_model::policy::Direction;
use vmio_model::rate::ByteRate;

use super::element::{at, attribute, child, children, is};
use crate::managers::addresses::usable;

/// An `<interface>`, or a network card passed through as a `<hostdev>` of a network.
pub fn nic(guest: &str, device: Node<'_, '_>, from: &Provenance) -> Option<Nic> {
    if !is(device, "interface") {
        return None;
    }
    let kind = device.attribute("type")?;
    let mac = attribute(device, "mac", "address").map(str::to_lowercase);
    let interface = attribute(device, "target", "dev").map(str::to_owned);
    let driver = child(device, "driver");
    let own = |name: &str| driver.and_then(|d| d.attribute(name));
    let backend = backend(device, kind);
    // MTU of the interface; for virtio-net also what the guest is told.
    let mtu = attribute(device, "mtu", "size").and_then(|n| n.parse().ok());
    let shown = interface.clone().or_else(|| mac.clone()).unwrap_or_else(|| kind.to_owned());
    Some(Nic {
        model: if kind == "hostdev" { "vfio".into() } else { model(device).into() },
        vhost: match own("name") {
            Some("vhost") => Some(true).into(),
            Some("qemu") => Some(false).into(),
            _ => None.into(),
        },
        queues: own("queues").and_then(|n| n.parse().ok()).into(),
        ring_packets: own("rx_queue_size").and_then(|n| n.parse().ok()).into(),
        bridge: bridge(device, kind).into(),
        offloads_off: driver.map(offloads_off).unwrap_or_default().into(),
        mtu_bytes: mtu.into(),
        host_mtu_bytes: mtu.filter(|_| model(device).as_deref() == Some("virtio-net")).into(),
        send_buffer_bytes: at(device, &["tune", "sndbuf"]).and_then(|n| n.text()?.trim().parse().ok()).into(),
        rate_limits: rate_limits(device, backend.as_deref() == Some("macvtap")).into(),
        place: Place {
            domain: Some(guest.to_owned()),
            target: mac,
            device_id: attribute(device, "alias", "name").map(str::to_owned),
            addresses: addresses(device),
            ..Place::default()
        },
        // Only these have an interface of the host.
        interface: interface.filter(|_| matches!(backend.as_deref(), Some("tap" | "macvtap"))).into(),
        backend: backend.into(),
        ..Nic::unknown(Subject::net(guest, shown), from.clone())
    })
}

/// vmio's name of the model: QEMU's without the virtio variant.
fn model(device: Node<'_, '_>) -> Option<String> {
    Some(match attribute(device, "model", "type")? {
        "virtio" | "virtio-transitional" | "virtio-non-transitional" => "virtio-net".to_owned(),
        other => other.to_owned(),
    })
}

fn backend(device: Node<'_, '_>, kind: &str) -> Option<String> {
    let named = match kind {
        "user" if attribute(device, "backend", "type") == Some("passt") => "passt",
        "user" => "user",
        "direct" => "macvtap",
        // A network may consist of macvtaps: then the running domain names the mode.
        "network" if attribute(device, "source", "mode").is_some() => "macvtap",
        "network" | "bridge" | "ethernet" => "tap",
        "vhostuser" => "vhost-user",
        "vdpa" => "vdpa",
        "server" | "client" | "mcast" | "udp" => "socket",
        // A card passed through has no back end on the host.
        _ => return None,
    };
    Some(named.to_owned())
}

/// Its IP addresses: parameters of its filter by the names of libvirt's own filters (`clean-traffic`,
/// `no-ipv6-spoofing`; formatnwfilter, "Usage of variables in filters"), and `<ip>` elements, which the host does not
/// look at.
fn addresses(device: Node<'_, '_>) -> Vec<IpAddr> {
    let filter = child(device, "filterref").into_iter().flat_map(|filter| children(filter, "parameter"));
    let of_filter = filter.filter(|p| matches!(p.attribute("name"), Some("IP" | "IPV6")));
    let of_filter = of_filter.filter_map(|p| p.attribute("value"));
    usable(of_filter.chain(children(device, "ip").filter_map(|ip| ip.attribute("address"))))
}

fn bridge(device: Node<'_, '_>, kind: &str) -> Option<String> {
    let source = child(device, "source").filter(|_| matches!(kind, "network" | "bridge"))?;
    source.attribute("bridge").map(str::to_owned)
}

/// Offloads by QEMU's names.
fn offloads_off(driver: Node<'_, '_>) -> Vec<String> {
    let mut off = Vec::new();
    for side in ["host", "guest"] {
        let offs = children(driver, side).flat_map(|n| n.attributes()).filter(|a| a.value() == "off");
        off.extend(offs.map(|a| match a.name() {
            "mrg_rxbuf" => "mrg_rxbuf".to_owned(),
            name => format!("{side}_{name}"),
        }));
    }
    off
}

/// `<bandwidth>` (formatdomain, "Quality of service"; src/util/virnetdevbandwidth.c, `virNetDevBandwidthSet`): `average`
/// and `peak` are tc's kbps, 1000 bytes a second, `burst` is in KiB. Packets that the host sends to the interface wait in
/// a queue with the peak as its ceiling, which it has for a burst alone; what it receives there is policed at the average,
/// without a peak, and without a burst with one of as many KiB as the average has kilobytes. A macvtap's directions are the
/// guest's also on the host, so they are swapped.
fn rate_limits(device: Node<'_, '_>, host_view: bool) -> Vec<RateLimit> {
    let limit = |(way, direction): (&str, Direction)| {
        let element = at(device, &["bandwidth", way])?;
        let number = |name: &str| element.attribute(name)?.parse::<u64>().ok().filter(|n| *n > 0);
        let bits = |kilobytes: u64| ByteRate::new(kilobytes.saturating_mul(1000)).bits();
        let drops = (direction == Direction::GuestTx) != host_view;
        let average = number("average")?;
        Some(RateLimit {
            peak_bps: number("peak").filter(|_| !drops).map(bits),
            burst_bytes: number("burst").or(drops.then_some(average)).map(|kib| kib.saturating_mul(1024)),
            ..RateLimit::new("libvirt", direction, bits(average), drops)
        })
    };
    let ways = [("inbound", Direction::GuestRx), ("outbound", Direction::GuestTx)];
    ways.into_iter().filter_map(limit).collect()
}
