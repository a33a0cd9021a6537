//! The studies that come with vmio.

use std::collections::BTreeSet;

use vmio_model::cell::Cell;
use vmio_model::study::plan::estimate;
use vmio_model::study::{Family, HostResource, Names, Rates, Study, SubjectKind};

use super::{FULL, QUICK, SHAFER, SPARSE, disks, rates, shipped_names, study, traits, whole};

#[test]
fn the_shipped_studies_are_good_and_name_themselves() {
    for (name, text) in [("quick", QUICK), ("sparse", SPARSE), ("full", FULL), ("shafer2010-storage", SHAFER)] {
        let study = study(text);
        assert_eq!(study.name, name);
        let cells = study.cells();
        let distinct: BTreeSet<String> = cells.iter().map(Cell::key).collect();
        assert_eq!(distinct.len(), cells.len());
        for cell in &cells {
            assert!(cells.contains(&cell.natively()), "{}", cell.key());
            let refused = cell.attachment().is_some_and(|a| a.label().contains("writeback,native"));
            assert!(!refused, "{} cannot start", cell.key());
        }
        // The stored form of a study reads back.
        assert_eq!(Study::parse("stored", &study.to_toml(), &shipped_names()).unwrap(), study);
    }
}

#[test]
fn the_quick_study_has_what_the_demo_promises() {
    let study = study(QUICK);
    let keys: Vec<String> = study.cells().iter().map(Cell::key).collect();
    assert_eq!(keys[0], "device/native/durable-append");
    assert_eq!(keys[1], "device/qemu/lsi53c895a,none,native/durable-append");
    assert_eq!(keys.len(), 34);
    assert_eq!(study.repeat.rounds_per_boot(), 1);
    // 1.5 s a cell, more than here, and 3 s a boot: figures within 70 s, the fewest rounds within five minutes.
    let rates = Rates { cell_overhead_seconds: 1.0, boot_seconds: 3.0, ..rates() };
    let plan = estimate(&study, &traits(), &rates);
    assert!(plan.first_round_seconds < 70.0, "{}", plan.first_round_seconds);
    assert!(!plan.over_time && plan.min_seconds < 300.0, "{}", plan.min_seconds);
    assert!(!plan.over_bytes, "{}", plan.max_bytes_written);
    assert!(plan.max_seconds <= 365.0, "{}", plan.max_seconds);
}

/// Each resource's study is a part of the quick study, and keeps its share of the time.
#[test]
fn a_part_of_a_study_is_what_is_of_the_natures_that_were_asked_for() {
    let (quick, names) = (study(QUICK), shipped_names());
    let part = |resources: &[HostResource]| quick.only(resources, &names).unwrap();
    let cells = |part: &Study| part.cells().iter().map(Cell::key).collect::<BTreeSet<_>>();
    let mut all = BTreeSet::new();
    for (resource, count) in [
        (HostResource::Storage, 18),
        (HostResource::Network, 6),
        (HostResource::Cpu, 8),
        // The other memory workloads are in a group unknown here.
        (HostResource::Memory, 2),
    ] {
        let part = part(&[resource]);
        assert_eq!(cells(&part).len(), count, "{resource}");
        let minutes = 0.6 + 5.4 * count as f64 / 34.0;
        assert!((part.repeat.max_minutes - minutes).abs() < 1e-9, "{resource}: {}", part.repeat.max_minutes);
        assert_eq!(part.has_disks(), resource == HostResource::Storage);
        assert_eq!((part.size.is_some(), part.repeat.max_gib_written.is_some()), (part.has_disks(), part.has_disks()));
        assert_eq!(Study::parse("stored", &part.to_toml(), &names).unwrap(), part);
        let plan = estimate(&part, &traits(), &Rates { cell_overhead_seconds: 1.0, boot_seconds: 3.0, ..rates() });
        assert!(!plan.over_time, "{resource}: {plan:#?}");
        all.extend(cells(&part));
    }
    assert_eq!(all, cells(&quick));
    assert_eq!(part(&HostResource::ALL), quick);
    assert_eq!(study(SPARSE).only(&[HostResource::Network], &names), None);
}

/// Guests on another machine, beside or in place of this one's.
#[test]
fn a_study_with_other_guests_has_them_in_every_part() {
    let (quick, mut names) = (study(QUICK), shipped_names());
    names.guests.push("container".to_owned());
    let of = |study: &Study, kind: &str| {
        study
            .cells()
            .iter()
            .filter(|cell| cell.lead.side.kind == kind)
            .map(|cell| cell.natively().key())
            .collect::<BTreeSet<_>>()
    };
    let both = quick.with_guests(&["qemu", "container"]).unwrap();
    assert_eq!(of(&both, "qemu"), of(&quick, "qemu"));
    assert_eq!(of(&both, "container"), of(&quick, "native"), "each native cell has one");
    assert_eq!(both.cells().len(), 47);
    assert!((both.repeat.max_minutes - (0.6 + 5.4 * 47.0 / 34.0)).abs() < 1e-9, "{}", both.repeat.max_minutes);
    assert_eq!(both.repeat.max_gib_written, quick.repeat.max_gib_written);
    let alone = quick.with_guests(&["container"]).unwrap();
    assert!(
        alone.boots_nothing() && HostResource::ALL.iter().all(|resource| alone.only(&[*resource], &names).is_some())
    );
    assert_eq!((of(&alone, "container"), of(&alone, "qemu").len()), (of(&quick, "native"), 0));
    assert_eq!(Study::parse("stored", &alone.to_toml(), &names).unwrap(), alone);
    assert_eq!(quick.with_guests(&["qemu"]).unwrap(), quick);
    let mut afar = quick;
    afar.matrix.iter_mut().for_each(|matrix| matrix.sides = vec!["ssh".into()]);
    assert_eq!(afar.with_guests(&["qemu"]), None, "another machine is measured as it is");
}

/// The long studies fit their own budgets at this machine's pace, boots and preparation included.
#[test]
fn the_long_studies_fit_their_budgets() {
    for text in [SPARSE, FULL, SHAFER] {
        let plan = estimate(&study(text), &traits(), &rates());
        assert!(!plan.over_time && !plan.over_bytes, "{plan:#?}");
    }
}

/// Studies whose workloads are of a family unknown to this crate.
#[test]
fn every_shipped_study_is_read() {
    let others = [
        ("async-reads", include_str!("../../../../studies/async-reads.toml"), 32),
        ("backends", include_str!("../../../../studies/backends.toml"), 20),
        ("durability", include_str!("../../../../studies/durability.toml"), 18),
        ("light", include_str!("../../../../studies/light.toml"), 31),
    ];
    let recognise = |_: &str| Some(Ok(()));
    let family = Family { grammar: "<any>", example: "x", recognise, works_on: SubjectKind::Disk };
    let mut names = Names { workload_families: vec![family], ..shipped_names() };
    names.targets.extend(["lvm", "lvm-thin"].map(str::to_owned));
    for (name, text, cells) in others {
        let study = Study::parse(name, text, &names).unwrap();
        assert_eq!((study.name.as_str(), study.cells().len()), (name, cells));
        assert_eq!(Study::parse("stored", &study.to_toml(), &names).unwrap(), study);
    }
}

/// The examples in docs/study.md can be parsed; words in capitals stand for entries.
#[test]
fn the_page_on_studies_shows_what_can_be_read() {
    let page = include_str!("../../../../docs/study.md");
    let more = r#"
[[matrix]]
sides = ["qemu"]
disks.targets = ["device"]
disks.drivers = ["virtio-blk"]
workloads = ["dd-write", "dd-read"]
settings = { read-ahead = ["128k"] }
[[cell]]
actors = [
  { side = "qemu", disk = { target = "device", driver = "virtio-blk" }, workload = "dd-read" },
  { side = "qemu", nth = 2, disk = { target = "device", driver = "virtio-blk" }, workload = "dd-read" },
]
"#;
    let mut seen = 0;
    for block in page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        let text = block;
        let cells = if text.contains("[[") { "" } else { more };
        // One that has a name is whole.
        let head = if text.starts_with("name = ") { String::new() } else { disks() };
        assert!(!whole(head, &format!("{text}{cells}")).cells().is_empty());
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}
