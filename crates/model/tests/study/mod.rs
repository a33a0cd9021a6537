//! Studies: the shipped ones, messages for bad ones, their cells, cost and schedule, also under interruptions.

#![allow(clippy::unwrap_used)]

mod baseline;
mod cells;
mod forms;
mod parse;
mod plan;
mod play;
mod replay;
mod schedule;
mod shipped;

use std::collections::BTreeMap;

use vmio_model::cell::Cell;
use vmio_model::figure::{Figure, Unit};
use vmio_model::result::{DiskTraits, WorkloadTraits};
use vmio_model::study::{Family, Names, Rates, SettingName, Study, SubjectKind, WordError, WorkloadName};

const QUICK: &str = include_str!("../../../../studies/quick.toml");
const SPARSE: &str = include_str!("../../../../studies/sparse.toml");
const SHAFER: &str = include_str!("../../../../studies/shafer2010-storage.toml");
const FULL: &str = include_str!("../../../../studies/full.toml");

const SMALL: &str = r#"name = "small"
title = "t"
[guest]
vcpus = 1
memory_mib = 256
[size]
target_mib = 1024
[repeat]
min_pairs = 5
max_pairs = 8
min_boots = 3
half_width = 0.05
seconds = 2
max_minutes = 10
max_gib_written = 10
[[matrix]]
sides = ["qemu"]
disks.targets = ["device"]
disks.drivers = ["lsi53c895a", "virtio-blk"]
workloads = ["seq-write", "rand-read-1"]
[[matrix]]
sides = ["native", "qemu"]
disks.targets = ["device"]
disks.drivers = ["virtio-blk"]
workloads = ["seq-write"]
"#;

/// A made-up family: `job-` and a digit that is not 0.
fn job(word: &str) -> Option<Result<(), WordError>> {
    let n = word.strip_prefix("job-")?;
    let read = if n == "0" { Err("no job is called 0".into()) } else { n.parse::<u8>().map_err(|e| e.to_string()) };
    Some(read.map(drop).map_err(WordError))
}

fn names() -> Names {
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    Names {
        guests: list(&["native", "qemu"]),
        targets: list(&["device", "sparse", "preallocated", "served"]),
        drivers: list(&["lsi53c895a", "virtio-blk"]),
        workloads: [
            "dd-write",
            "dd-read",
            "seq-write",
            "seq-read",
            "rand-read-1",
            "rand-read-32",
            "rand-write-1",
            "rand-write-32",
            "durable-append",
        ]
        .map(|name| WorkloadName { name: name.into(), works_on: SubjectKind::Disk })
        .into(),
        workload_families: vec![Family {
            grammar: "job-<n>",
            example: "job-7",
            recognise: job,
            works_on: SubjectKind::Disk,
        }],
        ..Names::default()
    }
}

/// The names of the shipped studies beside those of [`names`].
fn shipped_names() -> Names {
    let mut names = names();
    let more = ["qcow2", "qcow2-full-l2", "qcow2-small-l2", "qcow2-chain"];
    names.targets.extend(more.map(str::to_owned));
    names.drivers.extend(["ahci", "nvme", "virtio-scsi"].map(str::to_owned));
    let sizes = ["seq-write-7680-d1", "seq-write-64k-d1"];
    names.workloads.extend(sizes.map(|name| WorkloadName { name: name.into(), works_on: SubjectKind::Disk }));
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    names.networks = list(&["bridge"]);
    names.peers = list(&["host"]);
    names.nics = list(&["virtio-net", "e1000", "e1000e", "rtl8139", "vmxnet3"]);
    let net = ["iperf3-tcp", "iperf3-tcp-reverse", "iperf3-udp", "sockperf-tcp"].map(|name| (name, SubjectKind::Path));
    let machine = "openssl-aes-256-cbc zstd-3 lu sharpen allocate memory-write page-faults stress-ng-vm \
                   stream-copy-32m stream-scale-32m stream-add-32m stream-triad-32m";
    let all = net.into_iter().chain(machine.split(' ').map(|name| (name, SubjectKind::Machine)));
    names.workloads.extend(all.map(|(name, works_on)| WorkloadName { name: name.into(), works_on }));
    names.traits = Some(of_machines);
    names
}

/// Those and made-up ones that are no disks.
fn all_names() -> Names {
    let mut names = shipped_names();
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    names.networks.insert(0, "veth".to_owned());
    names.peers.extend(list(&["far"]));
    let more = [("iperf3", SubjectKind::Path), ("openssl", SubjectKind::Machine), ("zstd", SubjectKind::Machine)];
    names.workloads.extend(more.map(|(name, works_on)| WorkloadName { name: name.into(), works_on }));
    names.settings = vec![
        SettingName { name: "read-ahead", value: kib },
        SettingName { name: "mtu", value: |text| Ok(text.to_owned()) },
    ];
    names
}

/// Traits of machine workloads; `None` for others.
fn of_machines(name: &str) -> Option<WorkloadTraits> {
    let figures = match name {
        "openssl" => {
            vec![Figure::rate("signs", Unit::OperationsPerSecond), Figure::rate("speed", Unit::BytesPerSecond)]
        }
        "openssl-aes-256-cbc" | "stream-triad-32m" => vec![Figure::rate("speed", Unit::BytesPerSecond)],
        _ => return None,
    };
    let group = match name {
        "stream-triad-32m" => Some("stream".to_owned()),
        _ => None,
    };
    Some(WorkloadTraits { name: name.into(), judged_by: figures[0].name.clone(), figures, disk: None, group })
}

/// A number of KiB with its unit.
fn kib(text: &str) -> Result<String, WordError> {
    let number = text.trim_end_matches('k').parse::<u32>();
    let number = number.map_err(|_| WordError(format!("`{text}` is no size like 128k")))?;
    Ok(format!("{number}k"))
}

fn study(text: &str) -> Study {
    Study::parse("studies/x.toml", text, &all_names()).unwrap()
}

/// The head of a study of disks.
fn disks() -> String {
    SMALL.split("[[matrix]]").next().unwrap().to_owned()
}

/// The head of a study in which no cell is on a disk.
fn no_disks() -> String {
    disks().replace("[size]\ntarget_mib = 1024\n", "").replace("max_gib_written = 10\n", "")
}

/// The study of a head and its cells; it also reads back from its stored form.
fn whole(head: String, cells: &str) -> Study {
    let study = study(&format!("{head}{cells}"));
    assert_eq!(self::study(&study.to_toml()), study, "{}", study.to_toml());
    assert_eq!(toml::from_str::<Study>(&study.to_toml()).unwrap(), study, "as the summary reads it");
    study
}

fn keys(study: &Study) -> Vec<String> {
    study.cells().iter().map(Cell::key).collect()
}

fn problems(text: &str) -> Vec<String> {
    let error = Study::parse("bad.toml", text, &names()).unwrap_err();
    error.problems.iter().map(ToString::to_string).collect()
}

fn traits() -> Vec<WorkloadTraits> {
    let one = |name: &str, writes: bool, sequential: bool, block_bytes: u64, depth: u32| {
        let engine = "libaio".into();
        let disk = DiskTraits { reads: !writes, writes, sequential, block_bytes, depth, direct: true, engine };
        let (figures, judged_by) = disk.figures(true);
        WorkloadTraits { name: name.into(), figures, judged_by: judged_by.into(), disk: Some(disk), group: None }
    };
    vec![
        one("dd-write", true, true, 65536, 1),
        one("dd-read", false, true, 65536, 1),
        one("rand-write-1", true, false, 4096, 1),
        one("rand-write-32", true, false, 4096, 32),
        one("seq-write", true, true, 65536, 1),
        one("seq-read", false, true, 65536, 1),
        one("rand-read-1", false, false, 4096, 1),
        one("rand-read-32", false, false, 4096, 32),
        one("durable-append", true, true, 4096, 1),
    ]
}

fn rates() -> Rates {
    Rates {
        write_bytes_per_second: 800e6,
        read_bytes_per_second: 800e6,
        small_ios_per_second: 20e3,
        cell_overhead_seconds: 1.0,
        boot_seconds: 3.0,
        fixed_bytes: BTreeMap::from([("dd-write".into(), 512 << 20), ("dd-read".into(), 512 << 20)]),
        fixed_seconds: BTreeMap::new(),
        refilled_targets: vec!["sparse".into()],
        written_targets: vec!["device".into(), "preallocated".into()],
        target_space: BTreeMap::new(),
        spare_ratio: 0.2,
        beside_bytes: 0,
        probed: false,
        metered: false,
        meters: Vec::new(),
    }
}
