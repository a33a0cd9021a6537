//! libvirt: what it started each domain with (`virsh dumpxml`) and what it will start it with the
//! next time (`--inactive`). Where the two differ, a setting was asked for and is not in force.
//!
//! It is asked in a few read-only `virsh` sessions for all domains, by UUID, since a domain's name
//! may have any sign in it. With `--monitor` libvirt also passes `query-block` on to guests whose
//! command line cannot be read and whose description lacks a cache mode; it marks them as tainted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vmio_model::facts::{Details, Disk, Guest, Nic, Place, Processors, Unread};

use super::{Managed, Manager};
use crate::look::{Look, Question};

mod disks;
mod nics;
pub(super) mod xml;

/// Domains that are described in one session, twice each: about 0.1 s (libvirt 9.0 gave 400
/// descriptions in 0.25 s), far from the time that an answer may take.
const AT_ONCE: usize = 100;
/// Sockets of the system's daemon: of the one for all, and of the one for QEMU alone.
const SYSTEM: [&str; 4] = [
    "/run/libvirt/virtqemud-sock-ro",
    "/run/libvirt/virtqemud-sock",
    "/run/libvirt/libvirt-sock-ro",
    "/run/libvirt/libvirt-sock",
];
const XEN: [&str; 2] = ["/run/libvirt/virtxend-sock-ro", "/run/libvirt/virtxend-sock"];

/// Entry `libvirt`.
pub struct Libvirt;

/// A daemon.
struct Daemon {
    uri: String,
    /// Where it keeps the numbers of its processes.
    pids: PathBuf,
}

impl Manager for Libvirt {
    fn name(&self) -> &'static str {
        "libvirt"
    }
    fn about(&self) -> &'static str {
        "domains of libvirt: names, and the settings of dumpxml, as started and as configured (virt-manager, OpenStack)"
    }
    fn guests(&self, look: &Look<'_>) -> Managed {
        let mut managed = Managed::default();
        for daemon in daemons(look) {
            daemon.guests(look, &mut managed);
        }
        managed
    }
}

/// The daemons whose sockets are here: the system's, Xen's, and those of users.
fn daemons(look: &Look<'_>) -> Vec<Daemon> {
    let there = |path: &Path| matches!(look.reader().stat(path), Ok(Some(_)));
    let any = |sockets: &[&str]| sockets.iter().any(|s| there(Path::new(s)));
    let mut all = Vec::new();
    if any(&SYSTEM) {
        all.push(Daemon { uri: "qemu:///system".into(), pids: "/run/libvirt/qemu".into() });
    }
    if any(&XEN) {
        all.push(Daemon { uri: "xen:///system".into(), pids: "/run/libvirt/libxl".into() });
    }
    for user in look.reader().list(Path::new("/run/user")).unwrap_or_default() {
        let dir = Path::new("/run/user").join(user).join("libvirt");
        let sockets = ["virtqemud-sock", "libvirt-sock"].map(|s| dir.join(s));
        if let Some(socket) = sockets.iter().find(|s| there(s)) {
            all.push(Daemon {
                uri: format!("qemu:///session?socket={}", socket.display()),
                pids: dir.join("qemu/run"),
            });
        }
    }
    all
}

impl Daemon {
    fn guests(&self, look: &Look<'_>, managed: &mut Managed) {
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
        if guests.iter().any(|g| !g.disks.is_empty()) {
            match self.ask(look, vec!["domstats --list-active --block --nowait".into()]) {
                Ok(text) => self.sizes(&text, guests),
                Err(unread) => managed.unread.push(unread),
            }
        }
        if look.monitor {
            let unseen = |g: &&mut Guest| g.uuid.as_ref().is_none_or(|uuid| !seen.contains(uuid.as_str()));
            guests.iter_mut().filter(unseen).for_each(|guest| self.monitor(look, guest));
        }
    }

    fn ask(&self, look: &Look<'_>, commands: Vec<String>) -> Result<String, Unread> {
        let what = format!("{} of libvirt ({})", commands.first().map_or("", String::as_str), self.uri);
        look.ask(&Question::Virsh { uri: self.uri.clone(), commands }).map_err(|unread| {
            let denied = unread.mend == "run as root";
            let mend = if denied { "run as root or as a member of group libvirt".into() } else { unread.mend };
            Unread { what, mend, ..unread }
        })
    }

    /// Adds the guests of a session that described them.
    fn described(&self, look: &Look<'_>, asked: &[String], text: &str, seen: &BTreeSet<&str>, managed: &mut Managed) {
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
                    why,
                    mend: "look at it with `virsh dumpxml`".into(),
                }),
            }
        }
        for uuid in asked {
            let Some(guest) = live.remove(uuid) else {
                managed.unread.push(Unread {
                    what: format!("{} dumpxml {uuid}", self.virsh()),
                    why: "libvirt does not describe it as running: it may have ended meanwhile".into(),
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
            guest.pid = self.pid(look, &guest.name);
            managed.guests.push(guest);
        }
    }

    fn pid(&self, look: &Look<'_>, name: &str) -> Option<u32> {
        // Names with a slash are refused by libvirt; none is followed here.
        let file = self.pids.join(format!("{}.pid", name.replace('/', "_")));
        look.reader().read_text(&file).ok()?.trim().parse().ok()
    }

    /// Sizes of disks, also of those that no image tool can open.
    fn sizes(&self, domstats: &str, guests: &mut [Guest]) {
        let sizes = capacities(domstats);
        for guest in guests {
            let from = format!("{} domstats {}", self.virsh(), guest.name);
            for disk in &mut guest.disks {
                let Some(target) = disk.place.target.clone() else { continue };
                disk.details.virtual_bytes = sizes.get(&(guest.name.as_str(), target.as_str())).copied();
                disk.read.insert("virtual_bytes".into(), from.clone());
            }
        }
    }

    /// Cache modes that the description leaves to QEMU's default, by the monitor of a guest whose
    /// command line cannot be read. A write cache that the
    /// guest turned off hides the mode.
    fn monitor(&self, look: &Look<'_>, guest: &mut Guest) {
        if guest.kind != "qemu" || guest.disks.iter().all(|d| d.cache.is_some()) {
            return;
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
    fn ask<T>(own: &Option<T>, asked: Option<T>, seen: bool) -> Option<T> {
        asked.filter(|_| seen || own.is_some())
    }
    // Devices are found by target: storage may have moved, and ids are those of a running QEMU.
    let place = |target: &Option<String>| Place { target: target.clone(), ..Place::default() };
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
            place: place(&next.place.target),
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
fn processes<'a>(look: &'a Look<'_>) -> BTreeSet<&'a str> {
    let args = look.processes().iter().flat_map(|p| p.args.iter().flatten());
    args.map(String::as_str).filter(|arg| is_uuid(arg)).collect()
}

/// UUIDs in the answer to `list --uuid`, whatever prompt is around them.
fn uuids(text: &str) -> Vec<String> {
    text.split_whitespace().filter(|word| is_uuid(word)).map(str::to_lowercase).collect()
}

fn is_uuid(word: &str) -> bool {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let sign = |(i, b): (usize, u8)| if DASHES.contains(&i) { b == b'-' } else { b.is_ascii_hexdigit() };
    word.len() == 36 && word.bytes().enumerate().all(sign)
}

/// The descriptions in a session's answer. libvirt indents all but a document's first and last
/// line and escapes `<` in texts, so these two are nothing else. What is around them (prompts and
/// echoed commands, in some versions) does not matter.
fn documents(text: &str) -> Vec<&str> {
    const END: &str = "\n</domain>";
    let mut found = Vec::new();
    let mut rest = text;
    let start =
        |rest: &str| if rest.starts_with("<domain ") { Some(0) } else { rest.find("\n<domain ").map(|at| at + 1) };
    while let Some(at) = start(rest) {
        let Some(end) = rest[at..].find(END) else { break };
        let end = at + end + END.len();
        found.push(&rest[at..end]);
        rest = &rest[end..];
    }
    found
}

/// Sizes that guests see, by domain and target, from `domstats --block`.
fn capacities(text: &str) -> BTreeMap<(&str, &str), u64> {
    let mut sizes = BTreeMap::new();
    let (mut domain, mut target) = ("", "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("Domain: ") {
            domain = name.trim().trim_matches('\'');
        } else if let Some((key, value)) = line.trim().strip_prefix("block.").and_then(|l| l.split_once('=')) {
            match key.split_once('.').map_or("", |(_, key)| key) {
                "name" => target = value,
                "capacity" => sizes.extend(value.parse().ok().map(|bytes| ((domain, target), bytes))),
                _ => {}
            }
        }
    }
    sizes
}

/// Cache modes from the answer to `query-block` (QEMU's QAPI, block-core.json, `BlockInfo`): the
/// device is found by its id, which is in `qdev` at the end or before its backend. Only a write
/// cache that is on tells the mode: guests turn it off by themselves, whatever they were given.
fn caches(answer: &str, disks: &mut [Disk], from: &str) {
    let answer: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    for block in answer["return"].as_array().into_iter().flatten() {
        let cache = &block["inserted"]["cache"];
        let flag = |name: &str| cache[name].as_bool();
        let (Some(true), Some(direct), Some(unsafe_)) = (flag("writeback"), flag("direct"), flag("no-flush")) else {
            continue;
        };
        let qdev = block["qdev"].as_str().unwrap_or_default();
        let own = |d: &&mut Disk| d.place.device_id.as_ref().is_some_and(|id| qdev.split('/').any(|part| part == id));
        if let Some(disk) = disks.iter_mut().find(own).filter(|d| d.cache.is_none()) {
            let mode = match (direct, unsafe_) {
                (true, false) => "none",
                (false, false) => "writeback",
                (false, true) => "unsafe",
                // Only QEMU's own names are facts.
                (true, true) => continue,
            };
            disk.cache = Some(mode.to_owned());
            disk.read.insert("cache".into(), from.to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
