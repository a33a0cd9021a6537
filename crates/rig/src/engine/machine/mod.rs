//! The real machine under the measuring loop: targets, control group, guests, probes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use vmio_look::backing::Backing;
use vmio_model::cell::{Actor, Cell, Kind, Side};
use vmio_model::rate::ByteRate;
use vmio_model::result::{Environment, Sample, WorkloadTraits};
use vmio_model::study::plan::spans::hard_bytes;
use vmio_model::study::{MIB, Study};
use vmio_node::{Journal, Node};

use self::boot::{Running, Way};
use self::native::Natives;
pub use self::native::forecast as natives_forecast;
use self::net::PathKey;
pub use self::net::too_many as too_many_paths;
use self::observe::UNCAPPED;
pub use self::prepare::{MustStop, Parts};
use self::stage::Terms;
use super::afar::{Afar, Peer};
use super::environment;
use super::measure::Rig;
use crate::disks::modelled::Modelled;
use crate::disks::places::Health;
use crate::disks::targets::{self, Prepared};
use crate::engine::stop::StopCause;
use crate::engine::store::Store;
use crate::engine::watcher::Watcher;
use crate::image::Image;
use crate::limits::{self, Limits, Share};
use crate::nets::{Namespace, NetPath};
use crate::workloads::{self, Gentle};

mod boot;
mod inside;
mod links;
mod native;
mod net;
mod observe;
mod prepare;
mod settings;
mod stage;
#[cfg(test)]
mod tests;

/// Length of the probe that a cap of `--gentle` comes from.
const PROBE_SECONDS: f64 = 0.5;
/// How a target is written for steady state: in large requests from its start to its end (SNIA SSS
/// PTS, "workload independent preconditioning": 128 KiB sequential writes).
const PRECONDITION: &str = "seq-write-128k-d8";
/// Slowest rate at which that is expected to go on.
const PRECONDITION_LEAST_RATE: ByteRate = ByteRate::new(1 << 20);
/// Memory that QEMU may use beside the guest's.
const QEMU_OWN_MIB: u64 = 512;

/// What is there for the length of a run.
pub struct Machine<'a> {
    study: &'a Study,
    /// What its workloads are like.
    traits: &'a [WorkloadTraits],
    store: &'a dyn Store,
    run: i64,
    local: Arc<dyn Node>,
    journal: Arc<Journal>,
    targets: BTreeMap<String, Box<dyn Prepared>>,
    /// The disks below each target: with a device of the user's they are not the same.
    backings: BTreeMap<String, Backing>,
    /// The other machine, and the peer of the paths that lead to one.
    afar: Option<Afar>,
    peer: Option<Peer>,
    /// What native actors are held to.
    natives: Natives,
    /// `None` where the study has no guest.
    image: Option<Image>,
    run_dir: PathBuf,
    state_dir: PathBuf,
    environment: Environment,
    /// The guests that the cells need, with their disks.
    sides: BTreeMap<Side, Vec<Way>>,
    guests: BTreeMap<Side, Running>,
    /// The paths that cells work over.
    paths: BTreeMap<PathKey, NetPath>,
    /// The namespace that plays the host, where there are paths.
    bed: Option<Namespace>,
    /// `--gentle`: the share of the native speed that a workload may use, and the cap of each
    /// workload that was probed.
    cap_ratio: Option<f64>,
    caps: BTreeMap<String, Gentle>,
    /// Bytes written beside the cells.
    beside_bytes: u64,
    /// How much of its target a cell writes at most, by workload.
    spans: BTreeMap<String, u64>,
    /// Targets that lose their data when a cell writes to them.
    refilled: Vec<String>,
    qemu_limits: Option<Limits>,
    watcher: Option<Watcher>,
    /// Whether the storage answers and takes writes; `None` where no cell is on a disk.
    health: Option<Health>,
    /// The modelled disk that the targets lie on, where they do.
    modelled: Option<Modelled>,
    /// Why the run ends.
    stop: Option<StopCause>,
    progress: &'a dyn Fn(&str),
}

/// Cores and memory that QEMU has: all that vmio may use here, as a guest of the user's would have it; under
/// `--gentle` one core, and little memory beside that of the guests that run at the same time.
pub fn qemu_share(study: &Study, gentle: bool, local: &dyn Node) -> (u32, u64) {
    let memory = |side: &Side| u64::from(study.guest.of(side).memory_mib) + QEMU_OWN_MIB;
    match gentle {
        true => {
            (1, boot::sides(&study.cells()).keys().filter(|side| !side.shares_kernel()).map(memory).sum::<u64>() * MIB)
        }
        false => (limits::usable_cpus(local.reader()).unwrap_or(1), environment::memory_bytes(local)),
    }
}

impl Machine<'_> {
    /// Spares the other guests from now on: each workload is held to this share of what a short
    /// native probe of it reaches, QEMU to one core.
    pub fn be_gentle(&mut self, share: f64) -> anyhow::Result<()> {
        self.cap_ratio = Some(share);
        let (cores, memory_bytes) = qemu_share(self.study, true, &*self.local);
        self.hold_qemu(cores, memory_bytes);
        self.environment.cap_ratio = Some(share);
        self.store.set_environment(self.run, &self.environment)?;
        Ok(())
    }

    /// Puts QEMU into a control group of its own. Unless the run is gentle it has all of the host:
    /// a guest of the user's would have it too.
    fn hold_qemu(&mut self, cores: u32, memory_bytes: u64) {
        if self.sides.keys().all(Side::shares_kernel) {
            return;
        }
        if let Some(old) = self.qemu_limits.take() {
            let _ = old.remove(&self.journal);
        }
        let name = format!("vmio-{}-qemu", self.journal.cookie());
        match Limits::create(&*self.local, &self.journal, &name, &Share::of(cores, memory_bytes)) {
            Ok(limits) => {
                self.environment.qemu_limits = Some(limits.describe().to_owned());
                self.qemu_limits = Some(limits);
            }
            Err(why) => {
                self.environment.qemu_limits = Some(format!("not held: {why}"));
                (self.progress)(&format!("QEMU has no control group of its own: {why}"));
            }
        }
    }

    /// Counts bytes written beside the cells. Stored at once: a run that is taken up again knows nothing
    /// else of them.
    fn beside(&mut self, bytes: u64) -> anyhow::Result<()> {
        if bytes > 0 {
            self.beside_bytes += bytes;
            self.environment.written_beside_bytes = self.beside_bytes;
            self.store.set_environment(self.run, &self.environment)?;
        }
        Ok(())
    }

    /// How much of its target a writing workload goes over. Control cells have no span of their own in the
    /// plan: theirs is the largest of those that they explain.
    fn span_of(&self, workload: &str) -> u64 {
        let largest = || self.spans.values().copied().max().unwrap_or(u64::MAX);
        self.spans.get(workload).copied().unwrap_or_else(largest).min(self.study.target_bytes())
    }

    /// The caps of a cell's actors: each found by a short native run of its workload when it is first needed.
    fn caps_of(&mut self, cell: &Cell) -> anyhow::Result<Vec<Option<Gentle>>> {
        cell.actors().map(|actor| self.cap_of(actor)).collect()
    }

    fn cap_of(&mut self, actor: &Actor) -> anyhow::Result<Option<Gentle>> {
        let Some(share) = self.cap_ratio.filter(|_| actor.subject.is_disk() && !actor.side.is_afar()) else {
            return Ok(None);
        };
        let workload = &actor.workload;
        if let Some(&known) = self.caps.get(workload) {
            return Ok(Some(known));
        }
        let native = Cell::on(Kind::NATIVE.name, actor.target().unwrap_or_default(), None, workload);
        let terms = Terms { seconds: PROBE_SECONDS, most_bytes: None, caps: UNCAPPED };
        let probe = self.observe(&native, (0, 0), terms).context("the short probe for the cap failed")?;
        let work = probe.work();
        self.beside(work.write_bytes)?;
        let cap = crate::gentle::cap::cap(work.bandwidth(), share)?.bytes_per_second;
        (self.progress)(&format!("gentle: {workload} is held to {:.2} MB/s", cap.bytes() as f64 / 1e6));
        let gentle = Gentle { cap };
        self.caps.insert(workload.clone(), gentle);
        Ok(Some(gentle))
    }

    /// Writes over each target that cells of the group write to. The specification writes twice the device's capacity;
    /// making a target, and the workloads before, wrote it already.
    fn write_once_more(&mut self, group: &[Cell]) -> anyhow::Result<Option<StopCause>> {
        for target in self.study.preconditions(group, self.traits, &self.refilled) {
            if !self.targets.contains_key(&target) {
                continue;
            }
            if let Some(reason) = self.must_stop() {
                return Ok(Some(reason));
            }
            let mib = self.study.target_bytes() >> 20;
            (self.progress)(&format!("steady state: writing {mib} MiB over the target {target}"));
            let cell = Cell::on(Kind::NATIVE.name, &target, None, PRECONDITION);
            let caps = self.caps_of(&cell)?;
            let seconds = (self.study.target_bytes() / PRECONDITION_LEAST_RATE.bytes()).max(60) as f64;
            let terms = Terms { seconds, most_bytes: Some(u64::MAX), caps: &caps };
            let written = self.observe(&cell, (0, 0), terms).context("cannot write for steady state")?;
            self.beside(written.work().write_bytes)?;
        }
        Ok(None)
    }

    /// Ends the guests and takes away the targets and the control group. What fails here is
    /// undone by the journal.
    pub fn finish(mut self) {
        for (_, running) in std::mem::take(&mut self.guests) {
            let _ = running.guest.stop();
        }
        for (_, target) in std::mem::take(&mut self.targets) {
            if self.storage_failed() {
                // Even closing a file waits for a server that is gone; the journal removes with a limit.
                std::mem::forget(target);
                continue;
            }
            let journal = self.journal.clone();
            let _ = self.on_storage(move || target.remove(&journal));
        }
        if let Some(made) = self.modelled.take() {
            self.take_down(made);
        }
        if let Some(watcher) = &self.watcher {
            (self.progress)(&watcher.seen());
        }
        for limits in self.natives.into_values().flatten().chain(self.qemu_limits) {
            let _ = limits.remove(&self.journal);
        }
    }

    /// Takes the modelled disk down, and stores how well its model was kept.
    fn take_down(&mut self, made: Modelled) {
        let kept = match made.remove(&self.journal) {
            Ok(kept) => kept,
            // A signal has taken it down meanwhile.
            Err(_) if self.journal.is_closed() => return,
            Err(e) => {
                return (self.progress)(&format!("how well the modelled disk kept its model is not known: {e:#}"));
            }
        };
        let Some(disk) = &mut self.environment.modelled else { return };
        // A run that was taken up again has a disk for each of its parts.
        disk.kept = Some(disk.kept.unwrap_or_default().with(kept));
        if let Err(e) = self.store.set_environment(self.run, &self.environment) {
            (self.progress)(&format!("how well the modelled disk kept its model could not be stored: {e:#}"));
        }
    }

    /// Does something that sick storage could hold back for ever; then the run ends.
    fn on_storage<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> anyhow::Result<T> {
        let Some(health) = &self.health else { return Ok(work()) };
        health.during(work).map_err(|unwell| {
            self.stop_for(StopCause::StorageFailed(unwell.to_string()));
            unwell.into()
        })
    }

    /// Ends the run after this step. What befell first is told, unless the storage failed since.
    fn stop_for(&mut self, cause: StopCause) {
        if self.stop.is_none() || matches!(cause, StopCause::StorageFailed(_)) {
            self.stop = Some(cause);
        }
    }

    /// Whether what reaches the targets' storage may never return.
    fn storage_failed(&self) -> bool {
        matches!(self.stop, Some(StopCause::StorageFailed(_)))
    }

    /// Whatever a tool said of a step that failed: where the storage failed, that is why, and the run
    /// ends.
    fn find_stop_cause<T>(&mut self, done: anyhow::Result<T>) -> anyhow::Result<T> {
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
                    let unwell = self.health.as_ref().and_then(|health| health.look().err());
                    unwell.map(|unwell| StopCause::StorageFailed(unwell.to_string()))
                }
            };
            if let Some(cause) = cause {
                self.stop_for(cause);
            }
        }
        done
    }

    /// Does something with a target, as [`Machine::on_storage`]. Where the storage holds it back, the
    /// target stays with whoever hangs there.
    fn on_target<T: Send + 'static>(
        &mut self,
        name: &str,
        work: impl FnOnce(&mut dyn Prepared) -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let mut target = self.targets.remove(name).with_context(|| format!("target {name} is not there"))?;
        let (target, done) = self.on_storage(move || {
            let done = work(&mut *target);
            (target, done)
        })?;
        self.targets.insert(name.to_owned(), target);
        Ok(done)
    }
}

impl Rig for Machine<'_> {
    fn boot(&mut self, boot: u32) -> anyhow::Result<()> {
        let booted = self.boot_guests(boot);
        self.find_stop_cause(booted)
    }

    fn cell(&mut self, cell: &Cell, round: u32, boot: u32) -> anyhow::Result<Sample> {
        let measured = self.caps_of(cell).and_then(|caps| {
            let terms = Terms { seconds: self.study.repeat.seconds, most_bytes: None, caps: &caps };
            self.observe(cell, (round, boot), terms)
        });
        if measured.is_err() {
            self.look_for_peer(cell);
        }
        self.find_stop_cause(measured)
    }

    fn precondition(&mut self, group: &[Cell]) -> anyhow::Result<Option<StopCause>> {
        let written = self.write_once_more(group);
        match self.find_stop_cause(written) {
            Err(_) if self.stop.is_some() => Ok(self.stop.clone()),
            other => other,
        }
    }

    fn precondition_bytes(&self, group: &[Cell]) -> u64 {
        let targets = self.study.preconditions(group, self.traits, &self.refilled).len() as u64;
        targets * self.study.target_bytes()
    }

    fn written_beside(&self) -> u64 {
        self.beside_bytes
    }

    fn most_bytes(&self, cell: &Cell) -> u64 {
        let most = |actor: &Actor| {
            let Some(target) = actor.target() else { return 0 };
            if workloads::find(&actor.workload).is_some_and(|w| w.traits().writes()) {
                return hard_bytes(self.span_of(&actor.workload));
            }
            // A reading cell on a target that writing cells empty may have to write it out first.
            if self.refilled.iter().any(|r| r == target) { self.study.target_bytes() } else { 0 }
        };
        cell.actors().map(most).sum()
    }

    fn ending(&self) -> bool {
        self.journal.is_closed()
    }

    fn must_stop(&mut self) -> Option<StopCause> {
        self.stop.clone().or_else(|| self.watcher.as_mut()?.must_stop())
    }
}
