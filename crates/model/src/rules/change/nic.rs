//! A guest's own network device with what a rule is about changed, as text to paste.
//!
//! Syntax: QEMU's manual, "Network options"; libvirt, `formatdomain.html`, "Network interfaces"
//! ("Setting NIC driver-specific options"); Proxmox, `qm(1)`, `--net[n]`.

use super::names::{Names, option, shell};
use super::{Change, Takes};
use crate::facts::Nic;

/// What is to differ; what is not said stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct NicTo {
    /// Whether it becomes a paravirtual one, on a tap.
    pub virtio: bool,
    /// Whether it gets a tap on a bridge, with vhost, in place of a network of the user's own.
    pub tap: bool,
    /// Whether the kernel is to move the packets.
    pub vhost: bool,
    /// Queue pairs.
    pub queues: Option<u32>,
    /// Whether all offloads are left to their defaults.
    pub offloads: bool,
}

/// Another model, tap, vhost or queues for a guest's own network device; its MAC address stays.
pub fn own_nic(what: impl Into<String>, nic: &Nic, to: NicTo) -> Change {
    Change {
        what: what.into(),
        qemu: qemu(nic, to),
        libvirt: libvirt(nic, to),
        proxmox: proxmox(nic, to),
        takes: Takes::NextStart,
    }
}

/// The device as virtio-net on a tap with vhost: what all changes lead to.
fn qemu(nic: &Nic, to: NicTo) -> String {
    let queues = to.queues.or(nic.queues).filter(|n| *n > 1);
    let tap = match (&nic.interface, to.tap) {
        (Some(name), false) => format!("ifname={},script=no,downscript=no", option(name)),
        _ => "br=BRIDGE,helper=/usr/lib/qemu/qemu-bridge-helper".to_owned(),
    };
    let many = queues.map(|n| format!(",queues={n}")).unwrap_or_default();
    // Two vectors for each pair, one for changes and one for control (QEMU, virtio-net multiqueue).
    let vectors = queues.map(|n| format!(",mq=on,vectors={}", 2 * n + 2)).unwrap_or_default();
    let mac = nic.place.target.as_deref().unwrap_or("MAC");
    let id = nic.place.device_id.as_deref().map(|id| format!(",id={}", option(id))).unwrap_or_default();
    format!(
        "-netdev {} \\\n-device {}",
        shell(&format!("tap,id=hostnet0,{tap},vhost=on{many}")),
        shell(&format!("virtio-net-pci,netdev=hostnet0,mac={}{id}{vectors}", option(mac)))
    )
}

fn libvirt(nic: &Nic, to: NicTo) -> String {
    let names = Names(&nic.place);
    let mut lines = vec![
        format!("virsh edit {}", names.domain()),
        format!("# in the <interface> with <mac address='{}'/>, in place of its own:", names.target("MAC")),
    ];
    if to.tap {
        lines.push(
            "<interface type='bridge'>  <!-- its first line, and with: -->\n<source bridge='BRIDGE'/>".to_owned(),
        );
    }
    if to.virtio || to.tap {
        lines.push("<model type='virtio'/>".to_owned());
    }
    let queues = to.queues.map(|n| format!(" queues='{n}'")).unwrap_or_default();
    if to.offloads {
        lines.push(
            "<driver name='vhost'>\n  <host csum='on' gso='on' tso4='on' tso6='on'/>\n  \
             <guest csum='on' tso4='on' tso6='on'/>\n</driver>"
                .to_owned(),
        );
    } else if to.vhost || to.queues.is_some() {
        lines.push(format!("<driver name='vhost'{queues}/>"));
    }
    lines.join("\n")
}

/// Proxmox takes a card away from a running guest at once when its line changes: the guest is shut
/// down first. The line is written anew from itself, so that bridge, tag, rate and firewall stay.
fn proxmox(nic: &Nic, to: NicTo) -> String {
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
        more.push_str(&format!(",queues={n}"));
    }
    if less.is_empty() && more.is_empty() {
        return format!(
            "# Proxmox VE asks for vhost and all offloads by itself: look for what takes them away\n\
             modprobe vhost_net && qm config {vmid} | grep -e ^args -e ^{slot}\n\
             qm shutdown {vmid} && qm start {vmid}"
        );
    }
    format!(
        "qm shutdown {vmid}\n\
         qm set {vmid} --{slot} \"$(qm config {vmid} | sed -nE '/^{slot}: /{{s///;{less}p}}'){more}\"\n\
         qm start {vmid}"
    )
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
        Nic { interface: Some("tap101i1".into()), queues: Some(1), place, ..live_nic() }
    }

    #[test]
    fn a_card_becomes_virtio_and_keeps_its_address() {
        let change = own_nic("x", &nic(), NicTo { virtio: true, ..NicTo::default() });
        assert_eq!(
            change.qemu,
            "-netdev tap,id=hostnet0,ifname=tap101i1,script=no,downscript=no,vhost=on \\\n\
             -device virtio-net-pci,netdev=hostnet0,mac=52:54:00:12:34:56,id=net1"
        );
        assert!(change.libvirt.starts_with("virsh edit web1\n") && change.libvirt.ends_with("<model type='virtio'/>"));
        assert!(
            change
                .proxmox
                .contains("qm set 101 --net1 \"$(qm config 101 | sed -nE '/^net1: /{s///;s/^[^=,]+=/virtio=/;p}')\"")
        );
    }

    #[test]
    fn queues_come_with_their_vectors() {
        let change = own_nic("x", &nic(), NicTo { queues: Some(4), ..NicTo::default() });
        assert!(change.qemu.contains("vhost=on,queues=4 ") && change.qemu.ends_with("mq=on,vectors=10"));
        assert!(change.libvirt.ends_with("<driver name='vhost' queues='4'/>"));
        assert!(change.proxmox.contains("s/,queues=[^,]*//g;p}'),queues=4\""), "{}", change.proxmox);
    }
}
