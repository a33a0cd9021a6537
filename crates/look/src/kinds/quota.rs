//! What a process's control groups let it use of processors, and how its memory lies. libvirt has a
//! group for each vCPU beside the process's own.

use std::collections::BTreeMap;

use vmio_node::linux::cgroup::{Group, Hierarchies, Limit};
use vmio_node::linux::process::task_file;

use super::process::Process;

/// The group with a controller that the process is in; where it can be told.
pub fn group(process: &Process<'_>, controller: &str) -> Option<Group> {
    let own = process.reader().read_text(&process.path("cgroup")).ok()?;
    Hierarchies::of(process.reader()).ok()?.group(&own, controller)
}

/// Processors' worth of time, and the file that says so; `None` without a limit.
pub fn of(process: &Process<'_>, vcpus: &[u32]) -> Option<(f64, String)> {
    let reader = process.reader();
    let all = Hierarchies::of(reader).ok()?;
    let own = all.group(&reader.read_text(&process.path("cgroup")).ok()?, "cpu")?;
    // The main thread of a libvirt guest is in a group of its own, which says nothing of vCPUs.
    let whole = if own.dir.ends_with("emulator") { own.parent()? } else { own.clone() };
    let mut least = whole.cpu_limit(reader);
    let of_vcpu = |tid: &u32| {
        let text = reader.read_text(&task_file(process.pid, *tid, "cgroup")).ok()?;
        all.group(&text, "cpu").filter(|g| g.dir != own.dir)
    };
    let groups: Vec<Group> = vcpus.iter().filter_map(of_vcpu).collect();
    if groups.len() == vcpus.len() && !groups.is_empty() {
        let each: Option<Vec<Limit<f64>>> = groups.iter().map(|g| g.own_cpu_limit(reader)).collect();
        let sum = each.map(|each| (each.iter().map(|(cpus, _)| cpus).sum(), each[0].1.clone()));
        least = match (least, sum) {
            (Some(whole), Some(sum)) => Some(if sum.0 < whole.0 { sum } else { whole }),
            (whole, sum) => whole.or(sum),
        };
    }
    least.map(|(cpus, file)| (cpus, file.display().to_string()))
}

/// Bytes of the process's memory by NUMA node, by the counters of its control group, and the file that says so;
/// `None` where it shares the group. It costs the guest nothing.
pub fn memory_by_node(process: &Process<'_>) -> Option<(BTreeMap<u32, u64>, String)> {
    let (bytes, file) = group(process, "memory")?.memory_by_node(process.reader(), process.pid)?;
    Some((bytes, file.display().to_string()))
}
