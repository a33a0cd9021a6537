//! One cell: its actors made ready, the settings put, the workloads, the probes around them.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vmio_model::cell::{Cell, DetectZeroes};
use vmio_model::result::{DeviceUse, Foreign, Mark, Sample, WorkloadResult};

use super::Runner;
use super::links::Links;
use crate::engine::measure::Impossible;
use crate::engine::stage::settings::{self, Chosen};
use crate::engine::stage::warm::not_warm;
use crate::engine::stage::{Act, Terms};
use crate::probes::{self, Observed, Subject, Thing, Watch, foreign};
use crate::workloads::{self, Gentle, Serving};

/// Length of the look at the device before a cell.
const LOOK_BEFORE: Duration = Duration::from_millis(150);

impl Runner<'_> {
    /// The device for a moment before the cell: what is not ours.
    fn look_before(&self, subjects: &[Subject]) -> anyhow::Result<Option<DeviceUse>> {
        let disks: Vec<Subject> = subjects.iter().filter(|s| matches!(s.thing, Thing::Disk(_))).cloned().collect();
        if disks.is_empty() {
            return Ok(None);
        }
        let watch = Watch::start(disks)?;
        thread::sleep(LOOK_BEFORE);
        Ok(watch.stop()?.device())
    }

    /// Runs a cell with the probes around it.
    pub fn observe(&mut self, cell: &Cell, at: (u32, u32), terms: Terms<'_>) -> anyhow::Result<Sample> {
        let acts = self.stager().stage_all(cell, terms)?;
        self.run_acts(cell, at, acts, settings::chosen(cell)?)
    }

    /// Runs actors that are ready. Whatever fails: what was set for them is taken back, and what they began with
    /// their disks is brought to its end.
    pub fn run_acts(
        &mut self,
        cell: &Cell,
        (round, boot): (u32, u32),
        acts: Vec<Act>,
        chosen: Vec<Chosen>,
    ) -> anyhow::Result<Sample> {
        let (acts, inside, entered) = self.stager().go_inside(acts)?;
        let acts = Arc::new(acts);
        if let Err(error) = entered {
            return Err(match self.stager().come_out(inside) {
                Err(left) => error.context(format!("{left:#}")),
                Ok(()) => error,
            });
        }
        let (mut put, set) = self.stager().put_settings(chosen, &acts)?;
        let (effective, differs) = (std::mem::take(&mut put.effective), std::mem::take(&mut put.marks));
        let (holds, warmed) = if set.is_ok() { self.stager().warm(&acts) } else { (Vec::new(), Ok(())) };
        let worked = set.and(warmed).and_then(|()| self.watch_acts(&acts));
        let let_go = self.stager().let_go(holds);
        let taken_back = self.stager().take_back(put);
        let taken_back = taken_back.and(let_go).and(self.stager().come_out(inside));
        let mut settled = Ok(());
        if worked.is_ok() {
            for act in acts.iter() {
                settled = settled.and(self.settle(act));
            }
        }
        let Worked { before, started_unix, results, seen, lost } = match (worked, &taken_back) {
            // Another time it may go: a guest that is left with what was set is booted anew.
            (Err(error), Err(left)) if error.is::<Impossible>() => anyhow::bail!("{error:#}; and {left:#}"),
            (Err(error), Err(left)) => return Err(error.context(format!("{left:#}"))),
            (worked, _) => worked?,
        };
        let results = results.map_err(|(place, error)| {
            let act = &acts[place];
            let error = self.blamed(act, error);
            if acts.len() > 1 { error.context(act.actor.key()) } else { error }
        });
        // Whatever the programs made of it: their figures are not of the path that was meant.
        let results = match (lost, results) {
            (Some(lost), Ok(_)) => return Err(anyhow::anyhow!("{lost}: what it measured is not kept")),
            (Some(lost), Err(error)) => return Err(error.context(lost)),
            (None, results) => results?,
        };
        let with_command =
            |(act, result): (&Act, WorkloadResult)| WorkloadResult { command: act.command(result.command), ..result };
        let done: Vec<WorkloadResult> = acts.iter().zip(results).map(with_command).collect();
        let mut seen = seen?;
        self.unread = std::mem::take(&mut seen.notes);
        taken_back?;
        settled?;
        for (at, found) in &effective {
            self.bed.record.effective(at, found)?;
        }
        let (foreign, mut marks) = judge(&acts, &done, before.as_ref(), seen.device().as_ref());
        let longest = acts.iter().zip(&done).filter_map(|(act, result)| act.workload.disk()?.longest_seconds(result));
        marks.extend(foreign::stalled(longest, &seen.seen));
        marks.extend(foreign::processors(&seen.seen).into_iter().chain(differs));
        let not_warm = not_warm(&acts, &done, &seen.seen);
        not_warm.iter().for_each(|why| (self.bed.progress)(why));
        marks.extend((!not_warm.is_empty()).then_some(Mark::NotWarm));
        let mut done = done.into_iter();
        let result = done.next().unwrap_or_default();
        let (cell, beside) = (cell.clone(), done.collect());
        Ok(Sample { cell, round, boot, started_unix, result, beside, seen: seen.seen, foreign, marks })
    }

    /// The work itself, with the probes around it.
    fn watch_acts(&mut self, acts: &Arc<Vec<Act>>) -> anyhow::Result<Worked> {
        let subjects = probes::each_once(acts.iter().flat_map(|act| act.subjects.clone()));
        let links = Links::of(acts);
        if let Some(down) = links.down() {
            let why = format!("the link {down} of its path is down, in a network namespace of vmio's own: run it anew");
            return Err(Impossible(why).into());
        }
        let before = self.look_before(&subjects)?;
        let started_unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let watch = Watch::start(subjects)?;
        let at_work = Arc::clone(acts);
        let results = self.bed.on_storage(move || perform(&at_work))?;
        let seen = watch.stop();
        Ok(Worked { before, started_unix, results, seen, lost: links.lost(&Links::of(acts)) })
    }

    /// What is still to be done with an actor's disk after its work.
    fn settle(&mut self, act: &Act) -> anyhow::Result<()> {
        let (Some(target), Some(disk)) = (act.actor.target(), &act.disk) else { return Ok(()) };
        let Some(asked) = act.actor.attachment().cloned() else { return Ok(()) };
        if disk.circumstances.host_cache {
            let asked = asked.clone();
            // Where it fails, the next cell shows what is still written as foreign load.
            let _ = self.bed.on_target(target, move |t| t.settle(&asked))?;
        }
        let frees = asked.options.discard || asked.options.detect_zeroes != DetectZeroes::Off;
        if let Some(target) = self.bed.targets.made.get_mut(target).filter(|_| disk.traits.writes && frees) {
            target.soiled(&asked);
        }
        Ok(())
    }

    /// Why a workload failed, with who is to blame.
    fn blamed(&mut self, act: &Act, error: workloads::Error) -> anyhow::Error {
        let failed = match (&error, self.guests.get(&act.actor.side)) {
            (workloads::Error::Node(vmio_node::Error::Gone { .. }), Some(running)) => {
                anyhow::Error::new(running.guest.give_up(&error.to_string()))
            }
            _ => anyhow::Error::new(error),
        };
        let target = act.actor.target().and_then(|target| self.bed.targets.made.get_mut(target));
        match (act.actor.attachment(), target) {
            // Whatever the guest made of it: a server that is gone is the cause.
            (Some(attachment), Some(target)) => match target.sound(attachment) {
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
    /// By actor; or whose failed first, and why.
    results: Result<Vec<WorkloadResult>, (usize, workloads::Error)>,
    seen: vmio_node::Result<Observed>,
    /// The link that did not stay up.
    lost: Option<String>,
}

/// Runs the actors, each from its start on, and waits for all of them: one that fails ends none of the others. What
/// serves any of them is ready before the first begins.
///
/// # Errors
/// The first that failed, by its place, and why.
pub fn perform(acts: &[Act]) -> Result<Vec<WorkloadResult>, (usize, workloads::Error)> {
    let mut serving = Vec::new();
    for (place, act) in acts.iter().enumerate() {
        serving.push(guarded(act, || act.workload.start_servers(&act.stage)).map_err(|e| (place, e))?);
    }
    let run = |act: &Act, serving: Serving| {
        thread::sleep(act.actor.start.duration());
        guarded(act, || act.workload.run_served(&act.stage, serving))
    };
    if let ([act], Some(only)) = (acts, serving.pop_if(|_| acts.len() == 1)) {
        return run(act, only).map(|result| vec![result]).map_err(|e| (0, e));
    }
    let results: Vec<workloads::Result<WorkloadResult>> = thread::scope(|scope| {
        let started = |(act, serving)| (act, thread::Builder::new().spawn_scoped(scope, move || run(act, serving)));
        let running: Vec<_> = acts.iter().zip(serving).map(started).collect();
        let ended = |(act, thread): (&Act, io::Result<thread::ScopedJoinHandle<'_, _>>)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(broke(act))),
            Err(e) => Err(unfit(act, format!("the system gives vmio no thread: {e}"))),
        };
        running.into_iter().map(ended).collect()
    });
    results.into_iter().enumerate().map(|(place, result)| result.map_err(|e| (place, e))).collect()
}

/// A fault of a workload's own costs its cell, not the run, and leaves nothing of the others as it is.
fn guarded<T>(act: &Act, work: impl FnOnce() -> workloads::Result<T>) -> workloads::Result<T> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(broke(act)))
}

fn broke(act: &Act) -> workloads::Error {
    unfit(act, "vmio itself broke off in the middle of it, which is a fault of vmio's: please report it".into())
}

fn unfit(act: &Act, reason: String) -> workloads::Error {
    workloads::Error::Unfit { workload: act.actor.workload.clone(), reason }
}

/// Foreign work at the disk, and words of caution. Of several actors at one disk nobody's own share can be told.
fn judge(
    acts: &[Act],
    results: &[WorkloadResult],
    before: Option<&DeviceUse>,
    during: Option<&DeviceUse>,
) -> (Foreign, Vec<Mark>) {
    let on_disks: Vec<_> = acts.iter().zip(results).filter_map(|(act, r)| Some((act, act.disk.as_ref()?, r))).collect();
    match on_disks.as_slice() {
        [] => (Foreign::default(), Vec::new()),
        [(act, disk, result)] => {
            let work = result.disk_work();
            let foreign = foreign::foreign(&disk.traits, disk.circumstances, &work, before, during);
            let mut marks = foreign::marks(&disk.traits, &work, during, &foreign);
            // Of what a page cache is to serve it is no caution that one did.
            marks.retain(|mark| act.warm.is_none() || *mark != Mark::Cached);
            (foreign, marks)
        }
        _ => (Foreign::default(), during.is_none().then_some(Mark::NotVisible).into_iter().collect()),
    }
}

/// No caps.
pub const UNCAPPED: &[Option<Gentle>] = &[];
