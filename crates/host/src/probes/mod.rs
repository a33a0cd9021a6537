//! What is watched around a cell: the backing device and the CPUs.
//!
//! A probe names the files of `/proc` and `/sys` that it reads; one schedule reads the files of
//! all probes together ([`vmio_node::Reader::sample`], 10 times a second), and each probe turns
//! the ticks into its part of [`Observed`]. Nothing is changed on the machine.
//!
//! Adding a probe: a file with a type that implements [`Probe`], and its line in [`ALL`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use vmio_model::result::{CpuUse, DeviceUse};
use vmio_node::{FileSample, Reader, Sampling};

use crate::backing::Backing;

pub mod foreign;

/// All probes.
pub const ALL: &[&dyn Probe] = &[];

/// Ticks a second.
pub const HERTZ: u32 = 10;

/// A way to look.
pub trait Probe: Sync {
    /// Name.
    fn name(&self) -> &'static str;
    /// One line for docs: what it sees, and what it cannot see.
    fn about(&self) -> &'static str;
    /// Files to read at each tick; empty when there is nothing to see for this subject.
    fn paths(&self, subject: &Subject) -> Vec<PathBuf>;
    /// Turns ticks into figures. `ticks` holds the contents of this probe's own paths only.
    fn observe(&self, subject: &Subject, ticks: &[FileSample], into: &mut Observed);
}

/// What is watched.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// The backing device of the run's targets.
    pub backing: Option<Backing>,
    /// The guest's QEMU; `None` on the native side.
    pub qemu: Option<Qemu>,
}

/// A QEMU process and the roles of its threads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Qemu {
    /// Process id.
    pub pid: u32,
    /// Role (`vcpu`, `iothread`, `main`) by thread id. Threads that are not listed are workers.
    pub roles: BTreeMap<u32, String>,
}

/// What was seen between start and stop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    /// Seconds between the first and the last tick.
    pub seconds: f64,
    /// The backing device; `None` where it cannot be seen.
    pub device: Option<DeviceUse>,
    /// Why it cannot be seen.
    pub not_visible: Option<String>,
    /// CPU.
    pub cpu: CpuUse,
    /// What could not be read, in words.
    pub notes: Vec<String>,
}

/// Probes at work.
pub struct Watch {
    subject: Subject,
    /// Number of paths of each probe in [`ALL`], in order.
    counts: Vec<usize>,
    sampling: Box<dyn Sampling>,
}

impl Watch {
    /// Starts all probes.
    pub fn start(reader: &dyn Reader, subject: Subject) -> Result<Self, vmio_node::Error> {
        todo!("{:?} {}", subject, reader.name())
    }

    /// Stops them.
    pub fn stop(self) -> Result<Observed, vmio_node::Error> {
        let ticks = self.sampling.stop()?;
        todo!("{:?} {:?} {}", self.counts, self.subject, ticks.len())
    }
}
