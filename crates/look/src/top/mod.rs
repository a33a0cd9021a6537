//! Sampling for `vmio top`: counters of the disks, of each guest's threads and interfaces, and disk traffic by process.
//! Nothing is changed; with block tracing the [`FlowSource`] loads eBPF programs, which end with it.
//!
//! [`Sampler::tick`] returns the counts since the last one; [`vmio_model::top`] evaluates them.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::facts::Guest;
use vmio_model::rate::BitRate;
use vmio_model::top::Flow;
use vmio_model::top::calls::CallLoad;
use vmio_model::top::cpu_users::{ProcessLoad, Processes, estimated, grouped, ran};
use vmio_model::top::journal;
use vmio_model::top::load::{CpuLoad, Device, Interval, JournalFlow, JournalLoad, Packets, ThreadLoad};
use vmio_model::top::reading::{Interface, Reading, Traced, between, busiest};
use vmio_node::Questions;
use vmio_node::linux::net::Interfaces;
use vmio_node::linux::{block, process, system};

mod disks;
mod domstats;
mod file_systems;
mod files;
pub mod flows;
mod member;
mod memory;
mod parse;
mod roster;

#[cfg(test)]
mod tests;

use crate::host_view::HostView;
use disks::Groups;
use domstats::Libvirt;
use file_systems::FileSystems;
use files::{Files, PolledFile};
pub use flows::{Blocks, FlowSource};
use roster::{Roster, search};

/// Seconds between searches for disks and interfaces.
const HARDWARE_SECONDS: f64 = 10.0;

/// Processor use from which single processes are read.
const BUSY: f64 = 0.5;
/// Bytes of a note on what could not be read that is shown with its reason.
const LONG_NOTE: usize = 160;
/// Seconds after which processes are read on an idle host, too, so that it is known who begins to use it.
const IDLE_SECONDS: f64 = 60.0;
/// Threads of a guest that are told.
const THREADS: usize = 8;
/// Share of the processors' work from which the owner of a process is looked up.
const LEAST_SHARE: f64 = 0.01;

/// Samples a machine repeatedly.
pub struct Sampler<'a> {
    node: &'a dyn Questions,
    files: Files<'a>,
    roster: Roster,
    flows: Option<Box<dyn FlowSource>>,
    /// Why there is no tracing.
    untraced: Option<flows::Error>,
    groups: Groups,
    libvirt: Libvirt,
    file_systems: FileSystems,
    hardware: Hardware,
    diskstats: PolledFile,
    stat: PolledFile,
    pressure: PolledFile,
    net_dev: PolledFile,
    meminfo: PolledFile,
    vmstat: PolledFile,
    last: Option<Reading>,
    /// The processes before the last reading, and when they were read.
    processes: Option<(f64, Processes)>,
    /// When processes were read last.
    processes_read: f64,
    /// The guest whose threads are told.
    watched: Option<u32>,
    threads: Vec<ThreadLoad>,
    calls: BTreeMap<u32, CallLoad>,
}

/// The disks and uplinks of the machine.
#[derive(Default)]
struct Hardware {
    looked: Option<f64>,
    disks: BTreeSet<String>,
    uplinks: BTreeMap<String, Option<BitRate>>,
}

impl<'a> Sampler<'a> {
    /// A sampler of a machine. With `here` the node is this machine, so that files of `/proc` may stay open. `flows` is
    /// the tracing, or why there is none.
    pub fn new(node: &'a dyn Questions, here: bool, flows: flows::Result<Box<dyn FlowSource>>) -> Self {
        let (flows, untraced) = match flows {
            Ok(source) => (Some(source), None),
            Err(why) => (None, Some(why)),
        };
        Self {
            node,
            files: Files::new(node, here),
            roster: Roster::default(),
            flows,
            untraced,
            groups: Groups::default(),
            libvirt: Libvirt::default(),
            file_systems: FileSystems::default(),
            hardware: Hardware::default(),
            diskstats: PolledFile::new("/proc/diskstats"),
            stat: PolledFile::new("/proc/stat"),
            pressure: PolledFile::new("/proc/pressure/cpu"),
            net_dev: PolledFile::new("/proc/net/dev"),
            meminfo: PolledFile::new("/proc/meminfo"),
            vmstat: PolledFile::new("/proc/vmstat"),
            last: None,
            processes: None,
            processes_read: 0.0,
            watched: None,
            threads: Vec::new(),
            calls: BTreeMap::new(),
        }
    }

    /// How disk traffic of guests is measured, in a few words.
    pub fn about(&self) -> String {
        match (&self.flows, &self.untraced) {
            (Some(flows), _) => flows.about(),
            (None, _) => "disks without eBPF".into(),
        }
    }

    /// Tells the threads of this guest from now on.
    pub fn watch(&mut self, pid: Option<u32>) {
        self.watched = pid;
    }

    /// The busiest threads of the guest that is watched, in the last interval.
    pub fn threads(&self) -> &[ThreadLoad] {
        &self.threads
    }

    /// Counts what these hypervisors ask of their host from now on, for [`Sampler::calls`]. That costs all processes of
    /// the host a little; without any it ends. Called after a tick, the next one has the counts of a whole interval.
    /// Nothing without tracing.
    pub fn watch_calls(&mut self, pids: &BTreeSet<u32>) {
        if let Some(flows) = &mut self.flows {
            flows.watch_calls(self.node, pids);
        }
    }

    /// What this one asked in the last interval; `None` where it is not watched or that is not seen.
    pub fn calls(&self, pid: u32) -> Option<&CallLoad> {
        self.calls.get(&pid)
    }

    /// The processes of guests with a hypervisor, as the last search found them. What a container asks of the kernel is
    /// not a hypervisor's.
    pub fn hypervisors(&self) -> BTreeSet<u32> {
        self.roster.members.iter().filter(|m| !m.guest.shares_kernel()).map(|m| m.pid()).collect()
    }

    /// The guest of this process, as the last search found it.
    pub fn guest(&self, pid: u32) -> Option<&Guest> {
        self.roster.guest(pid)
    }

    /// The counts since the last tick; `None` at the first one.
    pub fn tick(&mut self) -> Option<Interval> {
        let (reading, taken, journals) = self.read();
        let mut before = self.last.replace(reading)?;
        let after = self.last.as_ref()?;
        let mut interval = match taken {
            None => between(&before, after, None),
            Some(flows) => {
                let owners: Vec<Option<usize>> =
                    flows.iter().map(|flow| self.roster.owner(&self.files, flow)).collect();
                between(&before, after, Some(&Traced { flows: &flows, owners: &owners }))
            }
        };
        let own = |reading: &Reading| {
            let mut guests = reading.guests.iter();
            guests.find(|g| self.watched.is_some() && g.pid == self.watched).cloned()
        };
        let both = own(&before).zip(own(after));
        self.threads = both.map_or(Vec::new(), |(was, now)| busiest(&was, &now, interval.seconds, THREADS));
        interval.journals = self.journals(&journals, &interval);
        if let Some(processes) = before.processes.take() {
            self.processes = Some((before.at_seconds, processes));
        }
        self.name_processes(&mut interval);
        Some(interval)
    }

    /// The file systems with a journal that were used.
    fn journals(&mut self, flows: &[JournalFlow], interval: &Interval) -> Vec<JournalLoad> {
        let owners: Vec<Option<usize>> = flows.iter().map(|flow| self.roster.user(&self.files, flow)).collect();
        let mut loads = journal::loads(flows, &owners, interval);
        let now = self.last.as_ref().map_or(0.0, |last| last.at_seconds);
        self.file_systems.settle(self.files.reader(), &mut loads, now);
        loads
    }

    /// Leaves the processes that are no guest's, by name. Where they were not read at the beginning of the interval they
    /// are told by what they did since they were read last.
    fn name_processes(&mut self, interval: &mut Interval) {
        let since = if interval.processes.is_none() { self.since(interval) } else { None };
        let seconds = since.as_ref().map(|(seconds, _)| *seconds);
        let Some(mut all) = interval.processes.take().or(since.map(|(_, all)| all)) else { return };
        // Finding the owner of a process reads files, so it is done for significant ones only.
        let least = interval.host_cpu.busy_seconds * LEAST_SHARE;
        all.retain(|p| p.run_seconds < least || !self.roster.is_of_guest(&self.files, p));
        if let Some(seconds) = seconds {
            let guests: f64 = interval.guests.iter().filter_map(|g| g.cpu.as_ref()).map(CpuLoad::run_seconds).sum();
            all = estimated(all, seconds, interval.host_cpu.busy_seconds - guests);
        }
        interval.processes = Some(grouped(all));
    }

    /// What processes did since they were read last, and how long ago that was; `None` on an idle host.
    fn since(&self, interval: &Interval) -> Option<(f64, Vec<ProcessLoad>)> {
        let (after, (at, old)) = (self.last.as_ref()?, self.processes.as_ref()?);
        interval.host_cpu.busy_ratio(interval.seconds).filter(|busy| *busy >= BUSY)?;
        Some((after.at_seconds - at, ran(old, after.processes.as_ref()?)))
    }

    fn read(&mut self) -> (Reading, Option<Vec<Flow>>, Vec<JournalFlow>) {
        let reader = self.node;
        let mut reading = Reading { at_seconds: reader.clock_seconds().unwrap_or(0.0), ..Reading::default() };
        let now = reading.at_seconds;
        let node = self.node;
        self.roster.refresh(&|| search(&HostView::new(node)), &mut self.files, now);
        if let Some(pid) = self.watched {
            self.roster.open(&HostView::new(node), pid);
        }
        self.hardware.refresh(&self.files, now);
        // The counters are read together, with nothing slow in between; next to each other those that are subtracted.
        let taken = self.take();
        self.calls = self.flows.as_mut().map_or_else(BTreeMap::new, |flows| flows.calls());
        let journals = self.flows.as_mut().map_or_else(Vec::new, |flows| flows.journals());
        let files = &mut self.files;
        reading.at_seconds = reader.clock_seconds().unwrap_or(now);
        let wanted = &self.hardware.disks;
        reading.disks = files.read(&mut self.diskstats).map(|t| parse::diskstats(t, wanted)).unwrap_or_default();
        let net = files.read(&mut self.net_dev).map(parse::net_dev).unwrap_or_default();
        reading.guests = self.roster.read(files, &net);
        reading.uplinks = self.hardware.uplinks(&net);
        reading.cpu = files.read(&mut self.stat).map(parse::stat).unwrap_or_default();
        reading.cpu.stalled_us = files.read(&mut self.pressure).and_then(system::stalled_us);
        reading.memory = files.read(&mut self.meminfo).map(parse::meminfo).unwrap_or_default();
        reading.memory.swaps = files.read(&mut self.vmstat).and_then(parse::swaps);
        if self.is_busy(&reading) || reading.at_seconds - self.processes_read >= IDLE_SECONDS {
            self.processes_read = reading.at_seconds;
            reading.processes = Some(processes(&self.files));
        }
        // A guest on Ceph, NFS or a ZFS volume is visible by its own counters only, with tracing or without.
        self.untraced_disks(&mut reading, now);
        let lost = self.flows.as_mut().map_or(0, |flows| flows.lost());
        if lost > 0 {
            let why = "too many were in flight, or too many processes used disks";
            reading.notes.push(format!("{lost} requests could not be traced: {why}"));
        }
        reading.notes.extend(self.flows.as_mut().and_then(|flows| flows.journals_unseen()));
        reading.notes.extend(self.flows.as_mut().and_then(|flows| flows.calls_unseen()));
        self.notes(&mut reading);
        (reading, taken, journals)
    }

    /// Whether the processors were busy enough since the last reading to read single processes. That takes a file a
    /// process, so an idle host skips it after the first reading.
    fn is_busy(&self, now: &Reading) -> bool {
        self.last.as_ref().is_none_or(|last| {
            let there = (now.at_seconds - last.at_seconds) * f64::from(now.cpu.cpus);
            now.cpu.busy_seconds - last.cpu.busy_seconds >= there * BUSY
        })
    }

    fn take(&mut self) -> Option<Vec<Flow>> {
        match self.flows.as_mut()?.take() {
            Ok(flows) => Some(flows),
            Err(e) => {
                self.untraced = Some(e);
                self.flows = None;
                None
            }
        }
    }

    fn untraced_disks(&mut self, reading: &mut Reading, now: f64) {
        let leaves: BTreeSet<Device> = reading.disks.keys().copied().collect();
        let members = &self.roster.members;
        self.libvirt.refresh(&HostView::new(self.node), members, self.flows.is_some(), now);
        self.groups.refresh(members, &self.files, self.roster.version);
        for (member, guest) in self.roster.members.iter_mut().zip(&mut reading.guests) {
            guest.disks = disks::read(member, &mut self.groups, &self.libvirt, &mut self.files, &leaves);
        }
    }

    fn notes(&self, reading: &mut Reading) {
        if self.flows.is_none() {
            let why = self.untraced.as_ref().map_or_else(|| "not asked for".to_owned(), ToString::to_string);
            let lacks = "no latency percentiles by guest, no waits in fsync and no other processes";
            reading.notes.push(format!("no eBPF, so {lacks}: {why}"));
        }
        if reading.disks.is_empty() {
            reading.notes.push("no disk can be seen in /proc/diskstats".into());
        }
        if reading.guests.is_empty() {
            reading.notes.push("no running guest is visible to this user".into());
        }
        if let Some(why) = &self.libvirt.refused {
            reading.notes.push(format!("libvirt cannot be queried: {why}"));
        }
        let unread = &self.roster.unread;
        let note = |u: &vmio_model::facts::Unread| {
            let whole = format!("could not read {}: {}; {}", u.what, u.why, u.mend);
            let short = || format!("could not read {}; why: vmio scan --verbose", u.what);
            if whole.len() <= LONG_NOTE { whole } else { short() }
        };
        reading.notes.extend(unread.iter().map(note));
    }
}

/// CPU times of all processes.
fn processes(files: &Files<'_>) -> Processes {
    let reader = files.reader();
    let times = |pid: u32| Some((pid, parse::process(&reader.read_text(&process::file(pid, "stat")).ok()?)?));
    process::all(reader).unwrap_or_default().into_iter().filter_map(times).collect()
}

impl Hardware {
    fn refresh(&mut self, files: &Files<'_>, now: f64) {
        if self.looked.is_some_and(|at| now - at < HARDWARE_SECONDS) {
            return;
        }
        self.looked = Some(now);
        let reader = files.reader();
        // Mapped and RAID devices pass requests on to their slaves, which are the bottleneck. ZFS volumes do the same
        // without listing slaves, and memory disks have no bottleneck of their own.
        let other = |name: &str| ["zd", "zram", "ram"].iter().any(|driver| block::is_numbered(name, driver));
        let lowest = |name: &String| !other(name) && block::Device::whole(reader, name).slaves().is_empty();
        self.disks = block::whole(reader).unwrap_or_default().into_iter().filter(lowest).collect();
        let here = Interfaces::here(reader);
        let mut real = here.names().unwrap_or_default();
        real.retain(|name| here.is_device(name));
        self.uplinks = real.into_iter().map(|name| (name.clone(), here.speed_bps(&name).map(BitRate::new))).collect();
    }

    fn uplinks(&self, net: &BTreeMap<String, (Packets, Packets)>) -> Vec<Interface> {
        let interface = |(name, speed): (&String, &Option<BitRate>)| {
            let (received, sent) = *net.get(name)?;
            Some(Interface { name: name.clone(), speed_bps: *speed, queue_packets: None, received, sent })
        };
        self.uplinks.iter().filter_map(interface).collect()
    }
}
