//! Work at the backing device that is not the cell's own, and what it says of a sample.
//! Pure functions: they decide, others read.
//!
//! **Own share.** All bytes of a cell reach the device once (dd's flush is inside its time, fio
//! runs past the page cache), so what the device moved beyond them is foreign, but for an
//! allowance for what the file system writes about our own file (times, journal). The share
//! cannot be told (`None`) where
//! - the host's page cache lies in between (`cache=writeback`): it reads ahead and writes later;
//! - small or flushed writes make the file system allocate: each brings metadata and journal
//!   blocks of several times its own size, which is the cell's own write amplification and the
//!   very thing that a sparse file costs;
//! - the device moved less than was asked: a cache hides the own part, and perhaps foreign work.
//!
//! Requests are compared only where one request of the workload is one of the device: direct
//! 4 KiB jobs. Larger ones are split and merged on the way.
//!
//! **Marks.** Fewer bytes at the device than 90 % of those asked for, in the cell's own
//! direction: `Cached`. Processes of others that kept more than 20 % of all processors at work: `ProcessorsBusy`. More bytes are never a cache: they are foreign work (`HostBusy` above
//! 20 %) or write amplification (no mark; the figures are in the result). A request that took 10 s, or as long a time in
//! which requests were in flight and none ended: `Stalled`.

use vmio_model::figure::scalar;
use vmio_model::result::{DeviceUse, DiskTraits, DiskWork, Foreign, LONGEST_WAIT, Mark, ProbeResult, SHARE, Watched};

/// Above this share of the cell's own the host is busy; and above this share of the processors, these.
const BUSY: f64 = 0.2;
/// Seconds for which no disk that works lets a request wait. Its own error recovery ends within 7 s where it is bounded
/// (SCT ERC), and the timeouts of Linux's drivers, which end a stall, begin at 30 s.
const STALL: f64 = 10.0;
/// Bytes at the device may be this much fewer than those asked for.
const CACHED: f64 = 0.1;
/// What a file system may write about our file within a cell.
const ALLOWED_BYTES: u64 = 1 << 20;
const ALLOWED_IOS: u64 = 32;
/// A short look that sees no more requests than this sees an idle disk: one journal commit in
/// 200 ms would else be taken for a load of many commits a second.
const IDLE_IOS: u64 = 8;

/// A cell's circumstances, as far as its own traffic at the device depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// Every write of the cell makes the file system allocate (fresh sparse file).
    pub first_write: bool,
    /// The guest's disk goes through the host's page cache.
    pub host_cache: bool,
}

/// Foreign load of a cell. `before` is what the device did in the gap before it, without any
/// work of vmio; `during` what it did while the cell ran, both `None` where it is not visible.
pub fn foreign(
    traits: &DiskTraits,
    circumstances: Circumstances,
    result: &DiskWork,
    before: Option<&DeviceUse>,
    during: Option<&DeviceUse>,
) -> Foreign {
    let mut foreign = Foreign::default();
    if let Some(before) = before {
        let ios = before.read_ios + before.write_ios;
        if ios > IDLE_IOS && before.seconds > 0.0 {
            foreign.before_bytes_per_second = bytes(before) as f64 / before.seconds;
            foreign.before_ios_per_second = ios as f64 / before.seconds;
        }
    }
    let Some(during) = during else { return foreign };
    let own = result.read_bytes + result.write_bytes;
    let small = traits.block_bytes <= 4096;
    let amplified = circumstances.first_write && traits.writes && small;
    let hidden = (bytes(during) as f64) < own as f64 * (1.0 - CACHED);
    if own == 0 || circumstances.host_cache || amplified || hidden {
        return foreign;
    }
    let beyond = |all: u64, own: u64, allowed: u64| all.saturating_sub(own + allowed) as f64 / own as f64;
    foreign.during_bytes_ratio = Some(beyond(bytes(during), own, ALLOWED_BYTES));
    if small && traits.direct && result.ios > 0 {
        foreign.during_ios_ratio = Some(beyond(during.read_ios + during.write_ios, result.ios, ALLOWED_IOS));
    }
    foreign
}

/// Words of caution for a sample.
pub fn marks(traits: &DiskTraits, result: &DiskWork, during: Option<&DeviceUse>, foreign: &Foreign) -> Vec<Mark> {
    let Some(during) = during else { return vec![Mark::NotVisible] };
    let mut marks = Vec::new();
    let (asked, moved) =
        if traits.writes { (result.write_bytes, during.write_bytes) } else { (result.read_bytes, during.read_bytes) };
    if (moved as f64) < asked as f64 * (1.0 - CACHED) {
        marks.push(Mark::Cached);
    }
    let before_ios = if traits.block_bytes <= 4096 { foreign.before_ios_per_second / result.iops() } else { 0.0 };
    let shares = [
        foreign.during_bytes_ratio.unwrap_or(0.0),
        foreign.during_ios_ratio.unwrap_or(0.0),
        foreign.before_bytes_per_second / result.bandwidth(),
        before_ios,
    ];
    if shares.iter().any(|&share| share > BUSY) {
        marks.push(Mark::HostBusy);
    }
    marks
}

/// Whether a disk stalled: by the longest that a program says one of its requests took, or by what disks were seen to
/// wait for, the host's and the guests' own.
pub fn stalled(told: impl IntoIterator<Item = f64>, seen: &[ProbeResult]) -> Option<Mark> {
    let waits = seen.iter().filter_map(|seen| scalar(&seen.figures, LONGEST_WAIT));
    told.into_iter().chain(waits).any(|seconds| seconds >= STALL).then_some(Mark::Stalled)
}

/// Whether others kept the processors busy, of which every cell has need.
pub fn processors(seen: &[ProbeResult]) -> Option<Mark> {
    let share = |seen: &ProbeResult| scalar(&seen.figures, SHARE).filter(|_| seen.watched == Watched::Others);
    seen.iter().filter_map(share).any(|share| share > BUSY).then_some(Mark::ProcessorsBusy)
}

fn bytes(device: &DeviceUse) -> u64 {
    device.read_bytes + device.write_bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::Reading;

    use super::*;
    use crate::workloads;

    const MIB: u64 = 1 << 20;
    const PLAIN: Circumstances = Circumstances { first_write: false, host_cache: false };

    fn traits(name: &str) -> DiskTraits {
        workloads::find(name).unwrap().traits().disk.unwrap()
    }

    fn reads(mib: u64, ios: u64) -> DiskWork {
        DiskWork { read_bytes: mib * MIB, ios, seconds: 2.0, ..DiskWork::default() }
    }

    fn writes(mib: u64, ios: u64) -> DiskWork {
        DiskWork { write_bytes: mib * MIB, ios, seconds: 2.0, ..DiskWork::default() }
    }

    fn device(read_mib: u64, write_mib: u64, ios: u64) -> DeviceUse {
        DeviceUse {
            seconds: 2.0,
            read_bytes: read_mib * MIB,
            write_bytes: write_mib * MIB,
            read_ios: ios,
            ..DeviceUse::default()
        }
    }

    fn judged(
        name: &str,
        c: Circumstances,
        result: &DiskWork,
        before: DeviceUse,
        during: DeviceUse,
    ) -> (Foreign, Vec<Mark>) {
        let t = traits(name);
        let f = foreign(&t, c, result, Some(&before), Some(&during));
        (f, marks(&t, result, Some(&during), &f))
    }

    #[test]
    fn a_quiet_cell_has_no_mark() {
        let (f, m) = judged("rand-read-1", PLAIN, &reads(40, 10240), device(0, 0, 3), device(40, 1, 10260));
        assert_eq!((f.during_bytes_ratio, f.during_ios_ratio, m), (Some(0.0), Some(0.0), vec![]));
        assert_eq!(f.before_ios_per_second, 0.0, "three requests are an idle disk");
    }

    #[test]
    fn foreign_work_during_and_before_is_seen_above_a_fifth() {
        let quiet = device(0, 0, 0);
        let (f, m) = judged("seq-read", PLAIN, &reads(400, 6400), quiet, device(400, 61, 7000));
        assert_eq!((f.during_bytes_ratio, m), (Some(0.15), vec![]));
        let (f, m) = judged("seq-read", PLAIN, &reads(400, 6400), quiet, device(400, 101, 7000));
        assert_eq!((f.during_bytes_ratio, f.during_ios_ratio, m), (Some(0.25), None, vec![Mark::HostBusy]));
        // Small foreign requests beside a small job: few bytes, many requests.
        let (f, m) = judged("rand-read-32", PLAIN, &reads(400, 102_400), quiet, device(401, 0, 140_000));
        assert!(f.during_bytes_ratio == Some(0.0) && f.during_ios_ratio.unwrap() > 0.3 && m == [Mark::HostBusy]);
        let (f, m) = judged("seq-read", PLAIN, &reads(400, 6400), device(0, 100, 900), device(400, 0, 6400));
        assert_eq!((f.before_bytes_per_second, m), (50.0 * MIB as f64, vec![Mark::HostBusy]));
        let (_, m) = judged("seq-read", PLAIN, &reads(400, 6400), device(0, 70, 900), device(400, 0, 6400));
        assert_eq!(m, []);
    }

    #[test]
    fn fewer_bytes_are_a_cache_and_more_are_not() {
        let quiet = device(0, 0, 0);
        let (f, m) = judged("dd-read", PLAIN, &reads(512, 8192), quiet, device(450, 0, 8000));
        assert_eq!((f.during_bytes_ratio, m), (None, vec![Mark::Cached]));
        let (_, m) = judged("dd-read", PLAIN, &reads(512, 8192), quiet, device(470, 0, 8000));
        assert_eq!(m, []);
        // Foreign writes do not make up for reads that never reached the device.
        let (_, m) = judged("seq-read", PLAIN, &reads(400, 6400), quiet, device(10, 395, 9000));
        assert_eq!(m, [Mark::Cached]);
    }

    #[test]
    fn the_cells_own_amplification_is_not_foreign() {
        let quiet = device(0, 0, 0);
        let fresh = Circumstances { first_write: true, host_cache: false };
        let (f, m) = judged("durable-append", fresh, &writes(4, 1024), quiet, device(0, 24, 5000));
        assert_eq!((f.during_bytes_ratio, f.during_ios_ratio, m), (None, None, vec![]));
        // Large sequential first writes bring little metadata: there foreign work is seen.
        let (f, m) = judged("seq-write", fresh, &writes(400, 6400), quiet, device(0, 501, 9000));
        assert_eq!((f.during_bytes_ratio, m), (Some(0.25), vec![Mark::HostBusy]));
        let cache = Circumstances { first_write: false, host_cache: true };
        let (f, _) = judged("rand-read-1", cache, &reads(40, 10240), quiet, device(400, 0, 20000));
        assert_eq!(f.during_bytes_ratio, None, "read-ahead of the host");
    }

    #[test]
    fn processors_are_busy_by_what_others_do() {
        let seen = |watched, share| ProbeResult::here(watched, "others", vec![Reading::scalar(SHARE, share)]);
        assert_eq!(processors(&[seen(Watched::Others, 0.2)]), None);
        assert_eq!(processors(&[seen(Watched::Others, 0.21)]), Some(Mark::ProcessorsBusy));
        assert_eq!(processors(&[seen(Watched::Processors, 0.9)]), None);
        assert_eq!(processors(&[]), None);
    }

    #[test]
    fn a_stall_is_told_by_the_program_or_by_a_disk() {
        let seen = |node: &str, seconds: f64| {
            let figures = vec![Reading::scalar(LONGEST_WAIT, seconds)];
            ProbeResult {
                node: node.into(),
                ..ProbeResult::here(Watched::Disk("nvme0n1".into()), "diskstats", figures)
            }
        };
        assert_eq!(stalled([9.9], &[seen("", 9.9), seen("qemu", 0.0)]), None);
        assert_eq!(stalled([30.2], &[]), Some(Mark::Stalled));
        assert_eq!(stalled([], &[seen("", 0.1), seen("qemu", 29.0)]), Some(Mark::Stalled));
        assert_eq!(stalled([], &[]), None);
    }

    #[test]
    fn where_nothing_is_seen_it_is_said() {
        let t = traits("seq-read");
        let f = foreign(&t, PLAIN, &reads(400, 6400), None, None);
        assert_eq!(f, Foreign::default());
        assert_eq!(marks(&t, &reads(400, 6400), None, &f), [Mark::NotVisible]);
    }
}
