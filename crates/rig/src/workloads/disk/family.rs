//! A family of fio jobs by name, for what is swept: request size, depth, engine, page cache.
//!
//! `seq-read-64k-d8-uring-buffered` needs no file of its own: the name says it all, and what is
//! not said is libaio past the page cache. A job has one name only (`64k`, never `65536`), since
//! names are keys of cells.
//!
//! libaio through the page cache is synchronous (io_submit(2) blocks where the file was not opened
//! with O_DIRECT): such names are allowed, since showing that is what they are for.

use std::borrow::Cow;

use vmio_look::require::Requirement;
use vmio_model::study::{Family, SubjectKind, WordError};

use super::fio::{Engine, FioJob, Rw};

/// How the names are made.
pub const GRAMMAR: &str = "<seq|rand>-<read|write>-<size>-d<depth>[-uring|-<n>iops][-buffered]";

/// The family as the reader of studies needs it.
pub const FAMILY: Family = Family {
    grammar: GRAMMAR,
    example: "seq-read-64k-d8-uring",
    recognise: |word| Some(parse(word)?.map(|_| ())),
    works_on: SubjectKind::Disk,
};

/// The family's kinds as `doctor` shows them: name, one line, what they need.
pub const KINDS: &[(&str, &str, &[Requirement])] = &[
    (
        "<seq|rand>-<read|write>-<size>-d<depth>[-buffered]",
        "fio: any size and depth by libaio, direct or through the page cache, such as seq-read-64k-d8",
        &[super::FIO],
    ),
    (
        "<seq|rand>-<read|write>-<size>-d<depth>-uring[-buffered]",
        "the same with io_uring, such as seq-read-64k-d8-uring",
        &[super::FIO, super::IO_URING],
    ),
    (
        "rand-read-<size>-d<depth>-<n>iops[-buffered]",
        "fio: n requests a second at random intervals (open loop, Poisson) by as many threads as the depth, such as \
         rand-read-4k-d10-2000iops",
        &[super::FIO],
    ),
];

/// Smallest request: a sector.
const SIZE_LEAST: u64 = 512;
/// Largest request: fio's buffers for all that is in flight must fit into a small guest.
const SIZE_MOST: u64 = 4 << 20;
/// Most bytes in flight, for the same reason: half of the smallest guest's memory is fio's own.
const FLIGHT_MOST: u64 = 64 << 20;
/// Greatest rate that a name may have.
const RATE_MOST: u32 = 1_000_000;
/// Greatest depth.
const DEPTH_MOST: u32 = 1024;

/// A member of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Pattern and direction.
    pub rw: Rw,
    /// Request size in bytes; a multiple of 512.
    pub block_bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// io_uring instead of libaio.
    pub uring: bool,
    /// Requests a second, in an open loop.
    pub rate: Option<u32>,
    /// Through the page cache instead of past it.
    pub buffered: bool,
}

impl Member {
    /// Its name: what [`super::find`] takes.
    pub fn name(&self) -> String {
        let rate = self.rate.map_or_else(String::new, |rate| format!("-{rate}iops"));
        format!(
            "{}-{}-{}-d{}{}{rate}{}",
            if self.rw.sequential() { "seq" } else { "rand" },
            if self.rw.reads() { "read" } else { "write" },
            size(self.block_bytes),
            self.depth,
            if self.uring { "-uring" } else { "" },
            if self.buffered { "-buffered" } else { "" },
        )
    }

    fn check(&self) -> Result<(), WordError> {
        let (bytes, depth) = (self.block_bytes, self.depth);
        let wrong = if bytes % 512 != 0 {
            let near = size((bytes / 512).max(1) * 512);
            format!("{bytes} bytes is not a multiple of 512, a disk's sector; {near} is the nearest")
        } else if !(SIZE_LEAST..=SIZE_MOST).contains(&bytes) {
            format!("the size is out of range: {} to {}", size(SIZE_LEAST), size(SIZE_MOST))
        } else if !(1..=DEPTH_MOST).contains(&depth) {
            format!("the depth is out of range: 1 to {DEPTH_MOST}")
        } else if bytes * u64::from(depth) > FLIGHT_MOST {
            format!("{depth} times {} in flight are more than {}", size(bytes), size(FLIGHT_MOST))
        } else if let Some(wrong) = self.rate.and_then(|rate| self.not_at(rate)) {
            wrong
        } else {
            return Ok(());
        };
        Err(WordError(wrong))
    }

    /// Why it cannot have a rate. fio's is a whole number for each thread.
    fn not_at(&self, rate: u32) -> Option<String> {
        let depth = self.depth;
        if self.rw != Rw::RandRead || self.uring {
            Some("only random reads have a rate, by threads instead of io_uring".to_owned())
        } else if !(1..=RATE_MOST).contains(&rate) {
            Some(format!("the rate is out of range: 1iops to {RATE_MOST}iops"))
        } else if !rate.is_multiple_of(depth) {
            Some(format!("{rate} requests a second are not the same for each of {depth} threads: use a multiple of it"))
        } else {
            None
        }
    }

    /// The job.
    pub fn job(&self) -> FioJob {
        let (way, engine) = match (self.rate, self.uring, self.buffered) {
            (Some(_), _, false) => ("direct by threads", Engine::Threads),
            (Some(_), _, true) => ("through the page cache by threads", Engine::Threads),
            (None, false, false) => ("direct", Engine::Libaio),
            (None, true, false) => ("direct by io_uring", Engine::IoUring),
            (None, false, true) => ("through the page cache by libaio (synchronous)", Engine::Libaio),
            (None, true, true) => ("through the page cache by io_uring", Engine::IoUring),
        };
        let rate = self.rate.map_or_else(String::new, |rate| format!(" at most, {rate} a second (Poisson)"));
        let about = format!(
            "fio: {} {} {}, {way}, {} in flight{rate}",
            shown(self.block_bytes),
            if self.rw.sequential() { "sequential" } else { "random" },
            if self.rw.reads() { "reads" } else { "writes" },
            self.depth,
        );
        FioJob {
            name: Cow::Owned(self.name()),
            about: Cow::Owned(about),
            rw: self.rw,
            block_bytes: self.block_bytes,
            depth: self.depth,
            engine,
            buffered: self.buffered,
            rate: self.rate,
        }
    }
}

/// The member of that name: `None` when the word is not of the family at all, `Some(Err)` when it
/// is meant to be, with what is wrong.
pub fn parse(word: &str) -> Option<Result<Member, WordError>> {
    let mut parts = word.split('-');
    let (pattern, direction) = (parts.next()?, parts.next()?);
    let rw = match (pattern, direction) {
        ("seq", "read") => Rw::Read,
        ("seq", "write") => Rw::Write,
        ("rand", "read") => Rw::RandRead,
        ("rand", "write") => Rw::RandWrite,
        _ => return None,
    };
    let rest: Vec<&str> = parts.collect();
    // `seq-readx` and `rand-read-3` are no more like this family than like the fixed entries.
    if rest.len() < 2 && !rest.first().is_some_and(|r| r.ends_with(['k', 'K', 'm', 'M'])) {
        return None;
    }
    Some(member(rw, &rest).and_then(|m| {
        m.check()?;
        let name = m.name();
        let other = || WordError(format!("write it as `{name}`: each job has exactly one name"));
        if name == word { Ok(m) } else { Err(other()) }
    }))
}

fn member(rw: Rw, rest: &[&str]) -> Result<Member, WordError> {
    let size = rest[0];
    let no_size = || WordError(format!("`{size}` is not a size: bytes, or KiB and MiB as in 512, 7680, 4k, 64k, 1m"));
    let block_bytes = bytes(size).ok_or_else(no_size)?;
    let depth = rest.get(1).ok_or_else(|| WordError("the depth is missing, for example -d8".to_owned()))?;
    let no_depth = || WordError(format!("`{depth}` is not a depth: d and a whole number, for example d8"));
    let depth = depth.strip_prefix('d').and_then(|d| d.parse().ok()).ok_or_else(no_depth)?;
    let mut member = Member { rw, block_bytes, depth, uring: false, rate: None, buffered: false };
    for word in &rest[2..] {
        match *word {
            "uring" => member.uring = true,
            "buffered" => member.buffered = true,
            other => match other.strip_suffix("iops").and_then(|rate| rate.parse().ok()) {
                Some(rate) => member.rate = Some(rate),
                None => {
                    let wrong = format!("`{other}` is neither `uring` nor `buffered`, nor a rate as in `2000iops`");
                    return Err(WordError(wrong));
                }
            },
        }
    }
    Ok(member)
}

/// `7680`, `64k`, `1m`; capitals are understood, so that the answer can name the right word.
fn bytes(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    let (digits, unit) = match lower.strip_suffix('k') {
        Some(digits) => (digits, 1 << 10),
        None => lower.strip_suffix('m').map_or((lower.as_str(), 1), |digits| (digits, 1 << 20)),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The one way to write a size: the largest unit that divides it.
fn size(bytes: u64) -> String {
    match bytes {
        b if b > 0 && b % (1 << 20) == 0 => format!("{}m", b >> 20),
        b if b > 0 && b % (1 << 10) == 0 => format!("{}k", b >> 10),
        b => b.to_string(),
    }
}

fn shown(bytes: u64) -> String {
    match bytes {
        b if b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} byte"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workloads::{Workload, find};

    #[test]
    fn names_say_it_all() {
        let job = parse("seq-read-64k-d8-uring-buffered").unwrap().unwrap();
        assert_eq!(
            job,
            Member { rw: Rw::Read, block_bytes: 64 << 10, depth: 8, uring: true, rate: None, buffered: true }
        );
        let t = job.job().traits().disk.unwrap();
        assert_eq!((t.engine.as_str(), t.direct, t.depth, t.sequential, t.reads), ("io_uring", false, 8, true, true));
        let traits = find("rand-write-7680-d1").unwrap().traits();
        assert_eq!(traits.name, "rand-write-7680-d1");
        let t = traits.disk.unwrap();
        assert_eq!((t.engine.as_str(), t.direct, t.block_bytes, t.sequential), ("libaio", true, 7680, false));
        assert!(t.writes && !t.reads);
    }

    /// Every member's name is read back as the same member.
    #[test]
    fn names_go_both_ways() {
        for rw in [Rw::Read, Rw::Write, Rw::RandRead, Rw::RandWrite] {
            for block_bytes in [512, 4096, 7680, 65536, 1 << 20] {
                for depth in [1, 8, 64] {
                    for (uring, buffered) in [(false, false), (true, false), (false, true), (true, true)] {
                        let m = Member { rw, block_bytes, depth, uring, rate: None, buffered };
                        assert_eq!(parse(&m.name()), Some(Ok(m)), "{}", m.name());
                        assert_eq!(find(&m.name()).unwrap().traits().name, m.name());
                    }
                }
            }
        }
    }

    #[test]
    fn a_rate_is_a_part_of_the_name() {
        let word = "rand-read-4k-d10-2000iops-buffered";
        let job = parse(word).unwrap().unwrap();
        assert_eq!((job.rate, job.depth, job.buffered, job.name().as_str()), (Some(2000), 10, true, word));
        let traits = find(word).unwrap().traits();
        assert_eq!((traits.check(), traits.judged_by.as_str()), (Ok(()), "latency"));
        for (word, says) in [
            ("seq-read-4k-d10-2000iops", "only random reads"),
            ("rand-write-4k-d10-2000iops", "only random reads"),
            ("rand-read-4k-d10-uring-2000iops", "instead of io_uring"),
            ("rand-read-4k-d16-500iops", "use a multiple"),
            ("rand-read-4k-d1-0iops", "out of range"),
            ("rand-read-4k-d10-02000iops", "write it as `rand-read-4k-d10-2000iops`"),
        ] {
            let WordError(said) = parse(word).unwrap().unwrap_err();
            assert!(said.contains(says), "{word}: {said}");
        }
    }

    #[test]
    fn near_misses_are_told_what_is_wrong() {
        for (word, says) in [
            ("seq-read-64q-d8", "`64q` is not a size"),
            ("seq-read-7000-d1", "not a multiple of 512, a disk's sector; 6656 is the nearest"),
            ("seq-read-64k-d0", "depth is out of range: 1 to 1024"),
            ("seq-read-0-d1", "512 to 4m"),
            ("seq-read-8m-d1", "512 to 4m"),
            ("seq-read-4m-d64", "more than 64m"),
            ("seq-read-64k", "depth is missing"),
            ("seq-read-64k-8", "`8` is not a depth"),
            ("seq-read-64k-d8-async", "neither `uring` nor `buffered`"),
            ("seq-read-64K-d8", "write it as `seq-read-64k-d8`"),
            ("seq-read-65536-d8", "write it as `seq-read-64k-d8`"),
            ("seq-read-64k-d08", "write it as `seq-read-64k-d8`"),
            ("seq-read-64k-d8-buffered-uring", "write it as `seq-read-64k-d8-uring-buffered`"),
        ] {
            let WordError(said) = parse(word).unwrap().unwrap_err();
            assert!(said.contains(says), "{word}: {said}");
            assert!(find(word).is_none(), "{word}");
        }
        for other in ["seq-read", "rand-read-32", "rand-read-3", "seq-red-64k-d8", "dd-read", "durable-append", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
