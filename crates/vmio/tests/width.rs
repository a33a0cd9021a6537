//! Every text fits a terminal of 80 columns, also where standard output is none: what was never made
//! larger, a log, a mail. What is longer is a line of a change, which is there to be pasted and not broken.
#![allow(clippy::unwrap_used)]

use crate::common::{self, page::longer_than, page::too_long};
use crate::help::state_dir::{StateDir, unfolded};

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use unicode_width::UnicodeWidthStr;
use vmio::report::scan::{LINES, Row, View, brief, detail, diff, overview, whole_command};
use vmio::report::{self, Report};
use vmio::term::Style;
use vmio_model::facts::Guest;
use vmio_model::result::Accel;
use vmio_model::rules::Finding;
use vmio_model::run::Run;
use vmio_model::study::Study;

const WIDTH: usize = 80;

/// Each command line of the program that prints a text and needs neither root nor a guest.
const COMMANDS: &[&[&str]] = &[
    &["scan"],
    &["scan", "--all"],
    &["top", "--once", "--interval", "0.2", "--no-ebpf"],
    &["tax", "--dry-run"],
    &["tax", "--full", "--dry-run"],
    &["tax", "--noise", "--dry-run", "--gentle"],
    &["study", "list"],
    &["study", "run", "durability", "--dry-run", "--steady-state"],
    &["study", "compare", "shafer2010-storage", "paper"],
    &["runs", "list"],
    &["runs", "show", "1"],
    &["runs", "show", "1", "--verbose"],
    &["runs", "show", "3"],
    &["runs", "compare", "1", "2"],
    &["doctor"],
    &["doctor", "--verbose"],
    &["schema"],
    &["guard", "plan", "--config", "POLICY"],
    &["guard", "plan", "--config", "POLICY", "--demand", "vnet0=200Mbit", "vnet1:rx=unbounded", "host=5Mbit"],
    &["guard", "check", "--config", "POLICY"],
    &["guard", "simulate", "--config", "POLICY", "--seconds", "1"],
    // What is refused.
    &["tax", "--dry-run", "--on", "pve:nothing-of-this-name"],
    &["tax", "--dry-run", "--gib", "0.1"],
    &["tax", "--dry-run", "--minutes", "abc"],
    &["study", "run", "network-quick", "--dry-run", "--gib", "5"],
    &["study", "run", "network-quick", "--dry-run", "--gentle"],
    &["study", "run", "network-quick", "--dry-run", "--steady-state"],
    &["study", "run", "nofile.toml"],
];

const POLICY: &str = r#"
[uplink.eth0]
capacity = "1 Gbit"

[class.gold]
min = "100 Mbit"
max = "500 Mbit"
priority = 1

[class.a-class-with-a-very-long-name]
min = "10 Mbit"
max = "200 Mbit"
priority = 3

[[interface]]
match = { name = "vnet0" }
class = "gold"

[[interface]]
match = { name = "vnet1" }
class = "a-class-with-a-very-long-name"

[[interface]]
match = { vm = "a-guest-with-a-very-long-name-0000abcd" }
class = "gold"
"#;

fn stocked() -> StateDir {
    let state = StateDir::new();
    common::store_run(&state.store(), &common::run(Accel::Tcg));
    let mut second = common::run(Accel::Kvm);
    second.environment.kernel = "6.12.0-1-amd64".into();
    second.samples.iter_mut().for_each(|s| s.result.amend(|work| work.seconds /= 1.5));
    common::store_run(&state.store(), &second);
    common::store_run(&state.store(), &common::paper::run(Accel::Kvm));
    std::fs::write(state.path().join("policy.toml"), POLICY).unwrap();
    state
}

fn printed(state: &StateDir, args: &[&str]) -> String {
    let policy = state.path().join("policy.toml");
    let args: Vec<&str> = args.iter().map(|a| if *a == "POLICY" { policy.to_str().unwrap() } else { a }).collect();
    let ended = state.finish(state.command(&args).env_remove("COLUMNS"));
    // 2: wrong usage; 3: this machine lacks something, which the text says.
    assert!(matches!(ended.code, Some(0 | 2 | 3)), "{args:?}: {:?}: {}", ended.code, ended.err);
    // The plan and what is noted go to standard error.
    ended.out + &ended.err
}

#[test]
fn every_command_prints_80_columns() {
    let state = stocked();
    let runs = [common::run(Accel::Tcg), common::run(Accel::Kvm), common::paper::run(Accel::Kvm)];
    let findings: Vec<Finding> = runs.iter().flat_map(|run| Report::of(run).findings).collect();
    let mut wrong = Vec::new();
    for args in COMMANDS {
        let text = printed(&state, args);
        assert!(!text.trim().is_empty(), "{args:?}");
        wrong.extend(too_long(&text, &findings).into_iter().map(|line| format!("vmio {}: {line}", args.join(" "))));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_help_has_80_columns() {
    fn visit(command: &mut clap::Command, path: &[String], wrong: &mut Vec<String>) {
        let state = StateDir::new();
        for form in ["--help", "-h"] {
            let args: Vec<&str> = path.iter().map(String::as_str).chain([form]).collect();
            let text = printed(&state, &args);
            assert!(text.contains("Usage:"), "{args:?}: {text}");
            let lines = text.lines().filter(|line| line.width() > WIDTH);
            wrong.extend(lines.map(|line| format!("vmio {}: {line}", args.join(" "))));
        }
        for sub in command.get_subcommands_mut() {
            let path = [path, &[sub.get_name().to_owned()]].concat();
            visit(sub, &path, wrong);
        }
    }
    let mut wrong = Vec::new();
    visit(&mut vmio::cli::command(), &[], &mut wrong);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A scan whose names, paths and numbers are as long as they get, and some as wide.
fn hostile() -> View {
    let mut view = common::scan::view();
    let rename = |guest: &mut Guest, name: &str| {
        name.clone_into(&mut guest.name);
        let id = guest.id();
        guest.disks.iter_mut().for_each(|d| d.subject.guest = id.clone());
        guest.nics.iter_mut().for_each(|n| n.subject.guest = id.clone());
    };
    rename(
        &mut view.rows[0].guest,
        "a-very-long-name-of-a-guest-as-openstack-makes-them-0000012f-and-longer-still-0000abcd",
    );
    rename(&mut view.rows[1].guest, "仮想マシン仮想マシン仮想マシン仮想マシン仮想マシン仮想マシン仮想マシン仮想マシン");
    view.rows[1].guest.ids.insert("vmid".into(), "999999999".into());
    view.rows[0].guest.disks[0].place.source = Some(format!("/srv/{}/disk.qcow2", "images/".repeat(20))).into();
    view.rows[0].findings[0].evidence[0].value = format!("/dev/disk/by-id/{}", "0123456789".repeat(12));
    view.rows[0].findings[0].cause = format!("{} is a path.", "/a".repeat(90));
    view
}

fn all(view: &View) -> Vec<Finding> {
    view.rows.iter().flat_map(|row| row.findings.clone()).collect()
}

#[test]
fn a_scan_of_any_names_fits_and_tells_guests_apart() {
    for view in [common::scan::view(), hostile()] {
        let mut texts = vec![overview(&view, Style::PLAIN, WIDTH)];
        for row in &view.rows {
            texts.extend([detail(row, Style::PLAIN, false), detail(row, Style::PLAIN, true)]);
            texts.push(brief(row, None, Style::PLAIN, WIDTH));
        }
        let first = diff::text(&view, &diff::Diff::first(), Style::PLAIN);
        let earlier = diff::Earlier { at_unix_seconds: 1.0, guests: Vec::new() };
        let all_new = diff::Diff::of(
            &view.rows,
            &earlier,
            "/a/very/long/path/of/a/state/directory/that/somebody/made/last-scan.json",
        );
        texts.extend([first, diff::text(&view, &all_new, Style::PLAIN)]);
        for text in texts {
            assert_eq!(too_long(&text, &all(&view)), Vec::<&str>::new(), "{text}");
        }
    }
    // Names of OpenStack's guests differ in their last characters alone.
    let mut view = common::scan::view();
    let one = view.rows[0].clone();
    let named = |i: usize| Row {
        guest: Guest { name: format!("instance-very-long-{i:08x}"), ..one.guest.clone() },
        ..one.clone()
    };
    view.rows = (0..9).map(named).collect();
    let text = overview(&view, Style::PLAIN, WIDTH);
    assert_eq!(too_long(&text, &all(&view)), Vec::<&str>::new());
    assert!((0..9).all(|i| text.contains(&format!("{i:04x} "))), "{text}");
}

#[test]
fn the_first_lines_say_the_worst() {
    for row in &common::scan::view().rows {
        let text = detail(row, Style::PLAIN, false);
        let first: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        assert!((1..=5).contains(&first.len()) && first.iter().all(|line| line.width() <= WIDTH), "{text}");
        assert!(first[0].starts_with(&format!("{}: ", row.guest.name)), "{text}");
        let leads: Vec<&str> = first[1..].iter().filter_map(|line| line.split_whitespace().next()).collect();
        match (row.worst(), row.is_known()) {
            (Some(_), _) => assert_eq!(leads, ["Worst", "Sure"], "{text}"),
            (None, true) => assert!(leads.is_empty(), "{text}"),
            (None, false) => assert_eq!(leads, ["Why", "Do"], "{text}"),
        }
    }
}

/// A guest with more findings than a screen has room for is on one all the same, and none is lost.
#[test]
fn one_guest_fits_a_screen() {
    for row in &common::scan::view().rows {
        let mut row = row.clone();
        let own = row.findings.clone();
        for nth in 0..6 {
            row.findings
                .extend(own.iter().take(1).cloned().map(|f| Finding { rule: format!("{}-{nth}", f.rule), ..f }));
        }
        let text = brief(&row, None, Style::PLAIN, WIDTH);
        let first =
            row.findings.first().map_or(0, |f| f.change.ways().iter().map(|(_, how)| how.lines().count()).sum());
        assert!(text.lines().count() <= LINES.max(first + 20), "{text}");
        for found in &row.findings {
            assert!(text.contains(&found.rule), "{}: {text}", found.rule);
        }
        assert!(text.contains(&whole_command(&row, None)), "{text}");
        let takes = "after the guest is shut down and started";
        assert!(text.matches(takes).count() <= 2, "once for the first finding, once for all: {text}");
    }
}

/// In a narrow terminal no word is broken that has room on a line.
#[test]
fn nothing_breaks_a_word_at_40_columns() {
    let run = common::run(Accel::Tcg);
    let report = Report::of(&run);
    let scan = common::scan::view();
    let mut pairs = vec![(report::short(&report, Style::PLAIN, WIDTH), report::short(&report, Style::PLAIN, 40))];
    pairs.extend(
        scan.rows.iter().map(|row| (brief(row, None, Style::PLAIN, WIDTH), brief(row, None, Style::PLAIN, 40))),
    );
    for (wide, narrow) in pairs {
        assert_eq!(broken_words(&wide, &narrow), Vec::<&str>::new(), "{narrow}");
    }
}

/// What is a beginning of a word of the wide text that has room on a line, and no word of it, was broken off.
fn broken_words<'a>(wide: &str, narrow: &'a str) -> Vec<&'a str> {
    let words: BTreeSet<&str> = wide.split_whitespace().collect();
    let broken = |word: &&str| {
        let begins = |whole: &&&str| whole.len() > word.len() && whole.starts_with(*word);
        let [short, long] = [false, true].map(|long| words.iter().filter(begins).any(|w| (w.width() > 38) == long));
        !words.contains(*word) && !word.contains('…') && short && !long
    };
    narrow.split_whitespace().filter(|word| word.width() > 3).filter(broken).collect()
}

/// The same in a terminal, whose width the program asks for.
#[test]
fn a_terminal_of_40_columns_is_heeded() {
    let state = StateDir::new();
    common::store_run(&state.store(), &common::run(Accel::Tcg));
    let shown = |args: &str| {
        let show = format!("stty cols 40; exec {} {args}", env!("CARGO_BIN_EXE_vmio"));
        let mut command = Command::new("script");
        command.args(["-qec", &show, "/dev/null"]).env("VMIO_STATE", state.path()).env("NO_COLOR", "1");
        let output = command.stdin(Stdio::null()).output().expect("script(1) of util-linux");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = shown("runs show 1");
    assert!(text.contains("vmio run 1: quick"), "{text}");
    // A command to paste is whole.
    let long = |line: &&str| line.trim_end().width() > 40 && !line.trim_start().starts_with("vmio ");
    assert_eq!(text.lines().filter(long).collect::<Vec<_>>(), Vec::<&str>::new(), "{text}");
    // All tables and settings.
    common::store_run(&state.store(), &common::suite::run(Accel::Tcg));
    common::store_run(&state.store(), &common::suite::network(Accel::Tcg));
    for id in 1..=3 {
        let args = format!("runs show {id} --verbose");
        let (text, wide) = (shown(&args), state.vmio(&args.split(' ').collect::<Vec<_>>()).out);
        assert!(text.contains("figure (95%)"), "{text}");
        let stored = state.store().load(id).unwrap();
        assert_eq!(longer_than(40, &text, &Report::of(&stored).findings), Vec::<&str>::new(), "{text}");
        assert_eq!(broken_words(&wide, &text), Vec::<&str>::new(), "{text}");
    }
    let text = overview(&common::scan::view(), Style::PLAIN, 40);
    assert_eq!(text.lines().filter(long).collect::<Vec<_>>(), Vec::<&str>::new(), "{text}");
}

/// A run over all targets there are, with one of them, or one workload, as the baseline of the others.
fn compared_over_all_targets(baseline: &str) -> Run {
    let targets: Vec<&str> = vmio_rig::disks::targets::ALL.iter().map(|t| t.name()).collect();
    let text = format!(
        "name = 'targets'\ntitle = 'Targets beside each other'\ncites = ''\n{baseline}\n[guest]\nvcpus = 1\nmemory_mib = 256\n\
         [size]\ntarget_mib = 512\n[repeat]\nmin_pairs = 5\nmax_pairs = 12\nmin_boots = 3\nhalf_width = 0.05\n\
         seconds = 1.0\nmax_minutes = 10.0\nmax_gib_written = 50.0\n[[matrix]]\nsides = ['native', 'qemu']\n\
         disks.targets = {targets:?}\ndisks.drivers = ['virtio-blk']\ndisks.caches = ['none']\ndisks.aios = ['native']\n\
         workloads = ['seq-write', 'seq-read', 'rand-read-1', 'rand-read-32', 'rand-write-32']\n"
    );
    let study: Study = toml::from_str(&text).unwrap();
    let (mut noise, workloads) = (common::Noise(5), common::workloads());
    let mut samples = Vec::new();
    for round in 0..5 {
        for cell in study.cells() {
            let traits = workloads.iter().find(|w| w.name == cell.workload()).unwrap();
            samples.push(common::sample(&mut noise, cell, traits, round));
        }
    }
    Run { kind: study.name.as_str().into(), study, samples, ..common::run(Accel::Kvm) }
}

#[test]
fn names_of_all_targets_fit_where_they_are_compared_with_one() {
    let run = compared_over_all_targets("[baseline.like]\ntarget = 'device'");
    let report = Report::of(&run);
    let shown = report::text(&report, Style::PLAIN);
    assert_eq!(too_long(&shown, &report.findings), Vec::<&str>::new(), "{shown}");
    let words = unfolded(&shown);
    let others: Vec<&str> = vmio_rig::disks::targets::ALL.iter().map(|t| t.name()).filter(|n| *n != "device").collect();
    for lead in ["Targets ", "At the device and CPU time, targets "] {
        assert!(words.contains(&(lead.to_owned() + &others.join(", "))), "{lead}: {shown}");
    }
    assert!(shown.contains("\nseq-write (64 KiB sequential writes, 8 in flight, O_DIRECT)\n"), "{shown}");
}

/// Whatever stands in a table is told of there.
#[test]
fn each_workload_of_a_table_is_explained() {
    let run = compared_over_all_targets("[baseline.like]\nworkload = 'seq-read'");
    let report = Report::of(&run);
    let shown = report::text(&report, Style::PLAIN);
    assert_eq!(too_long(&shown, &report.findings), Vec::<&str>::new(), "{shown}");
    let each = ["seq-write: 64 KiB sequential writes", "seq-read: 64 KiB sequential reads"]
        .map(|about| format!("{about}, 8 in flight, O_DIRECT"));
    assert!(shown.contains(&format!("\nseq-write\n  {}\n  {}\n", each[0], each[1])), "{shown}");
    let markdown = report::markdown(&report).replace('\\', "");
    assert!(markdown.contains(&format!("\n\n- {}\n- {}\n\n|", each[0], each[1])), "{markdown}");
    let html = report::html(&report);
    assert!(each.iter().all(|about| html.contains(&format!("<p class=\"dim\">{about}</p>"))), "{html}");
}

/// What an operator reads fits a screen, says nothing twice, and ends with the answer.
#[test]
fn doctor_is_short_and_ends_with_the_answer() {
    let state = StateDir::new();
    let out = state.vmio(&["doctor"]).out;
    let lines: Vec<&str> = out.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(lines.len() <= 40, "{out}");
    assert_eq!(lines.iter().collect::<BTreeSet<_>>().len(), lines.len(), "{out}");
    let answer = out.trim_end().rsplit("\n\n").next().unwrap();
    let begins = ["Ready for ", "Found, not tried: ", "Not for "];
    assert!(begins.iter().any(|begin| answer.starts_with(begin)), "{out}");
    assert!(answer.contains("measuring guests"), "{out}");
    state.is_clean();
}
