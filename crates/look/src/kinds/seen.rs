//! Common to the kinds that vmio only reads: a guest's process with its threads, quota and interfaces, from /proc and
//! /sys.

use std::path::{Path, PathBuf};

use vmio_model::facts::{Disk, Fact, Guest, HostCpu, Nic, PlacedThread, Processors, Subject, Unread};
use vmio_node::linux;
use vmio_node::linux::process::Status;

use super::process::Process;
use super::qemu::nics::host_interface;
use super::quota;
use crate::Managed;
use crate::host_view::{HostView, ProcessInfo};
use crate::neighbours::{Kind, kind_of};

/// A guest of which only the process is known.
pub fn guest(process: &Process<'_>, kind: &str) -> Guest {
    Guest { name: process.name.clone(), kind: kind.to_owned(), pid: Some(process.pid), ..Guest::default() }
}

/// The guests of one kind of hypervisor, made by `make` of process and command line.
pub fn guests(
    host: &HostView<'_>,
    kind: Kind,
    guest: impl Fn(&HostView<'_>, u32, &[String]) -> Option<Guest>,
) -> Managed {
    let of = |p: &ProcessInfo| {
        let args = p.args.as_deref()?;
        let ours = kind_of(args.first()?, &p.comm) == Some(kind);
        ours.then(|| guest(host, p.pid, args))?
    };
    Managed { guests: host.processes().iter().filter_map(of).collect(), unread: Vec::new() }
}

/// The arguments of an option: those after `--disk` up to the next option, or that of `--disk=…`.
pub fn values<'a>(args: &'a [String], option: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    let mut ours = false;
    for arg in args.iter().skip(1) {
        match arg.strip_prefix("--") {
            Some(name) => {
                let (name, value) = name.split_once('=').map_or((name, None), |(n, v)| (n, Some(v)));
                ours = name == option;
                values.extend(value.filter(|_| ours));
            }
            None if ours => values.push(arg.as_str()),
            None => {}
        }
    }
    values
}

/// A path of the process, on this machine.
pub fn file(process: &Process<'_>, path: &str) -> PathBuf {
    let link = |name: &str| process.reader().link(&process.path(name)).ok().flatten();
    let mut at = PathBuf::from(path);
    if at.is_relative() {
        // Both links as seen from here: cwd begins with root where the mount namespace is ours.
        let cwd = link("cwd").unwrap_or_default();
        let inner = link("root").and_then(|root| cwd.strip_prefix(root).ok().map(Path::to_owned));
        at = inner.unwrap_or(cwd).join(at);
    }
    process.path("root").join(at.strip_prefix("/").unwrap_or(&at))
}

/// Threads of a process; `role` gives a thread's role and number by its name.
pub fn threads(process: &Process<'_>, role: impl Fn(&str) -> Option<(&'static str, String)>) -> Vec<PlacedThread> {
    let tids = linux::process::threads(process.reader(), process.pid).unwrap_or_default();
    let thread = |tid: u32| {
        let status = Status::of_thread(process.reader(), process.pid, tid).ok()?; // else it has ended
        let (role, name) = match role(status.name()) {
            Some(known) => known,
            None if tid == process.pid => ("main", String::new()),
            None => ("other", String::new()),
        };
        Some(PlacedThread { role: role.to_owned(), name, tid, cpus: status.cpus().unwrap_or_default() })
    };
    tids.into_iter().filter_map(thread).collect()
}

/// Processors with these threads and the control group's quota.
pub fn processors(process: &Process<'_>, host: &[HostCpu], threads: Vec<PlacedThread>) -> Processors {
    let mut own = Processors::unknown(Subject::guest(&process.name), process.provenance());
    own.host = host.to_vec().into();
    own.threads = Fact::read(threads, format!("/proc/{}/task/*/status", process.pid));
    quota::fill(process, &mut own);
    own
}

/// A disk of the guest.
pub fn disk(process: &Process<'_>, name: &str, from: &str) -> Disk {
    let from = process.host.from(&process.name, from);
    let mut disk = Disk::unknown(Subject::disk(&process.name, name), from);
    disk.place.device_id = Some(name.to_owned());
    disk
}

/// A network device that is connected to an interface of the host.
pub fn nic(process: &Process<'_>, name: &str, interface: Option<&str>, from: &str, missing: &mut Vec<Unread>) -> Nic {
    let provenance = process.host.from(&process.name, from);
    let mut nic = Nic::unknown(Subject::net(&process.name, name), provenance);
    nic.place.device_id = Some(name.to_owned());
    if let Some(interface) = interface {
        nic.interface = Fact::read(Some(interface.to_owned()), from);
        host_interface(process, &mut nic, missing);
    }
    nic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_may_have_several_values() {
        let args: Vec<String> =
            ["vmm", "--disk", "path=/a", "path=/b", "--cpus=boot=2", "-v", "--disk", "path=/c"].map(Into::into).into();
        assert_eq!(values(&args, "disk"), ["path=/a", "path=/b", "path=/c"]);
        assert_eq!(values(&args, "cpus"), ["boot=2", "-v"]);
        assert_eq!(values(&args, "net"), [""; 0]);
    }
}
