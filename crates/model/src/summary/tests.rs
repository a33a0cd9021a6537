//! Summaries of made-up runs with known figures.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::figure::Reading;
use crate::result::{AtRest, CpuUse, Mark, ProbeResult, Sample, Watched};
use crate::run::Run;
use crate::study::Matrix;
use crate::testing::{Bench, guest, native, virtio};

mod actors;
mod baselines;
mod disturbed;
mod figures;
mod headline;
mod made;
mod scores;
mod set_ups;

fn bench() -> Bench {
    Bench::new()
        .cell(native("device", "durable-append"), 1000.0)
        .cell(virtio("device", "durable-append"), 250.0)
        .cell(native("device", "seq-write"), 800e6)
        .cell(virtio("device", "seq-write"), 320e6)
        .cell(guest("device", "lsi53c895a", "seq-write"), 200e6)
}

#[test]
fn shares_come_out_as_planted() {
    let s = summarise(&bench().run());
    let share = |cell: Cell| s.share(&cell.key()).unwrap().clone();
    let durable = share(virtio("device", "durable-append"));
    assert!((durable.share_ratio.value - 0.25).abs() < 0.01, "{durable:?}");
    assert!(durable.converged && durable.verdict == "converged");
    assert_eq!(durable.baseline, "device/native/durable-append");
    // Latency is the inverse of the rate in these runs.
    assert!((durable.latency_p50_ratio.unwrap().value - 4.0).abs() < 0.15);
    assert!((share(virtio("device", "seq-write")).share_ratio.value - 0.4).abs() < 0.01);
    assert_eq!(s.shares.len(), 3);
    assert!(!s.emulated && s.statement.is_none());
}

#[test]
fn rows_and_shares_are_in_the_order_of_the_study() {
    let mut run = bench().run();
    let lsi = guest("device", "lsi53c895a", "seq-write").lead.attachment().cloned();
    let both = ["durable-append".to_owned(), "seq-write".to_owned()];
    let virtio = virtio("device", "seq-write").lead.attachment().cloned();
    run.study.matrix = vec![
        Matrix::of("device", "qemu", virtio.as_ref(), &both),
        Matrix::of("device", "qemu", lsi.as_ref(), &both[1..]),
    ];
    run.samples.reverse();
    let s = summarise(&run);
    let named: Vec<String> = run.study.cells().iter().map(Cell::key).collect();
    assert_eq!(s.cells.iter().map(|row| row.key.clone()).collect::<Vec<_>>(), named);
    let shares: Vec<&str> =
        s.shares.iter().map(|share| share.cell.lead.attachment().unwrap().driver.as_str()).collect();
    assert_eq!(shares, ["virtio-blk", "virtio-blk", "lsi53c895a"]);
}

#[test]
fn rows_carry_units_and_marks() {
    let cell = virtio("device", "seq-write");
    let s = summarise(&bench().device(&cell, 131_072.0, 2.5, 0.8).mark(&cell, Mark::HostBusy).run());
    let row = s.cell(&cell.key()).unwrap();
    assert_eq!((row.samples, row.boots), (6, 3));
    let device = row.device.unwrap();
    assert!((device.avgrq_sz_sectors.value - 256.0).abs() < 1e-9 && (device.queue_depth.value - 2.5).abs() < 1e-9);
    assert_eq!(row.marks, BTreeMap::from([(Mark::HostBusy, 6)]));
    // 0.5 s of host CPU for a sample of 1.5 s at 320 MB/s: 0.48 GB.
    assert!((row.cpu.host_seconds_per_gigabyte - 0.5 / 0.48).abs() < 0.05);
    assert!((row.cpu.role_seconds_per_gigabyte["vcpu"] - 0.25 / 0.48).abs() < 0.03);
    assert!(!row.latency_first);
    assert!(s.cell(&virtio("device", "durable-append").key()).unwrap().latency_first);
}

/// The whole is by the clock of its parts where all samples of the cell have it, and by ticks otherwise.
#[test]
fn a_row_has_one_clock() {
    let cell = virtio("device", "seq-write");
    let mut run = bench().device(&cell, 131_072.0, 2.5, 0.8).run();
    let mine = |run: &mut Run, cpu: &CpuUse, all: bool| {
        let samples = run.samples.iter_mut().filter(|s| s.cell == cell).skip(usize::from(!all));
        samples.for_each(|s| s.seen.extend(cpu.seen("guest").into_iter().filter(|s| s.watched == Watched::Others)));
    };
    let exact = CpuUse { host_seconds: 0.8, kernel_seconds: Some(0.2), ..CpuUse::default() };
    let whole = {
        let mut run = run.clone();
        mine(&mut run, &exact, true);
        summarise(&run)
    };
    let cpu = &whole.cell(&cell.key()).unwrap().cpu;
    assert_eq!(cpu.clock, CpuClock::Processes);
    assert!((cpu.host_seconds_per_gigabyte - 0.8 / 0.48).abs() < 0.08, "{cpu:?}");
    let kernel = cpu.kernel_seconds_per_gigabyte.unwrap();
    assert!((kernel / cpu.host_seconds_per_gigabyte - 0.25).abs() < 1e-9, "{cpu:?}");
    assert!(cpu.role_seconds_per_gigabyte.values().sum::<f64>() + kernel <= cpu.host_seconds_per_gigabyte, "{cpu:?}");
    mine(&mut run, &exact, false);
    let mixed = summarise(&run);
    let cpu = &mixed.cell(&cell.key()).unwrap().cpu;
    assert_eq!((cpu.clock, cpu.kernel_seconds_per_gigabyte), (CpuClock::Ticks, None));
    assert!((cpu.host_seconds_per_gigabyte - 0.5 / 0.48).abs() < 0.05, "{cpu:?}");
}

/// Busy vCPUs by process accounting: 0.25 s of a vCPU in one second.
#[test]
fn a_row_says_how_busy_its_guests_processors_were() {
    let (guest, native) = (virtio("device", "seq-write"), native("device", "seq-write"));
    let mut run = bench().device(&guest, 131_072.0, 2.5, 0.8).run();
    let busy = |run: &Run, cell: &Cell| summarise(run).cell(&cell.key()).unwrap().cpu.vcpu_busy_ratio;
    assert_eq!(busy(&run, &guest), None, "how long was looked is not known");
    for s in &mut run.samples {
        s.seen.push(ProbeResult::here(Watched::Others, "others", vec![Reading::scalar("seconds", 1.0)]));
    }
    let one = busy(&run, &guest).unwrap();
    assert!((one - 0.25).abs() < 0.02, "{one}");
    assert_eq!(busy(&run, &native), None);
    run.environment.vcpus = 2;
    assert!((busy(&run, &guest).unwrap() - one / 2.0).abs() < 1e-9);
}

/// A sample that a page cache should have served and did not is reported, and not compared. A warm one says nothing
/// about disks.
#[test]
fn what_was_not_warm_is_in_no_pair() {
    let warm = |mut cell: Cell| {
        let crate::cell::Subject::Disk { state, .. } = &mut cell.lead.subject else { panic!("it is on a disk") };
        *state = Some(crate::cell::State::WarmHost);
        cell
    };
    let (cell, base) = (warm(virtio("device", "seq-read")), warm(native("device", "seq-read")));
    let mut run = bench().cell(base.clone(), 8e9).cell(cell.clone(), 4e9).run();
    let cold = |s: &&mut Sample| (s.cell == cell && s.round == 1) || (s.cell == base && s.round == 4);
    for sample in run.samples.iter_mut().filter(cold) {
        sample.marks.push(Mark::NotWarm);
        sample.result.amend(|work| work.seconds *= 10.0);
    }
    let s = summarise(&run);
    let share = s.share(&cell.key()).unwrap();
    assert_eq!((share.share_ratio.pairs, (share.share_ratio.value * 10.0).round()), (4, 5.0));
    let row = s.cell(&cell.key()).unwrap();
    assert_eq!((row.samples, row.marks[&Mark::NotWarm]), (6, 1));
    assert!(s.headlines().all(|headline| !headline.cells.contains(&cell.key())));
    let measured = crate::facts::facts_of(&run, &s).measured.unwrap();
    let left = measured.cells.iter().map(|row| &row.cell).chain(measured.shares.iter().map(|share| &share.cell));
    assert!(left.chain(measured.gains.iter().map(|gain| &gain.after)).all(|cell| !cell.is_warm()));
}

/// A sample with a device stall stays in the share, which says so, on either side.
#[test]
fn a_share_tells_its_stalls_and_keeps_them() {
    let (cell, base) = (virtio("device", "seq-write"), native("device", "seq-write"));
    let clean = bench().run();
    let mut run = clean.clone();
    let mut stall = |cell: &Cell, round: u32| {
        let sample = run.samples.iter_mut().find(|s| s.cell == *cell && s.round == round).unwrap();
        sample.marks.push(Mark::Stalled);
    };
    stall(&cell, 1);
    stall(&base, 3);
    let s = summarise(&run);
    let share = s.shares.iter().find(|share| share.cell == cell).unwrap();
    assert_eq!(share.stalled_rounds, [1, 3]);
    assert_eq!(share.stalls().unwrap(), "a device stall in rounds 1, 3");
    assert_eq!(s.cell(&cell.key()).unwrap().marks[&Mark::Stalled], 1);
    let lines = &s.headline.as_ref().unwrap().lines;
    assert!(lines.iter().any(|line| line.contains("seq-write") && line.contains("a device stall")), "{lines:?}");
    let others: Vec<_> = s.shares.iter().filter(|share| share.cell.workload() != "seq-write").collect();
    assert!(others.iter().all(|share| share.stalls().is_none()) && !others.is_empty());
    // The figures are the same as without the mark.
    let of = |s: &Summary| s.shares.iter().find(|share| share.cell == cell).unwrap().share_ratio;
    assert_eq!(of(&s), of(&summarise(&clean)));
}

#[test]
fn a_run_without_samples_is_an_empty_summary() {
    let s = summarise(&Bench::new().run());
    assert!(s.cells.is_empty() && s.shares.is_empty() && s.headline.is_none());
}

#[test]
fn a_disturbed_round_is_flagged_and_kept() {
    let mut run = bench().rounds(10).run();
    let slow = run.samples.iter_mut().find(|s| s.cell == virtio("device", "seq-write") && s.round == 4).unwrap();
    slow.result.amend(|w| w.seconds *= 20.0);
    let s = summarise(&run);
    let key = virtio("device", "seq-write").key();
    assert_eq!(s.cell(&key).unwrap().outlier_rounds, [4]);
    assert_eq!(s.share(&key).unwrap().outlier_rounds, [4]);
    assert_eq!(s.share(&key).unwrap().share_ratio.pairs, 10);
}

/// Shares as the schedule uses them.
fn live(run: &Run, baseline: &Baseline) -> BTreeMap<String, Ratio> {
    let rule = run.study.repeat.convergence();
    let share = |cell: &Cell| Some((cell.key(), share_of(&run.samples, &run.workloads, baseline, cell, &rule)?));
    shares::cells(&run.samples).into_iter().filter_map(share).collect()
}

#[test]
fn the_scheduler_sees_the_shares_that_the_summary_shows() {
    let run = bench().run();
    let s = summarise(&run);
    let live = live(&run, &Baseline::Native);
    assert_eq!(live.len(), s.shares.len());
    for share in &s.shares {
        assert_eq!(live[&share.key], share.share_ratio);
    }
}

#[test]
fn noise_pairs_neighbouring_rounds() {
    let all = noise(&Bench::new().cell(native("device", "seq-write"), 8e8).rounds(12).scatter(0.05).run());
    assert_eq!(all.len(), 1);
    let n = all[0].noise;
    assert_eq!(n.ratio.pairs, 6);
    // Six ratios of two samples with 5 % scatter each: about 7 % a pair, 3 % the mean, times t.
    assert!((0.01..0.2).contains(&n.smallest_difference_ratio), "{n:?}");
}

#[test]
fn comparison_names_the_environment_first() {
    let a = bench().run();
    let mut b = bench().cell(native("sparse", "seq-read"), 5e8).seed(8).run();
    b.environment.kernel = "6.18".into();
    for s in &mut b.samples {
        if s.cell == virtio("device", "seq-write") {
            s.result.amend(|w| w.seconds *= 1.5);
        }
    }
    let c = compare(&a, &b);
    assert_eq!(c.differences, [compare::Difference { what: "kernel".into(), a: "6.1".into(), b: "6.18".into() }]);
    let cell = |key: &str| c.cells.iter().find(|c| c.key == key).unwrap();
    let slower = cell(&virtio("device", "seq-write").key());
    assert_eq!(slower.verdict, "slower");
    assert!((slower.figure_ratio.value - 1.0 / 1.5).abs() < 0.02);
    assert_eq!(cell("device/native/seq-write").verdict, "no difference shown");
    assert_eq!(c.only_b, ["sparse/native/seq-read"]);
    assert!(c.only_a.is_empty());
}

/// Numbers of loop devices do not matter; names of other disks do.
#[test]
fn numbers_of_loop_devices_are_no_difference() {
    let on = |file: &str| {
        let mut run = bench().run();
        let settings = BTreeMap::from([("file".to_owned(), file.to_owned())]);
        run.effective.insert("virtio-blk,none,native".into(), settings);
        run
    };
    assert_eq!(compare(&on("/dev/loop0"), &on("/dev/loop17")).differences, []);
    for (a, b) in [("/dev/loop0", "/dev/vda"), ("/srv/a", "/srv/b"), ("/dev/vda1", "/dev/vda2"), ("x", "/dev/loop1")] {
        let differences = compare(&on(a), &on(b)).differences;
        assert_eq!(differences.len(), 1, "{a} {b}: {differences:?}");
        assert_eq!((&*differences[0].a, &*differences[0].b), (a, b));
    }
}

/// A field may be absent on either side.
#[test]
fn what_only_one_environment_has_is_told() {
    let (a, mut b) = (bench().run(), bench().run());
    b.environment.programs.insert("fio".into(), "fio-3.36".into());
    // What was measured of the machine is never the same, and no setting.
    b.environment.sample_interrupt_seconds = Some(8e-6);
    b.environment.at_rest = vec![AtRest { started_unix: 1.0, seen: Vec::new(), marks: Vec::new() }];
    let shown = |what: &str, a: &str, b: &str| compare::Difference { what: what.into(), a: a.into(), b: b.into() };
    let fio = "{\"fio\":\"fio-3.36\"}";
    assert_eq!(compare(&a, &b).differences, [shown("programs", "(none)", fio)]);
    assert_eq!(compare(&b, &a).differences, [shown("programs", fio, "(none)")]);
}

#[test]
fn json_carries_a_version_and_unit_suffixes() {
    let value = serde_json::to_value(summarise(&bench().run())).unwrap();
    assert_eq!(value["schema_version"], SCHEMA_VERSION);
    let cell = &value["cells"][0];
    assert!(cell["bandwidth_bytes_per_second"]["value"].is_f64() && cell["latency_p99_seconds"]["value"].is_f64());
    assert!(value["shares"][0]["share_ratio"]["interval"]["low"].is_f64());
    let back: Summary = serde_json::from_value(value).unwrap();
    assert_eq!(back.cells.len(), 5);
}

#[test]
fn the_halves_of_a_round_that_was_broken_off_are_no_pair() {
    let mut run = bench().run();
    let guest = virtio("device", "seq-write");
    let whole = summarise(&run).share(&guest.key()).unwrap().share_ratio.pairs;
    // The guest's half of the last round was measured after resuming, in a new boot.
    let last = run.samples.iter().map(|s| s.round).max().unwrap();
    for s in run.samples.iter_mut().filter(|s| s.round == last && s.cell == guest) {
        s.boot += 1;
    }
    assert_eq!(summarise(&run).share(&guest.key()).unwrap().share_ratio.pairs, whole - 1);
}
