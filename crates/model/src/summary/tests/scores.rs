//! Scores of groups of workloads, and those that a paper prints.

use super::made::{Made, near, traits};
use super::*;
use crate::cell::{Side, Subject};
use crate::figure::Figure;
use crate::paper::{Paper, Verdict, scores};
use crate::result::{Accel, Skipped, WorkloadTraits};
use crate::testing::Bench;

fn of_group(name: &str, group: Option<&str>) -> WorkloadTraits {
    let rate = Figure::rate("throughput", Unit::OperationsPerSecond);
    WorkloadTraits { group: group.map(str::to_owned), ..traits(name, "throughput", vec![rate]) }
}

fn on(side: &str, workload: &str) -> Cell {
    Cell::of(Side::of(side), Subject::Machine, workload)
}

/// A guest with these shares.
fn made(shares: &[(&str, Option<&str>, f64)]) -> Made {
    let made = Made::of(shares.iter().map(|(name, group, _)| of_group(name, *group)).collect());
    shares.iter().fold(made, |made, (name, _, share)| {
        let rate = |value: f64| vec![Reading::scalar("throughput", value)];
        made.cell(&on("native", name), &[&rate(1e6)]).cell(&on("qemu", name), &[&rate(1e6 * share)])
    })
}

const FOUR: [(&str, Option<&str>, f64); 5] = [
    ("aes", Some("integer"), 0.4),
    ("zip", Some("integer"), 0.9),
    ("copy", Some("stream"), 0.5),
    ("free", None, 0.01),
    ("lu", Some("floating-point"), 0.8),
];

#[test]
fn a_score_is_the_geometric_mean_of_its_members_and_each_group_weighs_alike() {
    let s = summarise(&made(&FOUR).run);
    let [guest] = s.scores.as_slice() else { panic!("{:#?}", s.scores) };
    assert_eq!(guest.guest, "machine/qemu");
    let shown: Vec<(&str, usize)> = guest.groups.iter().map(|g| (g.group.as_str(), g.members.len())).collect();
    assert_eq!(shown, [("integer", 2), ("stream", 1), ("floating-point", 1)], "in the order of the run, and no other");
    let integer = &guest.groups[0];
    assert!(near(integer.score_ratio.unwrap().value, 0.6) && integer.converged, "{integer:#?}");
    // A member has its cell's share, and a score of one member is the same.
    for member in guest.groups.iter().flat_map(|g| &g.members) {
        assert_eq!(member.share_ratio, s.share(&member.key).unwrap().share_ratio, "{}", member.workload);
    }
    let alone = &guest.groups[1];
    assert!((alone.score_ratio.unwrap().value - alone.members[0].share_ratio.value).abs() < 1e-9);
    // Cube root of 0.6, 0.5 and 0.8: not the fourth root of the members.
    assert!(near(guest.whole_ratio.unwrap().value, (0.6f64 * 0.5 * 0.8).cbrt()) && guest.whole_converged, "{guest:#?}");
    let read: Summary = serde_json::from_value(serde_json::to_value(&s).unwrap()).unwrap();
    assert_eq!(read.scores, s.scores);
}

#[test]
fn what_is_in_no_group_has_no_score() {
    let s = summarise(&made(&[("aes", Some("integer"), 0.4), ("free", None, 0.5)]).run);
    assert!(s.scores.is_empty(), "one workload is its own share: {:#?}", s.scores);
    assert!(summarise(&Bench::new().run()).scores.is_empty());
    assert!(serde_json::to_value(&s).unwrap().get("scores").is_none());
}

#[test]
fn a_score_names_what_it_lacks() {
    let mut run = made(&FOUR).run;
    let lost = |workload: &str| Skipped { cell: on("qemu", workload), reason: "FIXTURE".into() };
    run.samples.retain(|s| !["zip", "lu"].contains(&s.cell.workload()) || s.cell.is_native());
    run.skipped = vec![lost("zip"), lost("lu")];
    let s = summarise(&run);
    let [integer, _, floating] = s.scores[0].groups.as_slice() else { panic!("{:#?}", s.scores) };
    assert_eq!((integer.lacks.as_slice(), integer.members.len()), (["zip".to_owned()].as_slice(), 1));
    assert_eq!((floating.lacks.len(), floating.score_ratio), (1, None));
    assert!(!floating.converged && floating.verdict.contains("no round"), "{floating:#?}");
    assert!(near(s.scores[0].whole_ratio.unwrap().value, (0.4f64 * 0.5).sqrt()), "of those that there are");
}

const PAPER: &str = r#"
key = "x"
citation = "x"
section = "x"
studies = ["x"]
circumstance = []
score = [
  { group = "integer", word = "I", ratio = 0.68, tolerance = 0.1, citation = "x" },
  { group = "stream", word = "S", ratio = 0.97, tolerance = 0.1, citation = "x" },
  { group = "floating-point", word = "F", ratio = 0.9, tolerance = 0.1, citation = "x" },
  { group = "memory", word = "M", ratio = 0.97, tolerance = 0.1, citation = "x" },
]
"#;

#[test]
fn a_published_score_is_judged_by_the_interval_and_never_under_emulation() {
    let paper = Paper::parse(PAPER).unwrap();
    let verdicts = |run: &Run| -> Vec<(Verdict, String)> {
        scores(&paper, &summarise(run)).into_iter().map(|s| (s.verdict, s.reason)).collect()
    };
    let mut run = made(&FOUR).run;
    run.environment.accel = Some(Accel::Kvm);
    let [integer, stream, floating, memory] = &verdicts(&run)[..] else { panic!() };
    assert_eq!((integer.0, stream.0, floating.0), (Verdict::Holds, Verdict::Fails, Verdict::NotDecidable));
    assert!(floating.1.contains("partly within 10 points"), "{}", floating.1);
    assert!(memory.0 == Verdict::NotDecidable && memory.1.contains("no score of the group"), "{}", memory.1);
    run.environment.accel = Some(Accel::Tcg);
    let emulated = verdicts(&run);
    assert!(emulated.iter().all(|(verdict, _)| *verdict == Verdict::NotDecidable));
    assert!(emulated[0].1.contains("emulated (TCG)"), "{}", emulated[0].1);
    // Without a score each is named once.
    run.workloads.iter_mut().for_each(|w| w.group = None);
    assert_eq!(verdicts(&run).len(), 4);
    for (bad, says) in [("ratio = 0.68", "ratio = 0.0"), ("\"stream\"", "\"integer\"")] {
        let refused = Paper::parse(&PAPER.replace(bad, says)).unwrap_err().to_string();
        assert!(refused.contains("one a group"), "{refused}");
    }
}
