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

/// A field of `/proc/cpuinfo` or `/proc/meminfo`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|l| l.strip_prefix(name)?.trim_start().strip_prefix(':').map(|v| v.trim().to_owned()))
}

/// The CPU model of a machine.
pub fn cpu(local: &dyn Node) -> String {
    let cpuinfo = local.read_text(Path::new("/proc/cpuinfo")).unwrap_or_default();
    field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".into())
}

/// The memory of a machine in bytes; 0 where it cannot be read.
pub fn memory_bytes(local: &dyn Node) -> u64 {
    let meminfo = local.read_text(Path::new("/proc/meminfo")).unwrap_or_default();
    let kib = field(&meminfo, "MemTotal").and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The environment as far as it is known before the first guest.
pub fn of(planned: &Planned, local: &dyn Node) -> Environment {
    let read = |path: &str| local.read_text(Path::new(path)).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let qemu = crate::qemu::find_qemu(local.reader()).ok().and_then(|qemu| {
        let asked = Exec::new(qemu.to_string_lossy()).args(["--version"]).limit(Duration::from_secs(10));
        let output = local.exec(&asked).ok().filter(vmio_node::Output::ok)?;
        output.out().lines().next().map(str::to_owned)
    });
    Environment {
        vmio: env!("CARGO_PKG_VERSION").into(),
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        guest_kernel: None,
        cpu: cpu(local),
        cpus: cpuinfo.lines().filter(|l| l.starts_with("processor")).count() as u32,
        memory_bytes: memory_bytes(local),
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
        node: std::env::var(crate::lab::NODE_VARIABLE).ok().filter(|n| !n.is_empty()),
        written_beside_bytes: 0,
    }
}
