//! Changes of a guest's own network device, to paste.
//!
//! Syntax: QEMU's manual, "Network options"; libvirt, `formatdomain.html`, "Network interfaces"
//! ("Setting NIC driver-specific options"); Proxmox, `qm(1)`, `--net[n]`.

use super::names::{Names, comment, option, shell};
use super::slot::{chained, read_slot};
use super::to::{DeviceChange, NicChange};
use super::{AppliesAt, Change};
use crate::facts::{Nic, Source};

/// QEMU's helper that makes a tap and puts it into a bridge.
const HELPER: &str = "/usr/lib/qemu/qemu-bridge-helper";

/// Changes of model, tap, vhost or queues of a guest's own network device; its MAC address stays.
pub fn own_nic(what: impl Into<String>, nic: &Nic, to: NicChange) -> Change {
    Change {
        what: what.into(),
        qemu: qemu(nic, to),
        libvirt: libvirt(nic, to),
        proxmox: proxmox(nic, to),
        takes: AppliesAt::NextStart,
        sets: Some(DeviceChange::Nic(to)),
    }
}

/// What goes before a command about a card's interface: nothing where that is in vmio's own network namespace, else what
/// enters that of the guest's process (a pod's). Such a command asks the kernel by netlink, as ip(8) and tc(8) do: a
/// `/sys` stays that of the namespace in which it was mounted.
pub fn enter(nic: &Nic) -> String {
    if nic.way.first().is_none_or(|hop| hop.here) {
        return String::new();
    }
    let pid = nic.backend.source().and_then(Source::option).map(|option| option.pid.to_string());
    format!("nsenter -t {} -n ", pid.unwrap_or_else(|| "PID".to_owned()))
}

/// A new tap on a bridge, or keys in the existing options: who made the tap and attached it to its bridge (a script, a
/// helper, the caller) is not known, and without that the guest has no network.
fn qemu(nic: &Nic, to: NicChange) -> String {
    let queues = to.queues.or(*nic.queues).filter(|n| *n > 1);
    let given = nic.place.given.as_deref();
    if !to.tap {
        return match given {
            None => set(nic, to),
            Some([]) => "# in place of the card that QEMU adds by itself: one more option\n\
                         -nic user,model=virtio-net-pci"
                .to_owned(),
            Some(given) => given_anew(nic, to, given),
        };
    }
    let own = match given {
        None => "in place of its own -netdev and -device".to_owned(),
        Some([]) => "in place of the card and network that QEMU adds by itself".to_owned(),
        Some(given) => format!("in place of its own {}", named(given)),
    };
    let vhost = if may_have_vhost(nic) { ",vhost=on" } else { "" };
    let many = queues.map(|n| format!(",queues={n}")).unwrap_or_default();
    format!(
        "# {own}; /etc/qemu/bridge.conf must say: allow BRIDGE\n{}",
        pair(nic, &format!("tap,id=hostnet0,br=BRIDGE,helper={HELPER}{vhost}{many}"), queues)
    )
}

/// Whether this host may have vhost-net: without it QEMU 7.2 exits at once with `-nic tap,vhost=on`.
fn may_have_vhost(nic: &Nic) -> bool {
    nic.vhost_here != Some(false)
}

/// `-nic` or `-net` as written, for a comment.
fn named(given: &[String]) -> String {
    given.iter().map(|option| comment(option)).collect::<Vec<String>>().join(" and ")
}

/// A `-netdev` with id `hostnet0`, and its device. Without an address QEMU assigns the same PCI slot as before.
fn pair(nic: &Nic, netdev: &str, queues: Option<u32>) -> String {
    let mut device = "virtio-net-pci,netdev=hostnet0".to_owned();
    for (key, value) in [("mac", &nic.place.target), ("id", &nic.place.device_id)] {
        device.extend(value.as_deref().map(|value| format!(",{key}={}", option(value))));
    }
    device.extend(nic.host_mtu_bytes.map(|mtu| format!(",host_mtu={mtu}")));
    // Two vectors for each pair, one for configuration changes and one for control (QEMU, virtio-net multiqueue).
    device.extend(queues.map(|n| format!(",mq=on,vectors={}", 2 * n + 2)));
    format!("-netdev {} \\\n-device {}", shell(netdev), shell(&device))
}

/// Replaces a card of `-nic` or `-net`: only its `model=` can be set there, so other changes need a `-netdev` and a
/// device. (vhost and queues do not work through `-net`'s hub either.)
fn given_anew(nic: &Nic, to: NicChange, given: &[String]) -> String {
    let plain = !to.offloads && to.queues.is_none() && nic.host_mtu_bytes.is_none();
    let (first, last) = match given {
        [one] => (one, one),
        [first, .., last] => (first, last),
        [] => return String::new(),
    };
    let on_tap = nic.backend.as_deref() == Some("tap");
    let bridge = last.split([' ', ',']).nth(1) == Some("bridge");
    let (nic_option, vhost) = (first.starts_with("-nic "), on_tap && may_have_vhost(nic) && (to.vhost || !bridge));
    if plain && (!vhost || nic_option && !bridge) {
        let more = if vhost { ",vhost=on" } else { "" };
        let name = if nic_option { "-nic" } else { "-net nic" };
        return format!("# in its own {name}: set this, keep all else\nmodel=virtio-net-pci{more}");
    }
    // Keys of `-nic` for the card (net/net.c, `net_param_nic`); all others are the network's.
    let card = ["model=", "mac=", "macaddr=", "addr=", "vectors=", "id=", "netdev="];
    let network = last.split_once(' ').map_or("", |(_, text)| text).replace(",,", "\u{1}");
    let mut keys: Vec<String> =
        network.split(',').filter(|key| !card.iter().any(|c| key.starts_with(c))).map(str::to_owned).collect();
    keys.insert(1.min(keys.len()), "id=hostnet0".to_owned());
    if bridge {
        // The same helper, with a back end that supports vhost.
        keys[0] = "tap".to_owned();
        if !keys.iter().any(|key| key.starts_with("helper=")) {
            keys.push(format!("helper={HELPER}"));
        }
    }
    if on_tap {
        keys.retain(|key| !key.starts_with("vhost=") && (to.queues.is_none() || !key.starts_with("queues=")));
        keys.extend(may_have_vhost(nic).then(|| "vhost=on".to_owned()));
        keys.extend(to.queues.map(|n| format!("queues={n}")));
    }
    let queues = to.queues.or(*nic.queues).filter(|n| *n > 1);
    format!(
        "# in place of its own {}: these\n{}",
        named(given),
        pair(nic, &keys.join(",").replace('\u{1}', ",,"), queues)
    )
}

/// Keys to set in the guest's own `-netdev` and `-device`.
fn set(nic: &Nic, to: NicChange) -> String {
    let mut lines = Vec::new();
    let on_tap = nic.backend.as_deref().is_none_or(|b| b == "tap" || b == "macvtap");
    let vhost = (on_tap && nic.vhost != Some(true) && may_have_vhost(nic)).then(|| "vhost=on".to_owned());
    let of_tap: Vec<String> = vhost.into_iter().chain(to.queues.map(|n| format!("queues={n}"))).collect();
    let bridge =
        nic.backend.source().and_then(Source::option).is_some_and(|o| o.name == "netdev" && o.kind == Some("bridge"));
    if bridge && (to.vhost || to.queues.is_some()) {
        lines.push(format!(
            "# in its own -netdev bridge,...: this in place of bridge, which knows neither vhost nor queues, keep all\n\
             # else\ntap,helper={HELPER},{}",
            of_tap.join(",")
        ));
    } else if !of_tap.is_empty() && !bridge {
        lines.push(format!("# in its own -netdev tap,...: set these, keep all else\n{}", of_tap.join(",")));
    }
    let model = nic.model.as_deref().map_or_else(|| "its model".to_owned(), comment);
    if to.virtio {
        lines.push(format!("# in its own -device: this in place of {model}, keep netdev= and mac=\nvirtio-net-pci"));
    }
    if let Some(n) = to.queues {
        let keys = if n > 1 { format!("mq=on,vectors={}", 2 * n + 2) } else { "mq=off".to_owned() };
        lines.push(format!("# in its own -device: set these, keep all else\n{keys}"));
    }
    if to.offloads {
        let off: Vec<String> =
            nic.offloads_off.iter().filter(|o| !o.starts_with("tap")).map(|name| format!("{name}=off")).collect();
        lines.push(format!("# in its own -device: remove these, keep all else\n{}", shell(&off.join(","))));
    }
    lines.join("\n")
}

fn libvirt(nic: &Nic, to: NicChange) -> String {
    let names = Names(&nic.place);
    let mut lines = vec![
        format!("virsh edit {}", names.domain()),
        format!("# in the <interface> with <mac address='{}'/>:", names.target("MAC")),
    ];
    if to.tap {
        lines.push(
            "<interface type='bridge'>  <!-- its first line, and with: -->\n<source bridge='BRIDGE'/>".to_owned(),
        );
    }
    if to.virtio || to.tap {
        lines.push("# in place of its own <model .../>:\n<model type='virtio'/>".to_owned());
    }
    if to.offloads {
        lines.push(
            "# in its <driver>: set these, keep all else\n<host csum='on' gso='on' tso4='on' tso6='on'/>\n\
             <guest csum='on' tso4='on' tso6='on'/>"
                .to_owned(),
        );
    }
    // libvirt refuses to start a guest that requires vhost-net on a host without it.
    let many = to.queues.is_some_and(|n| n > 1);
    let vhost = ((to.vhost || many) && may_have_vhost(nic)).then(|| "name='vhost'".to_owned());
    let driver: Vec<String> = vhost.into_iter().chain(to.queues.map(|n| format!("queues='{n}'"))).collect();
    if !driver.is_empty() {
        lines.push(format!(
            "# in its <driver .../> (add one where it has none): set these, keep all else\n{}",
            driver.join(" ")
        ));
    }
    lines.join("\n")
}

/// Proxmox unplugs a running guest's card at once when its line changes, so the guest is shut down first. The line is
/// rewritten from itself, so that bridge, tag, rate and firewall stay.
fn proxmox(nic: &Nic, to: NicChange) -> String {
    let names = Names(&nic.place);
    let (vmid, slot) = (names.vmid(), names.slot("net0"));
    let mut less = String::new();
    let mut more = String::new();
    if to.virtio || to.tap {
        less.push_str("s/^[^=,]+=/virtio=/;");
    }
    if to.tap {
        more.push_str(",bridge=vmbr0");
    }
    if let Some(n) = to.queues {
        less.push_str("s/,queues=[^,]*//g;");
        more.extend((n > 1).then(|| format!(",queues={n}")));
    }
    let (shutdown, start) = (format!("qm shutdown {vmid}"), format!("qm start {vmid}"));
    if less.is_empty() && more.is_empty() {
        let look = format!("qm config {vmid} | grep -e ^args -e ^{slot}");
        let steps = chained(&["modprobe vhost_net".to_owned(), look, shutdown, start]);
        return format!("# Proxmox VE enables vhost and all offloads by default: find what disables them\n{steps}");
    }
    let set = format!("qm set {vmid} --{slot} \"$card{more}\"");
    chained(&[read_slot("card", &vmid, &slot, &less), shutdown, set, start])
}

/// Proxmox's commands for a virtio-net card of an unknown guest, with placeholders `VMID`, `MAC` and `BRIDGE`, which
/// `qm` refuses.
pub fn new_card(queues: Option<u32>) -> String {
    let queues = queues.map_or_else(String::new, |n| format!(",queues={n}"));
    chained(&[
        "qm shutdown VMID".to_owned(),
        format!("qm set VMID --net0 virtio=MAC,bridge=BRIDGE{queues}"),
        "qm start VMID".to_owned(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Place;
    use crate::testing::live_nic;

    fn nic() -> Nic {
        let place = Place {
            domain: Some("web1".into()),
            vmid: Some("101".into()),
            target: Some("52:54:00:12:34:56".into()),
            slot: Some("net1".into()),
            device_id: Some("net1".into()),
            ..Place::default()
        };
        Nic { interface: "tap101i1".into(), queues: Some(1).into(), place, ..live_nic() }
    }

    #[test]
    fn a_card_becomes_virtio_and_keeps_its_address() {
        let e1000 = Nic { model: "e1000".into(), ..nic() };
        let change = own_nic("x", &e1000, NicChange { virtio: true, ..NicChange::default() });
        assert_eq!(change.qemu, "# in its own -device: this in place of e1000, keep netdev= and mac=\nvirtio-net-pci");
        assert!(change.libvirt.starts_with("virsh edit web1\n") && change.libvirt.ends_with("<model type='virtio'/>"));
        assert!(change.proxmox.starts_with(
            "card=\"$(qm config 101 | sed -nE '/^net1: /{s///;s/^[^=,]+=/virtio=/;p}')\" && [ -n \"$card\" ]"
        ));
    }

    #[test]
    fn queues_come_with_their_vectors() {
        let change = own_nic("x", &nic(), NicChange { queues: Some(4), ..NicChange::default() });
        assert!(change.qemu.contains("\nqueues=4\n") && change.qemu.ends_with("\nmq=on,vectors=10"), "{}", change.qemu);
        assert!(change.libvirt.ends_with("\nname='vhost' queues='4'"), "{}", change.libvirt);
        // The tap is attached to its bridge as before.
        assert!(!change.qemu.contains("script=no"), "{}", change.qemu);
        assert!(
            change.proxmox.contains("s/,queues=[^,]*//g;p}')\"") && change.proxmox.contains("\"$card,queues=4\""),
            "{}",
            change.proxmox
        );
    }
}
