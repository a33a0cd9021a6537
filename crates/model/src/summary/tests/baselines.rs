//! Summaries of studies whose baseline is not the host itself.

use super::made::{Made, disk_job, guest_on, iperf, near, network, on_path, reads, stream, traits};
use super::*;
use crate::cell::Cell;
use crate::figure::{Figure, Reading};
use crate::result::BANDWIDTH;

/// The cost of a neighbour: the leading actor beside it compared with the same alone, not the sum of both.
#[test]
fn with_neighbours_against_alone_is_the_leading_actors() {
    let alone = virtio("device", "seq-read");
    let cell = Cell { beside: vec![guest_on(1, "seq-read")], ..alone.clone() };
    let run = Made::of(vec![disk_job("seq-read")])
        .compared_with("{ like = { alone = true } }")
        .cell(&alone, &[&reads(400e6)])
        .cell(&cell, &[&reads(300e6), &reads(300e6)])
        .run;
    let s = summarise(&run);
    let share = &s.shares[0];
    assert!(near(share.share_ratio.value, 0.75), "{share:?}");
    let live = live(&run, &summarise(&run).baseline);
    assert_eq!(live, BTreeMap::from([(cell.key(), share.share_ratio)]));
    let bandwidth = share.figures.iter().find(|f| f.name == BANDWIDTH).unwrap();
    assert_eq!((bandwidth.ratio, bandwidth.labels.len()), (Some(share.share_ratio), 0));
    assert!(share.figures.iter().all(|f| f.name != FAIRNESS));
    let h = s.headline.unwrap();
    let (with, of) = (cell.place_key(), alone.place_key());
    assert!(h.text.starts_with(&format!("{with} gets {} of ", percent(&h.share_ratio))), "{}", h.text);
    assert!(h.text.ends_with(&format!(" of what {of} gets, geometric mean over seq-read.")), "{}", h.text);
}

/// A comparison with the set-up as found, natively and in a guest, is no share of the host.
#[test]
fn a_setting_is_compared_with_what_was_found() {
    let set = |cell: &Cell| {
        let mut cell = cell.clone();
        cell.settings.insert("read-ahead".into(), "4096k".into());
        cell
    };
    let (host, guest) = (native("device", "seq-read"), virtio("device", "seq-read"));
    let run = Made::of(vec![disk_job("seq-read")])
        .compared_with("{ like = { settings = {} } }")
        .cell(&host, &[&reads(400e6)])
        .cell(&set(&host), &[&reads(600e6)])
        .cell(&guest, &[&reads(100e6)])
        .cell(&set(&guest), &[&reads(300e6)])
        .run;
    let s = summarise(&run);
    let share = |cell: &Cell| s.share(&cell.key()).map(|s| s.share_ratio.value);
    assert!(near(share(&set(&host)).unwrap(), 1.5) && near(share(&set(&guest)).unwrap(), 3.0));
    assert_eq!((share(&host), share(&guest)), (None, None));
    let h = s.headline.unwrap();
    let said = format!("device/native [read-ahead=4096k] gets {} of ", percent(&h.share_ratio));
    assert!(h.text.starts_with(&said) && h.text.contains(" of what device/native gets, "), "{}", h.text);
    assert!(h.lines[0].starts_with("seq-read: 15") && !h.lines[0].contains("host CPU"), "{:?}", h.lines);
}

/// A baseline may have another workload: both are named.
#[test]
fn both_workloads_are_named_where_they_differ() {
    let (buffered, direct) = (native("device", "seq-read"), native("device", "rand-read-32"));
    let run = Made::of(vec![disk_job("seq-read"), disk_job("rand-read-32")])
        .compared_with("{ like = { workload = \"rand-read-32\" } }")
        .cell(&direct, &[&reads(400e6)])
        .cell(&buffered, &[&reads(200e6)])
        .run;
    let h = summarise(&run).headline.unwrap();
    assert!(h.text.ends_with(", geometric mean over seq-read against rand-read-32."), "{}", h.text);
    let line = format!("seq-read against rand-read-32: {}", percent(&h.share_ratio));
    assert!(h.lines[0].starts_with(&line), "{:?}", h.lines);
}

/// Without a baseline there are rows and no shares.
#[test]
fn without_a_baseline_there_is_no_share() {
    let run = network().compared_with("\"none\"").run;
    let s = summarise(&run);
    assert!(s.shares.is_empty() && s.headline.is_none() && s.cells.len() == 3);
    assert!(live(&run, &Baseline::None).is_empty());
}

/// A baseline whose workload has another unit cannot be compared: bits are no bytes.
#[test]
fn bits_are_not_compared_with_bytes() {
    let ours = on_path("qemu", Some("virtio-net"), "iperf3");
    let bytes = traits("other", BANDWIDTH, vec![Figure::rate(BANDWIDTH, Unit::BytesPerSecond)]);
    let theirs = ours.clone().running("other");
    let run = Made::of(vec![iperf(), bytes])
        .compared_with("{ like = { workload = \"other\" } }")
        .cell(&theirs, &[&[Reading::scalar(BANDWIDTH, 5e9)]])
        .cell(&ours, &[&stream(20e9, 0.0)])
        .run;
    assert!(summarise(&run).shares.is_empty());
    assert!(live(&run, &summarise(&run).baseline).is_empty());
}
