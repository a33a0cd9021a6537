//! Memory of a guest on the host: of its process, of a container by its control group.

use std::collections::BTreeMap;
use std::path::PathBuf;

use vmio_model::facts::Guest;
use vmio_model::top::load::Memory;
use vmio_node::Reader;
use vmio_node::linux::cgroup::{Hierarchies, dir_of};
use vmio_node::linux::process::Status;

/// Where a guest's memory is counted.
pub(super) enum MemorySource {
    /// `status` of this process (proc_pid_status(5)).
    Process(u32),
    /// `memory.current` and `memory.swap.current` of a control group (kernel document admin-guide/cgroup-v2.rst), or
    /// `memory.usage_in_bytes` of version 1 (admin-guide/cgroup-v1/memory.rst).
    Group { used: PathBuf, swapped: Option<PathBuf> },
}

impl MemorySource {
    /// Of a guest in these groups, by controller.
    pub fn of(guest: &Guest, groups: &BTreeMap<String, String>, hierarchies: &Hierarchies) -> Self {
        let group = if guest.shares_kernel() { group(groups, hierarchies) } else { None };
        group.unwrap_or(Self::Process(guest.pid.unwrap_or(0)))
    }

    /// What it has now; `None` where it cannot be read.
    pub fn read(&self, reader: &dyn Reader) -> Option<Memory> {
        let number = |path: &PathBuf| reader.read_text(path).ok()?.trim().parse::<u64>().ok();
        match self {
            Self::Process(pid) => {
                let status = Status::of(reader, pid).ok()?;
                let resident_bytes = status.resident_bytes()?.saturating_add(status.huge_page_bytes().unwrap_or(0));
                Some(Memory { resident_bytes, swapped_bytes: status.swapped_bytes() })
            }
            Self::Group { used, swapped } => {
                Some(Memory { resident_bytes: number(used)?, swapped_bytes: swapped.as_ref().and_then(number) })
            }
        }
    }
}

fn group(groups: &BTreeMap<String, String>, hierarchies: &Hierarchies) -> Option<MemorySource> {
    let own = |controller: &str| groups.get(controller).filter(|path| path.as_str() != "/");
    if let Some(path) = own("memory") {
        let dir = dir_of(hierarchies.v1("memory")?, path)?;
        return Some(MemorySource::Group { used: dir.join("memory.usage_in_bytes"), swapped: None });
    }
    let dir = dir_of(hierarchies.v2()?, own("")?)?;
    Some(MemorySource::Group { used: dir.join("memory.current"), swapped: Some(dir.join("memory.swap.current")) })
}
