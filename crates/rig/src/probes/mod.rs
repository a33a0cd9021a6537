//! What is watched around a cell, on any machine: the disks below its targets, links, processors, the
//! hypervisors of its guests. Nothing is changed on the machine but what counts there, which goes at the end.
//!
//! A [`Probe`] says what it sees of which [`ProbeSubject`], and by which [`ProbeMethod`]. Those that read files of
//! `/proc` and `/sys` name them; one schedule a machine reads the files of all of them together
//! ([`vmio_node::Reader::sample`], 10 times a second). Those that run a command say which and when. Those that attach
//! something (eBPF, perf) or ask a monitor start and stop by themselves.
//!
//! Adding a probe: a file with a type that implements [`Probe`], and its line in [`ALL`]. What it measures beside
//! [`Watched::figures`] is stored with its unit, and reports show it unchanged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vmio_look::backing::Backing;
use vmio_look::require::Requirement;
use vmio_model::figure::{Figure, Reading};
use vmio_model::result::{BLOCK_EVENTS, Watched};
use vmio_node::linux::hwmon::Sensor;
use vmio_node::linux::powercap::Zone;
use vmio_node::{Exec, FileSample, Node};

use crate::guests::{Hypervisor, Processes};
use crate::redfish::Controller;

pub mod block_events;
pub mod blockstats;
mod command;
pub mod components;
pub mod cpu;
pub mod diskstats;
pub mod dm_cache;
mod energy;
#[cfg(test)]
mod example;
pub mod foreign;
pub mod hwmon;
pub mod ipmi;
pub mod link;
pub mod mountstats;
pub mod others;
pub mod page_cache;
mod poll;
pub mod power;
pub mod power_command;
pub mod powercap;
pub mod redfish;
mod unseen;
mod watch;

pub use blockstats::Counter;
pub use command::Heard;
pub use components::Workers;
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
    &dm_cache::DmCache,
    &block_events::BlockEvents,
    &powercap::Powercap,
    &hwmon::Hwmon,
    &ipmi::Ipmi,
    &redfish::Redfish,
    &power_command::PowerCommand,
    &components::Components,
];

/// Ticks a second on the host.
pub const HERTZ: u32 = 10;
/// Ticks a second on other machines, in which reading takes from the work that is watched.
pub const HERTZ_ELSEWHERE: u32 = 1;

/// A probe.
pub trait Probe: Sync {
    /// Name.
    fn name(&self) -> &'static str;
    /// One line for docs: what it sees, and what it cannot see.
    fn about(&self) -> &'static str;
    /// What it measures of a subject that it sees. It may give less, where something is not counted there.
    fn figures(&self, subject: &ProbeSubject) -> Vec<Figure> {
        subject.watched().figures()
    }
    /// What this machine must have, where that is more than what is watched.
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    /// Whether it sees anything of this.
    fn sees(&self, subject: &ProbeSubject) -> bool;
    /// How it looks.
    fn method(&self) -> ProbeMethod;
}

/// How a probe looks.
pub enum ProbeMethod {
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
    fn paths(&self, subject: &ProbeSubject) -> Vec<PathBuf>;
    /// Turns ticks into figures. `ticks` holds the contents of these paths only.
    ///
    /// # Errors
    /// Why nothing can be said.
    fn conclude(
        &self,
        subject: &ProbeSubject,
        ticks: &[FileSample],
        notes: &mut Vec<String>,
    ) -> Result<Vec<Reading>, Unseen>;
}

/// The first tick and the last.
fn ends(ticks: &[FileSample]) -> Result<(&FileSample, &FileSample), Unseen> {
    if let [first, .., last] = ticks { Ok((first, last)) } else { Err(Unseen::FewReadings) }
}

/// Seconds from one tick to another.
fn seconds_between(first: &FileSample, last: &FileSample) -> Result<f64, Unseen> {
    let seconds = last.seconds - first.seconds;
    if seconds > 0.0 { Ok(seconds) } else { Err(Unseen::NoTime) }
}

/// A probe that runs a command on the machine.
pub trait ByCommand: Sync {
    /// The command. Whoever runs it limits its time and its output.
    ///
    /// # Errors
    /// When it sees nothing of that subject.
    fn command(&self, subject: &ProbeSubject) -> Result<Exec, Unseen>;
    /// When it is run.
    fn runs(&self) -> Runs;
    /// Turns what it said into figures.
    ///
    /// # Errors
    /// Why nothing can be said.
    fn conclude(&self, subject: &ProbeSubject, heard: &Heard, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen>;
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
    fn start(&self, subject: &ProbeSubject, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen>;
}

/// A probe that looks by itself, at work. What it attached goes when it is dropped.
pub trait Looking: Send {
    /// Stops looking, at once: for one that counts until then. All probes are halted before any is stopped: what one
    /// takes to conclude is no part of what another counts.
    fn halt(&mut self) {}

    /// Stops and gives what was seen.
    ///
    /// # Errors
    /// Why nothing can be said.
    fn stop(self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<Reading>, Unseen>;
}

/// What a probe watches.
#[derive(Debug, Clone, PartialEq)]
pub enum ProbeSubject {
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
    /// A dm-cache on the machine, by the name of its device.
    DmCache(String),
    /// The driver of a disk of the machine, by the disk's name.
    Driver(String),
    /// The processors of the machine.
    Processors,
    /// The processes that are not vmio's own.
    Others {
        /// The process that, with all below it, is vmio's own.
        than: u32,
    },
    /// Vmio's processes and the kernel's threads, by the component in which they work.
    Components(Workers),
    /// The hypervisor of a guest, with the guest's name in results.
    Hypervisor(String, Hypervisor),
    /// A container of vmio's own, with its name in results.
    Container(String, Processes),
    /// What the machine's own counters of energy are of.
    Energy(Vec<Zone>),
    /// What the machine's sensors of power are of.
    Sensors(Vec<Sensor>),
    /// The machine, by its management controller, which this program asks.
    Controller(ipmi::Dcmi),
    /// The chassis of a management controller that is asked over the network.
    Redfish(Arc<Controller>),
    /// What a meter of the user's is put to.
    Meter {
        /// Tells its power, as a shell takes it.
        command: String,
    },
}

impl ProbeSubject {
    /// Whether its power is metered.
    pub fn is_metered(&self) -> bool {
        use ProbeSubject::{Controller, Energy, Meter, Redfish, Sensors};
        matches!(self, Energy(_) | Sensors(_) | Controller(_) | Redfish(_) | Meter { .. })
    }

    /// As results name it.
    pub fn watched(&self) -> Watched {
        match self {
            ProbeSubject::Disk(backing) => Watched::Disk(backing.describe()),
            ProbeSubject::Link { name, .. } => Watched::Link(name.clone()),
            ProbeSubject::Storage { target, .. } => Watched::PageCache(target.clone()),
            ProbeSubject::Drive { target, .. } => Watched::Drive(target.clone()),
            ProbeSubject::DmCache(_) => Watched::Other(dm_cache::NAME.to_owned()),
            ProbeSubject::Driver(_) => Watched::Other(BLOCK_EVENTS.to_owned()),
            ProbeSubject::Processors => Watched::Processors,
            ProbeSubject::Others { .. } => Watched::Others,
            ProbeSubject::Components(_) => Watched::Components,
            ProbeSubject::Hypervisor(guest, _) => Watched::Hypervisor(guest.clone()),
            ProbeSubject::Container(guest, _) => Watched::Container(guest.clone()),
            ProbeSubject::Energy(_) => Watched::Other("powercap".to_owned()),
            ProbeSubject::Sensors(_) => Watched::Other("hwmon".to_owned()),
            ProbeSubject::Controller(_) => Watched::Other("ipmi".to_owned()),
            ProbeSubject::Redfish(_) => Watched::Other("redfish".to_owned()),
            ProbeSubject::Meter { .. } => Watched::Other("power-command".to_owned()),
        }
    }
}

/// A subject on the machine where it is watched.
#[derive(Clone)]
pub struct ProbePoint {
    /// The machine.
    pub node: Arc<dyn Node>,
    /// Its name in results; empty for the host.
    pub name: String,
    /// What is watched there.
    pub subject: ProbeSubject,
}

impl ProbePoint {
    /// A subject on the host.
    pub fn here(node: Arc<dyn Node>, subject: ProbeSubject) -> Self {
        Self { node, name: String::new(), subject }
    }

    /// Whether it is a disk of the host: a guest's own is watched, too.
    pub fn is_hosts_disk(&self) -> bool {
        self.name.is_empty() && matches!(self.subject, ProbeSubject::Disk(_))
    }
}

#[cfg(test)]
mod tests;
