//! Containers that run here. A process belongs to one when its control group bears the name that an
//! engine gives (Docker, Podman, containerd, CRI-O, LXC, systemd-nspawn), or when it has both a
//! process namespace and a mount namespace of its own (namespaces(7)). Those of one group are one
//! guest. Containers in which a hypervisor runs are left out (their guest is shown), and so are those
//! that only hold a pod's namespaces (`pause`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_model::facts::{Disk, Fact, Guest, Unread};

use super::process::Process;
use super::qemu::nics::{bridge_mtu, mtu};
use super::{GuestKind, seen};
use crate::look::{Look, Seen};
use crate::neighbours::kind_of;
use crate::topology::host_cpus;
use crate::{Managed, storage};

mod limits;
mod name;

use name::Named;

/// Entry `container`.
pub struct Container;

impl GuestKind for Container {
    fn name(&self) -> &'static str {
        "container"
    }
    fn about(&self) -> &'static str {
        "a running container (read only)"
    }
    fn running(&self, look: &Look<'_>) -> Managed {
        let host = host_cpus(look.reader());
        let (groups, refused) = groups(look);
        let guests = groups.into_iter().filter_map(|(named, group)| {
            let leader = leader(look, &group)?;
            let mut process = Process::new(look, leader.pid, &[]);
            process.name = named.name.clone();
            let mut guest = seen::guest(&process, "container");
            guest.ids.insert("engine".into(), named.engine.into());
            guest.ids.insert("processes".into(), group.len().to_string());
            if let Some(id) = &named.id {
                guest.ids.insert("container".into(), id.clone());
            }
            let mut own = seen::processors(&process, &host, seen::threads(&process, |_| None));
            (own.memory_bytes, own.huge_pages) = (limits::memory_bytes(&process).into(), None.into());
            guest.processors = Some(own);
            guest.disks.extend(root(&process));
            interfaces(&process, &mut guest);
            process.runs().then_some(guest)
        });
        let unread = (refused > 0).then(|| Unread {
            what: format!("namespaces of {refused} process{}", if refused == 1 { "" } else { "es" }),
            why: "no permission to read them: there may be more containers".into(),
            mend: "run as root, with all of its capabilities".into(),
        });
        Managed { guests: guests.collect(), unread: unread.into_iter().collect() }
    }
}

/// Processes by the container that they are in, and how many did not show their namespaces.
fn groups<'a>(look: &'a Look<'_>) -> (BTreeMap<Named, Vec<&'a Seen>>, usize) {
    let link = |path: PathBuf| look.reader().link(&path).ok().flatten();
    let space = |dir: &Path, kind: &str| link(dir.join("ns").join(kind));
    let own = Path::new("/proc/self");
    let (own_pid, own_mnt) = (space(own, "pid"), space(own, "mnt"));
    let mut refused = 0;
    let mut groups: BTreeMap<Named, Vec<&Seen>> = BTreeMap::new();
    // Kernel threads have no arguments.
    for seen in look.processes().iter().filter(|p| p.args.as_ref().is_none_or(|a| !a.is_empty())) {
        let dir = seen.dir();
        let mnt = look.reader().link(&dir.join("ns/mnt"));
        // A process that has just ended refuses too.
        let runs = || look.reader().read(&dir.join("cmdline")).is_ok_and(|line| !line.is_empty());
        refused += usize::from(mnt.is_err() && runs());
        let (pid, mnt) = (space(&dir, "pid"), mnt.ok().flatten());
        // An engine's helper may be in the container's group, but it is in our namespaces.
        if mnt.is_some() && mnt == own_mnt {
            continue;
        }
        let cgroup = look.reader().read_text(&dir.join("cgroup")).unwrap_or_default();
        let unnamed = || {
            let apart = pid.is_some() && own_pid.is_some() && pid != own_pid && mnt.is_some() && own_mnt.is_some();
            let number = pid.as_ref()?.display().to_string();
            let number = number.trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
            apart.then(|| Named { engine: "namespaces", name: format!("namespace {number}"), id: None })
        };
        if let Some(named) = name::of(&cgroup).or_else(unnamed) {
            groups.entry(named).or_default().push(seen);
        }
    }
    let runs_guest = |p: &&Seen| p.args.iter().flatten().next().is_some_and(|a| kind_of(a, &p.comm).is_some());
    groups.retain(|_, group| !group.iter().any(runs_guest) && !group.iter().all(|p| p.program() == "pause"));
    (groups, refused)
}

/// The process that the others come from: number 1 in its own process namespace, else the oldest.
fn leader<'a>(look: &Look<'_>, group: &[&'a Seen]) -> Option<&'a Seen> {
    let first = |p: &&&Seen| {
        let status = look.reader().read_text(&p.dir().join("status")).unwrap_or_default();
        let inner = status.lines().find_map(|l| l.strip_prefix("NSpid:")).and_then(|l| l.split_whitespace().last());
        inner == Some("1")
    };
    group.iter().find(first).or_else(|| group.iter().min_by_key(|p| p.pid)).copied()
}

/// What its root directory lies on.
fn root(process: &Process<'_>) -> Option<Disk> {
    let path = process.path("mountinfo");
    let text = process.reader().read_text(&path).ok()?;
    // Of mounts on one point the last one is seen.
    let line = text.lines().rfind(|l| l.split(' ').nth(4) == Some("/"))?;
    let mount = vmio_node::machine::mounts(line.as_bytes()).pop()?;
    let mut disk = seen::disk(process, "/", &path.display().to_string());
    let upper = line.rsplit(' ').next()?.split(',').find_map(|o| o.strip_prefix("upperdir="));
    disk.place.source = Some(upper.map_or_else(|| mount.source.clone(), str::to_owned)).into();
    disk.place.target = Some("/".to_owned());
    disk.details.storage = Some(match (mount.filesystem.as_str(), mount.dev.0) {
        // File systems without a block device: overlay, zfs, btrfs, nfs.
        (other, 0) => other.to_owned(),
        _ => {
            let stat = vmio_node::FileStat { mode: 0o060_660, size: 0, allocated: 0, dev: (0, 0), rdev: mount.dev };
            let storage = storage::of(process.reader(), &stat);
            disk.place.block_device = Some(true);
            disk.details.thin = storage.thin.into();
            storage.kind.to_owned()
        }
    })
    .into();
    disk.details.limits = limits::io(process).into();
    Some(disk)
}

/// Its ends of veth pairs, by the number of the other end (`iflink`), which is on the host.
fn interfaces(process: &Process<'_>, guest: &mut Guest) {
    let reader = process.reader();
    let space = |dir: PathBuf| reader.link(&dir.join("ns/net")).ok().flatten();
    let theirs = space(process.path(""));
    if theirs.is_none() || theirs == space("/proc/self".into()) {
        return; // it uses the host's own interfaces
    }
    // A sysfs shows the namespace that it was mounted in.
    let dir = process.path("root/sys/class/net");
    let number = |path: PathBuf| reader.read_foreign_text(&path).ok()?.trim().parse::<u32>().ok();
    let here = Path::new("/sys/class/net");
    let on_host: BTreeMap<u32, String> = (reader.list(here).unwrap_or_default().into_iter())
        .filter_map(|name| Some((number(here.join(&name).join("ifindex"))?, name)))
        .collect();
    let names = reader.list_foreign(&dir).unwrap_or_default();
    for name in names.iter().filter(|n| *n != "lo" && *n != "bonding_masters") {
        let (index, peer) = (number(dir.join(name).join("ifindex")), number(dir.join(name).join("iflink")));
        let Some(peer) = peer.filter(|p| Some(*p) != index) else { continue };
        let from = dir.join(name).join("iflink").display().to_string();
        let interface = on_host.get(&peer).map(String::as_str);
        let mut nic = seen::nic(process, name, None, &from, &mut guest.unread);
        (nic.model, nic.backend) = ("veth".into(), "veth".into());
        if let Some(interface) = interface {
            nic.interface = Fact::read(Some(interface.to_owned()), from);
            nic.mtu_bytes = mtu(reader, here, interface).into();
            let master = reader.link(&here.join(interface).join("master")).ok().flatten();
            nic.bridge = master.and_then(|m| Some(m.file_name()?.to_string_lossy().into_owned())).into();
            nic.bridge_mtu_bytes = nic.bridge.as_deref().and_then(|bridge| bridge_mtu(reader, here, bridge)).into();
        }
        guest.nics.push(nic);
    }
}

#[cfg(test)]
mod tests;
