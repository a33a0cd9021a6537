//! Control groups of both versions (cgroups(7); Linux Documentation/admin-guide/cgroup-v2.rst and
//! admin-guide/cgroup-v1/): which group a process is in, where that is, what it may use and what it used.
//!
//! A machine has version 2, version 1, or both (each controller is in one of them alone). What a process's
//! `cgroup` says is a path in a hierarchy, and where this lies is for the table of mounts to say: distributions
//! differ, and a container may have only a part of it mounted.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::device::{self, Number};
use super::mounts::{self, Mount};
use super::{number, word};
use crate::{Reader, Result};

/// The limit of memory of version 1 that is none: a number near the largest one, less a page.
const NO_LIMIT_BYTES: u64 = 1 << 60;
/// Bytes of a page, in which version 1 counts memory by node (x86-64).
const PAGE_BYTES: u64 = 4096;
/// Weight of I/O where nobody set one (cgroup-v2.rst, "IO"; Linux block/bfq-cgroup.c), and that of CFQ, which Linux 5.0
/// took away (cgroup-v1/blkio-controller.rst of Linux 4.20).
const IO_WEIGHT: u32 = 100;
const CFQ_WEIGHT: u32 = 500;

/// Where the hierarchies of a machine are mounted.
#[derive(Debug, Clone, Default)]
pub struct Hierarchies(Vec<Mount>);

impl Hierarchies {
    /// As the process that looks sees them.
    ///
    /// # Errors
    /// When the table of mounts cannot be read.
    pub fn of(reader: &dyn Reader) -> Result<Self> {
        Ok(Self::among(mounts::own(reader)?))
    }

    /// Those in a table of mounts.
    pub fn among(mut mounts: Vec<Mount>) -> Self {
        mounts.retain(|m| m.filesystem == "cgroup" || m.filesystem == "cgroup2");
        Self(mounts)
    }

    /// Version 2.
    pub fn v2(&self) -> Option<&Mount> {
        self.0.iter().find(|m| m.filesystem == "cgroup2")
    }

    /// The hierarchy of version 1 that a controller is in.
    pub fn v1(&self, controller: &str) -> Option<&Mount> {
        self.0.iter().find(|m| m.filesystem == "cgroup" && m.option(controller).is_some())
    }

    /// The group with a controller that a process is in, by the content of its `cgroup`: of version 1 where it has
    /// the controller there, else of version 2.
    pub fn group(&self, cgroup: &str, controller: &str) -> Option<Group> {
        let v1 = path_of(cgroup, controller).zip(self.v1(controller));
        let v2 = || path_of(cgroup, "").zip(self.v2());
        v1.map(|(path, mount)| Group::at(mount, path, false))
            .or_else(|| v2().map(|(path, m)| Group::at(m, path, true)))?
    }
}

/// The groups in the content of a process's `cgroup`: their controllers, with commas in between (none for version
/// 2), and the path of each in its hierarchy.
pub fn memberships(cgroup: &str) -> impl Iterator<Item = (&str, &str)> {
    cgroup.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    })
}

/// The path with a controller; the empty one is version 2's.
pub fn path_of<'a>(cgroup: &'a str, controller: &str) -> Option<&'a str> {
    memberships(cgroup).find(|(all, _)| all.split(',').any(|c| c == controller)).map(|(_, path)| path)
}

/// Directory of a path of a hierarchy that is mounted; `None` where the mount does not show it, as from within a
/// namespace of control groups, where the paths of those outside begin with `/..` (cgroup_namespaces(7)).
pub fn dir_of(mount: &Mount, path: &str) -> Option<PathBuf> {
    let inner = Path::new(path).strip_prefix(&mount.root).ok()?;
    if inner.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    // An empty part would add a slash.
    Some(if inner.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(inner) })
}

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    root: PathBuf,
    /// Its directory.
    pub dir: PathBuf,
    /// Whether it is of version 2.
    pub v2: bool,
}

/// A limit, and the file that says so.
pub type Limit<T> = (T, PathBuf);

impl Group {
    fn at(mount: &Mount, path: &str, v2: bool) -> Option<Self> {
        Some(Self { root: mount.point.clone(), dir: dir_of(mount, path)?, v2 })
    }

    /// The group above; `None` of the first one.
    pub fn parent(&self) -> Option<Self> {
        let dir = self.dir.parent().filter(|dir| dir.starts_with(&self.root))?;
        Some(Self { dir: dir.to_owned(), ..self.clone() })
    }

    /// Whether it is the first one, which has no limits and in which all is that is in no other.
    pub fn is_first(&self) -> bool {
        self.dir == self.root
    }

    /// Itself and those above.
    fn upwards(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), Self::parent)
    }

    /// Content of one of its files; empty where it has none.
    pub fn text(&self, reader: &dyn Reader, file: &str) -> String {
        reader.read_text(&self.dir.join(file)).unwrap_or_default()
    }

    /// Processors' worth of time that it may use by its own limit (`cpu.max`; `cpu.cfs_quota_us`, Linux
    /// Documentation/scheduler/sched-bwc.rst); `None` without one (`max`, -1).
    pub fn own_cpu_limit(&self, reader: &dyn Reader) -> Option<Limit<f64>> {
        let (quota, period, file) = if self.v2 {
            let file = self.dir.join("cpu.max");
            let text = word(reader, &file)?;
            let (quota, period) = text.split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?, file)
        } else {
            let file = self.dir.join("cpu.cfs_quota_us");
            (number(reader, &file)?, number(reader, &self.dir.join("cpu.cfs_period_us"))?, file)
        };
        (quota > 0.0 && period > 0.0).then(|| (quota / period, file))
    }

    /// The least of its own limit of processors and of those above, which hold for it too.
    pub fn cpu_limit(&self, reader: &dyn Reader) -> Option<Limit<f64>> {
        self.upwards()
            .filter_map(|g| g.own_cpu_limit(reader))
            .reduce(|least, next| if next.0 < least.0 { next } else { least })
    }

    /// Bytes of memory that it may use, by its own limit or one above (`memory.max`; `memory.limit_in_bytes`, where
    /// those above hold only with `memory.use_hierarchy`, as always since Linux 5.11); `None` without one.
    pub fn memory_limit_bytes(&self, reader: &dyn Reader) -> Option<Limit<u64>> {
        let name = if self.v2 { "memory.max" } else { "memory.limit_in_bytes" };
        let flat = |g: &Self| !self.v2 && number(reader, &g.dir.join("memory.use_hierarchy")) == Some(0u8);
        let holding = self.upwards().enumerate().take_while(|(above, g)| *above == 0 || !flat(g));
        let own = holding.filter_map(|(_, g)| {
            let file = g.dir.join(name);
            Some((number::<u64>(reader, &file).filter(|bytes| *bytes < NO_LIMIT_BYTES)?, file))
        });
        own.reduce(|least, next| if next.0 < least.0 { next } else { least })
    }

    /// Bytes of a process's memory by NUMA node, by the counters of the group (`memory.numa_stat`), and the file that
    /// says so. `None` where it shares the group. It costs the process nothing.
    pub fn memory_by_node(&self, reader: &dyn Reader, pid: u32) -> Option<(BTreeMap<u32, u64>, PathBuf)> {
        let (group, file, text) = self.counted(reader, pid, "memory.numa_stat")?;
        let bytes = numa_stat(&text, group.v2);
        (!bytes.is_empty()).then_some((bytes, file))
    }

    /// What a process moved on a device, by the counters of the group (`io.stat` of version 2), and the file that says
    /// so. `None` where it shares the group.
    pub fn moved_on(&self, reader: &dyn Reader, pid: u32, device: Number) -> Option<(Moved, PathBuf)> {
        let (_, file, text) = self.counted(reader, pid, "io.stat").filter(|_| self.v2)?;
        let found = io_stat(&text).find(|(number, _)| *number == device)?;
        Some((found.1, file))
    }

    /// Bytes of a process's memory in swap, shared memory included (`memory.swap.current`; in version 1 `total_swap` of
    /// `memory.stat`), and the file that says so. `None` where it shares the group.
    pub fn swapped_bytes(&self, reader: &dyn Reader, pid: u32) -> Option<Limit<u64>> {
        let (_, file, text) = self.counted(reader, pid, if self.v2 { "memory.swap.current" } else { "memory.stat" })?;
        let bytes =
            if self.v2 { text.as_str() } else { text.lines().find_map(|line| line.strip_prefix("total_swap "))? };
        Some((bytes.trim().parse().ok()?, file))
    }

    /// A counter of memory, of the group that counts it: in a group of threads nothing is counted, the one above it has
    /// it all. `None` where the process shares that one.
    fn counted(&self, reader: &dyn Reader, pid: u32, name: &str) -> Option<(Self, PathBuf, String)> {
        let mut all = self.upwards().filter(|g| !g.is_first());
        let (group, file, text) = all.find_map(|g| {
            let file = g.dir.join(name);
            reader.read_text(&file).ok().map(|text| (g, file, text))
        })?;
        let alone = reader.read_text(&group.dir.join("cgroup.procs")).ok()?;
        alone.split_whitespace().eq([pid.to_string().as_str()]).then_some((group, file, text))
    }

    /// Weight of its I/O, where somebody set one: its own or that of a group above that is not a slice, which is of
    /// many (`io.weight`, read by iocost, and `io.bfq.weight`; in version 1 `blkio.bfq.weight`, and CFQ's).
    pub fn io_weight(&self, reader: &dyn Reader) -> Option<Limit<u32>> {
        let names = if self.v2 {
            [("io.weight", IO_WEIGHT), ("io.bfq.weight", IO_WEIGHT)]
        } else {
            [("blkio.bfq.weight", IO_WEIGHT), ("blkio.weight", CFQ_WEIGHT)]
        };
        let of = |g: &Self, (name, usual): (&str, u32)| {
            let file = g.dir.join(name);
            let text = word(reader, &file)?;
            let first = text.lines().next()?;
            let weight: u32 = first.strip_prefix("default ").unwrap_or(first).parse().ok()?;
            (weight != usual).then_some((weight, file))
        };
        self.upwards()
            .take_while(|g| !g.is_first() && g.dir.extension().is_none_or(|end| end != "slice"))
            .find_map(|g| names.into_iter().find_map(|name| of(&g, name)))
    }

    /// Devices on which it did I/O, disks and what lies on them (`io.stat`; in version 1
    /// `blkio.throttle.io_serviced`).
    pub fn io_devices(&self, reader: &dyn Reader) -> Vec<Number> {
        if self.v2 {
            return io_stat(&self.text(reader, "io.stat")).map(|(device, _)| device).collect();
        }
        blkio(&self.text(reader, "blkio.throttle.io_serviced")).into_keys().collect()
    }

    /// Devices for which iocost, which holds `io.weight`, is on (`io.cost.qos` of the first group, cgroup-v2.rst).
    pub fn iocost_devices(&self, reader: &dyn Reader) -> Vec<Number> {
        let text = reader.read_text(&self.root.join("io.cost.qos")).unwrap_or_default();
        let on = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let device = device::parse(words.next()?)?;
            words.any(|word| word == "enable=1").then_some(device)
        };
        text.lines().filter_map(on).collect()
    }

    /// The file with a limit of writes of version 1, its own or of a group above
    /// (cgroup-v1/blkio-controller.rst, "Throttling/Upper limit policy").
    pub fn v1_write_limit(&self, reader: &dyn Reader) -> Option<PathBuf> {
        let files = ["blkio.throttle.write_bps_device", "blkio.throttle.write_iops_device"];
        let limits = |g: Self| files.iter().find(|file| !g.text(reader, file).trim().is_empty()).map(|f| g.dir.join(f));
        if self.v2 { None } else { self.upwards().find_map(limits) }
    }
}

/// How often a quota of processors was used up since the group was made (Linux Documentation/scheduler/sched-bwc.rst,
/// "Statistics"; cgroup-v2.rst, `cpu.stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// Length of a period in microseconds.
    pub period_us: u64,
    /// Periods in which the group ran.
    pub periods: u64,
    /// Those in which it was stopped until the next one.
    pub throttled: u64,
    /// Microseconds that it was stopped, summed up over processors.
    pub stopped_us: u64,
}

/// What became of a limit of processors, by the file that has the limit ([`Group::cpu_limit`]).
pub fn throttled(reader: &dyn Reader, limit: &Path) -> Option<Throttled> {
    let period_us = if limit.ends_with("cpu.max") {
        word(reader, limit)?.split_once(' ')?.1.trim().parse().ok()?
    } else {
        number(reader, &limit.with_file_name("cpu.cfs_period_us"))?
    };
    let text = reader.read_text(&limit.with_file_name("cpu.stat")).ok()?;
    let of = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(' '));
        fields.find(|(field, _)| *field == name)?.1.trim().parse::<u64>().ok()
    };
    // Microseconds in version 2, nanoseconds in version 1.
    let stopped_us = of("throttled_usec").or_else(|| Some(of("throttled_time")? / 1000))?;
    Some(Throttled { period_us, periods: of("nr_periods")?, throttled: of("nr_throttled")?, stopped_us })
}

/// Memory by node in a `memory.numa_stat`: shared memory is a file's in version 2 and anonymous in version 1, where
/// locked pages are apart, and all are pages.
fn numa_stat(text: &str, v2: bool) -> BTreeMap<u32, u64> {
    let (wanted, unit) = if v2 { (["anon", "shmem"], 1) } else { (["anon", "unevictable"], PAGE_BYTES) };
    let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(' ');
        let name = fields.next().and_then(|f| f.split('=').next()).unwrap_or_default();
        let nodes = fields.filter(|_| wanted.contains(&name)).filter_map(|f| f.strip_prefix('N')?.split_once('='));
        for (node, number) in nodes {
            if let (Ok(node), Ok(number)) = (node.parse(), number.parse::<u64>()) {
                let sum = bytes.entry(node).or_default();
                *sum = sum.saturating_add(number.saturating_mul(unit));
            }
        }
    }
    bytes
}

/// Periods of a group's quota of processors, and those in which it was throttled, of its `cpu.stat`: the same names in
/// both versions (Linux Documentation/scheduler/sched-bwc.rst).
pub fn throttled_periods(cpu_stat: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let mut values = cpu_stat.lines().filter_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        values.next()?.trim().parse::<u64>().ok()
    };
    Some((field("nr_periods")?, field("nr_throttled")?))
}

/// Nanoseconds of processors that a group of version 2 used, of its `cpu.stat`. (Version 1 has them alone in
/// `cpuacct.usage`.)
pub fn cpu_used_ns(cpu_stat: &str) -> Option<u64> {
    let used = cpu_stat.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
    used.trim().parse::<u64>().ok()?.checked_mul(1000)
}

/// What a group moved on a device since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Requests of reads.
    pub read_ios: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Requests of writes.
    pub write_ios: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
    /// Requests of discards.
    pub discard_ios: u64,
    /// Bytes of discards.
    pub discard_bytes: u64,
}

/// The content of `io.stat` of version 2, by device. A device without these four is left out: it was never used.
pub fn io_stat(text: &str) -> impl Iterator<Item = (Number, Moved)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let device = device::parse(words.next()?)?;
        let [mut read_ios, mut read_bytes, mut write_ios, mut write_bytes] = [None; 4];
        let [mut discard_ios, mut discard_bytes] = [None; 2];
        for (key, value) in words.filter_map(|w| w.split_once('=')) {
            let into = match key {
                "rios" => &mut read_ios,
                "rbytes" => &mut read_bytes,
                "wios" => &mut write_ios,
                "wbytes" => &mut write_bytes,
                "dios" => &mut discard_ios,
                "dbytes" => &mut discard_bytes,
                _ => continue,
            };
            *into = value.parse().ok();
        }
        let (read_ios, read_bytes, write_ios, write_bytes) = (read_ios?, read_bytes?, write_ios?, write_bytes?);
        // Counted from Linux 4.20 on.
        let (discard_ios, discard_bytes) = (discard_ios.unwrap_or(0), discard_bytes.unwrap_or(0));
        Some((device, Moved { read_ios, read_bytes, write_ios, write_bytes, discard_ios, discard_bytes }))
    })
}

/// Reads and writes by device, of `blkio.throttle.io_service_bytes` or `io_serviced` of version 1 (cgroup-v1/
/// blkio-controller.rst).
pub fn blkio(text: &str) -> BTreeMap<Number, (u64, u64)> {
    let mut found: BTreeMap<Number, (u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (device, side) = (words.next().and_then(device::parse), words.next());
        let (Some(device), Some(value)) = (device, words.next().and_then(|v| v.parse().ok())) else { continue };
        let sum = found.entry(device).or_default();
        match side {
            Some("Read") => sum.0 = value,
            Some("Write") => sum.1 = value,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
