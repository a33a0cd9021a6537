//! A cell's figure during a run, for machines outside of this host: a provider may throttle after a while, or at other
//! hours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::judge::Judge;
use crate::cell::{Cell, Subject};
use crate::result::Sample;
use crate::run::Run;
use crate::stats::knees;

/// A cell's figure over time, and where its level changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverTime {
    /// The samples in order of start.
    pub moments: Vec<Moment>,
    /// Changes of level (docs/statistics.md, "Knees").
    pub knees: Vec<Knee>,
}

/// The value of a sample, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Seconds from the run's start to the sample's.
    pub at_seconds: f64,
    /// The figure by which the cell is judged, in its unit.
    pub value: f64,
}

/// A change of level; levels are means, in the unit of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// Seconds from the run's start to the first sample of the new level.
    pub at_seconds: f64,
    /// Level since the previous knee.
    pub before: f64,
    /// Level up to the next knee.
    pub after: f64,
}

/// For cells on another machine, or on a path to one; `None` for all others, whose rounds have equal conditions.
pub(super) fn over_time(run: &Run, cell: &Cell, judge: &Judge, samples: &[&Sample]) -> Option<OverTime> {
    let peer = run.environment.peer.is_some();
    let elsewhere = |subject: &Subject| peer && matches!(subject, Subject::Path { .. });
    if !cell.actors().any(|actor| actor.side.is_afar() || elsewhere(&actor.subject)) {
        return None;
    }
    let moment = |sample: &&Sample| {
        let value = judge.of(sample).filter(|value| value.is_finite())?;
        Some(Moment { at_seconds: sample.started_unix - run.started_unix, value })
    };
    let mut moments: Vec<Moment> = samples.iter().filter_map(moment).collect();
    moments.sort_by(|one, other| one.at_seconds.total_cmp(&other.at_seconds));
    let values: Vec<f64> = moments.iter().map(|moment| moment.value).collect();
    let knee =
        |knee: knees::Knee| Knee { at_seconds: moments[knee.at].at_seconds, before: knee.before, after: knee.after };
    let knees = knees::knees(&values).into_iter().map(knee).collect();
    Some(OverTime { moments, knees })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::summary::summarise;
    use crate::testing::{Bench, native, over_bridge};

    fn row(run: &Run) -> Option<OverTime> {
        summarise(run).cells[0].over_time.clone()
    }

    #[test]
    fn what_another_machine_gives_is_followed_while_the_run_lasts() {
        let afar = Cell::on("ssh", "preallocated", None, "seq-write");
        let mut run = Bench::new().cell(afar, 800e6).rounds(12).scatter(0.01).run();
        let kept = row(&run).unwrap();
        assert_eq!((kept.moments.len(), kept.knees.len()), (12, 0), "{kept:?}");
        // After five rounds it drops to a quarter. The order of stored samples does not matter.
        for sample in run.samples.iter_mut().filter(|sample| sample.round >= 5) {
            sample.result.amend(|work| work.seconds *= 4.0);
        }
        run.samples.reverse();
        let found = row(&run).unwrap();
        let [knee] = found.knees[..] else { panic!("{found:?}") };
        // The run began at 1 s, round 5 at 5 s.
        assert_eq!(knee.at_seconds, 4.0);
        assert!((knee.before / 800e6 - 1.0).abs() < 0.02 && (knee.after / 200e6 - 1.0).abs() < 0.02, "{knee:?}");
    }

    #[test]
    fn of_this_host_nothing_is_followed_but_the_way_to_a_peer() {
        assert_eq!(row(&Bench::new().cell(native("device", "seq-write"), 800e6).run()), None);
        let mut run = Bench::new().cell(over_bridge(None, "iperf3-tcp"), 1e9).run();
        assert_eq!(row(&run), None);
        run.environment.peer = Some("ssh://b (192.0.2.7)".into());
        assert_eq!(row(&run).unwrap().moments.len(), run.samples.len());
    }
}
