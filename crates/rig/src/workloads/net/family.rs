//! A family of datagram streams by name, for what is swept: rate, size, whether the sender waits.
//!
//! `udp-100mbit-1472` says it all. A stream has one name only (`1gbit`, never `1000mbit`), since names are keys of cells.

use vmio_look::require::Requirement;
use vmio_model::study::{Family, Sort};
use vmio_node::udp::packet::{HEADER_BYTES, MOST_BYTES};

use super::udp::{GENERATOR, Udp};

/// How the names are made.
pub const GRAMMAR: &str = "udp-<rate>-<bytes>[-blocking]";

/// The family as the reader of studies needs it.
pub const FAMILY: Family = Family {
    grammar: GRAMMAR,
    example: "udp-100mbit-1472",
    recognise: |word| Some(parse(word)?.map(|_| ())),
    works_on: Sort::Path,
};

/// The family's kinds as `doctor` shows them: name, one line, what they need.
pub const KINDS: &[(&str, &str, &[Requirement])] = &[(
    GRAMMAR,
    "vmio-udp: datagrams to the peer at a rate, each when it is due, such as udp-100mbit-1472",
    &[GENERATOR],
)];

/// The words of rates, the largest first.
const UNITS: [(&str, u64); 3] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];
/// Highest rate: beyond what a host has links for.
const RATE_MOST: u64 = 800_000_000_000;
/// Fewest packets a second: the fewer, the less a share of them says.
const PACKETS_LEAST: u64 = 10;

/// The stream of that name: `None` when the word is not of the family at all, `Some(Err)` when it is meant to be,
/// with what is wrong.
pub fn parse(word: &str) -> Option<Result<Udp, String>> {
    let rest: Vec<&str> = word.strip_prefix("udp-")?.split('-').collect();
    Some(stream(&rest).and_then(|udp| {
        check(&udp)?;
        let name = name(&udp);
        if name == word { Ok(udp) } else { Err(format!("write it as `{name}`: each stream has exactly one name")) }
    }))
}

/// The name of a stream: what [`parse`] takes.
pub fn name(udp: &Udp) -> String {
    format!("udp-{}-{}{}", rate(udp.rate_bits), udp.bytes, if udp.waits { "-blocking" } else { "" })
}

fn stream(rest: &[&str]) -> Result<Udp, String> {
    let rate_bits = bits(rest[0])
        .ok_or_else(|| format!("`{}` is not a rate: a whole number of kbit, mbit or gbit, as in 100mbit", rest[0]))?;
    let bytes = rest.get(1).ok_or("the size is missing, for example -1472")?;
    let bytes = bytes.parse().map_err(|_| format!("`{bytes}` is not a size: bytes of payload, for example 1472"))?;
    let waits = match &rest[2..] {
        [] => false,
        ["blocking"] => true,
        ["blocking", other, ..] | [other, ..] => {
            return Err(format!("`{other}`: only `blocking` may stand there, once"));
        }
    };
    Ok(Udp { rate_bits, bytes, waits })
}

fn check(udp: &Udp) -> Result<(), String> {
    if !(HEADER_BYTES..=MOST_BYTES).contains(&udp.bytes) {
        return Err(format!("the size is out of range: {HEADER_BYTES} to {MOST_BYTES} bytes"));
    }
    let least = PACKETS_LEAST * udp.bytes as u64 * 8;
    if udp.rate_bits < least {
        let kbit = least.div_ceil(1000);
        return Err(format!("that is fewer than {PACKETS_LEAST} packets a second; {kbit}kbit is the least"));
    }
    if udp.rate_bits > RATE_MOST {
        return Err(format!("the rate is out of range: {} at most", rate(RATE_MOST)));
    }
    Ok(())
}

/// `100mbit`; capitals are understood, so that the answer can name the right word.
fn bits(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    let (digits, unit) = UNITS.iter().find_map(|(word, unit)| Some((lower.strip_suffix(word)?, *unit)))?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// The one way to write a rate of whole kbit: the largest unit that divides it.
pub(super) fn rate(bits: u64) -> String {
    let whole = |unit: u64| bits >= unit && bits / unit * unit == bits;
    let (word, unit) = UNITS.into_iter().find(|(_, unit)| whole(*unit)).unwrap_or(("bit", 1));
    format!("{}{word}", bits / unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::workloads::find;

    #[test]
    fn names_go_both_ways() {
        for rate_bits in [1_000_000, 2_500_000, 100_000_000, 1_000_000_000, 1_500_000_000, RATE_MOST] {
            for bytes in [HEADER_BYTES, 64, 1472, 8972] {
                for waits in [false, true] {
                    let udp = Udp { rate_bits, bytes, waits };
                    assert_eq!(parse(&name(&udp)), Some(Ok(udp)), "{}", name(&udp));
                    assert_eq!(find(&name(&udp)).unwrap().traits().name, name(&udp));
                }
            }
        }
        let udp = Udp { rate_bits: 2_500_000, bytes: 1472, waits: true };
        assert_eq!(name(&udp), "udp-2500kbit-1472-blocking");
    }

    #[test]
    fn near_misses_are_told_what_is_wrong() {
        for (word, says) in [
            ("udp-100-1472", "`100` is not a rate"),
            ("udp-1.5gbit-1472", "`1.5gbit` is not a rate"),
            ("udp-100mbit", "the size is missing"),
            ("udp-100mbit-large", "`large` is not a size"),
            ("udp-100mbit-47", "out of range: 48 to 65507"),
            ("udp-100mbit-65508", "out of range"),
            ("udp-100kbit-1472", "fewer than 10 packets a second; 118kbit is the least"),
            ("udp-900gbit-1472", "800gbit at most"),
            ("udp-100mbit-1472-wait", "`wait`: only `blocking`"),
            ("udp-100mbit-1472-blocking-x", "`x`: only `blocking`"),
            ("udp-1000mbit-1472", "write it as `udp-1gbit-1472`"),
            ("udp-100Mbit-1472", "write it as `udp-100mbit-1472`"),
            ("udp-100mbit-01472", "write it as `udp-100mbit-1472`"),
        ] {
            let said = parse(word).unwrap().unwrap_err();
            assert!(said.contains(says), "{word}: {said}");
            assert!(find(word).is_none(), "{word}");
        }
        for other in ["iperf3-udp", "udp", "seq-read-64k-d8", ""] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
