//! What caches are to hold before a cell: it is read through them (`warming.rs`), page caches as far as there is memory
//! for it. And what shows after the cell that they served it. What nothing shows counts as not shown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use vmio_model::figure::scalar;
use vmio_model::result::{
    CACHED_AFTER, CACHED_BEFORE, DeviceUse, DiskWork, ProbeResult, READ, Watched, WorkloadResult,
};
use vmio_model::study::MIB;
use vmio_node::Exec;
use vmio_node::linux::system;

use super::flash::{FlashShown, SMALL};
use super::warming::{Hold, LIMIT, Passes, Step, Warmed, forget};
use super::{PreparedActor, Stager, dm_cache as set_up};
use crate::disks::targets::CacheAt;
use crate::engine::measure::Impossible;
use crate::limits::{Limits, OOM_SCORE_ADJ};
use crate::probes::dm_cache;

/// What of an actor's disk a cache is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warm {
    /// Bytes from its start.
    pub bytes: u64,
    /// Which cache.
    pub place: CachePlace,
}

/// A cache that is to serve reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CachePlace {
    /// The page cache of the actor's own side.
    Own,
    /// The host's page cache below its guest, of what the hypervisor opens.
    Host(PathBuf),
    /// A flash cache, over this file of the host's.
    Flash(PathBuf, CacheAt),
}

impl Stager<'_, '_> {
    /// Reads what actors are to find in caches through these. What there is no memory for is not begun.
    pub fn warm(&mut self, actors: &[PreparedActor]) -> Warmed {
        match self.steps(actors) {
            Ok(steps) if !steps.is_empty() => {
                let all = move || Warmed::by(&steps);
                self.bed.on_storage(all).unwrap_or_else(|sick| Warmed::nothing(Err(sick)))
            }
            none => Warmed::nothing(none.map(drop)),
        }
    }

    /// Lets go of disks that were held open.
    pub fn let_go(&mut self, holds: Vec<Hold>) -> anyhow::Result<()> {
        // Where the storage is sick guests may hang, and they are ended.
        if holds.is_empty() || self.bed.storage_failed() {
            return Ok(());
        }
        self.bed
            .on_storage(move || holds.iter().map(Hold::let_go).fold(Ok(()), Result::and))?
            .context("a loop device that held a disk of a guest's could not be detached")
    }

    fn steps(&self, actors: &[PreparedActor]) -> anyhow::Result<Vec<Step>> {
        let mut steps = Vec::new();
        let mut needed: BTreeMap<String, u64> = BTreeMap::new();
        let mut known = BTreeSet::new();
        for (prepared, warm) in actors.iter().filter_map(|prepared| Some((prepared, prepared.warm.as_ref()?))) {
            let step = self.step(prepared, warm)?;
            // What several guests read of one file is once in the host's page cache.
            if !known.insert((step.node.name().to_owned(), step.read.args.clone())) {
                continue;
            }
            // What lies in a flash cache takes nothing of a page cache.
            if matches!(warm.place, CachePlace::Flash(..)) {
                steps.push(step);
                continue;
            }
            let bytes = needed.entry(step.node.name().to_owned()).or_default();
            *bytes += warm.bytes;
            let free = system::memory_bytes(step.node.reader(), "MemAvailable").unwrap_or(u64::MAX);
            if free < *bytes {
                let (key, machine, needed, left) = (prepared.actor.key(), step.node.name(), *bytes / MIB, free / MIB);
                let why = format!(
                    "{key} is to be warm, which takes {needed} MiB of page cache, and {machine} has {left} MiB of \
                     memory left: give it more, or use a study with a smaller size.target_mib"
                );
                return Err(Impossible(why).into());
            }
            steps.push(step);
        }
        Ok(steps)
    }

    /// It is read in the control group of who reads it in the cell, which is charged for what the cache holds.
    fn step(&self, prepared: &PreparedActor, warm: &Warm) -> anyhow::Result<Step> {
        let (node, path, base) = match &warm.place {
            CachePlace::Host(path) => {
                let cgroup_procs = self.bed.hypervisors.as_ref().map(Limits::procs_files).unwrap_or_default();
                let base = Exec { cgroup_procs, oom_score_adj: Some(OOM_SCORE_ADJ), ..Exec::default() };
                (self.bed.local.clone(), path.as_path(), base)
            }
            CachePlace::Own | CachePlace::Flash(..) => {
                let end = prepared.workload.roles().last().and_then(|role| prepared.stage.ends.get(role.name));
                let none = || format!("{} was given no disk", prepared.actor.key());
                let (end, path) = end.and_then(|end| Some((end, end.path()?))).with_context(none)?;
                (end.node.clone(), path, end.exec_base.clone())
            }
        };
        let mib = warm.bytes / MIB;
        let passes = match (&warm.place, &prepared.inside) {
            (CachePlace::Flash(..), Some(wanted)) => wanted.passes(&*node, warm.bytes)?,
            _ => None,
        };
        let (bs, count) = match &passes {
            Some(Passes { read_bytes, .. }) => (format!("bs={}K", read_bytes >> 10), warm.bytes / read_bytes),
            None => ("bs=1M".to_owned(), mib),
        };
        let mut args = vec![format!("if={}", path.display()), "of=/dev/null".into(), bs, format!("count={count}")];
        // Past the guest's own page cache, and not left in the host's.
        let slow = match &warm.place {
            CachePlace::Flash(slow, _) => Some(slow),
            CachePlace::Own | CachePlace::Host(_) => None,
        };
        args.extend(slow.map(|_| "iflag=direct".to_owned()));
        let forget = slow.map(|slow| (self.bed.local.clone(), forget(slow)));
        // 1 MiB a second is slower than any disk that still works.
        let limit = Some(LIMIT + Duration::from_secs(mib));
        let read = Exec { program: "dd".into(), args, limit, ..base };
        // On the host somebody has it open, and so has the guest a file in its own file system.
        let in_guest = !prepared.actor.side.shares_kernel() && prepared.inside.is_none();
        let held = warm.place == CachePlace::Own && in_guest;
        let of = prepared.actor.key();
        Ok(Step { of, node, hold: held.then(|| path.to_owned()), read, passes, forget })
    }
}

/// What shows that other places served actors than were to serve them, in words; empty where none did.
pub fn not_warm(actors: &[PreparedActor], done: &[WorkloadResult], seen: &[ProbeResult]) -> Vec<String> {
    // Of several actors at disks nobody's part of what the host read can be told.
    let alone = actors.iter().filter(|prepared| prepared.disk.is_some()).count() == 1;
    let one = |(prepared, result): (&PreparedActor, &WorkloadResult)| {
        let key = prepared.actor.key();
        let read = result.disk_work().read_bytes;
        if let Some(at) = prepared.misses {
            let read = match at {
                // Of several all are to miss, or the host's disk has not read what all of them did.
                CacheAt::Host | CacheAt::Native => done.iter().map(|result| result.disk_work().read_bytes).sum::<u64>(),
                CacheAt::Guest(_) => read,
            };
            let why = flash(prepared, at, &result.disk_work(), seen).lacks_misses(read)?;
            return Some(format!("{key} was to miss the flash cache: {why}"));
        }
        let warm = prepared.warm.as_ref()?;
        let why = match warm.place {
            CachePlace::Flash(_, at) => flash(prepared, at, &result.disk_work(), seen).lacks_hits(warm.bytes, read)?,
            CachePlace::Own | CachePlace::Host(_) => Shown::of(prepared, warm, alone, seen).lacks(warm.bytes, read)?,
        };
        Some(format!("{key} was to be warm: {why}"))
    };
    actors.iter().zip(done).filter_map(one).collect()
}

/// The name under which results have the disk that a guest has beside a target's, for a cache of its own.
pub fn cache_of(target: &str) -> String {
    format!("{target}, cache")
}

/// What was seen of the flash cache at an actor's disk, which did so much.
fn flash(prepared: &PreparedActor, at: CacheAt, work: &DiskWork, seen: &[ProbeResult]) -> FlashShown {
    let target = prepared.actor.target().unwrap_or_default();
    if matches!(at, CacheAt::Guest(_)) {
        // Both are the guest's disks, above every cache of the host's.
        let [slow, reached] = [target.to_owned(), cache_of(target)].map(|disk| drive_read(prepared, disk, seen));
        return FlashShown { slow, page_cache: Some(0.0), reached, hit_ratio: hit_ratio(prepared, seen) };
    }
    if at == CacheAt::Native {
        // No page cache lies between it and the slow disk's file, which a loop device reads past that.
        let of_one = set_up::bytes_of_one(work.read_bytes, work.ios);
        let reached = counts(prepared, seen).zip(of_one).map(|((hits, misses), bytes)| (hits + misses) * bytes);
        let (slow, hit_ratio) = (disks_read(seen), hit_ratio(prepared, seen));
        return FlashShown { slow, page_cache: Some(0.0), reached, hit_ratio };
    }
    let held = |of: &ProbeResult| {
        let of = |name: &str| scalar(&of.figures, name);
        Some(of(CACHED_BEFORE)?.max(of(CACHED_AFTER)?))
    };
    let page_cache = seen_of(seen, "", &Watched::PageCache(target.to_owned())).filter_map(held).reduce(f64::max);
    let reached = drive_read(prepared, target.to_owned(), seen);
    FlashShown { slow: disks_read(seen), page_cache, reached, hit_ratio: None }
}

/// Which part of the reads an actor's dm-cache counts as hits.
fn hit_ratio(prepared: &PreparedActor, seen: &[ProbeResult]) -> Option<f64> {
    let (hits, misses) = counts(prepared, seen)?;
    (hits + misses > 0.0).then_some(hits / (hits + misses))
}

/// The reads that it counts as hits, and as misses.
fn counts(prepared: &PreparedActor, seen: &[ProbeResult]) -> Option<(f64, f64)> {
    let cache = Watched::Other(dm_cache::NAME.to_owned());
    let of = |s: &ProbeResult| {
        let [hits, misses] = [dm_cache::READ_HITS, dm_cache::READ_MISSES].map(|name| scalar(&s.figures, name));
        Some((hits?, misses?))
    };
    let side = &prepared.actor.side;
    let node = if side.is_native() { String::new() } else { side.to_string() };
    seen_of(seen, &node, &cache).find_map(of)
}

/// What was seen of a subject on a machine.
fn seen_of<'a>(seen: &'a [ProbeResult], node: &'a str, of: &'a Watched) -> impl Iterator<Item = &'a ProbeResult> {
    seen.iter().filter(move |s| s.node == node && s.watched == *of)
}

/// What the host's disks below the targets read.
fn disks_read(seen: &[ProbeResult]) -> Option<f64> {
    let mut disks = seen.iter().filter(|s| s.node.is_empty()).filter_map(DeviceUse::of);
    disks.next().map(|disk| disk.read_bytes as f64)
}

/// What an actor's guest read of a disk, as its hypervisor counts.
fn drive_read(prepared: &PreparedActor, disk: String, seen: &[ProbeResult]) -> Option<f64> {
    let drive = Watched::Drive(disk);
    seen_of(seen, &prepared.actor.side.to_string(), &drive).find_map(|s| scalar(&s.figures, READ))
}

/// What was seen of a page cache during a cell, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Shown {
    /// Read below it.
    read_below: Option<f64>,
    /// Whether others at work in the cell may have read that, too.
    shared: bool,
    /// What it held of the target, before or after the work, whichever is less.
    held: Option<f64>,
    /// Whether it is the host's below a guest, whose own must not have served.
    below_guest: bool,
    /// What came to it past the guest's own page cache, where it is below a guest.
    reached: Option<f64>,
}

impl Shown {
    fn of(prepared: &PreparedActor, warm: &Warm, alone: bool, seen: &[ProbeResult]) -> Self {
        let (side, target) = (&prepared.actor.side, prepared.actor.target().unwrap_or_default().to_owned());
        let own = warm.place == CachePlace::Own;
        let node = if own && !side.is_native() { side.to_string() } else { String::new() };
        let held = |s: &ProbeResult| {
            let of = |name: &str| scalar(&s.figures, name);
            Some(of(CACHED_BEFORE)?.min(of(CACHED_AFTER)?))
        };
        let drive = drive_read(prepared, target.clone(), seen);
        let held = seen_of(seen, &node, &Watched::PageCache(target)).filter_map(held).reduce(f64::min);
        if own && !side.shares_kernel() {
            return Self { read_below: drive, held, ..Self::default() };
        }
        let read_below = disks_read(seen);
        Self { read_below, shared: !alone, held, below_guest: !own, reached: drive }
    }

    /// Why it does not show that so many bytes were warm, of which so many were read; `None` where it does.
    fn lacks(self, bytes: u64, read: u64) -> Option<String> {
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / MIB as f64);
        // What is gone over again and again is read from below once.
        let once = bytes.min(read) as f64;
        // Of several actors much may be another's, but little is enough for all.
        let read_below = self.read_below.filter(|below| !self.shared || *below <= SMALL * once);
        match (Self { read_below, ..self }) {
            Self { below_guest: true, reached: None, .. } => {
                Some("nothing shows that it was not in the guest's own page cache".to_owned())
            }
            Self { reached: Some(reached), .. } if reached < (1.0 - SMALL) * read as f64 => {
                let (reached, read) = (mib(reached), mib(read as f64));
                Some(format!("{reached} of {read} came to it: the rest was in the guest's own page cache"))
            }
            Self { read_below: Some(below), .. } if below > SMALL * once => {
                Some(format!("below its page cache {} were read, and {} by itself", mib(below), mib(once)))
            }
            Self { held: Some(held), .. } if held < (1.0 - SMALL) * bytes as f64 => {
                Some(format!("its page cache held {} of {}", mib(held), mib(bytes as f64)))
            }
            Self { read_below: None, held: None, .. } => {
                Some("nothing shows what its page cache held or what was read below it".to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_below_or_missing_shows_that_it_was_not_warm() {
        let shown = |read_below: Option<u64>, held: Option<u64>| {
            let bytes = |mib: Option<u64>| mib.map(|mib| (mib * MIB) as f64);
            Shown { read_below: bytes(read_below), held: bytes(held), ..Shown::default() }
        };
        let lacks = |of: Shown| of.lacks(64 * MIB, 640 * MIB).unwrap_or_default();
        for warm in [shown(Some(0), Some(64)), shown(Some(3), None), shown(None, Some(61)), shown(Some(0), Some(768))] {
            assert_eq!(lacks(warm), "");
        }
        // Ten times gone over, and read from the disk the first time.
        let again = lacks(shown(Some(64), Some(64)));
        assert_eq!(again, "below its page cache 64.0 MiB were read, and 64.0 MiB by itself");
        assert_eq!(lacks(shown(Some(0), Some(60))), "its page cache held 60.0 MiB of 64.0 MiB");
        assert!(lacks(Shown::default()).starts_with("nothing shows"));
        // A little that was read of much is judged by itself.
        assert!(shown(Some(3), Some(640)).lacks(640 * MIB, 40 * MIB).is_some());
        assert!(shown(Some(2), Some(640)).lacks(640 * MIB, 40 * MIB).is_none());
        // Beside others: little below shows it, much leaves it to what was held.
        let beside = |of: Shown| Shown { shared: true, ..of }.lacks(64 * MIB, 640 * MIB).unwrap_or_default();
        assert_eq!(beside(shown(Some(3), None)), "");
        assert_eq!(beside(shown(Some(64), Some(64))), "");
        assert!(beside(shown(Some(64), None)).starts_with("nothing shows"));
    }

    #[test]
    fn the_hosts_page_cache_is_proved_by_what_comes_to_it() {
        let below = Shown { below_guest: true, ..Shown::default() };
        let reached = |mib: u64| Shown { reached: Some((mib * MIB) as f64), ..below };
        let shown = |mib: u64| Shown { read_below: Some(0.0), held: Some((64 * MIB) as f64), ..reached(mib) };
        let lacks = |of: Shown| of.lacks(64 * MIB, 640 * MIB).unwrap_or_default();
        assert_eq!(lacks(shown(640)), "");
        assert_eq!(lacks(shown(700)), "", "the guest reads ahead");
        assert_eq!(lacks(shown(64)), "64.0 MiB of 640.0 MiB came to it: the rest was in the guest's own page cache");
        let unseen = lacks(Shown { reached: None, ..shown(640) });
        assert_eq!(unseen, "nothing shows that it was not in the guest's own page cache");
    }
}
