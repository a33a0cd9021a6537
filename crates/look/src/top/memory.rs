//! Memory of a guest on the host: of its process, of a container by its control group; the limit of that, and how much
//! of the time its tasks wait for memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vmio_model::facts::Guest;
use vmio_model::top::load::{Memory, MemoryLimit};
use vmio_node::Reader;
use vmio_node::linux::cgroup::{Hierarchies, dir_of};
use vmio_node::linux::process::{self, Status};
use vmio_node::linux::system;

/// Where a guest's memory is counted.
pub(super) struct MemorySource {
    counted: Counted,
    /// Bytes of a limit (`memory.max`; `memory.limit_in_bytes`), and the file with what its group has.
    limit: Option<(u64, PathBuf)>,
    /// The group of version 2 in which nothing but the guest runs.
    own: Option<PathBuf>,
    /// When its pressure was read before, and the microseconds of waiting then.
    stalled: Option<(f64, u64)>,
}

enum Counted {
    /// `status` of this process (proc_pid_status(5)).
    Process(u32),
    /// `memory.current` and `memory.swap.current` of a control group (kernel document admin-guide/cgroup-v2.rst), or
    /// `memory.usage_in_bytes` of version 1 (admin-guide/cgroup-v1/memory.rst).
    Group { used: PathBuf, swapped: Option<PathBuf> },
}

impl MemorySource {
    /// Of a guest in these groups, by controller.
    pub fn of(
        guest: &Guest,
        groups: &BTreeMap<String, String>,
        hierarchies: &Hierarchies,
        reader: &dyn Reader,
    ) -> Self {
        let pid = guest.pid.unwrap_or(0);
        let group = if guest.shares_kernel() { group(groups, hierarchies) } else { None };
        Self {
            counted: group.unwrap_or(Counted::Process(pid)),
            limit: limit(hierarchies, reader, pid),
            own: own(guest, groups, hierarchies, reader),
            stalled: None,
        }
    }

    /// Goes on where an earlier one was.
    pub fn resume(&mut self, old: &Self) {
        self.stalled = old.stalled.filter(|_| self.own == old.own);
    }

    /// What it has now; `None` where it cannot be read.
    pub fn read(&self, reader: &dyn Reader) -> Option<Memory> {
        let number = |path: &PathBuf| reader.read_text(path).ok()?.trim().parse::<u64>().ok();
        let limit = self
            .limit
            .as_ref()
            .and_then(|(limit_bytes, used)| Some(MemoryLimit { used_bytes: number(used)?, limit_bytes: *limit_bytes }));
        match &self.counted {
            Counted::Process(pid) => {
                let status = Status::of(reader, pid).ok()?;
                let resident_bytes = status.resident_bytes()?.saturating_add(status.huge_page_bytes().unwrap_or(0));
                // A process's own count lacks shared memory, which its group has.
                let of_group = self.own.as_ref().and_then(|dir| number(&dir.join("memory.swap.current")));
                Some(Memory { resident_bytes, swapped_bytes: status.swapped_bytes().max(of_group), limit })
            }
            Counted::Group { used, swapped } => {
                let swapped_bytes = swapped.as_ref().and_then(number);
                Some(Memory { resident_bytes: number(used)?, swapped_bytes, limit })
            }
        }
    }

    /// Share of the time since the last call in which some of its tasks waited for memory (`memory.pressure`).
    pub fn stalled_ratio(&mut self, reader: &dyn Reader) -> Option<f64> {
        let text = reader.read_text(&self.own.as_ref()?.join("memory.pressure")).ok()?;
        let now = (reader.clock_seconds().ok()?, system::stalled_us(&text)?);
        let was = self.stalled.replace(now)?;
        let passed = now.0 - was.0;
        (passed > 0.0).then(|| (now.1.saturating_sub(was.1) as f64 * 1e-6 / passed).min(1.0))
    }
}

fn group(groups: &BTreeMap<String, String>, hierarchies: &Hierarchies) -> Option<Counted> {
    let own = |controller: &str| groups.get(controller).filter(|path| path.as_str() != "/");
    if let Some(path) = own("memory") {
        let dir = dir_of(hierarchies.v1("memory")?, path)?;
        return Some(Counted::Group { used: dir.join("memory.usage_in_bytes"), swapped: None });
    }
    let dir = dir_of(hierarchies.v2()?, own("")?)?;
    Some(Counted::Group { used: dir.join("memory.current"), swapped: Some(dir.join("memory.swap.current")) })
}

/// The least limit of the groups of a process.
fn limit(hierarchies: &Hierarchies, reader: &dyn Reader, pid: u32) -> Option<(u64, PathBuf)> {
    let group = hierarchies.group(&reader.read_text(&process::file(pid, "cgroup")).ok()?, "memory")?;
    let (bytes, file) = group.memory_limit_bytes(reader)?;
    Some((bytes, file.with_file_name(if group.v2 { "memory.current" } else { "memory.usage_in_bytes" })))
}

/// The group of version 2 in which nothing but the guest runs: a container's, or one with its hypervisor alone.
/// libvirt's groups of a hypervisor's threads list no processes; the one above them does (kernel document
/// admin-guide/cgroup-v2.rst, "Threads").
fn own(
    guest: &Guest,
    groups: &BTreeMap<String, String>,
    hierarchies: &Hierarchies,
    reader: &dyn Reader,
) -> Option<PathBuf> {
    let mount = hierarchies.v2()?;
    let dir = dir_of(mount, groups.get("")?)?;
    let mut upwards = dir.ancestors().take_while(|dir| *dir != mount.point);
    // One number is short.
    let listed = |dir: &Path| reader.read_start(&dir.join("cgroup.procs"), 64).ok();
    let (dir, all) = upwards.find_map(|dir| Some((dir, listed(dir)?)))?;
    let alone = || guest.pid.is_some_and(|pid| all.trim_ascii() == pid.to_string().as_bytes());
    (guest.shares_kernel() || alone()).then(|| dir.to_owned())
}
