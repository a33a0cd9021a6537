//! Expected gain of a finding's change where the guest itself was not measured: from runs stored on the host, the
//! newest first, else from published figures.
//!
//! A stored figure is used when the run had the same finding on a set-up like this disk's in what the change affects
//! (for another driver, the same driver before). Only figures that the rules would cite count: enough pairs, and an
//! interval that excludes 1.

use super::support::is_emulated;
use super::{Expected, Finding, Proof, RULES, findings};
use crate::cell::{Attachment, Cell};
use crate::facts::{Changed, Disk, changed, facts_of};
use crate::paper::{Effect, Measure, Paper, Pattern, Relation};
use crate::run::Run;
use crate::stats::{Interval, Ratio};
use crate::summary::summarise;

/// Findings of a stored run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFindings {
    /// Its number.
    pub run: i64,
    /// Its date, for display: `2026-11-21`.
    pub on: String,
    /// Whether its guests ran under software emulation.
    pub emulated: bool,
    /// What the machine was, if not bare metal.
    pub node: Option<String>,
    /// Whether it was imported from another host.
    pub elsewhere: bool,
    /// Its findings.
    pub findings: Vec<Finding>,
}

impl RunFindings {
    /// The findings of a run; `on` is its date for display.
    pub fn of(run: &Run, on: impl Into<String>) -> RunFindings {
        let summary = summarise(run);
        RunFindings {
            run: run.id,
            on: on.into(),
            emulated: summary.emulated,
            node: run.environment.node.clone(),
            elsewhere: false,
            findings: findings(&facts_of(run, &summary)),
        }
    }

    /// The same for another host's run.
    pub fn imported(self) -> RunFindings {
        RunFindings { elsewhere: true, ..self }
    }
}

/// The gain of a finding's change on a disk by stored runs, from the first run with one.
pub fn by_runs(finding: &Finding, disk: &Disk, runs: &[RunFindings]) -> Option<Expected> {
    runs.iter().find_map(|run| {
        let alike = |found: &Finding| {
            let (proof, ratio) = (found.proof.clone()?, found.cost_ratio?);
            let changed = changed(&proof.before, &proof.after, &[])?;
            let fits = found.rule == finding.rule && fits(changed, &proof, disk);
            fits.then_some((nearness(&proof.before, disk), ratio, changed, proof))
        };
        let (_, ratio, changed, proof) =
            run.findings.iter().filter_map(alike).max_by(|a, b| a.0.cmp(&b.0).then(a.1.value.total_cmp(&b.1.value)))?;
        Some(Expected {
            text: describe(changed, &proof, &ratio, ratio.interval?, run),
            times: Some(ratio.value),
            source: if run.elsewhere {
                format!("run {}, imported from another host", run.run)
            } else {
                format!("run {} on this host", run.run)
            },
        })
    })
}

/// The gain of a rule's change by papers: the largest effect on a disk of this one's class.
pub fn by_papers(finding: &Finding, disk: &Disk, papers: &[Paper]) -> Option<Expected> {
    let class = class(disk.driver.as_deref()?);
    let alike = |e: &Effect| e.numerator.driver.as_deref().is_some_and(|driver| self::class(driver) == class);
    let stated = papers.iter().flat_map(|p| p.effects.iter().map(move |e| (p, e)));
    let times = |e: &Effect| e.published().map_or(0.0, |(slow, fast)| fast / slow);
    let (paper, effect) = stated
        .filter(|(_, e)| rule_of(e) == Some(finding.rule.as_str()) && alike(e))
        .max_by(|a, b| times(a.1).total_cmp(&times(b.1)))?;
    let (slow, fast) = effect.published()?;
    let of = |cell: &Pattern| {
        let driver = cell.driver.as_deref().unwrap_or_default();
        format!("{} on {}", driver_words(driver), target_words(cell.target.as_deref().unwrap_or_default()))
    };
    Some(Expected {
        text: format!(
            "published: {} {} by {}, {} by {}",
            slow,
            effect.unit,
            of(&effect.numerator),
            fast,
            effect.denominator.as_ref().map(of)?
        ),
        times: Some(times(effect)),
        source: format!("{}, {}", paper.key, effect.citation),
    })
}

/// Class of drivers with similar cost; figures do not apply to another class.
fn class(driver: &str) -> &str {
    match driver {
        "ahci" | "ide" | "sata" => "emulated ATA",
        emulated if is_emulated(emulated) => "emulated SCSI",
        other => other,
    }
}

/// The rule that an effect supports: two disks of a guest that differ in one thing, the first slower.
fn rule_of(effect: &Effect) -> Option<&'static str> {
    let (slow, fast) = (&effect.numerator, effect.denominator.as_ref()?);
    // The paper does not state what is our reading.
    let stated = effect.reading.is_none();
    let compared = effect.measure == Measure::Bandwidth && effect.relation == Relation::Below;
    if !stated || !compared || slow.guest != fast.guest {
        return None;
    }
    RULES.iter().find(|rule| rule.published.is_some_and(|speaks| speaks(slow, fast))).map(|rule| rule.id)
}

/// Whether the disk has the stored one's setting before the change.
fn fits(changed: Changed, proof: &Proof, disk: &Disk) -> bool {
    let Some(before) = proof.before.attachment() else { return false };
    let driver = disk.driver.as_deref() == Some(before.driver.as_str());
    match changed {
        Changed::Driver | Changed::Options => driver,
        Changed::Iothread => driver && disk.iothread == Some(before.iothread),
        Changed::CacheAio => [(&disk.cache, before.cache.to_string()), (&disk.aio, before.aio.to_string())]
            .into_iter()
            .all(|(found, stored)| found.as_ref() == Some(&stored)),
        // The rule itself says which storage it concerns.
        Changed::Target => true,
        // Advice about the guest's applications, or not about disks.
        Changed::Depth | Changed::Engine | Changed::PageCache | Changed::Nic | Changed::Setting | Changed::Pins => {
            false
        }
    }
}

/// Number of settings that the stored set-up shares with the disk.
fn nearness(before: &Cell, disk: &Disk) -> usize {
    let Some(a) = before.attachment() else { return 0 };
    let same = |found: &Option<String>, stored: String| found.as_ref() == Some(&stored);
    [
        same(&disk.driver, a.driver.clone()),
        same(&disk.cache, a.cache.to_string()),
        same(&disk.aio, a.aio.to_string()),
        disk.iothread == Some(a.iothread),
    ]
    .into_iter()
    .filter(|same| *same)
    .count()
}

/// `emulated SCSI (lsi53c895a) was 9.4 times slower (8.1 to 10.9) than virtio-blk at rand-read-32
/// here on 2026-11-21`.
fn describe(changed: Changed, proof: &Proof, ratio: &Ratio, interval: Interval, run: &RunFindings) -> String {
    let words = |cell: &Cell| match (changed, cell.attachment()) {
        (Changed::Target, _) | (_, None) => target_words(cell.target().unwrap_or_default()),
        (Changed::Driver, Some(a)) => driver_words(&a.driver),
        (Changed::CacheAio, Some(a)) => format!("cache={} with aio={}", a.cache, a.aio),
        (Changed::Iothread, Some(a)) if a.iothread => "a disk with an I/O thread".to_owned(),
        (Changed::Iothread, Some(_)) => "a disk without an I/O thread".to_owned(),
        (_, Some(a)) => Attachment::label(a),
    };
    let place = match &run.node {
        Some(node) => format!("in the {node}"),
        None if run.elsewhere => "there".to_owned(),
        None => "here".to_owned(),
    };
    let emulated =
        if run.emulated { ", under software emulation (TCG): rely on the direction, not on the size" } else { "" };
    format!(
        "{} was {} times slower ({} to {}) than {} at {} {place} on {}{emulated}",
        words(&proof.before),
        figure(ratio.value),
        figure(interval.low),
        figure(interval.high),
        words(&proof.after),
        proof.before.workload(),
        run.on
    )
}

fn driver_words(driver: &str) -> String {
    match driver {
        "lsi53c895a" => "emulated SCSI (lsi53c895a)".to_owned(),
        "ahci" => "emulated SATA (ahci)".to_owned(),
        other => other.to_owned(),
    }
}

fn target_words(target: &str) -> String {
    match target {
        "sparse" => "a sparse file".to_owned(),
        "preallocated" => "a preallocated file".to_owned(),
        "device" => "a whole device".to_owned(),
        other => format!("{other} storage"),
    }
}

/// `1.06`, `9.4`, `23`.
fn figure(x: f64) -> String {
    match x {
        x if x < 2.0 => format!("{x:.2}"),
        x if x < 20.0 => format!("{x:.1}"),
        x => format!("{x:.0}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cell::{Aio, Cache};
    use crate::facts::{Details, Facts};
    use crate::testing::{Bench, guest, live_disk, native, virtio};

    const PAPER: &str = include_str!("../../../../papers/shafer2010_storage.toml");

    /// The finding of this rule for this disk.
    fn found(disk: &Disk, rule: &str) -> Finding {
        let facts = Facts { disks: vec![disk.clone()], ..Facts::default() };
        findings(&facts).into_iter().find(|f| f.rule == rule).unwrap()
    }

    fn disk(driver: &str) -> Disk {
        Disk { driver: Some(driver.into()).into(), iothread: Some(false).into(), ..live_disk(Details::default()) }
    }

    fn drivers(slow: &str, rate: f64) -> Run {
        Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(guest("device", slow, "rand-read-32"), rate)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .run()
    }

    fn learnt(run: &Run) -> Vec<RunFindings> {
        vec![RunFindings::of(run, "2026-11-21")]
    }

    #[test]
    fn a_run_on_this_host_with_the_same_driver_says_it() {
        let lsi = disk("lsi53c895a");
        let finding = found(&lsi, "emulated-driver");
        let expected = by_runs(&finding, &lsi, &learnt(&drivers("lsi53c895a", 1.4e3))).unwrap();
        let times = expected.times.unwrap();
        assert!((8.5..10.0).contains(&times), "{times}");
        assert!(
            expected.text.starts_with(&format!("emulated SCSI (lsi53c895a) was {times:.1} times slower (")),
            "{expected:?}"
        );
        assert!(expected.text.ends_with(") than virtio-blk at rand-read-32 here on 2026-11-21"), "{expected:?}");
        assert_eq!(expected.source, "run 1 on this host");
        // A run says nothing about another emulated controller.
        let ahci = disk("ahci");
        assert_eq!(by_runs(&found(&ahci, "emulated-driver"), &ahci, &learnt(&drivers("lsi53c895a", 1.4e3))), None);
    }

    #[test]
    fn a_run_of_another_host_is_told_as_such() {
        let lsi = disk("lsi53c895a");
        let imported = RunFindings::of(&drivers("lsi53c895a", 1.4e3), "2026-11-21").imported();
        let expected = by_runs(&found(&lsi, "emulated-driver"), &lsi, &[imported]).unwrap();
        assert_eq!(expected.source, "run 1, imported from another host");
        assert!(expected.text.ends_with("at rand-read-32 there on 2026-11-21"), "{expected:?}");
    }

    #[test]
    fn what_is_not_sure_is_not_said() {
        let lsi = disk("lsi53c895a");
        let finding = found(&lsi, "emulated-driver");
        for run in [drivers("lsi53c895a", 13e3), Run { samples: Vec::new(), ..drivers("lsi53c895a", 1.4e3) }] {
            assert_eq!(by_runs(&finding, &lsi, &learnt(&run)), None);
        }
        let few = Bench::new()
            .cell(native("device", "rand-read-32"), 60e3)
            .cell(guest("device", "lsi53c895a", "rand-read-32"), 1.4e3)
            .cell(virtio("device", "rand-read-32"), 13e3)
            .rounds(3);
        assert_eq!(by_runs(&finding, &lsi, &learnt(&few.run())), None);
    }

    #[test]
    fn the_newest_run_counts_and_emulation_is_told() {
        let lsi = disk("lsi53c895a");
        let finding = found(&lsi, "emulated-driver");
        let mut newer = drivers("lsi53c895a", 6.5e3);
        (newer.id, newer.environment.accel) = (9, Some(crate::result::Accel::Tcg));
        newer.environment.node = Some("lab host (Linux 6.1.0 under TCG)".into());
        let runs =
            [RunFindings::of(&newer, "2026-11-22"), RunFindings::of(&drivers("lsi53c895a", 1.4e3), "2026-11-21")];
        let expected = by_runs(&finding, &lsi, &runs).unwrap();
        assert!(expected.source == "run 9 on this host" && expected.times.unwrap() < 2.1, "{expected:?}");
        assert!(
            expected.text.contains("in the lab host (Linux 6.1.0 under TCG) on 2026-11-22, under software"),
            "{expected:?}"
        );
    }

    #[test]
    fn a_missing_iothread_is_compared_with_the_same_driver() {
        let threaded = |driver: &str| {
            let mut with = guest("device", driver, "rand-read-32");
            if let Some(a) = with.attachment_mut() {
                a.iothread = true;
            }
            let without = guest("device", driver, "rand-read-32");
            Bench::new().cell(native("device", "rand-read-32"), 60e3).cell(without, 13e3).cell(with, 19e3).run()
        };
        let own = disk("virtio-scsi");
        let finding = found(&own, "missing-iothread");
        let expected = by_runs(&finding, &own, &learnt(&threaded("virtio-scsi"))).unwrap();
        assert!(expected.text.starts_with("a disk without an I/O thread was 1.4"), "{expected:?}");
        assert_eq!(by_runs(&finding, &own, &learnt(&threaded("virtio-blk"))), None);
    }

    #[test]
    fn a_pair_is_compared_with_the_same_pair() {
        let mut writeback = virtio("device", "rand-write-32");
        if let Some(a) = writeback.attachment_mut() {
            (a.cache, a.aio) = (Cache::Writeback, Aio::Threads);
        }
        let bench = Bench::new().cell(native("device", "rand-write-32"), 60e3).cell(writeback, 6e3);
        let runs = learnt(&bench.cell(virtio("device", "rand-write-32"), 13e3).run());
        let pair = |cache: &str, aio: &str| Disk {
            cache: Some(cache.into()).into(),
            aio: Some(aio.into()).into(),
            ..live_disk(Details::default())
        };
        let finding = found(&pair("writeback", "native"), "cache-aio-pair");
        let expected = by_runs(&finding, &pair("writeback", "threads"), &runs).unwrap();
        assert!(expected.text.contains("than cache=none with aio=native at rand-write-32"), "{expected:?}");
        assert_eq!(by_runs(&finding, &pair("writeback", "native"), &runs), None);
    }

    #[test]
    fn a_sparse_file_by_run_and_by_paper() {
        let sparse = Disk { sparse: Some(true).into(), ..live_disk(Details::default()) };
        let finding = found(&sparse, "sparse-file");
        let run = Bench::new()
            .cell(native("sparse", "seq-write"), 500e6)
            .cell(virtio("sparse", "seq-write"), 100e6)
            .cell(native("preallocated", "seq-write"), 700e6)
            .cell(virtio("preallocated", "seq-write"), 250e6)
            .run();
        let expected = by_runs(&finding, &sparse, &learnt(&run)).unwrap();
        assert!(expected.text.starts_with("a sparse file was 2.5 times slower ("), "{expected:?}");
        assert!(expected.text.contains("than a preallocated file at seq-write here"), "{expected:?}");
        let papers = [Paper::parse(PAPER).unwrap()];
        // The paper has that figure for an emulated controller only.
        assert_eq!(by_papers(&finding, &sparse, &papers), None);
        let lsi = Disk { driver: "lsi53c895a".into(), ..sparse };
        let published = by_papers(&finding, &lsi, &papers).unwrap();
        assert!((published.times.unwrap() - 71.5 / 1.3).abs() < 1e-9, "{published:?}");
        assert!(
            published.text.contains("1.3 MB/s by emulated SCSI (lsi53c895a) on a sparse file, 71.5"),
            "{published:?}"
        );
    }

    #[test]
    fn a_paper_speaks_of_the_rules_that_its_effects_are_about() {
        let papers = [Paper::parse(PAPER).unwrap()];
        let lsi = disk("lsi53c895a");
        let expected = by_papers(&found(&lsi, "emulated-driver"), &lsi, &papers).unwrap();
        assert_eq!(expected.source, "shafer2010, section 3.3, table 1");
        assert!((expected.times.unwrap() - 110.0 / 71.5).abs() < 1e-9, "{expected:?}");
        let (virtio, ahci) = (disk("virtio-blk"), disk("ahci"));
        assert_eq!(by_papers(&found(&virtio, "missing-iothread"), &virtio, &papers), None);
        assert_eq!(by_papers(&found(&ahci, "emulated-driver"), &ahci, &papers), None);
    }
}
