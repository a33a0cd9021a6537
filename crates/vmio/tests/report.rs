//! The reports: each form says what must not be left out, and nothing that was not measured.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::state_dir::unfolded;

use common::page;
use vmio::report::export::{Format, export};
use vmio::report::{self, Report};
use vmio::term::Style;
use vmio_model::cell::{Aio, Cache};
use vmio_model::kind::RunKind;
use vmio_model::result::*;
use vmio_model::rules::Proof;
use vmio_model::run::Run;

/// All forms, a person's with lines broken nowhere.
fn forms(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let json: serde_json::Value = serde_json::from_str(&report::json(report)).unwrap();
    let cells = json["skipped"].as_array().unwrap().iter().map(|s| {
        let cell: vmio_model::cell::Cell = serde_json::from_value(s["cell"].clone()).unwrap();
        format!(" {}", cell.key())
    });
    let cells: String = cells.collect();
    let read = page::forms(report).map(|(form, text)| (form, unfolded(&text)));
    read.into_iter().chain([("json", json.to_string().replace("\\\"", "\"") + &cells)]).collect()
}

#[test]
fn every_form_names_what_was_skipped_and_why() {
    let run = common::run(Accel::Kvm);
    let report = Report::of(&run);
    assert!(!run.skipped.is_empty());
    for (form, text) in forms(&report) {
        for skipped in &run.skipped {
            assert!(text.contains(&skipped.cell.key()), "{form}: {}", skipped.cell.key());
            assert!(text.contains(&skipped.reason), "{form}: {}", skipped.reason);
        }
    }
}

/// Each curve as its points on the drawing: further right, and never lower (y grows downwards).
fn curves(html: &str) -> Vec<Vec<(f64, f64)>> {
    let drawings = html.split("<svg class=\"curves\"").skip(1).map(|rest| rest.split("</svg>").next().unwrap());
    let lines = drawings.flat_map(|svg| svg.split("<polyline").skip(1));
    let points = lines.map(|line| line.split(" points=\"").nth(1).unwrap().split('"').next().unwrap());
    let point = |text: &str| {
        let (x, y) = text.split_once(',').unwrap();
        (x.parse().unwrap(), y.parse().unwrap())
    };
    points.map(|all| all.split_whitespace().map(point).collect()).collect()
}

/// A sample that did few requests does not say how long one of 10000 took, and that it is slow must not let the curve fall
/// where it ends.
#[test]
fn no_curve_of_latency_falls() {
    let mut run = common::run(Accel::Kvm);
    let slow = run.samples.iter_mut().filter(|s| s.round < 5 && s.result.latency().is_some());
    for sample in slow {
        sample.result.amend(|work| {
            work.ios /= 50;
            work.latency.as_mut().unwrap().percentiles.iter_mut().for_each(|(_, seconds)| *seconds *= 40.0);
        });
    }
    let html = report::html(&Report::of(&run));
    let all = curves(&html);
    assert!(all.len() > 10 && all.iter().all(|points| points.len() > 5), "{all:?}");
    for points in all {
        assert!(points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 >= two[1].1), "{points:?}");
    }
}

/// What the statement on emulation says nothing of is not drawn, and is marked in the tables.
#[test]
fn latencies_of_emulated_guests_are_disowned() {
    let drawn = |accel| curves(&report::html(&Report::of(&common::run(accel)))).len();
    assert!(drawn(Accel::Tcg) == 0 && drawn(Accel::Kvm) > 10, "{}", drawn(Accel::Tcg));
    let says = "*: latency of a guest under software emulation, which says nothing about one under KVM.";
    let plain = |text: String| text.replace("**", "").replace("<strong>", "").replace("</strong>", "");
    for (form, text) in forms(&Report::of(&common::run(Accel::Tcg))).into_iter().filter(|(form, _)| *form != "json") {
        assert!(plain(text.clone()).contains(says) && text.contains("s*"), "{form}: {text}");
    }
    for (form, text) in forms(&Report::of(&common::run(Accel::Kvm))) {
        let marked = [says, " ms*", " µs*"].iter().any(|mark| text.contains(mark));
        assert!(!marked, "{form}");
    }
}

/// One order of columns: figure, share, latencies, the device's figures, samples.
#[test]
fn columns_have_one_order_in_every_form() {
    let run = common::run(Accel::Kvm);
    let report = Report::of(&run);
    let inside = |text: &str, all: &[&str]| {
        let places: Vec<Option<usize>> = all.iter().map(|head| text.find(head)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} of {all:?}: {text}");
    };
    let text = report::text(&report, Style::PLAIN);
    let heads = text.lines().find(|line| line.contains("figure (95%)")).unwrap();
    inside(heads, &["figure (95%)", "share of native", "p50", "p99", "   n"]);
    let columns = ["Share of native", "p50", "p99", "avgrq-sz", "avgqu-sz", "%util", "samples"];
    let markdown = report::markdown(&report);
    inside(markdown.lines().find(|line| line.starts_with("| Side | ")).unwrap(), &columns);
    let html = report::html(&report);
    let heads = html.split("<thead>").find(|table| table.contains(">Side<")).unwrap();
    inside(heads.split("</thead>").next().unwrap(), &columns);
}

/// Headlines are compared with each other, so they have one axis; what they are of stays on the page.
#[test]
fn headlines_are_on_one_axis() {
    let run = common::run(Accel::Kvm);
    let mut report = Report::of(&run);
    let first = report.summary.headline.clone().expect("a headline");
    let axes = |report: &Report<'_>| {
        let html = report::html(report);
        page::is_ours(&html);
        let at = html.find("<div class=\"heads\">").unwrap();
        let all = html.matches("<svg class=\"axis\"").count();
        let bars = html[at..].split("<svg class=\"axis\"").next().unwrap().matches("class=\"track\"").count();
        assert!(html[at..].contains(&format!("<p>{}", first.text.split(',').next().unwrap())), "{html}");
        (all, bars, html[at..].contains("<summary>What these shares are of"))
    };
    assert_eq!(axes(&report), (1, 1, false));
    report.summary.further_headlines = vec![first.clone(), first.clone()];
    assert_eq!(axes(&report), (1, 3, true));
}

/// One statistic in tables and drawings, and every form a person reads says which.
#[test]
fn what_a_percentile_is_over_the_samples_is_said() {
    let run = common::run(Accel::Kvm);
    for (form, text) in forms(&Report::of(&run)) {
        let said = text.contains("p50 and p99: geometric means over the samples.");
        assert_eq!(said, form != "json", "{form}");
        assert!(!text.contains("median over the samples"), "{form}");
    }
}

#[test]
fn every_form_says_that_a_result_is_emulated() {
    let run = common::run(Accel::Tcg);
    let report = Report::of(&run);
    let statement = report.summary.statement.clone().unwrap();
    for (form, text) in forms(&report) {
        assert!(text.contains(&statement), "{form}");
    }
    for format in [Format::Json, Format::Pkb, Format::GithubActionBenchmark, Format::Csv] {
        assert!(export(&run, format).contains("tcg"), "{format:?}");
    }
    let run = common::run(Accel::Kvm);
    for (form, text) in forms(&Report::of(&run)) {
        assert!(!text.contains("software emulation"), "{form}");
    }
}

#[test]
fn a_share_that_did_not_converge_is_no_figure() {
    let run = common::run(Accel::Kvm);
    let report = Report::of(&run);
    let open: Vec<_> = report.summary.shares.iter().filter(|s| !s.converged).collect();
    let known = report.summary.shares.len() - open.len();
    assert!(!open.is_empty() && known > 0, "the fixture has both kinds");
    let text = report::text(&report, Style::PLAIN);
    assert_eq!(text.lines().filter(|l| l.trim_end().contains(" not converged C ")).count(), open.len());
    let html = report::html(&report);
    assert_eq!(
        html.matches("<td><span class=\"tag\">not converged</span><strong> C</strong></td>").count(),
        open.len()
    );
    assert!(!report.findings.is_empty());
    for share in open {
        let value = share.share_ratio.value;
        for cited in report.findings.iter().flat_map(|f| &f.figures).filter(|c| c.unit == "ratio") {
            assert!((cited.value - value).abs() > 1e-12, "{} cites {}", cited.label, share.key);
        }
        let name = format!("{} share of native", share.key);
        assert!(!export(&run, Format::GithubActionBenchmark).contains(&name), "{name}");
    }
}

#[test]
fn the_page_loads_nothing_and_is_whole() {
    let html = report::html(&Report::of(&common::run(Accel::Tcg)));
    page::is_ours(&html);
    for loader in ["href=", "url(", "@import"] {
        assert!(!html.contains(loader), "{loader}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(!html.contains("NaN") && !html.contains("inf%"), "a drawing of nothing");
}

#[test]
fn hostile_names_stay_text_in_markdown_and_csv() {
    let mut run = common::run(Accel::Kvm);
    let nasty = "<script>alert('x')</script> \"quoted\" & | `code`";
    run.kind = nasty.into();
    run.environment.backing = nasty.into();
    run.command.push(nasty.into());
    run.skipped[0].reason = nasty.into();
    let renamed = |name: &str| if name == "seq-read" { nasty.to_owned() } else { name.to_owned() };
    run.workloads.iter_mut().for_each(|w| w.name = renamed(&w.name));
    run.samples.iter_mut().for_each(|s| s.cell.lead.workload = renamed(s.cell.workload()));
    // GitHub would take it for HTML; indented lines are code, where it is text anyway.
    let markdown = report::markdown(&Report::of(&run));
    assert!(!markdown.lines().any(|l| !l.starts_with("    ") && l.contains("<script")), "{markdown}");
    let csv = export(&run, Format::Csv);
    assert!(csv.contains("\"<script>alert('x')</script> \"\"quoted\"\" & | `code`\""));
}

#[test]
fn the_terminal_report_is_at_most_80_columns_wide() {
    let mut run = common::run(Accel::Tcg);
    // The longest label there is, and times and rates of every size.
    let long = common::attachment("lsi53c895a", Cache::Writeback, Aio::IoUring, true);
    let mut noise = common::Noise(7);
    for traits in run.workloads.clone() {
        for round in 0..8 {
            let mut sample =
                common::sample(&mut noise, common::cell("device", long.clone(), &traits.name), &traits, round);
            sample.result.amend(|work| {
                work.ios /= 97;
                work.write_bytes /= 97;
            });
            run.samples.push(sample);
        }
    }
    let report = Report::of(&run);
    let plain = report::text(&report, Style::PLAIN);
    assert_eq!(page::too_long(&plain, &report.findings), [""; 0]);
    assert!(!plain.contains('\u{1b}'));
    page::is_only_coloured(&report::text(&report, Style::COLOUR), &plain);
}

#[test]
fn one_sample_has_no_interval_and_none_is_shown() {
    let mut run = common::run(Accel::Kvm);
    run.samples.retain(|s| s.round == 0);
    let report = Report::of(&run);
    for (form, text) in forms(&report).into_iter().filter(|(form, _)| *form != "json") {
        assert!(!text.contains("± ") && !text.contains("±0"), "{form}");
        assert!(text.contains("no interval"), "{form}");
    }
    assert!(!report::html(&report).contains("class=\"whisker\""));
}

#[test]
fn a_device_that_cannot_be_seen_has_no_figures() {
    let mut run = common::run(Accel::Kvm);
    for sample in &mut run.samples {
        sample.put_device(None);
        sample.marks = vec![Mark::NotVisible];
    }
    let report = Report::of(&run);
    for (form, text) in forms(&report) {
        let seen = if form == "json" { "\"not-visible\"" } else { "not visible here" };
        assert!(text.contains(seen), "{form}");
    }
    let rows = report::text(&report, Style::PLAIN).lines().filter(|l| l.ends_with(" not visible here")).count();
    assert_eq!(rows, report.summary.cells.len());
}

/// A stall is told with the row, with the share and in the legend, in every form, whichever side had it.
#[test]
fn a_device_stall_is_told_with_the_share_that_holds_it() {
    let mut run = common::run(Accel::Kvm);
    assert!(forms(&Report::of(&run)).iter().all(|(_, text)| !text.contains("device stall")));
    let sample = run.samples.iter_mut().find(|s| s.cell.is_native()).unwrap();
    sample.marks.push(Mark::Stalled);
    let round = sample.round;
    for (form, text) in forms(&Report::of(&run)) {
        match form {
            "json" => {
                assert!(text.contains("\"stalled\":1"), "{form}");
                assert!(text.contains(&format!("\"stalled_rounds\":[{round}]")), "{form}");
            }
            _ => {
                assert!(text.contains(&format!("a device stall in round {round}")), "{form}");
                assert!(unfolded(&text).contains("a request took 10 s or more"), "{form}");
            }
        }
    }
}

/// Kernel threads are a part by themselves where the whole is told by processes; old samples stay in ticks.
#[test]
fn the_clock_of_processor_time_is_told() {
    let told = |run: &Run| forms(&Report::of(run));
    let mut run = common::run(Accel::Kvm);
    for (form, text) in told(&run) {
        let seen = if form == "json" { "\"clock\":\"ticks\"" } else { "counted in ticks" };
        assert!(text.contains(seen), "{form}");
        assert!(form == "json" || !text.to_lowercase().contains("kernel threads"), "{form}");
    }
    for sample in &mut run.samples {
        let exact = CpuUse { host_seconds: 9.0, kernel_seconds: Some(1.5), ..CpuUse::default() };
        let others = |seen: &ProbeResult| seen.watched == Watched::Others;
        sample.seen.extend(exact.seen("guest").into_iter().filter(others));
    }
    for (form, text) in told(&run) {
        let text = unfolded(&text);
        let seen = if form == "json" { "\"clock\":\"processes\"" } else { "Total = CPU time of " };
        assert!(text.contains(seen), "{form}");
        assert!(form == "json" || text.to_lowercase().contains("kernel threads"), "{form}");
        assert!(form == "json" || !text.contains("counted in ticks"), "{form}");
        // What depth and busy are worth stands beside them where they have a legend.
        assert!(!matches!(form, "text" | "html") || text.contains("sample it at clock ticks"), "{form}");
    }
}

#[test]
fn a_run_that_was_broken_off_is_called_partial() {
    let mut run = common::run(Accel::Kvm);
    run.state = RunState::Interrupted("Ctrl-C in round 3".into());
    for (form, text) in forms(&Report::of(&run)) {
        assert!(text.contains("Ctrl-C in round 3"), "{form}");
        assert!(form == "json" || text.contains("partial"), "{form}");
    }
}

#[test]
fn a_run_without_samples_has_a_report() {
    let mut run = common::run(Accel::Kvm);
    run.samples.clear();
    run.environment.accel = None;
    for (form, text) in forms(&Report::of(&run)) {
        assert!(text.contains(&run.skipped[0].cell.key()), "{form}");
        assert!(form == "json" || text.contains("No share can be stated"), "{form}");
    }
}

#[test]
fn a_proof_is_shown_with_its_finding() {
    let run = common::run(Accel::Kvm);
    let report = Report::of(&run);
    let proof = report.findings.iter().find_map(|f| f.proof.clone()).expect("the fixture has an emulated driver");
    // The run that proves it holds both cells, interleaved.
    let mut later = run.clone();
    later.id = 9;
    later.kind = RunKind::Proof(run.id);
    later.samples.retain(|s| s.cell == proof.before || s.cell == proof.after);
    let report = Report::of(&run).with_proofs([&later]);
    for (form, text) in forms(&report) {
        assert!(text.contains("proven: "), "{form}");
        assert!(form == "json" || text.contains("run 9"), "{form}");
    }
    // The same cell on both sides: nothing is proven.
    let same = Proof { before: proof.before.clone(), after: proof.before.clone() };
    let outcome = report::prove(&later, &same).unwrap();
    assert!(outcome.verdict.starts_with("no difference"), "{}", outcome.verdict);
    later.samples.retain(|s| s.round < 2);
    assert!(report::prove(&later, &proof).unwrap().verdict.starts_with("not enough"));
    later.samples.clear();
    assert_eq!(report::prove(&later, &proof), None);
}

/// What a person reads last is the answer: the headlines, and the widest difference between two set-ups.
#[test]
fn the_short_report_fits_and_ends_with_the_answer() {
    for accel in [Accel::Kvm, Accel::Tcg] {
        let run = common::run(accel);
        let report = Report::of(&run);
        let text = report::short(&report, Style::PLAIN, 80);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= report::LINES, "{} lines: {text}", lines.len());
        assert_eq!(page::too_long(&text, &report.findings), [""; 0]);
        page::is_only_coloured(&report::short(&report, Style::COLOUR, 80), &text);
        assert_eq!(unfolded(&text).contains("software emulation"), accel == Accel::Tcg, "{text}");
        let end = unfolded(&lines[lines.len().saturating_sub(16)..].join("\n"));
        for of in report.summary.headlines() {
            assert!(end.contains(of.nature.heading()) && end.contains(" of this host: "), "{text}");
        }
        for (command, what) in report::next_commands(&report, false) {
            assert!(end.contains(&command) && end.contains(what), "{command}: {text}");
        }
        let widest = vmio_model::summary::widest_difference(&run, &report.summary).unwrap();
        for text in [&text, &report::text(&report, Style::PLAIN)] {
            assert!(unfolded(text).trim_end().ends_with(&widest), "{widest}: {text}");
        }
        assert!(!report.findings.is_empty() && text.contains("\nFindings\n1. "), "{text}");
    }
}

/// With a single set-up there is no comparison, and the headline is what is read last. What comes next is a run of the
/// same store.
#[test]
fn a_report_without_a_comparison_ends_with_its_headline() {
    let mut run = common::run(Accel::Kvm);
    let summary = Report::of(&run).summary;
    let kept: Vec<String> = summary.headlines().flat_map(|h| h.cells.clone()).collect();
    run.samples.retain(|sample| sample.cell.is_native() || kept.contains(&sample.cell.key()));
    run.command = ["vmio", "--state", "/srv/state", "tax", "--quick"].map(String::from).to_vec();
    let report = Report::of(&run);
    assert_eq!(vmio_model::summary::widest_difference(&run, &report.summary), None);
    for text in [report::short(&report, Style::PLAIN, 80), report::text(&report, Style::PLAIN)] {
        let (before, last) = text.trim_end().rsplit_once("\n\n").unwrap();
        assert!(unfolded(last).contains(" of this host: ") && before.contains("\nNext:\n"), "{text}");
    }
    let next = report::next_commands(&report, false);
    assert!(next.iter().all(|(command, _)| command.ends_with(" --state /srv/state")), "{next:?}");
}

/// A share of a cap is no share of the host: it says what it means, and why it is higher than without the cap.
#[test]
fn a_gentle_share_says_what_it_means() {
    let free = common::run(Accel::Kvm);
    let mut run = free.clone();
    run.environment.cap_ratio = Some(0.25);
    let alone = unfolded(&report::short(&Report::of(&run), Style::PLAIN, 80));
    assert!(alone.contains(" of a cap of 25 %: ") && alone.contains("Capped at 25 % (--gentle)"), "{alone}");
    assert!(!alone.contains("without --gentle"), "{alone}");
    // The guest reaches more of a cap than it got of the host.
    let faster = |sample: &mut Sample| {
        if sample.cell.is_native() {
            sample.result.amend(|work| work.seconds *= 3.0);
        }
    };
    run.samples.iter_mut().for_each(faster);
    let report = Report::of(&run).with_uncapped(Some(&free));
    let wanted = format!("run {} without --gentle showed ", free.id);
    for (form, text) in forms(&report).into_iter().filter(|(form, _)| *form != "json") {
        assert!(text.contains(&wanted) && text.contains("own speed is not seen"), "{form}: {text}");
    }
    assert!(unfolded(&report::short(&report, Style::PLAIN, 80)).contains(&wanted));
}

#[test]
fn exports_can_be_read_by_those_they_are_for() {
    let run = common::run(Accel::Kvm);
    let pkb = export(&run, Format::Pkb);
    let first: serde_json::Value = serde_json::from_str(pkb.lines().next().unwrap()).unwrap();
    for key in ["metric", "value", "unit", "metadata", "timestamp"] {
        assert!(first.get(key).is_some(), "{key}");
    }
    let value = run.samples[0].work().bandwidth();
    assert_eq!((first["metric"].as_str(), first["value"].as_f64()), (Some("bandwidth"), Some(value)));

    let github: serde_json::Value = serde_json::from_str(&export(&run, Format::GithubActionBenchmark)).unwrap();
    for entry in github.as_array().unwrap() {
        assert!(entry["name"].is_string() && entry["unit"].is_string() && entry["value"].is_f64(), "{entry}");
    }
    let whole: serde_json::Value = serde_json::from_str(&export(&run, Format::Json)).unwrap();
    assert_eq!(whole["samples"][0]["result"]["raw"]["fio version"], "fio-3.33");
    assert_eq!(whole["schema_version"], "2.0");

    let csv = export(&run, Format::Csv);
    assert_eq!(csv.lines().count(), run.samples.len() + 1);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(csv.lines().filter(|l| !l.contains('"')).all(|l| l.split(',').count() == columns));
}
