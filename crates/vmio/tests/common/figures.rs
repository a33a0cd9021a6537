//! FIXTURE: a made-up run that is not about disks: a path judged by bits a second with a loss and a time beside
//! it, a machine judged by a latency, and cells of two actors. Its figures were measured nowhere.
#![allow(clippy::unwrap_used, dead_code, missing_docs)]

use std::collections::BTreeMap;

use serde_json::json;
use vmio_model::cell::*;
use vmio_model::figure::*;
use vmio_model::result::*;
use vmio_model::run::Run;
use vmio_model::study::Study;

use crate::common::{Noise, environment};

/// Paths, machines of two shapes, two actors; `BASELINE` is put in its place.
const STUDY: &str = r#"
name = "figures"
title = "Paths and processors, alone and beside each other"
cites = ""
BASELINE
[guest]
vcpus = 1
memory_mib = 256
[repeat]
min_pairs = 5
max_pairs = 12
min_boots = 3
half_width = 0.05
half_width_ratio = 0.5
seconds = 1.0
max_minutes = 10.0
[[matrix]]
sides = ["qemu"]
paths = { networks = ["veth"], peers = ["host"], nics = ["virtio-net", "e1000"], queues = [2], vhost = [true] }
workloads = ["udp"]
settings = { mtu = ["1500", "9000"] }
[[matrix]]
sides = ["qemu"]
shapes = [{}, { vcpus = 2, pins = [0, 1] }]
machine = true
workloads = ["wakeups"]
[[matrix]]
sides = ["qemu"]
machine = true
workloads = ["hashes"]
[[cell]]
[[cell.actors]]
side = "qemu"
machine = true
workload = "hashes"
[[cell.actors]]
side = "qemu"
nth = 2
machine = true
workload = "hashes"
start_seconds = 0.25
seconds = 0.5
"#;

/// What a study of it may say that it compares with.
pub const BASELINES: [&str; 3] =
    ["", "[baseline.like]\nalone = true\nsettings = { mtu = \"1500\" }", "baseline = \"none\""];

pub fn study(baseline: &str) -> Study {
    written(STUDY, baseline)
}

fn written(study: &str, baseline: &str) -> Study {
    // A table stands after the keys of the study itself.
    let (keys, tables) = if baseline.starts_with('[') { ("", baseline) } else { (baseline, "") };
    toml::from_str(&(study.replace("BASELINE", keys) + tables)).unwrap()
}

pub fn workloads() -> Vec<WorkloadTraits> {
    let of = |name: &str, judged_by: &str, figures: Vec<Figure>| WorkloadTraits {
        name: name.into(),
        figures,
        judged_by: judged_by.into(),
        disk: None,
        group: None,
    };
    let udp = vec![
        Figure::rate("bandwidth", Unit::BitsPerSecond),
        Figure::loss("loss"),
        Figure::times("delay"),
        Figure::rate("rate", Unit::PacketsPerSecond).by(&["direction"]),
        Figure::amount("sent", Unit::Bytes),
        Figure::amount("retransmits", Unit::Count),
    ];
    let hot = Figure::amount("frequency", Unit::Count);
    vec![
        of("udp", "bandwidth", udp),
        of("wakeups", "latency", vec![Figure::times("latency"), Figure::rate("wakeups", Unit::OperationsPerSecond)]),
        of("hashes", "hashes", vec![Figure::rate("hashes", Unit::OperationsPerSecond), hot]),
    ]
}

fn times(name: &str, median: f64) -> Reading {
    let shape = [(50.0, 1.0), (90.0, 1.4), (99.0, 2.6), (99.9, 6.0)];
    let percentiles = shape.iter().map(|(p, f)| (*p, f * median)).collect();
    Reading::distribution(name, Distribution { mean: 1.1 * median, percentiles })
}

/// What an actor gives before noise; the second guest of a cell a little less.
fn result(actor: &Actor, settings: &Settings, crowd: usize, f: f64) -> WorkloadResult {
    let seen = actor.subject.seen_by();
    let share = match (&*actor.side.kind, seen.as_deref()) {
        ("native", _) => 1.0,
        (_, Some(seen)) if seen.starts_with("e1000") => 0.11,
        (_, Some(_)) => 0.66,
        _ => 0.93,
    };
    let figures = match &*actor.workload {
        "udp" => {
            let large = if settings.get("mtu").is_some_and(|mtu| mtu == "9000") { 1.6 } else { 1.0 };
            let bits = 9.41e9 * share * large * f;
            let packets = |direction: &str, n: f64| Reading::scalar("rate", n).with("direction", direction);
            vec![
                Reading::scalar("bandwidth", bits),
                Reading::scalar("loss", if share == 1.0 { 0.0 } else { 0.012 * f }),
                times("delay", 41e-6 / share * f),
                packets("out", bits / 8.0 / 1448.0),
                packets("in", bits / 8.0 / 30_000.0),
                Reading::scalar("sent", bits / 8.0),
                Reading::scalar("retransmits", 12.0),
            ]
        }
        "wakeups" => {
            let shape = if actor.side.shape.is_plain() { 2.4 } else { 1.9 };
            let seconds = 52e-6 * if actor.side.is_native() { 1.0 } else { shape } * f;
            vec![times("latency", seconds), Reading::scalar("wakeups", 1.0 / seconds)]
        }
        _ => {
            let nth = if actor.side.is_native() { 0.0 } else { f64::from(actor.side.nth) };
            vec![
                Reading::scalar("frequency", 3.05e9),
                Reading::scalar("hashes", 1.62e6 * share * f * (1.0 - 0.35 * nth) / crowd as f64),
            ]
        }
    };
    WorkloadResult { seconds: 1.0, figures, raw: json!("FIXTURE"), command: actor.workload.clone() }
}

/// The processors of the host and of the other end of a path, and a link.
fn seen(native: bool) -> Vec<ProbeResult> {
    let by_role = if native { BTreeMap::new() } else { BTreeMap::from([("vcpu".into(), 0.9), ("main".into(), 0.2)]) };
    let far = CpuUse { host_seconds: 0.4, ..CpuUse::default() }.seen("").into_iter();
    let carried = vec![Reading::scalar("carried", 1e9).with("direction", "out")];
    let link = ProbeResult::here(Watched::Link("veth0".into()), "link", carried);
    let here = seen_around(None, &CpuUse { host_seconds: 1.3, by_role, ..CpuUse::default() });
    here.into_iter().chain(far.map(|seen| ProbeResult { node: "peer".into(), ..seen })).chain([link]).collect()
}

fn sample(noise: &mut Noise, cell: &Cell, round: u32) -> Sample {
    let crowd = 1 + cell.beside.len();
    let mut one = |actor: &Actor| result(actor, &cell.settings, crowd, noise.factor(0.03));
    let lead = one(&cell.lead);
    let beside = cell.beside.iter().map(&mut one).collect();
    Sample {
        cell: cell.clone(),
        round,
        boot: round % 3,
        started_unix: 1.79e9 + f64::from(round) * 60.0,
        result: lead,
        beside,
        seen: seen(cell.is_native()),
        foreign: Foreign::default(),
        marks: Vec::new(),
    }
}

/// Eight rounds of a study with this baseline.
pub fn run(baseline: &str) -> Run {
    run_of(&study(baseline))
}

/// The same with guests on two other networks than what they are compared with.
pub fn run_elsewhere() -> Run {
    let study = STUDY.replace(r#"networks = ["veth"]"#, r#"networks = ["bridge", "uplink"]"#);
    run_of(&written(&study, "[baseline.like]\nside = \"native\"\nnetwork = \"veth\""))
}

fn run_of(study: &Study) -> Run {
    let mut noise = Noise(11);
    let cells = study.cells();
    Run {
        id: 0,
        kind: study.name.as_str().into(),
        study: study.clone(),
        command: ["vmio", "study", "run", "./figures.toml", "--yes"].map(String::from).to_vec(),
        started_unix: 1_790_000_000.0,
        state: RunState::Done,
        environment: Environment {
            backing: String::new(),
            programs: BTreeMap::from([("iperf3".into(), "iperf 3.12 (cJSON 1.7.15)".into())]),
            ..environment(Some(Accel::Kvm))
        },
        workloads: workloads(),
        effective: BTreeMap::new(),
        samples: (0..8)
            .flat_map(|round| cells.iter().map(move |cell| (round, cell)))
            .map(|(round, cell)| sample(&mut noise, cell, round))
            .collect(),
        skipped: Vec::new(),
    }
}

/// The figures of a run whose leading actor works on a disk, with a reader beside it.
pub fn on_a_disk() -> Run {
    let mut run = crate::common::run(Accel::Kvm);
    run.samples.retain(|s| {
        s.cell.target() == Some("device")
            && s.cell.attachment().is_none_or(|a| a.driver == "virtio-blk" && a.cache == Cache::None)
    });
    let reader = |sample: &Sample| {
        run.samples
            .iter()
            .find(|s| {
                s.round == sample.round
                    && s.cell.is_native() == sample.cell.is_native()
                    && s.cell.workload() == "rand-read-32"
            })
            .cloned()
            .unwrap()
    };
    let two: Vec<Sample> = run
        .samples
        .iter()
        .filter(|s| s.cell.workload() == "seq-write")
        .map(|sample| {
            let mut both = sample.clone();
            let other = reader(sample);
            both.cell.beside.push(Actor {
                side: Side { nth: 1, ..other.cell.lead.side.clone() },
                start: Millis(500),
                ..other.cell.lead.clone()
            });
            both.beside.push(other.result.clone());
            both
        })
        .collect();
    run.samples.extend(two);
    run
}
