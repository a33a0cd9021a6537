//! Whose a sampled process is, and in which role it works: the roles are those of the probe `cpu`, so that both divide
//! the same time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vmio_model::result::roles::{AGENT, KERNEL, PROGRAM, SERVER, VMIO};
use vmio_node::Reader;
use vmio_node::linux::process::{self, Stat};

use super::super::others::Whose;
use crate::guests::{Hypervisor, Processes};

/// Threads of a hypervisor that have no role of their own.
const WORKER: &str = "worker";

/// Processes whose owner is kept.
const MOST_PROCESSES: usize = 1 << 16;
/// Ancestors of a process that are looked at.
const MOST_ANCESTORS: usize = 128;

/// The processes whose work is told by component.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workers {
    /// The process that, with all below it, is vmio's own.
    of: u32,
    /// Roles of processes,
    processes: BTreeMap<u32, &'static str>,
    /// and of threads, which go before.
    threads: BTreeMap<u32, String>,
    /// Those that run guests.
    hypervisors: BTreeSet<u32>,
}

impl Workers {
    /// All below this process.
    pub fn of(pid: u32) -> Self {
        Self { of: pid, processes: [(pid, VMIO)].into(), ..Self::default() }
    }

    /// The process above all.
    pub fn root(&self) -> u32 {
        self.of
    }

    /// The same with a hypervisor, and with what serves its guest's disks.
    #[must_use]
    pub fn with_hypervisor(mut self, hypervisor: &Hypervisor) -> Self {
        self.processes.insert(hypervisor.pid, WORKER);
        self.processes.extend(hypervisor.servers.iter().map(|server| (*server, SERVER)));
        self.threads.extend(hypervisor.roles.clone());
        self.hypervisors.insert(hypervisor.pid);
        self
    }

    /// The same with a container.
    #[must_use]
    pub fn with_container(mut self, own: Processes) -> Self {
        self.processes.extend([own.first, own.agent].map(|pid| (pid, AGENT)));
        self
    }

    /// Whether both are below the same process.
    pub fn are_those_of(&self, other: &Self) -> bool {
        self.of == other.of
    }

    /// Adds what others know of them.
    pub fn join(&mut self, other: Self) {
        self.processes.extend(other.processes);
        self.threads.extend(other.threads);
        self.hypervisors.extend(other.hypervisors);
    }

    /// Whether a process runs a guest.
    pub fn is_hypervisor(&self, process: u32) -> bool {
        self.hypervisors.contains(&process)
    }

    /// The role of a thread of vmio's own, or of the kernel's.
    pub(super) fn role(&self, whose: Whose, process: u32, thread: u32) -> &str {
        let own = if whose == Whose::Kernel { KERNEL } else { PROGRAM };
        self.threads.get(&thread).map_or_else(|| self.processes.get(&process).copied().unwrap_or(own), String::as_str)
    }
}

/// Whose the processes are that were sampled.
#[derive(Debug, Default)]
pub struct Owners {
    known: HashMap<u32, Whose>,
}

impl Owners {
    /// A process was begun; the number may have been another's.
    pub fn born(&mut self, reader: &dyn Reader, workers: &Workers, process: u32, parent: u32) {
        self.known.remove(&process);
        let is_ours = self.whose(reader, workers, parent) == Whose::Ours;
        // Beyond that it is looked at like any other, if it still runs then.
        if is_ours && self.known.len() < MOST_PROCESSES {
            self.known.insert(process, Whose::Ours);
        }
    }

    /// Whose a process is. One that ended before it was looked at is taken for another's.
    pub(super) fn whose(&mut self, reader: &dyn Reader, workers: &Workers, process: u32) -> Whose {
        if let Some(known) = self.known.get(&process) {
            return *known;
        }
        if self.known.len() >= MOST_PROCESSES {
            self.known.clear();
        }
        let found = self.look(reader, workers, process);
        self.known.insert(process, found);
        found
    }

    fn look(&self, reader: &dyn Reader, workers: &Workers, process: u32) -> Whose {
        let mut at = process;
        for _ in 0..MOST_ANCESTORS {
            if at == workers.of || workers.processes.contains_key(&at) {
                return Whose::Ours;
            }
            if let Some(known) = self.known.get(&at) {
                return *known;
            }
            let Ok(text) = reader.read_text(&process::file(at, "stat")) else { break };
            match Stat::parse(&text) {
                Some(stat) if stat.is_of_kernel() => return Whose::Kernel,
                Some(stat) => match stat.parent() {
                    Some(parent) if parent > 1 => at = parent,
                    _ => break,
                },
                None => break,
            }
        }
        Whose::Others
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::result::roles;
    use vmio_node::Fake;

    use super::*;

    fn stat(pid: u32, parent: u32, flags: u32) -> String {
        format!("{pid} (a) b) S {parent} 1 1 0 -1 {flags} 0 0 0 0 1 0 0 0 20 0 1 0 5 0 0\n")
    }

    fn machine() -> Fake {
        let all = [(2, 0, 0x0020_0000), (40, 1, 0), (50, 40, 0), (51, 50, 0), (52, 51, 0), (60, 40, 0)];
        let file = |fake: Fake, (pid, parent, flags)| fake.file(process::file(pid, "stat"), stat(pid, parent, flags));
        all.into_iter().fold(Fake::new("fake"), file)
    }

    #[test]
    fn what_is_below_vmio_is_its_own() {
        let (fake, workers, mut owners) = (machine(), Workers::of(50), Owners::default());
        let mut of = |pid| owners.whose(&fake, &workers, pid);
        let (ours, others) = (Whose::Ours, Whose::Others);
        assert_eq!([50, 51, 52, 60, 40, 99, 2].map(&mut of), [ours, ours, ours, others, others, others, Whose::Kernel]);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let (fake, workers, mut owners) = (machine(), Workers::of(50), Owners::default());
        assert_eq!(owners.whose(&fake, &workers, 51), Whose::Ours);
        owners.born(&fake, &workers, 70, 51);
        assert_eq!(owners.whose(&fake, &workers, 70), Whose::Ours, "it has ended, and its parent is known");
        owners.born(&fake, &workers, 70, 60);
        assert_eq!(owners.whose(&fake, &workers, 70), Whose::Others);
    }

    #[test]
    fn owners_are_bounded() {
        let (fake, workers, mut owners) = (machine(), Workers::of(50), Owners::default());
        for process in 0..2 * MOST_PROCESSES as u32 {
            owners.born(&fake, &workers, 100 + process, 51);
        }
        assert!(owners.known.len() <= MOST_PROCESSES);
        assert_eq!(owners.whose(&fake, &workers, 100), Whose::Ours, "one of the first");
    }

    #[test]
    fn roles_are_those_of_the_probe_cpu() {
        let roles = [(71, "main".to_owned()), (72, "vcpu".to_owned())].into();
        let qemu = Hypervisor { name: "QEMU", pid: 71, roles, servers: vec![80] };
        let mut workers = Workers::of(50).with_container(Processes { first: 90, agent: 91 });
        workers.join(Workers::of(50).with_hypervisor(&qemu));
        let role = |process, thread| workers.role(Whose::Ours, process, thread).to_owned();
        assert_eq!([role(71, 71), role(71, 72), role(71, 79)], ["main", "vcpu", "worker"]);
        assert_eq!([role(80, 81), role(91, 91), role(50, 55), role(95, 95)], ["server", "agent", "vmio", "program"]);
        assert_eq!(workers.role(Whose::Kernel, 2, 2), "kernel");
        let [main, server, program, kernel] = [role(71, 71), role(80, 81), role(95, 95), "kernel".to_owned()];
        assert_eq!([main, role(71, 79)].map(|role| roles::is_of_hypervisor(&role)), [true; 2]);
        assert_eq!([server, role(91, 91), program, kernel].map(|role| roles::is_of_hypervisor(&role)), [false; 4]);
        assert!(workers.is_hypervisor(71) && !workers.is_hypervisor(80));
    }
}
