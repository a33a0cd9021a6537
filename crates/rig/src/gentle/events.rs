//! Block trace events of the kernel as text, and their pairing into requests with a latency.
//!
//! Two events are used (include/trace/events/block.h of Linux):
//! - `block_bio_queue`: a task hands a request to the block layer. It runs in that task, so it
//!   says whose request it is. (`block_rq_issue` often runs in a kernel worker and does not.)
//! - `block_rq_complete`: the device has done a stretch of sectors.
//!
//! From the first to the second is what a guest feels of the device: waiting for a free tag,
//! the I/O scheduler's queue, and the device. A bio may be split into several device requests or
//! merged with others into one, so a bio is done when all its sectors were completed.

use std::collections::{BTreeMap, HashMap};

use vmio_node::linux::device;

/// Major and minor number of a whole disk. The events carry the disk, also for partitions, and
/// sectors counted from the start of the disk.
pub type Dev = (u32, u32);

/// Direction of a request. Each has a latency of its own, and they are never compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
}

/// What a line of `trace_pipe` says.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A task handed over a request.
    Queued {
        /// Seconds on the trace clock.
        seconds: f64,
        /// Thread that did it.
        tid: u32,
        /// Disk.
        dev: Dev,
        /// First sector (of 512 bytes).
        sector: u64,
        /// Number of sectors.
        sectors: u32,
        /// Direction.
        op: Op,
    },
    /// The device completed sectors.
    Completed {
        /// Seconds on the trace clock.
        seconds: f64,
        /// Disk.
        dev: Dev,
        /// First sector (of 512 bytes).
        sector: u64,
        /// Number of sectors.
        sectors: u32,
        /// Direction.
        op: Op,
    },
    /// The kernel overwrote events before they were read.
    Lost,
}

impl Event {
    /// Seconds on the trace clock; a loss has none.
    pub fn seconds(&self) -> Option<f64> {
        match self {
            Self::Queued { seconds, .. } | Self::Completed { seconds, .. } => Some(*seconds),
            Self::Lost => None,
        }
    }
}

/// Reads a line of `trace_pipe`. `None` for other events, for requests without data (flushes)
/// and for discards, whose times say nothing of reads and writes.
///
/// The columns between the thread and the time differ between kernels and options (a process
/// id in parentheses, four or five flag letters, none), as does what follows the sectors: only
/// the parts that are everywhere the same are used.
pub fn parse_line(line: &str) -> Option<Event> {
    if line.starts_with("CPU:") && line.contains("[LOST ") {
        return Some(Event::Lost);
    }
    // A task's name holds up to 15 bytes of anything, so it cannot hold either of these.
    if let Some((head, tail)) = line.split_once(": block_bio_queue: ") {
        let (tid, seconds) = head_of(head)?;
        let (dev, rwbs, sector, sectors) = tail_of(tail)?;
        Some(Event::Queued { seconds, tid, dev, sector, sectors, op: op_of(rwbs)? })
    } else if let Some((head, tail)) = line.split_once(": block_rq_complete: ") {
        let (_, seconds) = head_of(head)?;
        let (dev, rwbs, sector, sectors) = tail_of(tail)?;
        Some(Event::Completed { seconds, dev, sector, sectors, op: op_of(rwbs)? })
    } else {
        None
    }
}

/// `NAME-TID [CPU] FLAGS SECONDS` or `NAME-TID (TGID) [CPU] FLAGS SECONDS`.
fn head_of(head: &str) -> Option<(u32, f64)> {
    let (rest, seconds) = head.rsplit_once(' ')?;
    let seconds: f64 = seconds.parse().ok()?;
    let mut task = rest[..rest.rfind('[')?].trim_end();
    if task.ends_with(')') {
        task = task[..task.rfind('(')?].trim_end();
    }
    let (_, tid) = task.rsplit_once('-')?;
    Some((tid.parse().ok()?, seconds))
}

/// `MAJOR,MINOR RWBS ... SECTOR + SECTORS ...`
fn tail_of(tail: &str) -> Option<(Dev, &str, u64, u32)> {
    let (dev, rest) = tail.split_once(' ')?;
    let dev = device::parse_traced(dev)?;
    let rwbs = rest.split(' ').next()?;
    let (before, after) = rest.split_once(" + ")?;
    let sector = before.rsplit(' ').next()?.parse().ok()?;
    let sectors: u32 = after.split(' ').next()?.trim_end().parse().ok()?;
    (sectors > 0).then_some((dev, rwbs, sector, sectors))
}

/// `rwbs` as blk_fill_rwbs() writes it: F (a flush first), then R, W, D or another letter; WZ
/// (zeroes, which carry no data) is none of ours.
fn op_of(rwbs: &str) -> Option<Op> {
    let mut letters = rwbs.trim_start_matches('F').chars();
    match (letters.next()?, letters.next()) {
        ('R', _) => Some(Op::Read),
        ('W', Some('Z')) => None,
        ('W', _) => Some(Op::Write),
        _ => None,
    }
}

/// A request that ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Done {
    /// Whose it was: the number given to [`Matcher::queued`].
    pub who: u32,
    /// Direction.
    pub op: Op,
    /// When its last sector was completed, in seconds on the trace clock.
    pub seconds: f64,
    /// From queued to completed, in seconds.
    pub latency_seconds: f64,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    who: u32,
    seconds: f64,
    end: u64,
    left: u64,
}

/// Requests that wait for their completion. Holds those of the guests only, so it is as small
/// as their queue depth.
#[derive(Debug, Default)]
pub struct Matcher {
    pending: HashMap<(Dev, Op), BTreeMap<u64, Pending>>,
}

impl Matcher {
    /// A request of guest `who` was queued. A second one of the same direction for the same first
    /// sector takes the place of the first, which is given up: then this returns true.
    pub fn queued(&mut self, who: u32, seconds: f64, dev: Dev, sector: u64, sectors: u32, op: Op) -> bool {
        let left = u64::from(sectors);
        let pending = Pending { who, seconds, end: sector.saturating_add(left), left };
        self.pending.entry((dev, op)).or_default().insert(sector, pending).is_some()
    }

    /// The device completed sectors; `done` is called for each request that ended with them.
    pub fn completed(&mut self, seconds: f64, dev: Dev, sector: u64, sectors: u32, op: Op, mut done: impl FnMut(Done)) {
        let Some(pending) = self.pending.get_mut(&(dev, op)) else { return };
        let end = sector.saturating_add(u64::from(sectors));
        // Requests do not overlap, so of those that start earlier only the last can reach here.
        let from = pending.range(..sector).next_back().filter(|(_, p)| p.end > sector).map_or(sector, |(&s, _)| s);
        let hit: Vec<u64> = pending.range(from..end).map(|(&s, _)| s).collect();
        for start in hit {
            let Some(p) = pending.get_mut(&start) else { continue };
            p.left = p.left.saturating_sub(end.min(p.end) - sector.max(start));
            if p.left == 0 {
                done(Done { who: p.who, op, seconds, latency_seconds: (seconds - p.seconds).max(0.0) });
                pending.remove(&start);
            }
        }
    }

    /// Forgets all that is pending, since completions may have been lost. Returns how many.
    pub fn forget(&mut self) -> usize {
        let count = self.pending.values().map(BTreeMap::len).sum();
        self.pending.clear();
        count
    }

    /// The longest waiting request of each guest and direction: who, op, queued at.
    pub fn oldest(&self) -> HashMap<(u32, Op), f64> {
        let mut oldest: HashMap<(u32, Op), f64> = HashMap::new();
        for (&(_, op), pending) in &self.pending {
            for p in pending.values() {
                let at = oldest.entry((p.who, op)).or_insert(p.seconds);
                *at = at.min(p.seconds);
            }
        }
        oldest
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DEV: Dev = (254, 0);

    #[test]
    fn lines_of_this_and_other_kernels() {
        let queued = |seconds, tid, sector, sectors, op| Event::Queued { seconds, tid, dev: DEV, sector, sectors, op };
        for (line, expected) in [
            (
                "             fio-24802   [000] .N...  1192.899624: block_bio_queue: 254,0 RS 28381040 + 8 [fio]",
                queued(1192.899624, 24802, 28381040, 8, Op::Read),
            ),
            // Linux 4.19: four flag letters. With the option record-tgid: the process as well.
            (
                "     worker-7 (    812) [001] .... 12.5: block_bio_queue: 254,0 FWFS 16 + 1 [worker]",
                queued(12.5, 7, 16, 1, Op::Write),
            ),
            // Without irq-info, and a name made to confuse.
            (
                " a-1 [0] + 2-77 [003] 3.25: block_bio_queue: 254,0 W 5 + 6 [a-1 [0] + 2]",
                queued(3.25, 77, 5, 6, Op::Write),
            ),
            (
                "   iou-wrk-9-10 [003] ..... 3.25: block_bio_queue: 254,0 R 5 + 6 [iou-wrk-9]",
                queued(3.25, 10, 5, 6, Op::Read),
            ),
        ] {
            assert_eq!(parse_line(line), Some(expected), "{line}");
        }
        for line in [
            "          <idle>-0       [001] .Ns1.  1195.221238: block_rq_complete: 254,0 WS () 28399616 + 2040 be,0,4 [0]",
            // Before Linux 6.10 without the priority; a command's bytes for SCSI.
            "          <idle>-0       [001] ..s1  1195.221238: block_rq_complete: 254,0 WS (2a 00) 28399616 + 2040 [0]",
        ] {
            let expected =
                Event::Completed { seconds: 1195.221238, dev: DEV, sector: 28399616, sectors: 2040, op: Op::Write };
            assert_eq!(parse_line(line), Some(expected), "{line}");
        }
        assert_eq!(parse_line("CPU:1 [LOST 229394 EVENTS]"), Some(Event::Lost));
        assert_eq!(parse_line("CPU:1 [LOST EVENTS]"), Some(Event::Lost));
    }

    #[test]
    fn other_lines_are_no_events() {
        for line in [
            "",
            "CPU:",
            "[",
            ": block_bio_queue: ",
            "x-1 [0] 1.0: block_bio_queue: 254,0 FF 0 + 0 [x]",
            "x-1 [0] 1.0: block_bio_queue: 254,0 DS 8 + 64 [x]",
            "x-1 [0] 1.0: block_bio_queue: 254,0 WZS 8 + 64 [x]",
            "x-1 [0] 1.0: block_rq_complete: 8,0 N () 18446744073709551615 + 0 [0]",
            "x-1 [0] 1.0: block_rq_issue: 254,0 R 4096 () 8 + 8 [x]",
            "x-1 [0] 1.0: block_bio_queue: 254 R 8 + 8 [x]",
            "x-1 1.0: block_bio_queue: 254,0 R 8 + 8 [x]",
            "x-1 [0] now: block_bio_queue: 254,0 R 8 + 8 [x]",
            "x-1 [0] 1.0: block_bio_queue: 254,0 R 8 + 99999999999 [x]",
        ] {
            assert_eq!(parse_line(line), None, "{line}");
        }
    }

    fn complete(m: &mut Matcher, op: Op, seconds: f64, sector: u64, sectors: u32) -> Vec<(u32, f64)> {
        let mut got = Vec::new();
        m.completed(seconds, DEV, sector, sectors, op, |d| got.push((d.who, d.latency_seconds)));
        got
    }

    #[test]
    fn a_split_request_ends_with_its_last_piece() {
        let mut m = Matcher::default();
        m.queued(1, 10.0, DEV, 1000, 2048, Op::Write);
        assert_eq!(complete(&mut m, Op::Write, 10.5, 3040, 8), []);
        assert_eq!(complete(&mut m, Op::Write, 11.0, 1000, 2040), [(1, 1.0)]);
        assert!(m.oldest().is_empty());
    }

    #[test]
    fn merged_requests_end_together_and_others_stay() {
        let mut m = Matcher::default();
        m.queued(1, 10.0, DEV, 1000, 8, Op::Read);
        m.queued(2, 10.25, DEV, 1008, 8, Op::Read);
        m.queued(3, 9.0, DEV, 1016, 8, Op::Read);
        m.queued(4, 9.0, (8, 0), 1000, 8, Op::Read);
        assert_eq!(complete(&mut m, Op::Read, 10.5, 1000, 16), [(1, 0.5), (2, 0.25)]);
        assert_eq!(m.oldest(), HashMap::from([((3, Op::Read), 9.0), ((4, Op::Read), 9.0)]));
        assert_eq!(complete(&mut m, Op::Read, 10.5, 5000, 16), []);
        assert_eq!(m.forget(), 2);
        assert_eq!(complete(&mut m, Op::Read, 10.5, 1016, 8), []);
    }

    #[test]
    fn a_read_and_a_write_of_the_same_sectors_are_two_requests() {
        let mut m = Matcher::default();
        assert!(!m.queued(1, 10.0, DEV, 1000, 8, Op::Read));
        assert!(!m.queued(1, 10.25, DEV, 1000, 8, Op::Write));
        assert_eq!(complete(&mut m, Op::Write, 10.5, 1000, 8), [(1, 0.25)]);
        assert!(m.queued(2, 10.75, DEV, 1000, 8, Op::Read), "the first reader is given up");
        assert_eq!(complete(&mut m, Op::Read, 11.0, 1000, 8), [(2, 0.25)]);
    }
}
