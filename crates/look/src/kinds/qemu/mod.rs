//! Running QEMU guests, whoever started them, by /proc and /sys: nothing is sent to them, and nothing runs in them.

mod blocks;
mod disks;
mod elsewhere;
mod fdset;
mod monitor;
mod names;
pub(in crate::kinds) mod nics;
mod processors;
mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use vmio_model::facts::{Guest, HostCpu, Unread};
use vmio_model::rules::change::ConfigTool;
use vmio_model::waterfall::hypervisor::HypervisorCounts;
use vmio_node::linux::process::COMMAND_LINE_BYTES;

use super::process::Process;
use super::{GuestKind, host_cpus};
use crate::host_view::{HostView, ProcessInfo};
use crate::neighbours::{Kind, kind_of, owner};
use crate::require::Fix;
use crate::{Managed, parallel};

pub(crate) use monitor::on_server;

/// Entry `qemu`.
pub struct Qemu;

impl GuestKind for Qemu {
    fn name(&self) -> &'static str {
        vmio_model::cell::Kind::QEMU.name
    }
    fn about(&self) -> &'static str {
        "QEMU, however it was started (libvirt, Proxmox, manually)"
    }
    fn way(&self, managed: Option<ConfigTool>) -> Option<ConfigTool> {
        managed.or(Some(ConfigTool::Qemu))
    }
    fn running(&self, host: &HostView<'_>) -> Managed {
        running(host)
    }
    fn ask(&self, host: &HostView<'_>, guest: &mut Guest) {
        look_closer(host, guest);
        monitor::ask(host, guest);
    }
    fn counts(&self, host: &HostView<'_>, guest: &Guest) -> Option<Result<HypervisorCounts, Vec<Unread>>> {
        Some(monitor::counts(host, guest))
    }
    fn memory(&self, host: &HostView<'_>, guest: &mut Guest) -> Result<(), Vec<Unread>> {
        monitor::memory(host, guest)
    }
    fn monitor(&self, host: &HostView<'_>, guest: &Guest) -> Option<Result<PathBuf, Vec<Unread>>> {
        Some(monitor::socket_of(host, guest))
    }
}

/// Most disks and network devices of a guest that are read; its owner can name any number.
const MOST_DEVICES: usize = 200;

/// A note on devices beyond the limit.
fn too_many(what: &str, process: &Process<'_>, most: usize) -> Unread {
    Unread {
        what: format!("{what} of guest {} after the first {most}", process.name),
        why: format!("it has more than {MOST_DEVICES} devices, the most that vmio reads of one guest"),
        mend: format!("the others are in /proc/{}/cmdline", process.pid).into(),
    }
}

/// The running guests.
fn running(host: &HostView<'_>) -> Managed {
    let seen: Vec<&ProcessInfo> = host.processes().iter().filter(|p| is_qemu(p)).collect();
    if seen.is_empty() {
        return Managed::default();
    }
    let cpus = host_cpus(host.reader());
    let mut managed = Managed::default();
    for found in parallel::map(seen, |seen| guest(host, seen, &cpus)) {
        match found {
            Ok(Some(guest)) => managed.guests.push(guest),
            Ok(None) => {}
            Err(unread) => managed.unread.push(unread),
        }
    }
    managed
}

/// Adds what takes longer to read: memory by NUMA node.
fn look_closer(host: &HostView<'_>, guest: &mut Guest) {
    let seen = host.processes().iter().find(|p| Some(p.pid) == guest.pid);
    if let (Some(args), Some(own), Some(pid)) =
        (seen.and_then(|s| s.args.as_deref()), guest.processors.as_mut(), guest.pid)
    {
        processors::memory_by_node(&Process::new(host, pid, args), own);
    }
}

/// Interfaces of the taps that a process has open; `None` where that may not be read.
pub(crate) fn taps(host: &HostView<'_>, pid: u32) -> Option<BTreeSet<String>> {
    let process = Process::new(host, pid, &[]);
    let tuns = process.fds().ok()?.iter().filter(|(_, to)| to == "/dev/net/tun");
    Some(tuns.filter_map(|(fd, _)| process.tun(*fd).ok()?).collect())
}

/// Whether a process is a QEMU. A kernel thread and a process that has ended have no arguments.
fn is_qemu(seen: &ProcessInfo) -> bool {
    let Some(args) = &seen.args else { return kind_of("", &seen.comm) == Some(Kind::Qemu) };
    args.first().is_some_and(|program| kind_of(program, &seen.comm) == Some(Kind::Qemu))
}

/// Reads a guest; `None` where the process runs none.
fn guest(host: &HostView<'_>, seen: &ProcessInfo, cpus: &[HostCpu]) -> Result<Option<Guest>, Unread> {
    let args = seen.args.as_deref().ok_or_else(|| Unread {
        what: format!("command line of process {} ({})", seen.pid, seen.comm),
        why: "no permission to read it".into(),
        mend: Fix::Root.remedy(host.reader()),
    })?;
    let mut process = Process::new(host, seen.pid, args);
    let not_read = elsewhere::read(&mut process);
    let line = &process.line;
    // Not guests: a program that prints its version or help, and the device model of a Xen domain.
    let asks = ["version", "help", "h"].iter().any(|o| line.all(o).next().is_some());
    let none = matches!(line.get("machine", "type"), Some("none" | "help" | "?"));
    if asks || none || line.all("xen-domid").next().is_some() {
        return Ok(None);
    }
    let mut missing = line.unread.clone();
    missing.extend(not_read);
    let processors = processors::processors(&process, cpus, &mut missing);
    let mut disks = disks::disks(&process, *processors.vcpus, &mut missing);
    let socket = monitor::socket(line);
    disks.iter_mut().for_each(|disk| disk.place.monitor.clone_from(&socket));
    let most = MOST_DEVICES - disks.len().min(MOST_DEVICES);
    let nics = nics::nics(&process, *processors.vcpus, *processors.windows, most, &mut missing);
    if args.iter().map(|arg| arg.len() + 1).sum::<usize>() >= COMMAND_LINE_BYTES {
        missing.push(Unread {
            what: format!("command line of guest {} after its first {} KiB", process.name, COMMAND_LINE_BYTES >> 10),
            why: "no guest needs one that long; vmio reads no more of it".into(),
            mend: format!("it is in /proc/{}/cmdline", seen.pid).into(),
        });
    }
    let guest = Guest {
        name: process.name.clone(),
        kind: Qemu.name().into(),
        pid: Some(seen.pid),
        uuid: uuid(&process),
        ids: ids(&process),
        os: processors.windows.filter(|w| *w).map(|_| "windows".to_owned()),
        disks,
        nics,
        processors: Some(processors),
        unread: missing,
        ..Guest::default()
    };
    if !process.runs() {
        let what = format!("guest {} (pid {})", process.name, seen.pid);
        return Err(Unread { what, why: "it ended during the scan".into(), mend: "look again".into() });
    }
    Ok(Some(guest))
}

/// From `-uuid`, or from the SMBIOS table as Proxmox writes it.
fn uuid(process: &Process<'_>) -> Option<String> {
    let line = &process.line;
    let table = || line.all("smbios").find(|o| o.get("type") == Some("1"))?.get("uuid");
    line.get("uuid", "value").or_else(table).map(str::to_lowercase)
}

/// Other names of it: VMID, domain.
fn ids(process: &Process<'_>) -> BTreeMap<String, String> {
    let line = &process.line;
    let mut ids = BTreeMap::new();
    let mut put = |key: &str, value: String| ids.insert(key.to_owned(), value);
    if let Some(vmid) = line.get("id", "value") {
        put("vmid", vmid.to_owned()); // an option that Proxmox added to its QEMU
    }
    // libvirt gives each guest a secret in its own directory (src/qemu/qemu_command.c).
    let secret =
        line.all("object").filter_map(|o| o.get("file")).any(|f| f.contains("/qemu/") && f.contains("/domain-"));
    if let (true, Some(domain)) = (secret, line.guest_name()) {
        put("domain", domain.to_owned());
    }
    if owner(process.reader(), process.pid).is_some() {
        put("owner", "vmio".to_owned());
    }
    ids
}

/// A device's name without its bus variant: `virtio-blk` of `virtio-blk-pci-non-transitional`.
fn plain(kind: &str) -> String {
    let kind = kind.strip_suffix("-non-transitional").or(kind.strip_suffix("-transitional")).unwrap_or(kind);
    let virtio = kind.starts_with("virtio-") || kind.starts_with("vhost-");
    let bus = ["-pci", "-ccw", "-device"].iter().filter(|_| virtio).find_map(|bus| kind.strip_suffix(bus));
    bus.unwrap_or(kind).to_owned()
}

#[cfg(test)]
mod tests;
