//! One cell: its actors made ready, the settings put, the workloads, the probes around them.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vmio_model::cell::{Actor, Cell, DetectZeroes};
use vmio_model::result::{DeviceUse, Foreign, Mark, Sample, WorkloadResult};

use super::Runner;
use super::links::Links;
use crate::disks::targets::{self, own_client};
use crate::engine::measure::Impossible;
use crate::engine::stage::settings::{self, Chosen};
use crate::engine::stage::warm::not_warm;
use crate::engine::stage::warming::Warmed;
use crate::engine::stage::{PreparedActor, RunLimits};
use crate::probes::{self, Observed, ProbePoint, Watch, foreign, power};
use crate::workloads::{self, Gentle, Serving};

/// Length of the look at the device before a cell.
const LOOK_BEFORE: Duration = Duration::from_millis(150);

/// Whether programs that are started do nothing at their disks until such a look is over: then the look is the first of
/// the watch itself.
fn start_quietly(actors: &[PreparedActor]) -> bool {
    actors.iter().all(|prepared| prepared.workload.quiet_start() >= LOOK_BEFORE)
}

/// Has clients of guests' own take note of what was set of their cards.
fn renew_clients(actors: &[PreparedActor]) -> anyhow::Result<()> {
    actors.iter().try_for_each(|prepared| {
        let renew = own_client::of(&prepared.actor).and_then(|client| client.renew);
        let end = prepared.workload.roles().last().and_then(|role| prepared.stage.ends.get(role.name));
        let device = end.and_then(|end| Some((end, end.path()?)));
        let (Some(renew), Some((end, device)), Some(card)) = (renew, device, &prepared.card) else { return Ok(()) };
        Ok(renew(&*end.node, device, &card.interface)?)
    })
}

impl Runner<'_> {
    /// Has the clients of disks of another host take note of what was set of the way there.
    fn renew(&mut self, actors: &[PreparedActor]) -> anyhow::Result<()> {
        renew_clients(actors)?;
        let by_host = actors.iter().map(|prepared| &prepared.actor).filter(|actor| targets::by_host_kernel(actor));
        for target in by_host.filter_map(Actor::target) {
            if self.bed.targets.made.get(target).is_some_and(|made| made.link().is_some()) {
                self.bed.on_target(target, |made| made.renew())??;
            }
        }
        Ok(())
    }

    /// What others do at the device: its counters for a moment before the cell.
    fn look_before(&self, points: &[ProbePoint]) -> anyhow::Result<Option<DeviceUse>> {
        let disks: Vec<ProbePoint> = points.iter().filter(|point| point.is_hosts_disk()).cloned().collect();
        if disks.is_empty() {
            return Ok(None);
        }
        let watch = Watch::start(disks)?;
        thread::sleep(LOOK_BEFORE);
        Ok(watch.stop()?.device())
    }

    /// Runs a cell with the probes around it.
    pub fn observe(&mut self, cell: &Cell, at: (u32, u32), limits: RunLimits<'_>) -> anyhow::Result<Sample> {
        let actors = self.stager().stage_all(cell, limits).map_err(|error| self.told_by_guest(error))?;
        let sample = self.run_actors(cell, at, actors, settings::chosen(cell)?);
        sample.map_err(|error| self.told_by_guest(error))
    }

    /// An error with what became of the guest whose agent is gone, whoever asked it.
    fn told_by_guest(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(vmio_node::Error::Gone { node, .. }) = error.downcast_ref() else { return error };
        match self.guests.values().find(|running| running.guest.node().name() == node) {
            Some(running) => anyhow::Error::new(running.guest.give_up(&format!("{error:#}"))),
            None => error,
        }
    }

    /// Runs actors that are ready. Whatever fails: what was set for them is taken back, and what they began with
    /// their disks is brought to its end.
    pub fn run_actors(
        &mut self,
        cell: &Cell,
        (round, boot): (u32, u32),
        actors: Vec<PreparedActor>,
        chosen: Vec<Chosen>,
    ) -> anyhow::Result<Sample> {
        let (actors, inside, entered) = self.stager().go_inside(actors)?;
        let actors = Arc::new(actors);
        if let Err(error) = entered {
            return Err(match self.stager().come_out(inside) {
                Err(left) => error.context(format!("{left:#}")),
                Ok(()) => error,
            });
        }
        let (mut put, set) = self.stager().put_settings(chosen, &actors)?;
        let (effective, differs) = (std::mem::take(&mut put.effective), std::mem::take(&mut put.marks));
        let warmed = if set.is_ok() { self.stager().warm(&actors) } else { Warmed::nothing(Ok(())) };
        let Warmed { holds, missed, done: warmed } = warmed;
        let renewed = if set.is_ok() { self.renew(&actors) } else { Ok(()) };
        let worked = set.and(renewed).and(warmed).and_then(|()| self.watch_actors(&actors));
        let not_warm = worked.as_ref().map(|worked| worked.not_warm(&actors)).unwrap_or_default();
        let (inside, counted) = if not_warm.is_empty() { (inside, Vec::new()) } else { self.stager().counted(inside) };
        let let_go = self.stager().let_go(holds);
        let taken_back = self.stager().take_back(put);
        let taken_back = taken_back.and(let_go).and(self.stager().come_out(inside));
        let mut settled = Ok(());
        if worked.is_ok() {
            for prepared in actors.iter() {
                settled = settled.and(self.settle(prepared));
            }
        }
        let Worked { before, started_unix, results, seen, lost } = match (worked, &taken_back) {
            // Another time it may go: a guest that is left with what was set is booted anew.
            (Err(error), Err(left)) if error.is::<Impossible>() => anyhow::bail!("{error:#}; and {left:#}"),
            (Err(error), Err(left)) => return Err(error.context(format!("{left:#}"))),
            (worked, _) => worked?,
        };
        let results = results.map_err(|(place, error)| {
            let prepared = &actors[place];
            let error = self.classify_failure(prepared, error);
            if actors.len() > 1 { error.context(prepared.actor.key()) } else { error }
        });
        // Whatever the programs made of it: their figures are not of the path that was meant.
        let results = match (lost, results) {
            (Some(lost), Ok(_)) => return Err(anyhow::anyhow!("{lost}: what it measured is not kept")),
            (Some(lost), Err(error)) => return Err(error.context(lost)),
            (None, results) => results?,
        };
        let with_command = |(prepared, result): (&PreparedActor, WorkloadResult)| WorkloadResult {
            command: prepared.command(result.command),
            ..result
        };
        let done: Vec<WorkloadResult> = actors.iter().zip(results).map(with_command).collect();
        let mut seen = seen?;
        self.unread = std::mem::take(&mut seen.notes);
        taken_back?;
        settled?;
        for (at, found) in &effective {
            self.bed.record.effective(at, found)?;
        }
        let (foreign, mut marks) = judge(&actors, &done, before.as_ref(), seen.device().as_ref());
        let longest =
            actors.iter().zip(&done).filter_map(|(prepared, result)| prepared.workload.disk()?.longest_seconds(result));
        marks.extend(foreign::stalled(longest, &seen.seen));
        marks.extend(foreign::processors(&seen.seen).into_iter().chain(differs));
        marks.extend(power::unmetered(actors.iter().flat_map(|prepared| &prepared.probe_points), &seen.seen));
        let lags = |(prepared, result): (&PreparedActor, &WorkloadResult)| {
            prepared.workload.disk().is_some_and(|disk| disk.is_saturated(result))
        };
        marks.extend(actors.iter().zip(&done).any(lags).then_some(Mark::Saturated));
        if !not_warm.is_empty() {
            not_warm.iter().chain(&missed).chain(&counted).for_each(|line| (self.bed.progress)(line));
            marks.push(Mark::NotWarm);
        }
        let mut done = done.into_iter();
        let result = done.next().unwrap_or_default();
        let (cell, co_runners) = (cell.clone(), done.collect());
        Ok(Sample { cell, round, boot, started_unix, result, beside: co_runners, seen: seen.seen, foreign, marks })
    }

    /// The work itself, with the probes around it.
    fn watch_actors(&mut self, actors: &Arc<Vec<PreparedActor>>) -> anyhow::Result<Worked> {
        let points = probes::each_once(actors.iter().flat_map(|prepared| prepared.probe_points.clone()));
        let links = Links::of(actors);
        if let Some(down) = links.down() {
            let why = format!("the link {down} of its path is down, in a network namespace of vmio: run it again");
            return Err(Impossible(why).into());
        }
        let quiet = start_quietly(actors);
        let before = if quiet { None } else { self.look_before(&points)? };
        let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let watch = Watch::start(points)?;
        let at_work = Arc::clone(actors);
        let results = self.bed.on_storage(move || perform(&at_work))?;
        let (before, seen) = match watch.stop_apart(LOOK_BEFORE) {
            Ok((begun, seen)) => (before.or(begun.filter(|_| quiet)), Ok(seen)),
            Err(lost) => (before, Err(lost)),
        };
        Ok(Worked { before, started_unix, results, seen, lost: links.lost(&Links::of(actors)) })
    }

    /// What is still to be done with an actor's disk after its work.
    fn settle(&mut self, prepared: &PreparedActor) -> anyhow::Result<()> {
        let (Some(target), Some(disk)) = (prepared.actor.target(), &prepared.disk) else { return Ok(()) };
        let Some(asked) = prepared.actor.attachment().cloned() else { return Ok(()) };
        if disk.circumstances.host_cache {
            let asked = asked.clone();
            // Where it fails, the next cell shows what is still written as foreign load.
            let _ = self.bed.on_target(target, move |t| t.settle(&asked))?;
        }
        let frees = asked.options.discard || asked.options.detect_zeroes != DetectZeroes::Off;
        if let Some(target) = self.bed.targets.made.get_mut(target).filter(|_| disk.traits.writes && frees) {
            target.mark_dirty(&asked);
        }
        Ok(())
    }

    /// The error of a failed workload, with its cause: the guest is gone, or the server of its disk.
    fn classify_failure(&mut self, prepared: &PreparedActor, error: workloads::Error) -> anyhow::Error {
        let failed = match error {
            workloads::Error::Node(gone @ vmio_node::Error::Gone { .. }) => self.told_by_guest(gone.into()),
            error => error.into(),
        };
        let target = prepared.actor.target().and_then(|target| self.bed.targets.made.get_mut(target));
        match (own_client::asked_by(&prepared.actor), target) {
            // Whatever the guest made of it: a server that is gone is the cause.
            (Some(asked), Some(target)) => match target.sound(&asked) {
                Ok(()) => failed,
                Err(gone) => anyhow::anyhow!("{gone}; in the guest: {failed:#}"),
            },
            _ => failed,
        }
    }
}

/// What came of the work of a cell's actors.
struct Worked {
    before: Option<DeviceUse>,
    started_unix: f64,
    /// By actor; or the place of the first that failed, and why.
    results: Result<Vec<WorkloadResult>, (usize, workloads::Error)>,
    seen: vmio_node::Result<Observed>,
    /// The link that did not stay up.
    lost: Option<String>,
}

impl Worked {
    /// What shows that other places served actors than were to serve them, in words.
    fn not_warm(&self, actors: &[PreparedActor]) -> Vec<String> {
        match (&self.results, &self.seen) {
            (Ok(done), Ok(seen)) => not_warm(actors, done, &seen.seen),
            _ => Vec::new(),
        }
    }
}

/// Runs the actors, each from its start on, and waits for all of them: one that fails ends none of the others. What
/// serves any of them is ready before the first begins.
///
/// # Errors
/// The first that failed, by its place, and why.
pub fn perform(actors: &[PreparedActor]) -> Result<Vec<WorkloadResult>, (usize, workloads::Error)> {
    let mut serving = Vec::new();
    for (place, prepared) in actors.iter().enumerate() {
        serving.push(guarded(prepared, || prepared.workload.start_servers(&prepared.stage)).map_err(|e| (place, e))?);
    }
    let run = |prepared: &PreparedActor, serving: Serving| {
        thread::sleep(prepared.actor.start.duration());
        guarded(prepared, || prepared.workload.run_served(&prepared.stage, serving))
    };
    if let ([prepared], Some(only)) = (actors, serving.pop_if(|_| actors.len() == 1)) {
        return run(prepared, only).map(|result| vec![result]).map_err(|e| (0, e));
    }
    let results: Vec<workloads::Result<WorkloadResult>> = thread::scope(|scope| {
        let started = |(prepared, serving)| {
            (prepared, thread::Builder::new().spawn_scoped(scope, move || run(prepared, serving)))
        };
        let running: Vec<_> = actors.iter().zip(serving).map(started).collect();
        let ended = |(prepared, thread): (&PreparedActor, io::Result<thread::ScopedJoinHandle<'_, _>>)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(broke(prepared))),
            Err(e) => Err(unfit(prepared, format!("the system gives vmio no thread: {e}"))),
        };
        running.into_iter().map(ended).collect()
    });
    results.into_iter().enumerate().map(|(place, result)| result.map_err(|e| (place, e))).collect()
}

/// A fault of a workload's own costs its cell, not the run, and leaves nothing of the others as it is.
fn guarded<T>(prepared: &PreparedActor, work: impl FnOnce() -> workloads::Result<T>) -> workloads::Result<T> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(broke(prepared)))
}

fn broke(prepared: &PreparedActor) -> workloads::Error {
    unfit(prepared, "vmio stopped in the middle of it, which is a bug in vmio: please report it".into())
}

fn unfit(prepared: &PreparedActor, reason: String) -> workloads::Error {
    workloads::Error::Unfit { workload: prepared.actor.workload.clone(), reason }
}

/// Foreign work at the disk, and words of caution. Of several actors at one disk nobody's own share can be told.
fn judge(
    actors: &[PreparedActor],
    results: &[WorkloadResult],
    before: Option<&DeviceUse>,
    during: Option<&DeviceUse>,
) -> (Foreign, Vec<Mark>) {
    let on_disks: Vec<_> =
        actors.iter().zip(results).filter_map(|(prepared, r)| Some((prepared, prepared.disk.as_ref()?, r))).collect();
    match on_disks.as_slice() {
        [] => (Foreign::default(), Vec::new()),
        [(prepared, disk, result)] => {
            let work = result.disk_work();
            let foreign = foreign::foreign(&disk.traits, disk.circumstances, &work, before, during);
            let mut marks = foreign::marks(&disk.traits, &work, during, &foreign);
            // Of what a page cache is to serve it is no caution that one did.
            marks.retain(|mark| prepared.warm.is_none() || *mark != Mark::Cached);
            (foreign, marks)
        }
        _ => (Foreign::default(), during.is_none().then_some(Mark::NotVisible).into_iter().collect()),
    }
}

/// No caps.
pub const UNCAPPED: &[Option<Gentle>] = &[];
