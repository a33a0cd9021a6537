//! Rates, times, processor shares and sizes as people write them. Rates are bits a second; framing is the uplink's. All
//! arithmetic is on integers, and a displayed rate reads back as the same value.
//!
//! Grammar of a rate: digits, optionally a point and digits; optional spaces; optionally one of
//! k, M, G, T (powers of 1000) or Ki, Mi, Gi (powers of 1024); then `bit`, `bit/s` or `B/s`.

mod amounts;

use std::time::Duration;

use crate::rate::{BitRate, PREFIXES};

pub use amounts::{PROCESSOR, bytes, percent, show_bytes, show_percent};

/// Highest rate: 100 Tbit/s. A hundred thousand of them still add up in 64 bits.
pub const MAX_RATE: BitRate = BitRate::new(100_000_000_000_000);

/// The shortest time that a policy may have.
pub const LEAST_TIME: Duration = Duration::from_millis(1);

/// Most digits after the point.
const MAX_DECIMALS: usize = 18;

/// Units with their bits.
const UNITS: [(&str, u64); 3] = [("bit/s", 1), ("bit", 1), ("B/s", 8)];

/// Why an amount cannot be parsed, and the right spellings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(pub String);

/// Parses a rate. A fraction of a bit a second is dropped.
///
/// # Errors
/// The mistake and the right spellings: of a bare number, of `bps` (bits in some tools, bytes in others), of an unknown
/// unit or prefix, of a number out of range.
pub fn rate(text: &str) -> Result<BitRate, UnitError> {
    let too_much = || UnitError(format!("`{text}` is more than 100 Tbit/s, the most that vmio reckons with"));
    bits(text)?.ok_or_else(too_much)
}

/// The same for a maximum or a demand, which promises nothing: what is above [`MAX_RATE`] becomes that.
///
/// # Errors
/// As [`rate`].
pub fn limit(text: &str) -> Result<BitRate, UnitError> {
    Ok(bits(text)?.unwrap_or(MAX_RATE))
}

/// `None` for more than [`MAX_RATE`].
fn bits(text: &str) -> Result<Option<BitRate>, UnitError> {
    let (number, unit) = split(text)?;
    let parts = decimal(number, text)?;
    let Some(factor) = factor_of(unit) else { return Err(UnitError(offer(number, unit, text))) };
    Ok(scale(parts, factor).map(BitRate::of_sum).filter(|rate| *rate <= MAX_RATE))
}

/// Parses a time: a number and `us`, `ms` or `s`.
///
/// # Errors
/// The mistake and the right spelling.
pub fn time(text: &str) -> Result<Duration, UnitError> {
    let how = || UnitError(format!("invalid time `{text}`; write for example \"10ms\" (us, ms, s)"));
    let (number, unit) = split(text).map_err(|_| how())?;
    let parts = decimal(number, text)?;
    let nanoseconds = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "" => return Err(UnitError(format!("`{text}` has no unit; write \"{text}ms\" or \"{text}s\""))),
        "m" | "min" | "h" => {
            let seconds = scale(parts, if unit == "h" { 3600 } else { 60 }).filter(|seconds| *seconds > 0);
            let in_seconds =
                |seconds: u128| UnitError(format!("invalid time `{text}`; write \"{seconds}s\" (us, ms, s)"));
            return Err(seconds.map_or_else(how, in_seconds));
        }
        _ => return Err(how()),
    };
    scale(parts, nanoseconds).and_then(|ns| u64::try_from(ns).ok()).map(Duration::from_nanos).ok_or_else(how)
}

/// A time in a form that reads back: `10 ms`, `1.5 s`.
pub fn show_time(time: Duration) -> String {
    match time.as_micros() {
        us if us % 1_000_000 == 0 => format!("{} s", us / 1_000_000),
        us if us % 1000 == 0 => format!("{} ms", us / 1000),
        us => format!("{us} us"),
    }
}

/// The number and the text behind it.
fn split(text: &str) -> Result<(&str, &str), UnitError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if number.is_empty() {
        let why = if text.starts_with('-') { "is negative" } else { "is not a rate" };
        let how = "write a number and a unit, for example \"300Mbit\", \"2.5 Gbit/s\" or \"40MB/s\"";
        return Err(UnitError(format!("`{text}` {why}; {how}")));
    }
    Ok((number, rest.trim_start_matches(' ')))
}

/// Integer part, fraction, and number of digits of the fraction.
fn decimal(number: &str, text: &str) -> Result<(u128, u128, u32), UnitError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(UnitError(format!("invalid number `{number}` in `{text}`; write for example 0.5 or 300")));
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > MAX_DECIMALS {
        return Err(UnitError(format!("`{number}` has more than {MAX_DECIMALS} decimals")));
    }
    // A number with too many digits exceeds any limit, so the largest value replaces it.
    let whole = whole.parse().unwrap_or(u128::MAX);
    let below = fraction.parse().unwrap_or(0);
    Ok((whole, below, if below == 0 { 0 } else { fraction.len() as u32 }))
}

/// `(whole + fraction / 10^digits) * factor`, rounded down; `None` where it does not fit.
fn scale((whole, fraction, digits): (u128, u128, u32), factor: u64) -> Option<u128> {
    let factor = u128::from(factor);
    whole.checked_mul(factor)?.checked_add(fraction * factor / 10u128.pow(digits))
}

/// Bits of a correct prefix and unit.
fn factor_of(written: &str) -> Option<u64> {
    UNITS.iter().find_map(|(unit, bits)| {
        let prefix = written.strip_suffix(unit)?;
        PREFIXES.iter().find(|(p, _)| *p == prefix).map(|(_, factor)| factor * bits)
    })
}

/// What is wrong with a unit, and what may have been meant.
fn offer(number: &str, unit: &str, text: &str) -> String {
    if unit.is_empty() {
        return format!(
            "`{text}` is a bare number; write \"{number}Mbit\" for megabits, \"{number}MB/s\" for megabytes, or \
             \"{number}bit\" a second"
        );
    }
    if unit.starts_with(',') {
        return format!("`{text}`: decimals are written with a point, for example \"2.5 Gbit/s\"");
    }
    let lower = unit.to_ascii_lowercase();
    let rest = ["ki", "mi", "gi", "k", "m", "g", "t", ""].iter().find_map(|p| Some((*p, lower.strip_prefix(p)?)));
    let (prefix, rest) = rest.unwrap_or(("", &lower));
    let prefix = PREFIXES.iter().find(|(p, _)| p.eq_ignore_ascii_case(prefix)).map_or("", |(p, _)| p);
    let (bits, bytes) = (format!("\"{number}{prefix}bit/s\""), format!("\"{number}{prefix}B/s\""));
    match rest {
        "bps" => {
            format!("`bps` means bytes in some tools and bits in others; write {bits} for bits or {bytes} for bytes")
        }
        "b" | "b/s" => format!("`{text}` may mean bits or bytes; write {bits} for bits or {bytes} for bytes"),
        "bit" | "bit/s" | "bits" | "bits/s" | "bit/sec" | "bits/sec" => {
            format!("unknown unit `{unit}`; did you mean {bits}?")
        }
        "byte" | "bytes" | "byte/s" | "bytes/s" | "byte/sec" | "bytes/sec" => {
            format!("unknown unit `{unit}`; did you mean {bytes}?")
        }
        _ => format!(
            "unknown unit `{unit}`; units are bit, bit/s and B/s, after nothing or k, M, G, T, Ki, Mi, Gi, for example \
             \"{number}Mbit\" or \"{number}MB/s\""
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_as_they_are_written() {
        for (text, bits) in [
            ("300Mbit", 300_000_000),
            ("2.5 Gbit/s", 2_500_000_000),
            ("40MB/s", 320_000_000),
            ("0bit", 0),
            ("0.000 Tbit", 0),
            ("1.5Kibit", 1536),
            ("1 MiB/s", 8 << 20),
            ("1Gibit/s", 1 << 30),
            ("100Tbit", MAX_RATE.bits()),
            ("1.0000001kbit", 1000),
            ("0.5B/s", 4),
            ("0.9bit", 0),
            ("007bit", 7),
        ] {
            assert_eq!(rate(text), Ok(BitRate::new(bits)), "{text}");
        }
    }

    #[test]
    fn what_is_refused_names_the_right_spelling() {
        for (text, part) in [
            ("300", "\"300Mbit\""),
            ("300Mbps", "\"300Mbit/s\" for bits or \"300MB/s\" for bytes"),
            ("10bps", "\"10bit/s\" for bits or \"10B/s\" for bytes"),
            ("5Kbit", "did you mean \"5kbit/s\""),
            ("300mbit", "did you mean \"300Mbit/s\""),
            ("1gibit", "did you mean \"1Gibit/s\""),
            ("40MB", "may mean bits or bytes"),
            ("40 megabytes", "unknown unit"),
            ("1,5Gbit", "point"),
            ("-1Mbit", "negative"),
            ("", "is not a rate"),
            ("fast", "is not a rate"),
            ("1.2.3Mbit", "invalid number"),
            (".5Mbit", "invalid number"),
            ("1.Mbit", "invalid number"),
            ("1e9bit", "unknown unit"),
            ("101Tbit", "100 Tbit/s"),
            ("340282366920938463463374607431768211456Tbit", "100 Tbit/s"),
            ("0.0000000000000000001Gbit", "decimals"),
            ("300 M bit", "unknown unit"),
        ] {
            let error = rate(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_limit_has_no_upper_end() {
        for text in ["200Tbit", "340282366920938463463374607431768211456Tbit"] {
            assert_eq!(limit(text), Ok(MAX_RATE));
        }
        assert_eq!(limit("5Mbit"), Ok(BitRate::new(5_000_000)));
        assert!(limit("5Mbps").is_err());
    }

    #[test]
    fn times() {
        assert_eq!(time("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(time("1.5 s"), Ok(Duration::from_millis(1500)));
        assert!(time("10").unwrap_err().to_string().contains("\"10ms\""));
        assert!(time("5m").unwrap_err().to_string().contains("write \"300s\""));
        assert!(time("1.5 h").unwrap_err().to_string().contains("write \"5400s\""));
        assert!(time("soon").unwrap_err().to_string().contains("\"10ms\""));
        for ms in [1, 10, 1500, 10_000] {
            assert_eq!(time(&show_time(Duration::from_millis(ms))), Ok(Duration::from_millis(ms)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_shown_rate_reads_back(
            bits in prop_oneof![0..=MAX_RATE.bits(), 0u64..100_000, (0u64..100_000).prop_map(|k| k * 1_000_000)]
        ) {
            let shown = BitRate::new(bits);
            prop_assert_eq!(rate(&shown.to_string()), Ok(shown));
        }

        /// The same value in each unit, calculated independently in thousandths.
        #[test]
        fn units_agree(thousandths in 0u64..1_000_000, unit in 0usize..24) {
            let ((prefix, factor), (name, bits)) = (PREFIXES[unit % 8], UNITS[unit / 8]);
            let expected = u128::from(thousandths) * u128::from(factor) * u128::from(bits) / 1000;
            let text = format!("{}.{:03} {prefix}{name}", thousandths / 1000, thousandths % 1000);
            match rate(&text) {
                Ok(found) => prop_assert_eq!(u128::from(found), expected),
                Err(_) => {
                    prop_assert!(expected > u128::from(MAX_RATE));
                    prop_assert_eq!(limit(&text), Ok(MAX_RATE));
                }
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}", shaped in "[0-9.]{0,50} ?[kKMGTimg]{0,2}[bitBps/%]{0,5}") {
            let _ = (rate(&text), time(&text), rate(&shaped), time(&shaped));
            let _ = (percent(&text), bytes(&text), percent(&shaped), bytes(&shaped));
        }
    }
}
