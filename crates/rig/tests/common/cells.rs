//! A whole run by the engine, kept in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use vmio_model::read_at::ReadAt;
use vmio_model::result::{Environment, RunState, Sample, Skipped};
use vmio_model::run::Run;
use vmio_model::study::{self, DoneReason, Progress, Step, Study};
use vmio_node::{Journal, Local};
use vmio_rig::engine::measure::{Event, Next};
use vmio_rig::engine::plan::{self, PlanOptions, Planned};
use vmio_rig::engine::store::Store;
use vmio_rig::engine::{self, Job, environment};

/// Both sides' resources and so few rounds as there may be; what disks need besides, where a cell is on one.
fn head(on_disks: bool) -> String {
    // What serves networks counts in whole seconds.
    let (size, seconds, most) =
        if on_disks { ("size = { target_mib = 640 }\n", 0.5, ", max_gib_written = 16.0") } else { ("", 1.0, "") };
    format!(
        "name = 'cells'\ntitle = 'cells'\nguest = {{ vcpus = 1, memory_mib = 256 }}\n{size}\
         repeat = {{ min_pairs = 2, max_pairs = 2, min_boots = 1, half_width = 0.05, seconds = {seconds:?}, max_minutes = 5.0{most} }}\n"
    )
}

#[derive(Default)]
struct Memory {
    effective: RefCell<BTreeMap<String, BTreeMap<String, String>>>,
    environment: RefCell<Option<Environment>>,
}

impl Store for Memory {
    fn add_sample(&self, _: i64, _: &Sample) -> anyhow::Result<()> {
        Ok(())
    }
    fn add_skipped(&self, _: i64, _: &Skipped) -> anyhow::Result<()> {
        Ok(())
    }
    fn set_environment(&self, _: i64, environment: &Environment) -> anyhow::Result<()> {
        *self.environment.borrow_mut() = Some(environment.clone());
        Ok(())
    }
    fn add_effective(&self, _: i64, at: &ReadAt, settings: &BTreeMap<String, String>) -> anyhow::Result<()> {
        self.effective.borrow_mut().insert(at.to_string(), settings.clone());
        Ok(())
    }
}

/// What a run of this study would be.
pub fn planned(text: &str, place: &Path, state: &Path) -> Planned {
    let on_disks = text.contains("disk");
    let study = Study::parse("cells.toml", &format!("{}{text}", head(on_disks)), &vmio_rig::names()).unwrap();
    let options = PlanOptions {
        on: on_disks.then(|| place.display().to_string()),
        no_gentle: true,
        state_dir: state.to_owned(),
        ..PlanOptions::default()
    };
    plan::look(study, &options, None, &Local::new()).unwrap()
}

/// Runs it; `told` hears what happens.
pub fn measure(planned: &Planned, state: &Path, journal: &Arc<Journal>, told: &mut dyn FnMut(&Event<'_>)) -> Run {
    measure_by(study::next, planned, state, journal, told)
}

/// The study's order, to the end of its first round: a study has two at least.
pub fn one_round(study: &Study, progress: &Progress<'_>) -> Step {
    match study::next(study, progress) {
        Step::Run { round: 1.., .. } => Step::Done(DoneReason::FewestRounds),
        step => step,
    }
}

/// Runs it in this order.
pub fn measure_by(
    next: Next,
    planned: &Planned,
    state: &Path,
    journal: &Arc<Journal>,
    told: &mut dyn FnMut(&Event<'_>),
) -> Run {
    planned.refuse().unwrap();
    let memory = Memory::default();
    let mut run = Run {
        id: 1,
        kind: planned.study.name.as_str().into(),
        study: planned.study.clone(),
        command: Vec::new(),
        started_unix: 0.0,
        state: RunState::Running,
        environment: environment::of(planned, &Local::new()),
        workloads: planned.traits.clone(),
        effective: BTreeMap::new(),
        samples: Vec::new(),
        skipped: planned.skipped(),
    };
    // Sockets need a short path.
    let sockets = tempfile::tempdir().unwrap();
    let job = Job {
        planned,
        next,
        gentle_share: 0.25,
        force: false,
        run_dir: &sockets.path().join("r"),
        state_dir: state,
        store: &memory,
        journal,
        say: |_| {},
    };
    engine::run(&job, &mut run, &mut |event| told(&event)).unwrap();
    run.effective = memory.effective.into_inner();
    run.environment = memory.environment.into_inner().unwrap();
    run
}
