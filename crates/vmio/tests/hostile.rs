//! Names that somebody else chose, in every output there is: no control character, none that turns the
//! direction of a text and no line of theirs reaches a terminal, a page, a table or a monitoring system;
//! JSON keeps them, as escapes.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::state_dir;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::poison::Poison;
use serde_json::Value;
use state_dir::{StateDir, fixture};
use vmio::report::export::{Format, export};
use vmio::report::scan::nagios::nagios;
use vmio::report::scan::{Row, View, brief, detail, html as scan_html, json as scan_json, overview, prometheus};
use vmio::report::{Report, comparison_text, html, json, markdown, qm, short, text, xml};
use vmio::store::Store;
use vmio::term::Style;
use vmio_model::facts::Fact;
use vmio_model::result::Accel;
use vmio_model::run::Run;
use vmio_model::sanitize::is_hidden;
use vmio_model::summary;

/// Turns the direction, clears the screen, sets the title, ends a line and begins one of its own.
const HOSTILE: &str =
    "x\u{202e}gpj\u{202c}\u{9b}2J\u{1b}]0;t\u{7}\u{2066}y\u{2069}\u{200f}\u{61c}\u{2028}\r\u{7f}\nFORGED line";
const POISON: Poison = Poison(HOSTILE);

/// How far a text may use what is hidden.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Lines, and nothing else.
    Lines,
    /// Lines that end as RFC 4180 has it.
    Csv,
    /// With the styles of a terminal.
    Coloured,
    /// As lines; what is quoted has lines of its own.
    Page,
}

#[track_caller]
fn clean(what: &str, form: Form, text: &str) {
    let mut text = text.to_owned();
    match form {
        Form::Csv => text = text.replace("\r\n", "\n"),
        Form::Coloured => {
            for own in ["0", "1", "2", "31;1", "33", "36"] {
                text = text.replace(&format!("\u{1b}[{own}m"), "");
            }
        }
        _ => {}
    }
    if let Some(at) = text.find(|c| is_hidden(c) && c != '\n') {
        let around: String = text[at..].chars().take(60).collect();
        let before: String = text[..at].chars().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect();
        panic!("{what}: {before:?} {around:?}");
    }
    if form != Form::Page {
        let forged = text.lines().find(|l| l.starts_with("FORGED"));
        assert_eq!(forged, None, "{what}: a name began a line:\n{text}");
    }
}

/// JSON that shows nothing and holds all.
#[track_caller]
fn exact(what: &str, text: &str) {
    clean(what, Form::Lines, text);
    for line in
        text.lines().filter(|_| what.contains("pkb")).chain([text].into_iter().filter(|_| !what.contains("pkb")))
    {
        serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{what}: {e}: {line}"));
    }
}

fn hostile_run() -> Run {
    let mut run = common::run(Accel::Tcg);
    run.samples.truncate(60);
    let mut slim = run.clone();
    // One sample of each kind is enough to be made hostile leaf by leaf.
    slim.samples.truncate(6);
    let mut poisoned = POISON.value(&slim);
    // The names by which samples find their traits stay, else nothing could be concluded.
    poisoned.workloads.clone_from(&run.workloads);
    let odd = poisoned.samples.split_off(0);
    poisoned.samples = run.samples.clone();
    poisoned.samples.extend(odd);
    poisoned
}

#[test]
fn a_run_with_hostile_words_is_shown_clean_in_every_form() {
    let run = hostile_run();
    let report = Report::of(&run);
    clean("text", Form::Lines, &text(&report, Style::PLAIN));
    clean("coloured text", Form::Coloured, &text(&report, Style::COLOUR));
    clean("short", Form::Lines, &short(&report, Style::PLAIN, 80));
    clean("coloured short", Form::Coloured, &short(&report, Style::COLOUR, 40));
    clean("markdown", Form::Page, &markdown(&report));
    clean("html", Form::Page, &html(&report));
    exact("json", &json(&report));
    clean("csv", Form::Csv, &export(&run, Format::Csv));
    exact("export json", &export(&run, Format::Json));
    exact("export pkb", &export(&run, Format::Pkb));
    exact("export github", &export(&run, Format::GithubActionBenchmark));
    assert!(export(&run, Format::Json).contains("\\u202e"), "exact, as an escape");
    let back: Value = serde_json::from_str(&export(&run, Format::Json)).unwrap();
    assert!(back["study"].as_str().unwrap().ends_with(HOSTILE));
    let other = common::run(Accel::Kvm);
    clean("compare", Form::Lines, &comparison_text(&summary::compare(&other, &run), Style::PLAIN));
    let best = Report::of(&other).best.expect("a best set-up");
    clean("xml", Form::Page, &xml(&run, &best));
    clean("qm", Form::Page, &qm(&run, &best));

    // The same from the store, by the program.
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    common::store_run(&store, &other);
    let id = common::store_run(&store, &run).to_string();
    drop(store);
    for args in [
        &["runs", "list"][..],
        &["runs", "show", &id],
        &["runs", "show", &id, "--markdown"],
        &["runs", "show", &id, "--json"],
        &["runs", "list", "--json"],
        &["runs", "compare", "1", &id],
        &["runs", "export", &id, "--format", "csv"],
        &["runs", "delete", &id],
        &["study", "compare", "1", &id],
        &["tax", "--prove", "--of", &id, "--dry-run"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_vmio"))
            .args(args)
            .env("VMIO_STATE", dir.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let form = match args {
            [.., "csv"] => Form::Csv,
            [.., "--markdown"] => Form::Page,
            _ => Form::Lines,
        };
        clean(&format!("{args:?}"), form, &String::from_utf8(output.stdout).unwrap());
        clean(&format!("{args:?}"), Form::Lines, &String::from_utf8(output.stderr).unwrap());
    }
}

#[test]
fn a_scan_of_hostile_guests_is_shown_clean_in_every_form() {
    let mut view = common::scan::view();
    view.rows = view
        .rows
        .into_iter()
        .map(|row| Row {
            // The rules find what they find in it too.
            findings: row
                .findings
                .iter()
                .map(|f| POISON.finding(f))
                .chain(Row::of(row.guest.clone()).findings.iter().map(|f| POISON.finding(f)))
                .collect(),
            guest: POISON.guest(&row.guest),
            differences: vec![HOSTILE.into()],
        })
        .collect();
    let found: Vec<Row> = view.rows.iter().map(|row| Row::of(row.guest.clone())).collect();
    view.rows.extend(found);
    view.unread = view.unread.iter().map(|u| POISON.unread(u)).collect();
    for width in [60, 80, 180] {
        clean("overview", Form::Lines, &overview(&view, Style::PLAIN, width));
        clean("overview", Form::Coloured, &overview(&view, Style::COLOUR, width));
    }
    for row in &view.rows {
        for sources in [false, true] {
            clean("detail", Form::Lines, &detail(row, Style::PLAIN, sources));
            clean("detail", Form::Coloured, &detail(row, Style::COLOUR, sources));
        }
        clean("brief", Form::Lines, &brief(row, None, Style::PLAIN, 80));
        clean("brief", Form::Coloured, &brief(row, None, Style::COLOUR, 40));
    }
    clean("html", Form::Page, &scan_html(&view));
    clean("nagios", Form::Lines, &nagios(&view, None).0);
    clean("prometheus", Form::Lines, &prometheus(&view));
    assert!(!prometheus(&view).contains("\\n"), "no line of a name's either");
    exact("json", &scan_json(&view));
    let back: Value = serde_json::from_str(&scan_json(&view)).unwrap();
    assert!(back["guests"].as_array().unwrap().iter().any(|g| g["name"].as_str().unwrap().ends_with(HOSTILE)));
    // What `--diff` reads again is what was printed, with maps whose keys are numbers.
    let mut numbered = common::scan::view();
    for row in &mut numbered.rows {
        row.guest.processors.iter_mut().for_each(|p| p.memory_by_node = Fact::from_iter([(0, 1 << 30), (1, 7)]));
    }
    let earlier: vmio::report::scan::diff::Earlier = serde_json::from_str(&scan_json(&numbered)).unwrap();
    assert!(earlier.guests.iter().zip(&numbered.rows).all(|(then, now)| then.guest.name == now.guest.name));
    let empty = View { rows: Vec::new(), ..view };
    clean("nagios", Form::Lines, &nagios(&empty, None).0);
}

/// A process that is called as QEMU is, with a command line of its own choice: anybody may start one.
struct Pretender(Child);

impl Pretender {
    fn start(dir: &Path) -> Pretender {
        let disk = dir.join(format!("disk{}.raw", HOSTILE.replace(['/', ','], "")));
        fs::write(&disk, vec![0u8; 1 << 20]).unwrap();
        let mut command = Command::new("sh");
        command.arg0("qemu-system-x86_64").args(["-c", "echo; read x", "-name"]);
        command.arg(format!("guest={}", HOSTILE.replace(',', ",,"))).args(["-machine", "pc", "-drive"]);
        command.arg(format!("file={},format=raw,if=virtio,serial={HOSTILE}", disk.display()));
        command.args(["-netdev", &format!("tap,id=n0,ifname=t{HOSTILE}"), "-device"]);
        command.arg(format!("e1000,netdev=n0,id={HOSTILE}"));
        let mut started = Pretender(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        started.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        started
    }
}

impl Drop for Pretender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn hostile_names_stay_out_of_every_output() {
    let state = StateDir::new();
    let dir = state.path().join(format!("d{HOSTILE}"));
    fs::create_dir(&dir).unwrap();
    let pretender = Pretender::start(&state.path());
    let path = state.path().join("images");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("qemu-system-x86_64"), "#!/bin/sh\necho 'QEMU emulator version 7.2.0'\n").unwrap();
    fs::set_permissions(path.join("qemu-system-x86_64"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/bin/true", path.join("fio")).unwrap();
    let (page, metrics) = (state.path().join("page.html"), state.path().join("vmio.prom"));
    let (study, on) = (fixture("file.toml"), dir.to_str().unwrap().to_owned());
    let study = study.to_str().unwrap();
    let prometheus = format!("--prometheus={}", metrics.display());
    let mut seen = 0;
    for args in [
        &[][..],
        &["scan"],
        &["scan", HOSTILE],
        &["scan", HOSTILE, "--sources"],
        &["scan", "nobody"],
        &["scan", "--json"],
        &["scan", "--nagios"],
        &["scan", "--prometheus"],
        &["scan", "--html", page.to_str().unwrap()],
        &["scan", &prometheus],
        &["scan", "--ignore", HOSTILE],
        &["scan", "--html", &format!("{on}/none/x.html")],
        &["top", "--once", "--interval", "0.2", "--no-ebpf"],
        &["top", "--json", "--count", "1", "--interval", "0.2", "--no-ebpf"],
        &["scan", "--diff"],
        &["scan", "--diff", "--html", page.to_str().unwrap()],
        &["scan", "--diff", "--json"],
        &["scan", "--config", &format!("{on}/none.toml")],
        &["doctor"],
        &["doctor", "--json"],
        &["study", "run", study, "--on", &on, "--dry-run"],
        &["study", "run", study, "--on", &on, "--dry-run", "--json"],
        &["study", "run", study, "--on", &format!("{on}/none"), "--dry-run"],
        &["study", "run", HOSTILE, "--dry-run"],
        &["tax", "--like", HOSTILE, "--dry-run", "--on", &on],
        &["tax", "--device", &on, "--device", &on, "--dry-run"],
        &["runs", "list", "--state", &on],
        &["runs", "import", &format!("{on}/run.json")],
        &["guard", "check", "--config", &on],
        &["guard", "simulate", &format!("{on}/x.toml")],
        &["man", &format!("{on}/man")],
        &["lab", "run", "--with", HOSTILE, "--", "true"],
        &[HOSTILE],
        &["scan", "--nagios", &format!("--{HOSTILE}")],
        &["study", "list"],
    ] {
        let mut command = state.command(args);
        let output = command.env("PATH", &path).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert!(!err.contains("panicked"), "{args:?}: {err}");
        seen += usize::from(out.contains("FORGED"));
        clean(&format!("{args:?} on standard output"), Form::Lines, &out);
        // What the user typed is the user's; it moves no cursor, but may have lines.
        let form = if args.iter().any(|a| a.contains("FORGED")) { Form::Page } else { Form::Lines };
        clean(&format!("{args:?} on standard error"), form, &err);
        if args.contains(&"--json") && !out.is_empty() {
            exact(&format!("{args:?}"), &out);
        }
    }
    assert!(seen > 5, "the guest and the directory were in {seen} outputs only");
    for (file, form) in [(&page, Form::Page), (&metrics, Form::Lines)] {
        let content = fs::read_to_string(file).unwrap();
        assert!(content.contains("FORGED"), "{}", file.display());
        clean(&file.display().to_string(), form, &content);
    }
    drop(pretender);
}
