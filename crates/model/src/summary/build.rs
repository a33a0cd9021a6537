//! From samples to rows and shares.

use std::collections::{BTreeMap, BTreeSet};

use super::durability::durability;
use super::judge::{Judge, collect, judge_of};
use super::{
    CellNoise, CellRow, Cpu, Device, DiskFigures, FigureRow, FigureShare, SCHEMA_VERSION, Share, Summary, explain,
    headline, steady,
};
use crate::cell::{Baseline, Cell};
use crate::figure::{Compared, Form, Unit, Value};
use crate::result::{Accel, CpuUse, DeviceUse, Environment, IOPS, Mark, Run, Sample, WorkloadTraits, figures_of};
use crate::stats::{
    self, Convergence, Estimate, Pair, Ratio, converged, mean, outliers, paired_difference, paired_ratio,
};
use crate::study::Repeat;

/// Bytes in the "GB" of CPU seconds per GB.
const GIGABYTE: f64 = 1e9;
/// Bytes in a sector as iostat and the papers count.
const SECTOR: f64 = 512.0;

/// What may and may not be concluded from guests under software emulation.
pub const EMULATED: &str = "The guests ran under software emulation (TCG), not hardware virtualisation. What may be \
    concluded: which settings, request sizes and queue depths reach the device, and which setup beats which other one \
    by a wide margin here. What may not: the share of the host that a guest under KVM would get, latencies, CPU costs, \
    or any comparison with published figures; emulation makes the guest's own processor many times slower.";

/// What may be concluded from a run, where that is less than usual.
fn statement(environment: &Environment) -> Option<String> {
    let emulated = (environment.accel == Some(Accel::Tcg)).then(|| EMULATED.to_owned());
    let capped = environment.cap_ratio.map(|cap| {
        format!(
            "To protect the other guests (--gentle) each workload was capped at {:.0} % of what a short native probe \
             of it \
             reached, on both sides. Shares are of that cap, not of the host; a share near 100 % says only that the \
             guest reaches the cap.",
            cap * 100.0
        )
    });
    let lab = environment.node.as_ref().map(|node| {
        format!(
            "The host of this run was itself a guest, a {node}. What may be concluded: what works on such storage, \
             which \
             request sizes and queue depths reach it, and which of its targets beats which other one by a wide margin. \
             What may not: any figure as that of a real host."
        )
    });
    let all: Vec<String> = emulated.into_iter().chain(lab).chain(capped).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// Judges a run. The study stored with the run decides when a share counts as known.
pub fn summarise(run: &Run) -> Summary {
    let convergence = repeat_of(&run.study_toml);
    // Controls were chosen by the first round, whether it counts or not.
    let controls = explain::of_run(run);
    let first: BTreeSet<&Cell> = run.samples.iter().filter(|s| s.round == 0).map(|s| &s.cell).collect();
    let asked = stored_repeat(&run.study_toml).is_some_and(|r| r.steady_state);
    let steady = if asked { steady::states(&run.samples, &run.workloads) } else { Vec::new() };
    let run = &*steady::settled_run(run);
    let mut cells: Vec<CellRow> = setups(&run.samples).into_iter().map(|s| cell(run, s)).collect();
    // One that ran in the first round is the study's own too.
    for cell in cells.iter_mut().filter(|c| controls.iter().any(|x| x.cell == c.cell)) {
        cell.control = !first.contains(&cell.cell);
    }
    let baseline = baseline_of(&run.study_toml);
    let shares: Vec<Share> =
        setups(&run.samples).into_iter().filter_map(|s| share(run, s, &baseline, &convergence)).collect();
    let emulated = run.environment.accel == Some(Accel::Tcg);
    Summary {
        schema_version: SCHEMA_VERSION.to_owned(),
        run: run.id,
        study: run.study.clone(),
        command: run.command.clone(),
        started_unix_seconds: run.started_unix,
        state: run.state.clone(),
        environment: run.environment.clone(),
        emulated,
        statement: statement(&run.environment),
        headline: headline::headline(run, &cells, &shares, &baseline, &convergence, emulated),
        explained: explain::explain(run, &controls, &convergence),
        convergence,
        cells,
        shares,
        steady,
        skipped: run.skipped.clone(),
        effective: run.effective.clone(),
    }
}

/// The convergence rule of a stored study; the default where the text cannot be read.
pub fn repeat_of(study_toml: &str) -> Convergence {
    stored_repeat(study_toml).map(|r| r.convergence()).unwrap_or_default()
}

/// What the cells of a stored study are compared with; the host itself where the text cannot be read.
pub fn baseline_of(study_toml: &str) -> Baseline {
    #[derive(serde::Deserialize)]
    struct Stored {
        #[serde(default)]
        baseline: Baseline,
    }
    toml::from_str::<Stored>(study_toml).map(|s| s.baseline).unwrap_or_default()
}

/// How often a stored study repeats; `None` where the text cannot be read.
pub(super) fn stored_repeat(study_toml: &str) -> Option<Repeat> {
    #[derive(serde::Deserialize)]
    struct Stored {
        repeat: Repeat,
    }
    toml::from_str::<Stored>(study_toml).ok().map(|s| s.repeat)
}

/// Share of its baseline of each compared cell so far, by key: what [`crate::study::next`] needs.
pub fn shares(samples: &[Sample], workloads: &[WorkloadTraits], baseline: &Baseline) -> BTreeMap<String, Ratio> {
    let share = |cell: &Cell| {
        let base = baseline.of(cell).filter(|base| base != cell)?;
        let judge = judge_of(workloads, cell);
        let ratio = paired_ratio(&unrounded(&pairs(samples, &base, cell, |x| judge.rising(x))))?;
        Some((cell.key(), ratio))
    };
    setups(samples).into_iter().filter_map(share).collect()
}

/// Pairs of two cells by round, with the round of each: samples of the same round and boot that
/// both have the figure. A round that was broken off and taken up by a resumed run has two boots,
/// perhaps days apart: its halves are no pair.
pub fn pairs(
    samples: &[Sample],
    base: &Cell,
    test: &Cell,
    figure: impl Fn(&Sample) -> Option<f64>,
) -> Vec<(u32, Pair)> {
    let by_round: BTreeMap<u32, &Sample> = samples.iter().filter(|s| s.cell == *base).map(|s| (s.round, s)).collect();
    samples
        .iter()
        .filter(|s| s.cell == *test)
        .filter_map(|s| {
            let native = by_round.get(&s.round).filter(|native| native.boot == s.boot)?;
            Some((s.round, Pair { boot: s.boot, base: figure(native)?, test: figure(s)? }))
        })
        .collect()
}

/// Geometric mean over several comparisons (base, test), taken within each round in which all of
/// them have a pair, so that what hits a whole round is counted once. Cells that converged stop
/// being repeated; where no round has them all, there is no overall figure.
pub(crate) fn overall<'a>(run: &Run, of: impl Iterator<Item = (&'a Cell, &'a Cell)>) -> Option<Ratio> {
    let mut rounds: BTreeMap<u32, Vec<Pair>> = BTreeMap::new();
    let mut count = 0;
    for (base, test) in of {
        count += 1;
        let judge = judge_of(&run.workloads, test);
        for (round, pair) in pairs(&run.samples, base, test, |s| judge.rising(s)) {
            rounds.entry(round).or_default().push(pair);
        }
    }
    let whole: Vec<Pair> = rounds
        .values()
        .filter(|pairs| pairs.len() == count)
        .map(|pairs| {
            let logs: f64 = pairs.iter().map(|p| (p.test / p.base).ln()).sum();
            Pair { boot: pairs[0].boot, base: 1.0, test: (logs / pairs.len() as f64).exp() }
        })
        .collect();
    paired_ratio(&whole)
}

pub(super) fn unrounded(pairs: &[(u32, Pair)]) -> Vec<Pair> {
    pairs.iter().map(|&(_, p)| p).collect()
}

/// The noise of each cell: its rounds 0 and 1, 2 and 3, … against each other. For an A/A run
/// (`vmio tax --noise`), though any run can be asked.
pub fn noise(run: &Run) -> Vec<CellNoise> {
    let of = |setup: &Cell| {
        let judge = judge_of(&run.workloads, setup);
        let rounds: BTreeMap<u32, &Sample> =
            run.samples.iter().filter(|s| s.cell == *setup).map(|s| (s.round, s)).collect();
        let pairs: Vec<Pair> = rounds
            .iter()
            .filter(|(round, _)| *round % 2 == 0)
            .filter_map(|(round, a)| {
                let b = rounds.get(&round.checked_add(1)?)?;
                Some(Pair { boot: a.boot, base: judge.rising(a)?, test: judge.rising(b)? })
            })
            .collect();
        Some(CellNoise { key: setup.key(), noise: stats::noise(&pairs)? })
    };
    setups(&run.samples).into_iter().filter_map(of).collect()
}

/// The distinct cells in the order in which they first ran.
pub(crate) fn setups(samples: &[Sample]) -> Vec<&Cell> {
    let mut seen = BTreeSet::new();
    samples.iter().map(|s| &s.cell).filter(|s| seen.insert(*s)).collect()
}

/// Whether each write is made durable before the next (runs of old versions name no engine).
pub(super) fn durable(w: &WorkloadTraits) -> bool {
    w.disk.as_ref().is_some_and(|d| {
        let synchronous = d.engine == "psync" || d.engine.is_empty();
        synchronous && d.writes && d.sequential && d.depth == 1 && w.judged_by == IOPS
    })
}

/// Synchronous durable writes: what their users wait for is the latency.
fn latency_first(workloads: &[WorkloadTraits], name: &str) -> bool {
    workloads.iter().any(|w| w.name == name && durable(w))
}

fn cell(run: &Run, cell: &Cell) -> CellRow {
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
        cpu: cpu(&samples, &run.workloads),
        durability: durability(run, cell, &samples),
        marks,
        outlier_rounds: outliers(&judged).into_iter().map(|i| samples[i].round).collect(),
    }
}

/// Mean of what the samples have of something.
fn over(samples: &[&Sample], f: impl Fn(&Sample) -> Option<f64>) -> Option<Estimate> {
    mean(&samples.iter().filter_map(|s| f(s).filter(|x| x.is_finite())).collect::<Vec<f64>>())
}

fn disk_figures(samples: &[&Sample]) -> DiskFigures {
    let latency = |percentile: f64| over(samples, |s| s.result.latency()?.at(percentile));
    DiskFigures {
        bandwidth_bytes_per_second: over(samples, |s| Some(s.work().bandwidth())).unwrap_or(Estimate {
            value: 0.0,
            interval: None,
            n: 0,
        }),
        requests_per_second: over(samples, |s| Some(s.work()).filter(|w| w.ios > 0).map(|w| w.iops())),
        latency_p50_seconds: latency(50.0),
        latency_p99_seconds: latency(99.0),
    }
}

fn figures(run: &Run, judge: &Judge, samples: &[&Sample]) -> Vec<FigureRow> {
    let all = collect(judge, samples.iter().copied(), &run.workloads);
    let row =
        |(figure, labels, values): (crate::figure::Figure, crate::figure::Labels, BTreeMap<u32, (u32, Value)>)| {
            let over = |f: &dyn Fn(&Value) -> Option<f64>| {
                mean(&values.values().filter_map(|(_, v)| f(v)).filter(|x| x.is_finite()).collect::<Vec<f64>>())
            };
            let p99 = |v: &Value| match v {
                Value::Distribution(d) => d.at(99.0),
                _ => None,
            };
            Some(FigureRow {
                typical: over(&Value::typical)?,
                p99: if figure.form == Form::Distribution { over(&p99) } else { None },
                name: figure.name,
                labels,
                unit: figure.unit,
                better: figure.better,
                compared: figure.compared,
                form: figure.form,
            })
        };
    all.into_iter().filter_map(row).collect()
}

/// Means over the samples in which the device could be seen.
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

fn cpu(samples: &[&Sample], workloads: &[WorkloadTraits]) -> Cpu {
    let gigabytes: f64 = samples.iter().map(|s| amount(s, workloads, Unit::Bytes)).sum::<f64>() / GIGABYTE;
    let requests: f64 = samples.iter().map(|s| amount(s, workloads, Unit::Requests)).sum();
    let used: Vec<CpuUse> = samples.iter().map(|s| s.cpu()).collect();
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
        role_seconds_per_gigabyte: per(gigabytes),
        role_seconds_per_request: per(requests),
    }
}

/// What the actors of a sample did, of what is counted in this unit.
fn amount(sample: &Sample, workloads: &[WorkloadTraits], unit: Unit) -> f64 {
    let each = sample.cell.actors().zip(sample.results()).map(|(actor, result)| {
        let figures = figures_of(workloads, &actor.workload);
        let done = figures.iter().filter(|f| f.unit == unit && f.compared == Compared::No && f.form == Form::Scalar);
        let of = |name: &str| -> f64 {
            result.figures.iter().filter(|r| r.figure == name).filter_map(|r| r.value.typical()).sum()
        };
        done.map(|f| of(&f.name)).sum::<f64>()
    });
    each.sum()
}

fn share(run: &Run, cell: &Cell, baseline: &Baseline, rule: &Convergence) -> Option<Share> {
    let base = baseline.of(cell).filter(|base| base != cell)?;
    let judge = judge_of(&run.workloads, cell);
    let rounds = pairs(&run.samples, &base, cell, |s| judge.rising(s));
    let ratio = paired_ratio(&unrounded(&rounds))?;
    let latency = pairs(&run.samples, &base, cell, |s| s.result.latency()?.at(50.0));
    let known = converged(&ratio, rule);
    Some(Share {
        key: cell.key(),
        baseline: base.key(),
        cell: cell.clone(),
        figure: judge.figure.name.clone(),
        share_ratio: ratio,
        latency_p50_ratio: paired_ratio(&unrounded(&latency)),
        figures: figure_shares(run, &judge, &base, cell),
        converged: known,
        verdict: verdict(&ratio, rule),
        outlier_rounds: stats::outlying_pairs(&unrounded(&rounds)).into_iter().map(|i| rounds[i].0).collect(),
    })
}

/// Each figure that is compared, the cell against its baseline.
fn figure_shares(run: &Run, judge: &Judge, base: &Cell, cell: &Cell) -> Vec<FigureShare> {
    let of = |cell: &Cell| {
        let cell = cell.clone();
        collect(judge, run.samples.iter().filter(move |s| s.cell == cell), &run.workloads)
    };
    let bases = of(base);
    let share =
        |(figure, labels, values): &(crate::figure::Figure, crate::figure::Labels, BTreeMap<u32, (u32, Value)>)| {
            let (.., others) = bases.iter().find(|(f, l, _)| f == figure && l == labels)?;
            let pairs: Vec<Pair> = values
                .iter()
                .filter_map(|(round, (boot, value))| {
                    let (_, other) = others.get(round).filter(|(theirs, _)| theirs == boot)?;
                    Some(Pair { boot: *boot, base: other.typical()?, test: value.typical()? })
                })
                .collect();
            let (ratio, difference) = match figure.compared {
                Compared::Ratio => (Some(paired_ratio(&pairs)?), None),
                Compared::Difference => (None, Some(paired_difference(&pairs)?)),
                Compared::No => return None,
            };
            let (name, labels) = (figure.name.clone(), labels.clone());
            Some(FigureShare { name, labels, unit: figure.unit, better: figure.better, ratio, difference })
        };
    of(cell).iter().filter_map(share).collect()
}

/// `converged`, or what is missing.
pub(super) fn verdict(ratio: &Ratio, rule: &Convergence) -> String {
    let width = ratio.interval.map(|i| i.half_width());
    let mut missing = Vec::new();
    if ratio.pairs < rule.min_pairs {
        missing.push(format!("{} of at least {} pairs", ratio.pairs, rule.min_pairs));
    }
    if ratio.boots < rule.min_boots {
        missing.push(format!("{} of at least {} boots", ratio.boots, rule.min_boots));
    }
    match width {
        // The width of an interval from too few pairs says nothing yet.
        _ if !missing.is_empty() => {}
        Some(w) if w > rule.half_width => {
            missing.push(format!("±{:.1} points where ±{:.1} are required", w * 100.0, rule.half_width * 100.0));
        }
        None => missing.push("no interval".to_owned()),
        Some(_) => {}
    }
    if missing.is_empty() { "converged".to_owned() } else { format!("not converged: {}", missing.join(", ")) }
}
