//! The layers of each disk cell of a stored run. The times are those of probes around the same sample
//! (docs/explain.md): the guest's and the host's counters of their disks, the guest's events of its block layer, and
//! the hypervisor's counters of its drive. All of them are sums over requests; divided by the application's requests
//! they are the time of one (Little's law).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Layer, Waterfall};
use crate::figure::scalar;
use crate::result::{
    BLOCK_EVENTS, DeviceUse, DiskWork, MOVED, ProbeResult, READ, REQUEST_SECONDS, REQUESTS, Sample, WRITTEN, Watched,
    WorkloadResult,
};
use crate::run::Run;

/// A layer may have so many times the application's requests, or of such a size: start and end of programs are among
/// them.
pub(super) const SAME: f64 = 1.25;
/// Below this share of the application's requests a layer has only what a cache above it left, of any size.
pub(super) const FEW: f64 = 0.05;
/// By this share of a request's time a layer may take longer than the one above it: two clocks and two windows.
pub(super) const CLOCKS: f64 = 0.02;
/// Share of the time from which a device, a processor or a thread is full.
pub(super) const FULL: f64 = 0.9;

/// Mean and percentiles of a time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LayerTimes")]
pub struct Times {
    /// Mean.
    pub mean_seconds: f64,
    /// Median; `None` where it is not known.
    pub p50_seconds: Option<f64>,
    /// 99th percentile; `None` where it is not known, or there were fewer than 100 requests.
    pub p99_seconds: Option<f64>,
}

/// Why a layer is not told apart from the one above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Nothing in a run times it.
    NoProbe,
    /// The run did not ask for the probe that times it (`--layers`).
    NotAsked,
    /// The probe that times it saw nothing in this run.
    NotSeen,
    /// The requests there have another size than the application's: one cannot be followed through.
    OtherSize,
    /// Flushes are among the requests, and the probe does not time them.
    Flushes,
    /// There were a quarter more requests than the application's: others used it, too.
    MoreRequests,
    /// The requests there take longer than the layer above waits: it does not wait for them (read-ahead, writing back),
    /// or they are of others.
    NotWaitedFor,
    /// They are handed over by a call that does not wait for their end (io_submit(2)), and no other tells it. Only of a
    /// running guest.
    EndNotSeen,
}

/// A layer that is not told apart from the one above it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UntimedLayer")]
pub struct Untimed {
    /// The layer.
    pub layer: Layer,
    /// Why.
    pub why: Why,
    /// The probe that would time it; `None` where there is none in a run.
    pub probe: Option<String>,
}

/// What limits the bandwidth of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The device is busy nearly all the time.
    Device,
    /// The guest's processors are.
    Processors,
    /// A thread of the hypervisor is, which moves its I/O alone.
    HypervisorThread,
    /// Nothing is: more or larger requests at once would move more.
    Requests,
}

/// What the device saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceView {
    /// Mean size of its requests.
    pub request_bytes: f64,
    /// Requests at once while the application worked, on average.
    pub queue_depth: f64,
    /// Share of the application's time without any request; `None` where the storage does not count it.
    pub idle_ratio: Option<f64>,
    /// What limits the bandwidth.
    pub bound: Bound,
}

/// A disk cell, explained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellLayers {
    /// Key of the cell.
    pub key: String,
    /// Whether it ran in a guest.
    pub in_guest: bool,
    /// Samples that the times are means of.
    pub samples: usize,
    /// Completion latency as the workload told it; `None` where it times no requests.
    pub latency: Option<Times>,
    /// Seconds that submitting one request took, before its completion latency begins (fio's `slat`): part of the
    /// application. `None` where it is not stored.
    pub submission_seconds: Option<f64>,
    /// Where the time of one request went; `None` where the workload times no requests.
    pub waterfall: Option<Waterfall>,
    /// Layers that are not told apart.
    pub untimed: Vec<Untimed>,
    /// What the host's device saw, the mean over the samples; `None` where it was not seen.
    pub device: Option<DeviceView>,
}

/// The layers that take most.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LayersToChange")]
pub struct Answer {
    /// These layers, which were not told apart if they are several.
    pub layers: Vec<Layer>,
    /// Cells in which they take longest.
    pub cells: usize,
    /// Cells with a waterfall.
    pub of_cells: usize,
    /// The least that their time is of a request's, in these cells: what is saved at most if it is nothing.
    pub least_ratio: f64,
    /// The most.
    pub most_ratio: f64,
}

/// The disk cells of a run with one actor on this host, in the order in which they were measured first.
/// `submissions` are the seconds that submitting a request took, by sample ([`CellLayers::submission_seconds`]).
pub fn of_run(run: &Run, submissions: &[Option<f64>]) -> Vec<CellLayers> {
    let mut keys: Vec<String> = Vec::new();
    let mut samples: BTreeMap<String, Vec<(&Sample, Option<f64>)>> = BTreeMap::new();
    let submissions = submissions.iter().copied().chain(std::iter::repeat(None));
    let of_disks = |s: &Sample| s.cell.is_alone() && s.cell.lead.subject.is_disk() && !s.cell.lead.side.is_afar();
    for (sample, submission) in run.samples.iter().zip(submissions).filter(|(s, _)| of_disks(s) && s.is_comparable()) {
        let key = sample.cell.key();
        if !samples.contains_key(&key) {
            keys.push(key.clone());
        }
        samples.entry(key).or_default().push((sample, submission));
    }
    let vcpus = run.environment.vcpus;
    let asked = run.study.layers;
    keys.into_iter().filter_map(|key| explained(&samples[&key], key.clone(), vcpus, asked)).collect()
}

/// `asked`: whether the run asked for the probe of the guest's driver.
fn explained(samples: &[(&Sample, Option<f64>)], key: String, vcpus: u32, asked: bool) -> Option<CellLayers> {
    let (first, _) = samples.first()?;
    let in_guest = !first.cell.lead.side.shares_kernel();
    let layers = if in_guest { Layer::GUEST } else { Layer::NATIVE };
    let (mut whole, mut untimed) = (Vec::new(), Vec::new());
    for (sample, submission) in samples {
        let Some(latency) = sample.result.latency() else { continue };
        let total_seconds = latency.mean + submission.unwrap_or(0.0);
        let (timed, lacks) = timed(sample, layers, total_seconds, asked);
        whole.push(Waterfall::of(layers, total_seconds, &timed));
        untimed.push((timed.len(), lacks));
    }
    let waterfall = Waterfall::mean(&whole);
    // Of a sample that tells as much as the mean does.
    let most = untimed.into_iter().max_by_key(|(timed, _)| *timed).map(|(_, lacks)| lacks);
    let all_submissions: Option<Vec<f64>> = samples.iter().map(|(_, submission)| *submission).collect();
    Some(CellLayers {
        key,
        in_guest,
        samples: waterfall.as_ref().map_or(samples.len(), |(_, n)| *n),
        latency: latency(samples.iter().map(|(sample, _)| &sample.result)),
        submission_seconds: all_submissions.and_then(|all| mean(all.into_iter())),
        waterfall: waterfall.map(|(mean, _)| mean),
        untimed: most.unwrap_or_default(),
        device: device(samples, vcpus),
    })
}

/// The mean; `None` of nothing.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

fn latency<'a>(results: impl Iterator<Item = &'a WorkloadResult> + Clone) -> Option<Times> {
    let all = results.filter_map(WorkloadResult::latency);
    let at = |percentile: f64| mean(all.clone().filter_map(|latency| latency.at(percentile)));
    let mean_seconds = mean(all.clone().map(|latency| latency.mean))?;
    Some(Times { mean_seconds, p50_seconds: at(50.0), p99_seconds: at(99.0) })
}

/// What a layer counted around a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counted {
    requests: f64,
    bytes: f64,
    /// Sum over the requests.
    seconds: f64,
}

impl Counted {
    fn of_disk(disk: &DeviceUse) -> Self {
        Self {
            requests: (disk.read_ios + disk.write_ios) as f64,
            bytes: (disk.read_bytes + disk.write_bytes) as f64,
            seconds: disk.queue_depth * disk.seconds,
        }
    }

    fn of_drive(drive: &ProbeResult) -> Option<Self> {
        let figure = |name: &str| scalar(&drive.figures, name);
        Some(Self {
            requests: figure(REQUESTS)?,
            bytes: figure(READ)? + figure(WRITTEN)?,
            seconds: figure(REQUEST_SECONDS)?,
        })
    }

    fn of_driver(events: &ProbeResult) -> Option<Self> {
        let figure = |name: &str| scalar(&events.figures, name);
        Some(Self { requests: figure(REQUESTS)?, bytes: figure(MOVED)?, seconds: figure(REQUEST_SECONDS)? })
    }

    /// Seconds that one request of the application is in this layer or below it, on average.
    fn of_one(&self, work: &DiskWork) -> Result<f64, Why> {
        if work.ios == 0 {
            return Err(Why::NotSeen);
        }
        let ios = work.ios as f64;
        let reached = self.requests / ios;
        if reached < FEW {
            return Ok(self.seconds / ios);
        }
        let larger = (self.bytes / self.requests) / (work.bytes() as f64 / ios);
        if !(1.0 / SAME..=SAME).contains(&larger) {
            return Err(Why::OtherSize);
        }
        if reached > SAME {
            return Err(Why::MoreRequests);
        }
        Ok(self.seconds / self.requests * reached.min(1.0))
    }
}

/// What each layer counted; `Err` where nothing in a run, or not in this one, counts there. `asked`: as in
/// [`explained`].
fn counted(sample: &Sample, layer: Layer, asked: bool) -> Result<Counted, Why> {
    let side = sample.cell.lead.side.to_string();
    let mut of_guest = sample.seen.iter().filter(|seen| seen.node == side);
    let found = match layer {
        Layer::Application | Layer::HostFiles | Layer::Device => return Err(Why::NoProbe),
        Layer::Virtual => {
            if !asked {
                return Err(Why::NotAsked);
            }
            let many = FEW * sample.work().ios as f64;
            if of_guest.clone().find_map(DeviceUse::of).is_some_and(|disk| disk.flush_ios as f64 > many) {
                return Err(Why::Flushes);
            }
            of_guest.find(|seen| seen.probe == BLOCK_EVENTS).and_then(Counted::of_driver)
        }
        Layer::GuestBlock => of_guest.find_map(DeviceUse::of).map(|disk| Counted::of_disk(&disk)),
        Layer::Hypervisor => {
            of_guest.find(|seen| matches!(seen.watched, Watched::Drive(_))).and_then(Counted::of_drive)
        }
        Layer::HostBlock => sample.device().map(|disk| Counted::of_disk(&disk)),
    };
    found.ok_or(Why::NotSeen)
}

/// The times of a request with all that is below, by layer; and the layers that are without. The application saw it
/// take `total_seconds`.
fn timed(sample: &Sample, layers: &[Layer], total_seconds: f64, asked: bool) -> (BTreeMap<Layer, f64>, Vec<Untimed>) {
    let work = sample.work();
    let (mut timed, mut untimed) = (BTreeMap::new(), Vec::new());
    let mut above = total_seconds;
    for &layer in layers.iter().skip(1) {
        let waited_for = |seconds: f64| {
            if seconds <= above + CLOCKS * total_seconds { Ok(seconds) } else { Err(Why::NotWaitedFor) }
        };
        match counted(sample, layer, asked).and_then(|counted| counted.of_one(&work)).and_then(waited_for) {
            Ok(seconds) => {
                timed.insert(layer, seconds);
                above = seconds;
            }
            Err(why) => untimed.push(Untimed { layer, why, probe: probe(layer).map(str::to_owned) }),
        }
    }
    (timed, untimed)
}

/// The probe that times a layer.
fn probe(layer: Layer) -> Option<&'static str> {
    match layer {
        Layer::GuestBlock | Layer::HostBlock => Some("diskstats"),
        Layer::Virtual => Some(BLOCK_EVENTS),
        Layer::Hypervisor => Some("blockstats"),
        Layer::Application | Layer::HostFiles | Layer::Device => None,
    }
}

fn device(samples: &[(&Sample, Option<f64>)], vcpus: u32) -> Option<DeviceView> {
    // The counters' window begins before the work and ends after it.
    let of = |sample: &Sample| {
        let device = sample.device().filter(|_| sample.result.seconds > 0.0)?;
        let longer = device.seconds / sample.result.seconds;
        Some((device, longer))
    };
    let all: Vec<(DeviceUse, f64)> = samples.iter().filter_map(|(sample, _)| of(sample)).collect();
    let busy: Option<Vec<f64>> =
        all.iter().map(|(device, longer)| Some((device.busy_ratio? * longer).min(1.0))).collect();
    let busy = busy.and_then(|all| mean(all.into_iter()));
    let role = |name: &str| {
        let ratio = |sample: &Sample| Some(sample.cpu().by_role.get(name)? / of(sample)?.0.seconds);
        mean(samples.iter().filter_map(|(sample, _)| ratio(sample))).unwrap_or(0.0)
    };
    let cpus = samples.first().map(|(sample, _)| sample.cell.lead.side.shape.vcpus.unwrap_or(vcpus))?;
    let bound = if busy.is_some_and(|busy| busy >= FULL) {
        Bound::Device
    } else if role("vcpu") >= FULL * f64::from(cpus.max(1)) {
        Bound::Processors
    } else if role("iothread").max(role("main")) >= FULL {
        Bound::HypervisorThread
    } else {
        Bound::Requests
    };
    Some(DeviceView {
        request_bytes: mean(all.iter().map(|(device, _)| device.request_bytes))?,
        queue_depth: mean(all.iter().map(|(device, longer)| device.queue_depth * longer))?,
        idle_ratio: busy.map(|busy| 1.0 - busy),
        bound,
    })
}

/// The layers that take longest in most of the guests' cells; `None` where none has a waterfall of several parts.
pub fn answer(cells: &[CellLayers]) -> Option<Answer> {
    let split = |cell: &&CellLayers| cell.in_guest && cell.waterfall.as_ref().is_some_and(|w| w.parts.len() > 1);
    let told: Vec<&Waterfall> = cells.iter().filter(split).filter_map(|cell| cell.waterfall.as_ref()).collect();
    let mut by_layers: BTreeMap<Vec<Layer>, Vec<f64>> = BTreeMap::new();
    for waterfall in &told {
        let longest = waterfall.longest()?;
        by_layers.entry(longest.layers.clone()).or_default().push(waterfall.most_ratio(longest));
    }
    let sum = |ratios: &[f64]| ratios.iter().sum::<f64>();
    let (layers, ratios) =
        by_layers.into_iter().max_by(|(_, a), (_, b)| a.len().cmp(&b.len()).then(sum(a).total_cmp(&sum(b))))?;
    Some(Answer {
        layers,
        cells: ratios.len(),
        of_cells: told.len(),
        least_ratio: ratios.iter().copied().fold(1.0, f64::min),
        most_ratio: ratios.iter().copied().fold(0.0, f64::max),
    })
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
