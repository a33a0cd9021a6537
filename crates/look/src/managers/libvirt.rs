//! libvirt: what it started each domain with (`virsh dumpxml`) and what it will start it with the
//! next time (`--inactive`). Where the two differ, a setting was asked for and is not in force.
//!
//! It is asked in a few read-only `virsh` sessions for all domains, by UUID, since a domain's name
//! may have any sign in it. With `--monitor` libvirt also passes `query-block` on to guests whose
//! command line cannot be read and whose description lacks a cache mode; it marks them as tainted.

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
mod nics;
pub(super) mod xml;

/// Domains that are described in one session, twice each: about 0.1 s (libvirt 9.0 gave 400
/// descriptions in 0.25 s), far from the time that an answer may take.
const AT_ONCE: usize = 100;
/// Daemons of the system: address, program, sockets, where the numbers of their processes are. Of
/// QEMU's `virsh` takes the first whose socket is there.
const SYSTEM: [(&str, &str, [&str; 2], &str); 3] = [
    (QEMU, "virtqemud", ["/run/libvirt/virtqemud-sock-ro", "/run/libvirt/virtqemud-sock"], "/run/libvirt/qemu"),
    (QEMU, "libvirtd", ["/run/libvirt/libvirt-sock-ro", "/run/libvirt/libvirt-sock"], "/run/libvirt/qemu"),
    (XEN, "virtxend", ["/run/libvirt/virtxend-sock-ro", "/run/libvirt/virtxend-sock"], "/run/libvirt/libxl"),
];
/// The daemon of the system that starts QEMU.
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

/// Whose a daemon is, by which the processes of its guests are found.
#[derive(Debug)]
enum Owner {
    /// The system's: it keeps the numbers of its processes here.
    System(PathBuf),
    /// A user's, who can say anything: what is not that user's own process is none of its guests.
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
    fn guests(&self, look: &HostView<'_>) -> Managed {
        let mut managed = Managed::default();
        for daemon in daemons(look, &mut managed.unread) {
            daemon.guests(look, &mut managed);
        }
        managed
    }
}

/// The daemons that run and whose sockets are here: the system's, Xen's, and those of users. A socket
/// alone may be systemd's, and asking there would start the daemon and the guests that it autostarts.
fn daemons(look: &HostView<'_>, unread: &mut Vec<Unread>) -> Vec<Daemon> {
    let there = |path: &Path| matches!(look.reader().stat(path), Ok(Some(_)));
    let mut all: Vec<Daemon> = Vec::new();
    let mut known = BTreeSet::new();
    let mut add = |uri: String, runs: bool, of: Owner| {
        if runs {
            all.push(Daemon { uri, of });
        } else {
            unread.push(Unread {
                what: format!("domains of libvirt ({uri})"),
                why: "the daemon is not running; querying it would start it".into(),
                mend: format!("start it if it should run: virsh -c '{uri}' list"),
            });
        }
    };
    for (uri, program, sockets, pids) in SYSTEM {
        if sockets.iter().any(|s| there(Path::new(s))) && known.insert(uri) {
            add(uri.into(), runs(look, &[program], None), Owner::System(pids.into()));
        }
    }
    for user in look.reader().list(Path::new("/run/user")).unwrap_or_default() {
        let Ok(uid) = user.parse::<u32>() else { continue };
        let dir = Path::new("/run/user").join(user).join("libvirt");
        let socket = ["virtqemud-sock", "libvirt-sock"].map(|s| dir.join(s)).into_iter().find(|s| there(s));
        if let Some(socket) = socket {
            let uri = format!("qemu:///session?socket={}", socket.display());
            add(uri, runs(look, &["virtqemud", "libvirtd"], Some(uid)), Owner::User(uid));
        }
    }
    all
}

/// Whether the system's daemon runs: asking where it does not would start it, and guests with it.
pub fn system_runs(look: &HostView<'_>) -> bool {
    runs(look, &["virtqemud", "libvirtd"], None)
}

/// Whether one of these programs runs, of that user where one is named. Those in containers are not
/// this system's.
fn runs(look: &HostView<'_>, programs: &[&str], uid: Option<u32>) -> bool {
    look.processes().iter().filter(|p| programs.contains(&p.comm.as_str())).any(|p| {
        process::same_namespace(look.reader(), p.pid, "pid") && uid.is_none_or(|uid| belongs(look, p.pid, uid))
    })
}

/// Whether a process is a user's in every way.
fn belongs(look: &HostView<'_>, pid: u32, uid: u32) -> bool {
    let users = process::Status::of(look.reader(), pid).ok().and_then(|status| status.users());
    users.is_some_and(|all| all.iter().all(|user| *user == uid))
}

impl Daemon {
    fn guests(&self, look: &HostView<'_>, managed: &mut Managed) {
        let domains = match self.ask(look, vec!["list --uuid".into()]) {
            Ok(list) => uuids(&list),
            Err(unread) => return managed.unread.push(unread),
        };
        let first = managed.guests.len();
        let seen = processes(look);
        for part in domains.chunks(AT_ONCE) {
            let both = |uuid: &String| [format!("dumpxml {uuid}"), format!("dumpxml --inactive {uuid}")];
            match self.ask(look, part.iter().flat_map(both).collect()) {
                Ok(text) => self.described(look, part, &text, &seen, managed),
                Err(unread) => managed.unread.push(unread),
            }
        }
        let guests = &mut managed.guests[first..];
        // Of local files and devices the sizes are read without libvirt, which asks the guest's
        // monitor for them, and that asks the storage.
        let hidden = |d: &Disk| !d.place.source.as_deref().is_some_and(|source| source.starts_with('/'));
        let safe = |g: &&Guest| g.disks.iter().any(hidden) && on_server(look, g, g.pid).is_none();
        let asked: Vec<&str> = guests.iter().filter(safe).filter_map(|g| g.uuid.as_deref()).collect();
        if !asked.is_empty() {
            match self.ask(look, vec![format!("domstats --block --nowait {}", asked.join(" "))]) {
                Ok(text) => self.sizes(&text, guests),
                Err(unread) => managed.unread.push(unread),
            }
        }
        if look.monitor {
            let unseen = |g: &&mut Guest| g.uuid.as_ref().is_none_or(|uuid| !seen.contains(uuid.as_str()));
            guests.iter_mut().filter(unseen).for_each(|guest| self.monitor(look, guest));
        }
    }

    fn ask(&self, look: &HostView<'_>, commands: Vec<String>) -> Result<String, Unread> {
        let what = format!("{} of libvirt ({})", commands.first().map_or("", String::as_str), self.uri);
        let question = Question::Virsh { uri: self.uri.clone(), commands };
        look.ask_as(&question, Fix::RootOrGroup("libvirt")).map_err(|unread| Unread { what, ..unread })
    }

    /// Adds the guests of a session that described them.
    fn described(
        &self,
        look: &HostView<'_>,
        asked: &[String],
        text: &str,
        seen: &BTreeSet<&str>,
        managed: &mut Managed,
    ) {
        let mut live = BTreeMap::new();
        let mut next = BTreeMap::new();
        for document in documents(text) {
            // Only a domain that runs has a number.
            let runs = document.lines().next().is_some_and(|tag| tag.contains(" id='"));
            let option = if runs { "" } else { "--inactive " };
            let from = |name: &str| look.from(name, format!("{} dumpxml {option}{name}", self.virsh()));
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
            guest.manager = Some(Libvirt.name().to_owned());
            guest.pid = self.pid(look, &guest.name, uuid);
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

    /// The process of a domain; that of a user's is looked for without reading the user's files.
    fn pid(&self, look: &HostView<'_>, name: &str, uuid: &str) -> Option<u32> {
        let dir = match &self.of {
            Owner::System(dir) => dir,
            Owner::User(uid) => {
                let bears = |p: &&ProcessInfo| p.args.iter().flatten().any(|arg| arg.eq_ignore_ascii_case(uuid));
                let of_it = look.processes().iter().filter(bears);
                return of_it.map(|p| p.pid).find(|pid| belongs(look, *pid, *uid));
            }
        };
        if name.contains('/') || name.contains("..") {
            return None; // libvirt has no such names for files
        }
        let file = dir.join(format!("{name}.pid"));
        look.reader().stat(&file).ok()?.filter(vmio_node::FileStat::is_file)?;
        look.reader().read_text(&file).ok()?.trim().parse().ok()
    }

    /// Sizes of disks, also of those that no image tool can open.
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

    /// Cache modes that the description leaves to QEMU's default, by the monitor of a guest whose
    /// command line cannot be read. A write cache that the
    /// guest turned off hides the mode.
    fn monitor(&self, look: &HostView<'_>, guest: &mut Guest) {
        if !guest.is_qemu() || guest.disks.iter().all(|d| d.cache.is_some()) {
            return;
        }
        if let Some(why) = on_server(look, guest, guest.pid) {
            let what = format!("cache modes of {} by its monitor", guest.name);
            return guest.unread.push(Unread { what, why, mend: "query it by hand".into() });
        }
        let question = Question::VirshMonitor {
            uri: self.uri.clone(),
            domain: guest.uuid.clone().unwrap_or_else(|| guest.name.clone()),
            command: "query-block".into(),
        };
        match look.ask(&question) {
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

/// Adds to what a domain runs with what it will have after its next start, as far as
/// [`Guest::configured`] compares it: a difference is a setting that was asked for and is not in
/// force. Where libvirt does not tell what the running one has, its process must (`seen`), else
/// what was asked for would pass for what is in force.
fn with_next(mut guest: Guest, next: Guest, seen: bool) -> Guest {
    fn ask<T>(own: &Fact<Option<T>>, asked: Fact<Option<T>>, seen: bool) -> Fact<Option<T>> {
        if seen || own.is_some() { asked } else { Fact::default() }
    }
    // Devices are found by target: storage may have moved, and ids are those of a running QEMU.
    let place = |target: &Option<String>| Place { target: target.clone(), ..Place::default() };
    // The change is made in what it is started with next.
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
fn processes<'a>(look: &'a HostView<'_>) -> BTreeSet<&'a str> {
    let args = look.processes().iter().flat_map(|p| p.args.iter().flatten());
    args.map(String::as_str).filter(|arg| is_uuid(arg)).collect()
}

#[cfg(test)]
mod tests;
