//! The contract of all rules, checked for the whole list.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::change::Change;
use super::{Check, Finding, Kinds, Need, RULES, Rule, example, findings};
use crate::facts::{Disk, Facts, Provenance, Subject};
use crate::stats::{Interval, Ratio};

mod proofs;

fn ask(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    if rule.needs.met(facts) { rule.check(facts) } else { Vec::new() }
}

/// All rules, and the example of `docs/rules.md`.
fn all() -> impl Iterator<Item = &'static Rule> {
    RULES.iter().copied().chain([&example::RULE])
}

/// Rules whose findings have a cause that is the host's.
pub(super) const OF_HOST: &[&str] = &[
    "conntrack-full",
    "emulation-though-kvm",
    "host-clock-source",
    "ksm",
    "shared-journal",
    "slow-governor",
    "uplink-trouble",
];

/// Rules that examine measurements.
fn measuring() -> impl Iterator<Item = &'static &'static Rule> {
    RULES.iter().filter(|r| r.needs != Need::Settings)
}

#[test]
fn ids_are_distinct_and_kebab_case_and_documented() {
    let docs = include_str!("../../../../docs/rules.md");
    let ids: BTreeSet<&str> = RULES.iter().map(|r| r.id).collect();
    assert_eq!(ids.len(), RULES.len());
    for rule in RULES {
        assert!(rule.id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{}", rule.id);
        assert!(!rule.references.is_empty() && !rule.title.is_empty(), "{}", rule.id);
        assert!(docs.contains(&format!("`{}`", rule.id)), "docs/rules.md does not name {}", rule.id);
    }
}

/// Consistency of entries: only a rule that examines disks can have a measurable change, and both sides of a published
/// effect matter.
#[test]
fn what_an_entry_says_of_its_change_fits_where_it_looks() {
    for rule in all() {
        let of_disks = rule.checks.iter().any(|c| matches!(c, Check::Disk(_) | Check::Guests(_)));
        assert!(rule.remedy.is_none() || of_disks, "{} has a remedy for no disk that it looks at", rule.id);
        if let Some(speaks) = rule.published {
            let cell = |driver: &str, target: &str| crate::paper::Pattern {
                guest: "qemu".into(),
                target: Some(target.into()),
                driver: Some(driver.into()),
                ..crate::paper::Pattern::default()
            };
            let same = cell("virtio-blk", "device");
            assert!(!speaks(&same, &same), "{}", rule.id);
        }
    }
    assert!(RULES.iter().any(|r| r.kinds == Kinds::Any));
    assert!(RULES.iter().filter(|r| r.remedy.is_some()).count() >= 12);
}

#[test]
fn each_rule_fires_on_its_fixture_and_keeps_silent_on_the_other() {
    for rule in all() {
        let found = ask(rule, &(rule.fixture.0)());
        assert!(!found.is_empty(), "{} did not fire", rule.id);
        for finding in &found {
            assert_eq!(finding.rule, rule.id);
            assert_eq!(finding.of_host, OF_HOST.contains(&rule.id), "{}", rule.id);
            assert!(!finding.cause.is_empty() && !finding.subject.to_string().is_empty());
            // Findings from settings have no figures and name the sources.
            match rule.needs {
                Need::Settings => assert!(!finding.evidence.is_empty(), "{} names no setting", rule.id),
                _ => assert!(!finding.figures.is_empty(), "{} cites no figure", rule.id),
            }
            assert!(finding.evidence.iter().all(|e| !e.value.is_empty() && !e.from.is_empty()), "{finding:#?}");
            for cited in &finding.figures {
                assert!(cited.interval.is_none_or(|i| i.contains(cited.value)), "{}: {cited:?}", rule.id);
            }
            let change = &finding.change;
            for text in [&change.what, &change.qemu, &change.libvirt, &change.proxmox] {
                assert!(!text.trim().is_empty(), "{} leaves a change out", rule.id);
            }
        }
        let silent = ask(rule, &(rule.fixture.1)());
        assert!(silent.is_empty(), "{} fired: {silent:#?}", rule.id);
    }
}

/// A rule that needs settings only cites counts, never a figure with an interval.
fn keeps_silent(rule: &Rule, facts: &Facts) {
    let found = ask(rule, facts);
    match rule.needs {
        Need::AnySettings => assert!(
            found.iter().all(|f| f.cost_ratio.is_none() && f.figures.iter().all(|c| c.interval.is_none())),
            "{}",
            rule.id
        ),
        _ => assert_eq!(found, [], "{}", rule.id),
    }
}

#[test]
fn nothing_is_cited_that_did_not_converge() {
    for rule in measuring() {
        let mut facts = (rule.fixture.0)();
        let m = facts.measured.as_mut().unwrap();
        m.gains.iter_mut().for_each(|g| g.citable = false);
        m.shares.iter_mut().for_each(|s| s.converged = false);
        keeps_silent(rule, &facts);
    }
}

#[test]
fn nothing_is_cited_whose_interval_holds_the_threshold() {
    let wide = Some(Interval { low: 1e-3, high: 1e9 });
    let widen = |r: &mut Ratio| r.interval = wide;
    for rule in measuring() {
        let mut facts = (rule.fixture.0)();
        let m = facts.measured.as_mut().unwrap();
        m.gains.iter_mut().for_each(|g| widen(&mut g.ratio));
        m.shares.iter_mut().for_each(|s| widen(&mut s.share_ratio));
        keeps_silent(rule, &facts);
    }
}

#[test]
fn without_facts_every_rule_abstains() {
    assert_eq!(findings(&Facts::default()), []);
    for rule in all() {
        let mut facts = (rule.fixture.0)();
        facts.measured = None;
        (facts.disks, facts.nics, facts.processors) = Default::default();
        assert_eq!(ask(rule, &facts), [], "{}", rule.id);
        if rule.needs == Need::DeviceCounters {
            let mut blind = (rule.fixture.0)();
            blind.measured.as_mut().unwrap().cells.iter_mut().for_each(|c| c.device = None);
            assert_eq!(ask(rule, &blind), [], "{}", rule.id);
        }
    }
}

#[test]
fn findings_survive_json() {
    for rule in all() {
        for finding in ask(rule, &(rule.fixture.0)()) {
            let json = serde_json::to_value(&finding).unwrap();
            assert_eq!((&json["rule"], &json["cause"]), (&finding.rule.into(), &finding.cause.into()));
            assert_eq!(json["subject"], finding.subject.to_string());
            // Without the part that combines changes, which is for running guests only.
            let back: Change = serde_json::from_value(json["change"].clone()).unwrap();
            assert_eq!(back, Change { sets: None, ..finding.change });
        }
    }
}

#[test]
fn the_dearest_comes_first() {
    let fires = |id: &str| (RULES.iter().find(|r| r.id == id).unwrap().fixture.0)();
    let mut facts = fires("emulated-driver");
    let more = fires("sparse-file");
    facts.measured.as_mut().unwrap().gains.extend(more.measured.unwrap().gains);
    let all = findings(&facts);
    assert!(all.len() >= 2);
    for two in all.windows(2) {
        let cost = |f: &Finding| f.cost_ratio.map_or(0.0, |r| r.value);
        assert!(two[0].severity > two[1].severity || cost(&two[0]) >= cost(&two[1]));
    }
}

#[test]
fn a_live_guest_gets_advice_marked_as_not_measured() {
    let from = Provenance::Live { guest: "db1".into(), read_from: "virsh dumpxml db1".into(), at_unix_seconds: 1.0 };
    let disk = |driver: &str| Disk {
        driver: Some(driver.into()).into(),
        cache: "writeback".into(),
        aio: "native".into(),
        iothread: Some(false).into(),
        sparse: Some(true).into(),
        ..Disk::unknown(Subject::disk("db1", "vda"), from.clone())
    };
    let rules = |disk: Disk| -> Vec<String> {
        let found = findings(&Facts { disks: vec![disk], ..Facts::default() });
        assert!(found.iter().all(|f| f.cause.matches("Not measured here").count() == 1 && f.cost_ratio.is_none()));
        assert!(found.iter().all(|f| f.evidence.iter().any(|e| e.from == "virsh dumpxml db1")));
        found.into_iter().map(|f| f.rule).collect()
    };
    let common = ["sparse-file", "cache-aio-pair", "host-page-cache", "native-aio-that-waits"];
    // The emulated controller costs under any load: a warning, so it comes first.
    assert_eq!(rules(disk("lsi53c895a")), [&["emulated-driver"], &common[..]].concat());
    assert_eq!(rules(disk("virtio-blk")), [&common[..2], &["missing-iothread"], &common[2..]].concat());
    let unknown = Disk {
        driver: None.into(),
        cache: None.into(),
        aio: None.into(),
        iothread: None.into(),
        sparse: None.into(),
        ..disk("")
    };
    assert_eq!(rules(unknown), [] as [&str; 0]);
}

#[test]
fn changes_for_libvirt_are_balanced_xml() {
    for rule in all() {
        for finding in ask(rule, &(rule.fixture.0)()) {
            let text = &finding.change.libvirt;
            for name in ["disk", "controller"] {
                let opened = text.lines().filter(|l| l.trim_start().starts_with(&format!("<{name} "))).count();
                assert_eq!(opened, text.matches(&format!("</{name}>")).count(), "{text}");
            }
            // A new I/O thread is used; a mapping to several lists them.
            if text.contains("<iothreads>") {
                assert!(text.contains("iothread='") || text.contains("<iothread id="), "{text}");
            }
        }
    }
}

#[test]
fn a_cell_served_by_a_cache_is_no_gain() {
    use crate::result::Mark;
    use crate::testing::{Bench, guest, native, virtio};
    let after = virtio("device", "rand-read-32");
    let facts = Bench::new()
        .cell(native("device", "rand-read-32"), 60e3)
        .cell(guest("device", "lsi53c895a", "rand-read-32"), 1.4e3)
        .cell(after.clone(), 13e3)
        .mark(&after, Mark::Cached)
        .facts();
    assert_eq!(findings(&facts), []);
}

/// Samples with a device stall still count in a gain, and its finding says so: in the cause, and with each figure.
#[test]
fn a_finding_tells_the_stalls_in_what_it_cites() {
    use crate::result::Mark;
    use crate::run::Run;
    use crate::testing::{Bench, guest, native, virtio};
    let slow = guest("device", "lsi53c895a", "rand-read-32");
    let mut run = Bench::new()
        .cell(native("device", "rand-read-32"), 60e3)
        .cell(slow.clone(), 1.4e3)
        .cell(virtio("device", "rand-read-32"), 13e3)
        .run();
    let found = |run: &Run| findings(&crate::facts::facts_of(run, &crate::summary::Summary::of(run)));
    let without = found(&run);
    assert!(!without.is_empty() && !format!("{without:?}").contains("stall"));
    run.samples.iter_mut().find(|s| s.cell == slow).unwrap().marks.push(Mark::Stalled);
    let with = found(&run);
    assert_eq!(with.len(), without.len(), "it is not dropped");
    let emulated = with.iter().find(|f| f.rule == "emulated-driver").unwrap();
    assert!(emulated.cause.contains("A device stall lies in its samples"), "{}", emulated.cause);
    let labels: Vec<&str> = emulated.figures.iter().map(|f| f.label.as_str()).collect();
    assert!(labels[0].ends_with(" (a device stall in 1 sample)"), "{labels:?}");
    let share = |driver: &str| labels.iter().find(|l| l.starts_with("share of native") && l.contains(driver)).unwrap();
    assert!(share("lsi53c895a").ends_with(" (a device stall in round 0)"), "{labels:?}");
    assert!(!share("virtio-blk").contains("stall"), "{labels:?}");
}

/// Under `--gentle` depth 1 and depth 32 have different caps: their ratio is that of the caps, and the short queue is
/// due to the cap.
#[test]
fn caps_are_not_taken_for_a_gain_by_depth() {
    use crate::testing::{Bench, native, virtio};
    let one = virtio("device", "rand-read-1");
    let mut run = Bench::new()
        .cell(native("device", "rand-read-1"), 15e3)
        .cell(one.clone(), 4.6e3)
        .device(&one, 4096.0, 0.4, 0.8)
        .cell(native("device", "rand-read-32"), 60e3)
        .cell(virtio("device", "rand-read-32"), 13e3)
        .run();
    let found = |run: &crate::run::Run| findings(&crate::facts::facts_of(run, &crate::summary::Summary::of(run)));
    assert!(!found(&run).is_empty());
    run.environment.cap_ratio = Some(0.25);
    assert_eq!(found(&run), []);
}

/// Calculated from samples: a gain is cited only with enough pairs, and where the shares of both sides converged. A
/// native cell has no share, nor has any cell without a baseline.
#[test]
fn gains_from_too_few_pairs_or_of_unknown_shares_are_not_cited() {
    use crate::testing::{Bench, guest, native, virtio};
    let bench = |rounds: u32, half_width: f64| {
        Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(guest("device", "lsi53c895a", "rand-read-32"), 4e3)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .rounds(rounds)
            .half_width(half_width)
            .facts()
    };
    assert_eq!(findings(&bench(6, 0.05)).len(), 1);
    assert_eq!(findings(&bench(4, 0.05)), []);
    assert_eq!(findings(&bench(6, 1e-6)), []);
    let citable = |facts: &Facts, native: bool| {
        let gains = facts.measured.as_ref().unwrap().gains.iter().filter(|g| g.before.is_native() == native);
        gains.map(|g| g.citable).collect::<Vec<bool>>()
    };
    assert_eq!(citable(&bench(6, 0.05), false), [true, true]);
    assert_eq!(citable(&bench(6, 1e-6), false), [false, false]);
    // One side is enough: the emulated one scatters so that its share is not known to ±5 points.
    let mut run = Bench::new()
        .cell(native("device", "rand-read-32"), 60e3)
        .cell(guest("device", "lsi53c895a", "rand-read-32"), 40e3)
        .cell(virtio("device", "rand-read-32"), 55e3)
        .run();
    for s in run.samples.iter_mut().filter(|s| s.cell == guest("device", "lsi53c895a", "rand-read-32")) {
        let twisted = if s.round % 2 == 0 { 1.3 } else { 1.0 };
        s.result.amend(|w| w.seconds *= twisted);
    }
    let summary = crate::summary::summarise(&run);
    let of = |driver: &str| summary.shares.iter().find(|s| s.key.contains(driver)).unwrap().converged;
    assert_eq!((of("lsi53c895a"), of("virtio-blk")), (false, true));
    assert_eq!(citable(&crate::facts::facts_of(&run, &summary), false), [false, false]);
    // Depths of a native cell are compared, whatever any share is.
    let depths = Bench::new()
        .cell(native("device", "rand-read-1"), 15e3)
        .cell(native("device", "rand-read-32"), 60e3)
        .half_width(1e-6)
        .facts();
    assert_eq!(citable(&depths, true), [true, true]);
}
