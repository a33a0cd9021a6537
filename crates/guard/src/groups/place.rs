//! Finds the control group of a guest: where its threads are, and whether no other process is in it. A limit on a group
//! holds for all that is in it, so a group that a guest shares with others is not limited.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use vmio_node::linux::cgroup::Hierarchies;
use vmio_node::linux::process::{self, Stat};
use vmio_node::{Reader, held::Identity};

use super::host::{Group, Host};
use super::{GuestInfo, WhyNot};

/// Threads of a process that are looked at.
const MOST_THREADS: usize = 4096;
/// Groups below each other, and in all, that are looked into.
const MOST_DEPTH: usize = 8;
const MOST_GROUPS: usize = 1024;
/// How far up the parents of a process are followed.
const MOST_PARENTS: usize = 16;
/// Names of groups that a manager nests in a guest's own one: libvirt's, a container's payload, what systemd makes in
/// it, LXC's. Weights count among the groups of one level, so the limit belongs to the group above.
const NESTED: [&str; 6] = ["libvirt", "emulator", "payload", "container", "init.scope", "ns"];

/// The control group of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestCgroup {
    /// Its directory.
    pub dir: PathBuf,
    /// Whether it is of version 2.
    pub v2: bool,
    /// Its device and inode.
    pub group: Identity,
}

/// The guest's control group with this controller.
///
/// # Errors
/// When the guest has no group of its own.
pub fn find(
    host: &impl Host,
    hierarchies: &Hierarchies,
    guest: &GuestInfo,
    controller: &'static str,
) -> Result<GuestCgroup, WhyNot> {
    let reader = host.reader();
    let mut dirs = BTreeMap::new();
    for cgroup in cgroups(reader, guest)? {
        let Some(group) = hierarchies.group(&cgroup, controller) else {
            return Err(WhyNot::Unseen(controller));
        };
        dirs.insert(group.dir.clone(), group);
    }
    let Some(any) = dirs.values().next().cloned() else { return Err(WhyNot::NoProcess) };
    let lowest = common(dirs.keys());
    let mut upwards = std::iter::successors(Some(any.clone()), vmio_node::linux::cgroup::Group::parent);
    let Some(mut group) = upwards.find(|g| g.dir == lowest) else {
        return Err(WhyNot::NoneInCommon);
    };
    if group.is_first() {
        return Err(match dirs.len() {
            1 => WhyNot::First,
            n => WhyNot::FirstInCommon(n),
        });
    }
    let opened =
        |dir: &Path| host.open(dir).map_err(|source| WhyNot::Io { path: dir.to_owned(), done: "opened", source });
    let mut held = opened(&group.dir)?;
    alone(reader, &held, guest, &group.dir)?;
    while group.dir.file_name().is_some_and(|name| NESTED.iter().any(|nested| name == *nested)) {
        let Some(above) = group.parent().filter(|above| !above.is_first()) else { break };
        let Ok(wider) = opened(&above.dir) else { break };
        if alone(reader, &wider, guest, &above.dir).is_err() {
            break;
        }
        (group, held) = (above, wider);
    }
    Ok(GuestCgroup { dir: group.dir, v2: group.v2, group: held.identity() })
}

/// The distinct contents of the `cgroup` files of all threads.
fn cgroups(reader: &dyn Reader, guest: &GuestInfo) -> Result<BTreeSet<String>, WhyNot> {
    let mut all = BTreeSet::new();
    for pid in &guest.pids {
        // It may have ended.
        for tid in process::threads(reader, *pid).unwrap_or_default().into_iter().take(MOST_THREADS) {
            if let Ok(text) = reader.read_text(&process::task_file(*pid, tid, "cgroup")) {
                all.insert(text);
            }
        }
    }
    if all.is_empty() { Err(WhyNot::Ended) } else { Ok(all) }
}

/// The longest common prefix of these directories.
pub fn common<'a>(mut dirs: impl Iterator<Item = &'a PathBuf>) -> PathBuf {
    let Some(first) = dirs.next() else { return PathBuf::new() };
    dirs.fold(first.clone(), |common, dir| {
        let same = common.components().zip(dir.components()).take_while(|(a, b)| a == b);
        same.map(|(part, _)| part).collect()
    })
}

/// Checks that only the guest's processes are in a group and below it.
fn alone(reader: &dyn Reader, group: &impl Group, guest: &GuestInfo, dir: &Path) -> Result<(), WhyNot> {
    let mut left = MOST_GROUPS;
    let mut all = BTreeSet::new();
    members(group, MOST_DEPTH, &mut left, &mut all).map_err(|source| WhyNot::Io {
        path: dir.to_owned(),
        done: "looked into",
        source,
    })?;
    let mut own = Own { reader, guest, namespace: None, known: guest.pids.iter().copied().collect() };
    for pid in all {
        if !own.has(pid) {
            let dir = dir.to_owned();
            return Err(match process::comm(reader, pid) {
                Ok(comm) => {
                    WhyNot::Stranger { pid, comm: vmio_model::sanitize::line(comm.trim_end()).into_owned(), dir }
                }
                Err(_) if pid == 0 => WhyNot::UnseenStranger(dir),
                // It has ended since.
                Err(_) => continue,
            });
        }
    }
    Ok(())
}

/// Processes of a group and of those below it.
fn members(group: &impl Group, depth: usize, left: &mut usize, all: &mut BTreeSet<u32>) -> io::Result<()> {
    if depth == 0 || *left == 0 {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too many groups are in it"));
    }
    *left -= 1;
    match group.read("cgroup.procs") {
        Ok(text) => all.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
        // A group of threads, whose processes are the group's above (cgroup-v2.rst, "Threads").
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(e) => return Err(e),
    }
    for name in group.children()? {
        match group.child(&name) {
            Ok(child) => members(&child, depth - 1, left, all)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Decides whether a process belongs to a guest.
struct Own<'a> {
    reader: &'a dyn Reader,
    guest: &'a GuestInfo,
    /// The guest's own PID namespace, where it has one: `Some(None)` for none.
    namespace: Option<Option<PathBuf>>,
    known: BTreeSet<u32>,
}

impl Own<'_> {
    /// Whether a process is one of the guest's, a descendant of one, in its PID namespace, or a kernel thread: these
    /// are put into a group only to work for it (vhost, KVM).
    fn has(&mut self, pid: u32) -> bool {
        let mut at = pid;
        let mut passed = Vec::new();
        for _ in 0..MOST_PARENTS {
            if self.known.contains(&at) {
                self.known.extend(passed);
                return true;
            }
            let Ok(text) = self.reader.read_text(&process::file(at, "stat")) else { break };
            let Some(stat) = Stat::parse(&text) else { break };
            if at == pid && stat.is_of_kernel() {
                return true;
            }
            passed.push(at);
            match stat.parent() {
                Some(parent) if parent > 1 => at = parent,
                _ => break,
            }
        }
        let own = self.own_namespace();
        let mine = own.is_some() && process::namespace(self.reader, pid, "pid").ok().flatten() == own;
        if mine {
            self.known.insert(pid);
        }
        mine
    }

    fn own_namespace(&mut self) -> Option<PathBuf> {
        let (reader, first) = (self.reader, self.guest.pids.first().copied());
        let found = self.namespace.get_or_insert_with(|| {
            let first = first.filter(|pid| !process::same_namespace(reader, *pid, "pid"))?;
            process::namespace(reader, first, "pid").ok().flatten()
        });
        found.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_directory() {
        let of = |dirs: &[&str]| common(dirs.iter().map(PathBuf::from).collect::<Vec<_>>().iter());
        assert_eq!(of(&["/cg/a/emulator", "/cg/a/vcpu0", "/cg/a/vcpu1"]), Path::new("/cg/a"));
        assert_eq!(of(&["/cg/a", "/cg/a/b"]), Path::new("/cg/a"));
        assert_eq!(of(&["/cg/ab", "/cg/a"]), Path::new("/cg"));
        assert_eq!(of(&["/cg/a"]), Path::new("/cg/a"));
        assert_eq!(of(&[]), Path::new(""));
    }
}
