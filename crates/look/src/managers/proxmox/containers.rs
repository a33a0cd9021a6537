//! Network cards of a container, by its file (pct.conf(5), `net[n]`). Its veth pair's end on the host is named after
//! its number (pve-container, PVE/LXC.pm, `update_lxc_config`), and limited as a machine's tap is (PVE/Network.pm,
//! `tap_rate_limit`).

use vmio_model::facts::{Nic, Place, Provenance, Subject};

use super::conf::{Parts, Settings};
use super::devices::rate_limits;

/// The cards that it names.
pub fn nics(vmid: &str, conf: &Settings, from: &Provenance) -> Vec<Nic> {
    let card = |(slot, value): (&String, &String)| {
        let number: u32 = slot.strip_prefix("net")?.parse().ok()?;
        let parts = Parts::of(value);
        // As the container calls it, by which its own reader knows it.
        let name = parts.get("name")?;
        Some(Nic {
            backend: "veth".into(),
            interface: Some(format!("veth{vmid}i{number}")).into(),
            bridge: parts.get("bridge").map(str::to_owned).into(),
            rate_limits: rate_limits(&parts).into(),
            place: Place {
                vmid: Some(vmid.to_owned()),
                slot: Some(slot.clone()),
                device_id: Some(name.to_owned()),
                ..Place::default()
            },
            ..Nic::unknown(Subject::net(vmid, slot.clone()), from.clone())
        })
    };
    conf.iter().filter_map(card).collect()
}
