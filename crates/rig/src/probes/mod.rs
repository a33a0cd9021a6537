//! What is watched around a cell: the backing device and the CPUs.
//!
//! A probe names the files of `/proc` and `/sys` that it reads; one schedule reads the files of
//! all probes together ([`vmio_node::Reader::sample`], 10 times a second), and each probe turns
//! the ticks into its part of [`Observed`]. Nothing is changed on the machine.
//!
//! Adding a probe: a file with a type that implements [`Probe`], and its line in [`ALL`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use vmio_look::backing::Backing;
use vmio_model::result::{CpuUse, DeviceUse};
use vmio_node::{FileSample, Reader, SamplePlan, Sampling};

use crate::guests::{self, Hypervisor, Role};

pub mod cpu;
pub mod diskstats;
pub mod foreign;
pub mod mountstats;

/// All probes.
pub const ALL: &[&dyn Probe] = &[&diskstats::Diskstats, &mountstats::Mountstats, &cpu::Cpu];

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
    /// CPU seconds that the host wanted and its own hypervisor gave to others.
    pub steal_seconds: f64,
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
    ///
    /// # Errors
    /// When the node cannot sample.
    pub fn start(reader: &dyn Reader, subject: Subject) -> Result<Self, vmio_node::Error> {
        let each: Vec<Vec<PathBuf>> = ALL.iter().map(|probe| probe.paths(&subject)).collect();
        let counts = each.iter().map(Vec::len).collect();
        let plan = SamplePlan { paths: each.concat(), interval: Duration::from_secs(1) / HERTZ };
        Ok(Self { subject, counts, sampling: reader.sample(&plan)? })
    }

    /// Stops them.
    ///
    /// # Errors
    /// When the node has lost the samples.
    pub fn stop(self) -> Result<Observed, vmio_node::Error> {
        let ticks = self.sampling.stop()?;
        Ok(conclude(&self.subject, &self.counts, &ticks))
    }
}

/// Gives each probe its own part of the ticks.
fn conclude(subject: &Subject, counts: &[usize], ticks: &[FileSample]) -> Observed {
    let mut seen = Observed::default();
    if let [first, .., last] = ticks {
        seen.seconds = last.seconds - first.seconds;
    }
    let mut start = 0;
    for (probe, &count) in ALL.iter().zip(counts) {
        let own = |tick: &FileSample| FileSample {
            seconds: tick.seconds,
            contents: tick.contents.iter().skip(start).take(count).cloned().collect(),
        };
        let own: Vec<FileSample> = ticks.iter().map(own).collect();
        probe.observe(subject, &own, &mut seen);
        start += count;
    }
    seen
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn on_nfs() -> Subject {
        let backing = Backing { nfs: Some("server:/export".into()), mount: "/srv".into(), ..Backing::default() };
        Subject { backing: Some(backing), ..subject() }
    }

    fn subject() -> Subject {
        let backing = Backing { leaves: [("vda".to_owned(), (254, 0))].into(), ..Backing::default() };
        Subject {
            backing: Some(backing),
            qemu: Some(Qemu { pid: 7, roles: [(7, "main".to_owned())].into(), servers: Vec::new() }),
        }
    }

    #[test]
    fn contract_of_every_probe() {
        for (i, probe) in ALL.iter().enumerate() {
            let name = probe.name();
            assert!(ALL[..i].iter().all(|p| p.name() != name), "{name} twice");
            assert!(!probe.about().is_empty());
            for path in probe.paths(&subject()) {
                assert!(path.starts_with("/proc") || path.starts_with("/sys"), "{name}: {}", path.display());
            }
            // Whatever cannot be read must become a word, not a figure and not a panic.
            let mut looks = 0;
            for subject in [subject(), on_nfs()] {
                // What a probe has nothing to do with it leaves alone.
                let looked = !probe.paths(&subject).is_empty();
                looks += u32::from(looked);
                for ticks in [vec![], vec![empty(0.0, 9)], vec![empty(0.0, 9), empty(1.0, 9)]] {
                    let mut seen = Observed::default();
                    probe.observe(&subject, &ticks, &mut seen);
                    assert!(seen.device.is_none() && seen.cpu == CpuUse::default(), "{name}");
                    assert_eq!(seen.not_visible.is_some() || !seen.notes.is_empty(), looked, "{name}");
                }
            }
            assert!(looks > 0, "{name} looks at nothing");
        }
    }

    fn empty(seconds: f64, n: usize) -> FileSample {
        FileSample { seconds, contents: vec![vec![]; n] }
    }

    #[test]
    fn each_probe_gets_its_own_files() {
        let counts: Vec<usize> = ALL.iter().map(|p| p.paths(&subject()).len()).collect();
        let disk = |ios: u32| format!("{ios} 0 {} 0 0 0 0 0 0 0 0", ios * 8);
        let tick = |s: f64, ios, user| FileSample {
            seconds: s,
            contents: [
                disk(ios),
                format!("cpu  {user} 0 0 0 0 0 0 0"),
                "7 (q) S 1 1 1 0 0 0 0 0 0 0 5 5".into(),
                "1 1 1".into(),
                String::new(),
            ]
            .map(String::into_bytes)
            .into(),
        };
        let seen = conclude(&subject(), &counts, &[tick(1.0, 10, 100), tick(1.1, 13, 120), tick(3.0, 20, 200)]);
        assert_eq!(seen.seconds, 2.0);
        assert_eq!(seen.device.unwrap().read_ios, 10);
        assert!((seen.cpu.host_seconds - 1.0).abs() < 1e-9);
        assert_eq!(seen.notes, Vec::<String>::new());
    }
}
