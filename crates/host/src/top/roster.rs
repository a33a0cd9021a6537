//! Which guests run, and the files that say what each of them does.
//!
//! Guests are found by `guests::ALL`. That costs more than reading their counters, so it is done
//! again only when processes came that stay, and never takes more than a small
//! part of the time. Threads of a guest that is known are looked up when their number changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use vmio_model::facts::{Guest, Unread};
use vmio_model::top::Flow;
use vmio_model::top::load::Packets;
use vmio_model::top::process::{OtherKind, kind_of};
use vmio_model::top::reading::{GuestReading, Interface, Part, ThreadReading};

use super::files::{Files, Kept};
use super::parse;
use crate::guests;
use crate::look::Look;

/// Longest time between two searches for guests.
const SEARCH_SECONDS: f64 = 60.0;
/// Time between two looks at which processes there are.
const LIST_SECONDS: f64 = 5.0;
/// A search may take this part of one processor.
const SHARE: f64 = 0.01;

/// A guest and its files.
pub(super) struct Member {
    pub guest: Guest,
    /// Path of its control group in each hierarchy, by controller (empty for version 2).
    pub groups: BTreeMap<String, String>,
    /// Whether nobody else is in its control group.
    pub alone: bool,
    pub io: Kept,
    threads: Vec<Thread>,
    group_cpu: Option<(Kept, bool)>,
    /// Its interfaces: `net/dev` of its own network namespace, or none for the host's.
    net: Option<Kept>,
    interfaces: Vec<String>,
    /// Id of its control group, where it is its own.
    group_id: Option<u64>,
    gone: bool,
}

struct Thread {
    tid: u32,
    /// One of the kernel's own, which is not among the process's.
    kernel: bool,
    part: Part,
    name: String,
    file: Kept,
}

impl Member {
    pub fn pid(&self) -> u32 {
        self.guest.pid.unwrap_or(0)
    }

    pub fn container(&self) -> bool {
        self.guest.kind == "container"
    }
}

/// All guests.
#[derive(Default)]
pub(super) struct Roster {
    pub members: Vec<Member>,
    /// What could not be read when they were searched for.
    pub unread: Vec<Unread>,
    /// Grows with each search that found others than before.
    pub version: u64,
    known: BTreeSet<u32>,
    fresh: BTreeSet<u32>,
    searched: f64,
    listed: f64,
    cost: f64,
    /// Guest by process, of processes that were looked up.
    owners: HashMap<u32, Option<usize>>,
    by_group: HashMap<u64, usize>,
}

impl Roster {
    /// Searches if it is time for it.
    pub fn refresh(&mut self, look: &dyn Fn() -> Vec<(Vec<Guest>, Vec<Unread>)>, files: &mut Files<'_>, now: f64) {
        let first = self.version == 0;
        if !first && !self.due(files, now) {
            return;
        }
        let began = spent();
        let (mut found, mut unread) = (Vec::new(), Vec::new());
        for (guests, more) in look() {
            found.extend(guests);
            unread.extend(more);
        }
        found.retain(|g: &Guest| g.pid.is_some());
        found.sort_by(|a, b| a.name.cmp(&b.name).then(a.pid.cmp(&b.pid)));
        found.dedup_by_key(|g| g.pid);
        let mut old: HashMap<(u32, String), Member> =
            self.members.drain(..).map(|m| ((m.pid(), m.guest.name.clone()), m)).collect();
        let mounts = crate::backing::mounts(files.reader()).unwrap_or_default();
        let v2 = mounts.iter().find(|m| m.filesystem == "cgroup2").map(|m| m.point.clone());
        let vhost = vhost_threads(files, &found);
        self.members = found
            .into_iter()
            .map(|guest| {
                let key = (guest.pid.unwrap_or(0), guest.name.clone());
                let mut found = member(guest, files, v2.as_deref(), &vhost);
                if let Some(old) = old.remove(&key) {
                    found.resume(old, files);
                }
                found
            })
            .collect();
        alone(&mut self.members);
        for i in 0..self.members.len() {
            self.members[i].group_id = group_id(&self.members[i], files, v2.as_deref());
        }
        self.index();
        self.unread = unread;
        self.version += 1;
        // A process that was new just now may still become a hypervisor (it is made by fork, then
        // exec): it is looked at once more.
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
        // One that came and went meanwhile is no guest.
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
        let mut readings: Vec<GuestReading> = self.members.iter_mut().map(|m| m.read(files, host_net)).collect();
        if self.members.iter().any(|m| m.gone) {
            let mut there = self.members.iter().map(|m| !m.gone);
            readings.retain(|_| there.next().unwrap_or(false));
            self.members.retain(|m| !m.gone);
            self.index();
        }
        readings
    }

    /// Finds members by control group, after their places changed.
    fn index(&mut self) {
        self.by_group = self.members.iter().enumerate().filter_map(|(i, m)| Some((m.group_id?, i))).collect();
        self.owners.clear();
    }

    /// The guest that a flow belongs to: by process, then by control group.
    pub fn owner(&mut self, files: &Files<'_>, flow: &Flow) -> Option<usize> {
        // A loop device's workers bear the control group of whom they serve, whose requests were
        // counted at the loop device already.
        if flow.pid == 0 && kind_of(&flow.comm, true) == OtherKind::Loop {
            return None;
        }
        if flow.pid != 0 {
            let members = &self.members;
            let found = self.owners.entry(flow.pid).or_insert_with(|| by_process(members, files, flow.pid));
            if found.is_some() {
                return *found;
            }
        }
        self.by_group.get(&flow.cgroup).copied()
    }
}

/// Processor seconds of this process.
fn spent() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 * 1e-9
}

/// The searches of all kinds of guests.
pub(super) fn search(look: &Look<'_>) -> Vec<(Vec<Guest>, Vec<Unread>)> {
    guests::ALL.iter().map(|kind| kind.running(look)).map(|found| (found.guests, found.unread)).collect()
}

fn processes(files: &Files<'_>) -> BTreeSet<u32> {
    files.reader().list(Path::new("/proc")).unwrap_or_default().iter().filter_map(|n| n.parse().ok()).collect()
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

/// Path of a process's control group by controller; version 2 has the empty name.
fn groups(files: &Files<'_>, pid: u32) -> BTreeMap<String, String> {
    let text = files.reader().read_text(Path::new(&format!("/proc/{pid}/cgroup"))).unwrap_or_default();
    let lines = text.lines().filter_map(|l| {
        let mut parts = l.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    lines.flat_map(|(names, path)| names.split(',').map(|name| (name.to_owned(), path.to_owned()))).collect()
}

/// Marks those whose control group is theirs alone: a container's always is; a hypervisor's where
/// a manager made one for it (`machine-qemu…scope`, Proxmox's `qemu.slice/101.scope`, a pod's).
fn alone(members: &mut [Member]) {
    let own = |m: &Member| m.groups.values().find(|path| path.as_str() != "/").cloned();
    let all: Vec<Option<String>> = members.iter().map(own).collect();
    for (i, member) in members.iter_mut().enumerate() {
        let Some(path) = &all[i] else { continue };
        let made = ["machine.slice", "machine/", "machine-", "qemu.slice", "kubepods", "/docker/", "/lxc/"];
        let unique = all.iter().enumerate().all(|(j, other)| i == j || other.as_ref() != Some(path));
        member.alone = unique && (member.container() || made.iter().any(|m| path.contains(m)));
    }
}

/// Id of its control group of version 2, which tracing tells: the inode of its directory.
fn group_id(member: &Member, files: &Files<'_>, v2: Option<&Path>) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    if !member.alone || !files.local() {
        return None;
    }
    let path = member.groups.get("").filter(|p| p.as_str() != "/")?;
    std::fs::metadata(v2?.join(path.trim_start_matches('/'))).ok().map(|m| m.ino())
}

/// Threads of vhost that are the kernel's own (before Linux 6.4), by the guest's process.
fn vhost_threads(files: &Files<'_>, found: &[Guest]) -> HashMap<u32, Vec<u32>> {
    let mut threads: HashMap<u32, Vec<u32>> = HashMap::new();
    if !found.iter().any(|g| g.nics.iter().any(|n| n.vhost == Some(true))) {
        return threads;
    }
    for pid in processes(files) {
        let comm = files.reader().read_text(Path::new(&format!("/proc/{pid}/comm"))).unwrap_or_default();
        if let Some(guest) = comm.trim().strip_prefix("vhost-").and_then(|n| n.parse().ok()) {
            threads.entry(guest).or_default().push(pid);
        }
    }
    threads
}

fn member(guest: Guest, files: &mut Files<'_>, v2: Option<&Path>, vhost: &HashMap<u32, Vec<u32>>) -> Member {
    let pid = guest.pid.unwrap_or(0);
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let groups = groups(files, pid);
    let net = |p: &Path| files.reader().link(&p.join("ns/net")).ok().flatten();
    let (own, host) = (net(&proc), net(Path::new("/proc/self")));
    let elsewhere = own.is_some() && own != host;
    let container = guest.kind == "container";
    let group_cpu = container.then(|| group_cpu(&groups, v2)).flatten();
    let threads = vhost.get(&pid).into_iter().flatten().map(|tid| Thread {
        tid: *tid,
        kernel: true,
        part: Part::Io,
        name: "vhost thread".into(),
        file: Kept::new(format!("/proc/{tid}/schedstat")),
    });
    Member {
        groups,
        alone: false,
        io: Kept::new(proc.join("io")),
        threads: threads.collect(),
        group_cpu,
        net: elsewhere.then(|| Kept::new(proc.join("net/dev"))),
        interfaces: guest.nics.iter().filter_map(|n| n.interface.clone()).collect(),
        group_id: None,
        gone: false,
        guest,
    }
}

/// Processor time of a control group: `cpu.stat` of version 2, `cpuacct.usage` of version 1.
fn group_cpu(groups: &BTreeMap<String, String>, v2: Option<&Path>) -> Option<(Kept, bool)> {
    let inside = |root: &Path, path: &str| root.join(path.trim_start_matches('/'));
    if let Some(path) = groups.get("cpuacct").filter(|p| p.as_str() != "/") {
        return Some((Kept::new(inside(Path::new("/sys/fs/cgroup/cpuacct"), path).join("cpuacct.usage")), false));
    }
    let path = groups.get("").filter(|p| p.as_str() != "/")?;
    Some((Kept::new(inside(v2?, path).join("cpu.stat")), true))
}

impl Member {
    /// Goes on with the files that are open since it was found before. What it has may have changed:
    /// disks and interfaces come and go, and more may be known of its threads.
    fn resume(&mut self, old: Member, files: &Files<'_>) {
        self.io.resume(old.io);
        if let (Some(file), Some(old)) = (&mut self.net, old.net) {
            file.resume(old);
        }
        if let (Some((file, _)), Some((old, _))) = (&mut self.group_cpu, old.group_cpu) {
            file.resume(old);
        }
        for thread in old.threads {
            if let Some(own) = self.threads.iter_mut().find(|t| t.tid == thread.tid) {
                own.file.resume(thread.file);
            } else if !thread.kernel {
                let (part, name) = self.role(files, thread.tid);
                self.threads.push(Thread { part, name, ..thread });
            }
        }
    }

    fn read(&mut self, files: &mut Files<'_>, host_net: &BTreeMap<String, (Packets, Packets)>) -> GuestReading {
        let mut reading = GuestReading {
            name: self.guest.name.clone(),
            kind: self.guest.kind.clone(),
            pid: self.guest.pid,
            ..GuestReading::default()
        };
        match &mut self.group_cpu {
            Some((file, v2)) => {
                let text = files.read(file);
                self.gone |= text.is_none();
                reading.group_run_ns = text.and_then(|t| match v2 {
                    true => {
                        Some(t.lines().find_map(|l| l.strip_prefix("usage_usec "))?.trim().parse::<u64>().ok()? * 1000)
                    }
                    false => t.trim().parse().ok(),
                });
            }
            None => reading.threads = self.threads(files),
        }
        reading.nics = self.nics(files, host_net);
        reading
    }

    fn threads(&mut self, files: &mut Files<'_>) -> Vec<ThreadReading> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.pid()));
        let names = files.reader().list(&tasks).unwrap_or_default();
        if names.is_empty() {
            self.gone = true;
            return Vec::new();
        }
        let now: BTreeSet<u32> = names.iter().filter_map(|n| n.parse().ok()).collect();
        self.threads.retain(|t| now.contains(&t.tid) || t.kernel);
        for tid in now {
            if !self.threads.iter().any(|t| t.tid == tid) {
                let (part, name) = self.role(files, tid);
                let file = Kept::new(tasks.join(tid.to_string()).join("schedstat"));
                self.threads.push(Thread { tid, kernel: false, part, name, file });
            }
        }
        let counters = |t: &mut Thread| {
            // It may have ended since it was listed.
            let (run_ns, wait_ns) = parse::schedstat(files.read(&mut t.file)?)?;
            Some(ThreadReading { tid: t.tid, part: t.part, name: t.name.clone(), run_ns, wait_ns })
        };
        self.threads.iter_mut().filter_map(counters).collect()
    }

    /// What a thread is for: as whoever found the guest says, else by its name. QEMU names its
    /// threads with `-name debug-threads=on` (always since 10.1), Firecracker and cloud-hypervisor
    /// always do.
    fn role(&self, files: &Files<'_>, tid: u32) -> (Part, String) {
        let mut placed = self.guest.processors.iter().flat_map(|p| &p.threads).filter(|t| t.tid == tid);
        let of = |role: &str, name: &str| match role {
            "vcpu" => (Part::Vcpu, format!("virtual CPU {name}")),
            "worker" if name.is_empty() => (Part::Pool, "a pool thread".to_owned()),
            // One with a name serves one device alone.
            "iothread" | "worker" => (Part::Io, format!("I/O thread {name}").trim_end().to_owned()),
            "vhost" => (Part::Io, "vhost thread".to_owned()),
            "main" => (Part::Main, "the main loop".to_owned()),
            _ => (Part::Rest, format!("thread {name}")),
        };
        // A thread gets its name only after it began.
        if let Some(thread) = placed.find(|t| t.role != "other") {
            return of(&thread.role, &thread.name);
        }
        let comm = files.reader().read_text(Path::new(&format!("/proc/{}/task/{tid}/comm", self.pid())));
        let comm = comm.unwrap_or_default();
        let comm = comm.trim();
        let cpu = ["CPU ", "fc_vcpu ", "vcpu"].iter().find_map(|start| comm.strip_prefix(start));
        match comm {
            _ if cpu.is_some() => of("vcpu", cpu.unwrap_or_default()),
            _ if comm.starts_with("IO ") => of("iothread", &comm[3..]),
            "worker" => of("worker", ""),
            _ if comm.starts_with("vhost-") => of("vhost", ""),
            _ if tid == self.pid() => of("main", ""),
            _ => of("other", comm),
        }
    }

    fn nics(&mut self, files: &mut Files<'_>, host_net: &BTreeMap<String, (Packets, Packets)>) -> Vec<Interface> {
        // A container's own interfaces lie in it: what they send is what it sends.
        let inside = self.container();
        let own = self.net.as_mut().and_then(|file| files.read(file).map(parse::net_dev));
        let all = own.as_ref().unwrap_or(host_net);
        let wanted = |name: &String| match inside && own.is_some() {
            true => name != "lo",
            false => self.interfaces.contains(name),
        };
        let interface = |(name, (received, sent)): (&String, &(Packets, Packets))| {
            let (received, sent) = if inside && own.is_some() { (*sent, *received) } else { (*received, *sent) };
            Interface { name: name.clone(), speed_bps: None, received, sent }
        };
        all.iter().filter(|(name, _)| wanted(name)).map(interface).collect()
    }
}
