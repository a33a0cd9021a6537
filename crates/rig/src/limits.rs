//! The control group of a native side: it gets the cores and the memory that its guest has,
//! so that a native run cannot hide in the host's page cache (page cache is charged to the
//! group that reads it in, and is reclaimed at the group's limit). Version 1 or 2 of control
//! groups, whichever the host has (kernel documents admin-guide/cgroup-v1/cpusets.rst,
//! cgroup-v1/memory.rst, cgroup-v2.rst). Where it cannot be had
//! the reason is returned, and the result says so.
//!
//! Nothing of the host's is changed: a version 2 controller that the root group has not
//! enabled for its children is not enabled for them, but named as missing.

use std::io;
use std::path::{Path, PathBuf};

use vmio_node::linux::cgroup::Hierarchies;
use vmio_node::linux::process::Status;
use vmio_node::linux::{cpu, system};
use vmio_node::{Change, ChangeId, Journal, Local, Node, Reader};

use vmio_look::require::Fix;

/// `oom_score_adj` of every process that vmio starts: the out-of-memory killer takes these first.
pub const OOM_SCORE_ADJ: i32 = 1000;

/// Period of a version 2 CPU quota in microseconds.
const PERIOD_US: u64 = 100_000;

/// A control group of our own.
#[derive(Debug)]
pub struct Limits {
    groups: Groups,
    described: String,
    change: ChangeId,
}

/// What a group holds its processes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// CPUs.
    pub cores: u32,
    /// Bytes of memory; there is no swap.
    pub memory_bytes: u64,
    /// The CPUs to take them from; empty: all that vmio may use.
    pub pins: Vec<u32>,
    /// The CPUs of others that work at the same time, each as often as it is used: these come last. Where there are not
    /// enough for all, they share.
    pub taken: Vec<u32>,
}

impl Share {
    /// Of any CPUs, with nobody else at work.
    pub fn of(cores: u32, memory_bytes: u64) -> Self {
        Self { cores, memory_bytes, ..Self::default() }
    }
}

/// Why a side cannot be held to its share here, as far as that is seen by looking.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Unheld {
    #[error("no control groups are mounted on this machine")]
    NoGroups,
    #[error(
        "control groups v2 do not give the memory and cpu controllers to children of the root group \
         (cgroup.subtree_control); systemd enables them with MemoryAccounting=yes and CPUAccounting=yes"
    )]
    NotEnabled,
    #[error(
        "control groups v2 do not give the cpuset controller to children of the root group (cgroup.subtree_control), \
         and processors are chosen with it; systemd enables it with AllowedCPUs="
    )]
    NoCpuset,
    #[error("control groups v1 lack {0}")]
    Lacks(&'static str),
    #[error("0 cores are requested: each side needs one")]
    NoCores,
    #[error("{cores} cores are asked for and vmio may use {usable} here; use fewer")]
    TooManyCores { cores: usize, usable: usize },
    #[error("processor {pin} is asked for and vmio may use {} here", listed(usable))]
    Processor { pin: u32, usable: Vec<u32> },
    #[error("{0:?} is not a list of CPUs")]
    NoList(String),
    /// A file cannot be read: what the node said.
    #[error("{0}")]
    Unreadable(String),
}

impl From<vmio_node::Error> for Unheld {
    fn from(error: vmio_node::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// Why a side has no control group.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum Error {
    #[error(transparent)]
    Unheld(#[from] Unheld),
    #[error("the control group {} already exists; stop what uses it", .0.display())]
    Exists(PathBuf),
    #[error("cannot make the control group {}: {source}; {mend}", dir.display())]
    Make { dir: PathBuf, source: io::Error, mend: String },
    #[error("{source} (value {value:?})")]
    Put { value: String, source: vmio_node::Error },
    /// What was made cannot be taken away either.
    #[error("{why}; {undo}")]
    Left { why: Box<Error>, undo: vmio_node::Error },
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
}

/// Directories of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Groups {
    /// One for each controller.
    V1 { cpuset: PathBuf, memory: PathBuf },
    /// One for all; whether it has cpuset (else a CPU quota).
    V2 { group: PathBuf, cpuset: bool },
}

impl Groups {
    fn dirs(&self) -> Vec<PathBuf> {
        match self {
            Self::V1 { cpuset, memory } => vec![cpuset.clone(), memory.clone()],
            Self::V2 { group, .. } => vec![group.clone()],
        }
    }

    /// The list of CPUs that there are to choose from; `None` where none are chosen.
    fn cpus(&self, reader: &dyn Reader) -> Option<vmio_node::Result<String>> {
        let (group, file) = match self {
            Self::V1 { cpuset, .. } => (cpuset, "cpuset.cpus"),
            Self::V2 { group, cpuset: true } => (group, "cpuset.cpus.effective"),
            Self::V2 { .. } => return None,
        };
        let root = group.parent().unwrap_or(Path::new("/"));
        Some(reader.read_text(&root.join(file)))
    }
}

/// A value that goes into a file of a group.
type Setting = (PathBuf, String);

impl Limits {
    /// Makes a group called `name` (unique to the run).
    ///
    /// # Errors
    /// Why the side cannot be held; what was made is taken away again.
    pub fn create(node: &dyn Node, journal: &Journal, name: &str, share: &Share) -> Result<Self, Error> {
        let groups = find(node.reader(), name)?;
        let (settings, described) = plan(node.reader(), &groups, share)?;
        // What is there already is not ours, and must not be undone.
        for dir in groups.dirs() {
            if node.stat(&dir)?.is_some() {
                return Err(Error::Exists(dir));
            }
        }
        let ((), change) = journal.make(Change::Cgroup { paths: groups.dirs() }, || make_all(&groups.dirs()))??;
        if let Err(why) = settings.iter().try_for_each(|s| put(node, s)) {
            return Err(match journal.undo(change) {
                Ok(()) => why,
                Err(undo) => Error::Left { why: Box::new(why), undo },
            });
        }
        Ok(Self { groups, described, change })
    }

    /// Files for [`vmio_node::Exec::cgroup_procs`].
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.groups.dirs().iter().map(|dir| dir.join("cgroup.procs")).collect()
    }

    /// `cgroup v1: cpuset 1, memory 256 MiB, no swap`.
    pub fn describe(&self) -> &str {
        &self.described
    }

    /// Takes the group away.
    ///
    /// # Errors
    /// When it is still in use.
    pub fn remove(self, journal: &Journal) -> Result<(), vmio_node::Error> {
        journal.undo(self.change)
    }
}

/// How a side would be held, in the words of [`Limits::describe`]. Only looks.
///
/// # Errors
/// Why it cannot be.
pub fn forecast(reader: &dyn Reader, share: &Share) -> Result<String, Unheld> {
    let groups = find(reader, "vmio")?;
    Ok(plan(reader, &groups, share)?.1)
}

/// The CPUs that a side would be held to; none where it is held to a quota of all of them, or cannot be held. Only looks.
pub fn chosen(reader: &dyn Reader, share: &Share) -> Vec<u32> {
    let list = match find(reader, "vmio") {
        Ok(groups) => groups.cpus(reader),
        Err(_) => None,
    };
    list.and_then(|list| cpus_of(reader, &list.ok()?, share).ok()).unwrap_or_default()
}

/// Whether a side can be held to these processors; none are always held. Only looks.
///
/// # Errors
/// Why it cannot be.
pub fn can_pin(reader: &dyn Reader, pins: &[u32]) -> Result<(), Unheld> {
    if pins.is_empty() {
        return Ok(());
    }
    forecast(reader, &Share { pins: pins.to_vec(), ..Share::of(1, 0) }).map(drop)
}

/// How many CPUs vmio may use: those that it was started on (taskset(1), systemd's `AllowedCPUs`); `None`
/// where that cannot be read.
pub fn usable_cpus(reader: &dyn Reader) -> Option<u32> {
    Some(own_cpus(reader)?.len() as u32)
}

/// The CPUs that vmio was started on. A control group would take processes beyond them.
pub fn own_cpus(reader: &dyn Reader) -> Option<Vec<u32>> {
    Status::of(reader, "self").ok()?.cpus().filter(|cpus| !cpus.is_empty())
}

/// All of these directories or none.
fn make_all(dirs: &[PathBuf]) -> Result<(), Error> {
    for (at, dir) in dirs.iter().enumerate() {
        if let Err(source) = std::fs::create_dir(dir) {
            for made in &dirs[..at] {
                let _ = std::fs::remove_dir(made);
            }
            let mend = Fix::Root.remedy(&Local::new()).to_string();
            return Err(Error::Make { dir: dir.clone(), source, mend });
        }
    }
    Ok(())
}

fn put(node: &dyn Node, (file, value): &Setting) -> Result<(), Error> {
    node.write(file, value.as_bytes(), None).map_err(|source| Error::Put { value: value.clone(), source })
}

/// Where the group goes: the version of control groups that has memory.
fn find(reader: &dyn Reader, name: &str) -> Result<Groups, Unheld> {
    let hierarchies = Hierarchies::of(reader)?;
    if let Some(mount) = hierarchies.v2() {
        let enabled = reader.read_text(&mount.point.join("cgroup.subtree_control")).unwrap_or_default();
        let has = |controller: &str| enabled.split_ascii_whitespace().any(|c| c == controller);
        if has("memory") && (has("cpuset") || has("cpu")) {
            return Ok(Groups::V2 { cpuset: has("cpuset"), group: mount.point.join(name) });
        }
    }
    let v1 = |controller: &str| hierarchies.v1(controller).map(|mount| mount.point.join(name));
    match (v1("cpuset"), v1("memory")) {
        (Some(cpuset), Some(memory)) => Ok(Groups::V1 { cpuset, memory }),
        (None, None) if hierarchies.v2().is_none() => Err(Unheld::NoGroups),
        (None, None) => Err(Unheld::NotEnabled),
        (cpuset, _) => Err(Unheld::Lacks(if cpuset.is_none() { "cpuset" } else { "memory" })),
    }
}

/// What is written where, in order, and how it is told.
fn plan(reader: &dyn Reader, groups: &Groups, share: &Share) -> Result<(Vec<Setting>, String), Unheld> {
    let (cores, memory, mib) = (share.cores, share.memory_bytes, share.memory_bytes >> 20);
    if cores == 0 {
        return Err(Unheld::NoCores);
    }
    let cpus = groups.cpus(reader).transpose()?.map(|list| cpus_of(reader, &list, share)).transpose()?;
    let cpus = cpus.map(|cpus| listed(&cpus));
    match groups {
        Groups::V1 { cpuset, memory: group } => {
            let root = cpuset.parent().unwrap_or(Path::new("/"));
            let mems = reader.read_text(&root.join("cpuset.mems"))?;
            let cpus = cpus.unwrap_or_default();
            // Both must be set before a process can enter.
            let mut settings = vec![
                (cpuset.join("cpuset.cpus"), cpus.clone()),
                (cpuset.join("cpuset.mems"), mems.trim().to_owned()),
                (group.join("memory.limit_in_bytes"), memory.to_string()),
            ];
            // Memory and swap together may use no more than memory alone: no swap.
            let memsw = group.parent().unwrap_or(Path::new("/")).join("memory.memsw.limit_in_bytes");
            let counted = matches!(reader.stat(&memsw), Ok(Some(_)));
            if counted {
                settings.push((group.join("memory.memsw.limit_in_bytes"), memory.to_string()));
            }
            let swap = if counted || !swap_in_use(reader) {
                "no swap"
            } else {
                "swap not limited (the kernel does not account it)"
            };
            Ok((settings, format!("cgroup v1: cpuset {cpus}, memory {mib} MiB, {swap}")))
        }
        Groups::V2 { group, .. } => {
            let mut settings = vec![(group.join("memory.max"), memory.to_string())];
            let cpu = if let Some(cpus) = cpus {
                settings.push((group.join("cpuset.cpus"), cpus.clone()));
                format!("cpuset {cpus}")
            } else if !share.pins.is_empty() {
                return Err(Unheld::NoCpuset);
            } else {
                settings.push((group.join("cpu.max"), format!("{} {PERIOD_US}", u64::from(cores) * PERIOD_US)));
                format!("CPU quota {cores}")
            };
            // Where there is no swap the kernel may have no such file.
            let swap = swap_in_use(reader);
            if swap {
                settings.push((group.join("memory.swap.max"), "0".into()));
            }
            Ok((settings, format!("cgroup v2: {cpu}, memory {mib} MiB, no swap")))
        }
    }
}

fn swap_in_use(reader: &dyn Reader) -> bool {
    !system::swaps_in_use(reader).is_empty()
}

/// The CPUs of a side, of a list such as `0-3,8` those that vmio may use, from the last on: the first ones take most
/// interrupts; those of others last of all.
fn cpus_of(reader: &dyn Reader, list: &str, share: &Share) -> Result<Vec<u32>, Unheld> {
    let mut cpus = cpu::list(list).ok_or_else(|| Unheld::NoList(list.to_owned()))?;
    if let Some(own) = own_cpus(reader) {
        cpus.retain(|cpu| own.contains(cpu));
    }
    let Share { pins, taken, .. } = share;
    if let Some(&pin) = pins.iter().find(|pin| !cpus.contains(pin)) {
        return Err(Unheld::Processor { pin, usable: cpus });
    }
    let mut cores = share.cores as usize;
    if !pins.is_empty() {
        cpus.retain(|cpu| pins.contains(cpu));
        // More CPUs than it may run on help a guest no further either.
        cores = cores.min(cpus.len());
    }
    if cpus.len() < cores {
        return Err(Unheld::TooManyCores { cores, usable: cpus.len() });
    }
    cpus.reverse();
    cpus.sort_by_key(|cpu| taken.iter().filter(|other| *other == cpu).count());
    let mut chosen: Vec<u32> = cpus.into_iter().take(cores).collect();
    chosen.sort_unstable();
    Ok(chosen)
}

fn listed(cpus: &[u32]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    cpus.join(",")
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
