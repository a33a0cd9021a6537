//! A family of datagram streams by name, for what is swept: rate, size, whether the sender waits.
//!
//! `udp-100mbit-1472` says it all, and so does `udp-80mbit.20s.20mbit-1472-frames`: 80 Mbit/s of frames until 20 s, then 20. A stream has one name only (`1gbit`, never `1000mbit`), since names are keys of cells.

use vmio_look::require::Requirement;
use vmio_model::rate::BitRate;
use vmio_model::study::{Family, SubjectKind, WordError};
use vmio_node::udp::packet::{HEADER_BYTES, MOST_BYTES};

use crate::ours;

/// How the names are made.
pub const GRAMMAR: &str = "udp-<rate>[.<s>s.<rate>…]-<bytes>[-frames][-within<ms>ms][-blocking]";

/// The family as the reader of studies needs it.
pub const FAMILY: Family = Family {
    grammar: GRAMMAR,
    example: "udp-100mbit-1472",
    recognise: |word| Some(parse(word)?.map(|_| ())),
    works_on: SubjectKind::Path,
};

pub(super) const GENERATOR: Requirement = Requirement {
    name: "vmio-udp",
    why: "runs the network workloads udp-…",
    fix: "build it with `make agent`, or name it by VMIO_UDP",
    check: |reader| ours::UDP.there(reader),
};

/// The family's kinds as `doctor` shows them: name, one line, what they need.
pub const KINDS: &[(&str, &str, &[Requirement])] = &[(
    GRAMMAR,
    "vmio-udp: datagrams to the peer at a rate, each when it is due, such as udp-100mbit-1472",
    &[GENERATOR],
)];

/// What a frame has beside the payload: the headers of Ethernet, IPv4 and UDP. Preamble, check sum and gap do not pass the
/// kernel, and no queue of it counts them.
const FRAME_BYTES: usize = 14 + 20 + 8;

/// The words of rates, the largest first.
const UNITS: [(&str, u64); 3] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];
/// Highest rate: beyond what a host has links for.
const RATE_MOST: BitRate = BitRate::new(800_000_000_000);
/// Fewest packets a second: the fewer, the less a share of them says.
const PACKETS_LEAST: u64 = 10;
/// Latest that a packet may be without being late.
const WITHIN_MOST_MS: u64 = 100;
/// The longest that an actor works, in seconds.
const STEP_LATEST: u64 = 3600;

/// A stream of datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Udp {
    /// What is offered at first.
    pub rate: BitRate,
    /// From which second on there is how much.
    pub steps: Vec<(u64, BitRate)>,
    /// Bytes of payload of each.
    pub bytes: usize,
    /// Whether bits are those of frames, as a link's queue counts them, and not those of the payload alone.
    pub frames: bool,
    /// By how many milliseconds the generator may be late with a packet; 0: as it is without a word.
    pub within_ms: u64,
    /// Whether the sender waits where its socket's buffer is full.
    pub waits: bool,
}

impl Udp {
    /// Its rates, each with the second from which on it is offered.
    pub fn rates(&self) -> impl Iterator<Item = (u64, BitRate)> {
        std::iter::once((0, self.rate)).chain(self.steps.iter().copied())
    }

    /// Bytes that count of each datagram.
    pub fn counted_bytes(&self) -> usize {
        self.bytes + if self.frames { FRAME_BYTES } else { 0 }
    }

    /// What counts for each bit of payload.
    pub fn counted_ratio(&self) -> f64 {
        self.counted_bytes() as f64 / self.bytes as f64
    }
}

/// The stream of that name: `None` when the word is not of the family at all, `Some(Err)` when it is meant to be,
/// with what is wrong.
pub fn parse(word: &str) -> Option<Result<Udp, WordError>> {
    let rest: Vec<&str> = word.strip_prefix("udp-")?.split('-').collect();
    Some(stream(&rest).and_then(|udp| {
        check(&udp)?;
        let name = name(&udp);
        let other = || WordError(format!("write it as `{name}`: each stream has exactly one name"));
        if name == word { Ok(udp) } else { Err(other()) }
    }))
}

/// The name of a stream: what [`parse`] takes.
pub fn name(udp: &Udp) -> String {
    let steps: String = udp.steps.iter().map(|(second, at)| format!(".{second}s.{}", rate(*at))).collect();
    let within = if udp.within_ms > 0 { format!("-within{}ms", udp.within_ms) } else { String::new() };
    let (frames, waits) = (if udp.frames { "-frames" } else { "" }, if udp.waits { "-blocking" } else { "" });
    format!("udp-{}{steps}-{}{frames}{within}{waits}", rate(udp.rate), udp.bytes)
}

fn stream(rest: &[&str]) -> Result<Udp, WordError> {
    let (rate, steps) = load(rest[0])?;
    let bytes = rest.get(1).ok_or_else(|| WordError("the size is missing, for example -1472".to_owned()))?;
    let no_size = || WordError(format!("`{bytes}` is not a size: bytes of payload, for example 1472"));
    let bytes = bytes.parse().map_err(|_| no_size())?;
    let mut words = rest[2..].iter().copied().peekable();
    let frames = words.next_if_eq(&"frames").is_some();
    let within = words.next_if(|word| word.starts_with("within")).map_or(Ok(0), milliseconds)?;
    let waits = words.next_if_eq(&"blocking").is_some();
    if let Some(other) = words.next() {
        let known = "only `frames`, `within20ms` (or another time) and `blocking`";
        return Err(WordError(format!("`{other}`: {known} may stand there, in this order, each once")));
    }
    Ok(Udp { rate, steps, bytes, frames, within_ms: within, waits })
}

/// `within20ms`.
fn milliseconds(word: &str) -> Result<u64, WordError> {
    let digits = word.strip_prefix("within").and_then(|rest| rest.strip_suffix("ms"));
    let ms = digits.filter(|d| d.bytes().all(|b| b.is_ascii_digit())).and_then(|d| d.parse().ok());
    let no_time =
        || WordError(format!("invalid time `{word}`: whole milliseconds up to {WITHIN_MOST_MS}, as in within20ms"));
    ms.filter(|ms| (1..=WITHIN_MOST_MS).contains(ms)).ok_or_else(no_time)
}

/// `80mbit.20s.20mbit.28s.60mbit`: a rate, and by turns the second from which on there is another, and that.
fn load(word: &str) -> Result<(BitRate, Vec<(u64, BitRate)>), WordError> {
    let rate = |word: &str| {
        let none = || format!("`{word}` is not a rate: a whole number of kbit, mbit or gbit, as in 100mbit");
        bits(word).ok_or_else(|| WordError(none()))
    };
    let parts: Vec<&str> = word.split('.').collect();
    let Some((first, rest)) = parts.split_first() else { return Err(WordError("the rate is missing".to_owned())) };
    // What is no rate at its very begin was hardly meant for steps: `1.5gbit`.
    let (first, mut steps) = (rate(first).or_else(|_| rate(word))?, Vec::new());
    for step in rest.chunks(2) {
        let second = step[0].strip_suffix('s').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let second = second.and_then(|digits| digits.parse::<u64>().ok());
        let no_time = || WordError(format!("`{}` is not a time: whole seconds, as in 20s", step[0]));
        let second = second.ok_or_else(no_time)?;
        let no_rate = || WordError(format!("no rate from {second} s on"));
        let next = rate(step.get(1).ok_or_else(no_rate)?)?;
        let last = steps.last().map_or(0, |(second, _)| *second);
        if second <= last || second > STEP_LATEST {
            let when = format!("`{second}s`: each rate begins after the one before it, and within {STEP_LATEST} s");
            return Err(WordError(when));
        }
        steps.push((second, next));
    }
    Ok((first, steps))
}

fn check(udp: &Udp) -> Result<(), WordError> {
    if !(HEADER_BYTES..=MOST_BYTES).contains(&udp.bytes) {
        return Err(WordError(format!("the size is out of range: {HEADER_BYTES} to {MOST_BYTES} bytes")));
    }
    for (_, offered) in udp.rates() {
        let least = PACKETS_LEAST * udp.counted_bytes() as u64 * 8;
        if offered.bits() < least {
            let kbit = least.div_ceil(1000);
            let few = format!("that is fewer than {PACKETS_LEAST} packets a second; {kbit}kbit is the least");
            return Err(WordError(few));
        }
        if offered > RATE_MOST {
            return Err(WordError(format!("the rate is out of range: {} at most", rate(RATE_MOST))));
        }
    }
    Ok(())
}

/// `100mbit`; capitals are understood, so that the answer can name the right word.
fn bits(word: &str) -> Option<BitRate> {
    let lower = word.to_ascii_lowercase();
    let (digits, unit) = UNITS.iter().find_map(|(word, unit)| Some((lower.strip_suffix(word)?, *unit)))?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit).map(BitRate::new)
}

/// The one way to write a rate of whole kbit: the largest unit that divides it.
fn rate(rate: BitRate) -> String {
    let bits = rate.bits();
    let whole = |unit: u64| bits >= unit && bits / unit * unit == bits;
    let (word, unit) = UNITS.into_iter().find(|(_, unit)| whole(*unit)).unwrap_or(("bit", 1));
    format!("{}{word}", bits / unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::rate::MBIT as M;

    use super::*;
    use crate::workloads::find;

    #[test]
    fn names_go_both_ways() {
        for rate in [M, 2500 * M / 1000, 100 * M, 1000 * M, 1500 * M, RATE_MOST] {
            for bytes in [HEADER_BYTES, 64, 1472, 8972] {
                for (frames, waits) in [(false, false), (false, true), (true, false), (true, true)] {
                    for steps in [vec![], vec![(20, 1000 * M), (28, 60 * M)]] {
                        let within_ms = if frames { 20 } else { 0 };
                        let udp = Udp { rate, steps, bytes, frames, within_ms, waits };
                        assert_eq!(parse(&name(&udp)), Some(Ok(udp.clone())), "{}", name(&udp));
                        assert_eq!(find(&name(&udp)).unwrap().traits().name, name(&udp));
                    }
                }
            }
        }
        let rate = 2500 * M / 1000;
        let udp = Udp { rate, steps: Vec::new(), bytes: 1472, frames: false, within_ms: 0, waits: true };
        assert_eq!(name(&udp), "udp-2500kbit-1472-blocking");
        let steps = vec![(20, 20 * M), (28, 60 * M)];
        let udp = Udp { rate: 80 * M, steps, bytes: 1472, frames: true, within_ms: 20, waits: false };
        assert_eq!(name(&udp), "udp-80mbit.20s.20mbit.28s.60mbit-1472-frames-within20ms");
    }

    #[test]
    fn near_misses_are_told_what_is_wrong() {
        for (word, says) in [
            ("udp-100-1472", "`100` is not a rate"),
            ("udp-1.5gbit-1472", "`1.5gbit` is not a rate"),
            ("udp-80mbit.20s-1472", "no rate from 20 s on"),
            ("udp-80mbit.20.20mbit-1472", "`20` is not a time"),
            ("udp-80mbit.s.20mbit-1472", "`s` is not a time"),
            ("udp-80mbit.0s.20mbit-1472", "begins after the one before"),
            ("udp-80mbit.9s.20mbit.9s.1mbit-1472", "begins after the one before"),
            ("udp-80mbit.3601s.20mbit-1472", "within 3600 s"),
            ("udp-80mbit.9s.20kbit-1472", "118kbit is the least"),
            ("udp-80mbit.09s.20mbit-1472", "write it as `udp-80mbit.9s.20mbit-1472`"),
            ("udp-100mbit-1472-blocking-frames", "in this order"),
            ("udp-100mbit-1472-within0ms", "invalid time `within0ms`"),
            ("udp-100mbit-1472-within101ms", "up to 100"),
            ("udp-100mbit-1472-within020ms", "write it as `udp-100mbit-1472-within20ms`"),
            ("udp-100mbit", "the size is missing"),
            ("udp-100mbit-large", "`large` is not a size"),
            ("udp-100mbit-47", "out of range: 48 to 65507"),
            ("udp-100mbit-65508", "out of range"),
            ("udp-100kbit-1472", "fewer than 10 packets a second; 118kbit is the least"),
            ("udp-900gbit-1472", "800gbit at most"),
            ("udp-100mbit-1472-wait", "`wait`: only `frames`, `within20ms`"),
            ("udp-100mbit-1472-blocking-x", "`x`: only `frames`"),
            ("udp-1000mbit-1472", "write it as `udp-1gbit-1472`"),
            ("udp-100Mbit-1472", "write it as `udp-100mbit-1472`"),
            ("udp-100mbit-01472", "write it as `udp-100mbit-1472`"),
        ] {
            let WordError(said) = parse(word).unwrap().unwrap_err();
            assert!(said.contains(says), "{word}: {said}");
            assert!(find(word).is_none(), "{word}");
        }
        for other in ["iperf3-udp", "udp", "seq-read-64k-d8", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
