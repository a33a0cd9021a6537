//! CPU time by component, as the processors were sampled: guest, each file of the hypervisor and of programs, each
//! subsystem of the kernel (as Table 1 of lu2016).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Summary;
use crate::figure::scalar;
use crate::result::{
    COMPONENT, Environment, KERNEL, LOST, OWN, ProbeResult, ROLE, SAMPLED, SAMPLES, SOURCE, Sample, Watched,
};
use crate::stats::{Estimate, mean};

/// CPU time by component over the samples of a cell: of vmio's processes, its guests among them, and of the kernel's
/// threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Components {
    /// What made the samples of processors: `cycles` of the hardware, or the kernel's `cpu-clock`.
    pub source: String,
    /// Its components, the one with most time first.
    pub rows: Vec<Component>,
    /// Samples of processors that the kernel could not keep, in all.
    pub lost_samples: u64,
    /// Seconds for which each sample interrupted a processor; `None` where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_seconds: Option<f64>,
    /// The sum of all components over the CPU time of the same processes and threads by the scheduler's clock: 1, as far
    /// as samples are exact. `None` where that time is not known. By cycles it is 1 by definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_clock_ratio: Option<f64>,
}

impl Components {
    /// The share of a processor's time that its samples took, as far as they were measured.
    pub fn interrupted_ratio(&self) -> Option<f64> {
        let seconds: f64 = self.rows.iter().map(|row| row.seconds.value * f64::from(row.seconds.n)).sum();
        let samples: u64 = self.rows.iter().map(|row| row.samples).sum();
        Some(self.interrupt_seconds? * samples as f64 / seconds).filter(|ratio| ratio.is_finite())
    }
}

/// A component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Component {
    /// Its name: `guest kernel`, `translated guest code`, `libc`, `kernel, block`, `kvm`.
    pub component: String,
    /// Samples of processors in it, in all.
    pub samples: u64,
    /// CPU seconds of a cell.
    pub seconds: Estimate,
    /// CPU seconds of a request; absent where the workload counts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_per_request: Option<Estimate>,
    /// Its share of all components, 0 to 1.
    pub share_ratio: f64,
    /// CPU seconds of a cell by role: `vcpu`, `iothread`, `main`, `worker`, `server`, `program`, `kernel` (its threads).
    pub seconds_by_role: BTreeMap<String, f64>,
}

/// CPU time by component of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellComponents {
    /// Key of the cell.
    pub key: String,
    /// Key of the cell that it is compared with; absent where there is none, or it is the cell itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Its components.
    pub components: Components,
}

/// The cells of a run whose processors were sampled.
pub fn by_cell(summary: &Summary) -> Vec<CellComponents> {
    let all = summary.cells.iter().filter_map(|row| {
        let baseline = summary.baseline.of(&row.cell).filter(|base| *base != row.cell);
        let (key, baseline) = (row.key.clone(), baseline.map(|base| base.key()));
        Some(CellComponents { key, baseline, components: row.components.clone()? })
    });
    all.collect()
}

/// A sample's result of the probe.
fn result(sample: &Sample) -> Option<&ProbeResult> {
    sample.seen.iter().find(|seen| seen.node.is_empty() && seen.watched == Watched::Components)
}

/// CPU seconds of a sample by role and component; `None` where no processors were sampled.
pub(crate) fn of_sample(sample: &Sample) -> Option<impl Iterator<Item = (&str, &str, f64)>> {
    let sampled = result(sample)?.figures.iter().filter(|reading| reading.figure == SAMPLED);
    Some(sampled.filter_map(|reading| {
        let (role, component) = (reading.labels.get(ROLE)?, reading.labels.get(COMPONENT)?);
        Some((role.as_str(), component.as_str(), reading.value.typical()))
    }))
}

/// A figure of a sample by component.
fn by_component(seen: &ProbeResult, figure: &str) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for reading in seen.figures.iter().filter(|reading| reading.figure == figure) {
        let Some(component) = reading.labels.get(COMPONENT) else { continue };
        *all.entry(component.clone()).or_default() += reading.value.typical();
    }
    all
}

/// CPU seconds of a request by component, each with its boot: of the samples with requests whose processors were
/// sampled. A component that a sample does not have took nothing there.
pub(super) fn per_request(samples: &[&Sample], requests: impl Fn(&Sample) -> f64) -> BTreeMap<String, Vec<(u32, f64)>> {
    let taken = samples.iter().filter_map(|s| {
        let requests = Some(requests(s)).filter(|n| *n > 0.0)?;
        Some((s.boot, requests, by_component(result(s)?, SAMPLED)))
    });
    let taken: Vec<(u32, f64, BTreeMap<String, f64>)> = taken.collect();
    let names: BTreeSet<&String> = taken.iter().flat_map(|(.., all)| all.keys()).collect();
    let of = |name: &String| {
        let values = taken.iter().map(|(boot, requests, all)| (*boot, all.get(name).unwrap_or(&0.0) / requests));
        (name.clone(), values.collect())
    };
    names.into_iter().map(of).collect()
}

/// The components of a cell; `None` where no sample has any.
pub(super) fn components(
    samples: &[&Sample],
    requests: impl Fn(&Sample) -> f64,
    environment: &Environment,
) -> Option<Components> {
    let seen: Vec<&ProbeResult> = samples.iter().filter_map(|s| result(s)).collect();
    let times: Vec<BTreeMap<String, f64>> = seen.iter().map(|seen| by_component(seen, SAMPLED)).collect();
    let counts: Vec<BTreeMap<String, f64>> = seen.iter().map(|seen| by_component(seen, SAMPLES)).collect();
    let lost = || seen.iter().flat_map(|seen| &seen.figures).filter(|reading| reading.figure == LOST);
    let source = lost().find_map(|reading| reading.labels.get(SOURCE))?.clone();
    let all: f64 = times.iter().flat_map(BTreeMap::values).sum();
    let a_request = per_request(samples, requests);
    let row = |name: &String| {
        let seconds: Vec<f64> = times.iter().map(|times| times.get(name).copied().unwrap_or(0.0)).collect();
        let each: Option<Vec<f64>> = a_request.get(name).map(|all| all.iter().map(|(_, seconds)| *seconds).collect());
        Some(Component {
            component: name.clone(),
            samples: counts.iter().filter_map(|counts| counts.get(name)).sum::<f64>() as u64,
            share_ratio: if all > 0.0 { seconds.iter().sum::<f64>() / all } else { 0.0 },
            seconds: mean(&seconds)?,
            seconds_per_request: each.and_then(|each| mean(&each)),
            seconds_by_role: by_role(&seen, name),
        })
    };
    let names: BTreeSet<&String> = times.iter().flat_map(BTreeMap::keys).collect();
    let mut rows: Vec<Component> = names.into_iter().filter_map(row).collect();
    rows.sort_by(|a, b| b.seconds.value.total_cmp(&a.seconds.value));
    Some(Components {
        source,
        rows,
        lost_samples: lost().map(|reading| reading.value.typical()).sum::<f64>() as u64,
        interrupt_seconds: environment.sample_interrupt_seconds,
        of_clock_ratio: of_clock(samples),
    })
}

/// Mean CPU seconds of a component by role.
fn by_role(seen: &[&ProbeResult], component: &str) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    let own = seen.iter().flat_map(|seen| &seen.figures).filter(|reading| {
        reading.figure == SAMPLED && reading.labels.get(COMPONENT).is_some_and(|name| name == component)
    });
    for reading in own {
        let role = reading.labels.get(ROLE).cloned().unwrap_or_default();
        *all.entry(role).or_default() += reading.value.typical() / seen.len() as f64;
    }
    all
}

/// The sum of all components over the scheduler's time, of the samples with both.
fn of_clock(samples: &[&Sample]) -> Option<f64> {
    let both = samples.iter().filter_map(|s| {
        let sampled: f64 = by_component(result(s)?, SAMPLED).into_values().sum();
        let own = s.seen.iter().find(|seen| seen.node.is_empty() && seen.watched == Watched::Others)?;
        Some((sampled, scalar(&own.figures, OWN)? + scalar(&own.figures, KERNEL)?))
    });
    let (sampled, clock) = both.fold((0.0, 0.0), |(a, b), (sampled, clock)| (a + sampled, b + clock));
    (clock > 0.0).then(|| sampled / clock)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::figure::Reading;
    use crate::run::Run;
    use crate::summary::{compare, summarise};
    use crate::testing::{Bench, native};

    use super::*;

    /// A run whose samples have these CPU seconds in libc in programs, and half of it in the block layer by the kernel.
    fn run(seconds: impl Fn(usize) -> f64) -> Run {
        let mut run = Bench::new().cell(native("device", "rand-read-1"), 5e3).run();
        for (i, sample) in run.samples.iter_mut().enumerate() {
            let of = |figure, role: &str, component: &str, value: f64| {
                Reading::scalar(figure, value).with(ROLE, role).with(COMPONENT, component)
            };
            let own = seconds(i);
            let figures = vec![
                of(SAMPLED, "program", "libc", own),
                of(SAMPLES, "program", "libc", 997.0),
                of(SAMPLED, "kernel", "kernel, block", own / 4.0),
                of(SAMPLED, "program", "kernel, block", own / 4.0),
                of(SAMPLES, "program", "kernel, block", 499.0),
                Reading::scalar(LOST, 2.0).with(SOURCE, "cpu-clock"),
            ];
            let clock = [(OWN, own * 1.25), (KERNEL, own / 4.0)].map(|(name, value)| Reading::scalar(name, value));
            sample.seen.retain(|seen| seen.watched != Watched::Others);
            sample.seen.push(ProbeResult::here(Watched::Components, "components", figures));
            sample.seen.push(ProbeResult::here(Watched::Others, "others", clock.into()));
        }
        run
    }

    #[test]
    fn each_component_has_its_time_of_a_request_and_its_share() {
        let run = run(|_| 0.3);
        let summary = summarise(&run);
        let row = &summary.cells[0];
        let all = row.components.as_ref().unwrap();
        let names: Vec<&str> = all.rows.iter().map(|row| row.component.as_str()).collect();
        assert_eq!((names, all.source.as_str()), (vec!["libc", "kernel, block"], "cpu-clock"));
        let (n, block) = (run.samples.len() as u64, &all.rows[1]);
        assert_eq!((all.rows[0].samples, all.lost_samples), (997 * n, 2 * n));
        assert!((block.share_ratio - 1.0 / 3.0).abs() < 1e-9 && (block.seconds.value - 0.15).abs() < 1e-9, "{block:?}");
        assert!((block.seconds_by_role["kernel"] - 0.075).abs() < 1e-9, "{block:?}");
        assert!((all.of_clock_ratio.unwrap() - 1.0).abs() < 1e-9, "{all:?}");
        // The parts of a request are its whole, as the table of CPU time has it.
        let sum: f64 = all.rows.iter().map(|row| row.seconds_per_request.unwrap().value).sum();
        let whole = row.cpu.host_seconds_per_request.unwrap();
        assert!((sum / whole - 1.0).abs() < 0.05, "{sum} of {whole}");
    }

    /// 1,496 samples in 0.45 s, each of which took 10 microseconds.
    #[test]
    fn what_the_samples_took_is_a_share_of_the_processors_time() {
        let mut run = run(|_| 0.3);
        let of = |run: &Run| summarise(run).cells[0].components.as_ref().unwrap().interrupted_ratio();
        assert_eq!(of(&run), None, "it was not measured");
        run.environment.sample_interrupt_seconds = Some(1e-5);
        assert!((of(&run).unwrap() - 1496.0 * 1e-5 / 0.45).abs() < 1e-9, "{:?}", of(&run));
    }

    #[test]
    fn a_run_without_samples_of_processors_has_none() {
        let run = Bench::new().cell(native("device", "rand-read-1"), 5e3).run();
        assert!(summarise(&run).cells[0].components.is_none());
    }

    #[test]
    fn two_runs_differ_by_component() {
        let (a, b) = (run(|i| 0.3 + 0.001 * i as f64), run(|i| 0.6 + 0.001 * i as f64));
        let compared = compare(&a, &b);
        let all = &compared.cells[0].components;
        let names: Vec<&str> = all.iter().map(|one| one.component.as_str()).collect();
        assert_eq!(names, ["libc", "kernel, block"], "the largest difference first");
        let libc = &all[0];
        let more = libc.b_seconds_per_request.unwrap() - libc.a_seconds_per_request.unwrap();
        assert!(
            (libc.difference.value - more).abs() < 1e-12 && libc.difference.interval.unwrap().above(0.0),
            "{libc:?}"
        );
        // What one of them does not sample is not compared.
        let plain = Bench::new().cell(native("device", "rand-read-1"), 5e3).run();
        assert!(compare(&a, &plain).cells[0].components.is_empty());
    }
}
