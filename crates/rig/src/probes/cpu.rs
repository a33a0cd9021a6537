//! CPU seconds of the host and of hypervisors by thread role.
//!
//! The host's are from `/proc/stat`, in ticks of 10 ms. A hypervisor's are from `schedstat` of each known
//! thread, or from its `stat` where the kernel has no schedstat, or one that does not count. Worker threads come and go within a cell, so they are not read one by one: they
//! are the process's total (which keeps the time of threads that have ended) less all others.
//! A process that serves the disk has the role `server`, all of its threads together.
//!
//! A container has no hypervisor: its own two processes are the role `agent`, and what they started is the role
//! `program`, counted when it has ended (proc_pid_stat(5), `cutime`), as it has when a cell does.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vmio_model::figure::Reading;
use vmio_model::result::{BUSY, ROLE, STOLEN};
use vmio_node::FileSample;
use vmio_node::linux::process::{self, Schedstat, Stat};
use vmio_node::linux::system::CpuTimes;

use super::{ByFiles, Probe, ProbeMethod, ProbeSubject, Unseen, ends};
use crate::guests::Hypervisor;

/// Entry of the list of probes.
pub struct Cpu;

impl Probe for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }
    fn about(&self) -> &'static str {
        "CPU seconds of the host, of QEMU by vcpu, iothread, main and worker threads and of a storage server, and of a container by its agent and the programs in it; work that the kernel does in its own threads is in the host's figure only"
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Processors | ProbeSubject::Hypervisor(..) | ProbeSubject::Container(..))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Files(&Cpu)
    }
}

impl ByFiles for Cpu {
    fn paths(&self, subject: &ProbeSubject) -> Vec<PathBuf> {
        let Hypervisor { pid, roles, servers, .. } = match subject {
            ProbeSubject::Hypervisor(_, hypervisor) => hypervisor,
            ProbeSubject::Container(_, own) => {
                return [own.first, own.agent].map(|pid| process::file(pid, "stat")).into();
            }
            _ => return vec![PathBuf::from("/proc/stat")],
        };
        let mut paths = vec![process::file(pid, "stat")];
        for tid in roles.keys() {
            paths.push(process::task_file(*pid, *tid, "schedstat"));
            paths.push(process::task_file(*pid, *tid, "stat"));
        }
        paths.extend(servers.iter().map(|server| process::file(server, "stat")));
        paths
    }
    fn conclude(
        &self,
        subject: &ProbeSubject,
        ticks: &[FileSample],
        notes: &mut Vec<String>,
    ) -> Result<Vec<Reading>, Unseen> {
        let (first, last) = ends(ticks)?;
        let spent = Spent { first, last };
        match subject {
            ProbeSubject::Hypervisor(_, hypervisor) => threads(hypervisor, &spent, notes),
            ProbeSubject::Container(..) => contained(&spent),
            _ => match (spent.by(0, host_busy), spent.by(0, host_steal)) {
                (Some(busy), Some(stolen)) => Ok(vec![Reading::scalar(BUSY, busy), Reading::scalar(STOLEN, stolen)]),
                _ => Err(Unseen::NoStat),
            },
        }
    }
}

/// What was spent between two ticks.
struct Spent<'a> {
    first: &'a FileSample,
    last: &'a FileSample,
}

impl Spent<'_> {
    /// By the file of this number; `None` where it was not there at both ticks, or does not count.
    fn by(&self, file: usize, seconds: fn(&str) -> Option<f64>) -> Option<f64> {
        let at = |tick: &FileSample| seconds(&String::from_utf8_lossy(tick.contents.get(file)?));
        Some((at(self.last)? - at(self.first)?).max(0.0))
    }
}

/// CPU seconds by role.
fn threads(of: &Hypervisor, spent: &Spent<'_>, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
    let Hypervisor { name, pid, roles, servers } = of;
    let total = spent.by(0, process_stat).ok_or(Unseen::HypervisorEnded { name, pid: *pid })?;
    let mut by_role: BTreeMap<&str, f64> = BTreeMap::new();
    let mut known = 0.0;
    for (i, (tid, role)) in roles.iter().enumerate() {
        match spent.by(1 + 2 * i, schedstat).or_else(|| spent.by(2 + 2 * i, process_stat)) {
            Some(seconds) => {
                known += seconds;
                *by_role.entry(role).or_default() += seconds;
            }
            None => notes.push(format!("cpu: {role} thread {tid} of {name} ended during the cell")),
        }
    }
    *by_role.entry("worker").or_default() += (total - known).max(0.0);
    for (i, server) in servers.iter().enumerate() {
        match spent.by(1 + 2 * roles.len() + i, process_stat) {
            Some(seconds) => *by_role.entry("server").or_default() += seconds,
            None => notes.push(format!("cpu: the storage server (process {server}) ended during the cell")),
        }
    }
    Ok(by_role.into_iter().map(|(role, seconds)| Reading::scalar(BUSY, seconds).with(ROLE, role)).collect())
}

/// CPU seconds by role in a container.
fn contained(spent: &Spent<'_>) -> Result<Vec<Reading>, Unseen> {
    let of = |seconds: fn(&str) -> Option<f64>| Some(spent.by(0, seconds)? + spent.by(1, seconds)?);
    let (agent, program) = of(process_stat).zip(of(reaped)).ok_or(Unseen::ContainerEnded)?;
    let role = |role: &str, seconds| Reading::scalar(BUSY, seconds).with(ROLE, role);
    Ok(vec![role("agent", agent), role("program", program)])
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

/// Seconds of its children that have ended.
fn reaped(text: &str) -> Option<f64> {
    Stat::parse(text)?.reaped_seconds()
}

/// Seconds on a CPU; `None` where the kernel does not count them.
fn schedstat(text: &str) -> Option<f64> {
    Schedstat::parse(text).filter(Schedstat::counts).map(|s| s.run_ns as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::result::{CpuUse, ProbeResult};

    use crate::guests::Processes;

    use super::*;

    fn stat(name: &str, utime: u32, stime: u32) -> String {
        format!("77 ({name}) S 1 77 77 0 -1 4194304 300 0 0 0 {utime} {stime} 0 0 20 0 5 0 100 1000 200\n")
    }

    fn tick(seconds: f64, contents: Vec<String>) -> FileSample {
        FileSample { seconds, contents: contents.into_iter().map(String::into_bytes).collect() }
    }

    fn guest(servers: Vec<u32>, roles: &[(u32, &str)]) -> ProbeSubject {
        let roles = roles.iter().map(|(tid, role)| (*tid, (*role).to_owned())).collect();
        ProbeSubject::Hypervisor("qemu".into(), Hypervisor { name: "QEMU", pid: 77, roles, servers })
    }

    fn qemu() -> ProbeSubject {
        guest(Vec::new(), &[(77, "main"), (78, "vcpu")])
    }

    /// CPU seconds, and what was noted.
    fn seen(subject: &ProbeSubject, first: Vec<String>, last: Vec<String>) -> (Result<CpuUse, Unseen>, Vec<String>) {
        let mut notes = Vec::new();
        let found = Cpu.conclude(subject, &[tick(0.0, first), tick(2.0, last)], &mut notes);
        let cpu = found.map(|figures| CpuUse::of(&[ProbeResult::here(subject.watched(), "cpu", figures)]));
        (cpu, notes)
    }

    #[test]
    fn the_host_is_told_by_its_ticks() {
        let host = |user: u32| vec![format!("cpu  {user} 0 50 900 7 3 2 11 0 0\ncpu0 1 2 3\n")];
        let (cpu, notes) = seen(&ProbeSubject::Processors, host(100), host(280));
        assert!((cpu.unwrap().host_seconds - 1.8).abs() < 1e-9 && notes.is_empty());
        assert_eq!(Cpu.paths(&ProbeSubject::Processors), [PathBuf::from("/proc/stat")]);
    }

    #[test]
    fn roles_and_workers() {
        let first = vec![
            stat("qemu) S (x", 100, 50),
            "1000000000 1 1\n".into(),
            stat("q", 0, 0),
            String::new(),
            stat("CPU 0/TCG", 10, 0),
        ];
        let last = vec![
            stat("qemu) S (x", 250, 60),
            "1250000000 1 1\n".into(),
            stat("q", 0, 0),
            String::new(),
            stat("CPU 0/TCG", 100, 10),
        ];
        let (cpu, notes) = seen(&qemu(), first, last);
        let cpu = cpu.unwrap();
        assert!((cpu.by_role["main"] - 0.25).abs() < 1e-9, "nanoseconds of schedstat");
        assert!((cpu.by_role["vcpu"] - 1.0).abs() < 1e-9, "ticks where there is no schedstat");
        assert!((cpu.by_role["worker"] - (1.6 - 1.25)).abs() < 1e-9, "what is left of the total");
        assert!(notes.is_empty());
        assert_eq!(Cpu.paths(&qemu()).len(), 5);
    }

    #[test]
    fn a_storage_server_is_a_role_of_its_own() {
        let subject = guest(vec![90, 91], &[]);
        assert_eq!(Cpu.paths(&subject)[1..], ["/proc/90/stat", "/proc/91/stat"].map(PathBuf::from));
        let first = vec![stat("q", 1, 1), stat("qemu-storage-d", 10, 5), stat("s", 1, 1)];
        let last = vec![stat("q", 2, 2), stat("qemu-storage-d", 60, 25), String::new()];
        let (cpu, notes) = seen(&subject, first, last);
        let cpu = cpu.unwrap();
        assert!((cpu.by_role["server"] - 0.7).abs() < 1e-9, "{cpu:?}");
        assert!(notes[0].contains("storage server (process 91) ended"), "{notes:?}");
    }

    /// A kernel without `CONFIG_SCHED_INFO` says `0 0 0` of every thread, which is not that none ran.
    #[test]
    fn a_schedstat_that_does_not_count_is_none() {
        let off = || "0 0 0\n".to_owned();
        let at =
            |ticks: u32| vec![stat("q", 2 * ticks, 0), off(), stat("q", ticks, 0), off(), stat("CPU 0/KVM", ticks, 0)];
        let cpu = seen(&qemu(), at(0), at(100)).0.unwrap();
        assert!((cpu.by_role["vcpu"] - 1.0).abs() < 1e-9, "{cpu:?}");
        assert!(cpu.by_role["worker"].abs() < 1e-9, "{cpu:?}");
    }

    #[test]
    fn a_container_is_its_agent_and_what_that_ran() {
        let own = Processes { first: 70, agent: 71 };
        let subject = ProbeSubject::Container("container".into(), own);
        assert_eq!(Cpu.paths(&subject), ["/proc/70/stat", "/proc/71/stat"].map(PathBuf::from));
        let stat = |own: u32, reaped: u32| {
            format!("71 (vmio-agent) S 70 77 77 0 -1 4194304 300 0 0 0 {own} 0 {reaped} 5 20 0 5 0 100 1000 200\n")
        };
        let (cpu, notes) = seen(&subject, vec![stat(1, 0), stat(10, 100)], vec![stat(2, 10), stat(13, 250)]);
        let cpu = cpu.unwrap();
        assert!((cpu.by_role["agent"] - 0.04).abs() < 1e-9 && (cpu.by_role["program"] - 1.6).abs() < 1e-9, "{cpu:?}");
        assert!(notes.is_empty());
        let ended = seen(&subject, vec![stat(1, 0), stat(1, 0)], vec![stat(1, 0), String::new()]).0;
        assert!(matches!(ended, Err(Unseen::ContainerEnded)), "{ended:?}");
    }

    #[test]
    fn a_hypervisor_that_ends_is_told() {
        let ended = seen(&qemu(), vec![stat("q", 1, 1)], vec![String::new()]).0;
        assert_eq!(ended.unwrap_err().to_string(), "QEMU (process 77) ended during the cell");
    }
}
