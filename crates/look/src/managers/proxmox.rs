//! Proxmox VE: guests with a file in `/run/qemu-server` run, and `/etc/pve/qemu-server/VMID.conf`
//! says how they are configured (Proxmox VE Administration Guide, "QEMU/KVM Virtual Machines";
//! qm.conf(5)). A setting in the file's section `[PENDING]` was asked for and comes into force with
//! the guest's next start.

use std::path::{Path, PathBuf};

use vmio_model::cell::Kind;
use vmio_model::facts::{Guest, Unread};
use vmio_model::rules::change::ConfigTool;

use vmio_node::linux::cgroup::Hierarchies;

use super::{Managed, Manager};
use crate::host_view::HostView;
use crate::require::Fix;
use storages::{Storage, storages};

mod conf;
mod devices;
pub mod storages;

/// Where Proxmox VE keeps the numbers of processes; the second is the first on all but old hosts.
const PIDS: [&str; 2] = ["/run/qemu-server", "/var/run/qemu-server"];
/// This node's own guests, in the file system of the cluster.
const CONFIG: &str = "/etc/pve/qemu-server";

/// This node's own containers.
const CONTAINERS: &str = "/etc/pve/lxc";
/// Control group that those of containers are in, of the unified hierarchy or of systemd's own.
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
    fn guests(&self, look: &HostView<'_>) -> Managed {
        let storages = storages(look.reader());
        let mut managed = Managed::default();
        for (vmid, pid) in running(look, &mut managed.unread) {
            managed.guests.push(guest(look, vmid, pid, &storages));
        }
        managed.guests.extend(containers(look));
        managed
    }
}

/// Containers that run: their host names, beside the numbers by which their control groups name
/// them.
fn containers(look: &HostView<'_>) -> Vec<Guest> {
    let reader = look.reader();
    let hierarchies = Hierarchies::of(reader).unwrap_or_default();
    let mounts = || hierarchies.v2().into_iter().chain(hierarchies.v1("name=systemd"));
    let named = |name: String| {
        let vmid = name.strip_suffix(".conf").filter(|vmid| vmid.parse::<u32>().is_ok())?;
        mounts().find(|m| matches!(reader.stat(&m.point.join(GROUP).join(vmid)), Ok(Some(_))))?;
        let text = reader.read_text(&Path::new(CONTAINERS).join(&name)).ok()?;
        let conf = conf::sections(&text).now;
        let mut guest = Guest { name: vmid.to_owned(), kind: Kind::CONTAINER.name.into(), ..Guest::default() };
        guest.manager = Some(Proxmox.name().into());
        guest.ids.insert("vmid".into(), vmid.to_owned());
        guest.ids.extend(conf.get("hostname").map(|name| ("hostname".into(), name.clone())));
        Some(guest)
    };
    reader.list(Path::new(CONTAINERS)).unwrap_or_default().into_iter().filter_map(named).collect()
}

/// Numbers of guests and of their processes. Files of processes that were killed stay behind.
fn running(look: &HostView<'_>, unread: &mut Vec<Unread>) -> Vec<(u32, u32)> {
    let reader = look.reader();
    let Some(dir) = PIDS.map(Path::new).into_iter().find(|dir| matches!(reader.stat(dir), Ok(Some(_)))) else {
        return Vec::new();
    };
    let names = reader.list(dir).unwrap_or_else(|e| {
        let mend = Fix::Root.words(reader);
        unread.push(Unread { what: "guests of Proxmox VE".into(), why: e.to_string(), mend });
        Vec::new()
    });
    let found = names.iter().filter_map(|name| {
        let vmid = name.strip_suffix(".pid")?;
        let pid: u32 = reader.read_text(&dir.join(name)).ok()?.trim().parse().ok()?;
        let process = look.processes().iter().find(|p| p.pid == pid)?;
        // Proxmox VE starts QEMU with the guest's number.
        let own = |args: &Vec<String>| args.windows(2).any(|pair| pair[0] == "-id" && pair[1] == vmid);
        process.args.as_ref().is_none_or(own).then_some((vmid.parse().ok()?, pid))
    });
    found.collect()
}

fn guest(look: &HostView<'_>, vmid: u32, pid: u32, storages: &[Storage]) -> Guest {
    let path = PathBuf::from(CONFIG).join(format!("{vmid}.conf"));
    let mut guest = match look.reader().read_text(&path) {
        Ok(text) => {
            let sections = conf::sections(&text);
            let from = |name: &str| look.from(name, path.display().to_string());
            let mut guest = devices::guest(vmid, &sections.now, storages, &from);
            if let Some(next) = sections.next {
                let from = |name: &str| look.from(name, format!("{} [PENDING]", path.display()));
                guest.configured(devices::only_compared(devices::guest(vmid, &next, storages, &from)));
            }
            guest
        }
        Err(e) => Guest {
            unread: vec![Unread {
                what: format!("configuration of {vmid}"),
                why: e.to_string(),
                mend: Fix::RootThen("if it is missing, check that pve-cluster runs").words(look.reader()),
            }],
            ..Guest::default()
        },
    };
    guest.kind = Kind::QEMU.name.into();
    guest.manager = Some(Proxmox.name().into());
    guest.pid = Some(pid);
    guest.ids.insert("vmid".into(), vmid.to_string());
    if guest.name.is_empty() {
        // As Proxmox names it to QEMU.
        guest.name = format!("vm{vmid}");
    }
    guest
}

#[cfg(test)]
mod tests;
