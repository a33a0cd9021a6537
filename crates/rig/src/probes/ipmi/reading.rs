//! The answers of ipmitool (lib/ipmi_dcmi.c) and of FreeIPMI's ipmi-dcmi (ipmi-dcmi/ipmi-dcmi.c), line by line.

/// A power reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Record {
    /// When it came.
    pub at: f64,
    pub watts: u32,
    /// The controller's time in seconds, from any origin; `None` where its clock was never set.
    pub stamp: Option<f64>,
    /// Over which the controller's own statistics are.
    pub period_seconds: Option<f64>,
    /// Whether it measures.
    pub active: bool,
}

/// A clock that stands before this year was never set.
const FIRST_YEAR: i64 = 1980;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_SECONDS: i64 = 86_400;

/// The readings in what was said, complete ones only: a power, and whether it is measured.
pub(super) fn records(said: &[(f64, String)]) -> Vec<Record> {
    let (mut all, mut open): (Vec<Record>, Option<Record>) = (Vec::new(), None);
    for (at, line) in said {
        let Some((name, value)) = line.split_once(':').map(|(name, value)| (name.trim(), value.trim())) else {
            continue;
        };
        match name {
            "Instantaneous power reading" | "Current Power" => {
                let begun = |watts| Record { at: *at, watts, stamp: None, period_seconds: None, active: false };
                open = watts(value).map(begun);
            }
            "IPMI timestamp" => set(&mut open, |record| record.stamp = ctime(value)),
            "Time Stamp" => set(&mut open, |record| record.stamp = slashed(value)),
            "Sampling period" => set(&mut open, |record| record.period_seconds = period(value, "Seconds.", 1.0)),
            "Statistics reporting time period" => {
                set(&mut open, |record| record.period_seconds = period(value, "milliseconds", 1e-3));
            }
            "Power reading state is" | "Power Measurement" => {
                set(&mut open, |record| record.active = matches!(value, "activated" | "Active"));
                all.extend(open.take());
            }
            _ => {}
        }
    }
    all
}

fn set(open: &mut Option<Record>, put: impl FnOnce(&mut Record)) {
    if let Some(record) = open {
        put(record);
    }
}

/// `214 Watts`, in either letter. DCMI has 16 bits for it; where all of them are set it is not known.
fn watts(value: &str) -> Option<u32> {
    let (number, unit) = value.split_once(' ')?;
    let watts: u32 = number.parse().ok().filter(|_| unit.eq_ignore_ascii_case("watts"))?;
    (watts < u32::from(u16::MAX)).then_some(watts)
}

/// `00000001 Seconds.`; 0 is not told.
fn period(value: &str, unit: &str, seconds: f64) -> Option<f64> {
    let (number, rest) = value.split_once(' ')?;
    let number = number.parse::<u64>().ok().filter(|number| *number > 0 && rest == unit)?;
    Some(number as f64 * seconds)
}

/// `Thu Feb 15 08:36:01 2024`
fn ctime(value: &str) -> Option<f64> {
    let [_, month, day, clock, year] = value.split_ascii_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    seconds(year.parse().ok()?, month, day.parse().ok()?, clock)
}

/// `12/29/2023 - 08:58:00`
fn slashed(value: &str) -> Option<f64> {
    let (date, clock) = value.split_once(" - ")?;
    let [month, day, year] = date.split('/').collect::<Vec<_>>().try_into().ok()?;
    seconds(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?, clock)
}

/// Seconds of a date and a time of day, from an origin that is the same for all.
fn seconds(year: i64, month: i64, day: i64, clock: &str) -> Option<f64> {
    let [hour, minute, second] = clock.split(':').collect::<Vec<_>>().try_into().ok()?;
    let (hour, minute, second): (i64, i64, i64) = (hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?);
    let sound = (FIRST_YEAR..3000).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    // Days of the proleptic Gregorian calendar, with years that begin in March (Richards, *Mapping Time*, 1998).
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    sound.then(|| (days * DAY_SECONDS + hour * 3600 + minute * 60 + second) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Record> {
        records(&text.lines().map(|line| (0.5, line.to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn days_are_a_day_apart() {
        for (before, after) in [
            ("Wed Feb 28 23:59:59 2024", "Thu Feb 29 00:00:00 2024"),
            ("Sun Dec 31 23:59:59 2023", "Mon Jan 1 00:00:00 2024"),
            ("Thu Feb 29 23:59:59 2024", "Fri Mar 1 00:00:00 2024"),
        ] {
            assert_eq!(ctime(before).map(|s| s + 1.0), ctime(after), "{before}");
        }
        assert_eq!(ctime("Fri Dec 29 08:58:00 2023"), slashed("12/29/2023 - 08:58:00"));
        assert_eq!(
            (ctime("Thu Jan  1 00:00:00 1970"), ctime("Unspecified"), slashed("13/1/2024 - 00:00:00")),
            (None, None, None)
        );
    }

    #[test]
    fn what_is_not_whole_is_no_reading() {
        let whole = include_str!("../../../tests/fixtures/ipmi/ipmitool.txt");
        let stamp = ctime("Thu Feb 15 08:36:01 2024");
        assert_eq!(of(whole), [Record { at: 0.5, watts: 50, stamp, period_seconds: Some(1.0), active: true }]);
        assert_eq!(of(&whole.replace("50 Watts", "-50 Watts")), []);
        assert_eq!(of(&whole.replace("50 Watts", "50 Milliwatts")), []);
        assert_eq!(of(&whole.replace("50 Watts", "65535 Watts")), []);
        assert_eq!(of(whole.split("Power reading state").next().unwrap_or_default()), [], "cut short");
        assert_eq!(of("Power Measurement : Active\n"), [], "without a power");
        // As OpenBMC has it while it does not measure.
        let off = whole
            .replace("activated", "deactivated")
            .replace("Thu Feb 15 08:36:01 2024", "Thu Jan  1 00:00:00 1970")
            .replace("00000001", "00000000");
        assert_eq!(of(&off), [Record { at: 0.5, watts: 50, stamp: None, period_seconds: None, active: false }]);
    }
}
