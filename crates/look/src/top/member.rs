//! A guest and the files of its counters: threads, control group, interfaces.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use vmio_model::facts::{Disk, Guest, Source};
use vmio_model::top::load::{Device, Memory, Packets};
use vmio_model::top::reading::{GuestReading, Interface, Part, ThreadReading};

use vmio_node::Reader;
use vmio_node::linux::cgroup::{self, Hierarchies, dir_of};
use vmio_node::linux::{mounts, process};

use super::file_systems::images;
use super::files::{Files, PolledFile};
use super::memory::MemorySource;
use super::parse;
use crate::qemu::threads::MONITOR;

/// Readings after which threads are listed again, whatever their number.
const LISTED_READINGS: u32 = 30;

/// A guest and its files.
pub(super) struct Member {
    pub guest: Guest,
    /// Path of its control group by controller (empty for version 2).
    pub groups: BTreeMap<String, String>,
    /// Whether no other guest is in its control group.
    pub alone: bool,
    pub io: PolledFile,
    threads: Vec<Thread>,
    /// Link count of its directory of threads when they were listed; `None` when they are to be listed again.
    links: Option<u64>,
    /// Readings since then.
    unlisted: u32,
    memory_source: MemorySource,
    /// Its memory, as it was read last, and how much of the time it waited for memory before.
    memory: Option<Memory>,
    memory_stalled_ratio: Option<f64>,
    /// `cpu.stat` of the control groups that have its CPU quota: one, or libvirt's of each vCPU.
    quota: Vec<PolledFile>,
    group_cpu: Option<(PolledFile, bool)>,
    /// Its `net/dev`, where it has its own network namespace; `None` for the host's.
    net: Option<PolledFile>,
    interfaces: Vec<String>,
    /// Id of its control group, where no other guest is in it.
    pub group_id: Option<u64>,
    /// Images that a thread of the kernel may flush for it.
    pub images: Vec<(Device, u64)>,
    /// Whether block tracing attributes the requests of all its disks.
    pub traceable: bool,
    /// Whether it has ended.
    pub gone: bool,
    /// Whether limits of its network cards were asked for.
    pub limits_asked: bool,
}

struct Thread {
    tid: u32,
    /// Whether it is a kernel thread outside of the process.
    kernel: bool,
    part: Part,
    name: String,
    file: PolledFile,
}

/// Path of a process's control group by controller; version 2 has the empty name.
pub(super) fn groups(files: &Files<'_>, pid: u32) -> BTreeMap<String, String> {
    let text = files.reader().read_text(&process::file(pid, "cgroup")).unwrap_or_default();
    cgroup::memberships(&text)
        .flat_map(|(names, path)| names.split(',').map(|name| (name.to_owned(), path.to_owned())))
        .collect()
}

/// The group of a whole container: systemd goes into one below it (systemd src/core/cgroup.c, `manager_setup_cgroup`).
pub(super) fn of_container(path: &mut String) {
    let above = path.strip_suffix("/init.scope").filter(|above| !above.is_empty()).map(str::to_owned);
    if let Some(above) = above {
        *path = above;
    }
}

/// A newly found guest. `vhost` lists the kernel's vhost threads by guest.
pub(super) fn member(
    guest: Guest,
    files: &mut Files<'_>,
    hierarchies: &Hierarchies,
    vhost: &HashMap<u32, Vec<u32>>,
) -> Member {
    let pid = guest.pid.unwrap_or(0);
    let mut groups = groups(files, pid);
    if guest.shares_kernel() {
        groups.values_mut().for_each(of_container);
    }
    let elsewhere = !process::same_namespace(files.reader(), pid, "net");
    let group_cpu = guest.shares_kernel().then(|| group_cpu(&groups, hierarchies)).flatten();
    let threads = vhost.get(&pid).into_iter().flatten().map(|tid| Thread {
        tid: *tid,
        kernel: true,
        part: Part::Io,
        name: "vhost thread".into(),
        file: PolledFile::new(process::file(tid, "schedstat")),
    });
    let traceable = traceable(files.reader(), &guest);
    Member {
        memory_source: MemorySource::of(&guest, &groups, hierarchies, files.reader()),
        memory: None,
        memory_stalled_ratio: None,
        quota: quota(files.reader(), &guest),
        links: None,
        unlisted: 0,
        groups,
        alone: false,
        io: PolledFile::new(process::file(pid, "io")),
        threads: threads.collect(),
        group_cpu,
        net: elsewhere.then(|| PolledFile::new(process::file(pid, "net/dev"))),
        interfaces: guest.nics.iter().filter_map(|n| n.interface.value().clone()).collect(),
        group_id: None,
        images: images(files.reader(), &guest),
        traceable,
        gone: false,
        limits_asked: false,
        guest,
    }
}

/// Whether tracing cannot attribute a disk's requests: storage that QEMU itself speaks to (Ceph), and ZFS volumes.
pub(super) fn hidden(disk: &Disk) -> bool {
    let of_zfs = |source: &str| source.starts_with("/dev/zvol/") || source.starts_with("/dev/zd");
    disk.place.source.as_deref().is_none_or(|source| !source.starts_with('/') || of_zfs(source))
}

/// File systems that submit requests in the process that made them, without threads of their own.
const DIRECT: [&str; 4] = ["ext2", "ext3", "ext4", "xfs"];

/// Whether tracing attributes the requests of all of a guest's disks, so that no requests means none.
fn traceable(reader: &dyn Reader, guest: &Guest) -> bool {
    if !guest.is_qemu() || guest.disks.is_empty() || guest.disks.iter().any(hidden) {
        return false;
    }
    let mounts = guest.pid.and_then(|pid| mounts::of_process(reader, pid).ok()).unwrap_or_default();
    guest.disks.iter().filter_map(|d| d.place.source.as_deref()).all(|source| {
        let on = mounts::holding(&mounts, Path::new(source)).map(|mount| mount.filesystem.as_str());
        source.starts_with("/dev/") || on.is_some_and(|filesystem| DIRECT.contains(&filesystem))
    })
}

/// Processor time of a control group: `cpu.stat` of version 2, `cpuacct.usage` of version 1.
fn group_cpu(groups: &BTreeMap<String, String>, hierarchies: &Hierarchies) -> Option<(PolledFile, bool)> {
    let own = |controller: &str| groups.get(controller).filter(|p| p.as_str() != "/");
    if let Some(path) = own("cpuacct") {
        return Some((PolledFile::new(dir_of(hierarchies.v1("cpuacct")?, path)?.join("cpuacct.usage")), false));
    }
    Some((PolledFile::new(dir_of(hierarchies.v2()?, own("")?)?.join("cpu.stat")), true))
}

/// `cpu.stat` of the groups whose quota holds for the guest, by the file that sets it.
fn quota(reader: &dyn Reader, guest: &Guest) -> Vec<PolledFile> {
    let Some(Source::File(limit)) = guest.processors.as_ref().and_then(|p| p.quota_cpus.source()) else {
        return Vec::new();
    };
    let file = Path::new(limit).with_file_name("cpu.stat");
    // libvirt's groups of a guest: vcpu0, vcpu1 and so on (src/util/vircgroup.c, `virCgroupNewThread`).
    let of_vcpu = |group: &str| group.strip_prefix("vcpu").is_some_and(|number| number.parse::<u32>().is_ok());
    let group = file.parent().filter(|group| group.file_name().and_then(|name| name.to_str()).is_some_and(of_vcpu));
    let Some(all) = group.and_then(Path::parent) else { return vec![PolledFile::new(file)] };
    let names = reader.list(all).unwrap_or_default();
    names.iter().filter(|name| of_vcpu(name)).map(|name| PolledFile::new(all.join(name).join("cpu.stat"))).collect()
}

/// Link count of the directory of a process's threads: 2 and their number (Linux fs/proc/base.c,
/// `proc_task_getattr`). `None` through a reader.
fn task_links(files: &Files<'_>, pid: u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    files.local().then(|| std::fs::metadata(process::file(pid, "task")).ok()).flatten().map(|task| task.nlink())
}

impl Member {
    pub fn pid(&self) -> u32 {
        self.guest.pid.unwrap_or(0)
    }

    /// Takes over the open files of an earlier search. Disks, interfaces and the known roles of threads are the new
    /// ones.
    pub fn resume(&mut self, old: Member, files: &Files<'_>) {
        self.io.resume(old.io);
        if let (Some(file), Some(old)) = (&mut self.net, old.net) {
            file.resume(old);
        }
        if let (Some((file, _)), Some((old, _))) = (&mut self.group_cpu, old.group_cpu) {
            file.resume(old);
        }
        for (file, old) in self.quota.iter_mut().zip(old.quota) {
            file.resume(old);
        }
        self.memory = old.memory;
        self.memory_stalled_ratio = old.memory_stalled_ratio;
        self.memory_source.resume(&old.memory_source);
        for thread in old.threads {
            if let Some(own) = self.threads.iter_mut().find(|t| t.tid == thread.tid) {
                own.file.resume(thread.file);
            } else if !thread.kernel {
                let (part, name) = self.role(files, thread.tid);
                self.threads.push(Thread { part, name, ..thread });
            }
        }
    }

    /// Its counters now.
    pub fn read(&mut self, files: &mut Files<'_>, host_net: &BTreeMap<String, (Packets, Packets)>) -> GuestReading {
        let mut reading = GuestReading {
            name: self.guest.name.clone(),
            kind: self.guest.kind.clone(),
            pid: self.guest.pid,
            vmid: self.guest.vmid().map(str::to_owned),
            uuid: self.guest.uuid.clone(),
            traceable: self.traceable,
            vcpus: self.guest.processors.as_ref().filter(|_| !self.guest.shares_kernel()).and_then(|p| *p.vcpus),
            memory: self.memory,
            memory_stalled_ratio: self.memory_stalled_ratio,
            ..GuestReading::default()
        };
        let each = self.quota.iter_mut().filter_map(|file| files.read(file).and_then(cgroup::throttled_periods));
        reading.quota = each.reduce(|sum, next| (sum.0 + next.0, sum.1 + next.1));
        match &mut self.group_cpu {
            Some((file, v2)) => {
                let text = files.read(file);
                self.gone |= text.is_none();
                reading.group_run_ns =
                    text.and_then(|t| if *v2 { cgroup::cpu_used_ns(t) } else { t.trim().parse().ok() });
            }
            None => reading.threads = self.threads(files),
        }
        reading.nics = self.nics(files, host_net);
        reading
    }

    /// Reads its memory, which takes more than the other counters, so it is done in turn.
    pub fn read_memory(&mut self, files: &Files<'_>) {
        self.memory = self.memory_source.read(files.reader());
        self.memory_stalled_ratio = self.memory_source.stalled_ratio(files.reader());
    }

    /// Whether its memory was never read.
    pub fn is_new(&self) -> bool {
        self.memory.is_none()
    }

    fn threads(&mut self, files: &mut Files<'_>) -> Vec<ThreadReading> {
        let links = task_links(files, self.pid());
        if links.is_some() && links == self.links && self.unlisted < LISTED_READINGS {
            self.unlisted += 1;
        } else {
            self.list(files);
            (self.links, self.unlisted) = (links, 0);
        }
        let mut ended = false;
        let mut counters = |t: &mut Thread| {
            // It may have ended since it was listed, and another one begun.
            let found = files.read(&mut t.file).and_then(parse::schedstat);
            ended |= found.is_none() && !t.kernel;
            let (run_ns, wait_ns) = found?;
            Some(ThreadReading { tid: t.tid, part: t.part, name: t.name.clone(), run_ns, wait_ns })
        };
        let read = self.threads.iter_mut().filter_map(&mut counters).collect();
        if ended {
            self.links = None;
        }
        read
    }

    /// Lists its threads.
    fn list(&mut self, files: &Files<'_>) {
        let now: BTreeSet<u32> = process::threads(files.reader(), self.pid()).unwrap_or_default().into_iter().collect();
        if now.is_empty() {
            self.gone = true;
            self.threads.clear();
            return;
        }
        self.threads.retain(|t| now.contains(&t.tid) || t.kernel);
        for tid in now {
            if !self.threads.iter().any(|t| t.tid == tid) {
                let (part, name) = self.role(files, tid);
                let file = PolledFile::new(process::task_file(self.pid(), tid, "schedstat"));
                self.threads.push(Thread { tid, kernel: false, part, name, file });
            }
        }
    }

    /// Role of a thread: as the guest's finder says, else by its name. QEMU names its threads with `-name
    /// debug-threads=on` (always since 10.1), Firecracker and cloud-hypervisor always do.
    fn role(&self, files: &Files<'_>, tid: u32) -> (Part, String) {
        let mut placed = self.guest.processors.iter().flat_map(|p| p.threads.iter()).filter(|t| t.tid == tid);
        let of = |role: &str, name: &str| match role {
            "vcpu" => (Part::Vcpu, format!("virtual CPU {name}")),
            "worker" if name.is_empty() => (Part::Pool, "a pool thread".to_owned()),
            // A worker with a name serves one device only.
            "iothread" | "worker" => (Part::Io, format!("I/O thread {name}").trim_end().to_owned()),
            "vhost" => (Part::Io, "vhost thread".to_owned()),
            "main" => (Part::Main, "the main loop".to_owned()),
            _ => (Part::Rest, format!("thread {name}")),
        };
        // A thread gets its name after its start.
        if let Some(thread) = placed.find(|t| t.role != "other") {
            return of(&thread.role, &thread.name);
        }
        let comm = process::thread_comm(files.reader(), self.pid(), tid).unwrap_or_default();
        let comm = comm.as_str();
        // QEMU's TCG runs all of them in one thread with `thread=single` (accel/tcg/tcg-accel-ops-rr.c).
        let cpu = ["CPU ", "ALL CPUs", "fc_vcpu ", "vcpu"].iter().find_map(|start| comm.strip_prefix(start));
        match comm {
            _ if cpu.is_some() => of("vcpu", cpu.unwrap_or_default()),
            MONITOR => of("other", comm),
            _ if comm.starts_with("IO ") => of("iothread", &comm[3..]),
            "worker" => of("worker", ""),
            _ if comm.starts_with("vhost-") => of("vhost", ""),
            _ if tid == self.pid() => of("main", ""),
            _ => of("other", comm),
        }
    }

    fn nics(&mut self, files: &mut Files<'_>, host_net: &BTreeMap<String, (Packets, Packets)>) -> Vec<Interface> {
        // A container's own interfaces are inside of it: their sent is its sent.
        let inside = self.guest.shares_kernel();
        let own = self.net.as_mut().and_then(|file| files.read(file).map(parse::net_dev));
        let all = own.as_ref().unwrap_or(host_net);
        let wanted = |name: &String| {
            if inside && own.is_some() { name != "lo" } else { self.interfaces.contains(name) }
        };
        let interface = |(name, (received, sent)): (&String, &(Packets, Packets))| {
            let (received, sent) = if inside && own.is_some() { (*sent, *received) } else { (*received, *sent) };
            let nic = self.guest.nics.iter().find(|nic| nic.interface.as_ref() == Some(name));
            let queue_packets = nic.and_then(|nic| nic.to_guest.as_ref()?.queue_packets);
            Interface { name: name.clone(), speed_bps: None, queue_packets, received, sent }
        };
        all.iter().filter(|(name, _)| wanted(name)).map(interface).collect()
    }
}
