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
use std::time::Duration;

use vmio_look::backing::Backing;
use vmio_model::figure::{Figure, Reading};
use vmio_model::result::{CpuUse, DeviceUse, Seen, Watched};
use vmio_node::{FileSample, Node, Reader, SamplePlan, Sampling};

use crate::guests::{self, Hypervisor, Role};

pub mod cpu;
pub mod diskstats;
pub mod foreign;
pub mod link;
pub mod mountstats;

/// All probes.
pub const ALL: &[&dyn Probe] = &[&diskstats::Diskstats, &mountstats::Mountstats, &cpu::Cpu, &link::Link];

/// Ticks a second.
pub const HERTZ: u32 = 10;

/// A way to look.
pub trait Probe: Sync {
    /// Name.
    fn name(&self) -> &'static str;
    /// One line for docs: what it sees, and what it cannot see.
    fn about(&self) -> &'static str;
    /// What it measures. Of a thing it may give less, where that is not counted there.
    fn figures(&self) -> Vec<Figure>;
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
    fn conclude(&self, thing: &Thing, ticks: &[FileSample], notes: &mut Vec<String>) -> Result<Vec<Reading>, String>;
}

/// A probe that attaches something, asks a monitor or runs a command.
pub trait ByItself: Sync {
    /// Starts to look.
    ///
    /// # Errors
    /// Why it cannot.
    fn start(&self, thing: &Thing, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, String>;
}

/// A probe that looks by itself, at work. What it attached goes when it is dropped.
pub trait Looking: Send {
    /// Stops and gives what was seen.
    ///
    /// # Errors
    /// Why nothing can be said.
    fn stop(self: Box<Self>, notes: &mut Vec<String>) -> Result<Vec<Reading>, String>;
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
    /// The processors of the machine.
    Processors,
    /// The hypervisor of a guest, with the guest's name in results.
    Hypervisor(String, Qemu),
}

impl Thing {
    /// As results name it.
    pub fn watched(&self) -> Watched {
        match self {
            Thing::Disk(backing) => Watched::Disk(backing.describe()),
            Thing::Link { name, .. } => Watched::Link(name.clone()),
            Thing::Processors => Watched::Processors,
            Thing::Hypervisor(guest, _) => Watched::Hypervisor(guest.clone()),
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

/// What was seen between start and stop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    /// Seconds between the first and the last tick.
    pub seconds: f64,
    /// What each probe saw of each thing.
    pub seen: Vec<Seen>,
    /// Why a disk cannot be seen.
    pub not_visible: Option<String>,
    /// What could not be read, in words.
    pub notes: Vec<String>,
}

impl Observed {
    /// The first disk that was seen.
    pub fn device(&self) -> Option<DeviceUse> {
        self.seen.iter().find_map(DeviceUse::of)
    }

    /// CPU seconds.
    pub fn cpu(&self) -> CpuUse {
        CpuUse::of(&self.seen)
    }
}

/// One probe on one thing.
enum Look {
    /// So many of its machine's paths, from this one on.
    Files(&'static dyn ByFiles, usize, usize),
    Own(Box<dyn Looking>),
    Failed(String),
}

/// Probes at work.
pub struct Watch {
    subjects: Vec<Subject>,
    /// By subject: the probe's name, and how it looks.
    looks: Vec<(usize, &'static str, Look)>,
    /// By name of the machine.
    schedules: BTreeMap<String, Box<dyn Sampling>>,
}

impl Watch {
    /// Starts all probes that see anything of the subjects.
    ///
    /// # Errors
    /// When a machine cannot sample.
    pub fn start(subjects: Vec<Subject>) -> Result<Self, vmio_node::Error> {
        let mut looks = Vec::new();
        let mut paths: BTreeMap<String, (Arc<dyn Node>, Vec<PathBuf>)> = BTreeMap::new();
        for (at, subject) in subjects.iter().enumerate() {
            for probe in ALL.iter().filter(|p| p.sees(&subject.thing)) {
                let look = match probe.way() {
                    Way::Files(files) => {
                        let own = files.paths(&subject.thing);
                        let fresh = || (subject.node.clone(), Vec::new());
                        let (_, all) = paths.entry(subject.name.clone()).or_insert_with(fresh);
                        let look = Look::Files(files, all.len(), own.len());
                        all.extend(own);
                        look
                    }
                    Way::Own(own) => own.start(&subject.thing, &subject.node).map_or_else(Look::Failed, Look::Own),
                };
                looks.push((at, probe.name(), look));
            }
        }
        let interval = Duration::from_secs(1) / HERTZ;
        let schedule = |(name, (node, paths)): (String, (Arc<dyn Node>, Vec<PathBuf>))| {
            Ok((name, node.reader().sample(&SamplePlan { paths, interval })?))
        };
        let schedules = paths.into_iter().map(schedule).collect::<Result<_, vmio_node::Error>>()?;
        Ok(Self { subjects, looks, schedules })
    }

    /// Stops them.
    ///
    /// # Errors
    /// When a machine has lost the samples.
    pub fn stop(self) -> Result<Observed, vmio_node::Error> {
        let mut ticks = BTreeMap::new();
        for (name, sampling) in self.schedules {
            ticks.insert(name, sampling.stop()?);
        }
        Ok(conclude(&self.subjects, self.looks, &ticks))
    }
}

/// Gives each probe its own part of the ticks.
fn conclude(
    subjects: &[Subject],
    looks: Vec<(usize, &'static str, Look)>,
    ticks: &BTreeMap<String, Vec<FileSample>>,
) -> Observed {
    let mut all = Observed::default();
    if let Some([first, .., last]) = ticks.get("").or_else(|| ticks.values().next()).map(Vec::as_slice) {
        all.seconds = last.seconds - first.seconds;
    }
    for (at, probe, look) in looks {
        let Subject { name, thing, .. } = &subjects[at];
        let found = match look {
            Look::Files(files, start, count) => {
                let own = |tick: &FileSample| FileSample {
                    seconds: tick.seconds,
                    contents: tick.contents.iter().skip(start).take(count).cloned().collect(),
                };
                let own: Vec<FileSample> = ticks.get(name).into_iter().flatten().map(own).collect();
                files.conclude(thing, &own, &mut all.notes)
            }
            Look::Own(looking) => looking.stop(&mut all.notes),
            Look::Failed(why) => Err(why),
        };
        match found {
            Ok(figures) => {
                let (node, probe) = (name.clone(), probe.to_owned());
                all.seen.push(Seen { node, watched: thing.watched(), probe, figures });
            }
            Err(why) if matches!(thing, Thing::Disk(_)) => all.not_visible = Some(why),
            Err(why) => all.notes.push(format!("{probe}: {why}")),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::Fake;

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
            Thing::Processors,
            Thing::Hypervisor("qemu".into(), qemu),
        ]
    }

    #[test]
    fn contract_of_every_probe() {
        for (i, probe) in ALL.iter().enumerate() {
            let name = probe.name();
            assert!(ALL[..i].iter().all(|p| p.name() != name), "{name} twice");
            assert!(!probe.about().is_empty() && !probe.figures().is_empty(), "{name}");
            let seen: Vec<Thing> = things().into_iter().filter(|thing| probe.sees(thing)).collect();
            assert!(!seen.is_empty(), "{name} sees nothing");
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

    #[test]
    fn each_probe_gets_its_own_files() {
        let node: Arc<dyn Node> = Arc::new(Fake::new("fake"));
        let qemu = Qemu { pid: 7, roles: [(7, "main".to_owned())].into(), servers: Vec::new() };
        let all = [disk(), Thing::Processors, Thing::Hypervisor("qemu".into(), qemu)];
        let subjects: Vec<Subject> = all.into_iter().map(|thing| Subject::here(node.clone(), thing)).collect();
        let mut start = 0;
        let looks = subjects.iter().enumerate().map(|(at, subject)| {
            let probe = ALL.iter().find(|p| p.sees(&subject.thing)).unwrap();
            let Way::Files(files) = probe.way() else { panic!("{} reads no files", probe.name()) };
            let count = files.paths(&subject.thing).len();
            start += count;
            (at, probe.name(), Look::Files(files, start - count, count))
        });
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
        let ticks = BTreeMap::from([(String::new(), vec![tick(1.0, 10, 100), tick(1.1, 13, 120), tick(3.0, 20, 200)])]);
        let seen = conclude(&subjects, looks.collect(), &ticks);
        assert_eq!(seen.seconds, 2.0);
        assert_eq!(seen.device().unwrap().read_ios, 10);
        assert!((seen.cpu().host_seconds - 1.0).abs() < 1e-9);
        assert_eq!(seen.notes, Vec::<String>::new());
    }
}
