//! The control group of a native side: it gets the cores and the memory that its guest has,
//! so that a native run cannot hide in the host's page cache (page cache is charged to the
//! group that reads it in, and is reclaimed at the group's limit). Version 1 or 2 of control
//! groups, whichever the host has (kernel documents admin-guide/cgroup-v1/cpusets.rst,
//! cgroup-v1/memory.rst, cgroup-v2.rst). Where it cannot be had
//! the reason is returned, and the result says so.
//!
//! Nothing of the host's is changed: a version 2 controller that the root group has not
//! enabled for its children is not enabled for them, but named as missing.

use std::path::{Path, PathBuf};

use vmio_node::linux::cgroup::Hierarchies;
use vmio_node::linux::process::Status;
use vmio_node::linux::{cpu, system};
use vmio_node::{Change, ChangeId, Journal, Local, Node, Reader};

use vmio_look::require;

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
    fn cpus(&self, reader: &dyn Reader) -> Option<Result<String, String>> {
        let (group, file) = match self {
            Self::V1 { cpuset, .. } => (cpuset, "cpuset.cpus"),
            Self::V2 { group, cpuset: true } => (group, "cpuset.cpus.effective"),
            Self::V2 { .. } => return None,
        };
        let root = group.parent().unwrap_or(Path::new("/"));
        Some(reader.read_text(&root.join(file)).map_err(|e| e.to_string()))
    }
}

/// A value that goes into a file of a group.
type Setting = (PathBuf, String);

impl Limits {
    /// Makes a group called `name` (unique to the run).
    ///
    /// # Errors
    /// The reason in words why the side cannot be held; what was made is taken away again.
    pub fn create(node: &dyn Node, journal: &Journal, name: &str, share: &Share) -> Result<Self, String> {
        let groups = find(node.reader(), name)?;
        let (settings, described) = plan(node.reader(), &groups, share)?;
        // What is there already is not ours, and must not be undone.
        for dir in groups.dirs() {
            if node.stat(&dir).map_err(|e| e.to_string())?.is_some() {
                return Err(format!("the control group {} already exists; stop what uses it", dir.display()));
            }
        }
        let made = journal.make(Change::Cgroup { paths: groups.dirs() }, || make_all(&groups.dirs()));
        let ((), change) = made.map_err(|e| e.to_string())??;
        if let Err(reason) = settings.iter().try_for_each(|s| put(node, s)) {
            return Err(match journal.undo(change) {
                Ok(()) => reason,
                Err(e) => format!("{reason}; {e}"),
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
/// The reason in words why it cannot be.
pub fn forecast(reader: &dyn Reader, share: &Share) -> Result<String, String> {
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
fn make_all(dirs: &[PathBuf]) -> Result<(), String> {
    for (at, dir) in dirs.iter().enumerate() {
        if let Err(e) = std::fs::create_dir(dir) {
            for made in &dirs[..at] {
                let _ = std::fs::remove_dir(made);
            }
            let mend = require::mend_for(&Local::new(), "run as root");
            return Err(format!("cannot make the control group {}: {e}; {mend}", dir.display()));
        }
    }
    Ok(())
}

fn put(node: &dyn Node, (file, value): &Setting) -> Result<(), String> {
    node.write(file, value.as_bytes(), None).map_err(|e| format!("{e} (value {value:?})"))
}

/// Where the group goes: the version of control groups that has memory.
fn find(reader: &dyn Reader, name: &str) -> Result<Groups, String> {
    let hierarchies = Hierarchies::of(reader).map_err(|e| e.to_string())?;
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
        (None, None) if hierarchies.v2().is_none() => Err("no control groups are mounted on this machine".into()),
        (None, None) => Err("control groups v2 do not give the memory and cpu controllers to children of the root group \
                             (cgroup.subtree_control); systemd enables them with MemoryAccounting=yes and CPUAccounting=yes"
            .into()),
        (cpuset, _) => Err(format!("control groups v1 lack {}", if cpuset.is_none() { "cpuset" } else { "memory" })),
    }
}

/// What is written where, in order, and how it is told.
fn plan(reader: &dyn Reader, groups: &Groups, share: &Share) -> Result<(Vec<Setting>, String), String> {
    let (cores, memory, mib) = (share.cores, share.memory_bytes, share.memory_bytes >> 20);
    if cores == 0 {
        return Err("0 cores are requested: each side needs one".into());
    }
    let cpus = groups.cpus(reader).transpose()?.map(|list| cpus_of(reader, &list, share)).transpose()?;
    let cpus = cpus.map(|cpus| listed(&cpus));
    match groups {
        Groups::V1 { cpuset, memory: group } => {
            let root = cpuset.parent().unwrap_or(Path::new("/"));
            let read = |file: &str| reader.read_text(&root.join(file)).map_err(|e| e.to_string());
            let cpus = cpus.unwrap_or_default();
            // Both must be set before a process can enter.
            let mut settings = vec![
                (cpuset.join("cpuset.cpus"), cpus.clone()),
                (cpuset.join("cpuset.mems"), read("cpuset.mems")?.trim().to_owned()),
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
                return Err("control groups v2 do not give the cpuset controller to children of the root group \
                            (cgroup.subtree_control), and processors are chosen with it; systemd enables it with \
                            AllowedCPUs="
                    .into());
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
fn cpus_of(reader: &dyn Reader, list: &str, share: &Share) -> Result<Vec<u32>, String> {
    let mut cpus = cpu::list(list).ok_or_else(|| format!("{list:?} is not a list of CPUs"))?;
    if let Some(own) = own_cpus(reader) {
        cpus.retain(|cpu| own.contains(cpu));
    }
    let Share { pins, taken, .. } = share;
    if let Some(pin) = pins.iter().find(|pin| !cpus.contains(pin)) {
        return Err(format!("processor {pin} is asked for and vmio may use {} here", listed(&cpus)));
    }
    let mut cores = share.cores as usize;
    if !pins.is_empty() {
        cpus.retain(|cpu| pins.contains(cpu));
        // More CPUs than it may run on help a guest no further either.
        cores = cores.min(cpus.len());
    }
    if cpus.len() < cores {
        return Err(format!("{cores} cores are asked for and vmio may use {} here; use fewer", cpus.len()));
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::Tree;

    const MIB: u64 = 1 << 20;
    const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n31 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,relatime,cpuset\n\
                      31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,relatime,memory\n31 23 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
                      31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,relatime\n";
    const NO_SWAP: (&str, &str) = ("/proc/swaps", "Filename Type Size Used Priority\n");
    const SWAP: (&str, &str) = ("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda3 partition 1 0 -2\n");

    fn v1(swaps: (&str, &str), memsw: bool) -> Tree {
        let mut files = vec![
            ("/proc/self/mountinfo", V1),
            swaps,
            ("/sys/fs/cgroup/unified/cgroup.subtree_control", ""),
            ("/sys/fs/cgroup/cpuset/cpuset.cpus", "0-3,8\n"),
            ("/sys/fs/cgroup/cpuset/cpuset.mems", "0-1\n"),
        ];
        if memsw {
            files.push(("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "1\n"));
        }
        Tree::of(&files)
    }

    fn v2(controllers: &str, swaps: (&str, &str)) -> Tree {
        Tree::of(&[
            ("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            swaps,
            ("/sys/fs/cgroup/cgroup.subtree_control", controllers),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "0-1\n"),
        ])
    }

    fn planned(tree: &Tree, cores: u32) -> Result<(Vec<(String, String)>, String), String> {
        let (settings, described) = plan(tree, &find(tree, "g")?, &Share::of(cores, 256 * MIB))?;
        Ok((settings.into_iter().map(|(p, v)| (p.display().to_string(), v)).collect(), described))
    }

    #[test]
    fn version_1() {
        let (settings, described) = planned(&v1(NO_SWAP, true), 2).unwrap();
        let expected = [
            ("/sys/fs/cgroup/cpuset/g/cpuset.cpus", "3,8"),
            ("/sys/fs/cgroup/cpuset/g/cpuset.mems", "0-1"),
            ("/sys/fs/cgroup/memory/g/memory.limit_in_bytes", "268435456"),
            ("/sys/fs/cgroup/memory/g/memory.memsw.limit_in_bytes", "268435456"),
        ];
        assert_eq!(settings, expected.map(|(p, v)| (p.to_owned(), v.to_owned())));
        assert_eq!(described, "cgroup v1: cpuset 3,8, memory 256 MiB, no swap");
        assert!(planned(&v1(SWAP, false), 1).unwrap().1.contains("swap not limited"), "never silent");
        assert!(planned(&v1(NO_SWAP, false), 1).unwrap().1.contains("no swap"));
    }

    #[test]
    fn version_2_with_cpuset_or_a_quota() {
        let (settings, described) = planned(&v2("cpuset cpu io memory pids", SWAP), 1).unwrap();
        assert_eq!(described, "cgroup v2: cpuset 1, memory 256 MiB, no swap");
        assert!(settings.contains(&("/sys/fs/cgroup/g/memory.swap.max".into(), "0".into())));
        let (settings, described) = planned(&v2("cpu memory pids", NO_SWAP), 2).unwrap();
        assert_eq!(described, "cgroup v2: CPU quota 2, memory 256 MiB, no swap");
        assert!(settings.contains(&("/sys/fs/cgroup/g/cpu.max".into(), "200000 100000".into())));
    }

    #[test]
    fn a_side_stays_on_the_cpus_that_vmio_was_started_on() {
        let taskset = |tree: Tree| tree.file("/proc/self/status", "Name:\tvmio\nCpus_allowed_list:\t0,2\n", (0, 1));
        let (settings, described) = planned(&taskset(v1(NO_SWAP, true)), 2).unwrap();
        assert_eq!(settings[0], ("/sys/fs/cgroup/cpuset/g/cpuset.cpus".to_owned(), "0,2".to_owned()));
        assert_eq!(forecast(&taskset(v1(NO_SWAP, true)), &Share::of(2, 256 * MIB)).unwrap(), described);
        assert_eq!(
            planned(&taskset(v2("cpuset memory", NO_SWAP)), 1).unwrap().1,
            "cgroup v2: cpuset 0, memory 256 MiB, no swap"
        );
        assert_eq!(usable_cpus(&taskset(Tree::default())), Some(2));
        assert_eq!(usable_cpus(&Tree::default()), None);
    }

    #[test]
    fn sides_that_work_at_once_have_processors_of_their_own() {
        let held = |tree: &Tree, share: Share| plan(tree, &find(tree, "g")?, &share).map(|(_, described)| described);
        let one = |taken: &[u32], pins: &[u32]| Share {
            taken: taken.to_vec(),
            pins: pins.to_vec(),
            ..Share::of(1, 256 * MIB)
        };
        let cpus = |share: Share| {
            held(&v1(NO_SWAP, true), share).map(|said| {
                said.trim_start_matches("cgroup v1: cpuset ").trim_end_matches(", memory 256 MiB, no swap").to_owned()
            })
        };
        let all = [0, 1, 2, 3, 8];
        assert_eq!([&[][..], &[8], &[8, 3, 2, 1]].map(|taken| cpus(one(taken, &[])).unwrap()), ["8", "3", "0"]);
        assert_eq!(
            cpus(one(&[&all[..], &[8, 3]].concat(), &[])).unwrap(),
            "2",
            "they share evenly where there are no more"
        );
        assert_eq!(cpus(Share { cores: 2, ..one(&[1, 2, 3, 8], &[]) }).unwrap(), "0,8");
        assert_eq!(cpus(Share { cores: 4, ..one(&[], &[1, 0]) }).unwrap(), "0,1");
        assert_eq!((cpus(one(&[1], &[1, 0])).unwrap(), cpus(one(&[1], &[1])).unwrap()), ("0".into(), "1".into()));
        let tree = v1(NO_SWAP, true);
        assert_eq!(chosen(&tree, &Share { cores: 2, ..one(&[3], &[]) }), [2, 8]);
        assert_eq!(
            (chosen(&v2("cpu memory", NO_SWAP), &one(&[], &[])), chosen(&Tree::default(), &one(&[], &[]))),
            (vec![], vec![])
        );
        assert!(cpus(one(&[], &[4])).unwrap_err().contains("processor 4 is asked for and vmio may use 0,1,2,3,8"));
        let quota = held(&v2("cpu memory", NO_SWAP), one(&[], &[1])).unwrap_err();
        assert!(quota.contains("cpuset"), "{quota}");
    }

    /// Each processor counts once, and a list that is none fills no memory.
    #[test]
    fn lists_of_processors_are_believed_as_far_as_they_are_some() {
        let online = |list: &str| {
            let tree = v2("cpuset memory", NO_SWAP);
            planned(&tree.file("/sys/fs/cgroup/cpuset.cpus.effective", list, (0, 1)), 2)
        };
        assert_eq!(online("0-1,1\n").unwrap().1, "cgroup v2: cpuset 0,1, memory 256 MiB, no swap");
        assert!(online("1,1\n").unwrap_err().contains("may use 1"));
        for none in ["0-4294967295", "0-1,x", "1-0"] {
            assert!(online(none).unwrap_err().contains("is not a list of CPUs"), "{none}");
        }
    }

    #[test]
    fn a_mount_of_groups_may_have_a_blank_in_its_path() {
        let tree = Tree::of(&[
            ("/proc/self/mountinfo", "31 23 0:28 / /my\\040groups rw - cgroup2 cgroup2 rw\n"),
            NO_SWAP,
            ("/my groups/cgroup.subtree_control", "cpu memory\n"),
        ]);
        let (settings, _) = planned(&tree, 1).unwrap();
        assert_eq!(settings[0].0, "/my groups/g/memory.max");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (tree, cores, word) in [
            (v2("pids", NO_SWAP), 1, "subtree_control"),
            (v2("cpu memory", NO_SWAP), 0, "0 cores"),
            (v2("cpuset memory", NO_SWAP), 3, "3 cores"),
            (v1(NO_SWAP, true), 6, "may use 5"),
            (v1(NO_SWAP, true).file("/proc/self/status", "Cpus_allowed_list:\t0-1\n", (0, 1)), 3, "may use 2"),
            (Tree::of(&[("/proc/self/mountinfo", "31 23 0:28 / /proc rw - proc proc rw\n")]), 1, "no control groups"),
            (Tree::of(&[("/proc/self/mountinfo", "31 23 0:28 / /c rw - cgroup c rw,cpuset\n")]), 1, "lack memory"),
        ] {
            match planned(&tree, cores) {
                Err(said) => assert!(said.contains(word), "{said}"),
                // A quota of no cores would stop the side.
                Ok(got) => panic!("{word}: {got:?}"),
            }
        }
    }
}
