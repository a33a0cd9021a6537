//! Probes at work: on subjects of any machines, from a start to a stop.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vmio_model::figure::Unit;
use vmio_model::result::{CpuUse, DeviceUse, ProbeResult};
use vmio_node::{FileSample, Node, SamplePlan, Sampling};

use super::{ALL, ByFiles, HERTZ, HERTZ_ELSEWHERE, Looking, ProbeMethod, ProbePoint, ProbeSubject, Unseen, command};

/// What was seen between start and stop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Observed {
    /// Seconds between the first and the last tick.
    pub seconds: f64,
    /// What each probe saw of each subject.
    pub seen: Vec<ProbeResult>,
    /// Why a disk cannot be seen.
    pub not_visible: Option<String>,
    /// What could not be read, in words.
    pub notes: Vec<String>,
}

impl Observed {
    /// The first disk of the host that was seen.
    pub fn device(&self) -> Option<DeviceUse> {
        self.seen.iter().filter(|seen| seen.node.is_empty()).find_map(DeviceUse::of)
    }

    /// CPU seconds.
    pub fn cpu(&self) -> CpuUse {
        CpuUse::of(&self.seen)
    }
}

/// Each subject once: actors share processors, disks, and the hypervisor of a guest in which several of them work, to
/// which each may bring a server of its own disk. What was watched twice would count twice.
pub fn each_once(points: impl IntoIterator<Item = ProbePoint>) -> Vec<ProbePoint> {
    let mut all: Vec<ProbePoint> = Vec::new();
    for point in points {
        let same = |known: &&mut ProbePoint| known.name == point.name && known.subject.is_that_of(&point.subject);
        match (all.iter_mut().find(same).map(|known| &mut known.subject), point) {
            (None, point) => all.push(point),
            (
                Some(ProbeSubject::Hypervisor(_, known)),
                ProbePoint { subject: ProbeSubject::Hypervisor(_, more), .. },
            ) => {
                known.servers.extend(more.servers);
                known.servers.sort_unstable();
                known.servers.dedup();
            }
            (Some(ProbeSubject::Components(known)), ProbePoint { subject: ProbeSubject::Components(more), .. }) => {
                known.join(more)
            }
            (Some(_), _) => {}
        }
    }
    all
}

impl ProbeSubject {
    /// Whether both are the same subject, whatever is known of it.
    fn is_that_of(&self, other: &ProbeSubject) -> bool {
        match (self, other) {
            (ProbeSubject::Hypervisor(_, one), ProbeSubject::Hypervisor(_, other)) => one.pid == other.pid,
            (ProbeSubject::Components(one), ProbeSubject::Components(other)) => one.are_those_of(other),
            // A file and a loop device over another file may lie on the same disks.
            (ProbeSubject::Disk(one), ProbeSubject::Disk(other)) if !one.leaves.is_empty() => {
                one.leaves == other.leaves
            }
            (one, other) => one == other,
        }
    }
}

/// One probe on one subject.
enum Look {
    /// Which of its machine's paths are its own.
    Files(&'static dyn ByFiles, Vec<usize>),
    Own(Box<dyn Looking>),
    Failed(Unseen),
}

/// The probes at work: index of the point, name of the probe, its look.
type Looks = Vec<Looked>;
/// One of them.
type Looked = (usize, &'static str, Look);

/// The files of a machine that probes read, each once however many read it.
struct Paths {
    node: Arc<dyn Node>,
    all: Vec<PathBuf>,
}

impl Paths {
    fn place(&mut self, path: PathBuf) -> usize {
        self.all.iter().position(|known| *known == path).unwrap_or_else(|| {
            self.all.push(path);
            self.all.len() - 1
        })
    }
}

/// Probes at work.
pub struct Watch {
    points: Vec<ProbePoint>,
    looks: Looks,
    /// By name of the machine.
    schedules: BTreeMap<String, Box<dyn Sampling>>,
}

impl Watch {
    /// Starts all probes that see anything of the subjects: one schedule a machine for all that read files.
    ///
    /// # Errors
    /// When a machine cannot sample.
    pub fn start(points: Vec<ProbePoint>) -> Result<Self, vmio_node::Error> {
        let (looks, machines) = looks(&points);
        let schedule = |(name, Paths { node, all }): (String, Paths)| {
            let interval = Duration::from_secs(1) / if name.is_empty() { HERTZ } else { HERTZ_ELSEWHERE };
            Ok((name, node.reader().sample(&SamplePlan { paths: all, interval })?))
        };
        let schedules = machines.into_iter().map(schedule).collect::<Result<_, vmio_node::Error>>()?;
        Ok(Self { points, looks, schedules })
    }

    /// Stops them.
    ///
    /// # Errors
    /// When a machine has lost the samples.
    pub fn stop(self) -> Result<Observed, vmio_node::Error> {
        Ok(self.stop_apart(Duration::ZERO)?.1)
    }

    /// Stops them. What the first disk of the host did within this time from the start on is told apart, too; `None`
    /// where it was not read twice in it.
    ///
    /// # Errors
    /// When a machine has lost the samples.
    pub fn stop_apart(self, early: Duration) -> Result<(Option<DeviceUse>, Observed), vmio_node::Error> {
        let mut ticks = BTreeMap::new();
        for (name, sampling) in self.schedules {
            ticks.insert(name, sampling.stop()?);
        }
        let here: &[FileSample] = ticks.get("").map(Vec::as_slice).unwrap_or_default();
        let first = first_disk(&self.points, &self.looks, here, early);
        Ok((first, conclude(&self.points, self.looks, &ticks)))
    }
}

/// What the first disk of the host did within this time from the first of its ticks on.
fn first_disk(points: &[ProbePoint], looks: &[Looked], ticks: &[FileSample], early: Duration) -> Option<DeviceUse> {
    let until = ticks.first()?.seconds + early.as_secs_f64();
    let begun: Vec<FileSample> = ticks.iter().take_while(|tick| tick.seconds <= until).cloned().collect();
    looks.iter().find_map(|(at, probe, look)| {
        let (point, Look::Files(files, places)) = (&points[*at], look) else { return None };
        if !point.is_hosts_disk() {
            return None;
        }
        let figures = files.conclude(&point.subject, &own(&begun, places), &mut Vec::new()).ok()?;
        DeviceUse::of(&ProbeResult::here(point.subject.watched(), probe, figures))
    })
}

/// Of each tick the files in these places.
fn own(ticks: &[FileSample], places: &[usize]) -> Vec<FileSample> {
    let content = |tick: &FileSample, at: &usize| tick.contents.get(*at).cloned().unwrap_or_default();
    let of = |tick: &FileSample| FileSample {
        seconds: tick.seconds,
        contents: places.iter().map(|at| content(tick, at)).collect(),
    };
    ticks.iter().map(of).collect()
}

/// How each probe looks at each subject, and which files that takes on each machine.
fn looks(points: &[ProbePoint]) -> (Looks, BTreeMap<String, Paths>) {
    let mut looks = Vec::new();
    let mut machines: BTreeMap<String, Paths> = BTreeMap::new();
    for (at, point) in points.iter().enumerate() {
        for probe in ALL.iter().filter(|p| p.sees(&point.subject)) {
            let look = match probe.method() {
                ProbeMethod::Files(files) => {
                    let fresh = || Paths { node: point.node.clone(), all: Vec::new() };
                    let paths = machines.entry(point.name.clone()).or_insert_with(fresh);
                    Look::Files(files, files.paths(&point.subject).into_iter().map(|p| paths.place(p)).collect())
                }
                ProbeMethod::Command(by) => {
                    command::start(by, &point.subject, &point.node).map_or_else(Look::Failed, Look::Own)
                }
                ProbeMethod::Own(own) => own.start(&point.subject, &point.node).map_or_else(Look::Failed, Look::Own),
            };
            looks.push((at, probe.name(), look));
        }
    }
    (looks, machines)
}

/// Halts all probes, and gives each its own part of the ticks.
fn conclude(points: &[ProbePoint], mut looks: Looks, ticks: &BTreeMap<String, Vec<FileSample>>) -> Observed {
    for (.., look) in &mut looks {
        if let Look::Own(looking) = look {
            looking.halt();
        }
    }
    let mut all = Observed::default();
    if let Some([first, .., last]) = ticks.get("").or_else(|| ticks.values().next()).map(Vec::as_slice) {
        all.seconds = last.seconds - first.seconds;
    }
    for (at, probe, look) in looks {
        let ProbePoint { name, subject, .. } = &points[at];
        let found = match look {
            Look::Files(files, places) => {
                let ticks = ticks.get(name).map(Vec::as_slice).unwrap_or_default();
                files.conclude(subject, &own(ticks, &places), &mut all.notes)
            }
            Look::Own(looking) => looking.stop(&mut all.notes),
            Look::Failed(why) => Err(why),
        };
        match found {
            Ok(figures) => {
                let (node, units) = (name.clone(), units(probe, subject));
                all.seen.push(ProbeResult { node, units, ..ProbeResult::here(subject.watched(), probe, figures) });
            }
            Err(why) if matches!(subject, ProbeSubject::Disk(_)) && name.is_empty() => {
                all.not_visible = Some(why.to_string())
            }
            Err(why) => all.notes.push(format!("{probe}: {why}")),
        }
    }
    all
}

/// Units of the figures of a probe that the model does not know of that subject.
fn units(probe: &str, subject: &ProbeSubject) -> BTreeMap<String, Unit> {
    let known = subject.watched().figures();
    let declared = ALL.iter().filter(|p| p.name() == probe).flat_map(|p| p.figures(subject));
    let further = declared.filter(|figure| known.iter().all(|known| known.name != figure.name));
    further.map(|figure| (figure.name, figure.unit)).collect()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
