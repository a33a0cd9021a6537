//! The layers of each network cell of a stored run: the interfaces of its path on this host with their packets and drops,
//! and who used the processors. Nothing in a run times a packet on its way, so there are no times.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::cell::Subject;
use crate::figure::scalar;
use crate::result::{SECONDS, Sample, Watched};
use crate::run::Run;
use crate::summary::wires::{Wire, wires};

/// A network cell, explained.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PathLayers {
    /// Key of the cell.
    pub key: String,
    /// Whether it ran in a guest.
    pub in_guest: bool,
    /// Samples that the figures are means of.
    pub samples: usize,
    /// Interfaces of its path on this host that were watched.
    pub links: Vec<Wire>,
    /// Who used the processors of this host, the most first.
    pub processors: Vec<Busy>,
}

/// A user of processors.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ProcessorUser")]
pub struct Busy {
    /// The role of threads of the hypervisor (`vcpu`, `main`), or `kernel`: threads of the host's kernel.
    pub who: String,
    /// Processors in use (2 busy ones: 2).
    pub cpu_ratio: f64,
}

/// The network cells of a run with one actor on this host, in the order in which they were measured first.
pub fn of_run(run: &Run) -> Vec<PathLayers> {
    let mut all: Vec<(String, Vec<&Sample>)> = Vec::new();
    let of_paths = |s: &&Sample| {
        let lead = &s.cell.lead;
        s.cell.is_alone() && matches!(lead.subject, Subject::Path { .. }) && !lead.side.is_afar() && s.is_comparable()
    };
    for sample in run.samples.iter().filter(of_paths) {
        let key = sample.cell.key();
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, samples)) => samples.push(sample),
            None => all.push((key, vec![sample])),
        }
    }
    all.into_iter().filter_map(|(key, samples)| explained(key, &samples)).collect()
}

fn explained(key: String, samples: &[&Sample]) -> Option<PathLayers> {
    let first = samples.first()?;
    let mut used: BTreeMap<String, f64> = BTreeMap::new();
    for sample in samples {
        let cpu = sample.cpu();
        let kernel = cpu.kernel_seconds.map(|seconds| ("kernel".to_owned(), seconds));
        for (who, seconds) in cpu.by_role.into_iter().chain(kernel) {
            *used.entry(who).or_default() += seconds / watched_seconds(sample) / samples.len() as f64;
        }
    }
    let used = used.into_iter().filter(|(_, ratio)| ratio.is_finite());
    let mut processors: Vec<Busy> = used.map(|(who, cpu_ratio)| Busy { who, cpu_ratio }).collect();
    processors.sort_by(|a, b| b.cpu_ratio.total_cmp(&a.cpu_ratio));
    Some(PathLayers {
        key,
        in_guest: !first.cell.lead.side.shares_kernel(),
        samples: samples.len(),
        links: wires(samples),
        processors,
    })
}

/// The probes' window, which is longer than the work; the work's where no interface was watched.
fn watched_seconds(sample: &Sample) -> f64 {
    let mut links = sample.seen.iter().filter(|seen| matches!(seen.watched, Watched::Link(_)));
    links.find_map(|seen| scalar(&seen.figures, SECONDS)).unwrap_or(sample.result.seconds)
}

/// The interface at which most packets of a sample were dropped, with its cell and their number; `None` where fewer than
/// one was.
pub fn most_dropped(all: &[PathLayers]) -> Option<(&PathLayers, &Wire, f64)> {
    let links = all.iter().flat_map(|path| path.links.iter().map(move |link| (path, link)));
    let drops = links.map(|(path, link)| {
        let dropped = link.received.dropped_packets.value + link.sent.dropped_packets.value;
        (path, link, dropped)
    });
    drops.filter(|(.., dropped)| *dropped >= 1.0).max_by(|a, b| a.2.total_cmp(&b.2))
}

/// The busiest user of processors in a guest's cell, with the cell.
pub fn busiest(all: &[PathLayers]) -> Option<(&PathLayers, &Busy)> {
    let of_guests = all.iter().filter(|path| path.in_guest);
    let first = of_guests.filter_map(|path| Some((path, path.processors.first()?)));
    first.max_by(|a, b| a.1.cpu_ratio.total_cmp(&b.1.cpu_ratio))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::figure::Reading;
    use crate::result::{CpuUse, DiskWork, Foreign, ProbeResult, WAY};
    use crate::testing::{Bench, native, over_bridge};

    /// An interface that in 2 s received 1000 packets, of which so many were dropped, and sent none.
    fn link(name: &str, dropped: f64) -> ProbeResult {
        let counted =
            [("received", 1000.0, dropped), ("sent", 0.0, 0.0)].into_iter().flat_map(|(way, packets, lost)| {
                [("bytes", packets * 1500.0), ("packets", packets), ("dropped", lost)]
                    .map(|(figure, value)| Reading::scalar(figure, value).with(WAY, way))
            });
        let figures = [Reading::scalar(SECONDS, 2.0)].into_iter().chain(counted).collect();
        ProbeResult::here(Watched::Link(name.into()), "link", figures)
    }

    fn sample(nic: Option<&str>, seen: Vec<ProbeResult>) -> Sample {
        Sample {
            cell: over_bridge(nic, "tcp-up"),
            round: 0,
            boot: 0,
            started_unix: 0.0,
            result: DiskWork { seconds: 1.0, ..DiskWork::default() }.result(serde_json::Value::Null, String::new()),
            beside: Vec::new(),
            seen,
            foreign: Foreign::default(),
            marks: Vec::new(),
        }
    }

    fn explain(samples: Vec<Sample>) -> Vec<PathLayers> {
        let mut run = Bench::new().run();
        run.samples = samples;
        of_run(&run)
    }

    #[test]
    fn interfaces_and_processors_are_means_over_the_samples() {
        let by_role = BTreeMap::from([("vcpu".to_owned(), 1.8), ("main".to_owned(), 0.2)]);
        let cpu = CpuUse { host_seconds: 2.5, kernel_seconds: Some(0.4), by_role };
        let with = |dropped| [vec![link("tap0", dropped)], cpu.seen("qemu")].concat();
        let told = explain(vec![
            sample(Some("virtio-net"), with(4.0)),
            sample(None, vec![link("veth0", 0.0)]),
            sample(Some("virtio-net"), with(8.0)),
        ]);
        assert_eq!((told.len(), told[0].in_guest, told[0].samples, told[1].in_guest), (2, true, 2, false));
        let tap = &told[0].links[0];
        assert_eq!((tap.link.as_str(), tap.received.packets_per_second.value), ("tap0", 500.0));
        assert_eq!(
            told[0].processors.iter().map(|busy| busy.who.as_str()).collect::<Vec<_>>(),
            ["vcpu", "kernel", "main"]
        );
        assert!((told[0].processors[0].cpu_ratio - 0.9).abs() < 1e-9, "{:?}", told[0].processors);
        let (path, link, dropped) = most_dropped(&told).unwrap();
        assert_eq!((path.key == told[0].key, link.link.as_str(), dropped), (true, "tap0", 6.0));
        assert_eq!(busiest(&told).unwrap().1.who, "vcpu");
    }

    #[test]
    fn what_is_no_path_or_not_watched_is_not_made_up() {
        let disk = Sample { cell: native("device", "rand-read-1"), ..sample(None, vec![link("veth0", 9.0)]) };
        let blind = explain(vec![disk, sample(Some("virtio-net"), vec![])]);
        assert_eq!((blind.len(), &blind[0].links, &blind[0].processors), (1, &vec![], &vec![]));
        assert_eq!((most_dropped(&blind), busiest(&blind)), (None, None));
    }
}
