//! Limits of a container's control group: I/O (`io.max`; in version 1 `blkio.throttle.*_device`) and memory. Linux
//! Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/blkio-controller.rst, memory.rst.

use crate::kinds::process::Process;
use crate::kinds::quota::group;

/// Memory limit in bytes; `None` without one.
pub fn memory_bytes(process: &Process<'_>) -> Option<u64> {
    group(process, "memory")?.memory_limit_bytes(process.reader()).map(|(bytes, _)| bytes)
}

/// I/O limits in words.
pub fn io(process: &Process<'_>) -> Vec<String> {
    let Some(group) = group(process, "blkio") else { return Vec::new() };
    let read = |file: &str| group.text(process.reader(), file);
    let mut limits = Vec::new();
    if group.v2 {
        for line in read("io.max").lines() {
            let mut words = line.split(' ');
            let device = words.next().unwrap_or_default();
            for (key, value) in words.filter_map(|w| w.split_once('=')) {
                let unit = match key {
                    "rbps" => "bytes/s of reads",
                    "wbps" => "bytes/s of writes",
                    "riops" => "IOPS of reads",
                    "wiops" => "IOPS of writes",
                    _ => continue,
                };
                if value != "max" {
                    limits.push(format!("{value} {unit} on {device} by its control group (io.max)"));
                }
            }
        }
        return limits;
    }
    const FILES: [(&str, &str); 4] = [
        ("blkio.throttle.read_bps_device", "bytes/s of reads"),
        ("blkio.throttle.write_bps_device", "bytes/s of writes"),
        ("blkio.throttle.read_iops_device", "IOPS of reads"),
        ("blkio.throttle.write_iops_device", "IOPS of writes"),
    ];
    for (file, unit) in FILES {
        for (device, value) in read(file).lines().filter_map(|l| l.split_once(' ')) {
            limits.push(format!("{value} {unit} on {device} by its control group ({file})"));
        }
    }
    limits
}
