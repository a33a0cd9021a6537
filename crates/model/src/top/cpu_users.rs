//! Users of processors besides guests: processes by their times (`/proc/PID/stat`, proc_pid_stat(5)), added up by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Times of a process at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessCounters {
    /// Its short name.
    pub comm: String,
    /// Its start, in ticks since boot: a reused pid is another process.
    pub began: u64,
    /// Its CPU seconds.
    pub run_seconds: f64,
    /// Whether it is a kernel thread.
    pub kernel: bool,
}

/// All processes by pid.
pub type Processes = BTreeMap<u32, ProcessCounters>;

/// CPU time of the processes of one name in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessLoad {
    /// Their short name.
    pub name: String,
    /// Pid of the busiest one.
    pub pid: u32,
    /// Their number.
    pub processes: u32,
    /// Their CPU seconds.
    pub run_seconds: f64,
    /// Whether they are kernel threads.
    pub kernel: bool,
    /// Length of the time that `run_seconds` was estimated from, where that is not the interval alone.
    #[serde(default)]
    pub since_seconds: Option<f64>,
}

impl ProcessLoad {
    /// `stress-ng (pid 812)`, `cc1 (8 processes, pid 812 the busiest)`.
    pub fn label(&self) -> String {
        let what = if self.kernel { "kernel thread" } else { "process" };
        let since = self.since_seconds.map_or(String::new(), |s| format!(", by the last {s:.0} s"));
        match self.processes {
            0 | 1 => format!("{what} {} (pid {}{since})", self.name, self.pid),
            n if self.kernel => format!("{n} kernel threads {} (busiest: pid {}{since})", self.name, self.pid),
            n => format!("{n} processes {} (busiest: pid {}{since})", self.name, self.pid),
        }
    }
}

/// CPU time of each process between two moments; one that was absent before began in between.
pub fn ran(before: &Processes, now: &Processes) -> Vec<ProcessLoad> {
    let load = |(pid, p): (&u32, &ProcessCounters)| {
        let old = before.get(pid).filter(|old| old.began == p.began).map_or(0.0, |old| old.run_seconds);
        let run_seconds = p.run_seconds - old;
        let name = super::words::clean(&p.comm);
        (run_seconds > 0.0).then_some(ProcessLoad {
            name,
            pid: *pid,
            processes: 1,
            run_seconds,
            kernel: p.kernel,
            since_seconds: None,
        })
    };
    now.iter().filter_map(load).collect()
}

/// The processes of an interval at whose beginning they were not read, by their work since an earlier moment,
/// `since_seconds` ago: together at most `rest_seconds`, what others do not explain.
pub fn estimated(mut since: Vec<ProcessLoad>, since_seconds: f64, rest_seconds: f64) -> Vec<ProcessLoad> {
    let all: f64 = since.iter().map(|p| p.run_seconds).sum();
    let part = if all > rest_seconds { rest_seconds.max(0.0) / all } else { 1.0 };
    for process in &mut since {
        process.run_seconds *= part;
        process.since_seconds = Some(since_seconds);
    }
    since
}

/// Processes added up by name, the busiest first. The name of a kernel worker contains its number and its current work,
/// which is the part that counts.
pub fn grouped(all: Vec<ProcessLoad>) -> Vec<ProcessLoad> {
    let mut groups: BTreeMap<(bool, String), (ProcessLoad, f64)> = BTreeMap::new();
    for one in all {
        let name = if one.kernel { kind(&one.name) } else { one.name.clone() };
        match groups.get_mut(&(one.kernel, name.clone())) {
            None => {
                drop(groups.insert((one.kernel, name.clone()), (ProcessLoad { name, ..one.clone() }, one.run_seconds)))
            }
            Some((sum, most)) => {
                sum.processes += one.processes;
                sum.run_seconds += one.run_seconds;
                if one.run_seconds > *most {
                    (sum.pid, *most) = (one.pid, one.run_seconds);
                }
            }
        }
    }
    let mut all: Vec<ProcessLoad> = groups.into_values().map(|(sum, _)| sum).collect();
    all.sort_by(|a, b| b.run_seconds.total_cmp(&a.run_seconds));
    all
}

/// `kworker` of `kworker/3:1H-kblockd`, `ksoftirqd` of `ksoftirqd/3`.
fn kind(name: &str) -> String {
    name.split('/').next().unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(comm: &str, began: u64, run_seconds: f64) -> ProcessCounters {
        ProcessCounters { comm: comm.into(), began, run_seconds, kernel: comm.starts_with('k') }
    }

    #[test]
    fn processes_of_a_name_are_one_and_a_number_used_again_is_another() {
        let before =
            Processes::from([(1, process("cc1", 5, 1.0)), (2, process("old", 5, 9.0)), (9, process("idle", 1, 3.0))]);
        let now = Processes::from([
            (1, process("cc1", 5, 1.25)),
            (2, process("new\u{1b}", 70, 0.5)),
            (3, process("cc1", 80, 1.0)),
            (4, process("kworker/0:1", 1, 0.2)),
            (5, process("kworker/1:1-x", 1, 0.1)),
            (9, process("idle", 1, 3.0)),
        ]);
        let found = grouped(ran(&before, &now));
        let said: Vec<(String, f64)> =
            found.iter().map(|p| (p.label(), (p.run_seconds * 100.0).round() / 100.0)).collect();
        assert_eq!(
            said,
            [
                ("2 processes cc1 (busiest: pid 3)".to_owned(), 1.25),
                ("process new? (pid 2)".to_owned(), 0.5),
                ("2 kernel threads kworker (busiest: pid 4)".to_owned(), 0.3)
            ]
        );
    }
}
