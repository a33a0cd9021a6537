#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::study::{Names, SubjectKind, WorkloadName};
use crate::testing::{Bench, guest, native, virtio};

const STUDY: &str = r#"name = "made-up"
title = "t"
[guest]
vcpus = 1
memory_mib = 256
[size]
target_mib = 1024
[repeat]
min_pairs = 5
max_pairs = 12
min_boots = 3
half_width = 0.05
seconds = 1.5
max_minutes = 5.0
max_gib_written = 20.0
[control]
workloads = ["dd-write"]
[[matrix]]
sides = ["native", "qemu"]
disks.targets = ["device"]
disks.drivers = ["lsi53c895a", "virtio-blk"]
workloads = ["dd-write", "dd-read"]
"#;

fn names() -> Names {
    let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    Names {
        guests: list(&["native", "qemu"]),
        targets: list(&["device"]),
        drivers: list(&["lsi53c895a", "virtio-blk"]),
        workloads: ["dd-write", "dd-read"]
            .map(|name| WorkloadName { name: name.into(), works_on: SubjectKind::Disk })
            .into(),
        ..Names::default()
    }
}

fn study() -> Study {
    Study::parse("made-up.toml", STUDY, &names()).unwrap()
}

/// Round 0 with these request sizes and depths at the disk: native, emulated, virtio.
fn samples(native_at: (f64, f64), emulated: (f64, f64), virtio_at: (f64, f64)) -> Vec<Sample> {
    let cells =
        |workload| [native("device", workload), guest("device", "lsi53c895a", workload), virtio("device", workload)];
    let mut bench = Bench::new().rounds(2);
    for workload in ["dd-write", "dd-read"] {
        for (cell, (bytes, depth)) in cells(workload).into_iter().zip([native_at, emulated, virtio_at]) {
            bench = bench.cell(cell.clone(), 1e9).device(&cell, bytes, depth, 0.5);
        }
    }
    bench.run().samples
}

fn shown(controls: &[Control]) -> Vec<(Link, &str)> {
    controls.iter().map(|c| (c.link, c.cell.workload())).collect()
}

#[test]
fn a_guest_with_small_requests_gets_a_chain_and_one_with_large_ones_none() {
    let study = study();
    let samples = samples((524288.0, 16.2), (7680.0, 0.9), (500000.0, 3.0));
    let all = controls(&study, &samples, &BTreeMap::new());
    assert_eq!(
        shown(&all),
        [
            (Link::Reference, "seq-write-512k-d16"),
            (Link::Size, "seq-write-7680-d16"),
            (Link::Depth, "seq-write-7680-d1"),
            (Link::Guest, "seq-write-7680-d1"),
        ]
    );
    for control in &all {
        assert_eq!(control.of, guest("device", "lsi53c895a", "dd-write"));
        assert!(control.cell.is_native() == (control.link != Link::Guest) && control.cell.target() == Some("device"));
    }
    // The last one has the guest's own side and disk.
    assert_eq!(all[3].cell, guest("device", "lsi53c895a", "seq-write-7680-d1"));
    assert!(all[1].why.contains("as requests of 7680 bytes, natively they were of 52"), "{}", all[1].why);
    // Each link changes one thing.
    let things = |a: &Control, b: &Control| {
        [a.request_bytes != b.request_bytes, a.depth != b.depth, a.cell.is_native() != b.cell.is_native()]
    };
    assert!(all.windows(2).all(|w| things(&w[0], &w[1]).into_iter().filter(|differs| *differs).count() == 1));
}

#[test]
fn the_logical_block_and_the_limits_of_workloads_are_kept() {
    let samples = samples((30e6, 900.0), (7680.0, 900.0), (7680.0, 0.0));
    let effective = BTreeMap::from([
        ("device/native".to_owned(), BTreeMap::from([("logical_block_bytes".to_owned(), "4096".to_owned())])),
        ("device/qemu/virtio-blk,none,native".to_owned(), BTreeMap::new()),
    ]);
    let all = controls(&study(), &samples, &logical_blocks(&effective));
    // 4 MiB at depth 16 is the limit in flight; the emulated guest kept the native depth.
    assert_eq!(
        shown(&all),
        [
            (Link::Reference, "seq-write-4m-d16"),
            (Link::Size, "seq-write-8k-d16"),
            (Link::Guest, "seq-write-8k-d16"),
            (Link::Reference, "seq-write-4m-d16"),
            (Link::Size, "seq-write-8k-d16"),
            (Link::Depth, "seq-write-8k-d1"),
            (Link::Guest, "seq-write-8k-d1"),
        ]
    );
}

#[test]
fn only_what_the_study_asks_for_is_explained() {
    let with = |words: &str| Study::parse("x.toml", &STUDY.replace(r#"["dd-write"]"#, words), &names());
    let samples = samples((65536.0, 1.0), (4096.0, 1.0), (65536.0, 1.0));
    let both = controls(&with(r#"["dd-write", "dd-read"]"#).unwrap(), &samples, &BTreeMap::new());
    assert_eq!(
        shown(&both).iter().map(|c| c.1).collect::<Vec<_>>(),
        [
            "seq-write-64k-d1",
            "seq-write-4k-d1",
            "seq-write-4k-d1",
            "seq-read-64k-d1",
            "seq-read-4k-d1",
            "seq-read-4k-d1"
        ]
    );
    let none = Study { control: None, ..study() };
    assert!(controls(&none, &samples, &BTreeMap::new()).is_empty());
    assert_eq!(Study::parse("stored", &none.to_toml(), &names()).unwrap(), none);
    assert_eq!(Study::parse("stored", &study().to_toml(), &names()).unwrap(), study());
    let refused = with(r#"["dd-wrte"]"#).unwrap_err().to_string();
    assert!(refused.contains("control.workloads: unknown entry `dd-wrte`; did you mean `dd-write`?"), "{refused}");
    // An existing workload that this study does not use.
    let one = STUDY.replace(r#"["dd-write", "dd-read"]"#, r#"["dd-read"]"#);
    let refused = Study::parse("x.toml", &one, &names()).unwrap_err().to_string();
    let said =
        "control.workloads: `dd-write` works alone on a disk in no cell of this study: those that do are dd-read";
    assert!(refused.contains(said), "{refused}");
    let refused = Study::parse("x.toml", &STUDY.replace("[control]", "[control]\nbelow = 1"), &names());
    assert!(refused.unwrap_err().to_string().contains("control.below: unknown key"));
}

#[test]
fn what_the_disk_did_not_show_calls_for_nothing() {
    let mut blind = samples((65536.0, 1.0), (4096.0, 1.0), (4096.0, 1.0));
    blind.iter_mut().for_each(|s| s.put_device(None));
    assert!(controls(&study(), &blind, &BTreeMap::new()).is_empty());
    // Without its baseline there is nothing to compare with.
    let mut alone = samples((65536.0, 1.0), (4096.0, 1.0), (4096.0, 1.0));
    alone.retain(|s| !s.cell.is_native());
    assert!(controls(&study(), &alone, &BTreeMap::new()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]
    /// Later rounds and the order of stored samples change nothing, and every control can be run.
    #[test]
    fn round_0_alone_decides(
        base in 512.0..8e6f64, small in 512.0..8e6f64, depths in (0.0..2000.0f64, 0.0..2000.0f64),
        later in 0usize..40, block in prop::sample::select(vec![512u64, 4096]),
    ) {
        let blocks = BTreeMap::from([("device".to_owned(), block)]);
        let whole = samples((base, depths.0), (small, depths.1), (small, depths.1));
        let all = controls(&study(), &whole, &blocks);
        let first = whole.iter().filter(|s| s.round == 0).count();
        let cut: Vec<Sample> = whole.iter().take(first + later).rev().cloned().collect();
        prop_assert_eq!(&controls(&study(), &cut, &blocks), &all);
        for c in &all {
            prop_assert!(c.request_bytes % block == 0 && c.request_bytes >= block && c.request_bytes <= MOST_BYTES);
            prop_assert!(c.depth >= 1 && c.request_bytes * u64::from(c.depth) <= MOST_IN_FLIGHT);
        }
        prop_assert_eq!(all.is_empty(), all.iter().all(|c| c.link != Link::Size));
        prop_assert_eq!(all.is_empty(), all.iter().all(|c| c.link != Link::Guest));
    }
}
