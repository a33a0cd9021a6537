//! Headlines and verdicts.

use super::*;
use crate::result::Accel;
use crate::stats::Interval;

#[test]
fn the_headline_is_the_geometric_mean_and_names_its_cells() {
    let s = summarise(&bench().run());
    let h = s.headline.unwrap();
    assert_eq!(h.guest, "device/qemu/virtio-blk,none,native");
    assert!((h.share_ratio.value - (0.25f64 * 0.4).sqrt()).abs() < 0.01);
    assert_eq!(h.cells.len(), 2);
    let figure = format!("A reference guest made by vmio gets {} of ", percent(&h.share_ratio));
    assert!(h.converged && h.text.starts_with(&figure), "{}", h.text);
    assert!(h.text.contains("durable-append, seq-write") && !h.text.contains("not converged"));
    assert_eq!(h.lines.len(), 2);
    // The interval is narrower than the range of the shares, which is reported.
    let said = h.about_interval.unwrap();
    assert_eq!(said, "95 % interval over 6 rounds; the 2 workloads get 25 to 40 %.");
    let one = Bench::new().cell(native("device", "seq-write"), 800e6).cell(virtio("device", "seq-write"), 400e6).run();
    assert_eq!(summarise(&one).headline.unwrap().about_interval, None);
    assert_eq!(summarise(&bench().rounds(2).run()).headline.unwrap().about_interval, None, "there is none yet");

    let mut run = bench().run();
    run.environment.cap_ratio = Some(0.25);
    let text = summarise(&run).headline.unwrap().text;
    assert!(text.contains(" of a cap of 25 % of this host (--gentle): "), "{text}");
    // A guest that reaches the cap is faster than its share says.
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
    use crate::modelled::{ModelAccuracy, ModelledDisk};
    let disk = ModelledDisk::parse("40MB/s,overhead=100us").unwrap();
    let mut run = bench().run();
    run.environment.modelled = Some(disk.clone());
    let s = summarise(&run);
    let text = s.headline.unwrap().text;
    assert!(text.contains(" of a modelled disk of 40 MB/s: ") && !text.contains("this host"), "{text}");
    let shown = s.statement.unwrap();
    assert!(shown.contains("The disk was modelled, 40 MB/s, 100 µs a request, 8 ms a seek"), "{shown}");
    assert!(shown.contains("What may not: ") && !shown.contains("not kept"), "{shown}");
    // More than one late request in a hundred is reported.
    let kept = |late_requests| ModelAccuracy { requests: 1000, late_requests, mean_lateness_microseconds: 9.0 };
    let of = |late| Some(ModelledDisk { kept: Some(kept(late)), ..disk.clone() });
    run.environment.modelled = of(10);
    assert!(!summarise(&run).statement.unwrap().contains("was not kept"));
    run.environment.modelled = of(11);
    let shown = summarise(&run).statement.unwrap();
    assert!(shown.contains("was not kept: 11 of 1000 requests (1.1 %)"), "{shown}");
    run.environment.cap_ratio = Some(0.25);
    let text = summarise(&run).headline.unwrap().text;
    assert!(text.contains("a cap of 25 % of a modelled disk of 40 MB/s (--gentle)"), "{text}");
    run.environment.cap_ratio = None;
    // The model's accuracy makes no other disk; being modelled does.
    let mut other = run.clone();
    other.environment.modelled = of(0);
    assert_eq!(compare(&run, &other).differences, vec![]);
    other.environment.modelled = None;
    let shown = compare(&run, &other).differences;
    assert_eq!((shown[0].what.as_str(), shown[0].b.as_str()), ("modelled", "(none)"));
    assert_eq!(shown[0].a, "40 MB/s, 100 µs a request, 8 ms a seek");
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
    // The line below refers to an existing interval.
    let h = summarise(&bench().rounds(4).scatter(0.4).run()).headline.unwrap();
    assert!(!h.converged && h.about_interval.as_ref().unwrap().contains("over 4 rounds"), "{h:?}");
    let figure = format!(" gets so far about {} of this host: ", percent(&h.share_ratio));
    assert!(h.text.contains(&figure), "{}", h.text);
    let wide = summarise(&bench().scatter(0.4).run());
    assert!(wide.shares.iter().any(|s| s.verdict.contains("points where ±5.0 are required")));
    assert!(few.shares.iter().all(|s| !s.converged));
}

/// A share of a few percent is not shown as `3 % (3 to 3 %)`.
#[test]
fn an_interval_has_as_many_decimals_as_it_needs() {
    let of = |value: f64, low: f64, high: f64| {
        percent(&Ratio { value, interval: Some(Interval { low, high }), pairs: 5, boots: 5 })
    };
    assert_eq!(of(0.57, 0.52, 0.61), "57 % (52 to 61 %)");
    assert_eq!(of(0.03, 0.029, 0.031), "3.0 % (2.9 to 3.1 %)");
    assert_eq!(of(0.2202, 0.2201, 0.2204), "22.02 % (22.01 to 22.04 %)");
}

/// A study may ask for two pairs: what is known from them has its interval.
#[test]
fn a_share_of_two_pairs_that_is_known_has_its_interval() {
    let mut run = bench().rounds(2).run();
    (run.study.repeat.min_pairs, run.study.repeat.min_boots, run.study.repeat.half_width) = (2, 1, 10.0);
    let h = summarise(&run).headline.unwrap();
    assert!(h.converged && h.lines.iter().all(|line| !line.contains("no interval")), "{h:?}");
}

#[test]
fn what_is_just_too_wide_differs_from_what_is_required() {
    let rule = Convergence::default();
    let shown = |half: f64| {
        let interval = Some(Interval { low: 0.5 - half, high: 0.5 + half });
        shares::verdict(&Ratio { value: 0.5, interval, pairs: 5, boots: 5 }, &rule)
    };
    assert_eq!(shown(0.0504), "not converged: ±5.04 points where ±5.00 are required");
    assert_eq!(shown(0.072), "not converged: ±7.2 points where ±5.0 are required");
    assert_eq!(shown(0.0499), "converged");
}

/// With two pairs no width of thousands of points is shown beside "no interval yet".
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
    let shown: Vec<(&str, &str)> = s.headlines().map(|h| (h.side.as_str(), h.guest.as_str())).collect();
    assert_eq!(shown, [("qemu", "device/qemu/virtio-blk,none,native"), ("container", "device/container")]);
    let container = s.headlines().nth(1).unwrap();
    let figure = format!("A container made by vmio gets {} of ", percent(&container.share_ratio));
    assert!(container.text.starts_with(&figure), "{}", container.text);
    assert!(!container.text.contains("emulation"), "{}", container.text);
    assert!(!container.lines.iter().any(|line| line.contains("in the guest")), "{:?}", container.lines);
    assert!(s.headline.unwrap().text.contains("under software emulation (TCG)"));
}
