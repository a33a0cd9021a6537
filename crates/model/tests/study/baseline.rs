//! Baselines: the host, none, or another cell; and the schedule of such studies.

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::cell::{Baseline, Cell};
use vmio_model::study::plan::estimate;
use vmio_model::study::{DoneReason, Progress, SampleKey, Spent, Step, Study, next};

use super::play::{known, play, vague};
use super::{disks, keys, no_disks, rates, traits, whole};

const PATHS: &str = r#"[[matrix]]
sides = ["qemu"]
paths.networks = ["bridge"]
paths.peers = ["host"]
paths.nics = ["virtio-net", "e1000"]
workloads = ["iperf3"]
"#;

fn with(baseline: &str, head: String) -> String {
    format!("{baseline}\n{head}")
}

fn like(what: &str) -> String {
    with(&format!("baseline.like = {what}"), no_disks())
}

fn groups(study: &Study) -> Vec<Vec<String>> {
    study.groups().iter().map(|group| group.iter().map(Cell::key).collect()).collect()
}

fn rounds(done: &[SampleKey], key: &str) -> usize {
    done.iter().filter(|s| s.cell == key).count()
}

/// The default is native.
#[test]
fn native_is_the_default() {
    let (said, not) = (whole(with("baseline = \"native\"", no_disks()), PATHS), whole(no_disks(), PATHS));
    assert_eq!((&said, &said.baseline), (&not, &Baseline::Native));
    assert_eq!(keys(&said)[0], "bridge.host/native/iperf3");
    assert!(!said.to_toml().contains("baseline"));
}

#[test]
fn without_a_baseline_each_cell_runs_the_fewest_rounds() {
    let study = whole(with("baseline = \"none\"", no_disks()), PATHS);
    let both = ["bridge.host/qemu/virtio-net/iperf3", "bridge.host/qemu/e1000/iperf3"];
    assert_eq!(groups(&study), [both]);
    assert!(!study.cells().iter().any(|cell| study.compares(cell)));
    let (done, reason) = play(&study, |_, n| vague(n), None);
    assert_eq!(reason, DoneReason::FewestRounds);
    for key in both {
        assert_eq!(rounds(&done, key), 5, "{key}");
    }
    let plan = estimate(&study, &traits(), &rates());
    assert_eq!((plan.cells, plan.native_cells, plan.min_rounds, plan.max_rounds), (2, 0, 5, 5));
}

/// Cells with the same work on the same subject are measured side by side, also without a baseline.
#[test]
fn without_a_baseline_a_group_has_what_works_on_the_same() {
    let cells = r#"[[matrix]]
sides = ["native", "qemu"]
disks.targets = ["device", "sparse"]
disks.drivers = ["virtio-blk"]
workloads = ["seq-write", "seq-read"]
"#;
    let study = whole(with("baseline = \"none\"", disks()), cells);
    assert_eq!(study.groups().len(), 4);
    assert_eq!(
        groups(&study)[1],
        ["device/native/seq-read".to_owned(), "device/qemu/virtio-blk,none,native/seq-read".to_owned()]
    );
    let (done, _) = play(&study, |_, n| vague(n), None);
    for round in 0..5 {
        let order: Vec<&str> = done.iter().filter(|s| s.round == round).map(|s| s.cell.as_str()).collect();
        assert!(order.chunks(2).all(|pair| pair[0].split('/').next_back() == pair[1].split('/').next_back()));
    }
}

#[test]
fn another_network_is_what_a_cell_is_compared_with() {
    let study = whole(like("{ side = \"native\", network = \"veth\", peer = \"far\" }"), PATHS);
    assert_eq!(
        groups(&study),
        [["veth.far/native/iperf3", "bridge.host/qemu/virtio-net/iperf3", "bridge.host/qemu/e1000/iperf3"]]
    );
    // The baseline runs until the slower card is converged; the other one is closed before.
    let slow = "bridge.host/qemu/e1000/iperf3";
    let (done, reason) = play(&study, |key, n| if key == slow { vague(n) } else { known(n) }, None);
    assert_eq!(reason, DoneReason::MaxPairs);
    assert_eq!((rounds(&done, slow), rounds(&done, "veth.far/native/iperf3")), (8, 8));
    assert_eq!(rounds(&done, "bridge.host/qemu/virtio-net/iperf3"), 5);
}

/// A guest against a guest: the study has no native cell.
#[test]
fn a_guest_is_compared_with_a_guest() {
    let study = whole(
        with("baseline.like = { target = \"preallocated\" }", disks()),
        r#"[[matrix]]
sides = ["qemu"]
disks.targets = ["sparse"]
disks.drivers = ["virtio-blk"]
workloads = ["seq-write"]
"#,
    );
    let (base, test) =
        ("preallocated/qemu/virtio-blk,none,native/seq-write", "sparse/qemu/virtio-blk,none,native/seq-write");
    assert_eq!(groups(&study), [[base, test]]);
    let (done, reason) = play(&study, |_, n| known(n), None);
    assert_eq!((reason, rounds(&done, base), rounds(&done, test)), (DoneReason::Converged, 5, 5));
    let plan = estimate(&study, &traits(), &rates());
    assert_eq!((plan.native_cells, plan.guests_per_boot, plan.max_rounds), (0, 1, 8));
    // Where the baseline cannot run, nothing can.
    let (skipped, shares, unsteady) = (BTreeSet::from([base.to_owned()]), BTreeMap::new(), BTreeSet::new());
    let (spent, boot) = (Spent::default(), Some(0));
    let progress =
        Progress { done: &[], skipped: &skipped, shares: &shares, controls: &[], unsteady: &unsteady, spent, boot };
    assert_eq!(next(&study, &progress), Step::Done(DoneReason::NothingToRun));
}

#[test]
fn what_is_set_is_compared_with_what_was_found() {
    let cells = r#"[[matrix]]
sides = ["native", "qemu"]
disks.targets = ["device"]
disks.drivers = ["virtio-blk"]
workloads = ["seq-read"]
settings = { read-ahead = ["0k", "4096k"] }
"#;
    let study = whole(with("baseline.like = { settings = {} }", disks()), cells);
    let guest = "device/qemu/virtio-blk,none,native/seq-read";
    assert_eq!(
        groups(&study),
        [
            vec![
                "device/native/seq-read".to_owned(),
                "device/native/seq-read [read-ahead=0k]".to_owned(),
                "device/native/seq-read [read-ahead=4096k]".to_owned(),
            ],
            vec![guest.to_owned(), format!("{guest} [read-ahead=0k]"), format!("{guest} [read-ahead=4096k]")],
        ]
    );
    let set = whole(with("baseline.like = { settings = { read-ahead = \"0\" } }", disks()), cells);
    assert_eq!(set.cells().len(), 4);
    assert_eq!(groups(&set)[1], [format!("{guest} [read-ahead=0k]"), format!("{guest} [read-ahead=4096k]")]);
}

/// The cost of a neighbour.
#[test]
fn a_cell_is_compared_with_its_leading_actor_alone() {
    let study = whole(
        disks() + "[baseline.like]\nalone = true\n",
        r#"[[cell]]
actors = [
  { side = "qemu", disk = { target = "device", driver = "virtio-blk" }, workload = "rand-read-1" },
  { side = "qemu", nth = 2, disk = { target = "sparse", driver = "virtio-blk" }, workload = "seq-write" },
]
[[cell]]
actors = [
  { side = "qemu", disk = { target = "device", driver = "virtio-blk" }, workload = "rand-read-1" },
  { side = "qemu", nth = 2, machine = true, workload = "openssl" },
]
"#,
    );
    let alone = "device/qemu/virtio-blk,none,native/rand-read-1";
    assert_eq!(
        groups(&study),
        [[
            alone.to_owned(),
            format!("{alone} & sparse/qemu#2/virtio-blk,none,native/seq-write"),
            format!("{alone} & machine/qemu#2/openssl"),
        ]]
    );
    let (done, reason) = play(&study, |key, n| if key.contains("openssl") { vague(n) } else { known(n) }, None);
    assert_eq!((reason, rounds(&done, alone)), (DoneReason::MaxPairs, 8));
}

/// A baseline may have another workload.
#[test]
fn a_cell_is_compared_with_another_workload() {
    let study = whole(
        with("baseline.like = { workload = \"seq-read\" }", disks()),
        r#"[[matrix]]
sides = ["native"]
disks.targets = ["device"]
workloads = ["rand-read-32", "seq-read"]
"#,
    );
    assert_eq!(groups(&study), [["device/native/seq-read", "device/native/rand-read-32"]]);
}
