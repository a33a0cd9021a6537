//! Energy and power of a machine as figures: what the probes of them declare, and how readings become them.
//!
//! The mean power is the integral over the readings, by trapezoids, over the time between the first and the last; the
//! energy is that over the whole time. Where they are of less than half of it, nothing is told; nor of what no machine
//! takes.

use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{DOMAIN, ENERGY, POWER, is_power};

use super::Unseen;

/// The part of the time that readings have to be of.
const LEAST: f64 = 0.5;
/// Steps of a counter that stands still between them, below which its difference is too coarse: 10 %.
const LEAST_STEPS: usize = 10;
/// Seconds by which they may be of more than the time: a meter tells what was a moment ago.
const SLACK: f64 = 1.0;

/// The figures of a meter.
pub(super) fn figures() -> Vec<Figure> {
    [(ENERGY, Unit::Joules), (POWER, Unit::Watts)].map(|(name, unit)| Figure::amount(name, unit).by(&[DOMAIN])).into()
}

/// What was taken in some seconds, above 0.
pub(super) fn readings(domain: &str, joules: f64, seconds: f64) -> [Reading; 2] {
    [(ENERGY, joules), (POWER, joules / seconds)].map(|(name, value)| Reading::scalar(name, value).with(DOMAIN, domain))
}

/// A reading of power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Power {
    /// When it came, by our clock.
    pub at: f64,
    /// When it was measured, by the meter's own clock, whenever that began.
    pub own: Option<f64>,
    pub watts: f64,
}

/// What readings of power say of so many seconds. The meter's clock counts where it keeps pace with ours: ours knows
/// when a reading came, not when it was measured.
pub(super) fn of_power(domain: &str, all: &[Power], seconds: f64) -> Result<[Reading; 2], Unseen> {
    let all: Vec<Power> = all.iter().filter(|reading| is_power(reading.watts)).copied().collect();
    let own: Option<Vec<(f64, f64)>> = all.iter().map(|reading| Some((reading.own?, reading.watts))).collect();
    let goes_on = |all: &Vec<(f64, f64)>| {
        all.is_sorted_by(|a, b| a.0 <= b.0) && mean(all).is_some_and(|(_, span)| span <= seconds + SLACK)
    };
    let came = || all.iter().map(|reading| (reading.at, reading.watts)).collect();
    told(domain, mean(&own.filter(goes_on).unwrap_or_else(came)), seconds)
}

/// What readings of a counter of joules, as (second, joules), say of so many seconds.
pub(super) fn of_counter(domain: &str, all: &[(f64, f64)], seconds: f64) -> Result<[Reading; 2], Unseen> {
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return Err(Unseen::FewReadings) };
    if !all.is_sorted_by(|a, b| a.1 <= b.1) {
        return Err(Unseen::Backwards(domain.to_owned()));
    }
    // One that stands still between some readings counts in steps, of which the first and the last are cut.
    let steps = all.iter().zip(all.iter().skip(1)).filter(|(before, after)| after.1 > before.1).count();
    if steps + 1 < all.len() && steps < LEAST_STEPS {
        return Err(Unseen::Coarse { steps });
    }
    let span = last.0 - first.0;
    told(domain, (span > 0.0).then(|| ((last.1 - first.1) / span, span)), seconds)
}

/// Watts over a part of the time.
fn told(domain: &str, mean: Option<(f64, f64)>, seconds: f64) -> Result<[Reading; 2], Unseen> {
    let (watts, span) = mean.ok_or(Unseen::FewReadings)?;
    if span < LEAST * seconds {
        return Err(Unseen::SeldomTold { told: span, seconds });
    }
    if !is_power(watts) {
        return Err(Unseen::NoPower { watts });
    }
    Ok(readings(domain, watts * seconds, seconds))
}

/// Mean power from the first reading to the last, and the time between them; `None` where there is none.
fn mean(readings: &[(f64, f64)]) -> Option<(f64, f64)> {
    let span = readings.last()?.0 - readings.first()?.0;
    let pairs = readings.iter().zip(readings.iter().skip(1));
    let joules: f64 = pairs.map(|((from, before), (to, after))| (to - from) * (before + after) / 2.0).sum();
    (span > 0.0).then(|| (joules / span, span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_takes_is_no_figure() {
        let of = |all: &[f64]| {
            let power = |(at, watts): (usize, &f64)| Power { at: at as f64, own: None, watts: *watts };
            let all: Vec<Power> = all.iter().enumerate().map(power).collect();
            of_power("machine", &all, 4.0).map_err(|why| why.to_string())
        };
        assert_eq!(of(&[100.0, 4e9, f64::NAN, -7.0, 100.0]), Ok(readings("machine", 400.0, 4.0)));
        assert_eq!(of(&[1e30; 5]), Err("fewer than two readings".into()));
        let jumps = of_counter("machine", &[(0.0, 1.0), (4.0, 4e12)], 4.0).map_err(|why| why.to_string());
        assert_eq!(jumps, Err("a power of 1000000000000 W is none of a machine".into()));
    }

    #[test]
    fn a_counter_is_of_the_time_between_its_readings() {
        let of = |all: &[(f64, f64)]| of_counter("machine", all, 4.0).map_err(|why| why.to_string());
        assert_eq!(of(&[(0.5, 100.0), (2.0, 250.0), (3.5, 400.0)]), Ok(readings("machine", 400.0, 4.0)));
        assert_eq!(of(&[(0.5, 100.0)]), Err("fewer than two readings".into()));
        assert_eq!(
            of(&[(0.0, 100.0), (2.0, 90.0), (4.0, 120.0)]),
            Err("the counters of machine went backwards".into())
        );
        let coarse = of(&[(0.0, 0.0), (1.0, 0.0), (2.0, 3600.0), (3.0, 3600.0), (4.0, 7200.0)]);
        assert_eq!(coarse, Err("its counter of energy moved 2 times, which is too coarse for so short a time".into()));
        assert_eq!(of(&[(0.0, 1.0), (1.0, 2.0)]), Err("the meter reported power for 1.0 s of 4.0 s".into()));
    }
}
