//! Energy of a cell's requests by each meter, above the power of the machine at rest in the same run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CellRow;
use crate::result::{AtRest, Environment, Mark, Metered, Sample, metered, of_machine};
use crate::stats::common::mean_less;
use crate::stats::{Estimate, mean};

/// Energy of a cell by one meter. Rows are not added up: a package of processors is a part of the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnergyRow {
    /// The meter: the name of its probe.
    pub meter: String,
    /// What it measures: `machine`, `package-0`.
    pub domain: String,
    /// Mean watts of the cell, with all work on the machine.
    pub watts: Estimate,
    /// Mean watts with the machine at rest, over the phases of rest of the run; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_watts: Option<Estimate>,
    /// Joules for each request above rest, the scatter of both included; `None` where no requests were counted or rest
    /// was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules_per_request_above_rest: Option<Estimate>,
}

/// The energy of a cell's requests, beside their CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellEnergy {
    /// Key of the cell.
    pub key: String,
    /// By meter and domain; absent where no meter reported anything of the cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<EnergyRow>,
    /// CPU seconds of the host for each request, which is no energy; absent where no requests were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_per_request: Option<f64>,
}

impl CellEnergy {
    /// That of a row.
    pub fn of(row: &CellRow) -> Self {
        let cpu_seconds_per_request = row.cpu.host_seconds_per_request;
        Self { key: row.key.clone(), energy: row.energy.clone(), cpu_seconds_per_request }
    }
}

/// Values of one meter and domain.
#[derive(Default)]
struct Values {
    watts: Vec<f64>,
    /// Joules and seconds for each request.
    per_request: Vec<(f64, f64)>,
}

/// Energy by meter and domain. `requests` is the number of requests of a sample; 0 for none counted.
pub(super) fn energy(
    samples: &[&Sample],
    requests: impl Fn(&Sample) -> f64,
    environment: &Environment,
) -> Vec<EnergyRow> {
    let mut all: BTreeMap<(&str, &str), Values> = BTreeMap::new();
    for sample in samples {
        let requests = requests(sample);
        for told in metered(&sample.seen) {
            let values = all.entry((told.meter, told.domain)).or_default();
            values.watts.push(told.watts);
            if requests > 0.0 {
                values.per_request.push((told.joules / requests, told.seconds() / requests));
            }
        }
    }
    let row = |((meter, domain), values): ((&str, &str), Values)| {
        let rest = at_rest(environment, meter, domain);
        Some(EnergyRow {
            meter: meter.to_owned(),
            domain: domain.to_owned(),
            watts: mean(&values.watts)?,
            rest_watts: mean(&rest),
            joules_per_request_above_rest: mean_less(&values.per_request, &rest),
        })
    };
    all.into_iter().filter_map(row).collect()
}

/// Joules of each request of a sample above the machine at rest, by a meter of the whole machine. Rest is the last phase
/// before the sample, that before its boot, so that its error is a part of the scatter between boots; `None` where
/// others kept the processors busy in it.
pub(crate) fn above_rest(sample: &Sample, requests: f64, environment: &Environment) -> Option<f64> {
    let told = of_machine(&sample.seen)?;
    let before = environment.at_rest.iter().rfind(|rest| rest.started_unix <= sample.started_unix);
    let watts = before.filter(|rest| is_calm(rest)).and_then(|rest| power(rest, told.meter, told.domain))?;
    Some((told.joules - watts * told.seconds()) / requests).filter(|joules| joules.is_finite())
}

/// Whether others left the processors alone in a phase of rest.
fn is_calm(rest: &AtRest) -> bool {
    !rest.marks.contains(&Mark::ProcessorsBusy)
}

/// The power of a phase by a meter.
fn power(rest: &AtRest, meter: &str, domain: &str) -> Option<f64> {
    let own = |told: &Metered<'_>| told.meter == meter && told.domain == domain;
    metered(&rest.seen).find(own).map(|told| told.watts)
}

/// The power of each calm phase by a meter.
fn at_rest(environment: &Environment, meter: &str, domain: &str) -> Vec<f64> {
    let calm = environment.at_rest.iter().filter(|rest| is_calm(rest));
    calm.filter_map(|rest| power(rest, meter, domain)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::above_rest;
    use crate::result::{AtRest, Mark};
    use crate::run::Run;
    use crate::summary::summarise;
    use crate::testing::{Bench, meter, native};

    fn rest(watts: f64, marks: Vec<Mark>) -> AtRest {
        AtRest { started_unix: 0.0, seen: vec![meter("ipmi", "machine", watts * 10.0, watts)], marks }
    }

    /// A cell of 100 W in 2 s, beside these phases of rest.
    fn run(workload: &str, rests: Vec<AtRest>) -> (Run, String) {
        let cell = native("device", workload);
        let mut run = Bench::new().cell(cell.clone(), 5e3).run();
        run.samples.iter_mut().for_each(|sample| sample.seen.push(meter("ipmi", "machine", 200.0, 100.0)));
        run.environment.at_rest = rests;
        (run, cell.key())
    }

    #[test]
    fn joules_of_a_request_are_above_the_power_at_rest() {
        let (run, key) =
            run("rand-read-1", vec![rest(60.0, vec![]), rest(60.0, vec![]), rest(95.0, vec![Mark::ProcessorsBusy])]);
        let row = summarise(&run).cell(&key).unwrap().clone();
        let [energy] = row.energy.as_slice() else { panic!("{:?}", row.energy) };
        assert_eq!((energy.meter.as_str(), energy.domain.as_str()), ("ipmi", "machine"));
        assert_eq!((energy.watts.value, energy.rest_watts.unwrap().value), (100.0, 60.0));
        assert_eq!(energy.rest_watts.unwrap().n, 2, "a machine at work is not at rest");
        let requests = run.samples.iter().map(|s| s.work().ios as f64).sum::<f64>() / run.samples.len() as f64;
        let joules = energy.joules_per_request_above_rest.unwrap();
        assert!(requests > 0.0 && (joules.value * requests / 80.0 - 1.0).abs() < 0.05, "{joules:?}, {requests}");
        assert!(joules.interval.is_some());
    }

    #[test]
    fn rest_is_that_of_the_last_phase_before() {
        let at = |started_unix: f64, watts: f64, marks: Vec<Mark>| AtRest { started_unix, ..rest(watts, marks) };
        let (busy, later) = (at(3.5, 90.0, vec![Mark::ProcessorsBusy]), at(9.0, 0.5, vec![]));
        let (run, _) = run("rand-read-1", vec![at(0.0, 60.0, vec![]), at(2.5, 70.0, vec![]), busy, later]);
        let joules = |round: usize| above_rest(&run.samples[round], 100.0, &run.environment);
        // 100 W in 2 s, of which 60 W or 70 W are the machine's at rest; sample N began in second N.
        for (round, wanted) in [(0, 0.8), (2, 0.8), (3, 0.6)] {
            assert!((joules(round).unwrap() - wanted).abs() < 1e-9, "{round}: {:?}", joules(round));
        }
        assert_eq!([joules(4), joules(5)], [None; 2], "others were at work");
        let less = &run.samples[0];
        assert_eq!(above_rest(less, 0.0, &run.environment), None);
        let mut warm = run.environment.clone();
        warm.at_rest = vec![rest(100.5, vec![])];
        assert!((above_rest(less, 100.0, &warm).unwrap() + 0.01).abs() < 1e-9, "it may be below it");
    }

    #[test]
    fn what_was_not_measured_is_no_figure() {
        let (without_rest, key) = run("rand-read-1", Vec::new());
        let row = summarise(&without_rest).cell(&key).unwrap().clone();
        assert_eq!((row.energy[0].rest_watts, row.energy[0].joules_per_request_above_rest), (None, None));
        let (mut no_meter, _) = run("rand-read-1", vec![rest(60.0, vec![])]);
        no_meter.samples.iter_mut().for_each(|sample| sample.seen.retain(|seen| seen.probe != "ipmi"));
        let row = summarise(&no_meter).cell(&key).unwrap().clone();
        assert!(row.energy.is_empty() && row.cpu.host_seconds_per_request.is_some(), "{row:?}");
        assert!(serde_json::to_value(&row).unwrap().get("energy").is_none());
    }
}
