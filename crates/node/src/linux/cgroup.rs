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
        // In a group of threads nothing is counted, the one above it has it all.
        let mut all = self.upwards().filter(|g| !g.is_first());
        let (group, file, text) = all.find_map(|g| {
            let file = g.dir.join("memory.numa_stat");
            reader.read_text(&file).ok().map(|text| (g, file, text))
        })?;
        let alone = reader.read_text(&group.dir.join("cgroup.procs")).ok()?;
        if !alone.split_whitespace().eq([pid.to_string().as_str()]) {
            return None;
        }
        let bytes = numa_stat(&text, group.v2);
        (!bytes.is_empty()).then_some((bytes, file))
    }
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
}

/// The content of `io.stat` of version 2, by device. A device without these four is left out: it was never used.
pub fn io_stat(text: &str) -> impl Iterator<Item = (Number, Moved)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let device = device::parse(words.next()?)?;
        let [mut read_ios, mut read_bytes, mut write_ios, mut write_bytes] = [None; 4];
        for (key, value) in words.filter_map(|w| w.split_once('=')) {
            let into = match key {
                "rios" => &mut read_ios,
                "rbytes" => &mut read_bytes,
                "wios" => &mut write_ios,
                "wbytes" => &mut write_bytes,
                _ => continue,
            };
            *into = value.parse().ok();
        }
        let (read_ios, read_bytes, write_ios, write_bytes) = (read_ios?, read_bytes?, write_ios?, write_bytes?);
        Some((device, Moved { read_ios, read_bytes, write_ios, write_bytes }))
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
