//! A row of the table, from the samples of one cell.

use std::collections::{BTreeMap, BTreeSet};

use super::components::components;
use super::durability::{durability, durable};
use super::energy::energy;
use super::judge::{Collected, Judge, collect, judge_of};
use super::over_time::over_time;
use super::seen::seen;
use super::wires::wires;
use super::{CellRow, Cpu, CpuClock, Device, DiskFigures, FigureRow, PageCache, Percentile};
use crate::cell::{Cell, Side};
use crate::figure::{Distribution, Form, SAME_PERCENTILE, Unit, Value, scalar};
use crate::result::{
    BANDWIDTH, BUSY, CACHED_AFTER, CACHED_BEFORE, CpuUse, DeviceUse, Environment, IOPS, Mark, SECONDS, STOLEN, Sample,
    Watched, WorkloadTraits, amounts_of,
};
use crate::run::Run;
use crate::stats::{Estimate, geometric_mean, mean, outliers};

/// Bytes in the "GB" of CPU seconds per GB.
const GIGABYTE: f64 = 1e9;
/// Bytes of a sector in iostat and papers.
const SECTOR: f64 = 512.0;

/// Whether latency matters most: for synchronous durable writes.
fn latency_first(workloads: &[WorkloadTraits], name: &str) -> bool {
    workloads.iter().any(|w| w.name == name && durable(w))
}

/// The row of a cell.
pub(super) fn row(run: &Run, cell: &Cell) -> CellRow {
    let samples: Vec<&Sample> = run.samples.iter().filter(|s| s.cell == *cell).collect();
    let judge = judge_of(&run.workloads, cell);
    let judged: Vec<f64> = samples.iter().map(|s| judge.of(s).unwrap_or(f64::NAN)).collect();
    let mut marks: BTreeMap<Mark, u32> = BTreeMap::new();
    for mark in samples.iter().flat_map(|s| s.marks.iter().collect::<BTreeSet<_>>()) {
        *marks.entry(*mark).or_default() += 1;
    }
    CellRow {
        key: cell.key(),
        cell: cell.clone(),
        control: false,
        samples: samples.len() as u32,
        boots: samples.iter().map(|s| s.boot).collect::<BTreeSet<_>>().len() as u32,
        figure: judge.figure.name.clone(),
        latency_first: latency_first(&run.workloads, cell.workload()),
        figures: figures(run, &judge, &samples),
        disk: cell.target().map(|_| disk_figures(&samples)),
        device: device(&samples),
        cpu: cpu(&samples, &run.workloads, &run.environment),
        components: components(&samples, |s| amount(s, &run.workloads, Unit::Requests), &run.environment),
        durability: durability(run, cell, &samples),
        page_cache: page_cache(&samples),
        wires: wires(&samples),
        energy: energy(&samples, |sample| amount(sample, &run.workloads, Unit::Requests), &run.environment),
        seen: seen(&samples),
        over_time: over_time(run, cell, &judge, &samples),
        marks,
        outlier_rounds: outliers(&judged).into_iter().map(|i| samples[i].round).collect(),
    }
}

/// Bytes of all disks of a sample's guests in the host's page cache, over the samples with a count.
fn page_cache(samples: &[&Sample]) -> Option<PageCache> {
    let held = |figure: &str| {
        over(samples, |s| {
            let of = s.seen.iter().filter(|seen| seen.node.is_empty() && matches!(seen.watched, Watched::PageCache(_)));
            of.filter_map(|seen| scalar(&seen.figures, figure)).reduce(|a, b| a + b)
        })
    };
    Some(PageCache { before_bytes: held(CACHED_BEFORE)?, after_bytes: held(CACHED_AFTER)? })
}

/// Mean of a value over the samples that have it.
fn over(samples: &[&Sample], f: impl Fn(&Sample) -> Option<f64>) -> Option<Estimate> {
    finite_mean(samples.iter().filter_map(|s| f(s)))
}

/// The figures of its actors on disks together; latencies are the leading one's.
fn disk_figures(samples: &[&Sample]) -> DiskFigures {
    let latency = |percentile: f64| times_mean(samples.iter().filter_map(|s| s.result.latency()?.at(percentile)));
    let together = |s: &Sample, figure: &str| s.on_disks().map(|r| r.figure(figure)).sum::<Option<f64>>();
    let nothing = Estimate { value: 0.0, interval: None, n: 0 };
    DiskFigures {
        bandwidth_bytes_per_second: over(samples, |s| together(s, BANDWIDTH)).unwrap_or(nothing),
        requests_per_second: over(samples, |s| together(s, IOPS).filter(|n| *n > 0.0)),
        latency_p50_seconds: latency(50.0),
        latency_p99_seconds: latency(99.0),
    }
}

fn figures(run: &Run, judge: &Judge, samples: &[&Sample]) -> Vec<FigureRow> {
    let row = |Collected { figure, labels, values }: Collected| {
        let values: Vec<&Value> = values.values().map(|taken| &taken.value).collect();
        let shapes: Vec<&Distribution> = values.iter().filter_map(|value| value.distribution()).collect();
        Some(FigureRow {
            typical: match figure.form {
                Form::Distribution => times_mean(values.iter().map(|value| value.typical()))?,
                Form::Scalar => finite_mean(values.iter().map(|value| value.typical()))?,
            },
            mean: times_mean(shapes.iter().map(|shape| shape.mean)),
            percentiles: percentiles(&shapes),
            name: figure.name,
            labels,
            unit: figure.unit,
            better: figure.better,
            compared: figure.compared,
            form: figure.form,
        })
    };
    collect(samples.iter().copied(), |s| judge.all(s, &run.workloads)).into_iter().filter_map(row).collect()
}

/// Every percentile of any sample, ascending: the geometric mean over the samples that have it. Equality of percentiles
/// is as in [`Distribution::at`]; of duplicates in a sample the first counts. In one pass, since an imported run may
/// have any number.
fn percentiles(shapes: &[&Distribution]) -> Vec<Percentile> {
    struct Recorded {
        percentile: f64,
        /// Index of the last sample with it.
        last: usize,
        values: Vec<f64>,
    }
    let mut recorded: BTreeMap<i64, Recorded> = BTreeMap::new();
    for (sample, shape) in shapes.iter().enumerate() {
        for &(percentile, value) in shape.percentiles.iter().filter(|(p, _)| p.is_finite()) {
            let entry = recorded.entry((percentile / SAME_PERCENTILE).round() as i64);
            let one = entry.or_insert_with(|| Recorded { percentile, last: usize::MAX, values: Vec::new() });
            if one.last != sample {
                one.last = sample;
                one.values.push(value);
            }
        }
    }
    let row = |one: Recorded| {
        let over = times_mean(one.values.into_iter())?;
        Some(Percentile { percentile: one.percentile, over })
    };
    recorded.into_values().filter_map(row).collect()
}

/// The mean of the finite values.
fn finite_mean(values: impl Iterator<Item = f64>) -> Option<Estimate> {
    mean(&values.filter(|x| x.is_finite()).collect::<Vec<f64>>())
}

/// The same on the log scale, for times: their interval contains nothing below 0, and one slow sample does not
/// dominate.
fn times_mean(values: impl Iterator<Item = f64>) -> Option<Estimate> {
    geometric_mean(&values.filter(|x| x.is_finite()).collect::<Vec<f64>>())
}

/// Means over the samples with device counters.
fn device(samples: &[&Sample]) -> Option<Device> {
    let uses: Vec<DeviceUse> = samples.iter().filter_map(|s| s.device()).filter(|d| d.seconds > 0.0).collect();
    let over = |f: &dyn Fn(&DeviceUse) -> f64| mean(&uses.iter().map(f).collect::<Vec<f64>>());
    Some(Device {
        request_bytes: over(&|d| d.request_bytes)?,
        avgrq_sz_sectors: over(&|d| d.request_bytes / SECTOR)?,
        queue_depth: over(&|d| d.queue_depth)?,
        busy_ratio: mean(&uses.iter().filter_map(|d| d.busy_ratio).collect::<Vec<f64>>()),
        read_bytes_per_second: over(&|d| d.read_bytes as f64 / d.seconds)?,
        write_bytes_per_second: over(&|d| d.write_bytes as f64 / d.seconds)?,
        flushes_per_second: over(&|d| d.flush_ios as f64 / d.seconds)?,
    })
}

fn cpu(samples: &[&Sample], workloads: &[WorkloadTraits], environment: &Environment) -> Cpu {
    let gigabytes: f64 = samples.iter().map(|s| amount(s, workloads, Unit::Bytes)).sum::<f64>() / GIGABYTE;
    let requests: f64 = samples.iter().map(|s| amount(s, workloads, Unit::Requests)).sum();
    let used: Vec<CpuUse> = samples.iter().map(|s| s.cpu()).collect();
    // One clock for all samples: a run begun by an older version continues with ticks.
    let (clock, used) = if used.iter().all(|cpu| cpu.kernel_seconds.is_some()) {
        (CpuClock::Processes, used)
    } else {
        (CpuClock::Ticks, samples.iter().map(|s| CpuUse::by_ticks(&s.seen)).collect())
    };
    let kernel: Option<f64> = used.iter().map(|cpu| cpu.kernel_seconds).sum();
    let kernel = kernel.filter(|_| !used.is_empty());
    let mut roles: BTreeMap<String, f64> = BTreeMap::new();
    for (role, seconds) in used.iter().flat_map(|cpu| &cpu.by_role) {
        *roles.entry(role.clone()).or_default() += seconds;
    }
    let host: f64 = used.iter().map(|cpu| cpu.host_seconds).sum();
    let per = |amount: f64| -> BTreeMap<String, f64> {
        if amount <= 0.0 {
            return BTreeMap::new();
        }
        roles.iter().map(|(role, seconds)| (role.clone(), seconds / amount)).collect()
    };
    Cpu {
        host_seconds_per_gigabyte: if gigabytes > 0.0 { host / gigabytes } else { 0.0 },
        host_seconds_per_request: (requests > 0.0).then(|| host / requests),
        clock,
        kernel_seconds_per_gigabyte: kernel.filter(|_| gigabytes > 0.0).map(|kernel| kernel / gigabytes),
        kernel_seconds_per_request: kernel.filter(|_| requests > 0.0).map(|kernel| kernel / requests),
        role_seconds_per_gigabyte: per(gigabytes),
        role_seconds_per_request: per(requests),
        vcpu_busy_ratio: vcpu_busy(samples, environment),
        host_idle_ratio: host_idle(samples, environment),
    }
}

/// Seconds of the measurement of a sample's cell; `None` where not stored.
fn watched(sample: &Sample) -> Option<f64> {
    let mut own = sample.seen.iter().filter(|seen| seen.node.is_empty() && seen.watched == Watched::Others);
    own.find_map(|seen| scalar(&seen.figures, SECONDS))
}

/// Share of the time in which the host's processors were idle. Steal is not idle time.
fn host_idle(samples: &[&Sample], environment: &Environment) -> Option<f64> {
    let seconds: f64 = samples.iter().map(|s| watched(s)).sum::<Option<f64>>()?;
    let taken = |s: &&Sample| {
        let mut own = s.seen.iter().filter(|seen| seen.node.is_empty() && seen.watched == Watched::Processors);
        own.find_map(|seen| Some(scalar(&seen.figures, BUSY)? + scalar(&seen.figures, STOLEN).unwrap_or(0.0)))
    };
    let taken: f64 = samples.iter().map(taken).sum::<Option<f64>>()?;
    let all = seconds * f64::from(environment.cpus);
    (all > 0.0).then(|| (1.0 - taken / all).clamp(0.0, 1.0))
}

/// Share of the time in which the vCPUs of a cell's guests ran.
fn vcpu_busy(samples: &[&Sample], environment: &Environment) -> Option<f64> {
    let guests: BTreeSet<&Side> =
        samples.first()?.cell.actors().map(|a| &a.side).filter(|s| !s.shares_kernel()).collect();
    let vcpus: u32 = guests.iter().map(|side| side.shape.vcpus.unwrap_or(environment.vcpus)).sum();
    let seconds: f64 = samples.iter().map(|s| watched(s)).sum::<Option<f64>>()?;
    let ran: f64 = samples.iter().map(|s| s.cpu().by_role.get("vcpu").copied()).sum::<Option<f64>>()?;
    (vcpus > 0 && seconds > 0.0).then(|| ran / seconds / f64::from(vcpus))
}

/// Amount of a sample's actors in this unit; 0 where they do not all count the same: bytes read are not added to bytes
/// encrypted.
pub(crate) fn amount(sample: &Sample, workloads: &[WorkloadTraits], unit: Unit) -> f64 {
    let names = amounts_of(workloads, sample.cell.workload(), unit);
    if sample.cell.beside.iter().any(|actor| amounts_of(workloads, &actor.workload, unit) != names) {
        return 0.0;
    }
    let readings = sample.results().flat_map(|result| &result.figures).filter(|r| names.contains(&r.figure));
    readings.map(|r| r.value.typical()).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::stats::Interval;

    fn shape(percentiles: Vec<(f64, f64)>) -> Distribution {
        Distribution { mean: 1.0, percentiles }
    }

    fn rows_of(shapes: &[Distribution]) -> Vec<(f64, f64, u32)> {
        let all = percentiles(&shapes.iter().collect::<Vec<_>>());
        all.into_iter().map(|p| (p.percentile, p.over.value, p.over.n)).collect()
    }

    #[test]
    fn percentiles_are_over_the_samples_that_have_them() {
        let shapes = [
            shape(vec![(99.0, 8.0), (50.0, 1.0), (50.0, 100.0)]),
            shape(vec![(50.000_000_1, 3.0), (99.99, f64::NAN)]),
            shape(vec![(99.0, 4.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0)]),
        ];
        let rounded = |x: f64| (x * 1e3).round() / 1e3;
        let all: Vec<_> = rows_of(&shapes).into_iter().map(|(p, value, n)| (p, rounded(value), n)).collect();
        assert_eq!(all, [(50.0, 1.732, 2), (99.0, 5.657, 2)]);
        let close = [shape(vec![(99.999, 1.0), (99.999_9, 2.0), (99.999_99, 3.0)])];
        assert_eq!(rows_of(&close).len(), 3);
        assert_eq!(rows_of(&[]), []);
    }

    /// A linear search would take 4 * 10^10 steps for the percentiles of two such samples, which no test would finish.
    #[test]
    fn so_many_percentiles_take_one_pass() {
        const MANY: usize = 200_000;
        let at = |i: usize| (i as f64 * 100.0 / MANY as f64, i as f64);
        let one = shape((0..MANY).map(at).collect());
        let all = rows_of(&[one.clone(), one]);
        assert_eq!((all.len(), all[1234].1.round(), all[1234].2), (MANY, 1234.0, 2));
    }

    /// Five measured p99 of one cell, in microseconds: Student's interval around their mean of 571 µs reaches to -569
    /// µs.
    #[test]
    fn no_time_is_below_nothing() {
        let p99 = [140e-6, 106e-6, 241e-6, 155e-6, 2212e-6];
        let shapes = p99.map(|at| shape(vec![(99.0, at)]));
        let all = percentiles(&shapes.iter().collect::<Vec<_>>());
        let over = all[0].over;
        let Interval { low, high } = over.interval.unwrap();
        assert!((over.value - 261.4e-6).abs() < 1e-6, "{over:?}");
        assert!(low > 0.0 && low < over.value && high > 1e-3 && high < 2e-3, "{over:?}");
        assert!((over.value / low / (high / over.value) - 1.0).abs() < 1e-9, "alike on the log scale: {over:?}");
        // A time of 0 has no logarithm.
        let none = geometric_mean(&[0.0, 1.0]).unwrap();
        assert_eq!((none.value, none.interval, none.n), (0.0, None, 2));
        assert_eq!(geometric_mean(&[]), None);
    }
}
