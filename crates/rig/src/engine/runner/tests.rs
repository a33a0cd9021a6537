//! Cells of made-up workloads under made-up settings, on a made-up machine.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vmio_model::cell::{Millis, Settings, Side, Subject};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::read_at::ReadAt;
use vmio_model::result::{Environment, Skipped, Watched, WorkloadResult, WorkloadTraits};
use vmio_model::study::{Names, Study, SubjectKind, WordError};
use vmio_node::fake::Fake;
use vmio_node::{Journal, Node};

use super::*;
use crate::engine::bed::net::Paths;
use crate::engine::bed::{Record, Targets};
use crate::engine::stage::PreparedActor;
use crate::engine::stage::settings::Chosen;
use crate::engine::store::Store;
use crate::limits;
use crate::nodes::{Machine, Nodes};
use crate::probes::ProbeSubject;
use crate::settings::{Error, Fit, Setting, Undos, Where};
use crate::workloads::{At, ResolvedWorkload, Role, Stage, Wants, Workload};

mod hypervisor;
mod rest;
mod servers;
mod settings;
mod warm;

/// What happened, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// A run's memory.
#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, BTreeMap<String, String>>>);

impl Store for Memory {
    fn add_sample(&self, _: i64, _: &Sample) -> anyhow::Result<()> {
        Ok(())
    }
    fn add_skipped(&self, _: i64, _: &Skipped) -> anyhow::Result<()> {
        Ok(())
    }
    fn set_environment(&self, _: i64, _: &Environment) -> anyhow::Result<()> {
        Ok(())
    }
    fn add_effective(&self, _: i64, at: &ReadAt, settings: &BTreeMap<String, String>) -> anyhow::Result<()> {
        self.0.lock().unwrap().insert(at.to_string(), settings.clone());
        Ok(())
    }
}

/// A server and a client on the machine itself.
const ROLES: &[Role] = {
    const fn role(name: &'static str) -> Role {
        Role { name, wants: Wants::Nothing, programs: &["made-up"], requirements: &[] }
    }
    &[role("server"), role("client")]
};

fn judged_by_speed(name: &str) -> WorkloadTraits {
    let figures = vec![Figure::rate("speed", Unit::OperationsPerSecond)];
    WorkloadTraits { name: name.into(), figures, judged_by: "speed".into(), disk: None, group: None }
}

/// A workload on the machine itself.
struct Work {
    name: &'static str,
    log: Log,
    takes: Duration,
    how: How,
}

#[derive(Clone, Copy)]
enum How {
    Well,
    Badly,
    Panics,
    /// The machine that it works on is gone.
    Dies,
}

impl Workload for Work {
    fn about(&self) -> &str {
        "made up"
    }
    fn traits(&self) -> WorkloadTraits {
        judged_by_speed(self.name)
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Machine
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn run(&self, stage: &Stage) -> workloads::Result<WorkloadResult> {
        let told = |what: &str| self.log.lock().unwrap().push(format!("{} {what}", self.name));
        told("begins");
        std::thread::sleep(self.takes);
        told("ends");
        assert!(!matches!(self.how, How::Panics), "{} panics", self.name);
        match self.how {
            How::Dies => {
                let node = stage.end("client")?.node.name().to_owned();
                Err(vmio_node::Error::Gone { node, reason: "the stream ended".into() }.into())
            }
            How::Badly => Err(workloads::Error::Unfit { workload: self.name.into(), reason: "it is made so".into() }),
            _ => Ok(WorkloadResult {
                seconds: stage.seconds,
                figures: vec![Reading::scalar("speed", 3.0)],
                command: "made-up".into(),
                ..WorkloadResult::default()
            }),
        }
    }
}

/// A setting of the workloads with this letter in their names; `none` is refused, `half` is when something of it is
/// set, `bad` is not in force, `stuck` cannot be undone.
struct Made(&'static str, Log);

impl Setting for Made {
    fn name(&self) -> &'static str {
        self.0
    }
    fn about(&self) -> &'static str {
        "made up"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["good"]
    }
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| Ok(text.to_owned())
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        if actor.workload.contains(self.0) { Fit::Sets } else { Fit::Nothing("it is not of that letter".into()) }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> crate::settings::Result<String> {
        let what = format!("{}={value} for {}", self.0, on.actor.workload);
        match value {
            "none" => return Err(Error::Refused("not here".into())),
            "bad" => return Err(Error::NotAsAsked { asked: value.into(), found: "good".into() }),
            _ => self.1.lock().unwrap().push(format!("set {what}")),
        }
        let (log, stuck) = (self.1.clone(), ["stuck", "half"].contains(&value));
        let undo = move |_: &Journal| {
            log.lock().unwrap().push(format!("undo {what}"));
            if stuck { Err(Error::Refused("it sticks".into())) } else { Ok(()) }
        };
        if on.actor.side.is_native() {
            undos.on_host(undo)
        } else {
            undos.in_guest(undo)
        }
        match value {
            "half" => Err(Error::Refused("half of it".into())),
            _ => Ok(format!("{value}!")),
        }
    }
}

/// A study of the native machine alone.
pub fn study() -> Study {
    let text = "name = 'x'\ntitle = 'x'\nguest = { vcpus = 1, memory_mib = 256 }\n\
                repeat = { min_pairs = 2, max_pairs = 2, min_boots = 1, half_width = 0.05, seconds = 1.0, max_minutes = 1.0 }\n\
                [[matrix]]\nsides = ['native']\nmachine = true\nworkloads = ['a']\n";
    let workload = vmio_model::study::WorkloadName { name: "a".into(), works_on: SubjectKind::Machine };
    let names = Names { guests: vec!["native".into()], workloads: vec![workload], ..Names::default() };
    Study::parse("x.toml", text, &names).unwrap()
}

/// What a made-up run is of.
struct House {
    study: Study,
    memory: Memory,
    journal: Arc<Journal>,
    node: Arc<dyn Node>,
    log: Log,
    _dir: tempfile::TempDir,
}

impl House {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            study: study(),
            memory: Memory::default(),
            journal: Arc::new(Journal::open(&dir.path().join("journal"), "test").unwrap()),
            node: Arc::new(Fake::new("fake").file("/proc/stat", "cpu  100 0 0 0 0 0 0 0 0 0\n")),
            log: Log::default(),
            _dir: dir,
        }
    }

    fn bed(&self) -> Bed<'_> {
        Bed {
            study: &self.study,
            traits: &[],
            record: Record { store: &self.memory, run: 1, environment: Environment::default() },
            local: self.node.clone(),
            journal: self.journal.clone(),
            nodes: Nodes::from(Machine::host(self.node.clone())),
            targets: Targets::default(),
            paths: Paths::default(),
            meters: Vec::new(),
            natives: BTreeMap::from([(Side::native(), Err(limits::Error::Exists("not here".into())))]),
            sides: BTreeMap::new(),
            hypervisors: None,
            image: None,
            run_dir: PathBuf::new(),
            state_dir: PathBuf::new(),
            watcher: None,
            stop: None,
            progress: &|_| {},
        }
    }

    fn runner(&self) -> Runner<'_> {
        Runner::on(self.bed())
    }

    /// An actor that is ready, on the machine itself.
    fn prepared(
        &self,
        runner: &mut Runner<'_>,
        name: &'static str,
        start_ms: u32,
        takes_ms: u64,
        how: How,
    ) -> PreparedActor {
        self.prepared_of(
            runner,
            start_ms,
            Work { name, log: self.log.clone(), takes: Duration::from_millis(takes_ms), how },
        )
    }

    /// The same of any workload.
    fn prepared_of(&self, runner: &mut Runner<'_>, start_ms: u32, work: impl Workload + 'static) -> PreparedActor {
        self.prepared_on(runner, &Side::native(), start_ms, work)
    }

    /// The same on any side.
    fn prepared_on(
        &self,
        runner: &mut Runner<'_>,
        side: &Side,
        start_ms: u32,
        work: impl Workload + 'static,
    ) -> PreparedActor {
        let lead = Cell::of(side.clone(), Subject::Machine, &work.traits().name).lead;
        let actor = Actor { start: Millis(start_ms), ..lead };
        runner.stager().on_machine(&actor, ResolvedWorkload::Entry(Box::leak(Box::new(work))), 0.5).unwrap()
    }

    fn set(&self, name: &'static str) -> &'static Made {
        Box::leak(Box::new(Made(name, self.log.clone())))
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

/// The cell of actors that are ready.
fn cell_of(actors: &[PreparedActor], settings: Settings) -> Cell {
    let mut actors = actors.iter().map(|prepared| prepared.actor.clone());
    Cell { lead: actors.next().unwrap(), beside: actors.collect(), settings }
}

fn run(
    runner: &mut Runner<'_>,
    actors: Vec<PreparedActor>,
    chosen: &[(&'static Made, &str)],
) -> anyhow::Result<Sample> {
    let chosen: Vec<Chosen> = chosen.iter().map(|(setting, value)| (*setting as _, (*value).to_owned())).collect();
    let settings = chosen.iter().map(|(setting, value)| (setting.name().to_owned(), value.clone())).collect();
    let cell = cell_of(&actors, settings);
    runner.run_actors(&cell, (3, 1), actors, chosen)
}

#[test]
fn an_actor_on_the_machine_itself_needs_no_disk() {
    let house = House::new();
    let mut runner = house.runner();
    let prepared = house.prepared(&mut runner, "a", 0, 1, How::Well);
    let at = |role: &str| prepared.stage.end(role).unwrap().at.clone();
    assert_eq!((at("client"), at("server")), (At::Nothing, At::Nothing));
    assert_eq!(prepared.stage.end("client").unwrap().exec_base.oom_score_adj, Some(limits::OOM_SCORE_ADJ));
    let sample = run(&mut runner, vec![prepared], &[]).unwrap();
    assert_eq!((sample.cell.key().as_str(), sample.round, sample.boot), ("machine/native/a", 3, 1));
    assert_eq!((sample.result.figure("speed"), sample.result.seconds), (Some(3.0), 0.5));
    let seen: Vec<_> = sample.seen.iter().map(|s| (s.watched.clone(), s.probe.as_str())).collect();
    assert_eq!(seen, [(Watched::Processors, "cpu")]);
    assert_eq!((sample.device(), sample.marks.len(), sample.beside.len()), (None, 0, 0));
    assert_eq!(runner.written_beside() + runner.most_bytes(&sample.cell), 0, "nothing is written");
}

#[test]
fn what_tells_power_is_watched_with_each_actor_of_this_host() {
    let house = House::new();
    let mut runner = house.runner();
    let meter = ProbeSubject::Meter { command: "meter".into() };
    runner.bed.meters.push(meter.clone());
    let prepared = house.prepared(&mut runner, "a", 0, 1, How::Well);
    assert_eq!(prepared.probe_points.iter().filter(|point| point.subject == meter).count(), 1);
}

#[test]
fn what_could_not_be_read_is_told_once() {
    let house = House::new();
    let told = Mutex::new(Vec::new());
    let progress = |what: &str| told.lock().unwrap().push(what.to_owned());
    let mut runner = Runner::on(Bed { progress: &progress, ..house.bed() });
    // The made-up machine has no shell.
    runner.bed.meters.push(ProbeSubject::Meter { command: "meter".into() });
    for _ in 0..2 {
        let prepared = house.prepared(&mut runner, "a", 0, 1, How::Well);
        run(&mut runner, vec![prepared], &[]).unwrap();
        runner.tell_unread();
    }
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|note| note.starts_with("power-command: ")).count(), 1, "{told:?}");
}

#[test]
fn actors_work_at_the_same_time_each_from_its_start_on() {
    // A machine that stands still for half a second may exchange two of them, though not each time.
    let mut tries = 1;
    while let Err(told) = worked_in_order() {
        assert!(tries < 5, "{told:?}");
        tries += 1;
    }
}

/// Three at the same time; an error is what they told in another order than that of their times.
fn worked_in_order() -> Result<(), Vec<String>> {
    let house = House::new();
    let mut runner = house.runner();
    let actors = vec![
        house.prepared(&mut runner, "a", 0, 1000, How::Well),
        house.prepared(&mut runner, "b", 400, 1200, How::Well),
        house.prepared(&mut runner, "c", 0, 1, How::Well),
    ];
    let began = Instant::now();
    let sample = run(&mut runner, actors, &[]).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1600), "all are waited for");
    assert_eq!(sample.cell.key(), "machine/native/a & machine/native/b@0.4s & machine/native/c");
    assert_eq!((sample.beside.len(), sample.results().count()), (2, 3));
    assert_eq!(sample.seen.len(), 1, "the processors are watched once");
    let told = house.told();
    let at = |what: &str| told.iter().position(|t| t == what).unwrap();
    let in_order = at("c ends") < at("b begins") && at("b begins") < at("a ends") && at("a ends") < at("b ends");
    if in_order { Ok(()) } else { Err(told) }
}

#[test]
fn when_one_actor_fails_the_others_come_to_their_end() {
    for how in [How::Badly, How::Panics] {
        let house = House::new();
        let mut runner = house.runner();
        let actors =
            vec![house.prepared(&mut runner, "a", 0, 300, How::Well), house.prepared(&mut runner, "b", 0, 1, how)];
        let setting = house.set("a");
        let error = run(&mut runner, actors, &[(setting, "good")]).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.starts_with("machine/native/b: b cannot run here"), "whose it was: {said}");
        let told = house.told();
        assert_eq!(told.last().unwrap(), "undo a=good for a", "{told:?}");
        assert!(told.contains(&"a ends".to_owned()), "{told:?}");
        assert_eq!(runner.must_stop(), None, "one cell failed, not the run");
        assert!(house.memory.0.lock().unwrap().is_empty());
    }
    // Alone, too, a fault of a workload's is its cell's.
    let house = House::new();
    let mut runner = house.runner();
    let actors = vec![house.prepared(&mut runner, "a", 0, 1, How::Panics)];
    let said = run(&mut runner, actors, &[]).unwrap_err().to_string();
    assert!(said.contains("a cannot run here: vmio stopped in the middle of it"), "{said}");
}
