//! Every proof can be resumed.

use std::collections::BTreeSet;

use super::ask;
use crate::cell::{Baseline, Cell, Like, Millis, Subject as On};
use crate::rules::{Proof, RULES};
use crate::study::{Names, SettingName, Study, SubjectKind, WorkloadName};

/// A study with every key that is optional for its cells.
const LIKE: &str = r#"
name = "like"
title = "like"
[guest]
vcpus = 1
memory_mib = 256
[size]
target_mib = 512
[repeat]
min_pairs = 5
max_pairs = 8
min_boots = 2
half_width = 0.05
seconds = 1.0
max_minutes = 8.0
max_gib_written = 16.0
steady_state = true
[control]
workloads = ["seq-read"]
[[matrix]]
sides = ["qemu"]
disks = { targets = ["device"], drivers = ["virtio-blk"] }
workloads = ["seq-read"]
[[matrix]]
sides = ["qemu"]
paths = { networks = ["bridge"], peers = ["host"], nics = ["e1000"] }
workloads = ["iperf3-tcp"]
"#;

/// All names in these cells, and those of [`LIKE`].
fn names_of(proofs: &[(String, Proof)]) -> Names {
    let mut words: [BTreeSet<String>; 8] = Default::default();
    let mut note = |at: usize, word: &str| drop(words[at].replace(word.to_owned()));
    // Guests, targets, drivers, networks, peers, cards, workloads on disks and on paths.
    let like = ["native", "device", "virtio-blk", "bridge", "host", "e1000", "seq-read", "iperf3-tcp"];
    like.into_iter().enumerate().for_each(|(at, word)| note(at, word));
    note(0, "qemu");
    for actor in proofs.iter().flat_map(|(_, proof)| [&proof.before, &proof.after]).flat_map(Cell::actors) {
        note(0, &actor.side.kind);
        match &actor.subject {
            On::Disk { target, attachment, .. } => {
                note(1, target);
                attachment.iter().for_each(|a| note(2, &a.driver));
                note(6, &actor.workload);
            }
            On::Path { network, peer, nic, .. } => {
                note(3, network);
                note(4, peer);
                nic.iter().for_each(|nic| note(5, &nic.model));
                note(7, &actor.workload);
            }
            other => panic!("no rule proves anything on {}", other.place()),
        }
    }
    let named =
        proofs.iter().flat_map(|(_, proof)| [&proof.before, &proof.after]).flat_map(|cell| cell.settings.keys());
    let settings: BTreeSet<&str> = named.map(String::as_str).collect();
    let settings = settings
        .into_iter()
        .map(|name| SettingName { name: String::from(name).leak(), value: |text| Ok(text.to_owned()) });
    let [guests, targets, drivers, networks, peers, nics, on_disks, on_paths] = words.map(Vec::from_iter);
    let of =
        |names: Vec<String>, works_on: SubjectKind| names.into_iter().map(move |name| WorkloadName { name, works_on });
    let workloads = of(on_disks, SubjectKind::Disk).chain(of(on_paths, SubjectKind::Path)).collect();
    Names {
        guests,
        targets,
        drivers,
        networks,
        peers,
        nics,
        workloads,
        settings: settings.collect(),
        ..Names::default()
    }
}

/// A proof's study is stored and parsed again when it is resumed, with any cells of any study.
#[test]
fn every_proof_is_a_study_that_can_be_read_again() {
    let mut proofs: Vec<(String, Proof)> = Vec::new();
    for rule in RULES {
        let found = ask(rule, &(rule.fixture.0)());
        proofs.extend(found.into_iter().filter_map(|finding| Some((finding.rule, finding.proof?))));
    }
    let rules: BTreeSet<String> = proofs.iter().map(|(rule, _)| rule.clone()).collect();
    for of_networks in
        ["emulated-nic", "no-vhost", "mtu-mismatch", "offloads-off", "bridge-netfilter", "vcpus-over-cores"]
    {
        assert!(rules.contains(of_networks), "{of_networks} proves nothing: {rules:?}");
    }
    // Two guests, each on one processor, under a setting, with a start time.
    let mut before = crate::testing::over_bridge(Some("virtio-net"), "iperf3-tcp");
    before.lead.side.shape.pins = vec![0];
    let mut beside = before.lead.clone();
    (beside.side.nth, beside.start, beside.duration) = (1, Millis(500), Some(Millis(2000)));
    before.beside.push(beside);
    before.settings.insert("mtu".into(), "9000-over-1500".into());
    let mut after = before.clone();
    after.beside[0].side.shape.pins = vec![1];
    proofs.push(("pins and settings".into(), Proof { before, after }));

    let names = names_of(&proofs);
    let native = Study::parse("like", LIKE, &names).unwrap();
    let like = |side: &str| Baseline::Like(Like { side: Some(side.into()), ..Like::default() });
    for baseline in [Baseline::Native, Baseline::None, like("native")] {
        let control = native.control.clone().filter(|_| baseline.is_native());
        let whole = Study { baseline, control, ..native.clone() };
        for (rule, proof) in &proofs {
            let study = proof.study(&whole);
            let read = Study::parse("stored", &study.to_toml(), &names).unwrap_or_else(|e| panic!("{rule}: {e}"));
            assert_eq!(read, study, "{rule}");
            let on_disk = proof.before.target().is_some();
            assert_eq!((study.size.is_some(), study.repeat.max_gib_written.is_some()), (on_disk, on_disk), "{rule}");
            let cells: Vec<Cell> = study.named_cells().collect();
            assert_eq!(cells, [proof.before.clone(), proof.after.clone()], "{rule}");
        }
    }
}
