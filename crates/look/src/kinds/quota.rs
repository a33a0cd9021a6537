//! Processor quota and memory placement of a process's control groups. libvirt makes a group for each vCPU besides the
//! process's.

use std::collections::BTreeMap;

use vmio_node::linux::cgroup::{Group, Hierarchies, Limit};
use vmio_node::linux::process::task_file;

use super::process::Process;

/// The process's group of a controller.
pub fn group(process: &Process<'_>, controller: &str) -> Option<Group> {
    let own = process.reader().read_text(&process.path("cgroup")).ok()?;
    Hierarchies::of(process.reader()).ok()?.group(&own, controller)
}

/// Quota in CPUs, and the file that sets it; `None` without a limit.
pub fn of(process: &Process<'_>, vcpus: &[u32]) -> Option<(f64, String)> {
    let reader = process.reader();
    let all = Hierarchies::of(reader).ok()?;
    let own = all.group(&reader.read_text(&process.path("cgroup")).ok()?, "cpu")?;
    // The main thread of a libvirt guest has its own group, whose quota is not the vCPUs'.
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

/// Bytes of the process's memory by NUMA node, from the counters of its control group, and the file; `None` where it
/// shares the group. Reading it costs the guest nothing.
pub fn memory_by_node(process: &Process<'_>) -> Option<(BTreeMap<u32, u64>, String)> {
    let (bytes, file) = group(process, "memory")?.memory_by_node(process.reader(), process.pid)?;
    Some((bytes, file.display().to_string()))
}
