//! The running guests, and the guest that a flow belongs to.
//!
//! A search by `kinds::ALL` costs more than reading counters, so it is repeated only when new processes stay, and takes
//! a small part of the time at most. Threads of a known guest are listed again when their number changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vmio_model::facts::{Guest, Nic, Subject, Unread, tell_apart};
use vmio_model::top::Flow;
use vmio_model::top::cpu_users::ProcessLoad;
use vmio_model::top::load::{Device, JournalFlow, Packets};
use vmio_model::top::process::{OtherKind, kind_of};
use vmio_model::top::reading::GuestReading;

use vmio_node::linux::cgroup::{Hierarchies, dir_of};
use vmio_node::linux::process;

use super::files::Files;
use super::member::{Member, groups, member};
use crate::host_view::HostView;
use crate::kinds;
use crate::kinds::qemu::taps;
use crate::limits;

/// Longest time between two searches for guests.
const SEARCH_SECONDS: f64 = 60.0;
/// Seconds between two listings of the processes.
const LIST_SECONDS: f64 = 5.0;
/// Readings in which every guest's memory is read once.
const TURNS: usize = 10;
/// Share of one processor that searches may take: with 200 guests the counters take three times as much.
const SHARE: f64 = 0.003;
/// Below both of these the owner of a process on a file system is not looked up, which reads a file.
const SHORT_SECONDS: f64 = 0.001;
const FEW_BYTES: u64 = 1 << 20;

/// All guests.
#[derive(Default)]
pub(super) struct Roster {
    pub members: Vec<Member>,
    /// What the last search could not read.
    pub unread: Vec<Unread>,
    /// Increases with each search that changed the guests.
    pub version: u64,
    known: BTreeSet<u32>,
    fresh: BTreeSet<u32>,
    searched: f64,
    listed: f64,
    cost: f64,
    /// Readings so far.
    readings: usize,
    /// Guest by process, for processes that were looked up.
    owners: HashMap<u32, Option<usize>>,
    by_group: HashMap<u64, usize>,
    by_image: HashMap<(Device, u64), usize>,
}

impl Roster {
    /// Searches for guests when it is time.
    pub fn refresh(&mut self, search: &dyn Fn() -> Vec<(Vec<Guest>, Vec<Unread>)>, files: &mut Files<'_>, now: f64) {
        let first = self.version == 0;
        if !first && !self.due(files, now) {
            return;
        }
        let began = spent();
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for (guests, more) in search() {
            found.extend(guests);
            unread.extend(more);
        }
        found.retain(|g: &Guest| g.pid.is_some());
        found.sort_by(|a, b| a.name.cmp(&b.name).then(a.pid.cmp(&b.pid)));
        found.dedup_by_key(|g| g.pid);
        tell_apart(&mut found);
        // Matched by process: a name changes when another guest with the same name comes.
        let mut old: HashMap<u32, Member> = self.members.drain(..).map(|m| (m.pid(), m)).collect();
        let hierarchies = Hierarchies::of(files.reader()).unwrap_or_default();
        let vhost = vhost_threads(files, &found);
        self.members = found
            .into_iter()
            .map(|guest| {
                let mut found = member(guest, files, &hierarchies, &vhost);
                if let Some(old) = old.remove(&found.pid()) {
                    found.resume(old, files);
                }
                found
            })
            .collect();
        alone(&mut self.members);
        for i in 0..self.members.len() {
            self.members[i].group_id = group_id(&self.members[i], files, &hierarchies);
        }
        self.index();
        self.unread = unread;
        self.version += 1;
        // A new process may still become a hypervisor (fork, then exec): it is checked again at the next tick.
        let there = processes(files);
        self.fresh = there.difference(&self.known).copied().collect();
        self.known = there;
        (self.searched, self.listed) = (now, now);
        self.cost = spent() - began;
    }

    fn due(&mut self, files: &Files<'_>, now: f64) -> bool {
        let since = now - self.searched;
        if since < self.cost / SHARE {
            return false;
        }
        if since >= SEARCH_SECONDS {
            return true;
        }
        if now - self.listed < LIST_SECONDS {
            return false;
        }
        self.listed = now;
        let there = processes(files);
        // A process that came and went is no guest.
        let stayed = self.fresh.iter().any(|pid| there.contains(pid));
        self.fresh = there.difference(&self.known).copied().collect();
        stayed
    }

    /// Reads the counters of every guest.
    pub fn read(
        &mut self,
        files: &mut Files<'_>,
        host_net: &BTreeMap<String, (Packets, Packets)>,
    ) -> Vec<GuestReading> {
        self.readings = self.readings.wrapping_add(1);
        for (i, member) in self.members.iter_mut().enumerate() {
            if member.is_new() || i % TURNS == self.readings % TURNS {
                member.read_memory(files);
            }
        }
        let mut readings: Vec<GuestReading> = self.members.iter_mut().map(|m| m.read(files, host_net)).collect();
        if self.members.iter().any(|m| m.gone) {
            let mut there = self.members.iter().map(|m| !m.gone);
            readings.retain(|_| there.next().unwrap_or(false));
            self.members.retain(|m| !m.gone);
            self.index();
        }
        readings
    }

    /// The guest of this process, as it was found.
    pub fn guest(&self, pid: u32) -> Option<&Guest> {
        self.members.iter().find(|m| m.pid() == pid).map(|m| &m.guest)
    }

    /// Completes the limits of this guest's network cards, once after each search: they are shown of an opened guest
    /// alone, and the kernel lists the queues of all interfaces for them.
    pub fn open(&mut self, host: &HostView<'_>, pid: u32) {
        if let Some(member) = self.members.iter_mut().find(|m| m.pid() == pid && !m.limits_asked) {
            member.limits_asked = true;
            limits::settle(host, std::slice::from_mut(&mut member.guest));
        }
    }

    /// Whether a process belongs to a guest: its hypervisor, a process in its control group, or a vhost thread.
    pub fn is_of_guest(&mut self, files: &Files<'_>, process: &ProcessLoad) -> bool {
        let vhost = process.name.strip_prefix("vhost-").filter(|_| process.kernel).and_then(|pid| pid.parse().ok());
        if vhost.is_some_and(|pid: u32| self.members.iter().any(|m| m.pid() == pid)) {
            return true;
        }
        let members = &self.members;
        self.owners.entry(process.pid).or_insert_with(|| by_process(members, files, process.pid)).is_some()
    }

    /// Rebuilds the index by control group.
    fn index(&mut self) {
        self.by_group = self.members.iter().enumerate().filter_map(|(i, m)| Some((m.group_id?, i))).collect();
        let images = |(i, m): (usize, &Member)| m.images.iter().map(move |image| (*image, i)).collect::<Vec<_>>();
        self.by_image = self.members.iter().enumerate().flat_map(images).collect();
        self.owners.clear();
    }

    /// The guest of a flow.
    pub fn owner(&mut self, files: &Files<'_>, flow: &Flow) -> Option<usize> {
        self.owner_of(files, flow.pid, &flow.comm, flow.cgroup)
    }

    /// The guest that used a file system. What a thread of the kernel flushes for a hypervisor (Linux fs/aio.c,
    /// `aio_fsync_work`) is known by its file.
    pub fn user(&mut self, files: &Files<'_>, flow: &JournalFlow) -> Option<usize> {
        if flow.pid == 0 {
            return self.by_image.get(&(flow.device, flow.inode)).copied();
        }
        // As many processes as a guest starts cost nothing here where it has a control group.
        let known = self.by_group.get(&flow.cgroup).copied();
        let known = known.or_else(|| self.members.iter().position(|m| m.pid() == flow.pid));
        if known.is_some() || (flow.worst_seconds < SHORT_SECONDS && flow.dirtied_bytes < FEW_BYTES) {
            return known;
        }
        self.owner_of(files, flow.pid, &flow.comm, flow.cgroup)
    }

    /// By process, then by control group.
    fn owner_of(&mut self, files: &Files<'_>, pid: u32, comm: &str, cgroup: u64) -> Option<usize> {
        // A loop device's workers have the control group of the process they serve, whose requests were already counted
        // at the loop device.
        if pid == 0 && kind_of(comm, true) == OtherKind::Loop {
            return None;
        }
        if pid != 0 {
            let members = &self.members;
            let found = self.owners.entry(pid).or_insert_with(|| by_process(members, files, pid));
            if found.is_some() {
                return *found;
            }
        }
        self.by_group.get(&cgroup).copied()
    }
}

/// Processor seconds of this process.
fn spent() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

/// The searches of all kinds of guests.
pub(super) fn search(host: &HostView<'_>) -> Vec<(Vec<Guest>, Vec<Unread>)> {
    let mut found: Vec<_> = kinds::ALL.iter().map(|kind| kind.running(host)).map(|f| (f.guests, f.unread)).collect();
    found.iter_mut().flat_map(|(guests, _)| guests).for_each(|guest| plugged(host, guest));
    found
}

/// Corrects the interfaces of QEMU's command line by the taps that it has open: some may have been plugged in or
/// unplugged later.
fn plugged(host: &HostView<'_>, guest: &mut Guest) {
    let open = guest.pid.filter(|_| guest.is_qemu()).and_then(|pid| taps(host, pid));
    // No taps: its interfaces may be of another kind.
    let Some(mut open) = open.filter(|open| !open.is_empty()) else { return };
    let there = |nic: &Nic| match &*nic.interface {
        Some(name) if nic.backend.as_deref() == Some("tap") => open.contains(name),
        _ => true,
    };
    guest.nics.retain(there);
    for name in guest.nics.iter().filter_map(|n| n.interface.as_ref()) {
        open.remove(name);
    }
    let from = host.from(&guest.name, format!("/proc/{}/fdinfo", guest.pid.unwrap_or(0)));
    for name in open {
        let nic = Nic::unknown(Subject::net(&guest.name, &name), from.clone());
        guest.nics.push(Nic { interface: Some(name).into(), ..nic });
    }
}

fn processes(files: &Files<'_>) -> BTreeSet<u32> {
    process::all(files.reader()).unwrap_or_default().into_iter().collect()
}

fn by_process(members: &[Member], files: &Files<'_>, pid: u32) -> Option<usize> {
    if let Some(i) = members.iter().position(|m| m.pid() == pid) {
        return Some(i);
    }
    let groups = groups(files, pid);
    let inside = |m: &Member| {
        m.alone
            && m.groups.iter().any(|(hierarchy, own)| {
                let path = groups.get(hierarchy).map_or("", String::as_str);
                own != "/"
                    && path.strip_prefix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    };
    members.iter().position(inside)
}

/// Marks guests alone in their control group: a container always is; a hypervisor where a manager made one for it
/// (`machine-qemu…scope`, Proxmox's `qemu.slice/101.scope`, a pod's).
fn alone(members: &mut [Member]) {
    let own = |m: &Member| m.groups.values().find(|path| path.as_str() != "/").cloned();
    let all: Vec<Option<String>> = members.iter().map(own).collect();
    for (i, member) in members.iter_mut().enumerate() {
        let Some(path) = &all[i] else { continue };
        let made = ["machine.slice", "machine/", "machine-", "qemu.slice", "kubepods", "/docker/", "/lxc/"];
        let unique = all.iter().enumerate().all(|(j, other)| i == j || other.as_ref() != Some(path));
        member.alone = unique && (member.guest.shares_kernel() || made.iter().any(|m| path.contains(m)));
    }
}

/// Id of its version 2 control group, as tracing reports it: the inode of its directory.
fn group_id(member: &Member, files: &Files<'_>, hierarchies: &Hierarchies) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    if !member.alone || !files.local() {
        return None;
    }
    let path = member.groups.get("").filter(|p| p.as_str() != "/")?;
    std::fs::metadata(dir_of(hierarchies.v2()?, path)?).ok().map(|m| m.ino())
}

/// vhost threads of the kernel (before Linux 6.4), by the guest's process.
fn vhost_threads(files: &Files<'_>, found: &[Guest]) -> HashMap<u32, Vec<u32>> {
    let mut threads: HashMap<u32, Vec<u32>> = HashMap::new();
    if !found.iter().any(|g| g.nics.iter().any(|n| n.vhost == Some(true))) {
        return threads;
    }
    for pid in processes(files) {
        let comm = process::comm(files.reader(), pid).unwrap_or_default();
        if let Some(guest) = comm.strip_prefix("vhost-").and_then(|n| n.parse().ok()) {
            threads.entry(guest).or_default().push(pid);
        }
    }
    threads
}
