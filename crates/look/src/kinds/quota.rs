//! How many processors' worth of time a process's control groups let it use (Linux
//! Documentation/admin-guide/cgroup-v2.rst, `cpu.max`; scheduler/sched-bwc.rst, `cpu.cfs_quota_us`).
//! A group above may give less than the group itself; libvirt has a group for each vCPU beside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::process::Process;

/// Processors' worth of time, and the file that says so; `None` without a limit.
pub fn of(process: &Process<'_>, vcpus: &[u32]) -> Option<(f64, String)> {
    let mounts = process.reader().read_text(Path::new("/proc/self/mounts")).ok()?;
    let own = group(process, &process.path("cgroup"), &mounts, "cpu")?;
    // The main thread of a libvirt guest is in a group of its own, which says nothing of vCPUs.
    let whole = if own.dir.ends_with("emulator") { own.parent()? } else { own.clone() };
    let mut least = whole.least(process);
    let of_vcpu = |tid: &u32| group(process, &process.path(&format!("task/{tid}/cgroup")), &mounts, "cpu");
    let groups: Vec<Group> = vcpus.iter().filter_map(of_vcpu).filter(|g| g.dir != own.dir).collect();
    if groups.len() == vcpus.len() && !groups.is_empty() {
        let each: Option<Vec<(f64, String)>> = groups.iter().map(|g| g.limit(process)).collect();
        let sum = each.map(|each| (each.iter().map(|(cpus, _)| cpus).sum(), each[0].1.clone()));
        least = less(least, sum);
    }
    least
}

fn less(a: Option<(f64, String)>, b: Option<(f64, String)>) -> Option<(f64, String)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Bytes of the process's memory by NUMA node, by the counters of its control group
/// (`memory.numa_stat`: cgroup-v2.rst; cgroup-v1/memory.rst), and the file that says so; `None` where
/// it shares the group. It costs the guest nothing.
pub fn memory_by_node(process: &Process<'_>) -> Option<(BTreeMap<u32, u64>, String)> {
    let read = |path: PathBuf| process.reader().read_text(&path).ok();
    let mounts = read("/proc/self/mounts".into())?;
    let own = group(process, &process.path("cgroup"), &mounts, "memory")?;
    // In a group of threads nothing is counted, the one above it has it all.
    let mut above = std::iter::successors(Some(own), Group::parent).filter(|g| g.dir != g.root);
    let (group, text) = above.find_map(|g| read(g.dir.join("memory.numa_stat")).map(|text| (g, text)))?;
    let procs = read(group.dir.join("cgroup.procs"))?;
    if !procs.split_whitespace().eq([process.pid.to_string().as_str()]) {
        return None;
    }
    // Shared memory is a file's in v2 and anonymous in v1, where locked pages are apart, and all are
    // pages (of 4 KiB: x86-64).
    let (wanted, unit) = if group.v2 { (["anon", "shmem"], 1) } else { (["anon", "unevictable"], 4096) };
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
    (!bytes.is_empty()).then(|| (bytes, group.dir.join("memory.numa_stat").display().to_string()))
}

/// A control group with a controller.
#[derive(Clone)]
struct Group {
    root: PathBuf,
    dir: PathBuf,
    v2: bool,
}

/// The group that a `cgroup` file of /proc names (cgroups(7)).
fn group(process: &Process<'_>, file: &Path, mounts: &str, controller: &str) -> Option<Group> {
    let text = process.reader().read_text(file).ok()?;
    let entry = |wanted: &dyn Fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            wanted(controllers).then_some(path)
        })
    };
    let mounted = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let fits = *fields.get(2)? == kind && (option.is_empty() || fields.get(3)?.split(',').any(|o| o == option));
            fits.then(|| PathBuf::from(fields[1]))
        })
    };
    let below = |root: PathBuf, path: &str, v2: bool| {
        let dir = root.join(path.trim_start_matches('/'));
        Group { root, dir, v2 }
    };
    let v1 = entry(&|c| c.split(',').any(|c| c == controller)).zip(mounted("cgroup", controller));
    match v1 {
        Some((path, root)) => Some(below(root, path, false)),
        None => Some(below(mounted("cgroup2", "")?, entry(&str::is_empty)?, true)),
    }
}

impl Group {
    fn parent(&self) -> Option<Group> {
        let dir = self.dir.parent().filter(|dir| dir.starts_with(&self.root))?;
        Some(Group { dir: dir.to_owned(), ..self.clone() })
    }

    /// Its own limit.
    fn limit(&self, process: &Process<'_>) -> Option<(f64, String)> {
        let read = |name: &str| process.reader().read_text(&self.dir.join(name)).ok();
        let (quota, period, name) = if self.v2 {
            let text = read("cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?, "cpu.max")
        } else {
            let number = |name: &str| read(name)?.trim().parse::<f64>().ok();
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?, "cpu.cfs_quota_us")
        };
        (quota > 0.0 && period > 0.0).then(|| (quota / period, self.dir.join(name).display().to_string()))
    }

    /// The least of its own and of those above.
    fn least(&self, process: &Process<'_>) -> Option<(f64, String)> {
        let above = std::iter::successors(Some(self.clone()), Group::parent);
        above.filter_map(|g| g.limit(process)).fold(None, |least, limit| less(least, Some(limit)))
    }
}
