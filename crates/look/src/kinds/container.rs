//! Running containers. A process belongs to one when its control group has a name as an engine gives it (Docker,
//! Podman, containerd, CRI-O, LXC, systemd-nspawn), or when it has a process namespace and a mount namespace of its own
//! (namespaces(7)). The processes of one group are one guest. Containers that run a hypervisor (their guest is shown)
//! or only hold a pod's namespaces (`pause`) are left out.

use std::collections::BTreeMap;
use std::path::Path;

use vmio_model::cell::Kind;
use vmio_model::facts::{Disk, Fact, Guest, Unread};
use vmio_model::sanitize::line;
use vmio_node::linux::net::Interfaces;
use vmio_node::linux::process;

use super::process::Process;
use super::{GuestKind, host_cpus, seen};
use crate::host_view::{HostView, ProcessInfo};
use crate::neighbours::{kind_of, owner};
use crate::require::Fix;
use crate::{Managed, storage, way};

mod limits;
mod name;

use name::ContainerName;

/// Entry `container`.
pub struct Container;

impl GuestKind for Container {
    fn name(&self) -> &'static str {
        Kind::CONTAINER.name
    }
    fn about(&self) -> &'static str {
        "a running container (read only)"
    }
    fn running(&self, host: &HostView<'_>) -> Managed {
        let cpus = host_cpus(host.reader());
        let (groups, refused) = groups(host);
        let guests = groups.into_iter().filter_map(|(named, group)| {
            let leader = leader(host, &group)?;
            let mut process = Process::new(host, leader.pid, &[]);
            process.name = named.name.clone();
            let mut guest = seen::guest(&process, self.name());
            if owner(host.reader(), leader.pid).is_some() {
                guest.ids.insert("owner".into(), "vmio".into());
            }
            guest.ids.insert("engine".into(), named.engine.into());
            guest.ids.insert("processes".into(), group.len().to_string());
            if let Some(id) = &named.id {
                guest.ids.insert("container".into(), id.clone());
            }
            let mut own = seen::processors(&process, &cpus, seen::threads(&process, |_| None));
            (own.memory_bytes, own.huge_pages) = (limits::memory_bytes(&process).into(), None.into());
            guest.processors = Some(own);
            guest.disks.extend(root(&process));
            interfaces(&process, &mut guest);
            process.runs().then_some(guest)
        });
        let unread = unread(host, &refused);
        Managed { guests: guests.collect(), unread: unread.into_iter().collect() }
    }
}

/// Most processes that a note names.
const NAMED: usize = 3;

/// A note on processes that do not show their namespaces.
fn unread(host: &HostView<'_>, refused: &[&ProcessInfo]) -> Option<Unread> {
    let first = refused.first()?;
    let named: Vec<String> = refused.iter().take(NAMED).map(|p| format!("{} {}", p.pid, line(&p.comm))).collect();
    let more = if refused.len() > NAMED { ", …" } else { "" };
    let (whose, one) = match refused.len() {
        1 => (format!("process {} ({})", first.pid, line(&first.comm)), "it is"),
        n => (format!("{n} processes (pid {}{more})", named.join(", ")), "they are in"),
    };
    Some(Unread {
        what: format!("namespaces of {whose}: whether {one} a container"),
        why: format!(
            "{} may not be read; containers whose control group has an engine's name are still found",
            process::file(first.pid, "ns/mnt").display()
        ),
        mend: Fix::Links.remedy(host.reader()),
    })
}

/// Processes by container, and the processes that do not show their namespaces and have no engine's name in their
/// control group.
fn groups<'a>(host: &'a HostView<'_>) -> (BTreeMap<ContainerName, Vec<&'a ProcessInfo>>, Vec<&'a ProcessInfo>) {
    let reader = host.reader();
    let own = |kind: &str| process::namespace(reader, "self", kind).ok().flatten();
    let (own_pid, own_mnt) = (own("pid"), own("mnt"));
    let mut refused = Vec::new();
    let mut groups: BTreeMap<ContainerName, Vec<&ProcessInfo>> = BTreeMap::new();
    // Kernel threads have no arguments.
    for seen in host.processes().iter().filter(|p| p.args.as_ref().is_none_or(|a| !a.is_empty())) {
        let mnt = process::namespace(reader, seen.pid, "mnt");
        // A process that has just ended also refuses.
        let runs = || process::command_line(reader, seen.pid).is_ok_and(|line| !line.is_empty());
        let unknown = mnt.is_err() && runs();
        let (pid, mnt) = (process::namespace(reader, seen.pid, "pid").ok().flatten(), mnt.ok().flatten());
        // An engine's helper may be in the container's group, but has our mount namespace.
        if mnt.is_some() && mnt == own_mnt {
            continue;
        }
        let cgroup = reader.read_text(&process::file(seen.pid, "cgroup")).unwrap_or_default();
        let unnamed = || {
            let apart = pid.is_some() && own_pid.is_some() && pid != own_pid && mnt.is_some() && own_mnt.is_some();
            let number = pid.as_ref()?.display().to_string();
            let number = number.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
            apart.then(|| ContainerName { engine: "namespaces", name: format!("namespace {number}"), id: None })
        };
        match name::of(&cgroup).or_else(unnamed) {
            Some(named) => groups.entry(named).or_default().push(seen),
            None if unknown => refused.push(seen),
            None => {}
        }
    }
    let runs_guest = |p: &&ProcessInfo| p.args.iter().flatten().next().is_some_and(|a| kind_of(a, &p.comm).is_some());
    groups.retain(|_, group| !group.iter().any(runs_guest) && !group.iter().all(|p| p.program() == "pause"));
    (groups, refused)
}

/// The first process: number 1 in its process namespace, else the oldest.
fn leader<'a>(host: &HostView<'_>, group: &[&'a ProcessInfo]) -> Option<&'a ProcessInfo> {
    let first = |p: &&&ProcessInfo| {
        process::Status::of(host.reader(), p.pid).is_ok_and(|status| status.inner_number() == Some(1))
    };
    group.iter().find(first).or_else(|| group.iter().min_by_key(|p| p.pid)).copied()
}

/// The root file system as a disk.
fn root(process: &Process<'_>) -> Option<Disk> {
    // Of mounts on one mount point the last one is visible.
    let mount = process.mounts().iter().rfind(|m| m.point == Path::new("/"))?;
    let mut disk = seen::disk(process, "/", &process.path("mountinfo").display().to_string());
    disk.place.source = Some(mount.option("upperdir").unwrap_or_else(|| mount.source.clone())).into();
    disk.place.target = Some("/".to_owned());
    disk.details.storage = Some(match (mount.filesystem.as_str(), mount.dev.0) {
        // File systems without a block device: overlay, zfs, btrfs, nfs.
        (other, 0) => other.to_owned(),
        _ => {
            let storage = storage::device(process.reader(), mount.dev);
            disk.place.block_device = Some(true);
            disk.details.thin = storage.thin.into();
            storage.kind.to_owned()
        }
    })
    .into();
    disk.details.limits = limits::io(process).into();
    Some(disk)
}

/// Its ends of veth pairs; `iflink` is the index of the other end, on the host.
fn interfaces(process: &Process<'_>, guest: &mut Guest) {
    if process::same_namespace(process.reader(), process.pid, "net") {
        return; // it uses the host's own interfaces
    }
    let (here, there) = (Interfaces::here(process.reader()), process.inner_interfaces());
    for name in there.names().unwrap_or_default().iter().filter(|n| *n != "lo") {
        let index = there.index(name);
        let Some(peer) = there.link_index(name).filter(|p| Some(*p) != index) else { continue };
        let from = there.dir.join(name).join("iflink").display().to_string();
        let interface = process.host.interface(peer);
        let mut nic = seen::nic(process, name, None, &from, &mut guest.unread);
        (nic.model, nic.backend) = ("veth".into(), "veth".into());
        nic.guest_mtu_bytes = Fact::read(there.mtu_bytes(name), there.dir.join(name).join("mtu").display().to_string());
        if let Some(interface) = interface {
            nic.interface = Fact::read(Some(interface.to_owned()), from);
            way::settle(process.host, &here, &mut nic, interface);
        }
        guest.nics.push(nic);
    }
}

#[cfg(test)]
mod tests;
