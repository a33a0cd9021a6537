//! Processor quota and memory placement of a process's control groups. libvirt makes a group for each vCPU besides the
//! process's.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vmio_model::facts::{Fact, Processors, Source, Throttled};
use vmio_node::linux::cgroup::{self, Group, Limit};
use vmio_node::linux::process::task_file;

use super::process::Process;

/// The process's group of a controller.
pub fn group(process: &Process<'_>, controller: &str) -> Option<Group> {
    let own = process.reader().read_text(&process.path("cgroup")).ok()?;
    process.host.groups().group(&own, controller)
}

/// A quota of processors.
struct Quota {
    cpus: f64,
    /// Whether it is the vCPUs' alone.
    of_vcpus: bool,
    file: PathBuf,
    throttled: Option<cgroup::Throttled>,
}

/// Adds the quota of the process, or of its vCPUs, by the threads that are known; nothing without a limit.
pub fn fill(process: &Process<'_>, own: &mut Processors) {
    let vcpus: Vec<u32> = own.threads.iter().filter(|t| t.role == "vcpu").map(|t| t.tid).collect();
    let Some(quota) = of(process, &vcpus) else { return };
    let file = quota.file.display().to_string();
    if let Some(cgroup::Throttled { period_us, periods, throttled, stopped_us }) = quota.throttled {
        let of = Throttled { period_us, periods, throttled, stopped_us };
        own.throttled = Fact::read(Some(of), quota.file.with_file_name("cpu.stat").display().to_string());
    }
    own.quota_of_vcpus = Fact::read(Some(quota.of_vcpus), file.clone());
    own.quota_cpus = Fact::read(Some(quota.cpus), Source::File(file));
}

fn of(process: &Process<'_>, vcpus: &[u32]) -> Option<Quota> {
    let reader = process.reader();
    let all = process.host.groups();
    let own = all.group(&reader.read_text(&process.path("cgroup")).ok()?, "cpu")?;
    // The main thread of a libvirt guest has its own group, whose quota is not the vCPUs'.
    let above = if own.dir.ends_with("emulator") { own.parent()? } else { own.clone() };
    let whole = above.cpu_limit(reader).map(|(cpus, file)| {
        let throttled = cgroup::throttled(reader, &file);
        Quota { cpus, of_vcpus: false, file, throttled }
    });
    let of_vcpu = |tid: &u32| {
        let text = reader.read_text(&task_file(process.pid, *tid, "cgroup")).ok()?;
        all.group(&text, "cpu").filter(|g| g.dir != own.dir)
    };
    let groups: Vec<Group> = vcpus.iter().filter_map(of_vcpu).collect();
    let each = || groups.iter().map(|g| g.own_cpu_limit(reader)).collect::<Option<Vec<Limit<f64>>>>();
    let complete = groups.len() == vcpus.len() && !groups.is_empty();
    let summed = complete.then(each).flatten().map(|each| {
        // The one that was stopped most is what the guest feels.
        let throttled = each.iter().filter_map(|(_, file)| Some((cgroup::throttled(reader, file)?, file)));
        let worst = throttled.max_by_key(|(throttled, _)| throttled.throttled);
        let file = worst.as_ref().map_or(&each[0].1, |(_, file)| *file).clone();
        let cpus = each.iter().map(|(cpus, _)| cpus).sum();
        Quota { cpus, of_vcpus: true, file, throttled: worst.map(|(throttled, _)| throttled) }
    });
    match (whole, summed) {
        (Some(whole), Some(summed)) => Some(if summed.cpus < whole.cpus { summed } else { whole }),
        (whole, summed) => whole.or(summed),
    }
}

/// Bytes of the process's memory by NUMA node, from the counters of its control group, and the file; `None` where it
/// shares the group. Reading it costs the guest nothing.
pub fn memory_by_node(process: &Process<'_>) -> Option<(BTreeMap<u32, u64>, String)> {
    let (bytes, file) = group(process, "memory")?.memory_by_node(process.reader(), process.pid)?;
    Some((bytes, file.display().to_string()))
}
