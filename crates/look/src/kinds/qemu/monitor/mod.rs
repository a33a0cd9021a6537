//! Queries the monitor of a running QEMU (QMP: docs/interop/qmp-spec.rst of QEMU), where nobody else uses it and a
//! query changes nothing:
//! - only a socket that `/proc/PID/net/unix` shows as listening and without a connection;
//! - not where QEMU may still wait for its first connection (`wait=on`): connecting would start the guest;
//! - not where descriptors were passed with `-add-fd`: QEMU closes the unused ones when the last monitor disconnects
//!   (monitor/fds.c, `monitor_fdsets_cleanup`);
//! - not where a file of the guest lies on a server: `query-block` reads the sizes of images in QEMU's main loop, and a
//!   dead server would halt the guest;
//! - not that of an instance of Incus or LXD, to which its daemon stays connected;
//! - for [`MONITOR_LIMIT`](crate::host_view::MONITOR_LIMIT) at most; replies up to then are used.
//!
//! The monitor knows what is in force, so its replies replace facts of the command line.

use std::path::{Path, PathBuf};

use vmio_model::facts::{Guest, Unread};
use vmio_model::waterfall::hypervisor::HypervisorCounts;
use vmio_node::linux::{mounts, process, sockets};

use crate::host_view::HostView;
use crate::qemu::options::{CommandLine, Opt};
use crate::require::Fix;

mod blockstats;
mod device;
mod memory;
mod replies;

use memory::MemoryReplies;
use replies::QmpReplies;

/// File server protocols that QEMU itself speaks, by the start of their names.
const SERVERS: [&str; 4] = ["nfs", "gluster", "ssh", "cifs"];

/// Directories of monitors that Proxmox VE and libvirt use.
const MANAGED: [&str; 2] = ["/qemu-server/", "/libvirt/"];
/// Directories of monitors to which the daemons of Incus and LXD stay connected.
const KEPT: [&str; 2] = ["/incus/", "/lxd/"];

/// Fills in what the guest's monitor knows better than its command line.
pub fn ask(host: &HostView<'_>, guest: &mut Guest) {
    // `query-block` reads the sizes of images.
    let found = find(host, guest, &|pid| on_server(host, guest, Some(pid)));
    match found {
        Ok((what, path)) => session(host, guest, &what, &path),
        Err(refused) => guest.unread.extend(refused),
    }
}

/// What QEMU has counted of the guest's disks since it started. That reads no image.
///
/// # Errors
/// Why the monitors may not be queried, or did not answer; empty where the guest has none on a socket.
pub fn counts(host: &HostView<'_>, guest: &Guest) -> Result<HypervisorCounts, Vec<Unread>> {
    let (what, path) = find(host, guest, &|_| None)?;
    let asked = host.monitor(&guest.name, &path, blockstats::ask);
    let failed =
        |why: String| vec![Unread { what: what.clone(), why, mend: Fix::Do("try again").remedy(host.reader()) }];
    match asked {
        Ok((Ok(counts), _)) => Ok(counts),
        Ok((Err(why), _)) => Err(failed(why)),
        Err((unread, _)) => Err(vec![Unread { what: what.clone(), ..unread }]),
    }
}

/// Fills in what the guest's monitor knows of its memory and its reads.
///
/// # Errors
/// Why the monitors may not be queried, or did not answer; empty where the guest has none on a socket.
pub fn memory(host: &HostView<'_>, guest: &mut Guest) -> Result<(), Vec<Unread>> {
    let (what, path) = find(host, guest, &|_| None)?;
    let line = command_line(host, guest);
    let balloon = line.as_ref().and_then(|(_, line)| line.balloon());
    let asked = host.monitor(&guest.name, &path, |monitor| {
        let replies = MemoryReplies::ask(monitor, balloon);
        (replies, monitor.is_over())
    });
    match asked {
        Ok(((replies, false), _)) => {
            replies.put(guest, &what);
            Ok(())
        }
        // A part would be taken for all: for a guest that reports nothing, or has read nothing.
        Ok(((_, true), _)) => {
            let mend = Fix::Do("look again when the guest is less busy").remedy(host.reader());
            Err(vec![Unread { what, why: "it did not answer all in time".to_owned(), mend }])
        }
        Err((unread, _)) => Err(vec![Unread { what, ..unread }]),
    }
}

/// The socket of the guest's first monitor that may be used.
///
/// # Errors
/// Why none may; empty where the guest has none on a socket.
pub fn socket_of(host: &HostView<'_>, guest: &Guest) -> Result<PathBuf, Vec<Unread>> {
    find(host, guest, &|_| None).map(|(_, path)| path)
}

/// The guest's first monitor that may be queried, and its socket; otherwise why each may not. `more` has a further reason
/// of that process.
fn find(
    host: &HostView<'_>,
    guest: &Guest,
    more: &dyn Fn(u32) -> Option<String>,
) -> Result<(String, PathBuf), Vec<Unread>> {
    let mut refused = Vec::new();
    let Some((pid, line)) = command_line(host, guest) else { return Err(refused) };
    for monitor in monitors(&line) {
        let what = format!("monitor {}", monitor.name());
        let usable = usable(host, pid, &line, &monitor).and_then(|path| match more(pid) {
            None => Ok(path),
            Some(why) => Err((why, Fix::Do("its command line was read; query it manually"))),
        });
        match usable {
            Ok(path) => return Ok((what, path)),
            Err((why, fix)) => refused.push(Unread { what, why, mend: fix.remedy(host.reader()) }),
        }
    }
    Err(refused)
}

/// A guest's process, and its command line.
fn command_line(host: &HostView<'_>, guest: &Guest) -> Option<(u32, CommandLine)> {
    let pid = guest.pid?;
    let args = host.processes().iter().find(|p| p.pid == pid)?.args.as_ref()?;
    Some((pid, CommandLine::parse(args)))
}

fn session(host: &HostView<'_>, guest: &mut Guest, what: &str, path: &Path) {
    let line = command_line(host, guest);
    let balloon = line.as_ref().and_then(|(_, line)| line.balloon());
    let held = match host.monitor(&guest.name, path, |monitor| QmpReplies::ask(monitor, balloon)) {
        Ok((replies, held)) => {
            replies.put(host, guest, what);
            held
        }
        Err((unread, held)) => {
            guest.unread.push(Unread { what: what.to_owned(), ..unread });
            held
        }
    };
    guest.monitor_held_seconds = Some(held.as_secs_f64());
}

/// A QMP monitor on a socket that QEMU listens on.
#[derive(Debug, PartialEq, Eq)]
struct Monitor {
    /// Path as QEMU has it; `None` for a descriptor passed to it.
    path: Option<String>,
    /// Whether QEMU waits for a connection before it starts the guest.
    waits: bool,
}

impl Monitor {
    fn name(&self) -> &str {
        self.path.as_deref().unwrap_or("on a passed descriptor")
    }
}

/// The monitors of a command line: `-qmp unix:…`, and `-mon mode=control` with its `-chardev`.
fn monitors(line: &CommandLine) -> Vec<Monitor> {
    let by_address = |option: &Opt| {
        let path = option.get("address")?.strip_prefix("unix:")?;
        let server = option.on("server") == Some(true);
        server.then(|| Monitor { path: Some(path.to_owned()), waits: option.on("wait") != Some(false) })
    };
    let by_chardev = |mon: &Opt| {
        let device = line.find("chardev", mon.get("chardev")?).filter(|_| mon.get("mode") == Some("control"))?;
        // In JSON (QAPI `ChardevSocket`) the default of `wait` is off, and that of `server` on.
        let json = device.get("backend.type") == Some("socket");
        let (path, fd, server, waits) = if json {
            let inner = device.below("backend.data");
            let of = |key: &str| inner.get(&format!("addr.data.{key}")).map(str::to_owned);
            let fd = (inner.get("addr.type") == Some("fd")).then(|| of("str")).flatten();
            (of("path"), fd, inner.on("server") != Some(false), inner.on("wait") == Some(true))
        } else if device.get("backend") == Some("socket") {
            let of = |key: &str| device.get(key).map(str::to_owned);
            (of("path"), of("fd"), device.on("server") == Some(true), device.on("wait") != Some(false))
        } else {
            return None;
        };
        let known = path.is_some() || fd.is_some();
        (known && server).then_some(Monitor { path: path.filter(|_| fd.is_none()), waits })
    };
    let mons = line.all("mon").filter_map(by_chardev);
    line.all("qmp").filter_map(by_address).chain(mons).collect()
}

/// Why a monitor is not queried, and the fix.
type Refusal = (String, Fix);

/// Path of a socket for commands by hand: absolute, and none of a manager's, which uses its own.
pub(super) fn socket(line: &CommandLine) -> Option<String> {
    let managed = |path: &str| MANAGED.iter().chain(&KEPT).any(|directory| path.contains(directory));
    monitors(line).into_iter().filter_map(|m| m.path).find(|path| path.starts_with('/') && !managed(path))
}

/// Path of a monitor's socket on this machine, if it may be queried.
fn usable(host: &HostView<'_>, pid: u32, line: &CommandLine, monitor: &Monitor) -> Result<PathBuf, Refusal> {
    let Some(path) = &monitor.path else {
        return Err(("libvirt uses the monitor".into(), Fix::Do("--monitor queries it through libvirt")));
    };
    if KEPT.iter().any(|directory| path.contains(directory)) {
        return Err(("only the instance's daemon may use it".into(), Fix::Do("ask the daemon with its own client")));
    }
    let stat = host.reader().read_text(&process::file(pid, "stat")).unwrap_or_default();
    if process::Stat::parse(&stat).is_some_and(|stat| stat.is_stopped()) {
        return Err(("its process is stopped (SIGSTOP, or a debugger)".into(), Fix::Do("scan again when it runs")));
    }
    if line.all("add-fd").next().is_some() {
        let why = "QEMU was given descriptors, and may close some of them when a monitor is left";
        return Err((why.into(), Fix::Do("query it manually")));
    }
    let inode = free(host, pid, path)?;
    let links = descriptors(host, pid)?;
    if !links.iter().any(|to| *to == format!("socket:[{inode}]")) {
        return Err(("another process listens on it".into(), Fix::Do("query it manually")));
    }
    if monitor.waits && !has_processors(host, pid, &links) {
        let why = "QEMU may still wait for its first connection (wait=on), which would start the guest";
        return Err((why.into(), Fix::Do("start QEMU with wait=off, or -name NAME,debug-threads=on")));
    }
    let below = if path.starts_with('/') { "root" } else { "cwd" };
    Ok(process::file(pid, below).join(path.trim_start_matches('/')))
}

/// Why querying this guest's disks might halt it: a file server that may be dead, or files that are unknown. `None`
/// where all storage is local.
pub(crate) fn on_server(host: &HostView<'_>, guest: &Guest, pid: Option<u32>) -> Option<String> {
    let by_qemu = |kind: &&str| SERVERS.iter().any(|server| kind.starts_with(server));
    if let Some(kind) = guest.disks.iter().filter_map(|d| d.details.storage.as_deref()).find(by_qemu) {
        return Some(format!("a disk is read by {kind}, and a dead server would stall the guest"));
    }
    let table = |pid: u32| host.reader().read_start(&process::file(pid, "mountinfo"), mounts::MOST_BYTES).ok();
    let of_process = pid.and_then(|pid| Some((table(pid)?, process::descriptors(host.reader(), pid).ok()?)));
    let cut = |(table, open): &(Vec<u8>, Vec<_>)| {
        table.len() >= mounts::MOST_BYTES || open.len() >= process::MOST_DESCRIPTORS
    };
    if of_process.as_ref().is_some_and(cut) {
        return Some("it has more mounts or open files than vmio reads, and any may be on a file server".to_owned());
    }
    // Images and their backing files are open. Only names of files begin with a slash.
    let (mounts, files) = match of_process {
        Some((table, open)) => {
            (mounts::parse(&table), open.into_iter().map(|(_, to)| to.display().to_string()).collect())
        }
        // For another user's process only the disks' configuration is known.
        None => match (
            mounts::own(host.reader()),
            guest.disks.iter().map(|d| d.place.source.value().clone()).collect::<Option<Vec<String>>>(),
        ) {
            (Ok(mounts), Some(sources)) => (mounts, sources),
            _ => return Some("no permission to read whether its files are on a file server".to_owned()),
        },
    };
    files.iter().filter(|path| path.starts_with('/')).find_map(|path| {
        let server = mounts::server_of(&mounts, Path::new(path))?.server;
        Some(format!("{path} is on {server}, and a dead server would stall the guest"))
    })
}

/// Inode of the listening socket, where nobody is connected.
fn free(host: &HostView<'_>, pid: u32, path: &str) -> Result<u64, Refusal> {
    let text = host.reader().read_text(&process::file(pid, "net/unix")).map_err(|e| (e.to_string(), Fix::Root))?;
    let of_path = sockets::unix_sockets(&text).filter(|socket| socket.path == path);
    let (listening, others): (Vec<_>, Vec<_>) = of_path.partition(|socket| socket.listens);
    match &listening[..] {
        _ if !others.is_empty() => Err(("it is in use".into(), Fix::Do("scan again when it is free"))),
        [socket] => Ok(socket.inode),
        [] => Err(("no process listens on it".into(), Fix::Do("check that the guest still runs"))),
        _ => Err(("several sockets have its path".into(), Fix::Do("query it manually"))),
    }
}

/// All open descriptors of the process.
fn descriptors(host: &HostView<'_>, pid: u32) -> Result<Vec<String>, Refusal> {
    let open = process::descriptors(host.reader(), pid);
    let open = open.map_err(|_| ("no permission to read its open files".to_owned(), Fix::Root))?;
    if open.len() >= process::MOST_DESCRIPTORS {
        return Err(("it has more open files than vmio reads".to_owned(), Fix::Do("query it manually")));
    }
    Ok(open.into_iter().map(|(_, to)| to.display().to_string()).collect())
}

/// Whether the vCPUs exist, so that QEMU has started: KVM's descriptors, or the names of threads (`CPU 0/KVM`, `CPU
/// 0/TCG`, `ALL CPUs/TCG`).
fn has_processors(host: &HostView<'_>, pid: u32, links: &[String]) -> bool {
    let named = |tid: &u32| {
        let name = process::thread_comm(host.reader(), pid, *tid).unwrap_or_default();
        name.starts_with("CPU ") || name.starts_with("ALL CPUs")
    };
    links.iter().any(|to| to.starts_with("anon_inode:kvm-vcpu"))
        || process::threads(host.reader(), pid).unwrap_or_default().iter().any(named)
}

#[cfg(test)]
mod tests;
