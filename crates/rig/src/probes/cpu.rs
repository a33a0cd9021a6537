//! CPU seconds of the host and of QEMU by thread role.
//!
//! The host's are from `/proc/stat`, in ticks of 10 ms. QEMU's are from `schedstat` of each known
//! thread, or from its `stat` where the kernel has no schedstat, or one that does not count. Worker threads come and go within a cell, so they are not read one by one: they
//! are the process's total (which keeps the time of threads that have ended) less all others.
//! A process that serves the disk has the role `server`, all of its threads together.

use std::path::PathBuf;

use vmio_node::FileSample;
use vmio_node::linux::process::{self, Schedstat, Stat};
use vmio_node::linux::system::CpuTimes;

use super::{Observed, Probe, Qemu, Subject};

/// Entry of the list of probes.
pub struct Cpu;

impl Probe for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }
    fn about(&self) -> &'static str {
        "CPU seconds of the host, and of QEMU by vcpu, iothread, main and worker threads, and of a storage server; work that the kernel does in its own threads is in the host's figure only"
    }
    fn paths(&self, subject: &Subject) -> Vec<PathBuf> {
        let mut paths = vec![PathBuf::from("/proc/stat")];
        if let Some(Qemu { pid, roles, servers }) = &subject.qemu {
            paths.push(process::file(pid, "stat"));
            for tid in roles.keys() {
                paths.push(process::task_file(*pid, *tid, "schedstat"));
                paths.push(process::task_file(*pid, *tid, "stat"));
            }
            paths.extend(servers.iter().map(|server| process::file(server, "stat")));
        }
        paths
    }
    fn observe(&self, subject: &Subject, ticks: &[FileSample], into: &mut Observed) {
        let [first, .., last] = ticks else {
            into.notes.push("cpu: fewer than two readings".into());
            return;
        };
        let delta = |i: usize, parse: fn(&str) -> Option<f64>| {
            let of = |tick: &FileSample| parse(&String::from_utf8_lossy(tick.contents.get(i)?));
            Some((of(last)? - of(first)?).max(0.0))
        };
        match (delta(0, host_busy), delta(0, host_steal)) {
            (Some(busy), Some(steal)) => (into.cpu.host_seconds, into.steal_seconds) = (busy, steal),
            _ => into.notes.push("cpu: /proc/stat could not be read".into()),
        }
        let Some(qemu) = &subject.qemu else { return };
        let Some(total) = delta(1, process_stat) else {
            into.notes.push(format!("cpu: QEMU (process {}) ended during the cell", qemu.pid));
            return;
        };
        let mut known = 0.0;
        for (i, (tid, role)) in qemu.roles.iter().enumerate() {
            match delta(2 + 2 * i, schedstat).or_else(|| delta(3 + 2 * i, process_stat)) {
                Some(seconds) => {
                    known += seconds;
                    *into.cpu.by_role.entry(role.clone()).or_default() += seconds;
                }
                None => into.notes.push(format!("cpu: {role} thread {tid} of QEMU ended during the cell")),
            }
        }
        *into.cpu.by_role.entry("worker".into()).or_default() += (total - known).max(0.0);
        for (i, server) in qemu.servers.iter().enumerate() {
            match delta(2 + 2 * qemu.roles.len() + i, process_stat) {
                Some(seconds) => *into.cpu.by_role.entry("server".into()).or_default() += seconds,
                None => into.notes.push(format!("cpu: the storage server (process {server}) ended during the cell")),
            }
        }
    }
}

/// Seconds that all processors worked.
fn host_busy(text: &str) -> Option<f64> {
    CpuTimes::parse(text).map(|times| times.busy_seconds)
}

fn host_steal(text: &str) -> Option<f64> {
    CpuTimes::parse(text).map(|times| times.stolen_seconds)
}

/// Seconds of a `stat` of a process or thread.
fn process_stat(text: &str) -> Option<f64> {
    Stat::parse(text)?.run_seconds()
}

/// Seconds on a CPU; `None` where the kernel does not count them.
fn schedstat(text: &str) -> Option<f64> {
    Schedstat::parse(text).filter(Schedstat::counts).map(|s| s.run_ns as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use super::*;

    fn stat(name: &str, utime: u32, stime: u32) -> String {
        format!("77 ({name}) S 1 77 77 0 -1 4194304 300 0 0 0 {utime} {stime} 0 0 20 0 5 0 100 1000 200\n")
    }

    fn tick(seconds: f64, contents: Vec<String>) -> FileSample {
        FileSample { seconds, contents: contents.into_iter().map(String::into_bytes).collect() }
    }

    fn subject() -> Subject {
        let roles = [(77, "main".to_owned()), (78, "vcpu".to_owned())].into();
        Subject { backing: None, qemu: Some(Qemu { pid: 77, roles, servers: Vec::new() }) }
    }

    #[test]
    fn roles_and_workers() {
        let host = |user: u32| format!("cpu  {user} 0 50 900 7 3 2 11 0 0\ncpu0 1 2 3\n");
        let first = tick(
            0.0,
            vec![
                host(100),
                stat("qemu) S (x", 100, 50),
                "1000000000 1 1\n".into(),
                stat("q", 0, 0),
                String::new(),
                stat("CPU 0/TCG", 10, 0),
            ],
        );
        let last = tick(
            2.0,
            vec![
                host(280),
                stat("qemu) S (x", 250, 60),
                "1250000000 1 1\n".into(),
                stat("q", 0, 0),
                String::new(),
                stat("CPU 0/TCG", 100, 10),
            ],
        );
        let mut seen = Observed::default();
        Cpu.observe(&subject(), &[first, last], &mut seen);
        assert!((seen.cpu.host_seconds - 1.8).abs() < 1e-9);
        assert!((seen.cpu.by_role["main"] - 0.25).abs() < 1e-9, "nanoseconds of schedstat");
        assert!((seen.cpu.by_role["vcpu"] - 1.0).abs() < 1e-9, "ticks where there is no schedstat");
        assert!((seen.cpu.by_role["worker"] - (1.6 - 1.25)).abs() < 1e-9, "what is left of the total");
        assert!(seen.notes.is_empty());
        assert_eq!(Cpu.paths(&subject()).len(), 6);
    }

    #[test]
    fn a_storage_server_is_a_role_of_its_own() {
        let subject =
            Subject { backing: None, qemu: Some(Qemu { pid: 77, roles: BTreeMap::new(), servers: vec![90, 91] }) };
        assert_eq!(Cpu.paths(&subject)[2..], ["/proc/90/stat", "/proc/91/stat"].map(PathBuf::from));
        let host = || "cpu  1 0 0 0 0 0 0 0 0 0\n".to_owned();
        let first = tick(0.0, vec![host(), stat("q", 1, 1), stat("qemu-storage-d", 10, 5), stat("s", 1, 1)]);
        let last = tick(1.0, vec![host(), stat("q", 2, 2), stat("qemu-storage-d", 60, 25), String::new()]);
        let mut seen = Observed::default();
        Cpu.observe(&subject, &[first, last], &mut seen);
        assert!((seen.cpu.by_role["server"] - 0.7).abs() < 1e-9, "{:?}", seen.cpu);
        assert!(seen.notes[0].contains("storage server (process 91) ended"), "{:?}", seen.notes);
    }

    /// A kernel without `CONFIG_SCHED_INFO` says `0 0 0` of every thread, which is not that none ran.
    #[test]
    fn a_schedstat_that_does_not_count_is_none() {
        let host = || "cpu  1 0 0 0 0 0 0 0 0 0\n".to_owned();
        let off = || "0 0 0\n".to_owned();
        let at = |ticks: u32| {
            vec![host(), stat("q", 2 * ticks, 0), off(), stat("q", ticks, 0), off(), stat("CPU 0/KVM", ticks, 0)]
        };
        let mut seen = Observed::default();
        Cpu.observe(&subject(), &[tick(0.0, at(0)), tick(1.0, at(100))], &mut seen);
        assert!((seen.cpu.by_role["vcpu"] - 1.0).abs() < 1e-9, "{:?}", seen.cpu);
        assert!(seen.cpu.by_role["worker"].abs() < 1e-9, "{:?}", seen.cpu);
    }

    #[test]
    fn a_qemu_that_ends_is_noted() {
        let host = "cpu  1 0 0 0 0 0 0 0 0 0\n".to_owned();
        let first = tick(0.0, vec![host.clone(), stat("q", 1, 1)]);
        let last = tick(1.0, vec![host, String::new()]);
        let mut seen = Observed::default();
        Cpu.observe(&subject(), &[first, last], &mut seen);
        assert!(seen.notes[0].contains("ended") && seen.cpu.by_role.is_empty());
    }
}
