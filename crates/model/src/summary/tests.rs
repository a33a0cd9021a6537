//! Summaries of made-up runs with known figures.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::figure::Reading;
use crate::result::{Accel, CpuUse, Mark, ProbeResult, Sample, Watched};
use crate::run::Run;
use crate::stats::Interval;
use crate::testing::{Bench, guest, native, virtio};

mod actors;
mod baselines;
mod figures;
mod made;
mod scores;

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
fn rows_carry_units_and_marks() {
    let cell = virtio("device", "seq-write");
    let s = summarise(&bench().device(&cell, 131_072.0, 2.5, 0.8).mark(&cell, Mark::HostBusy).run());
    let row = s.cell(&cell.key()).unwrap();
    assert_eq!((row.samples, row.boots), (6, 3));
    let device = row.device.unwrap();
    assert!((device.avgrq_sz_sectors.value - 256.0).abs() < 1e-9 && (device.queue_depth.value - 2.5).abs() < 1e-9);
    assert_eq!(row.marks, BTreeMap::from([(Mark::HostBusy, 6)]));
    // 0.5 s of host CPU a sample of 1.5 s at 320 MB/s: 0.48 GB.
    assert!((row.cpu.host_seconds_per_gigabyte - 0.5 / 0.48).abs() < 0.05);
    assert!((row.cpu.role_seconds_per_gigabyte["vcpu"] - 0.25 / 0.48).abs() < 0.03);
    assert!(!row.latency_first);
    assert!(s.cell(&virtio("device", "durable-append").key()).unwrap().latency_first);
}

/// The whole is by the clock of its parts where all samples of the cell have it, and by ticks where one has not.
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

/// How busy the guest's processors were, by the clock of processes: 0.25 s of a vCPU in a second that was watched.
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

/// What was to be read from a page cache and was not is shown, and set against nothing. What was says nothing of disks.
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

/// A sample with a device stall stays in the share, which says so, whichever side has it.
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
    // The figures are what they were without the mark.
    let of = |s: &Summary| s.shares.iter().find(|share| share.cell == cell).unwrap().share_ratio;
    assert_eq!(of(&s), of(&summarise(&clean)));
}

#[test]
fn the_headline_is_the_geometric_mean_and_names_its_cells() {
    let s = summarise(&bench().run());
    let h = s.headline.unwrap();
    assert_eq!(h.guest, "device/qemu/virtio-blk,none,native");
    assert!((h.share_ratio.value - (0.25f64 * 0.4).sqrt()).abs() < 0.01);
    assert_eq!(h.cells.len(), 2);
    let figure = format!("A reference guest made by vmio gets {:.0} % (", h.share_ratio.value * 100.0);
    assert!(h.converged && h.text.starts_with(&figure), "{}", h.text);
    assert!(h.text.contains("durable-append, seq-write") && !h.text.contains("not converged"));
    assert_eq!(h.lines.len(), 2);
    // The interval is narrower than what it averages is apart, and that is said.
    let said = h.about_interval.unwrap();
    assert_eq!(
        said,
        "The interval is that of the mean, over its 6 rounds; the shares of its 2 workloads lie between 25 and 40 %."
    );
    let one = Bench::new().cell(native("device", "seq-write"), 800e6).cell(virtio("device", "seq-write"), 400e6).run();
    assert_eq!(summarise(&one).headline.unwrap().about_interval, None);
    assert_eq!(summarise(&bench().rounds(2).run()).headline.unwrap().about_interval, None, "there is none yet");

    let mut run = bench().run();
    run.environment.cap_ratio = Some(0.25);
    let text = summarise(&run).headline.unwrap().text;
    assert!(text.contains(" of a cap of 25 % of this host (--gentle): "), "{text}");
    // A guest that reaches the cap gets more than the share of it says.
    let mut run =
        Bench::new().cell(native("device", "seq-write"), 800e6).cell(virtio("device", "seq-write"), 784e6).run();
    run.environment.cap_ratio = Some(0.25);
    let text = summarise(&run).headline.unwrap().text;
    assert!(
        text.starts_with("A reference guest made by vmio reaches a cap of 25 % of this host (--gentle): at"),
        "{text}"
    );
}

#[test]
fn a_modelled_disk_is_said_in_the_headline_beside_it_and_in_comparisons() {
    use crate::modelled::{Kept, ModelledDisk};
    let disk = ModelledDisk::parse("40MB/s,overhead=100us").unwrap();
    let mut run = bench().run();
    run.environment.modelled = Some(disk.clone());
    let s = summarise(&run);
    let text = s.headline.unwrap().text;
    assert!(text.contains(" of a modelled disk of 40 MB/s: ") && !text.contains("this host"), "{text}");
    let told = s.statement.unwrap();
    assert!(told.contains("The disk was modelled, 40 MB/s, 100 µs a request, 8 ms a seek"), "{told}");
    assert!(told.contains("What may not: ") && !told.contains("not kept"), "{told}");
    // Late by more than one request in a hundred: the run says so.
    let kept = |late_requests| Kept { requests: 1000, late_requests, mean_lateness_microseconds: 9.0 };
    let of = |late| Some(ModelledDisk { kept: Some(kept(late)), ..disk.clone() });
    run.environment.modelled = of(10);
    assert!(!summarise(&run).statement.unwrap().contains("was not kept"));
    run.environment.modelled = of(11);
    let told = summarise(&run).statement.unwrap();
    assert!(told.contains("was not kept: 11 of 1000 requests (1.1 %)"), "{told}");
    run.environment.cap_ratio = Some(0.25);
    let text = summarise(&run).headline.unwrap().text;
    assert!(text.contains("a cap of 25 % of a modelled disk of 40 MB/s (--gentle)"), "{text}");
    run.environment.cap_ratio = None;
    // How well it was kept makes no other disk; being one does.
    let mut other = run.clone();
    other.environment.modelled = of(0);
    assert_eq!(compare(&run, &other).differences, vec![]);
    other.environment.modelled = None;
    let told = compare(&run, &other).differences;
    assert_eq!((told[0].what.as_str(), told[0].b.as_str()), ("modelled", "(none)"));
    assert_eq!(told[0].a, "40 MB/s, 100 µs a request, 8 ms a seek");
}

#[test]
fn what_did_not_converge_says_so() {
    let few = summarise(&bench().rounds(2).run());
    let h = few.headline.unwrap();
    assert!(
        !h.converged && h.text.contains("not converged: 2 of at least 5 pairs, 1 of at least 3 boots"),
        "{}",
        h.text
    );
    assert!(h.text.contains(" gets so far about 31 % of this host: "), "{}", h.text);
    // What the line below says of the interval is of one that is there.
    let h = summarise(&bench().rounds(4).scatter(0.4).run()).headline.unwrap();
    assert!(!h.converged && h.about_interval.as_ref().unwrap().contains("over its 4 rounds"), "{h:?}");
    let Interval { low, high } = h.share_ratio.interval.unwrap();
    let (value, low, high) = (h.share_ratio.value * 100.0, low * 100.0, high * 100.0);
    let figure = format!(" gets so far about {value:.0} % ({low:.0} to {high:.0} %) of this host: ");
    assert!(h.text.contains(&figure), "{}", h.text);
    let wide = summarise(&bench().scatter(0.4).run());
    assert!(wide.shares.iter().any(|s| s.verdict.contains("points where ±5.0 are required")));
    assert!(few.shares.iter().all(|s| !s.converged));
}

#[test]
fn what_is_just_too_wide_differs_from_what_is_required() {
    let rule = Convergence::default();
    let told = |half: f64| {
        let interval = Some(Interval { low: 0.5 - half, high: 0.5 + half });
        shares::verdict(&Ratio { value: 0.5, interval, pairs: 5, boots: 5 }, &rule)
    };
    assert_eq!(told(0.0504), "not converged: ±5.04 points where ±5.00 are required");
    assert_eq!(told(0.072), "not converged: ±7.2 points where ±5.0 are required");
    assert_eq!(told(0.0499), "converged");
}

/// Where a study is content with two pairs, no width of thousands of points is shown beside "no interval yet".
#[test]
fn two_pairs_are_too_few_for_an_interval() {
    let mut run = bench().rounds(2).scatter(0.4).run();
    (run.study.repeat.min_pairs, run.study.repeat.min_boots) = (2, 1);
    let s = summarise(&run);
    let wide: Vec<&Share> = s.shares.iter().filter(|s| !s.converged).collect();
    assert!(!wide.is_empty());
    assert!(wide.iter().all(|s| s.verdict == "not converged: two pairs are too few for an interval"), "{wide:?}");
    let text = s.headline.unwrap().text;
    assert!(text.contains("too few for an interval") && !text.contains("points"), "{text}");
}

#[test]
fn emulation_is_said_in_the_headline_and_beside_it() {
    let mut run = bench().run();
    run.environment.accel = Some(Accel::Tcg);
    let s = summarise(&run);
    assert!(s.emulated && s.statement.unwrap().contains("software emulation"));
    assert!(s.headline.unwrap().text.contains("under software emulation (TCG)"));
}

#[test]
fn each_kind_of_guest_has_a_headline_and_a_container_is_never_emulated() {
    let contained = |workload: &str| Cell::on("container", "device", None, workload);
    let mut run = bench().cell(contained("durable-append"), 950.0).cell(contained("seq-write"), 380e6).run();
    run.environment.accel = Some(Accel::Tcg);
    let s = summarise(&run);
    let told: Vec<(&str, &str)> = s.headlines().map(|h| (h.side.as_str(), h.guest.as_str())).collect();
    assert_eq!(told, [("qemu", "device/qemu/virtio-blk,none,native"), ("container", "device/container")]);
    let container = s.headlines().nth(1).unwrap();
    assert!(container.text.starts_with("A container made by vmio gets 67 % ("), "{}", container.text);
    assert!(!container.text.contains("emulation"), "{}", container.text);
    assert!(!container.lines.iter().any(|line| line.contains("through the guest")), "{:?}", container.lines);
    assert!(s.headline.unwrap().text.contains("under software emulation (TCG)"));
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

/// Shares as the scheduler sees them.
fn live(run: &Run, baseline: &Baseline) -> BTreeMap<String, Ratio> {
    let share = |cell: &Cell| Some((cell.key(), share_of(&run.samples, &run.workloads, baseline, cell)?));
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

/// Which loop device was free says nothing of the machine; a disk of another name does.
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

/// A field may be left out where it says nothing, on either side.
#[test]
fn what_only_one_environment_has_is_told() {
    let (a, mut b) = (bench().run(), bench().run());
    b.environment.programs.insert("fio".into(), "fio-3.36".into());
    let told = |what: &str, a: &str, b: &str| compare::Difference { what: what.into(), a: a.into(), b: b.into() };
    let fio = "{\"fio\":\"fio-3.36\"}";
    assert_eq!(compare(&a, &b).differences, [told("programs", "(none)", fio)]);
    assert_eq!(compare(&b, &a).differences, [told("programs", fio, "(none)")]);
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
    // The guest's half of the last round was measured after a resume, in a new boot.
    let last = run.samples.iter().map(|s| s.round).max().unwrap();
    for s in run.samples.iter_mut().filter(|s| s.round == last && s.cell == guest) {
        s.boot += 1;
    }
    assert_eq!(summarise(&run).share(&guest.key()).unwrap().share_ratio.pairs, whole - 1);
}
