//! Formats figures for people, for all forms of the report.

use vmio_model::civil::Civil;
use vmio_model::figure::Unit;
use vmio_model::rate::BitRate;
use vmio_model::result::{Mark, RunState};
use vmio_model::stats::{Difference, Estimate, Ratio};

use vmio_model::words::share_decimals;
pub use vmio_model::words::{count, two};

/// Three significant figures, never in scientific notation.
pub fn three(x: f64) -> String {
    match x.abs() {
        a if !a.is_finite() => "not a number".into(),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.9995 => format!("{x:.2}"),
        0.0 => "0".into(),
        _ => format!("{x:.3}"),
    }
}

/// A value in the unit of its figure: `650 MB/s`, `2.61k IOPS`, `9.41 Gbit/s`, `61.2 µs`, `0.12 %`.
pub fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::BytesPerSecond if value >= 1e6 => format!("{} MB/s", three(value / 1e6)),
        Unit::BytesPerSecond => format!("{} kB/s", three(value / 1e3)),
        Unit::BitsPerSecond => scaled(value, "bit/s"),
        Unit::RequestsPerSecond => many(value, "IOPS"),
        Unit::PacketsPerSecond => many(value, "packets/s"),
        Unit::OperationsPerSecond => many(value, "op/s"),
        Unit::Bytes => bytes(value as u64),
        Unit::Requests => many(value, "requests"),
        Unit::Packets => many(value, "packets"),
        Unit::Seconds => time(value),
        Unit::Ratio => percent(value),
        Unit::Count => three(value),
        Unit::Joules => joules(value),
        Unit::Watts => format!("{} W", three(value)),
    }
}

/// `68.0k IOPS`.
fn many(value: f64, unit: &str) -> String {
    match value {
        v if v >= 999_500.0 => format!("{}M {unit}", three(v / 1e6)),
        v if v >= 9_995.0 => format!("{}k {unit}", three(v / 1e3)),
        v => format!("{} {unit}", three(v)),
    }
}

/// `941 Mbit/s`.
fn scaled(value: f64, unit: &str) -> String {
    match value {
        v if v >= 999.5e6 => format!("{} G{unit}", three(v / 1e9)),
        v if v >= 999.5e3 => format!("{} M{unit}", three(v / 1e6)),
        v => format!("{} k{unit}", three(v / 1e3)),
    }
}

/// The name of a figure as the head of a column: `Bandwidth`, `Requests a second`.
pub fn title(name: &str, unit: Unit) -> String {
    match unit {
        Unit::RequestsPerSecond => "Requests a second".to_owned(),
        _ => capital(name),
    }
}

/// The text with a capital letter.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The interval relative to the value: `±3 %`; a single sample has none. A wide interval is not symmetric: `-79/+362
/// %`.
pub fn spread(e: &Estimate) -> String {
    match e.interval.filter(|_| e.value > 0.0) {
        Some(i) => {
            let [down, up] = [e.value - i.low, i.high - e.value].map(|to| to / e.value * 100.0);
            if up > 1.25 * down && up - down > 10.0 {
                format!("-{}/+{} %", two(down), two(up))
            } else {
                format!("±{} %", two((down + up) / 2.0))
            }
        }
        None => "no interval".into(),
    }
}

/// A value with its interval: `6.20 Gbit/s ±2 %`; for a percentage in points, `1.2 % ±0.1 points`; around zero
/// absolute, `0 packets ±2 packets`.
pub fn estimate(unit: Unit, e: &Estimate) -> String {
    let value = figure(unit, e.value);
    match e.interval.map(|i| i.half_width()) {
        None => format!("{value}, no interval"),
        Some(0.0) => value,
        Some(half) if unit == Unit::Ratio => {
            let half = points(half);
            format!("{:.*} % ±{half} points", decimals(&half), e.value * 100.0)
        }
        Some(_) if e.value > 0.0 => format!("{value} {}", spread(e)),
        Some(half) => format!("{value} ±{}", figure(unit, half)),
    }
}

/// A share in points: `1.2`, `0.03`.
fn points(share: f64) -> String {
    let points = share * 100.0;
    if (0.005..0.095).contains(&points) { format!("{points:.2}") } else { two(points) }
}

/// A ratio where less is better: `2.00× (1.90–2.10)`.
pub fn times(ratio: &Ratio) -> String {
    match ratio.usable_interval() {
        Some(i) => format!("{}× ({}–{})", fold(ratio.value), fold(i.low), fold(i.high)),
        None => format!("{}× (no interval)", fold(ratio.value)),
    }
}

/// A difference in the unit of its figure: `+1.2 points ±0.1`, `-3.00 µs ±1.00 µs`.
pub fn difference(unit: Unit, d: &Difference) -> String {
    let half = d.usable_interval().map(|i| i.half_width());
    let size = |x: f64| match (unit, half.map(points)) {
        (Unit::Ratio, Some(half)) => format!("{:.*}", decimals(&half), x * 100.0),
        (Unit::Ratio, None) => points(x),
        _ => figure(unit, x),
    };
    let sign = match size(d.value.abs()) {
        none if none == size(0.0) => "",
        _ if d.value < 0.0 => "-",
        _ => "+",
    };
    let word = if unit == Unit::Ratio { " points" } else { "" };
    let interval = match (half, unit) {
        (None, _) => " (no interval)".into(),
        (Some(half), Unit::Ratio) => format!(" ±{}", points(half)),
        (Some(half), _) => format!(" ±{}", figure(unit, half)),
    };
    format!("{sign}{}{word}{interval}", size(d.value.abs()))
}

/// The decimals of a written number; a value has as many as its interval.
fn decimals(number: &str) -> usize {
    number.split_once('.').map_or(0, |(_, decimals)| decimals.len())
}

/// A time: `61 µs`, `1.21 ms`, `2.4 s`.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 999.5e-6 => format!("{} µs", three(s * 1e6)),
        s if s < 0.9995 => format!("{} ms", three(s * 1e3)),
        s => format!("{} s", three(s)),
    }
}

/// Energy: `12.1 J`, `3.40 mJ`, `61.0 µJ`. It may be below 0 above that of a machine at rest.
fn joules(joules: f64) -> String {
    match joules.abs() {
        j if j >= 0.9995 || j == 0.0 => format!("{} J", three(joules)),
        j if j >= 0.9995e-3 => format!("{} mJ", three(joules * 1e3)),
        _ => format!("{} µJ", three(joules * 1e6)),
    }
}

/// A rate, rounded: `4.1 Mbit/s`, `940 Mbit/s`.
pub fn rate(rate: BitRate) -> String {
    let units = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)];
    let value = rate.bits() as f64;
    // What would be rounded up to 1,000 is one of the next unit.
    let unit = units.into_iter().find(|(_, factor)| value >= 0.9995 * factor);
    let (unit, factor) = unit.unwrap_or(("bit/s", 1.0));
    format!("{} {unit}", three(value / factor))
}

/// A percentage of a ratio: `44 %`, `2.2 %`.
pub fn percent(ratio: f64) -> String {
    let p = ratio * 100.0;
    if p.abs() < 9.95 { format!("{p:.1} %") } else { format!("{p:.0} %") }
}

/// `44 % (41–47 %)`, `11.1 % (10.9–11.3 %)`, or `44 % (no interval)`.
pub fn share(ratio: &Ratio) -> String {
    known_share(ratio, false)
}

/// The same; of a share that is known with its interval, from however few pairs.
pub fn known_share(ratio: &Ratio, known: bool) -> String {
    match ratio.shown_interval(known) {
        Some(i) => {
            let [value, low, high] = [ratio.value, i.low, i.high].map(|x| x * 100.0);
            let decimals = share_decimals(low, high);
            format!("{value:.decimals$} % ({low:.decimals$}–{high:.decimals$} %)")
        }
        None => format!("{} (no interval)", percent(ratio.value)),
    }
}

/// `1.31 (1.24–1.39)`: a ratio that is not a share.
pub fn factor(ratio: &Ratio) -> String {
    match ratio.interval {
        Some(i) => format!("{} ({}–{})", fold(ratio.value), fold(i.low), fold(i.high)),
        None => format!("{} (no interval)", fold(ratio.value)),
    }
}

/// A factor in at most five characters: `1.31`, `12.3`, `249`, `>1000`. The interval of two distant repeats may reach
/// hundreds of thousands.
fn fold(times: f64) -> String {
    match times {
        x if x < 9.995 => format!("{x:.2}"),
        x if x < 99.95 => format!("{x:.1}"),
        x if x < 999.5 => format!("{x:.0}"),
        _ => ">1000".into(),
    }
}

/// Bytes in binary units: `64 KiB`, `24 GiB`.
pub fn bytes(n: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = if value.fract() == 0.0 { format!("{value:.0}") } else { three(value) };
    format!("{number} {}", units[unit])
}

/// The marks of a sample, as the table shows them.
pub fn mark(mark: Mark) -> &'static str {
    match mark {
        Mark::Cached => "cached",
        Mark::HostBusy => "host busy",
        Mark::ProcessorsBusy => "processors busy",
        Mark::ReadAhead => "other read-ahead",
        Mark::NotWarm => "place not proved",
        Mark::Stalled => "stalled",
        Mark::Saturated => "saturated",
        Mark::NotVisible => "not visible here",
        Mark::Unmetered => "no power",
    }
}

/// The meaning of a mark.
pub fn mark_meaning(mark: Mark) -> &'static str {
    match mark {
        Mark::Cached => "the device moved over 10 % fewer bytes than requested: a cache was measured",
        Mark::HostBusy => "other work on the device exceeded 20 % of the cell's own",
        Mark::ProcessorsBusy => "other processes used over 20 % of the CPUs",
        Mark::ReadAhead => "the host's read-ahead differs from 128 KiB (vmio changes only its own devices)",
        Mark::NotWarm => "over 5 % was not read where the state says (or that is unknown): excluded from shares",
        Mark::Stalled => {
            "a request took 10 s or more, or none finished for that long (a lost interrupt or a broken device, not \
             the disk's speed); the sample is kept"
        }
        Mark::Saturated => "fewer than 95 % of the requests of its rate were sent (less what chance explains)",
        Mark::NotVisible => "the back end has no counters that vmio can read",
        Mark::Unmetered => "a power meter reported too little of the cell; its other figures stand",
    }
}

/// The state of a run in a word, and the reason.
pub fn state(state: &RunState) -> (&'static str, Option<&str>) {
    match state {
        RunState::Running => ("running", None),
        RunState::Done => ("done", None),
        RunState::Interrupted(why) => ("interrupted", Some(why)),
        RunState::Failed(why) => ("failed", Some(why)),
    }
}

/// `2026-11-21 09:05:43 UTC` of seconds since the epoch.
pub fn utc(unix: f64) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::of_unix(unix.floor() as i64);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// `40 s`, `3 min 20 s`.
pub fn duration(seconds: f64) -> String {
    let s = seconds.round().max(0.0) as u64;
    if s < 60 {
        format!("{s} s")
    } else if s < 600 {
        format!("{} min {} s", s / 60, s % 60)
    } else {
        format!("{} min", s / 60)
    }
}

/// A command line, quoted for a shell.
pub fn shell(command: &[String]) -> String {
    command.iter().map(|word| vmio_model::rules::change::shell(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_model::stats::Interval;

    #[test]
    fn figures() {
        assert_eq!(figure(Unit::BytesPerSecond, 642.2e6), "642 MB/s");
        assert_eq!(figure(Unit::BytesPerSecond, 9.87e5), "987 kB/s");
        assert_eq!(figure(Unit::RequestsPerSecond, 2612.0), "2612 IOPS");
        assert_eq!(figure(Unit::RequestsPerSecond, 68_012.0), "68.0k IOPS");
        assert_eq!(figure(Unit::BitsPerSecond, 9.414e9), "9.41 Gbit/s");
        assert_eq!(figure(Unit::BitsPerSecond, 941.2e6), "941 Mbit/s");
        assert_eq!(figure(Unit::PacketsPerSecond, 68_012.0), "68.0k packets/s");
        assert_eq!(figure(Unit::Ratio, 0.0), "0.0 %");
        assert_eq!(time(61.2e-6), "61.2 µs");
        assert_eq!(time(1.5), "1.50 s");
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes((24 << 30) + (1 << 29)), "24.5 GiB");
    }

    #[test]
    fn nothing_stands_for_an_interval_that_is_not_there() {
        let ratio = Ratio { value: 0.44, interval: None, pairs: 1, boots: 1 };
        assert_eq!(share(&ratio), "44 % (no interval)");
        assert_eq!(spread(&Estimate { value: 3.0, interval: None, n: 1 }), "no interval");
        let of = |low: f64, high: f64| Estimate { value: 100.0, interval: Some(Interval { low, high }), n: 5 };
        assert_eq!([spread(&of(97.0, 103.0)), spread(&of(21.0, 462.0))], ["±3.0 %", "-79/+362 %"].map(str::to_owned));
        assert_eq!(estimate(Unit::Count, &of(21.0, 462.0)), "100 -79/+362 %");
        let known = Ratio { interval: Some(Interval { low: 0.41, high: 0.47 }), pairs: 5, ..ratio };
        assert_eq!(factor(&known), "0.44 (0.41–0.47)");
        let wide = Interval { low: 0.000_06, high: 249_408.2 };
        assert_eq!(factor(&Ratio { value: 3.94, interval: Some(wide), ..known }), "3.94 (0.00–>1000)");
        assert_eq!(factor(&Ratio { value: 123.4, interval: Some(wide), ..known }), "123 (0.00–>1000)");
        assert_eq!(share(&known), "44 % (41–47 %)");
        let narrow = Ratio { value: 0.022, interval: Some(Interval { low: 0.0213, high: 0.0227 }), pairs: 5, ..ratio };
        assert_eq!(share(&narrow), "2.2 % (2.1–2.3 %)");
        // The figure has as many decimals as its interval.
        let of = |value, low, high| share(&Ratio { value, interval: Some(Interval { low, high }), ..known });
        assert_eq!((&*of(0.111, 0.109, 0.113), &*of(0.088, 0.071, 0.108)), ("11.1 % (10.9–11.3 %)", "9 % (7–11 %)"));
    }

    #[test]
    fn shares_of_themselves_are_told_in_points() {
        let of = |value: f64, low: f64, high: f64| Estimate { value, interval: Some(Interval { low, high }), n: 5 };
        assert_eq!(estimate(Unit::Ratio, &of(0.012, 0.0114, 0.0126)), "1.20 % ±0.06 points");
        assert_eq!(estimate(Unit::Ratio, &of(0.0003, -0.0006, 0.0012)), "0.03 % ±0.09 points");
        assert_eq!(estimate(Unit::Ratio, &of(0.088, -0.082, 0.258)), "9 % ±17 points");
        assert_eq!(estimate(Unit::BitsPerSecond, &of(6.2e9, 6.1e9, 6.3e9)), "6.20 Gbit/s ±1.6 %");
        assert_eq!(estimate(Unit::Count, &of(0.0, -1.0, 1.0)), "0 ±1.00");
        assert_eq!(estimate(Unit::Count, &of(0.0, 0.0, 0.0)), "0");
        let some = |low: f64, high: f64| Some(Interval { low, high });
        let far =
            |unit, value: f64, interval, pairs| difference(unit, &Difference { value, interval, pairs, boots: 3 });
        assert_eq!(far(Unit::Ratio, 0.012, some(0.011, 0.013), 5), "+1.2 points ±0.1");
        assert_eq!(far(Unit::Ratio, -0.0002, some(-0.0006, 0.0002), 5), "-0.02 points ±0.04");
        assert_eq!(far(Unit::Ratio, -0.00001, some(-0.0006, 0.0006), 5), "0.00 points ±0.06");
        assert_eq!(far(Unit::Seconds, 3e-6, some(0.0, 6e-6), 2), "+3.00 µs (no interval)");
        let ratio = Ratio { value: 2.0, interval: some(1.9, 2.1), pairs: 5, boots: 5 };
        assert_eq!(times(&ratio), "2.00× (1.90–2.10)");
    }

    #[test]
    fn dates() {
        assert_eq!(utc(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400.9), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_252_743.0), "2026-11-21 09:19:03 UTC");
    }

    #[test]
    fn commands_come_back_from_a_shell() {
        let words = ["vmio", "--on", "/a b", "it's", "/a\nb"].map(String::from);
        let out = std::process::Command::new("sh").arg("-c").arg(format!("printf '%s\\n' {}", shell(&words))).output();
        assert_eq!(String::from_utf8(out.unwrap().stdout).unwrap(), "vmio\n--on\n/a b\nit's\n/a\nb\n");
    }
}
