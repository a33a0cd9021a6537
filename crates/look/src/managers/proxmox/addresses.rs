//! IP addresses of a guest's network cards: those that cloud-init sets, and those that the firewall lets them use.

use std::net::IpAddr;

use super::conf::{Parts, Settings};
use crate::managers::addresses::usable;

/// Directory of the firewall's files.
pub const FIREWALL: &str = "/etc/pve/firewall";

/// The addresses of the card in a slot (`net0`), by the guest's settings and the text of its firewall's file.
///
/// Those of `ipconfig0` (qm.conf(5)) reach a guest with a drive for cloud-init; `dhcp`, `auto` and `manual` name none.
/// Of the firewall's set `ipfilter-net0` (pve-firewall(8), "Standard IP set ipfilter-net*") single addresses count, not
/// networks, aliases and exceptions.
pub fn of(slot: &str, conf: &Settings, firewall: &str) -> Vec<IpAddr> {
    let is_drive = |value: &String| value.contains("cloudinit") && value.contains("media=cdrom");
    let set = slot.strip_prefix("net").and_then(|number| conf.get(&format!("ipconfig{number}")));
    let set = set.filter(|_| conf.values().any(is_drive)).map(|value| Parts::of(value)).unwrap_or_default();
    let of_cloud_init = [set.get("ip"), set.get("ip6")].into_iter().flatten().filter_map(|text| text.split('/').next());
    let of_filter = entries(firewall, &format!("ipfilter-{slot}"));
    usable(of_cloud_init.chain(of_filter))
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
