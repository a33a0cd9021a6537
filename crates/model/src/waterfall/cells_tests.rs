#![allow(clippy::unwrap_used)]
use super::*;
use crate::figure::{Distribution, Reading};
use crate::result::Foreign;
use crate::testing::{Bench, native, virtio};

const KIB4: f64 = 4096.0;

/// A sample of 1000 reads of 4 KiB, one at a time, of which the application waits 1 ms each.
fn sample(in_guest: bool) -> Sample {
    let percentiles = vec![(50.0, 0.9e-3), (99.0, 2e-3)];
    let work = DiskWork {
        read_bytes: 4096 * 1000,
        ios: 1000,
        seconds: 1.0,
        latency: Some(Distribution { mean: 1e-3, percentiles }),
        ..DiskWork::default()
    };
    Sample {
        cell: if in_guest { virtio("device", "rand-read-1") } else { native("device", "rand-read-1") },
        round: 0,
        boot: 0,
        started_unix: 0.0,
        result: work.result(serde_json::Value::Null, String::new()),
        beside: Vec::new(),
        seen: Vec::new(),
        foreign: Foreign::default(),
        marks: Vec::new(),
    }
}

/// A disk that had so many reads of this size, each for so long, in a window of twice the work.
fn disk(node: &str, reads: u64, bytes_each: f64, seconds_each: f64) -> ProbeResult {
    let used = DeviceUse {
        seconds: 2.0,
        read_ios: reads,
        read_bytes: (reads as f64 * bytes_each) as u64,
        request_bytes: bytes_each,
        queue_depth: reads as f64 * seconds_each / 2.0,
        busy_ratio: Some(0.2),
        ..DeviceUse::default()
    };
    ProbeResult { node: node.to_owned(), ..used.seen("vda") }
}

fn drive(reads: f64, seconds_each: f64) -> ProbeResult {
    let figures = [(READ, reads * KIB4), (WRITTEN, 0.0), (REQUESTS, reads), (REQUEST_SECONDS, reads * seconds_each)];
    let figures = figures.map(|(name, value)| Reading::scalar(name, value)).into();
    let seen = ProbeResult::here(Watched::Drive("device".into()), "blockstats", figures);
    ProbeResult { node: "qemu".into(), ..seen }
}

/// The guest's events of its block layer.
fn driver(reads: f64, seconds_each: f64) -> ProbeResult {
    let figures = [(REQUESTS, reads), (MOVED, reads * KIB4), (REQUEST_SECONDS, reads * seconds_each)];
    let figures = figures.map(|(name, value)| Reading::scalar(name, value)).into();
    let seen = ProbeResult::here(Watched::Other(BLOCK_EVENTS.into()), BLOCK_EVENTS, figures);
    ProbeResult { node: "qemu".into(), ..seen }
}

/// Of a run that asked for the guest's events.
fn explain(sample: Sample, submission: Option<f64>) -> CellLayers {
    explain_of(sample, submission, true)
}

fn explain_of(sample: Sample, submission: Option<f64>, asked: bool) -> CellLayers {
    let mut run = Bench::new().run();
    run.environment.vcpus = 1;
    run.study.layers = asked;
    run.samples = vec![sample];
    let mut all = of_run(&run, &[submission]);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Parts in microseconds, rounded.
fn parts(cell: &CellLayers) -> Vec<(String, i64)> {
    let parts = &cell.waterfall.as_ref().unwrap().parts;
    parts.iter().map(|part| (part.words(), (part.seconds * 1e6).round() as i64)).collect()
}

fn named(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter().map(|(name, us)| ((*name).to_owned(), *us)).collect()
}

#[test]
fn a_guests_request_is_split_where_probes_timed_it() {
    let mut read = sample(true);
    read.seen = vec![disk("qemu", 1000, KIB4, 800e-6), drive(1000.0, 500e-6), disk("", 1000, KIB4, 300e-6)];
    let cell = explain(read, Some(50e-6));
    let expected = [
        ("application", 250),
        ("guest's block layer + virtual I/O", 300),
        ("hypervisor", 200),
        ("host's block layer + device", 300),
    ];
    assert_eq!(parts(&cell), named(&expected));
    assert_eq!(cell.submission_seconds, Some(50e-6));
    assert_eq!(cell.latency.unwrap().p99_seconds, Some(2e-3));
    let device = cell.device.unwrap();
    // The window was twice as long as the work.
    assert!((device.queue_depth - 0.3).abs() < 1e-9 && (device.idle_ratio.unwrap() - 0.6).abs() < 1e-9);
    assert_eq!(device.bound, Bound::Requests);
    let lacks: Vec<_> = cell.untimed.iter().map(|u| (u.layer, u.why)).collect();
    assert_eq!(lacks, [(Layer::Virtual, Why::NotSeen), (Layer::Device, Why::NoProbe)]);
}

#[test]
fn the_guests_block_layer_and_virtual_io_are_told_apart_where_the_guest_counts_events() {
    let seen = |events: Option<ProbeResult>, flushes: f64| {
        let mut guest = disk("qemu", 1000, KIB4, 800e-6);
        guest.figures.retain(|reading| reading.figure != "flushes");
        guest.figures.push(Reading::scalar("flushes", flushes));
        let mut read = sample(true);
        let all = [Some(guest), events, Some(drive(1000.0, 500e-6)), Some(disk("", 0, 0.0, 0.0))];
        read.seen = all.into_iter().flatten().collect();
        read
    };
    let of_driver = || Some(driver(1000.0, 650e-6));
    let cell = explain(seen(of_driver(), 0.0), None);
    let apart = [
        ("application", 200),
        ("guest's block layer", 150),
        ("virtual I/O", 150),
        ("hypervisor", 500),
        ("host's block layer + device", 0),
    ];
    assert_eq!(parts(&cell), named(&apart));
    let lacks = |cell: &CellLayers| cell.untimed.iter().map(|u| (u.layer, u.why)).collect::<Vec<_>>();
    assert_eq!(lacks(&cell), [(Layer::Device, Why::NoProbe)]);
    let whole = cell.waterfall.unwrap();
    assert!(whole.remainder_seconds() < 0.2 * whole.total_seconds, "{whole:?}");
    // Without it both are one part, which is as long; the reason is told, with the probe.
    let together = [
        ("application", 200),
        ("guest's block layer + virtual I/O", 300),
        ("hypervisor", 500),
        ("host's block layer + device", 0),
    ];
    let not_asked = explain_of(seen(None, 0.0), None, false);
    let cases = [
        (explain(seen(None, 0.0), None), Why::NotSeen),
        (not_asked, Why::NotAsked),
        (explain(seen(of_driver(), 51.0), None), Why::Flushes),
        (explain(seen(Some(driver(1300.0, 650e-6)), 0.0), None), Why::MoreRequests),
        (explain(seen(Some(driver(1000.0, 900e-6)), 0.0), None), Why::NotWaitedFor),
    ];
    for (cell, why) in cases {
        assert_eq!(parts(&cell), named(&together), "{why:?}");
        assert_eq!(lacks(&cell), [(Layer::Virtual, why), (Layer::Device, Why::NoProbe)]);
        assert_eq!(cell.untimed[0].probe.as_deref(), Some(BLOCK_EVENTS));
        let whole = cell.waterfall.unwrap();
        let sum: f64 = whole.parts.iter().map(|part| part.seconds).sum();
        assert!((sum - whole.total_seconds).abs() < 1e-12, "{whole:?}");
    }
}

/// Whichever it is: it is among what each layer above it takes, too.
#[test]
fn what_is_planted_in_a_layer_is_told_of_its_part_alone() {
    const PLANTED: f64 = 2e-3;
    /// Of the application, the guest's disk, its driver, the hypervisor's drive and the host's disk, with all below.
    const QUICK: [f64; 5] = [1e-3, 800e-6, 650e-6, 500e-6, 300e-6];
    let told = |[whole, guest, at_driver, hypervisor, host]: [f64; 5]| {
        let mut read = sample(true);
        let of_guest = [disk("qemu", 1000, KIB4, guest), driver(1000.0, at_driver), drive(1000.0, hypervisor)];
        read.seen = of_guest.into_iter().chain([disk("", 1000, KIB4, host)]).collect();
        let parts = explain(read, Some(whole - QUICK[0])).waterfall.unwrap().parts;
        parts.iter().map(|part| part.seconds).collect::<Vec<_>>()
    };
    let before = told(QUICK);
    assert_eq!(before.len(), QUICK.len());
    for planted in 0..QUICK.len() {
        let slow = std::array::from_fn(|at| QUICK[at] + if at <= planted { PLANTED } else { 0.0 });
        let more: Vec<f64> = told(slow).iter().zip(&before).map(|(after, before)| after - before).collect();
        let own = |at: usize| if at == planted { PLANTED } else { 0.0 };
        assert!(more.iter().enumerate().all(|(at, more)| (more - own(at)).abs() < 1e-9), "{planted}: {more:?}");
    }
}

#[test]
fn what_a_cache_answers_is_not_below_it() {
    // In the guest's own page cache, with a few reads of another size below it; then in the host's.
    let mut read = sample(true);
    read.seen = vec![disk("qemu", 4, 131_072.0, 1e-3), drive(4.0, 1e-3), disk("", 4, 131_072.0, 1e-3)];
    let cell = explain(read, None);
    assert_eq!(parts(&cell)[0], ("application".into(), 996));
    let whole = cell.waterfall.unwrap();
    assert!(whole.remainder_seconds() < 0.01 * whole.total_seconds, "{whole:?}");
    let mut read = sample(true);
    read.seen = vec![disk("qemu", 1000, KIB4, 900e-6), drive(1000.0, 600e-6), disk("", 0, 0.0, 0.0)];
    let told = parts(&explain(read, None));
    assert_eq!((told[2].clone(), told[3].1), (("hypervisor".into(), 600), 0));
    // Half of the requests reached the disk: of each its half counts.
    let mut read = sample(false);
    read.seen = vec![disk("", 500, KIB4, 900e-6)];
    assert_eq!(parts(&explain(read, None)), named(&[("application", 550), ("host's block layer + device", 450)]));
}

#[test]
fn requests_of_another_size_or_of_others_are_not_followed() {
    let mut read = sample(true);
    read.seen = vec![disk("qemu", 1000, KIB4, 800e-6), disk("", 900, 131_072.0, 300e-6)];
    let cell = explain(read, None);
    assert_eq!(cell.waterfall.as_ref().unwrap().parts.len(), 2);
    let why = |layer| cell.untimed.iter().find(|u| u.layer == layer).map(|u| (u.why, u.probe.as_deref()));
    assert_eq!(why(Layer::HostBlock), Some((Why::OtherSize, Some("diskstats"))));
    assert_eq!(why(Layer::Hypervisor), Some((Why::NotSeen, Some("blockstats"))));
    let mut read = sample(false);
    read.seen = vec![disk("", 1300, KIB4, 300e-6)];
    let cell = explain(read, None);
    assert_eq!(cell.untimed[0].why, Why::MoreRequests);
    assert_eq!(parts(&cell), named(&[("application + host's block layer + device", 1000)]));
}

#[test]
fn requests_that_nobody_waited_for_are_in_no_part() {
    // From the guest's page cache, while others have a few large requests at the host's disk.
    let mut read = sample(true);
    read.seen = vec![disk("qemu", 0, 0.0, 0.0), drive(0.0, 0.0), disk("", 40, 131_072.0, 50e-3)];
    let cell = explain(read, None);
    let expected = [
        ("application", 1000),
        ("guest's block layer + virtual I/O", 0),
        ("hypervisor + host's block layer + device", 0),
    ];
    assert_eq!(parts(&cell), named(&expected));
    let host = cell.untimed.iter().find(|u| u.layer == Layer::HostBlock).unwrap();
    assert_eq!((host.why, host.probe.as_deref()), (Why::NotWaitedFor, Some("diskstats")));
    // As many as the application's, and of its size, but written back behind it.
    let mut write = sample(false);
    write.seen = vec![disk("", 1000, KIB4, 5e-3)];
    assert_eq!(parts(&explain(write, None)), named(&[("application + host's block layer + device", 1000)]));
    // Within what clocks differ by.
    let mut read = sample(false);
    read.seen = vec![disk("", 1000, KIB4, 1.01e-3)];
    assert_eq!(parts(&explain(read, None)), named(&[("application", -10), ("host's block layer + device", 1010)]));
}

#[test]
fn a_full_device_is_the_limit_and_the_answer_names_the_longest() {
    let mut read = sample(true);
    let mut host = disk("", 1000, KIB4, 100e-6);
    host.figures.retain(|r| r.figure != "busy");
    host.figures.push(Reading::scalar("busy", 0.47));
    read.seen = vec![disk("qemu", 1000, KIB4, 900e-6), drive(1000.0, 200e-6), host];
    let cell = explain(read, None);
    assert_eq!(cell.device.as_ref().unwrap().bound, Bound::Device);
    let answer = answer(&[cell]).unwrap();
    assert_eq!(answer.layers, [Layer::GuestBlock, Layer::Virtual]);
    assert!((answer.most_ratio - 0.7).abs() < 1e-9 && (answer.cells, answer.of_cells) == (1, 1));
    assert_eq!(super::answer(&[]), None);
}

#[test]
fn a_workload_that_times_nothing_has_its_device_alone() {
    let mut read = sample(false);
    read.result.amend(|work| work.latency = None);
    read.seen = vec![disk("", 100, 131_072.0, 1e-3)];
    let cell = explain(read, None);
    assert!(cell.waterfall.is_none() && cell.latency.is_none());
    assert_eq!(cell.device.unwrap().request_bytes, 131_072.0);
}
