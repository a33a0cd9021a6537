//! Whether acknowledged durable appends are on the device. fdatasync(2) may return only when the data are on stable
//! storage. The evidence is what the backing device counted during the cell: written bytes, and flushes of its volatile
//! cache. A disk without such a cache (`queue/write_cache` is `write through`; kernel document ABI/stable/sysfs-block)
//! gets no flushes: there only the bytes count. For a file server only the client's calls are known (RFC 8881, section
//! 18.3, COMMIT), which say nothing about the disk behind it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::read_at::{FILE_SERVER, ReadAt, WRITE_CACHE};
use crate::result::{IOPS, Mark, Sample, WorkloadTraits};
use crate::run::Run;

/// Required share of one flush for each append, and of the bytes. Appends are in flight when the cell begins and ends.
const SEEN: f64 = 0.9;
/// Others' flushes are added: up to this many for each append in every sample count as the cell's own.
const OWN: f64 = 1.5;

/// Whether each write is made durable before the next (runs of old versions name no engine).
pub(super) fn durable(w: &WorkloadTraits) -> bool {
    w.disk.as_ref().is_some_and(|d| {
        let synchronous = d.engine == "psync" || d.engine.is_empty();
        synchronous && d.writes && d.sequential && d.depth == 1 && w.judged_by == IOPS
    })
}

/// State of acknowledged appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// They reached the device, and its volatile cache was flushed.
    Durable,
    /// They are not.
    NotDurable,
    /// The counters do not show it.
    NotVisible,
}

/// The evidence for a durable cell, over all of its samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Durability {
    /// Acknowledged appends.
    pub appends: u64,
    /// Flushes at the device for each; `None` without counters.
    pub flushes_per_append: Option<f64>,
    /// Bytes written to the device for each, metadata and journal included; `None` without counters.
    pub bytes_per_append: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict with its evidence, in words.
    pub text: String,
}

/// Judges a cell; `None` where its workload is no durable append, it has other actors, or a page cache serves it.
pub(super) fn durability(run: &Run, cell: &Cell, samples: &[&Sample]) -> Option<Durability> {
    let on = cell.disk()?;
    let traits = run.workloads.iter().find(|w| w.name == on.workload).filter(|w| durable(w))?.disk.as_ref()?;
    let seen: Vec<(&Sample, crate::result::DeviceUse)> =
        samples.iter().filter_map(|s| Some((*s, s.device()?))).collect();
    // An imported run may hold any number.
    let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0u64, u64::saturating_add);
    let appends = sum(&mut seen.iter().map(|(s, _)| s.work().ios));
    let per = |amount: u64| (appends > 0).then(|| amount as f64 / appends as f64);
    let flushes_per_append = per(sum(&mut seen.iter().map(|(_, d)| d.flush_ios)));
    let bytes_per_append = per(sum(&mut seen.iter().map(|(_, d)| d.write_bytes)));
    let own = |s: &Sample, flushes: u64| (SEEN..=OWN).contains(&(flushes as f64 / s.work().ios as f64));
    let all_own = seen.iter().all(|(s, d)| own(s, d.flush_ios));
    let busy = !all_own && 2 * samples.iter().filter(|s| s.marks.contains(&Mark::HostBusy)).count() > samples.len();
    let in_force = run.effective.get(&ReadAt::target(on.target).to_string());
    let fact = |key: &str| in_force.and_then(|settings| settings.get(key));
    let on_server = fact(FILE_SERVER).is_some();
    let dropped = on.attachment.is_some_and(|a| a.cache.no_flush());
    let (verdict, why) = judge(&Evidence {
        counted: flushes_per_append.zip(bytes_per_append),
        block_bytes: traits.block_bytes as f64,
        volatile: fact(WRITE_CACHE).map(|c| c != "write through"),
        on_server,
        busy,
        dropped,
    });
    let name = match verdict {
        Verdict::Durable => "durable",
        Verdict::NotDurable => "not durable",
        Verdict::NotVisible => "durable or not is not visible",
    };
    let evidence = flushes_per_append.zip(bytes_per_append).map_or_else(String::new, |(flushes, bytes)| {
        let (place, calls) = if on_server { ("server", "COMMIT calls") } else { ("device", "flushes") };
        format!(
            "; at the {place} {flushes:.2} {calls} and {:.1} KiB for each acknowledged append of {} KiB",
            bytes / 1024.0,
            traits.block_bytes / 1024
        )
    });
    let text = format!("{name}: {why}{evidence}");
    let appends = sum(&mut samples.iter().map(|s| s.work().ios));
    Some(Durability { appends, flushes_per_append, bytes_per_append, verdict, text })
}

struct Evidence {
    /// Flushes and bytes for each append.
    counted: Option<(f64, f64)>,
    block_bytes: f64,
    /// Whether the device has a volatile cache, if known.
    volatile: Option<bool>,
    /// It is on a file server, and calls to it were counted.
    on_server: bool,
    /// Others wrote to the device in most samples, and their flushes cannot be separated.
    busy: bool,
    /// `cache=unsafe`.
    dropped: bool,
}

fn judge(e: &Evidence) -> (Verdict, &'static str) {
    let lost = "acknowledged appends did not reach the device";
    let missing = e.counted.is_some_and(|(_, bytes)| bytes < SEEN * e.block_bytes);
    let flushed = e.counted.is_some_and(|(flushes, _)| flushes >= SEEN);
    if e.dropped {
        (Verdict::NotDurable, "cache=unsafe drops the guest's flushes")
    } else if missing {
        (Verdict::NotDurable, lost)
    } else if e.counted.is_none() {
        (Verdict::NotVisible, "the device has no counters here")
    } else if e.on_server {
        (Verdict::NotVisible, "the server acknowledged it; whether its disk has it is not seen from here")
    } else if e.volatile == Some(true) && !flushed {
        (Verdict::NotDurable, "acknowledged appends are in the device's volatile cache, which was not flushed")
    } else if e.busy {
        (Verdict::NotVisible, "other processes wrote to the device, too")
    } else if e.volatile == Some(false) {
        (Verdict::Durable, "the device has no volatile cache and got every byte")
    } else if flushed {
        (Verdict::Durable, "the device got every byte and a flush for each append")
    } else {
        (Verdict::NotVisible, "whether the device has a volatile cache is not known, and it got no flushes")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cell::Cache;
    use crate::summary::summarise;
    use crate::testing::{Bench, native, virtio};

    fn of(cache: Cache, write_cache: Option<&str>, flushes: f64, bytes: f64) -> Durability {
        on(cache, write_cache.map(|word| (WRITE_CACHE, word)), flushes, bytes)
    }

    fn on(cache: Cache, fact: Option<(&str, &str)>, flushes: f64, bytes: f64) -> Durability {
        let mut guest = virtio("device", "durable-append");
        guest.attachment_mut().unwrap().cache = cache;
        let mut run = Bench::new().cell(native("device", "durable-append"), 5e3).cell(guest.clone(), 2e3).run();
        for s in run.samples.iter_mut().filter(|s| s.cell == guest) {
            let mut device = s.device().unwrap();
            device.flush_ios = (flushes * s.work().ios as f64) as u64;
            device.write_bytes = (bytes * 4096.0 * s.work().ios as f64) as u64;
            s.put_device(Some(device));
        }
        if let Some((key, value)) = fact {
            run.effective.entry("device/native".into()).or_default().insert(key.into(), value.into());
        }
        let summary = summarise(&run);
        summary.cell(&guest.key()).unwrap().durability.clone().unwrap()
    }

    #[test]
    fn bytes_and_flushes_are_the_evidence() {
        let d = of(Cache::None, Some("write back"), 1.0, 1.1);
        assert_eq!(d.verdict, Verdict::Durable);
        assert!(d.text.contains("1.00 flushes and 4.4 KiB for each acknowledged append of 4 KiB"), "{}", d.text);
        assert_eq!(of(Cache::None, Some("write back"), 0.0, 1.0).verdict, Verdict::NotDurable);
        assert_eq!(of(Cache::None, Some("write through"), 0.0, 1.0).verdict, Verdict::Durable);
        assert_eq!(of(Cache::None, Some("write through"), 0.0, 0.3).verdict, Verdict::NotDurable);
        assert_eq!(of(Cache::None, None, 0.0, 1.0).verdict, Verdict::NotVisible);
        assert_eq!(of(Cache::None, None, 1.0, 1.0).verdict, Verdict::Durable);
        let lost = of(Cache::Writeback, Some("write back"), 0.0, 0.01);
        assert!(lost.text.starts_with("not durable: acknowledged appends did not reach the device"), "{}", lost.text);
    }

    #[test]
    fn unsafe_is_named_whatever_the_counters_say() {
        for (flushes, bytes) in [(0.0, 0.0), (1.0, 1.0)] {
            let d = of(Cache::Unsafe, Some("write back"), flushes, bytes);
            assert_eq!(d.verdict, Verdict::NotDurable);
            assert!(d.text.starts_with("not durable: cache=unsafe"), "{}", d.text);
        }
    }

    #[test]
    fn a_file_servers_word_is_no_evidence_of_its_disk() {
        let server = Some((FILE_SERVER, "nas:/vm"));
        let d = on(Cache::None, server, 1.0, 1.1);
        assert_eq!(d.verdict, Verdict::NotVisible);
        assert!(d.text.contains("the server acknowledged it") && d.text.contains("1.00 COMMIT calls"), "{}", d.text);
        // Data that did not reach the server are lost with this host.
        assert_eq!(on(Cache::None, server, 1.0, 0.3).verdict, Verdict::NotDurable);
        assert_eq!(on(Cache::Unsafe, server, 1.0, 1.0).verdict, Verdict::NotDurable);
    }

    #[test]
    fn what_cannot_be_seen_gets_no_verdict() {
        let cell = native("device", "durable-append");
        let mut run = Bench::new().cell(cell.clone(), 5e3).cell(native("device", "seq-write"), 5e8).run();
        run.samples.iter_mut().for_each(|s| s.put_device(None));
        let summary = summarise(&run);
        let d = summary.cell(&cell.key()).unwrap().durability.clone().unwrap();
        assert_eq!((d.verdict, d.flushes_per_append), (Verdict::NotVisible, None));
        assert!(d.appends > 0);
        assert_eq!(summary.cell("device/native/seq-write").unwrap().durability, None);
        // Others' writes and flushes would be taken for the cell's own.
        for (flushes, verdict) in [(3, Verdict::NotVisible), (1, Verdict::Durable)] {
            run.samples.iter_mut().for_each(|s| {
                s.marks.push(Mark::HostBusy);
                let (flush_ios, write_bytes) = (flushes * s.work().ios, s.work().ios * 9000);
                s.put_device(Some(crate::result::DeviceUse { flush_ios, write_bytes, ..Default::default() }));
            });
            let d = summarise(&run).cell(&cell.key()).unwrap().durability.clone().unwrap();
            assert_eq!(d.verdict, verdict, "{flushes}");
        }
    }
}
