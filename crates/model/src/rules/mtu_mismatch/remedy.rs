//! What makes a guest's packets fit: a smaller MTU for the guest, or, where the tap alone is too narrow for what the
//! guest's device reports, a larger one for the tap. That a card of the host could take more is said as a comment only:
//! all behind it would have to pass it on.

use super::{Mismatch, is_container};
use crate::facts::{HopKind, Nic};
use crate::rules::change::{AppliesAt, Change, Names, chained, enter, in_guest, on_host, read_slot, shell};

pub(super) fn of(nic: &Nic, mismatch: &Mismatch<'_>) -> Change {
    if is_container(nic) {
        return in_container(mismatch);
    }
    if mismatch.told && mismatch.from_guest.is_empty() { raised(nic, mismatch) } else { lowered(nic, mismatch) }
}

fn in_container(mismatch: &Mismatch<'_>) -> Change {
    let mtu = mismatch.passes();
    in_guest(
        format!("Set the container's interface to {mtu} bytes, in it and in the settings of its network."),
        &format!(
            "# in the container, until its next start: ip link set dev INTERFACE mtu {mtu}\n\
             # for good, Docker: docker network create --opt com.docker.network.driver.mtu={mtu} NETWORK\n\
             # for good, CNI: \"mtu\": {mtu} in the plugin's configuration"
        ),
    )
}

/// The tap takes what the guest is told: at once, and until the tap is made anew.
fn raised(nic: &Nic, mismatch: &Mismatch<'_>) -> Change {
    let guest = mismatch.guest;
    on_host(
        format!("Set the tap's MTU to {guest} bytes, as the guest is told, also in what creates the tap."),
        format!(
            "{}\n# or tell the guest less, from its next start on: host_mtu={}",
            set(nic, mismatch),
            mismatch.passes()
        ),
    )
}

/// Gives the tap the guest's MTU. Open vSwitch keeps that of its ports itself, where it is asked to
/// (ovs-vswitchd.conf.db(5), table Interface, `mtu_request`).
fn set(nic: &Nic, mismatch: &Mismatch<'_>) -> String {
    let (tap, guest) = (shell(mismatch.interface), mismatch.guest);
    match nic.way.get(1).map(|next| next.kind) {
        Some(HopKind::OvsBridge) => format!("ovs-vsctl set Interface {tap} mtu_request={guest}"),
        _ => format!("{}ip link set dev {tap} mtu {guest}", enter(nic)),
    }
}

/// The guest is told what passes, from its next start on.
fn lowered(nic: &Nic, mismatch: &Mismatch<'_>) -> Change {
    let mtu = mismatch.passes();
    let names = Names(&nic.place);
    let (domain, vmid, slot) = (names.domain(), names.vmid(), names.slot("net0"));
    let or = instead(nic, mismatch);
    if nic.model.as_deref() != Some("virtio-net") {
        // Only virtio reports an MTU.
        return Change {
            what: format!("Set the guest's interface to {mtu} bytes, in the guest or by its DHCP server (option 26)."),
            ..in_guest(
                "",
                &format!("# this card reports no MTU; in the guest:\n# ip link set dev INTERFACE mtu {mtu}{or}"),
            )
        };
    }
    let qemu = match nic.place.given {
        None => format!("# in its own -device: set this, keep all else\nhost_mtu={mtu}{or}"),
        Some(_) => format!(
            "# this option has no key for it: a -netdev and a -device with host_mtu={mtu} in its place; until then\n\
             # in the guest: ip link set dev INTERFACE mtu {mtu}{or}"
        ),
    };
    // 1 means the bridge's.
    let setting = if *nic.bridge_mtu_bytes == Some(mtu) { 1 } else { mtu };
    let proxmox = chained(&[
        read_slot("card", &vmid, &slot, "s/,mtu=[^,]*//g;"),
        format!("qm shutdown {vmid}"),
        format!("qm set {vmid} --{slot} \"$card,mtu={setting}\""),
        format!("qm start {vmid}"),
    ]);
    Change {
        what: format!(
            "Have the device tell the guest {mtu} bytes, from its next start on; at once, in the guest: \
             ip link set dev INTERFACE mtu {mtu}."
        ),
        qemu,
        libvirt: format!(
            "virsh edit {domain}\n# in the <interface> with <mac address='{}'/>: this, in place of its own <mtu .../>\n\
             <mtu size='{mtu}'/>{or}",
            names.target("MAC")
        ),
        proxmox: format!("{proxmox}{or}"),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

/// The other way, as a comment on lines of its own: larger packets everywhere.
fn instead(nic: &Nic, mismatch: &Mismatch<'_>) -> String {
    let guest = mismatch.guest;
    let tap = mismatch.to_guest.map(|_| set(nic, mismatch));
    let behind = mismatch.from_guest.iter().filter(|(hop, _)| hop.here && hop.kind != HopKind::Tunnel);
    let raise = behind.map(|(hop, _)| format!("ip link set dev {} mtu {guest}", shell(&hop.interface)));
    let lines: String = tap.into_iter().chain(raise).map(|line| format!("\n# {line}")).collect();
    if lines.is_empty() {
        return lines;
    }
    format!("\n# or instead, where all behind passes {guest} bytes on (a card's link may be reset):{lines}")
}
