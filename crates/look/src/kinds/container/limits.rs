//! What a container's control group lets it use: I/O (`io.max`; in version 1
//! `blkio.throttle.*_device`) and memory. Linux Documentation/admin-guide/cgroup-v2.rst and
//! cgroup-v1/blkio-controller.rst, memory.rst.

use std::path::{Path, PathBuf};

use crate::kinds::process::Process;

/// Directory of the process's group with a controller, and whether it is of version 2.
fn group(process: &Process<'_>, controller: &str) -> Option<(PathBuf, bool)> {
    let mounts = process.reader().read_text(Path::new("/proc/self/mounts")).ok()?;
    let groups = process.reader().read_text(&process.path("cgroup")).ok()?;
    let path_of = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            wanted(controllers).then_some(path)
        })
    };
    let mounted = |kind: &str, option: Option<&str>| {
        mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let fits = *fields.get(2)? == kind
                && option.is_none_or(|o| fields[3..].iter().any(|f| f.split(',').any(|x| x == o)));
            fits.then(|| PathBuf::from(fields[1]))
        })
    };
    let below = |root: PathBuf, path: &str| root.join(path.trim_start_matches('/'));
    let first = path_of(&|c| c.split(',').any(|c| c == controller)).zip(mounted("cgroup", Some(controller)));
    match first {
        Some((path, root)) => Some((below(root, path), false)),
        None => Some((below(mounted("cgroup2", None)?, path_of(&str::is_empty)?), true)),
    }
}

/// Memory in bytes that the group may use; `None` without a limit.
pub fn memory_bytes(process: &Process<'_>) -> Option<u64> {
    let (dir, v2) = group(process, "memory")?;
    let text = process.reader().read_text(&dir.join(if v2 { "memory.max" } else { "memory.limit_in_bytes" })).ok()?;
    // In version 1 no limit is a number near the largest one.
    text.trim().parse().ok().filter(|bytes| *bytes < 1 << 60)
}

/// Limits of I/O in words.
pub fn io(process: &Process<'_>) -> Vec<String> {
    let Some((dir, v2)) = group(process, "blkio") else { return Vec::new() };
    let read = |file: &str| process.reader().read_text(&dir.join(file)).unwrap_or_default();
    let mut limits = Vec::new();
    if v2 {
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
