//! IP addresses of a guest's network cards: those that cloud-init sets, and those that the firewall lets them use.

use std::net::IpAddr;

use super::conf::{Parts, Sections};
use crate::managers::addresses::usable;

/// Directory of the firewall's files.
pub const FIREWALL: &str = "/etc/pve/firewall";

/// The addresses of the card in a slot (`net0`), by the guest's settings and the text of its firewall's file.
///
/// Those of `ipconfig0` (qm.conf(5)) reach a guest with a drive for cloud-init; `dhcp`, `auto` and `manual` name none.
/// A changed one reaches it when the drive is made anew and the guest restarts: till then it has the one before.
///
/// Of the firewall's set `ipfilter-net0` (pve-firewall(8), "Standard IP set ipfilter-net*") single addresses count, not
/// networks, aliases and exceptions.
pub fn of(slot: &str, conf: &Sections, firewall: &str) -> Vec<IpAddr> {
    let set = slot.strip_prefix("net").filter(|_| conf.now.values().any(|value| is_drive(value)));
    let set = set.map(|number| format!("ipconfig{number}"));
    let set = set.iter().flat_map(|key| [conf.now.get(key), conf.in_drive.get(key)]).flatten();
    let texts = set.flat_map(|value| ["ip", "ip6"].map(|key| Parts::of(value).get(key))).flatten();
    let of_cloud_init = texts.filter_map(|text| text.split('/').next());
    let of_filter = entries(firewall, &format!("ipfilter-{slot}"));
    usable(of_cloud_init.chain(of_filter))
}

/// Whether a setting is a drive for cloud-init, `local-lvm:vm-101-cloudinit,media=cdrom` (qemu-server,
/// src/PVE/QemuServer/Drive.pm, `drive_is_cloudinit`), not an image that is called so.
fn is_drive(value: &str) -> bool {
    let parts = Parts::of(value);
    let name = parts.first.and_then(|volume| volume.rsplit([':', '/']).next()).unwrap_or_default();
    let kind = name.strip_prefix("vm-").and_then(|rest| rest.split_once('-')).map_or(name, |(_, kind)| kind);
    parts.get("media") == Some("cdrom") && kind.split('.').next() == Some("cloudinit")
}

/// Single addresses, and whatever else has no length, of an IP set.
fn entries<'a>(firewall: &'a str, set: &str) -> Vec<&'a str> {
    let (mut all, mut inside) = (Vec::new(), false);
    for line in firewall.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let mut words = section.split_whitespace();
            let mut next_is = |text: &str| words.next().is_some_and(|word| word.eq_ignore_ascii_case(text));
            inside = next_is("ipset") && next_is(set);
        } else if inside {
            all.extend(match line.split_once('/') {
                None => Some(line),
                Some((address, "32")) if !address.contains(':') => Some(address),
                Some((address, "128")) => Some(address),
                Some(_) => None,
            });
        }
    }
    all
}
