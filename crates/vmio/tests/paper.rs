//! The paper's tables, control cells and `study compare`, from a made-up run of the study.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::state_dir::{StateDir, unfolded};

use vmio::papers;
use vmio::report::{self, Report};
use vmio::term::Style;
use vmio_model::result::{Accel, Sample};
use vmio_model::run::Run;
use vmio_model::study::{Link, controls};
use vmio_rig::workloads;

fn forms(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let read = common::page::forms(report).map(|(form, text)| (form, unfolded(&text)));
    read.into_iter().chain([("json", report::json(report))]).collect()
}

#[test]
fn every_form_has_the_papers_rows() {
    let run = common::paper::run(Accel::Tcg);
    let report = Report::of(&run);
    let paper = papers::of_study("shafer2010-storage").unwrap();
    assert_eq!(report.tables.len(), 2);
    let statement = report.summary.statement.clone().unwrap();
    let is_own = |direction: &str| report.tables.iter().any(|table| table.caption.direction == direction);
    let rows: Vec<_> = paper.rows.iter().filter(|row| is_own(&row.direction)).collect();
    let cited = |n: usize| rows.iter().any(|row| row.notes.contains(&n));
    for (form, text) in forms(&report) {
        for (_, note) in paper.footnotes.iter().enumerate().filter(|(i, _)| cited(i + 1)) {
            assert!(text.contains(&note.text), "{form}: {}", note.text);
        }
        for row in &rows {
            assert!(text.contains(&row.driver) && text.contains(&row.target), "{form}: {}", row.driver);
            assert!(row.not_run.as_ref().is_none_or(|why| text.contains(why)), "{form}: {:?}", row.not_run);
        }
        // The paper names no cache mode: each that was measured has its line, and the reading is told.
        assert!(form == "json" || text.contains("writethrough, QEMU's default in 2009"), "{form}");
        match form {
            "text" => {
                assert!(text.contains("here, none") && text.contains("here, writethrough"));
                // A row with one mode names none.
                assert!(text.contains("published 110 1024 60 100 here, none"), "{text}");
                assert!(text.contains("published 111 1024 140 100 here "), "{text}");
            }
            "json" => assert!(text.contains("\"other_modes\"") && text.contains("\"cache\": \"writethrough\"")),
            _ => assert!(text.contains("SCSI/phy, none") && text.contains("SCSI/phy, writethrough"), "{form}"),
        }
        // A cell of ours that could not run says so in its row.
        assert!(text.contains("FIXTURE: qemu-storage-daemon is missing"), "{form}");
        // At the top and beside each table.
        assert!(text.matches(&statement).count() >= 3, "{form}: {}", text.matches(&statement).count());
    }
    // Without emulation nothing warns of it, and another study has no such tables.
    let kvm = common::paper::run(Accel::Kvm);
    assert!(forms(&Report::of(&kvm)).iter().all(|(_, text)| !text.contains("software emulation")));
    let other = Run { kind: "sparse".into(), ..kvm };
    assert!(Report::of(&other).tables.is_empty());
    let text = report::text(&report, Style::PLAIN);
    assert_eq!(common::page::too_long(&text, &report.findings), [""; 0]);
}

#[test]
fn every_form_tells_small_requests_from_virtualisation() {
    let run = common::paper::run(Accel::Tcg);
    let report = Report::of(&run);
    let key = "sparse/qemu/lsi53c895a,none,native/dd-write";
    let one = report.summary.explained.iter().find(|e| e.key == key).unwrap();
    assert!(one.enough && one.links_enough);
    // As made up: (64 KiB / 512 KiB)^0.3, then a twelfth of the depth to the power of 0.2.
    let small = one.small_requests_ratio.unwrap();
    assert!((small.value / 0.125f64.powf(0.3) - 1.0).abs() < 0.05, "{small:?}");
    let shallow = one.shallow_queue_ratio.unwrap();
    assert!((shallow.value / (1.0f64 / 12.0).powf(0.2) - 1.0).abs() < 0.05, "{shallow:?}");
    assert!(one.is_whole() && one.links.iter().all(|l| l.ratio.unwrap().pairs == 5), "none in the first round");
    let (share, product) =
        (one.share_ratio.unwrap(), one.links.iter().map(|l| l.ratio.unwrap().value).product::<f64>());
    assert!((product / share.value - 1.0).abs() < 1e-9, "{product} {}", share.value);
    for (form, text) in forms(&report) {
        if form == "json" {
            assert!(text.contains("\"small_requests_ratio\"") && text.contains("\"virtualisation\""));
            continue;
        }
        assert!(text.contains("Small requests or virtualisation") && text.contains("native, 64 KiB × 12"), "{form}");
        // From the workload natively to the workload in the guest, by the same job on both sides.
        for row in ["native, dd-write", "native, 64 KiB × 1", "guest, 64 KiB × 1", "guest, dd-write"] {
            assert!(text.contains(row), "{form}: {row}");
        }
        for link in &one.links {
            assert!(text.contains(&report::format::factor(&link.ratio.unwrap())), "{form}: {link:?}");
        }
        let together = format!("Together: {} of native", report::format::factor(&share));
        assert!(text.contains(&together), "{form}: {together}");
    }
    // A run of an older vmio lacks the job in the guest: the other links are shown.
    let mut older = run.clone();
    let own = |s: &Sample| !s.cell.is_native() && s.cell.workload().starts_with("seq-");
    older.samples.retain(|s| !own(s));
    for (form, text) in forms(&Report::of(&older)) {
        assert!(form == "json" || !text.contains("guest, 64 KiB × 1"), "{form}");
        assert!(text.contains(if form == "json" { "\"rest\"" } else { "guest, program" }), "{form}");
    }
    // Control cells stand with what they explain, not among what the study asked for.
    let text = report::text(&report, Style::PLAIN);
    let asked = ["seq-write-7680-d1", "seq-write-64k-d1"];
    let shown: Vec<&str> = text.lines().filter(|l| l.starts_with("seq-write-")).collect();
    assert!(shown.iter().all(|l| asked.iter().any(|asked| l.starts_with(asked))), "{shown:?}");
    // Before the second round there is nothing to say, and that is said.
    let mut young = run.clone();
    young.samples.retain(|s| s.round == 0);
    let report = Report::of(&young);
    assert!(report::text(&report, Style::PLAIN).contains("not measured"));
    for e in &report.summary.explained {
        assert!(!e.links_enough && !e.enough && e.links.iter().all(|l| l.ratio.is_none()), "{}", e.key);
    }
}

#[test]
fn every_control_cell_is_a_workload_that_asks_for_just_that() {
    let run = common::paper::run(Accel::Tcg);
    let all = controls(&run.study, &run.samples, &vmio_model::study::control::logical_blocks(&run.effective));
    assert!(all.iter().any(|c| c.link == Link::Depth));
    for control in all {
        let traits = workloads::find(control.cell.workload()).unwrap().traits();
        let disk = traits.disk.unwrap();
        assert_eq!((disk.block_bytes, disk.depth), (control.request_bytes, control.depth), "{}", traits.name);
        assert!(disk.direct && disk.sequential && disk.reads == control.of.workload().contains("read"));
    }
}

#[test]
fn events_by_component_stand_beside_those_that_are_printed() {
    for (accel, emulated) in [(Accel::Kvm, false), (Accel::Tcg, true)] {
        let run = common::places::run(accel);
        for (form, text) in forms(&Report::of(&run)) {
            let wanted: &[&str] = match form {
                "json" => &["\"paper_events\"", "\"counts\"", "\"kernel, *\""],
                _ => &["17545 60.9", "libpthread", "936 3.25", "guest kernel", "other processes", "cpu-clock"],
            };
            for said in wanted {
                assert!(text.contains(said), "{form}: {said}: {text}");
            }
            assert_eq!(text.contains("Not run here: KVM"), emulated && form != "json", "{form}");
        }
        let state = StateDir::new();
        common::store_run(&state.store(), &run);
        let text = unfolded(&state.vmio(&["study", "compare", "lu2016-quick", "paper"]).with(0).out);
        let rows = [
            "kernel 17545 60.9% 1569 5.45% 1",
            "libpthread 936 3.25% 0 0% 0 µs 0.0% 0 µs 0.0%",
            "Total 28809 100% 4225 14.66%",
        ];
        for row in rows {
            assert!(text.contains(row), "{row}: {text}");
        }
        assert_eq!(text.contains("Not run here: KVM"), emulated, "{text}");
    }
    // Without samples there are the published figures, and why there are no others.
    let mut plain = common::places::run(Accel::Kvm);
    plain.samples.iter_mut().for_each(|s| s.seen.retain(|seen| seen.probe != "components"));
    let text = unfolded(&report::text(&Report::of(&plain), Style::PLAIN));
    for said in ["kernel 17545 60.9% 1569 5.45% – – –", "the run needs --components"] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn energy_is_judged_where_a_meter_was_there_and_cpu_time_is_told_beside_it() {
    let compared = |run: &Run| {
        let state = StateDir::new();
        common::store_run(&state.store(), run);
        unfolded(&state.vmio(&["study", "compare", "lu2016-quick", "paper"]).with(0).out)
    };
    let mut run = common::places::run(Accel::Kvm);
    let text = compared(&run);
    for said in [
        "Energy above rest",
        "no meter",
        "not decidable the same with four guests at once (four-guests-power)",
        "published: 48 against 13 W, ratio 3.69",
        "why: no meter was there",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    run.environment.at_rest = [119.0, 121.0].map(common::at_rest).into();
    for sample in &mut run.samples {
        let watts = if sample.cell.key().contains("warm-guest") { 133.0 } else { 168.0 };
        sample.seen.push(common::metered(watts * (1.0 + 0.004 * f64::from(sample.round % 3))));
    }
    let text = compared(&run);
    assert!(text.contains("holds the same with four guests at once (four-guests-power)"), "{text}");
    assert!(text.contains("ipmi machine") && !text.contains("no meter"), "{text}");
}

#[test]
fn compare_judges_the_newest_run_of_the_study() {
    let state = StateDir::new();
    let compare = |args: &[&str], code: i32| state.vmio(&[&["study", "compare"], args].concat()).with(code);
    compare(&["shafer2010-storage", "paper"], 3).says(&["no runs yet"]);
    let store = state.store();
    let other = common::store_run(&store, &common::run(Accel::Kvm));
    compare(&["shafer2010-storage", "paper"], 3).says(&["no run of shafer2010-storage is stored"]);
    let first = common::store_run(&store, &common::paper::run(Accel::Kvm));
    let newest = common::store_run(&store, &common::paper::run(Accel::Tcg));

    let text = compare(&["shafer2010-storage", "paper"], 0).out;
    assert!(text.starts_with(&format!("Run {newest} of shafer2010-storage against shafer2010")), "{text}");
    assert!(text.contains("software emulation") && text.contains("not decidable here: emulation"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    assert!(text.contains("holds         reads through the emulated controller are slower"), "{text}");

    let json = compare(&["shafer2010-storage", "paper", "--json", "--of", &first.to_string()], 0).json();
    assert_eq!((json["run"].as_i64(), json["emulated"].as_bool()), (Some(first), Some(false)));
    let verdict = |id: &str| {
        let all = json["effects"].as_array().unwrap();
        all.iter().find(|e| e["effect"]["id"] == id).unwrap()["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("virtio-writes-reach-native"), "fails", "with KVM the made-up figures decide");
    assert_eq!(verdict("sparse-write-collapse"), "holds");
    assert_eq!(verdict("small-requests-cost"), "holds");

    compare(&["quick", "paper"], 2).says(&["quick does not repeat a paper's measurements"]);
    compare(&["shafer2010-storage", "book"], 2).says(&["invalid value 'book'"]);
    compare(&["shafer2010-storage", "paper", "--of", "99"], 2).says(&["the store has no run 99"]);
    let of_other = compare(&["shafer2010-storage", "paper", "--of", &other.to_string()], 2);
    of_other.says(&["belongs to the study quick, not to shafer2010-storage"]);
}
