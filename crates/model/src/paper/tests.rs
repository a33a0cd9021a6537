#![allow(clippy::unwrap_used)]

mod places;

use super::*;
use crate::cell::{Aio, Attachment, Cache, Cell};
use crate::figure::Value;
use crate::result::{Accel, Mark, Skipped};
use crate::run::Run;
use crate::summary::{Summary, summarise};
use crate::testing::{Bench, guest, native, virtio};

const PAPER: &str = include_str!("../../../../papers/shafer2010_storage.toml");

fn paper() -> Paper {
    Paper::parse(PAPER).unwrap()
}

/// A run of the study with these true figures in MB/s: native, emulated and virtio on the device,
/// emulated on the sparse file; and the queue depths of native and virtio reads.
struct Made {
    write: [f64; 4],
    read: [f64; 3],
    depth: [f64; 2],
    /// Sectors of a request of emulated writes; with virtio they are 1024.
    split: f64,
    accel: Accel,
    rounds: u32,
}

/// As published.
const AS_PUBLISHED: Made = Made {
    write: [111.0, 71.5, 110.0, 1.3],
    read: [108.0, 70.5, 76.2],
    depth: [0.94, 0.5],
    split: 256.0,
    accel: Accel::Kvm,
    rounds: 6,
};

impl Made {
    fn run(&self) -> Run {
        self.run_with(7, 0.01)
    }

    fn run_with(&self, seed: u64, scatter: f64) -> Run {
        let mut bench = Bench::new().rounds(self.rounds).seed(seed).scatter(scatter);
        let writes = [
            native("device", "dd-write"),
            guest("device", "lsi53c895a", "dd-write"),
            virtio("device", "dd-write"),
            guest("sparse", "lsi53c895a", "dd-write"),
        ];
        let reads =
            [native("device", "dd-read"), guest("device", "lsi53c895a", "dd-read"), virtio("device", "dd-read")];
        // Writethrough has the speed of none, and the preallocated file the published one.
        let through = |target: &str| {
            Cell::on("qemu", target, Some(Attachment::new("lsi53c895a", Cache::Writethrough, Aio::Threads)), "dd-write")
        };
        let flushed = [("device", self.write[1]), ("sparse", self.write[3]), ("preallocated", 58.4)];
        for (target, mb) in flushed {
            bench = bench.cell(through(target), mb * 1e6);
        }
        for (cell, mb) in writes.iter().zip(self.write).chain(reads.iter().zip(self.read)) {
            bench = bench.cell(cell.clone(), mb * 1e6);
        }
        bench = bench.device(&writes[1], self.split * 512.0, 1.0, 0.6).device(&writes[2], 1024.0 * 512.0, 9.0, 0.9);
        for (cell, depth) in [&reads[0], &reads[2]].into_iter().zip(self.depth) {
            bench = bench.device(cell, 65536.0, depth, 0.6);
        }
        let mut run = bench.run();
        run.kind = "shafer2010-storage".into();
        run.environment.accel = Some(self.accel);
        run
    }

    fn verdicts(&self) -> Vec<(String, Verdict, String)> {
        let run = self.run();
        let judged = judge(&paper(), &run, &summarise(&run));
        judged.effects.into_iter().map(|j| (j.effect.id, j.verdict, j.reason)).collect()
    }

    fn verdict(&self, id: &str) -> (Verdict, String) {
        let found = self.verdicts().into_iter().find(|(name, ..)| name == id).unwrap();
        (found.1, found.2)
    }
}

#[test]
fn the_paper_judged_by_its_own_figures_holds() {
    for (id, verdict, reason) in AS_PUBLISHED.verdicts() {
        // Effects whose cells this run lacks.
        let lacks = match &*id {
            "small-requests-cost" => "no control cell ran",
            "small-requests-own-sizes" => "this run has no seq-write-7680-d1 of native on device",
            "growing-a-file-costs" => "this run has no dd-write of native on sparse",
            _ => {
                assert_eq!(verdict, Verdict::Holds, "{id}: {reason}");
                continue;
            }
        };
        assert!(verdict == Verdict::NotDecidable && reason.contains(lacks), "{id}: {reason}");
    }
}

#[test]
fn the_contrary_fails() {
    let contrary = Made {
        write: [111.0, 100.0, 60.0, 99.0],
        read: [108.0, 90.0, 60.0],
        depth: [0.5, 0.9],
        split: 1500.0,
        ..AS_PUBLISHED
    };
    for id in [
        "emulated-slower-write",
        "emulated-slower-read",
        "sparse-write-collapse",
        "sparse-write-collapse-writethrough",
        "growing-a-file-costs-writethrough",
        "virtio-writes-reach-native",
        "reads-leave-the-disk-idle",
        "emulated-splits-writes",
    ] {
        assert_eq!(contrary.verdict(id).0, Verdict::Fails, "{id}");
    }
}

#[test]
fn an_interval_with_the_bound_in_it_decides_nothing() {
    let alike = Made { write: [111.0, 110.0, 110.0, 55.0], ..AS_PUBLISHED };
    for (id, bound) in [("emulated-slower-write", "1"), ("sparse-write-collapse", "0.5")] {
        let (verdict, reason) = alike.verdict(id);
        assert_eq!((verdict, reason), (Verdict::NotDecidable, format!("the interval has {bound} in it")), "{id}");
    }
    let (verdict, reason) = Made { rounds: 3, ..AS_PUBLISHED }.verdict("emulated-slower-write");
    assert_eq!(verdict, Verdict::NotDecidable);
    assert!(reason.starts_with("3 pairs from 2 boots, at least 5 from 3"), "{reason}");
}

/// Under emulation the slow guest proves nothing against native, and a small difference between guests may be hidden;
/// differences against the effect of emulation are proven.
#[test]
fn emulation_decides_only_what_it_works_against() {
    let tcg = Made { accel: Accel::Tcg, ..AS_PUBLISHED };
    for id in ["emulated-slower-write", "emulated-slower-read", "sparse-write-collapse"] {
        let (verdict, reason) = tcg.verdict(id);
        assert_eq!(verdict, Verdict::Holds, "{id}");
        assert!(reason.contains("the direction counts and not the size"), "{reason}");
    }
    assert_eq!(tcg.verdict("virtio-writes-reach-native").0, Verdict::Holds, "although emulation slows it");
    for id in ["virtio-reads-fall-short", "reads-leave-the-disk-idle"] {
        let (verdict, reason) = tcg.verdict(id);
        assert_eq!(verdict, Verdict::NotDecidable, "{id}");
        assert!(reason.starts_with("not decidable here: emulation"), "{reason}");
    }
    let slow = Made { write: [2400.0, 105.0, 107.0, 101.0], ..tcg };
    let (verdict, reason) = slow.verdict("virtio-writes-reach-native");
    assert_eq!(verdict, Verdict::NotDecidable);
    assert!(reason.contains("emulation slows only the guest"), "{reason}");
    let (verdict, reason) = slow.verdict("sparse-write-collapse");
    assert_eq!(verdict, Verdict::NotDecidable);
    assert!(reason.contains("can hide a difference"), "{reason}");
    // The opposite, beyond 1, shows even so.
    let turned = Made { write: [2400.0, 107.0, 90.0, 300.0], ..slow };
    assert_eq!(turned.verdict("emulated-slower-write").0, Verdict::Fails);
    assert_eq!(turned.verdict("sparse-write-collapse").0, Verdict::Fails);
}

/// Request sizes do not depend on the processor's speed: decided under emulation, too.
#[test]
fn the_size_of_requests_is_decided_under_emulation() {
    let tcg = Made { accel: Accel::Tcg, ..AS_PUBLISHED };
    let (verdict, reason) = tcg.verdict("emulated-splits-writes");
    assert_eq!(verdict, Verdict::Holds, "{reason}");
    assert!(reason.contains("do not depend on the processor's speed"), "{reason}");
    // Between the bound and 1 emulation could hide nothing.
    assert_eq!(Made { split: 1500.0, ..tcg }.verdict("emulated-splits-writes").0, Verdict::Fails);
}

/// An effect that is significant alone is not, among so many.
#[test]
fn effects_judged_together_are_corrected_for() {
    let mut paper = paper();
    let wanted = "emulated-slower-write";
    let judged = |paper: &Paper, run: &Run| {
        let all = judge(paper, run, &summarise(run));
        let one = all.effects.iter().find(|j| j.effect.id == wanted).unwrap().clone();
        (all.judged_together, one)
    };
    // Two with p-values between 1/40 and 1/20: significant alone.
    let marginal = |run: &Run| {
        let all = judge(&paper, run, &summarise(run)).effects;
        let p = |id: &str| all.iter().find(|j| j.effect.id == id).unwrap().p_value.unwrap();
        [wanted, "emulated-slower-read"].iter().all(|id| (0.026..0.048).contains(&p(id)))
    };
    let run = (0..4000).map(hardly_slower).find(marginal).unwrap();
    let (together, one) = judged(&paper, &run);
    assert!(together >= 6, "{together}");
    assert_eq!(one.verdict, Verdict::NotDecidable, "{}", one.reason);
    assert!(one.ratio.unwrap().surely_below(1.0) && one.reason.contains("Holm"), "{}", one.reason);
    assert!(one.corrected_p_value.unwrap() >= 0.05);
    // Alone it needs no correction: only the noise counts.
    paper.effects.retain(|e| e.id == wanted);
    let (together, one) = judged(&paper, &run);
    assert_eq!((together, one.corrected_p_value), (1, one.p_value));
    assert!(!one.reason.contains("Holm"), "{}", one.reason);
}

/// A made-up run in which emulated writes and reads are hardly slower.
fn hardly_slower(seed: u64) -> Run {
    let made = Made { write: [111.0, 108.0, 110.0, 1.3], read: [108.0, 75.0, 76.2], ..AS_PUBLISHED };
    made.run_with(seed, 0.015)
}

/// Not decided, even where all pairs agree, if the native rounds differ more.
#[test]
fn nothing_below_the_runs_own_noise_is_decided() {
    let made = Made { write: [111.0, 100.0, 110.0, 1.3], ..AS_PUBLISHED };
    let of = |run: &Run| {
        let all = judge(&paper(), run, &summarise(run)).effects;
        all.into_iter().find(|j| j.effect.id == "emulated-slower-write").unwrap()
    };
    let mut run = made.run();
    assert_eq!(of(&run).verdict, Verdict::Holds);
    // The native rounds vary by a third, the guests do not.
    for s in run.samples.iter_mut().filter(|s| s.cell == native("device", "dd-write") && s.round % 2 == 0) {
        let twisted = |value: &Value| if let Value::Scalar(x) = value { Value::Scalar(x * 1.4) } else { value.clone() };
        s.result.figures.iter_mut().for_each(|f| f.value = twisted(&f.value));
    }
    let one = of(&run);
    assert_eq!(one.verdict, Verdict::NotDecidable);
    assert!(one.reason.contains("below this run's own noise"), "{}", one.reason);
    assert!(one.noise_ratio.unwrap() > 1.2 && one.corrected_p_value.unwrap() < 0.05);
}

/// Our readings are shown with effects and below tables.
#[test]
fn what_is_our_reading_says_so() {
    let (run, paper) = (AS_PUBLISHED.run(), paper());
    let summary = summarise(&run);
    let readings = judge(&paper, &run, &summary).readings;
    assert!(readings.iter().any(|reading| reading.word == "tap"), "{readings:?}");
    assert!(super::tables(&paper, &summary).iter().all(|t| t.readings == readings));
    assert!(paper.effects.iter().any(|e| e.id == "growing-a-file-costs" && e.reading.is_some()));
}

#[test]
fn caps_caches_and_cells_that_are_not_there_decide_nothing() {
    let mut run = AS_PUBLISHED.run();
    run.environment.cap_ratio = Some(0.25);
    let judged = judge(&paper(), &run, &summarise(&run));
    assert!(judged.effects.iter().all(|j| j.verdict == Verdict::NotDecidable));
    assert!(judged.effects[0].reason.contains("--gentle"));

    let mut run = AS_PUBLISHED.run();
    for s in run.samples.iter_mut().filter(|s| s.cell == virtio("device", "dd-read")) {
        s.marks.push(Mark::Cached);
    }
    let judged = judge(&paper(), &run, &summarise(&run));
    let read = judged.effects.iter().find(|j| j.effect.id == "virtio-reads-fall-short").unwrap();
    assert!(read.verdict == Verdict::NotDecidable && read.reason.contains("a cache was measured"), "{}", read.reason);

    let mut run = AS_PUBLISHED.run();
    let sparse = guest("sparse", "lsi53c895a", "dd-write");
    run.samples.retain(|s| s.cell != sparse);
    let reason = |run: &Run| {
        let judged = judge(&paper(), run, &summarise(run));
        judged.effects.into_iter().find(|j| j.effect.id == "sparse-write-collapse").unwrap().reason
    };
    assert_eq!(reason(&run), "this run has no dd-write of qemu on sparse by lsi53c895a");
    run.skipped.push(Skipped { cell: sparse, reason: "no space for it".into() });
    assert_eq!(reason(&run), "no space for it");
}

#[test]
fn tables_keep_the_papers_rows_and_say_why_one_has_no_figure() {
    let run = AS_PUBLISHED.run();
    let summary = Summary::of(&run);
    let tables = tables(&paper(), &summary);
    assert_eq!(tables.iter().map(|t| t.rows.len()).collect::<Vec<_>>(), [11, 11]);
    for row in tables.iter().flat_map(|t| &t.rows) {
        assert!(row.ours.is_some() != row.not_run.is_some());
        assert!(row.not_run.as_ref().is_none_or(|why| !why.is_empty()));
    }
    let write = &tables[0].rows;
    assert_eq!(write[1].published.driver, "SCSI/sparse file");
    let ours = write[1].ours.as_ref().unwrap();
    assert_eq!(ours.key, "sparse/qemu/lsi53c895a,none,native/dd-write");
    assert!((ours.bandwidth_bytes_per_second.value / 1.3e6 - 1.0).abs() < 0.05);
    assert!((ours.avgrq_sz_sectors.unwrap().value - 128.0).abs() < 1e-9);
    assert_eq!(write[6].not_run.as_deref(), Some("needs Xen, not built yet"));
    assert_eq!(write[3].not_run.as_deref(), Some("this run has no dd-write of qemu on served by lsi53c895a"));
    // Each footnote is below the table that cites it only.
    assert_eq!(tables[0].footnotes.iter().map(|f| f.0).collect::<Vec<_>>(), [1, 5]);
    assert_eq!(tables[1].footnotes.iter().map(|f| f.0).collect::<Vec<_>>(), [2]);
    let networked = super::tables(&paper(), &Summary::of(&Run { kind: "shafer2010-ebs".into(), ..run.clone() }));
    let footnotes = networked.iter().map(|t| t.footnotes.iter().map(|f| f.0).collect::<Vec<_>>());
    assert_eq!(footnotes.collect::<Vec<_>>(), [[3, 4], [3, 6]]);
    assert_eq!(networked.iter().map(|t| t.rows.len()).collect::<Vec<_>>(), [8, 8]);
    let other = Run { kind: "quick".into(), ..run };
    assert!(super::tables(&paper(), &Summary::of(&other)).is_empty());
}

#[test]
fn a_damaged_paper_is_refused_with_the_place() {
    let refused = |from: &str, to: &str| Paper::parse(&PAPER.replacen(from, to, 1)).unwrap_err().to_string();
    assert!(
        refused("not_run = ", "# not_run = ").contains("row write Xen Local file SCSI/pre-alloc file: give either")
    );
    assert!(refused("notes = [1]", "notes = [7]").contains("there are footnotes 1 to 6"));
    assert!(refused("id = \"emulated-slower-read\"", "id = \"emulated-slower-write\"").contains("two of that name"));
    assert!(refused("relation = \"below\"", "relation = \"under\"").contains("under"));
    assert!(refused("bound = 1.0", "bound = 0.0").contains("positive"));
}
