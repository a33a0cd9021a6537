//! libvirt: the settings that each domain was started with (`virsh dumpxml`) and those of its next start
//! (`--inactive`). Where the two differ, a configured setting is not in force.
//!
//! A few read-only `virsh` sessions query all domains, by UUID, since a domain's name may contain any character. With
//! `--monitor` libvirt also asks the monitors of all guests for their memory and reads (`domstats --block --balloon`),
//! and passes `query-block` on to guests whose command line cannot be read and whose description lacks a cache mode; it
//! marks these as tainted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vmio_model::facts::{Details, Disk, Fact, Guest, Nic, Place, Processors, Unread};
use vmio_model::rules::change::ConfigTool;

use vmio_node::linux::process;

use super::{Managed, Manager};
use crate::host_view::{HostView, ProcessInfo, Question};
use crate::kinds::qemu::on_server;
use crate::require::Fix;
pub use answers::uuids;
use answers::{caches, capacities, documents, is_uuid};

mod answers;
mod disks;
mod element;
mod memory;
mod nics;
mod nova;
pub(super) mod xml;

/// Domains of one session, two descriptions each: about 0.1 s (libvirt 9.0 returned 400 descriptions in 0.25 s), far
/// below the time limit.
const AT_ONCE: usize = 100;
/// System daemons: URI, program, sockets, directory of pid files. For QEMU `virsh` uses the first whose socket exists.
const SYSTEM: [(&str, &str, [&str; 2], &str); 3] = [
    (QEMU, "virtqemud", ["/run/libvirt/virtqemud-sock-ro", "/run/libvirt/virtqemud-sock"], "/run/libvirt/qemu"),
    (QEMU, "libvirtd", ["/run/libvirt/libvirt-sock-ro", "/run/libvirt/libvirt-sock"], "/run/libvirt/qemu"),
    (XEN, "virtxend", ["/run/libvirt/virtxend-sock-ro", "/run/libvirt/virtxend-sock"], "/run/libvirt/libxl"),
];
/// URI of the system daemon that starts QEMU.
pub const QEMU: &str = "qemu:///system";
const XEN: &str = "xen:///system";
/// Entry `libvirt`.
pub struct Libvirt;

/// A daemon.
#[derive(Debug)]
struct Daemon {
    uri: String,
    of: Owner,
}

/// Owner of a daemon, by which its guests' processes are found.
#[derive(Debug)]
enum Owner {
    /// The system; with the directory of its pid files.
    System(PathBuf),
    /// A user, who can claim anything: only that user's own processes are its guests.
    User(u32),
}

impl Manager for Libvirt {
    fn name(&self) -> &'static str {
        "libvirt"
    }
    fn about(&self) -> &'static str {
        "domains of libvirt: names, and the settings of dumpxml, as started and as configured (virt-manager, OpenStack)"
    }
    fn way(&self) -> ConfigTool {
        ConfigTool::Libvirt
    }
    fn guests(&self, host: &HostView<'_>) -> Managed {
        let mut managed = Managed::default();
        for daemon in daemons(host, &mut managed.unread) {
            daemon.guests(host, &mut managed);
        }
        managed
    }
}

/// The running daemons with a socket: the system's, Xen's, and those of users. A socket alone may be systemd's;
/// connecting would start the daemon and the guests that it autostarts.
fn daemons(host: &HostView<'_>, unread: &mut Vec<Unread>) -> Vec<Daemon> {
    let there = |path: &Path| matches!(host.reader().stat(path), Ok(Some(_)));
    let mut all: Vec<Daemon> = Vec::new();
    let mut known = BTreeSet::new();
    let mut add = |uri: String, runs: bool, of: Owner| {
        if runs {
            all.push(Daemon { uri, of });
        } else {
            unread.push(Unread {
                what: format!("domains of libvirt ({uri})"),
                why: "the daemon is not running; querying it would start it".into(),
                mend: format!("start it if it should run: virsh -c '{uri}' list").into(),
            });
        }
    };
    for (uri, program, sockets, pids) in SYSTEM {
        if sockets.iter().any(|s| there(Path::new(s))) && known.insert(uri) {
            add(uri.into(), runs(host, &[program], None), Owner::System(pids.into()));
        }
    }
    for user in host.reader().list(Path::new("/run/user")).unwrap_or_default() {
        let Ok(uid) = user.parse::<u32>() else { continue };
        let dir = Path::new("/run/user").join(user).join("libvirt");
        let socket = ["virtqemud-sock", "libvirt-sock"].map(|s| dir.join(s)).into_iter().find(|s| there(s));
        if let Some(socket) = socket {
            let uri = format!("qemu:///session?socket={}", socket.display());
            add(uri, runs(host, &["virtqemud", "libvirtd"], Some(uid)), Owner::User(uid));
        }
    }
    all
}

/// Whether the system's daemon runs: a query would start it, and with it guests.
pub fn system_runs(host: &HostView<'_>) -> bool {
    runs(host, &["virtqemud", "libvirtd"], None)
}

/// Whether one of these programs runs, as that user if given. Containers' processes do not count.
fn runs(host: &HostView<'_>, programs: &[&str], uid: Option<u32>) -> bool {
    host.processes().iter().filter(|p| programs.contains(&p.comm.as_str())).any(|p| {
        process::same_namespace(host.reader(), p.pid, "pid") && uid.is_none_or(|uid| belongs(host, p.pid, uid))
    })
}

/// Whether all user ids of a process are that user's.
fn belongs(host: &HostView<'_>, pid: u32, uid: u32) -> bool {
    let users = process::Status::of(host.reader(), pid).ok().and_then(|status| status.users());
    users.is_some_and(|all| all.iter().all(|user| *user == uid))
}

impl Daemon {
    fn guests(&self, host: &HostView<'_>, managed: &mut Managed) {
        let domains = match self.ask(host, vec!["list --uuid".into()]) {
            Ok(list) => uuids(&list),
            Err(unread) => return managed.unread.push(unread),
        };
        let first = managed.guests.len();
        let seen = processes(host);
        for part in domains.chunks(AT_ONCE) {
            let both = |uuid: &String| [format!("dumpxml {uuid}"), format!("dumpxml --inactive {uuid}")];
            match self.ask(host, part.iter().flat_map(both).collect()) {
                Ok(text) => self.described(host, part, &text, &seen, managed),
                Err(unread) => managed.unread.push(unread),
            }
        }
        let guests = &mut managed.guests[first..];
        // Sizes of local files and devices are read without libvirt, which would query the guest's monitor, and that
        // the storage; so is what the monitor knows of memory.
        let hidden = |d: &Disk| !d.place.source.as_deref().is_some_and(|source| source.starts_with('/'));
        let wanted = |g: &&Guest| host.monitor || g.disks.iter().any(hidden);
        let safe = |g: &&Guest| on_server(host, g, g.pid).is_none();
        let asked: Vec<&str> = guests.iter().filter(wanted).filter(safe).filter_map(|g| g.uuid.as_deref()).collect();
        if !asked.is_empty() {
            let parts = if host.monitor { "--block --balloon" } else { "--block" };
            match self.ask(host, vec![format!("domstats {parts} --nowait {}", asked.join(" "))]) {
                Ok(text) => {
                    self.sizes(&text, guests);
                    if host.monitor {
                        memory::put(host, &text, &self.virsh(), guests);
                    }
                }
                Err(unread) => managed.unread.push(unread),
            }
        }
        if host.monitor {
            let unseen = |g: &&mut Guest| g.uuid.as_ref().is_none_or(|uuid| !seen.contains(uuid.as_str()));
            guests.iter_mut().filter(unseen).for_each(|guest| self.monitor(host, guest));
        }
    }

    fn ask(&self, host: &HostView<'_>, commands: Vec<String>) -> Result<String, Unread> {
        let what = format!("{} of libvirt ({})", commands.first().map_or("", String::as_str), self.uri);
        let question = Question::Virsh { uri: self.uri.clone(), commands };
        host.ask_as(&question, Fix::RootOrGroup("libvirt")).map_err(|unread| Unread { what, ..unread })
    }

    /// Adds the guests that a session described.
    fn described(
        &self,
        host: &HostView<'_>,
        asked: &[String],
        text: &str,
        seen: &BTreeSet<&str>,
        managed: &mut Managed,
    ) {
        let mut live = BTreeMap::new();
        let mut next = BTreeMap::new();
        for document in documents(text) {
            // Only a running domain has a number.
            let runs = document.lines().next().is_some_and(|tag| tag.contains(" id='"));
            let option = if runs { "" } else { "--inactive " };
            let from = |name: &str| host.from(name, format!("{} dumpxml {option}{name}", self.virsh()));
            match xml::guest(document, &from) {
                Ok(guest) => {
                    let all = if runs { &mut live } else { &mut next };
                    all.insert(guest.uuid.clone().unwrap_or_default(), guest);
                }
                Err(why) => managed.unread.push(Unread {
                    what: format!("a domain's description in {}", self.uri),
                    why: why.to_string(),
                    mend: "look at it with `virsh dumpxml`".into(),
                }),
            }
        }
        for uuid in asked {
            let Some(guest) = live.remove(uuid) else {
                managed.unread.push(Unread {
                    what: format!("{} dumpxml {uuid}", self.virsh()),
                    why: "libvirt does not report it as running: it may have ended meanwhile".into(),
                    mend: "look again".into(),
                });
                continue;
            };
            let seen = seen.contains(uuid.as_str());
            let mut guest = match next.remove(uuid) {
                Some(next) => with_next(guest, next, seen),
                None => guest,
            };
            if matches!(self.of, Owner::User(_)) {
                // A user could write others' addresses there.
                guest.nics.iter_mut().for_each(|nic| nic.place.addresses.clear());
            }
            guest.manager = Some(Libvirt.name().to_owned());
            guest.pid = self.pid(host, &guest.name, uuid);
            if let (Owner::User(uid), None) = (&self.of, guest.pid) {
                managed.unread.push(Unread {
                    what: format!("domain {} of {}", guest.name, self.uri),
                    why: format!("no process of user {uid} has its UUID"),
                    mend: "scan again; what a user's libvirt says about other users' processes is not trusted".into(),
                });
                continue;
            }
            managed.guests.push(guest);
        }
    }

    /// The process of a domain. A user's is found without reading the user's files.
    fn pid(&self, host: &HostView<'_>, name: &str, uuid: &str) -> Option<u32> {
        let dir = match &self.of {
            Owner::System(dir) => dir,
            Owner::User(uid) => {
                let bears = |p: &&ProcessInfo| p.args.iter().flatten().any(|arg| arg.eq_ignore_ascii_case(uuid));
                let of_it = host.processes().iter().filter(bears);
                return of_it.map(|p| p.pid).find(|pid| belongs(host, *pid, *uid));
            }
        };
        if name.contains('/') || name.contains("..") {
            return None; // libvirt has no such names for files
        }
        let file = dir.join(format!("{name}.pid"));
        host.reader().stat(&file).ok()?.filter(vmio_node::FileStat::is_file)?;
        host.reader().read_text(&file).ok()?.trim().parse().ok()
    }

    /// Sizes of disks, also of images that no tool can open.
    fn sizes(&self, domstats: &str, guests: &mut [Guest]) {
        let sizes = capacities(domstats);
        for guest in guests {
            let from = format!("{} domstats {}", self.virsh(), guest.name);
            for disk in &mut guest.disks {
                let Some(target) = disk.place.target.clone() else { continue };
                if let Some(bytes) = sizes.get(&(guest.name.as_str(), target.as_str())) {
                    disk.details.virtual_bytes = Fact::read(Some(*bytes), &from);
                }
            }
        }
    }

    /// Cache modes that the description leaves to QEMU's default, by the monitor of a guest whose command line cannot
    /// be read. The mode is unknown where the guest turned its write cache off.
    fn monitor(&self, host: &HostView<'_>, guest: &mut Guest) {
        if !guest.is_qemu() || guest.disks.iter().all(|d| d.cache.is_some()) {
            return;
        }
        if let Some(why) = on_server(host, guest, guest.pid) {
            let what = format!("cache modes of {} by its monitor", guest.name);
            return guest.unread.push(Unread { what, why, mend: "query it manually".into() });
        }
        let question = Question::VirshMonitor {
            uri: self.uri.clone(),
            domain: guest.uuid.clone().unwrap_or_else(|| guest.name.clone()),
            command: "query-block".into(),
        };
        match host.ask(&question) {
            Ok(answer) => {
                let from = format!("query-block by {} (it marks the guest as tainted)", self.virsh());
                caches(&answer, &mut guest.disks, &from);
            }
            Err(unread) => {
                let what = format!("cache modes of {} by its monitor", guest.name);
                guest.unread.push(Unread { what, ..unread });
            }
        }
    }

    fn virsh(&self) -> String {
        if self.uri == "qemu:///system" { "virsh".into() } else { format!("virsh -c {}", self.uri) }
    }
}

/// Adds the settings of a domain's next start, as far as [`Guest::configured`] compares them: a difference is a setting
/// that is configured and not in force. Where libvirt does not report the running value, the process must be readable
/// (`seen`), or the configured value would pass for the one in force.
fn with_next(mut guest: Guest, next: Guest, seen: bool) -> Guest {
    fn ask<T>(own: &Fact<Option<T>>, asked: Fact<Option<T>>, seen: bool) -> Fact<Option<T>> {
        if seen || own.is_some() { asked } else { Fact::default() }
    }
    // Devices are matched by target: storage may have moved, and ids belong to the running QEMU.
    let place = |target: &Option<String>| Place { target: target.clone(), ..Place::default() };
    // The change is made in the configuration of the next start.
    let of_disk = |p: &Place| Place { taken: p.taken.clone(), ..place(&p.target) };
    let disk = |next: Disk| {
        let own = guest.disks.iter().find(|own| own.place.target == next.place.target)?;
        Some(Disk {
            driver: ask(&own.driver, next.driver, seen),
            cache: ask(&own.cache, next.cache, seen),
            aio: ask(&own.aio, next.aio, seen),
            iothread: ask(&own.iothread, next.iothread, seen),
            details: Details {
                discard: ask(&own.details.discard, next.details.discard, seen),
                queues: ask(&own.details.queues, next.details.queues, seen),
                ..Details::default()
            },
            place: of_disk(&next.place),
            ..Disk::unknown(next.subject, next.from)
        })
    };
    let nic = |next: Nic| {
        let own = guest.nics.iter().find(|own| own.place.target.is_some() && own.place.target == next.place.target)?;
        Some(Nic {
            model: ask(&own.model, next.model, seen),
            vhost: ask(&own.vhost, next.vhost, seen),
            queues: ask(&own.queues, next.queues, seen),
            place: place(&next.place.target),
            ..Nic::unknown(next.subject, next.from)
        })
    };
    let processors = |next: Processors| {
        let own = guest.processors.as_ref()?;
        Some(Processors {
            vcpus: ask(&own.vcpus, next.vcpus, seen),
            accel: ask(&own.accel, next.accel, seen),
            model: ask(&own.model, next.model, seen),
            huge_pages: ask(&own.huge_pages, next.huge_pages, seen),
            ..Processors::unknown(next.subject, next.from)
        })
    };
    let asked = Guest {
        disks: next.disks.into_iter().filter_map(disk).collect(),
        nics: next.nics.into_iter().filter_map(nic).collect(),
        processors: next.processors.and_then(processors),
        ..Guest::default()
    };
    guest.configured(asked);
    guest
}

/// UUIDs of guests whose command line can be read: libvirt starts QEMU with `-uuid`.
fn processes<'a>(host: &'a HostView<'_>) -> BTreeSet<&'a str> {
    let args = host.processes().iter().flat_map(|p| p.args.iter().flatten());
    args.map(String::as_str).filter(|arg| is_uuid(arg)).collect()
}

#[cfg(test)]
mod tests;
