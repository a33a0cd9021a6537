//! A guest's own end of its paths: its devices by their addresses, and which of several on one network it works by.

use std::thread;
use std::time::{Duration, Instant};

use vmio_node::linux::net;
use vmio_node::{Exec, Node};

use super::{Error, Plug, Result, ip};

/// How long a guest's device may take to show, and to find its link.
const SHOWS: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

/// Gives a guest's device its address, and returns its name. It is found by its hardware address, since names depend
/// on the order in which drivers come up.
///
/// # Errors
/// When it does not show, or `ip` refuses.
pub fn bring_up(guest: &dyn Node, plug: &Plug) -> Result<String> {
    let (until, mac) = (Instant::now() + SHOWS, &plug.mac);
    let device = loop {
        if let Some(device) = net::Interfaces::here(guest.reader()).with_address(mac) {
            break device;
        }
        if Instant::now() > until {
            let has = match net::Interfaces::here(guest.reader()).names() {
                Ok(names) => names.join(", "),
                Err(e) => e.to_string(),
            };
            return Err(Error::NotShown { mac: mac.clone(), seconds: SHOWS.as_secs(), has });
        }
        thread::sleep(POLL);
    };
    let (address, prefix) = (plug.address, plug.prefix);
    let mut lines = vec!["link set lo up".to_owned(), format!("address add {address}/{prefix} dev {device}")];
    lines.extend(plug.mtu.map(|mtu| format!("link set {device} mtu {mtu}")));
    lines.push(format!("link set {device} up"));
    ip(guest, &Exec::new("ip"), &lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(device)
}

/// Has a guest use one of its devices and none of these others, which lie on the same network: with several there it sends
/// by the one that came first, whichever is meant, and answers for the address of each on all of them.
///
/// # Errors
/// When `ip` refuses, or the device finds no link.
pub fn turn_to(guest: &dyn Node, device: &str, others: &[&str]) -> Result<()> {
    let found = net::Interfaces::here(guest.reader());
    let is_up = |name: &str| found.has_carrier(name) == Some(true);
    // A device that is down tells nothing of its link.
    let mut lines: Vec<String> = others
        .iter()
        .filter(|name| found.has_carrier(name).is_some())
        .map(|name| format!("link set {name} down"))
        .collect();
    if !is_up(device) {
        lines.push(format!("link set {device} up"));
    }
    ip(guest, &Exec::new("ip"), &lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    let until = Instant::now() + SHOWS;
    while !is_up(device) {
        if Instant::now() > until {
            return Err(Error::NoLink { device: device.to_owned(), seconds: SHOWS.as_secs() });
        }
        thread::sleep(POLL);
    }
    Ok(())
}
