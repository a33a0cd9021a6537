//! What is watched around a cell, on any machine: the disks below its targets, links, processors, the
//! hypervisors of its guests. Nothing is changed on the machine.
//!
//! A [`Probe`] says what it sees of which [`Thing`], and its way ([`Way`]). Those that read files of
//! `/proc` and `/sys` name them; one schedule a machine reads the files of all of them together
//! ([`vmio_node::Reader::sample`], 10 times a second). Those that run a command say which and when. Those that attach
//! something (eBPF, perf) or ask a monitor start and stop by themselves.
//!
//! Adding a probe: a file with a type that implements [`Probe`], and its line in [`ALL`]. What it measures beside
//! [`Watched::figures`] is stored with its unit, and reports tell it as it is.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vmio_look::backing::Backing;
use vmio_look::require::Requirement;
use vmio_model::figure::{Figure, Reading};
use vmio_model::result::Watched;
use vmio_node::linux::powercap::Zone;
use vmio_node::{Exec, FileSample, Node};

use crate::guests::{Hypervisor, Processes};

pub mod blockstats;
mod command;
pub mod cpu;
pub mod diskstats;
mod energy;
pub mod foreign;
pub mod link;
pub mod mountstats;
pub mod others;
pub mod page_cache;
pub mod power;
pub mod power_command;
pub mod powercap;
mod unseen;
mod watch;

pub use blockstats::Counter;
pub use command::Heard;
pub use unseen::Unseen;
pub use watch::{Observed, Watch, each_once};

/// All probes.
pub const ALL: &[&dyn Probe] = &[
    &diskstats::Diskstats,
    &mountstats::Mountstats,
    &cpu::Cpu,
    &others::Others,
    &link::Link,
    &page_cache::PageCache,
    &blockstats::Blockstats,
    &powercap::Powercap,
    &power_command::PowerCommand,
];

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
    fn figures(&self, thing: &Thing) -> Vec<Figure> {
        thing.watched().figures()
    }
    /// What this machine must have, where that is more than what is watched.
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    /// Whether it sees anything of this.
    fn sees(&self, thing: &Thing) -> bool;
    /// How it looks.
    fn way(&self) -> Way;
}

/// How a probe looks.
pub enum Way {
    /// By files, which one schedule reads for all.
    Files(&'static dyn ByFiles),
    /// By a command.
    Command(&'static dyn ByCommand),
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

/// A probe that runs a command on the machine.
pub trait ByCommand: Sync {
    /// The command. How long it may take and how much it may say is not its matter.
    ///
    /// # Errors
    /// When it sees nothing of that thing.
    fn command(&self, thing: &Thing) -> Result<Exec, Unseen>;
    /// When it is run.
    fn runs(&self) -> Runs;
    /// Turns what it said into figures.
    ///
    /// # Errors
    /// Why nothing can be said.
    fn conclude(&self, thing: &Thing, heard: &Heard, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen>;
}

/// When a command is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// At the start and at the end; all that it says each time is one text.
    AtEnds,
    /// From the start to the end, a line at a time. One that ends is run again.
    Meanwhile {
        /// So long after it was started.
        again: Duration,
    },
}

/// A probe that attaches something or asks a monitor.
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
    /// What a hypervisor opens on the host for a guest's disk; or a disk as the side has it whose own page cache is to
    /// serve it.
    Storage {
        /// The target that it is of.
        target: String,
        /// The file or block device.
        path: PathBuf,
    },
    /// A guest's disk, as its hypervisor counts it.
    Drive {
        /// The target that it is of.
        target: String,
        /// Where it is counted.
        drive: Counter,
    },
    /// The processors of the machine.
    Processors,
    /// The processes that are not vmio's own.
    Others {
        /// The process that, with all below it, is vmio's own.
        than: u32,
    },
    /// The hypervisor of a guest, with the guest's name in results.
    Hypervisor(String, Hypervisor),
    /// A container of vmio's own, with its name in results.
    Container(String, Processes),
    /// What the machine's own counters of energy are of.
    Energy(Vec<Zone>),
    /// What a meter of the user's is put to.
    Meter {
        /// Tells its power, as a shell takes it.
        command: String,
    },
}

impl Thing {
    /// As results name it.
    pub fn watched(&self) -> Watched {
        match self {
            Thing::Disk(backing) => Watched::Disk(backing.describe()),
            Thing::Link { name, .. } => Watched::Link(name.clone()),
            Thing::Storage { target, .. } => Watched::PageCache(target.clone()),
            Thing::Drive { target, .. } => Watched::Drive(target.clone()),
            Thing::Processors => Watched::Processors,
            Thing::Others { .. } => Watched::Others,
            Thing::Hypervisor(guest, _) => Watched::Hypervisor(guest.clone()),
            Thing::Container(guest, _) => Watched::Container(guest.clone()),
            Thing::Energy(_) => Watched::Other("powercap".to_owned()),
            Thing::Meter { .. } => Watched::Other("power-command".to_owned()),
        }
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
        let hypervisor = Hypervisor { pid: 7, roles: [(7, "main".to_owned())].into(), ..Hypervisor::default() };
        vec![
            disk(),
            Thing::Disk(nfs),
            Thing::Link { name: "eth0".into(), enter: Vec::new() },
            Thing::Storage { target: "sparse".into(), path: "/srv/sparse".into() },
            blockstats::tests::drive(&[]),
            Thing::Processors,
            Thing::Others { than: 7 },
            Thing::Hypervisor("qemu".into(), hypervisor),
            Thing::Container("container".into(), Processes { first: 7, agent: 8 }),
            Thing::Energy(vec![Zone {
                domain: "package-0".into(),
                energy_file: "/sys/class/powercap/intel-rapl:0/energy_uj".into(),
                range_uj: Some(262_143_328_850),
            }]),
            Thing::Meter { command: "cat /dev/meter".into() },
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
            match probe.way() {
                Way::Files(files) => seen.iter().for_each(|thing| contract_by_files(name, files, thing)),
                Way::Command(by) => {
                    for thing in &seen {
                        assert!(!by.command(thing).unwrap().program.is_empty(), "{name}");
                        let words = vec![(0.0, "x".to_owned()), (1.0, "x y z".to_owned())];
                        for said in [vec![], vec![(0.0, String::new())], words] {
                            let said = by.conclude(thing, &Heard { seconds: 1.0, said }, &mut Vec::new());
                            assert!(said.is_err(), "{name}: {said:?}");
                        }
                    }
                }
                Way::Own(_) => {}
            }
        }
    }

    fn contract_by_files(name: &str, files: &dyn ByFiles, thing: &Thing) {
        let paths = files.paths(thing);
        assert!(!paths.is_empty(), "{name}");
        for path in &paths {
            assert!(path.starts_with("/proc") || path.starts_with("/sys"), "{name}: {}", path.display());
        }
        // Whatever cannot be read must become a word, not a figure and not a panic.
        let empty = |seconds: f64| FileSample { seconds, contents: vec![vec![]; paths.len()] };
        for ticks in [vec![], vec![empty(0.0)], vec![empty(0.0), empty(1.0)]] {
            let said = files.conclude(thing, &ticks, &mut Vec::new());
            assert!(said.is_err(), "{name}: {said:?}");
        }
    }

    /// A thing may have any number of probes, but each of its figures has one: nothing is counted twice. What the model
    /// makes fields of is declared as the model has it, by some probe.
    #[test]
    fn each_figure_of_a_thing_has_one_probe() {
        for thing in things() {
            let declared: Vec<Figure> = ALL.iter().filter(|p| p.sees(&thing)).flat_map(|p| p.figures(&thing)).collect();
            assert!(!declared.is_empty(), "nobody sees {thing:?}");
            for (i, figure) in declared.iter().enumerate() {
                assert!(declared[..i].iter().all(|f| f.name != figure.name), "{thing:?}: {} twice", figure.name);
            }
            let known = thing.watched().figures();
            assert!(known.iter().all(|figure| declared.contains(figure)), "{thing:?}: {declared:?}");
        }
    }
}
