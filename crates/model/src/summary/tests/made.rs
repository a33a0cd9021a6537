//! Made-up runs with given figures.

use crate::cell::{Actor, Cell, Nic, Side, Subject};
use crate::figure::{Distribution, Figure, Reading, Unit, Value};
use crate::result::{BANDWIDTH, DiskWork, LATENCY, Sample, WorkloadResult, WorkloadTraits};
use crate::run::Run;
use crate::testing::{Bench, Lcg, virtio};

/// A made-up run: figures of the actors of each cell in six rounds, two for each boot, scattered by 1 %; 0 stays 0.
pub struct Made {
    pub run: Run,
    random: Lcg,
}

impl Made {
    pub fn of(workloads: Vec<WorkloadTraits>) -> Made {
        Made { run: Run { workloads, ..Bench::new().run() }, random: Lcg(7) }
    }

    pub fn compared_with(mut self, baseline: &str) -> Made {
        self.run.study.baseline = crate::testing::baseline(baseline);
        self
    }

    pub fn cell(self, cell: &Cell, actors: &[&[Reading]]) -> Made {
        self.rounds(cell, 6, |_| actors.iter().map(|figures| figures.to_vec()).collect())
    }

    pub fn rounds(mut self, cell: &Cell, rounds: u32, actors: impl Fn(u32) -> Vec<Vec<Reading>>) -> Made {
        for round in 0..rounds {
            let results = actors(round).into_iter().map(|figures| self.scattered(figures)).collect::<Vec<_>>();
            let (result, beside) = results.split_first().unwrap();
            self.run.samples.push(Sample {
                cell: cell.clone(),
                round,
                boot: round / 2,
                started_unix: f64::from(round),
                result: result.clone(),
                beside: beside.to_vec(),
                seen: Vec::new(),
                foreign: Default::default(),
                marks: Vec::new(),
            });
        }
        self
    }

    fn scattered(&mut self, mut figures: Vec<Reading>) -> WorkloadResult {
        let factor = (0.01 * self.random.normal()).exp();
        for reading in &mut figures {
            match &mut reading.value {
                Value::Scalar(value) => *value *= factor,
                Value::Distribution(d) => {
                    d.mean *= factor;
                    d.percentiles.iter_mut().for_each(|(_, value)| *value *= factor);
                }
            }
        }
        WorkloadResult { seconds: 1.5, figures, ..WorkloadResult::default() }
    }
}

pub fn near(value: f64, wanted: f64) -> bool {
    (value / wanted - 1.0).abs() < 0.02
}

pub fn traits(name: &str, judged_by: &str, figures: Vec<Figure>) -> WorkloadTraits {
    let traits = WorkloadTraits { name: name.into(), figures, judged_by: judged_by.into(), disk: None, group: None };
    assert_eq!(traits.check(), Ok(()));
    traits
}

pub fn iperf() -> WorkloadTraits {
    let figures = vec![
        Figure::rate(BANDWIDTH, Unit::BitsPerSecond),
        Figure::loss("loss"),
        Figure::amount("retransmits", Unit::Count),
        Figure::amount("sent", Unit::Bytes),
    ];
    traits("iperf3", BANDWIDTH, figures)
}

pub fn stream(bits: f64, loss: f64) -> Vec<Reading> {
    vec![
        Reading::scalar(BANDWIDTH, bits),
        Reading::scalar("loss", loss),
        Reading::scalar("retransmits", 12.0),
        Reading::scalar("sent", bits / 8.0 * 1.5),
    ]
}

pub fn on_path(side: &str, nic: Option<&str>, workload: &str) -> Cell {
    let path = Subject::path("bridge", "host", nic.map(Nic::new));
    Cell::of(Side::of(side), path, workload)
}

pub fn network() -> Made {
    Made::of(vec![iperf()])
        .cell(&on_path("native", None, "iperf3"), &[&stream(40e9, 0.0)])
        .cell(&on_path("qemu", Some("e1000"), "iperf3"), &[&stream(2e9, 0.02)])
        .cell(&on_path("qemu", Some("virtio-net"), "iperf3"), &[&stream(20e9, 0.0)])
}

pub fn times(seconds: f64) -> Reading {
    let percentiles = vec![(50.0, seconds), (99.0, 3.0 * seconds)];
    Reading::distribution(LATENCY, Distribution { mean: 1.2 * seconds, percentiles })
}

pub fn disk_job(name: &str) -> WorkloadTraits {
    crate::testing::traits().into_iter().find(|w| w.name == name).unwrap()
}

pub fn reads(bytes_per_second: f64) -> Vec<Reading> {
    let work = DiskWork {
        read_bytes: (bytes_per_second * 1.5) as u64,
        ios: (bytes_per_second * 1.5 / 65536.0) as u64,
        seconds: 1.5,
        ..Default::default()
    };
    let mut figures = work.result(serde_json::Value::Null, String::new()).figures;
    figures.push(times(65536.0 / bytes_per_second));
    figures
}

pub fn guest_on(nth: u32, workload: &str) -> Actor {
    let mut actor = virtio("device", workload).lead;
    actor.side.nth = nth;
    actor
}
