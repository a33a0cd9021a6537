//! What is watched around a cell, on any machine: the disks below its targets, links, processors, the
//! hypervisors of its guests. Nothing is changed on the machine.
//!
//! A [`Probe`] says what it sees of which [`Thing`], and its way ([`Way`]). Those that read files of
//! `/proc` and `/sys` name them; one schedule a machine reads the files of all of them together
//! ([`vmio_node::Reader::sample`], 10 times a second). Those that attach something (eBPF, perf), ask a
//! monitor or run a command start and stop by themselves.
//!
//! Adding a probe: a file with a type that implements [`Probe`], and its line in [`ALL`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use vmio_look::backing::Backing;
use vmio_model::figure::{Figure, Reading};
use vmio_model::result::Watched;
use vmio_node::{FileSample, Node, Reader};

use crate::guests::{self, Hypervisor, Processes, Role};

pub mod cpu;
pub mod diskstats;
pub mod foreign;
pub mod link;
pub mod mountstats;
pub mod others;
pub mod page_cache;
mod unseen;
mod watch;

pub use unseen::Unseen;
pub use watch::{Observed, Watch, each_once};

/// All probes.
pub const ALL: &[&dyn Probe] =
    &[&diskstats::Diskstats, &mountstats::Mountstats, &cpu::Cpu, &others::Others, &link::Link, &page_cache::PageCache];

/// Ticks a second on the host.
pub const HERTZ: u32 = 10;
/// Ticks a second on other machines, in which reading takes from the work that is watched.
pub const HERTZ_ELSEWHERE: u32 = 1;

/// A way to look.
pub trait Probe: Sync {
    /// Name.
    fn name(&self) -> &'static str;
    /// One line for docs: what it sees, and what it cannot see.
    fn about(&self) -> &'static str;
    /// What it measures of a thing that it sees. It may give less, where something is not counted there.
    fn figures(&self, thing: &Thing) -> Vec<Figure>;
    /// Whether it sees anything of this.
    fn sees(&self, thing: &Thing) -> bool;
    /// How it looks.
    fn way(&self) -> Way;
}

/// How a probe looks.
pub enum Way {
    /// By files, which one schedule reads for all.
    Files(&'static dyn ByFiles),
    /// By something of its own, which it starts and stops.
    Own(&'static dyn ByItself),
}

/// A probe that reads files.
pub trait ByFiles: Sync {
    /// Files to read at each tick.
    fn paths(&self, thing: &Thing) -> Vec<PathBuf>;
    /// Turns ticks into figures. `ticks` holds the contents of these paths only.
    ///
    /// # Errors
    /// Why nothing can be said.
    fn conclude(&self, thing: &Thing, ticks: &[FileSample], notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen>;
}

/// A probe that attaches something, asks a monitor or runs a command.
pub trait ByItself: Sync {
    /// Starts to look.
    ///
    /// # Errors
    /// Why it cannot.
    fn start(&self, thing: &Thing, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen>;
}

/// A probe that looks by itself, at work. What it attached goes when it is dropped.
pub trait Looking: Send {
    /// Stops and gives what was seen.
    ///
    /// # Errors
    /// Why nothing can be said.
    fn stop(self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen>;
}

/// What is watched.
#[derive(Debug, Clone, PartialEq)]
pub enum Thing {
    /// The disks below a target.
    Disk(Backing),
    /// A network interface, in the network namespace of commands that this goes before.
    Link {
        /// Its name.
        name: String,
        /// What goes before a command so that it runs in its namespace.
        enter: Vec<String>,
    },
    /// What a hypervisor opens on the host for a guest's disk.
    Storage {
        /// The target that it is of.
        target: String,
        /// The file or block device.
        path: PathBuf,
    },
    /// The processors of the machine.
    Processors,
    /// The processes that are not vmio's own.
    Others {
        /// The process that, with all below it, is vmio's own.
        than: u32,
    },
    /// The hypervisor of a guest, with the guest's name in results.
    Hypervisor(String, Qemu),
    /// A container of vmio's own, with its name in results.
    Container(String, Processes),
}

impl Thing {
    /// As results name it.
    pub fn watched(&self) -> Watched {
        match self {
            Thing::Disk(backing) => Watched::Disk(backing.describe()),
            Thing::Link { name, .. } => Watched::Link(name.clone()),
            Thing::Storage { target, .. } => Watched::PageCache(target.clone()),
            Thing::Processors => Watched::Processors,
            Thing::Others { .. } => Watched::Others,
            Thing::Hypervisor(guest, _) => Watched::Hypervisor(guest.clone()),
            Thing::Container(guest, _) => Watched::Container(guest.clone()),
        }
    }
}

/// A QEMU process and the roles of its threads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Qemu {
    /// Process id.
    pub pid: u32,
    /// Role (`vcpu`, `iothread`, `main`, `other`) by thread id. Threads that are not listed are workers.
    pub roles: BTreeMap<u32, String>,
    /// Processes that serve the disk in its place.
    pub servers: Vec<u32>,
}

impl Qemu {
    /// Of a guest that runs, with the threads that it has now. Workers come and go, so they are
    /// left out: what they spend is told all the same.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn of(hypervisor: &Hypervisor, reader: &dyn Reader) -> guests::Result<Self> {
        let threads = hypervisor.threads(reader)?.into_iter().filter(|t| t.role != Role::Worker);
        let roles = threads.map(|t| (t.tid, t.role.key().to_owned())).collect();
        Ok(Self { pid: hypervisor.pid, roles, servers: Vec::new() })
    }
}

/// Something to watch, and the machine that it is on.
#[derive(Clone)]
pub struct Subject {
    /// The machine.
    pub node: Arc<dyn Node>,
    /// Its name in results; empty for the host.
    pub name: String,
    /// What is watched there.
    pub thing: Thing,
}

impl Subject {
    /// Something on the host.
    pub fn here(node: Arc<dyn Node>, thing: Thing) -> Self {
        Self { node, name: String::new(), thing }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn disk() -> Thing {
        Thing::Disk(Backing { leaves: [("vda".to_owned(), (254, 0))].into(), ..Backing::default() })
    }

    fn things() -> Vec<Thing> {
        let nfs = Backing { nfs: Some("server:/export".into()), mount: "/srv".into(), ..Backing::default() };
        let qemu = Qemu { pid: 7, roles: [(7, "main".to_owned())].into(), servers: Vec::new() };
        vec![
            disk(),
            Thing::Disk(nfs),
            Thing::Link { name: "eth0".into(), enter: Vec::new() },
            Thing::Storage { target: "sparse".into(), path: "/srv/sparse".into() },
            Thing::Processors,
            Thing::Others { than: 7 },
            Thing::Hypervisor("qemu".into(), qemu),
            Thing::Container("container".into(), Processes { first: 7, agent: 8 }),
        ]
    }

    #[test]
    fn contract_of_every_probe() {
        for (i, probe) in ALL.iter().enumerate() {
            let name = probe.name();
            assert!(ALL[..i].iter().all(|p| p.name() != name), "{name} twice");
            assert!(!probe.about().is_empty(), "{name}");
            let seen: Vec<Thing> = things().into_iter().filter(|thing| probe.sees(thing)).collect();
            assert!(!seen.is_empty(), "{name} sees nothing");
            for thing in &seen {
                let figures = probe.figures(thing);
                assert!(!figures.is_empty(), "{name}: {thing:?}");
                for (i, figure) in figures.iter().enumerate() {
                    assert!(figures[..i].iter().all(|f| f.name != figure.name), "{name}: {} twice", figure.name);
                }
            }
            let Way::Files(files) = probe.way() else { continue };
            for thing in seen {
                let paths = files.paths(&thing);
                assert!(!paths.is_empty(), "{name}");
                for path in &paths {
                    assert!(path.starts_with("/proc") || path.starts_with("/sys"), "{name}: {}", path.display());
                }
                // Whatever cannot be read must become a word, not a figure and not a panic.
                let empty = |seconds: f64| FileSample { seconds, contents: vec![vec![]; paths.len()] };
                for ticks in [vec![], vec![empty(0.0)], vec![empty(0.0), empty(1.0)]] {
                    let said = files.conclude(&thing, &ticks, &mut Vec::new());
                    assert!(said.is_err(), "{name}: {said:?}");
                }
            }
        }
    }

    /// Each thing is seen by one probe alone: nothing is counted twice.
    #[test]
    fn each_thing_has_one_probe() {
        for thing in things() {
            assert_eq!(ALL.iter().filter(|p| p.sees(&thing)).count(), 1, "{thing:?}");
        }
    }
}
