//! Every page, with names that somebody else chose and that are markup: each stays a text. What the templates
//! escape is held here page by page; that nothing else builds pages, in `report/page.rs`.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::figures;
use crate::help::state_dir::StateDir;

use std::fs;

use common::page::is_ours;
use common::poison::Poison;
use vmio::report::scan::{Row, View};
use vmio::report::simulation::{self, Simulated, Study};
use vmio::report::{Proved, Report, html, scan};
use vmio_model::allocate::dba::Measures;
use vmio_model::cell::Subject;
use vmio_model::facts::Unread;
use vmio_model::result::{Accel, RunState};
use vmio_model::run::Run;
use vmio_model::simulate::paper::Paper;
use vmio_model::simulate::{self, Allocator, SECOND, Scenario, Settings};

/// Ends an attribute and an element, begins others, and turns what follows around.
const HOSTILE: &str = "\"'></title></td><script>alert('x')</script><img src=x onerror=\"y\" z='&lt;&amp;\u{202e}";
const POISON: Poison = Poison(HOSTILE);

/// The same, as a page may show it.
const SHOWN: &str = "&gt;&lt;/title&gt;&lt;/td&gt;&lt;script&gt;alert(";

/// Nothing but our own markup, and the names that must be there are there as text, at least so often.
#[track_caller]
fn holds(page: &str, times: usize) {
    is_ours(page);
    let seen = page.matches(SHOWN).count();
    assert!(seen >= times, "{seen} of at least {times} hostile names are shown");
    assert!(page.contains("&amp;lt;&amp;amp;\u{fffd}"), "the end of the name");
}

/// As a store may hold it: study, guest, cells and whatever else has a text of its own.
fn hostile_run(made: &Run) -> Run {
    let mut slim = made.clone();
    slim.samples.truncate(4);
    let mut run = POISON.value(&slim);
    // By these names samples find their traits and cells their pairs.
    run.workloads.clone_from(&made.workloads);
    run.samples.extend(made.samples.iter().cloned());
    run.kind.clone_from(&made.kind);
    run.state = RunState::Failed(HOSTILE.into());
    run
}

#[test]
fn a_run_with_names_that_are_markup() {
    for made in [common::run(Accel::Tcg), common::run(Accel::Kvm), common::paper::run(Accel::Tcg)] {
        let run = hostile_run(&made);
        let mut report = Report::of(&run);
        // What is concluded, too: a workload's name is in each of these texts.
        report.findings = report.findings.iter().map(|f| POISON.finding(f)).collect();
        report.tables = report.tables.iter().map(|t| POISON.value(t)).collect();
        report.summary.statement = Some(HOSTILE.into());
        report.summary.skipped = report.summary.skipped.iter().map(|s| POISON.value(s)).collect();
        report.summary.explained = report.summary.explained.iter().map(|e| POISON.value(e)).collect();
        report.summary.headline = report.summary.headline.as_ref().map(|h| POISON.value(h));
        let proof = report.findings.iter().find_map(|f| f.proof.clone());
        let proved = proof.map(|proof| Proved {
            run: 7,
            before: proof.before,
            after: proof.after,
            gain_ratio: made_ratio(&report),
            verdict: HOSTILE.into(),
        });
        report.proofs.extend(proved);
        holds(&html(&report), 60);
    }
    let mut run = common::run(Accel::Kvm);
    run.kind = format!("quick{HOSTILE}").as_str().into();
    run.samples.iter_mut().flat_map(|s| s.cell.actors_mut()).for_each(|actor| match &mut actor.subject {
        Subject::Disk { target, .. } => *target += HOSTILE,
        _ => unreachable!("all of them are on disks"),
    });
    let renamed = |name: &str| format!("{name}{HOSTILE}");
    run.workloads.iter_mut().for_each(|w| w.name = renamed(&w.name));
    run.samples.iter_mut().for_each(|s| s.cell.lead.workload = renamed(s.cell.workload()));
    holds(&html(&Report::of(&run)), 60);
}

/// What works on no disk is shown by names that a study and a workload gave: of figures and labels, networks, cards
/// and settings.
#[test]
fn figures_whose_names_are_markup() {
    let named = |name: &mut String| *name += HOSTILE;
    for baseline in figures::BASELINES {
        let mut run = figures::run(baseline);
        for workload in &mut run.workloads {
            named(&mut workload.name);
            named(&mut workload.judged_by);
            workload.figures.iter_mut().for_each(|figure| named(&mut figure.name));
        }
        for sample in &mut run.samples {
            for actor in sample.cell.actors_mut() {
                named(&mut actor.workload);
                if let Subject::Path { network, nic, .. } = &mut actor.subject {
                    named(network);
                    nic.iter_mut().for_each(|nic| named(&mut nic.model));
                }
            }
            sample.cell.settings.values_mut().for_each(named);
            for result in std::iter::once(&mut sample.result).chain(&mut sample.beside) {
                for reading in &mut result.figures {
                    named(&mut reading.figure);
                    reading.labels.values_mut().for_each(named);
                }
            }
        }
        let report = Report::of(&run);
        holds(&html(&report), 60);
        let markdown = vmio::report::markdown(&report);
        assert!(!markdown.contains("<script") && !markdown.contains('\u{202e}'));
    }
}

fn made_ratio(report: &Report<'_>) -> vmio_model::stats::Ratio {
    report.summary.shares[0].share_ratio
}

#[test]
fn a_scan_of_guests_whose_names_are_markup() {
    let mut view = common::scan::view();
    let row = |row: Row| Row {
        findings: row.findings.iter().map(|f| POISON.finding(f)).collect(),
        guest: POISON.guest(&row.guest),
        differences: vec![HOSTILE.into()],
    };
    view.rows = view.rows.into_iter().map(row).collect();
    // What the rules themselves say of it; all in one step, and with a finding of the whole host.
    let found: Vec<Row> = view.rows.iter().map(|row| Row::of(row.guest.clone())).collect();
    view.rows.extend(found);
    let with = |text: &str| format!("{text}{HOSTILE}");
    let unread = |u: &Unread| Unread { what: with(&u.what), why: with(&u.why), mend: with(&u.mend).into() };
    view.unread = view.unread.iter().map(unread).collect();
    holds(&scan::html(&view), 200);
    is_ours(&scan::html(&View { rows: Vec::new(), ..view }));
}

/// A scenario and an experiment whose every name is markup: members, paper, sections, notes, files.
#[test]
fn a_simulation_of_members_whose_names_are_markup() {
    let text = include_str!("../../../papers/amamou2012.toml");
    let mut scenario = Scenario::from_toml("amamou2012.toml", text).unwrap();
    scenario.duration = SECOND;
    scenario.vifs.iter_mut().for_each(|v| v.name += HOSTILE);
    let mut paper: Paper = toml::from_str(text).unwrap();
    for text in [&mut paper.key, &mut paper.citation, &mut paper.section] {
        *text += HOSTILE;
    }
    paper.published.iter_mut().for_each(|p| p.vm += HOSTILE);
    for note in &mut paper.footnote {
        note.about += HOSTILE;
        note.text += HOSTILE;
    }
    let run = |allocator| {
        let settings = Settings::new(allocator, SECOND / 10);
        let outcome = simulate::run(&scenario, &settings).unwrap();
        Simulated { subject: format!("eth0 {HOSTILE}"), scenario: scenario.clone(), settings, outcome }
    };
    let all = [Allocator::None, Allocator::Dba(Measures::Offered), Allocator::Exact];
    let periods = all[1..].iter().flat_map(|a| [1, 10].map(|ms| (*a, ms * SECOND / 1000, vec![0.5, 0.2, 0.1])));
    let study = Study { paper, periods: periods.collect() };
    let mut report =
        simulation::Report { runs: all.into_iter().map(run).collect(), study: Some(study), command: HOSTILE.into() };
    holds(&simulation::html(&report), 50);
    report.study = None;
    holds(&simulation::html(&report), 30);
}

/// The way of a user: the machine that a policy's pattern takes, and the file of a scenario.
#[test]
fn a_simulated_policy_whose_names_are_markup() {
    let state = StateDir::new();
    let (policy, page) = (state.path().join("guard.toml"), state.path().join("page.html"));
    let text = "[uplink.eth0]\ncapacity = \"10Mbit\"\n[class.gold]\nmax = \"5Mbit\"\n\
                [[interface]]\nmatch = { vm = \"*\" }\nclass = \"gold\"\nuplink = \"eth0\"\n";
    fs::write(&policy, text).unwrap();
    let file = state.path().join(format!("{}.toml", HOSTILE.replace('/', "")));
    let scenario = include_str!("../../../papers/amamou2012.toml").replace("MV1", "MV1<img src='x'>");
    fs::write(&file, scenario).unwrap();
    let simulate = |args: &[&str]| {
        let common = ["guard", "simulate", "--seconds", "1", "--html", page.to_str().unwrap()];
        state.vmio(&[&common, args].concat()).with(0);
        fs::read_to_string(&page).unwrap()
    };
    let shown = simulate(&["--config", policy.to_str().unwrap(), "--demand", &format!("vm:{HOSTILE}=2Mbit")]);
    holds(&shown, 4);
    let shown = simulate(&["--scenario", file.to_str().unwrap()]);
    is_ours(&shown);
    assert!(shown.contains("MV1&lt;img src"), "the member is shown");
    // A class and an uplink have no such names at all.
    for (from, to) in [("gold", "<b>gold</b>"), ("eth0", "eth0<img src=x>")] {
        fs::write(&policy, text.replace(&format!(".{from}]"), &format!(".\"{to}\"]"))).unwrap();
        state.vmio(&["guard", "check", "--config", policy.to_str().unwrap()]).with(2);
    }
}
