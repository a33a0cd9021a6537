//! The guests of this host with their network devices. A command line is not proof: anybody can start a program called
//! `qemu` with another guest's name and tap, so a tap is a guest's only if its process holds the descriptor.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open, openat};
use vmio_look::{HostView, kinds, managers};
use vmio_model::facts::{Guest, Nic, Unread};
use vmio_node::linux::process;
use vmio_node::machine::start_ticks;
use vmio_node::{Local, Reader};

use super::cards::{self, AssignedVf};

/// Namespaces that have a name, which are looked at.
const MOST_NAMESPACES: usize = 16_384;
/// Time after which managers are asked although no guest has come or gone: guests are given other addresses while they
/// run.
const ASK_AGAIN: Duration = Duration::from_secs(600);

/// A guest's identity, its processes, and its network devices.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestNetwork {
    /// Its name here.
    pub name: String,
    /// Its other names: UUID, VMID, domain.
    pub names: Vec<String>,
    /// Processes that run it.
    pub pids: Vec<u32>,
    /// Whether it has a network namespace of its own.
    pub apart: bool,
    /// Bytes of memory that it was given, where it is known.
    pub memory_bytes: Option<u64>,
    /// Its network devices; their interface is set only where it is proven to be the guest's.
    pub nics: Vec<Nic>,
    /// Virtual functions of cards that it drives itself.
    pub assigned_vfs: Vec<AssignedVf>,
}

/// Lists the guests of a host.
pub trait Guests: Send {
    /// Those that run now.
    fn look(&mut self) -> Vec<GuestNetwork>;
    /// Whether an answer is pending that may add to the last list.
    fn awaits(&self) -> bool {
        false
    }
}

/// The guests of this host, by the kinds and managers of `vmio scan`. Managers are asked in a thread when a guest has
/// come or gone, and each ten minutes, since some are slow programs; a later look has their answers.
#[derive(Default)]
pub struct Here {
    processes: BTreeMap<u32, KnownProcess>,
    asked: Option<JoinHandle<Vec<Guest>>>,
    asked_at: Option<Instant>,
    /// Whether a guest has come or gone since they were asked last,
    changed: bool,
    /// or had when they were.
    awaited: bool,
}

/// A guest's process, with its manager's answer and its taps.
struct KnownProcess {
    start: Option<u64>,
    /// The manager's answer.
    configured: Option<Guest>,
    /// Taps that it holds, by name.
    taps: BTreeSet<String>,
}

impl Guests for Here {
    fn look(&mut self) -> Vec<GuestNetwork> {
        let node = Local::new();
        let view = HostView::new(&node);
        let mut guests: Vec<Guest> = kinds::ALL.iter().flat_map(|kind| kind.running(&view).guests).collect();
        let now: BTreeMap<u32, Option<u64>> =
            guests.iter().filter_map(|g| g.pid).map(|pid| (pid, start_ticks(pid))).collect();
        let before = self.processes.len();
        self.processes.retain(|pid, known| now.get(pid) == Some(&known.start));
        self.changed |= self.processes.len() != before;
        for (pid, start) in now {
            let new = || KnownProcess { start, configured: None, taps: BTreeSet::new() };
            self.processes.entry(pid).or_insert_with(|| {
                self.changed = true;
                new()
            });
        }
        self.collect_answers(&guests);
        let again = self.asked_at.is_none_or(|at| at.elapsed() >= ASK_AGAIN) && !self.processes.is_empty();
        if (self.changed || again) && self.asked.is_none() {
            (self.asked_at, self.awaited) = (Some(Instant::now()), self.changed);
            self.changed = false;
            let ask = || managers::ALL.iter().flat_map(|m| m.guests(&HostView::new(&Local::new())).guests).collect();
            self.asked = thread::Builder::new().name("guard-managers".into()).spawn(ask).ok();
        }
        for guest in &mut guests {
            let known = guest.pid.and_then(|pid| self.processes.get(&pid));
            if let Some(mut asked) = known.and_then(|k| k.configured.clone()) {
                if asked.pid != guest.pid {
                    // Any process can bear a guest's UUID, and is to have no addresses by it.
                    asked.nics.iter_mut().for_each(|nic| nic.place.addresses.clear());
                }
                guest.configured(asked);
            }
        }
        guests.into_iter().map(|guest| guest_network(&node, guest, &mut self.processes)).collect()
    }

    fn awaits(&self) -> bool {
        self.changed || (self.awaited && self.asked.is_some())
    }
}

/// The guests of this host at one time, with the answers of all managers.
#[derive(Debug, Default)]
pub struct Once {
    /// The guests, as they run and as they are configured.
    pub guests: Vec<Guest>,
    /// What could not be read.
    pub unread: Vec<Unread>,
}

impl Once {
    /// Reads them.
    pub fn here(view: &HostView<'_>) -> Once {
        let mut once = Once::default();
        for running in kinds::ALL.iter().map(|kind| kind.running(view)) {
            once.guests.extend(running.guests);
            once.unread.extend(running.unread);
        }
        for answers in managers::ALL.iter().map(|manager| manager.guests(view)) {
            once.unread.extend(answers.unread);
            for asked in answers.guests {
                let same = |g: &&mut Guest| match (g.pid, asked.pid) {
                    (Some(a), Some(b)) => a == b,
                    _ => g.uuid.is_some() && g.uuid == asked.uuid,
                };
                match once.guests.iter_mut().find(same) {
                    Some(guest) => guest.configured(asked),
                    None => once.guests.push(asked),
                }
            }
        }
        once
    }
}

impl Guests for Once {
    fn look(&mut self) -> Vec<GuestNetwork> {
        let (node, mut processes) = (Local::new(), BTreeMap::new());
        for pid in self.guests.iter().filter_map(|g| g.pid) {
            processes.insert(pid, KnownProcess { start: None, configured: None, taps: BTreeSet::new() });
        }
        self.guests.iter().cloned().map(|guest| guest_network(&node, guest, &mut processes)).collect()
    }
}

impl Here {
    /// Takes the managers' answers, if they are complete.
    fn collect_answers(&mut self, guests: &[Guest]) {
        if !self.asked.as_ref().is_some_and(JoinHandle::is_finished) {
            return;
        }
        let answers = self.asked.take().and_then(|asked| asked.join().ok()).unwrap_or_default();
        for (guest, pid) in guests.iter().filter_map(|g| Some((g, g.pid?))) {
            let own = |g: &&Guest| g.pid == Some(pid) || (g.uuid.is_some() && g.uuid == guest.uuid);
            // A manager that did not answer this time may not take away what it said before.
            if let (Some(known), Some(answer)) = (self.processes.get_mut(&pid), answers.iter().find(own)) {
                known.configured = Some(answer.clone());
            }
        }
    }
}

fn guest_network(reader: &dyn Reader, guest: Guest, processes: &mut BTreeMap<u32, KnownProcess>) -> GuestNetwork {
    let mut names: Vec<String> = guest.uuid.iter().cloned().chain(guest.ids.values().cloned()).collect();
    names.retain(|name| !name.is_empty() && *name != guest.name);
    names.sort_unstable();
    names.dedup();
    let apart = guest.pid.is_some_and(|pid| !process::same_namespace(reader, pid, "net"));
    let assigned_vfs = cards::assigned_vfs(reader, &guest);
    let mut nics = guest.nics;
    for nic in &mut nics {
        let sure = match (nic.interface.as_deref(), nic.backend.as_deref(), guest.pid) {
            // The kernel tells the other end of a veth.
            (Some(_), Some("veth"), _) => true,
            (Some(tap), Some("tap"), Some(pid)) if !apart => holds(reader, pid, tap, processes),
            _ => false,
        };
        if !sure {
            nic.interface = None.into();
        }
    }
    let memory_bytes = guest.processors.as_ref().and_then(|p| *p.memory_bytes);
    GuestNetwork {
        name: guest.name,
        names,
        pids: guest.pid.into_iter().collect(),
        apart,
        memory_bytes,
        nics,
        assigned_vfs,
    }
}

/// Whether a process holds a tap of that name. Only a yes is cached.
fn holds(reader: &dyn Reader, pid: u32, tap: &str, processes: &mut BTreeMap<u32, KnownProcess>) -> bool {
    let Some(known) = processes.get_mut(&pid) else { return false };
    if !known.taps.contains(tap) {
        let numbers = process::descriptor_numbers(reader, pid).unwrap_or_default();
        known.taps = numbers.into_iter().filter_map(|fd| process::tun_interface(reader, pid, fd)).collect();
    }
    known.taps.contains(tap)
}

/// Files of the network namespaces of `ip netns`; the directory must be root's alone.
pub fn named_namespaces(dir: &Path) -> Vec<(String, File)> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let Ok(dir) = open(dir, flags | OFlags::DIRECTORY, Mode::empty()) else { return Vec::new() };
    let trusted = rustix::fs::fstat(&dir).is_ok_and(|stat| stat.st_uid == 0 && stat.st_mode & 0o022 == 0);
    let Ok(entries) = rustix::fs::Dir::read_from(&dir) else { return Vec::new() };
    if !trusted {
        return Vec::new();
    }
    let name = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
    let mut names: Vec<String> = entries.flatten().filter_map(name).filter(|n| !n.starts_with('.')).collect();
    names.sort_unstable();
    names.truncate(MOST_NAMESPACES);
    let open = |name: String| {
        let file = openat(&dir, name.as_str(), flags | OFlags::NONBLOCK, Mode::empty()).ok()?;
        Some((name, File::from(file)))
    };
    names.into_iter().filter_map(open).collect()
}
