//! What is there for the length of a run: made before the first cell ([`prepare`]), taken down after the last. Why the
//! run has to end is known here: mostly it is the storage that the targets lie on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use vmio_look::backing::Backing;
use vmio_model::cell::Side;
use vmio_model::read_at::ReadAt;
use vmio_model::result::{Environment, WorkloadTraits};
use vmio_model::study::Study;
use vmio_node::{Journal, Node};

use self::native::Natives;
use self::net::Paths;
use self::sides::DiskKey;
use crate::disks::modelled::Modelled;
use crate::disks::places::Health;
use crate::disks::targets::{self, Prepared};
use crate::engine::stop::StopCause;
use crate::engine::store::Store;
use crate::engine::watcher::Watcher;
use crate::image::Image;
use crate::limits::Limits;
use crate::nodes::Nodes;
use crate::probes::ProbeSubject;

pub mod native;
pub mod net;
pub mod prepare;
pub mod sides;

/// What is there for the length of a run.
pub struct Bed<'a> {
    pub study: &'a Study,
    /// What its workloads are like.
    pub traits: &'a [WorkloadTraits],
    pub record: Record<'a>,
    /// This host.
    pub local: Arc<dyn Node>,
    pub journal: Arc<Journal>,
    /// This host, the guests that run now, and the other machines.
    pub nodes: Nodes,
    pub targets: Targets,
    pub paths: Paths,
    /// What native actors and containers are held to.
    pub natives: Natives,
    /// What the power of this host is read from.
    pub meters: Vec<ProbeSubject>,
    /// The guests that the cells need, with their disks.
    pub sides: BTreeMap<Side, Vec<DiskKey>>,
    /// What their hypervisors are held to.
    pub hypervisors: Option<Limits>,
    /// `None` where the study has no guest.
    pub image: Option<Image>,
    pub run_dir: PathBuf,
    pub state_dir: PathBuf,
    pub watcher: Option<Watcher>,
    /// Why the run ends.
    pub stop: Option<StopCause>,
    pub progress: &'a dyn Fn(&str),
}

/// What is stored of the run besides its samples.
pub struct Record<'a> {
    pub store: &'a dyn Store,
    pub run: i64,
    pub environment: Environment,
}

impl Record<'_> {
    /// Stores the environment as it is known now.
    pub fn keep(&self) -> anyhow::Result<()> {
        self.store.set_environment(self.run, &self.environment)
    }

    /// Stores settings as they were read back.
    pub fn effective(&self, at: &ReadAt, found: &BTreeMap<String, String>) -> anyhow::Result<()> {
        self.store.add_effective(self.run, at, found)
    }

    /// Counts bytes written outside of the measured cells. Stored at once: a resumed run knows of them by this alone.
    pub fn record_extra_writes(&mut self, bytes: u64) -> anyhow::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.environment.written_beside_bytes += bytes;
        self.keep()
    }
}

/// The targets, and what they lie on.
#[derive(Default)]
pub struct Targets {
    pub made: BTreeMap<String, Box<dyn Prepared>>,
    /// The disks below each: with a device of the user's they are not the same.
    pub backings: BTreeMap<String, Backing>,
    /// How much of its target a cell writes at most, by workload.
    pub spans: BTreeMap<String, u64>,
    /// Those that lose their data when a cell writes to them.
    pub refilled: Vec<String>,
    /// Whether the storage answers and takes writes; `None` where no cell is on a disk.
    pub health: Option<Health>,
    /// The modelled disk that they lie on, where they do.
    pub modelled: Option<Modelled>,
}

impl Bed<'_> {
    /// How much of its target a writing workload goes over. Control cells have no span of their own in the
    /// plan: theirs is the largest of those that they explain.
    pub fn span_of(&self, workload: &str) -> u64 {
        let spans = &self.targets.spans;
        let largest = || spans.values().copied().max().unwrap_or(u64::MAX);
        spans.get(workload).copied().unwrap_or_else(largest).min(self.study.target_bytes())
    }

    /// Does something that sick storage could hold back for ever; then the run ends.
    pub fn on_storage<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        let Some(health) = &self.targets.health else { return Ok(work()) };
        health.during(work).map_err(|unwell| {
            self.stop_for(StopCause::StorageFailed(unwell.to_string()));
            unwell.into()
        })
    }

    /// Does something with a target, as [`Bed::on_storage`]. Where the storage holds it back, the
    /// target stays with whoever hangs there.
    pub fn on_target<T: Send + 'static>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut dyn Prepared) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let mut target = self.targets.made.remove(name).with_context(|| format!("target {name} is not there"))?;
        let (target, done) = self.on_storage(move || {
            let done = work(&mut *target);
            (target, done)
        })?;
        self.targets.made.insert(name.to_owned(), target);
        Ok(done)
    }

    /// Ends the run after this step. What befell first is told, unless the storage failed since.
    pub fn stop_for(&mut self, cause: StopCause) {
        if self.stop.is_none() || matches!(cause, StopCause::StorageFailed(_)) {
            self.stop = Some(cause);
        }
    }

    /// A reason to end the run now.
    pub fn must_stop(&mut self) -> Option<StopCause> {
        self.stop.clone().or_else(|| self.watcher.as_mut()?.must_stop())
    }

    /// Whether what reaches the targets' storage may never return.
    pub fn storage_failed(&self) -> bool {
        matches!(self.stop, Some(StopCause::StorageFailed(_)))
    }

    /// Whatever a tool said of a step that failed: where the storage failed, that is why, and the run
    /// ends.
    pub fn find_stop_cause<T>(&mut self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        if let Err(e) = &done
            && !self.storage_failed()
        {
            let cause = match e.downcast_ref() {
                // A place without room for this cell has none for the others.
                Some(place @ targets::Error::Place { .. }) => Some(StopCause::StorageFailed(place.to_string())),
                Some(replaced @ targets::Error::Exchanged { .. }) => {
                    Some(StopCause::ObjectReplaced(replaced.to_string()))
                }
                _ => {
                    let unwell = self.targets.health.as_ref().and_then(|health| health.look().err());
                    unwell.map(|unwell| StopCause::StorageFailed(unwell.to_string()))
                }
            };
            if let Some(cause) = cause {
                self.stop_for(cause);
            }
        }
        done
    }

    /// Takes away the targets and the control groups. What fails here is undone by the journal.
    pub fn take_down(mut self) {
        for (_, target) in std::mem::take(&mut self.targets.made) {
            if self.storage_failed() {
                // Even closing a file waits for a server that is gone; the journal removes with a limit.
                std::mem::forget(target);
                continue;
            }
            let journal = self.journal.clone();
            let _ = self.on_storage(move || target.remove(&journal));
        }
        if let Some(made) = self.targets.modelled.take() {
            self.take_down_modelled(made);
        }
        if let Some(watcher) = &self.watcher {
            (self.progress)(&watcher.seen());
        }
        for limits in self.natives.into_values().flatten().chain(self.hypervisors) {
            let _ = limits.remove(&self.journal);
        }
    }

    /// Takes the modelled disk down, and stores how well its model was kept.
    fn take_down_modelled(&mut self, made: Modelled) {
        let kept = match made.remove(&self.journal) {
            Ok(kept) => kept,
            // A signal has taken it down meanwhile.
            Err(_) if self.journal.is_closed() => return,
            Err(e) => {
                return (self.progress)(&format!("how well the modelled disk kept its model is not known: {e:#}"));
            }
        };
        let Some(disk) = &mut self.record.environment.modelled else { return };
        // A run that was taken up again has a disk for each of its parts.
        disk.kept = Some(disk.kept.unwrap_or_default().with(kept));
        if let Err(e) = self.record.keep() {
            (self.progress)(&format!("how well the modelled disk kept its model could not be stored: {e:#}"));
        }
    }
}
