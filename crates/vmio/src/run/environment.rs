//! Where a run is made: what is known of the host before anything runs on it.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vmio_model::result::Environment;
use vmio_node::{Exec, Node};

use super::plan::Planned;

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The environment as far as it is known before the first guest.
pub fn of(planned: &Planned, local: &dyn Node) -> Environment {
    let read = |path: &str| local.read_text(Path::new(path)).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, name: &str| {
        text.lines().find_map(|l| l.strip_prefix(name)?.trim_start().strip_prefix(':').map(|v| v.trim().to_owned()))
    };
    let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|v| v.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()))
        .unwrap_or(0);
    let qemu = local
        .exec(&Exec::new("qemu-system-x86_64").args(["--version"]).limit(Duration::from_secs(10)))
        .ok()
        .filter(vmio_node::Output::ok)
        .and_then(|o| o.out().lines().next().map(str::to_owned));
    Environment {
        vmio: env!("CARGO_PKG_VERSION").into(),
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        guest_kernel: None,
        cpu: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".into()),
        cpus: cpuinfo.lines().filter(|l| l.starts_with("processor")).count() as u32,
        memory_bytes: memory_kib * 1024,
        accel: None,
        accel_reason: String::new(),
        qemu,
        fio: None,
        backing: planned.backing.describe(),
        vcpus: planned.study.guest.vcpus,
        memory_mib: planned.study.guest.memory_mib,
        native_limits: String::new(),
        other_guests: planned.others.guests.len() as u32,
        cap_ratio: None,
        node: std::env::var(vmio_host::lab::NODE_VARIABLE).ok().filter(|n| !n.is_empty()),
    }
}
