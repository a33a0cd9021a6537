//! Counters of the backing disks, from `/sys/block/DISK/stat` (kernel document
//! block/stat.rst), computed exactly as iostat computes them (sysstat, `rd_stats.c` and
//! `compute_ext_disk_stats`): request size = sectors / requests, aqu-sz = time in queue /
//! interval, %util = busy time / interval.
//!
//! Several leaves (md, LVM over several disks, multipath) are taken as one: requests, bytes and
//! queue depths are added, %util is their mean, as `iostat -g` does.

use std::path::PathBuf;

use vmio_look::backing::Backing;
use vmio_model::figure::Reading;
use vmio_model::result::{DeviceUse, LONGEST_WAIT};
use vmio_node::FileSample;
use vmio_node::linux::block::{Counters, Device};

use super::{ByFiles, Probe, ProbeMethod, ProbeSubject, Unseen, ends, seconds_between};

/// Entry of the list of probes.
pub struct Diskstats;

impl Probe for Diskstats {
    fn name(&self) -> &'static str {
        "diskstats"
    }
    fn about(&self) -> &'static str {
        "requests, bytes, queue depth and busy time of the backing disks; blind where there are none (RBD, overlay, memory); NFS has `mountstats`"
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        // Of NFS there is no disk, but the client's own counters: see `mountstats`.
        matches!(subject, ProbeSubject::Disk(Backing { nfs: None, .. }))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Files(&Diskstats)
    }
}

impl ByFiles for Diskstats {
    fn paths(&self, subject: &ProbeSubject) -> Vec<PathBuf> {
        if let ProbeSubject::Disk(backing) = subject { stat_files(backing) } else { Vec::new() }
    }
    fn conclude(
        &self,
        subject: &ProbeSubject,
        ticks: &[FileSample],
        _: &mut Vec<String>,
    ) -> Result<Vec<Reading>, Unseen> {
        if let ProbeSubject::Disk(Backing { not_visible: Some(reason), .. }) = subject {
            return Err(Unseen::NotVisible(reason.clone()));
        }
        let (first, last) = ends(ticks)?;
        let mut all = between(first, last)?.readings();
        all.push(Reading::scalar(LONGEST_WAIT, longest_wait(ticks)));
        Ok(all)
    }
}

/// The counters' files of all leaves.
fn stat_files(backing: &Backing) -> Vec<PathBuf> {
    backing.leaves.keys().map(|leaf| Device::stat_file(leaf)).collect()
}

/// The longest time in which some disk had requests in flight at each reading, and none of them ended. What lies between two
/// readings is not seen, so it was longer by up to two intervals.
fn longest_wait(ticks: &[FileSample]) -> f64 {
    let disks = ticks.first().map_or(0, |tick| tick.contents.len());
    let of = |disk: usize| {
        let (mut longest, mut since): (f64, Option<(f64, u64)>) = (0.0, None);
        for tick in ticks {
            let text = tick.contents.get(disk).and_then(|text| std::str::from_utf8(text).ok());
            let waiting = text.and_then(Counters::parse).filter(|now| now.in_flight > 0).map(|now| now.ended());
            since = match (waiting, since) {
                (Some(ended), Some((from, before))) if ended == before => {
                    longest = longest.max(tick.seconds - from);
                    since
                }
                (Some(ended), _) => Some((tick.seconds, ended)),
                (None, _) => None,
            };
        }
        longest
    };
    (0..disks).map(of).fold(0.0, f64::max)
}

/// `Err` is why nothing can be said.
fn between(first: &FileSample, last: &FileSample) -> Result<DeviceUse, Unseen> {
    let seconds = seconds_between(first, last)?;
    let mut all = DeviceUse { seconds, ..DeviceUse::default() };
    let (mut queue_ms, mut busy_ms) = (0, 0);
    for (old, new) in first.contents.iter().zip(&last.contents) {
        let parsed = |text: &[u8]| Counters::parse(std::str::from_utf8(text).ok()?);
        let (old, new) = (parsed(old).ok_or(Unseen::CutShort)?, parsed(new).ok_or(Unseen::CutShort)?);
        let d = new.since(&old).ok_or_else(|| Unseen::Backwards("a disk".to_owned()))?;
        all.read_ios += d.reads.ios;
        all.write_ios += d.writes.ios;
        all.read_bytes += d.reads.bytes;
        all.write_bytes += d.writes.bytes;
        all.flush_ios += d.flushes.ios;
        queue_ms += d.queue_ms;
        busy_ms += d.busy_ms;
    }
    let ios = all.read_ios + all.write_ios;
    if ios > 0 {
        all.request_bytes = (all.read_bytes + all.write_bytes) as f64 / ios as f64;
    }
    all.queue_depth = queue_ms as f64 / 1000.0 / seconds;
    all.busy_ratio = Some(busy_ms as f64 / 1000.0 / seconds / first.contents.len().max(1) as f64);
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tick(seconds: f64, contents: &[&str]) -> FileSample {
        FileSample { seconds, contents: contents.iter().map(|c| c.as_bytes().to_vec()).collect() }
    }

    /// Two readings of a virtio disk, two seconds apart, and what `iostat -x` says of them:
    /// r/s 500, w/s 50, rareq-sz 4, wareq-sz 64, aqu-sz 1.5, %util 75.
    const OLD: &str = "56229 8337 4633746 18951 15800 22175 5681624 16921 0 11388 36359 4366 31 598176 414 1912 71\n";
    const NEW: &str = "57229 8337 4641746 19951 15900 22175 5694424 17921 0 12888 39359 4366 31 598176 414 1922 71\n";

    #[test]
    fn as_iostat_computes() {
        let got = between(&tick(10.0, &[OLD]), &tick(12.0, &[NEW])).unwrap();
        assert_eq!((got.read_ios, got.write_ios, got.flush_ios), (1000, 100, 10));
        assert_eq!((got.read_bytes, got.write_bytes), (1000 * 4096, 100 * 65536));
        assert!((got.request_bytes - (4_096_000.0 + 6_553_600.0) / 1100.0).abs() < 1e-9);
        assert!((got.queue_depth - 1.5).abs() < 1e-12);
        assert!((got.busy_ratio.unwrap() - 0.75).abs() < 1e-12);
    }

    /// Requests in flight of which none ends are waited for, on whichever disk; an idle disk waits for nothing.
    #[test]
    fn the_longest_wait_is_seen() {
        let at =
            |reads: u32, in_flight: u32| format!("{reads} 0 {} 9 0 0 0 0 {in_flight} 5 9 0 0 0 0 0 0\n", reads * 8);
        let ticks = |told: &[(f64, u32, u32)]| -> Vec<FileSample> {
            told.iter().map(|(seconds, reads, flying)| tick(*seconds, &[&at(7, 0), &at(*reads, *flying)])).collect()
        };
        let longest = |told: &[(f64, u32, u32)]| longest_wait(&ticks(told));
        assert_eq!(longest(&[(0.0, 1, 4), (1.0, 9, 4), (2.0, 9, 4), (31.0, 9, 4), (32.0, 14, 4), (33.0, 14, 4)]), 30.0);
        assert_eq!(longest(&[(0.0, 1, 0), (30.0, 1, 0)]), 0.0, "an idle disk");
        assert_eq!(longest(&[(0.0, 1, 4), (5.0, 1, 0), (30.0, 1, 4)]), 0.0, "something ended, and was not counted yet");
        assert_eq!(longest(&[(0.0, 1, 4), (30.0, 2, 4)]), 0.0, "one ended");
        assert_eq!(longest(&[]), 0.0);
        let disk = ProbeSubject::Disk(Backing::default());
        let told = Diskstats.conclude(&disk, &ticks(&[(0.0, 1, 4), (12.0, 1, 4)]), &mut Vec::new()).unwrap();
        assert_eq!(vmio_model::figure::scalar(&told, LONGEST_WAIT), Some(12.0));
    }

    #[test]
    fn several_leaves_are_taken_as_one() {
        let got = between(&tick(10.0, &[OLD, OLD]), &tick(12.0, &[NEW, OLD])).unwrap();
        assert_eq!(got.read_ios, 1000);
        assert!((got.queue_depth - 1.5).abs() < 1e-12, "depths are added");
        assert!((got.busy_ratio.unwrap() - 0.375).abs() < 1e-12, "busy time is the mean");
    }

    #[test]
    fn old_kernels_have_fewer_fields() {
        let short = |t: &str| t.split(' ').take(11).collect::<Vec<_>>().join(" ");
        let got = between(&tick(0.0, &[&short(OLD)]), &tick(1.0, &[&short(NEW)])).unwrap();
        assert_eq!((got.read_ios, got.flush_ios), (1000, 0));
    }

    #[test]
    fn lost_or_reset_counters_are_said() {
        let disk = ProbeSubject::Disk(Backing::default());
        for (old, new, word) in [(NEW, OLD, "backwards"), (OLD, "", "to the end"), (OLD, "1 2 3", "to the end")] {
            let ticks = [tick(0.0, &[old]), tick(1.0, &[new])];
            let said = Diskstats.conclude(&disk, &ticks, &mut Vec::new()).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
        let few = Diskstats.conclude(&disk, &[tick(0.0, &[OLD])], &mut Vec::new());
        assert!(matches!(few, Err(Unseen::FewReadings)), "{few:?}");
    }
}
