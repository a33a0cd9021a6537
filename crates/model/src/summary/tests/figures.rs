//! Summaries of workloads that are no disk's.

use super::made::{Made, near, network, on_path, times, traits};
use super::*;
use crate::cell::{Cell, Side, Subject};
use crate::figure::{Compared, Figure, Value};
use crate::result::{BANDWIDTH, DiskTraits, LATENCY, WorkloadTraits};

#[test]
fn a_network_has_shares_differences_and_a_headline() {
    let s = summarise(&network().run);
    let virtio = s.share("bridge.host/qemu/virtio-net/iperf3").unwrap();
    assert_eq!((virtio.baseline.as_str(), virtio.figure.as_str()), ("bridge.host/native/iperf3", BANDWIDTH));
    assert!(near(virtio.share_ratio.value, 0.5) && virtio.converged, "{virtio:?}");
    assert_eq!(virtio.latency_p50_ratio, None);
    let names = |share: &Share| share.figures.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(virtio), [BANDWIDTH, "loss"], "what says how much was done is not compared");
    let of = |share: &Share, name: &str| share.figures.iter().find(|f| f.name == name).unwrap().clone();
    assert_eq!(of(virtio, BANDWIDTH).ratio, Some(virtio.share_ratio));
    assert_eq!((of(virtio, BANDWIDTH).unit, of(virtio, BANDWIDTH).difference), (Unit::BitsPerSecond, None));
    // Without loss on either side there is no ratio, and the difference is certainly 0.
    let loss = of(virtio, "loss");
    let (none, interval) = (loss.difference.unwrap(), loss.difference.unwrap().interval.unwrap());
    assert_eq!((loss.ratio, loss.unit, none.value, none.pairs, none.boots), (None, Unit::Ratio, 0.0, 6, 3));
    assert_eq!((interval.low, interval.high), (0.0, 0.0));
    let lossy = s.share("bridge.host/qemu/e1000/iperf3").unwrap();
    let lost = of(lossy, "loss").difference.unwrap();
    assert!(near(lost.value, 0.02) && lost.interval.unwrap().above(0.0), "{lost:?}");

    let h = s.headline.as_ref().unwrap();
    assert_eq!((h.guest.as_str(), h.cells.len()), ("bridge.host/qemu/virtio-net", 1));
    let figure = percent(&h.share_ratio);
    assert!(h.text.starts_with(&format!("A reference guest made by vmio gets {figure} of ")), "{}", h.text);
    assert!(h.text.ends_with(" of this host: virtio-net on bridge.host, geometric mean over iperf3."), "{}", h.text);
    assert!(h.lines[0].starts_with(&format!("iperf3: {figure}")) && !h.lines[0].contains("CPU"), "{:?}", h.lines);
}

#[test]
fn the_row_of_a_network_has_its_figures_and_no_disks() {
    let s = summarise(&network().run);
    let row = s.cell("bridge.host/qemu/e1000/iperf3").unwrap();
    let bits = row.judged().unwrap();
    assert!(near(bits.typical.value, 2e9) && bits.typical.n == 6 && bits.percentiles.is_empty());
    assert_eq!((bits.unit, bits.better, bits.compared), (Unit::BitsPerSecond, Better::More, Compared::Ratio));
    assert!(near(row.figure("retransmits").unwrap().typical.value, 12.0));
    assert_eq!(row.figure("retransmits").unwrap().compared, Compared::No);
    assert!(row.disk.is_none() && row.device.is_none() && row.durability.is_none() && !row.latency_first);
    assert_eq!(serde_json::to_value(&s).unwrap().get("baseline"), None, "the host itself goes without saying");
    let json = serde_json::to_value(row).unwrap();
    assert!(json.get("bandwidth_bytes_per_second").is_none() && json["figures"][1]["name"] == "loss");
    assert_eq!(serde_json::from_value::<CellRow>(json).unwrap(), *row);
    assert!(s.explained.is_empty() && s.steady.is_empty() && !s.is_native_only());
}

#[test]
fn networks_have_noise_and_are_compared() {
    let a = network().run;
    let all = noise(&a);
    assert_eq!((all.len(), all[0].noise.ratio.pairs), (3, 3));
    assert!((0.001..0.2).contains(&all[0].noise.smallest_difference_ratio), "{all:?}");
    let mut b = Run { id: 2, ..a.clone() };
    let slowed = on_path("qemu", Some("virtio-net"), "iperf3");
    for s in b.samples.iter_mut().filter(|s| s.cell == slowed) {
        s.result.figures[0].value = Value::Scalar(s.result.figure(BANDWIDTH).unwrap() / 2.0);
    }
    let c = compare(&a, &b);
    let of = |key: &str| c.cells.iter().find(|c| c.key == key).unwrap();
    let slower = of(&slowed.key());
    assert_eq!((slower.figure.as_str(), slower.verdict.as_str(), slower.differs), (BANDWIDTH, "slower", true));
    assert!(near(slower.figure_ratio.value, 0.5));
    assert_eq!(of("bridge.host/native/iperf3").verdict, "no difference shown");
}

/// Bits in one run and bytes in the other have no ratio.
#[test]
fn figures_that_are_declared_otherwise_are_not_compared() {
    let a = network().run;
    let changed = |change: &dyn Fn(&mut Figure)| {
        let mut b = Run { id: 2, ..a.clone() };
        b.workloads.iter_mut().flat_map(|w| &mut w.figures).filter(|f| f.name == BANDWIDTH).for_each(change);
        let (there, back) = (compare(&a, &b), compare(&b, &a));
        assert_eq!((there.cells.len(), there.uncompared.len(), there.only_a.len()), (0, 3, 0), "{there:?}");
        assert_eq!((back.cells.len(), back.uncompared.len(), back.only_b.len()), (0, 3, 0), "{back:?}");
        assert_eq!(
            (there.uncompared[0].key.as_str(), there.uncompared[0].figure.as_str()),
            (a.samples[0].cell.key().as_str(), BANDWIDTH)
        );
        there.uncompared[0].why.clone()
    };
    let unit = changed(&|f| f.unit = Unit::BytesPerSecond);
    assert_eq!(unit, "run 1 counts it in bits/second and run 2 in bytes/second");
    let better = changed(&|f| f.better = Better::Less);
    assert_eq!(better, "in run 1 more of it is better and in run 2 less");
    assert_eq!(changed(&|f| f.compared = Compared::No), "run 1 compares it as a ratio and run 2 not at all");
    let form = changed(&|f| f.form = crate::figure::Form::Distribution);
    assert_eq!(form, "in run 1 it is one number and in run 2 a distribution");
    // Another figure of it may differ.
    let mut b = a.clone();
    b.workloads[0].figures.iter_mut().filter(|f| f.name == "loss").for_each(|f| f.unit = Unit::Packets);
    assert_eq!((compare(&a, &b).cells.len(), compare(&a, &b).uncompared.len()), (3, 0));
    // One that is absent, and one that is 0.
    b.workloads[0].figures.retain(|f| f.name != BANDWIDTH);
    assert_eq!(compare(&a, &b).uncompared[0].why, "run 1 does not measure it");
    let mut b = Run { id: 2, ..a.clone() };
    b.samples.iter_mut().for_each(|s| s.result.figures[0].value = Value::Scalar(0.0));
    assert_eq!(compare(&a, &b).uncompared[2].why, "run 2 has no value above 0");
}

fn latencies(guest: f64) -> Run {
    let sockperf = traits("sockperf", LATENCY, vec![Figure::times(LATENCY)]);
    Made::of(vec![sockperf])
        .cell(&on_path("native", None, "sockperf"), &[&[times(10e-6)]])
        .cell(&on_path("qemu", Some("virtio-net"), "sockperf"), &[&[times(guest)]])
        .run
}

/// Where less is better, a share below 1 is a loss, too.
#[test]
fn a_latency_four_times_as_long_is_a_quarter() {
    let run = latencies(40e-6);
    let s = summarise(&run);
    let share = s.share("bridge.host/qemu/virtio-net/sockperf").unwrap();
    assert!(near(share.share_ratio.value, 0.25) && share.converged, "{share:?}");
    assert_eq!(share.figure, LATENCY);
    // The figure itself is the cell over its baseline.
    assert!(near(share.figures[0].ratio.unwrap().value, 4.0) && share.figures[0].better == Better::Less);
    assert!(near(share.latency_p50_ratio.unwrap().value, 4.0));
    assert_eq!(live(&run, &Baseline::Native)[&share.key], share.share_ratio);
    let h = s.headline.as_ref().unwrap();
    assert!(h.text.contains(&format!(" gets {} of ", percent(&h.share_ratio))), "{}", h.text);
    let row = s.cells[1].judged().unwrap();
    assert!(near(row.typical.value, 40e-6) && near(row.at(99.0).unwrap().value, 120e-6), "median and 99th percentile");
    // Twice as long in another run is slower.
    let c = compare(&run, &latencies(80e-6));
    assert_eq!((c.cells[0].verdict.as_str(), c.cells[1].verdict.as_str()), ("no difference shown", "slower"));
    assert!(near(c.cells[1].figure_ratio.value, 0.5));
    assert!((0.001..0.2).contains(&noise(&run)[1].noise.smallest_difference_ratio));
}

/// A slow round of a latency is an outlier like one of a rate.
#[test]
fn a_slow_round_of_a_latency_is_flagged() {
    let mut run = latencies(40e-6);
    let slow = run.samples.iter_mut().find(|s| s.round == 3 && !s.cell.is_native()).unwrap();
    slow.result.figures = vec![times(4e-3)];
    let s = summarise(&run);
    assert_eq!((&s.cells[1].outlier_rounds, &s.shares[0].outlier_rounds), (&vec![3], &vec![3]));
}

/// The latency of a log's disk falls to a third in the first rounds, before the disk is steady.
#[test]
fn steady_state_is_found_by_a_latency_too() {
    let disk = DiskTraits {
        reads: false,
        writes: true,
        sequential: true,
        block_bytes: 4096,
        depth: 1,
        direct: true,
        engine: "psync".into(),
    };
    let log = WorkloadTraits { disk: Some(disk), ..traits("log", LATENCY, vec![Figure::times(LATENCY)]) };
    let (cell, beside) = (native("device", "log"), Cell::of(Side::native(), Subject::Machine, "log"));
    let falling = |round: u32| vec![vec![times(if round < 3 { 0.3e-3 } else { 1e-3 })]];
    let mut run = Made::of(vec![log]).rounds(&cell, 9, falling).rounds(&beside, 9, falling).run;
    run.study.repeat.steady_state = true;
    let s = summarise(&run);
    assert_eq!(s.steady.len(), 1, "what works on no disk need not become steady");
    assert_eq!((s.steady[0].reached_after, s.steady[0].from_round), (Some(8), 3));
    assert_eq!((s.cell(&cell.key()).unwrap().samples, s.cell(&beside.key()).unwrap().samples), (6, 9));
}
