//! The effects of lu2016: reads by the place of the page cache that serves them.

use std::collections::BTreeMap;

use super::*;
use crate::cell::{State, Subject};
use crate::result::AtRest;
use crate::testing::meter;

/// A run of lu2016 by KVM: requests a second natively, from the guest's and from the host's page cache at 4 KiB, bytes a
/// second at 1 MiB, and mean times of a request at the same rate.
fn places(four_k: [f64; 3], one_m: [f64; 2], mean_us: [f64; 2]) -> Run {
    let on = |state: State, cache: Option<Cache>, workload: &str| {
        let seen = cache.map(|cache| Attachment::new("virtio-blk", cache, Aio::Threads));
        let mut cell = Cell::on(if seen.is_some() { "qemu" } else { "native" }, "preallocated", seen, workload);
        let Subject::Disk { state: found, .. } = &mut cell.lead.subject else { panic!("it is on a disk") };
        *found = Some(state);
        cell
    };
    let guest = |workload: &str| on(State::WarmGuest, Some(Cache::None), workload);
    let host = |workload: &str| on(State::WarmHost, Some(Cache::Writeback), workload);
    // The bench's own names for jobs of 4 KiB, of large requests, and of 4 KiB at a rate.
    let mut run = Bench::new()
        .rounds(6)
        .cell(on(State::WarmHost, None, "rand-read-1"), four_k[0])
        .cell(guest("rand-read-1"), four_k[1])
        .cell(host("rand-read-1"), four_k[2])
        .cell(on(State::WarmHost, None, "seq-read"), 3e9)
        .cell(guest("seq-read"), one_m[0])
        .cell(host("seq-read"), one_m[1])
        .cell(on(State::WarmHost, None, "rand-read-32"), 2000.0)
        .cell(guest("rand-read-32"), 2000.0)
        .cell(host("rand-read-32"), 2000.0)
        .run();
    for sample in &mut run.samples {
        let cell = &mut sample.cell;
        let below = cell.lead.is_warm_below();
        let (mean, rounds) = if below { (mean_us[1], 2) } else { (mean_us[0], 3) };
        let mean = mean * (1.0 + 0.01 * f64::from(sample.round % rounds));
        let name = match cell.lead.workload.as_str() {
            "rand-read-1" => "rand-read-4k-d1",
            "seq-read" => "rand-read-1m-d1",
            _ => "rand-read-4k-d10-2000iops",
        };
        cell.lead.workload = if below { name.to_owned() } else { format!("{name}-buffered") };
        sample.result.amend(|work| work.latency.as_mut().unwrap().mean = mean * 1e-6);
    }
    run.workloads.clear();
    run.kind = "lu2016".into();
    run
}

fn of_places(run: &Run) -> BTreeMap<String, (Verdict, String)> {
    let paper = Paper::parse(include_str!("../../../../../papers/lu2016.toml")).unwrap();
    let judged = judge(&paper, run, &summarise(run)).effects;
    judged.into_iter().map(|j| (j.effect.id, (j.verdict, j.reason))).collect()
}

#[test]
fn caches_are_compared_by_their_places() {
    let verdict = |found: &BTreeMap<String, (Verdict, String)>, id: &str| found[id].0;
    let mut run = places([100e3, 98e3, 3e3], [2e9, 1.9e9], [3.0, 90.0]);
    let found = of_places(&run);
    for id in ["host-side-throughput", "size-narrows-the-gap", "guest-side-near-native", "host-side-latency"] {
        assert_eq!(verdict(&found, id), Verdict::Holds, "{id}: {}", found[id].1);
    }
    assert!(found["four-guests-processor"].1.contains("4 qemu on preallocated+warm-host"), "{found:?}");

    // A rate that was not reached is not the same load.
    for sample in run.samples.iter_mut().filter(|s| s.cell.workload() == "rand-read-4k-d10-2000iops") {
        sample.marks.push(Mark::Saturated);
    }
    let found = of_places(&run);
    assert_eq!(verdict(&found, "host-side-latency"), Verdict::NotDecidable);
    assert!(found["host-side-latency"].1.contains("did not reach the rate"), "{found:?}");

    // The same gap at each size, and none at all.
    let found = of_places(&places([100e3, 60e3, 50e3], [2e9, 1e9], [3.0, 3.3]));
    for id in ["host-side-throughput", "size-narrows-the-gap", "guest-side-near-native", "host-side-latency"] {
        assert_eq!(verdict(&found, id), Verdict::Fails, "{id}: {}", found[id].1);
    }
}

#[test]
fn power_is_judged_by_a_meter_of_the_whole_machine() {
    let mut run = places([100e3, 98e3, 3e3], [2e9, 1.9e9], [3.0, 90.0]);
    let said = |run: &Run| of_places(run)["host-side-power"].clone();
    let undecided = |run: &Run, why: &str| {
        let (verdict, reason) = said(run);
        assert!(verdict == Verdict::NotDecidable && reason.contains(why), "{reason}");
    };
    undecided(&run, "no meter was there");
    let metered = |run: &mut Run, name: &str, domain: &str| {
        for sample in &mut run.samples {
            let watts = match (sample.cell.is_native(), sample.cell.lead.is_warm_below()) {
                (true, _) => 80.0,
                (_, true) => 100.0,
                (_, false) => 70.0,
            };
            sample.seen.push(meter(name, domain, watts * 1.5, watts));
        }
    };
    metered(&mut run, "powercap", "package-0");
    undecided(&run, "only parts of the machine were metered (package-0)");
    metered(&mut run, "ipmi", "machine");
    undecided(&run, "not measured at rest");
    let rest = |watts: f64| vec![meter("ipmi", "machine", watts * 3.0, watts)];
    let at = |started_unix: f64, watts: f64| AtRest { started_unix, seen: rest(watts), marks: Vec::new() };
    run.environment.at_rest = vec![at(0.0, 60.0), at(2.0, 61.0)];
    let mut mixed = run.clone();
    let one = mixed.samples.iter_mut().find(|s| s.cell.workload() == "rand-read-4k-d10-2000iops").unwrap();
    one.seen.retain(|seen| seen.probe != "ipmi");
    one.seen.push(meter("powercap", "psys", 150.0, 100.0));
    undecided(&mixed, "several meters (ipmi machine, powercap psys)");
    let mut warm = run.clone();
    warm.environment.at_rest = vec![at(0.0, 75.0)];
    undecided(&warm, "in 6 of 12 samples the machine took no more power than at rest");
    // 40 W against 10 W, then 39 against 9.
    assert_eq!(said(&run).0, Verdict::Holds, "{:?}", said(&run));
    let paper = Paper::parse(include_str!("../../../../../papers/lu2016.toml")).unwrap();
    let judged = judge(&paper, &run, &summarise(&run));
    let ratio = judged.effects.iter().find(|j| j.effect.id == "host-side-power").unwrap().ratio.unwrap();
    assert!((3.9..4.5).contains(&ratio.value), "{ratio:?}");
    assert_eq!((judged.energy.len(), judged.energy[0].energy.len()), (2, 2), "both cells, by both meters");
    assert!(judged.energy.iter().all(|cell| cell.cpu_seconds_per_request.is_some()));
}

#[test]
fn emulation_decides_what_it_cannot_have_caused() {
    let mut run = places([100e3, 60e3, 3e3], [2e9, 1.9e9], [3.0, 90.0]);
    run.environment.accel = Some(Accel::Tcg);
    let found = of_places(&run);
    assert_eq!(found["host-side-throughput"].0, Verdict::Holds, "{found:?}");
    assert_eq!(found["host-side-latency"].0, Verdict::Holds, "{found:?}");
    for id in ["size-narrows-the-gap", "guest-side-near-native"] {
        assert!(found[id].0 == Verdict::NotDecidable && found[id].1.contains("emulation"), "{id}: {}", found[id].1);
    }
}
