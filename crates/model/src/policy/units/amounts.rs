//! Processor shares and memory sizes.

use super::{UnitError, decimal, scale, split};

/// Thousandths of a percent in one processor.
pub const PROCESSOR: u64 = 100_000;

/// Parses a processor share: a number and `%`, 100 % for one processor, as systemd's `CPUQuota=`. In thousandths of a
/// percent, rounded down.
///
/// # Errors
/// The mistake and the right spelling; a bare number may mean processors or percent.
pub fn percent(text: &str) -> Result<u64, UnitError> {
    let how = || UnitError(format!("invalid share of processors `{text}`; write \"150%\" for one and a half"));
    let (number, unit) = split(text).map_err(|_| how())?;
    let parts = decimal(number, text)?;
    match unit {
        "%" => {}
        "" => {
            // More is rather a number of percent whose sign was left out.
            let percent = scale(parts, PROCESSOR).and_then(|n| u64::try_from(n).ok());
            let percent = percent.filter(|n| *n < PROCESSOR * 100);
            let processors =
                percent.map_or_else(String::new, |n| format!(" or \"{}\" for processors", show_percent(n)));
            return Err(UnitError(format!(
                "`{text}` is a bare number; write \"{text}%\" for percent of one processor{processors}"
            )));
        }
        _ => return Err(how()),
    }
    let share = scale(parts, PROCESSOR / 100).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
    match share {
        ..1_000 => Err(UnitError(format!("`{text}` is less than 1 %, the least that the kernel can give"))),
        1_000..=1_000_000_000 => Ok(share),
        _ => Err(UnitError(format!("`{text}` is more than 10000 processors, the most that vmio reckons with"))),
    }
}

/// A processor share in a form that reads back: `150%`, `12.5%`.
pub fn show_percent(thousandths: u64) -> String {
    let fraction = format!("{:03}", thousandths % 1000);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}%", thousandths / 1000)
}

/// Size units with their bytes; the first that divides a size is used to show it.
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

/// Parses a memory size, in bytes: a number and B, kB, MB, GB, TB (1000) or KiB, MiB, GiB, TiB (1024). A fraction of a
/// byte is dropped.
///
/// # Errors
/// The mistake and the right spelling; below 1 MiB, in which no guest can run, and above 1 PiB it is refused.
pub fn bytes(text: &str) -> Result<u64, UnitError> {
    let how = || UnitError(format!("invalid size `{text}`; write for example \"4GiB\" or \"512MiB\""));
    let (number, unit) = split(text).map_err(|_| how())?;
    let parts = decimal(number, text)?;
    let Some((_, factor)) = SIZES.iter().find(|(name, _)| *name == unit) else {
        let letter = unit.to_ascii_uppercase();
        let letter = letter.strip_suffix('B').unwrap_or(&letter);
        return Err(match letter.strip_suffix('I').unwrap_or(letter) {
            "" if unit.is_empty() => UnitError(format!("`{text}` has no unit; write \"{text}GiB\" or \"{text}MiB\"")),
            "K" => UnitError(format!("`{unit}` may mean 1024 or 1000; write \"{number}KiB\" or \"{number}kB\"")),
            letter @ ("M" | "G" | "T") => UnitError(format!(
                "`{unit}` may mean powers of 1024 or of 1000; write \"{number}{letter}iB\" or \"{number}{letter}B\""
            )),
            _ => how(),
        });
    };
    match scale(parts, *factor).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX) {
        least if least < 1 << 20 => Err(UnitError(format!("`{text}` is less than 1 MiB: no guest can run in that"))),
        most if most > 1 << 50 => {
            Err(UnitError(format!("`{text}` is more than 1024 TiB, the most that vmio reckons with")))
        }
        size => Ok(size),
    }
}

/// A size in a form that reads back exactly: `4 GiB`, `1500 MB`.
pub fn show_bytes(bytes: u64) -> String {
    let whole = SIZES.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    let (name, factor) = whole.copied().unwrap_or(("B", 1));
    format!("{} {name}", bytes / factor)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_of_processors() {
        for (text, share) in
            [("150%", 150_000), ("1 %", 1_000), ("12.5%", 12_500), ("33.3333%", 33_333), ("1000000%", 1_000_000_000)]
        {
            assert_eq!(percent(text), Ok(share), "{text}");
        }
        for (text, part) in [
            ("1.5", "\"1.5%\" for percent of one processor or \"150%\" for processors"),
            ("150", "\"150%\""),
            ("0%", "less than 1 %"),
            ("0.999%", "less than 1 %"),
            ("1000001%", "10000 processors"),
            ("99999999999999999999999999999999999999999999%", "10000 processors"),
            ("max", "write \"150%\""),
            ("2 cores", "write \"150%\""),
            ("-5%", "write \"150%\""),
        ] {
            let error = percent(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(!percent("150").unwrap_err().to_string().contains("processors"), "150 % is meant");
    }

    #[test]
    fn sizes() {
        for (text, size) in [
            ("4GiB", 4 << 30),
            ("1.5 GiB", 3 << 29),
            ("4GB", 4_000_000_000),
            ("512MiB", 512 << 20),
            ("1024TiB", 1 << 50),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for (text, part) in [
            ("4", "\"4GiB\""),
            ("4G", "\"4GiB\" or \"4GB\""),
            ("4g", "\"4GiB\" or \"4GB\""),
            ("512mb", "\"512MiB\" or \"512MB\""),
            ("9Kb", "\"9KiB\" or \"9kB\""),
            ("1MB", "less than 1 MiB"),
            ("1025TiB", "1024 TiB"),
            ("4GiBit", "invalid size"),
            ("max", "invalid size"),
        ] {
            let error = bytes(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_shown_reads_back(share in 1_000u64..=1_000_000_000, size in (1u64 << 20)..=(1 << 50), bits in 0u32..21) {
            prop_assert_eq!(percent(&show_percent(share)), Ok(share));
            let round = (size >> bits << bits).max(1 << 20);
            prop_assert_eq!((bytes(&show_bytes(size)), bytes(&show_bytes(round))), (Ok(size), Ok(round)));
        }
    }
}
