//! Proxmox VE: guests with a file in `/run/qemu-server` run; `/etc/pve/qemu-server/VMID.conf` is their configuration
//! (Proxmox VE Administration Guide, "QEMU/KVM Virtual Machines"; qm.conf(5)). A setting in its section `[PENDING]`
//! takes effect with the guest's next start.

use std::path::{Path, PathBuf};

use vmio_model::cell::Kind;
use vmio_model::facts::{Guest, Unread};
use vmio_model::rules::change::ConfigTool;

use super::{Managed, Manager};
use crate::host_view::HostView;
use crate::require::Fix;
use storages::{Storage, storages};

mod addresses;
mod conf;
mod containers;
mod devices;
pub mod storages;

/// Directories of pid files; the second is a link to the first on all but old hosts.
const PIDS: [&str; 2] = ["/run/qemu-server", "/var/run/qemu-server"];
/// This node's guests, in the cluster's file system.
const CONFIG: &str = "/etc/pve/qemu-server";

/// This node's containers.
const CONTAINERS: &str = "/etc/pve/lxc";
/// Control group of all containers, in the unified hierarchy or systemd's.
const GROUP: &str = "lxc";

/// Entry `proxmox`.
pub struct Proxmox;

impl Manager for Proxmox {
    fn name(&self) -> &'static str {
        "proxmox"
    }
    fn about(&self) -> &'static str {
        "guests of Proxmox VE: numbers, slots, volumes, settings, and changes that wait for a restart"
    }
    fn way(&self) -> ConfigTool {
        ConfigTool::Proxmox
    }
    fn guests(&self, host: &HostView<'_>) -> Managed {
        let storages = storages(host.reader());
        let mut managed = Managed::default();
        for (vmid, pid) in running(host, &mut managed.unread) {
            managed.guests.push(guest(host, vmid, pid, &storages));
        }
        managed.guests.extend(containers(host));
        managed
    }
}

/// Running containers: their host names, beside the numbers in the names of their control groups.
fn containers(host: &HostView<'_>) -> Vec<Guest> {
    let reader = host.reader();
    let hierarchies = host.groups();
    let mounts = || hierarchies.v2().into_iter().chain(hierarchies.v1("name=systemd"));
    let named = |name: String| {
        let vmid = name.strip_suffix(".conf").filter(|vmid| vmid.parse::<u32>().is_ok())?;
        mounts().find(|m| matches!(reader.stat(&m.point.join(GROUP).join(vmid)), Ok(Some(_))))?;
        let path = Path::new(CONTAINERS).join(&name);
        let text = reader.read_text(&path).ok()?;
        let conf = conf::sections(&text).now;
        let mut guest = Guest { name: vmid.to_owned(), kind: Kind::CONTAINER.name.into(), ..Guest::default() };
        guest.manager = Some(Proxmox.name().into());
        guest.nics = containers::nics(vmid, &conf, &host.from(vmid, path.display().to_string()));
        guest.ids.insert("vmid".into(), vmid.to_owned());
        guest.ids.extend(conf.get("hostname").map(|name| ("hostname".into(), name.clone())));
        Some(guest)
    };
    reader.list(Path::new(CONTAINERS)).unwrap_or_default().into_iter().filter_map(named).collect()
}

/// Numbers of guests and of their processes. Killed guests leave their files behind.
fn running(host: &HostView<'_>, unread: &mut Vec<Unread>) -> Vec<(u32, u32)> {
    let reader = host.reader();
    let Some(dir) = PIDS.map(Path::new).into_iter().find(|dir| matches!(reader.stat(dir), Ok(Some(_)))) else {
        return Vec::new();
    };
    let names = reader.list(dir).unwrap_or_else(|e| {
        let mend = Fix::Root.remedy(reader);
        unread.push(Unread { what: "guests of Proxmox VE".into(), why: e.to_string(), mend });
        Vec::new()
    });
    let found = names.iter().filter_map(|name| {
        let vmid = name.strip_suffix(".pid")?;
        let pid: u32 = reader.read_text(&dir.join(name)).ok()?.trim().parse().ok()?;
        let process = host.processes().iter().find(|p| p.pid == pid)?;
        // Proxmox VE starts QEMU with the guest's number.
        let own = |args: &Vec<String>| args.windows(2).any(|pair| pair[0] == "-id" && pair[1] == vmid);
        process.args.as_ref().is_none_or(own).then_some((vmid.parse().ok()?, pid))
    });
    found.collect()
}

fn guest(host: &HostView<'_>, vmid: u32, pid: u32, storages: &[Storage]) -> Guest {
    let path = PathBuf::from(CONFIG).join(format!("{vmid}.conf"));
    let mut guest = match host.reader().read_text(&path) {
        Ok(text) => {
            let sections = conf::sections(&text);
            let from = |name: &str| host.from(name, path.display().to_string());
            let mut guest = devices::guest(vmid, &sections.now, storages, &from);
            let firewall = Path::new(addresses::FIREWALL).join(format!("{vmid}.fw"));
            let firewall = host.reader().read_text(&firewall).unwrap_or_default();
            for place in guest.nics.iter_mut().map(|nic| &mut nic.place) {
                let slot = place.slot.as_deref().unwrap_or_default();
                place.addresses = addresses::of(slot, &sections, &firewall);
            }
            if let Some(next) = sections.next {
                let from = |name: &str| host.from(name, format!("{} [PENDING]", path.display()));
                guest.configured(devices::only_compared(devices::guest(vmid, &next, storages, &from)));
            }
            guest
        }
        Err(e) => Guest {
            unread: vec![Unread {
                what: format!("configuration of {vmid}"),
                why: e.to_string(),
                mend: Fix::RootThen("if it is missing, check that pve-cluster runs").remedy(host.reader()),
            }],
            ..Guest::default()
        },
    };
    guest.kind = Kind::QEMU.name.into();
    guest.manager = Some(Proxmox.name().into());
    guest.pid = Some(pid);
    guest.ids.insert("vmid".into(), vmid.to_string());
    if guest.name.is_empty() {
        // Proxmox's name of it for QEMU.
        guest.name = format!("vm{vmid}");
    }
    guest
}

#[cfg(test)]
mod tests;
