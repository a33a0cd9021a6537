//! What `vmio scan` leaves out and compares, and `vmio top` as a stream: by the program itself, with what a
//! user has of it.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::state_dir::{StateDir, unfolded};

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use vmio::cmd::scan::exit;
use vmio::cmd::scan::pick::{Ignore, ignored_by};
use vmio::report::scan::diff::{self, Diff, Earlier};
use vmio::report::scan::{View, json, nagios, overview, prometheus};
use vmio::term::Style;
use vmio_model::failure::Exit;
use vmio_model::rules::Severity;
use vmio_testbed::poll_for;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_a_file_leaves_out_is_counted_and_the_file_is_named() {
    let word = |word: &str, from: &str| Ignore { from: from.into(), ..word.parse::<Ignore>().unwrap() };
    let mut view = common::scan::view();
    let file = "/etc/vmio/scan.toml";
    let ignore = [word("emulated-driver@BARE", "--ignore"), word("no-discard", file), word("emulated-driver", file)];
    view.ignored_by = ignored_by(&mut view.rows, &ignore);
    view.ignored = 3;
    assert_eq!(view.ignored_by, [("--ignore".to_owned(), 1), (file.to_owned(), 2)]);
    let said = "1 finding by --ignore, 2 findings by /etc/vmio/scan.toml";
    let words = unfolded(&overview(&view, Style::PLAIN, 80));
    assert!(words.contains(said), "{words}");
    assert!(nagios::nagios(&view, None).0.contains(&format!("{said} left out |")));
    assert!(prometheus(&view).contains("vmio_scan_ignored{by=\"/etc/vmio/scan.toml\"} 2\n"));
    let json: serde_json::Value = serde_json::from_str(&json(&view)).unwrap();
    assert_eq!((json["findings_ignored"].as_u64(), json["ignored_by"][1]["findings"].as_u64()), (Some(3), Some(2)));
    assert_eq!(json["ignored_by"][1]["from"], file);
    // A pattern means all that match; an exact name goes before one in another case.
    let left = |entry: &str| {
        ignored_by(&mut common::scan::view().rows, &[word(entry, "x")]).iter().map(|(_, n)| n).sum::<usize>()
    };
    assert_eq!((left("emulated-driver@*"), left("emulated-driver@b*"), left("emulated-driver@BARE")), (2, 1, 1));
}

#[test]
fn a_wrong_configuration_is_told_with_its_line() {
    let state = StateDir::new();
    let file = state.path().join("scan.toml");
    let config = format!("--config={}", file.display());
    let scan = |more: &[&str], code| state.vmio(&[&["scan", &config][..], more].concat()).with(code);
    fs::write(&file, "ignore = [\n  'no-discard',\n  'no-such-rule',\n]\n").unwrap();
    scan(&[], 2).says(&["scan.toml:3: ignore: ", "unknown rule no-such-rule"]);
    fs::write(&file, "ignore = ['no-discard', 'sparse-file@db*']\n").unwrap();
    scan(&[], 0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    scan(&[], 2).says(&["can be written by others"]);
    // A check plugin says so in its own way.
    let plugin = scan(&["--nagios"], 3).out;
    assert!(plugin.contains("can be written by others"), "{plugin}");
    // The default one of another user is in the XDG configuration directory: tests/ runs as any user.
    state.vmio(&["scan", "--config", "/nowhere/scan.toml"]).with(2).says(&["cannot be read"]);
}

/// A scan as it is read back from the JSON that it was printed as.
fn earlier(view: &View) -> Earlier {
    serde_json::from_str(&json(view)).unwrap()
}

#[test]
fn findings_that_are_new_gone_and_changed_are_told_apart() {
    let before = earlier(&common::scan::view());
    let mut view = common::scan::view();
    let same = Diff::of(&view.rows, &before, "last");
    assert_eq!((same.new.len(), same.gone.len(), same.changed.len(), same.unchanged), (0, 0, 0, 6));
    assert!(diff::text(&view, &same, Style::PLAIN).contains("No difference: 6 findings unchanged."));

    // `bare` was started anew under another pid and lost one of two findings; `web1` became worse; `pay-7` has
    // another setting behind the same finding; `101` went and `new1` came.
    let at = |view: &View, name: &str| view.rows.iter().position(|r| r.guest.name == name).unwrap();
    let bare = at(&view, "bare");
    view.rows[bare].guest.pid = Some(99);
    view.rows[bare].findings.pop();
    view.rows[bare].findings[0].evidence[0].from = "/proc/99/cmdline".into();
    let web = at(&view, "web1");
    view.rows[web].findings[0].severity = Severity::Severe;
    let kube = at(&view, "pay-7");
    view.rows[kube].findings[0].evidence[0].value = "nvme".into();
    let pve = at(&view, "101");
    let guest = &mut view.rows[pve].guest;
    (guest.name, guest.uuid) = ("new1".into(), Some("ffffffff-0000".into()));
    let diff = Diff::of(&view.rows, &before, "last");
    let names = |all: &[diff::Changed]| all.iter().map(|c| format!("{} {}", c.guest, c.rule)).collect::<Vec<_>>();
    assert_eq!(names(&diff.new), ["new1 no-discard"]);
    assert_eq!(names(&diff.gone), ["bare sparse-file"]);
    assert_eq!(names(&diff.changed), ["web1 setting-overridden", "pay-7 cache-aio-pair"]);
    assert_eq!((diff.changed[0].severity_before, diff.unchanged), (Some(Severity::Warning), 2));
    assert_eq!((&diff.guests_new[..], &diff.guests_gone[..]), (&["new1".to_owned()][..], &["101".to_owned()][..]));
    let said = diff::text(&view, &diff, Style::PLAIN);
    for line in [
        "new     new1",
        "gone    bare, disk vda: advice",
        "changed web1, disk vda: warning, now severe",
        "no longer run: 101",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    // Only what is new or worse fails: `bare` is severe as it was.
    view.diff = Some(diff);
    assert_eq!(exit(&view, Some(Severity::Severe)), Exit::Finding);
    view.diff.as_mut().unwrap().changed.remove(0);
    assert_eq!(
        (exit(&view, Some(Severity::Warning)), exit(&view, Some(Severity::Advice))),
        (Exit::Done, Exit::Finding)
    );
    let json: serde_json::Value = serde_json::from_str(&json(&view)).unwrap();
    assert_eq!(json["diff"]["gone"][0]["rule"], "sparse-file");
}

#[test]
fn only_a_compared_scan_is_kept_for_the_next() {
    let dir = StateDir::new();
    let state = dir.path().join("state");
    let scan = |more: &[&str], code| dir.finish(dir.command(&["scan"]).args(more).env("VMIO_STATE", &state)).with(code);
    scan(&[], 0);
    assert!(!state.exists(), "a scan writes nothing");
    scan(&["--diff"], 0).says(&["No earlier scan to compare with", "This one was kept"]);
    let kept = state.join("last-scan.json");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    scan(&["--diff"], 0).says(&["Compared with the scan of"]);
    // A file is compared with, and nothing is kept.
    let at = fs::metadata(&kept).unwrap().modified().unwrap();
    let file = dir.path().join("before.json");
    fs::write(&file, scan(&["--json"], 0).out).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let with_file = format!("--diff={}", file.display());
    scan(&[&with_file], 0).says(&["before.json"]);
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), at);
    fs::write(&file, "{}").unwrap();
    scan(&[&with_file], 2).says(&["is not what `vmio scan --json` prints"]);
}

fn streaming(interval: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
    command.args(["top", "--json", "--no-ebpf", "--interval", interval]).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a process that is ending.
fn ended(child: &mut std::process::Child) -> Option<i32> {
    poll_for("it has ended", || child.try_wait().unwrap().ok_or("it goes on")).code()
}

#[test]
fn top_streams_one_object_a_line_and_ends_after_the_count() {
    let output = streaming("0.2", &["--count", "3"]).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.code() == Some(0) && err.is_empty(), "{err}");
    let all: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 3, "{out}");
    let at = |i: usize| all[i]["at_unix_seconds"].as_f64().unwrap();
    assert!(at(0) < at(1) && at(1) < at(2) && all[0]["schema_version"] == "1.3", "{out}");
    assert!(all.iter().all(|o| o["guests"].is_array() && o["seconds"].as_f64().unwrap() > 0.1));
}

#[test]
fn a_stream_ends_cleanly() {
    let mut child = streaming("0.2", &[]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // The last line is whole.
    for line in lines {
        serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap();
    }
    assert_eq!(ended(&mut child), Some(0));

    // A reader that goes away after some lines.
    let mut child = streaming("0.2", &[]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    assert_eq!(ended(&mut child), Some(0));
    assert_eq!(text(&child.wait_with_output().unwrap().stderr), "");

    // A reader that goes away before the first line, which is due in an hour: SIGPIPE, as with other tools.
    let mut child = streaming("3600", &["--count", "2"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(ended(&mut child), None);
    let output = child.wait_with_output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(13));
    assert_eq!(text(&output.stderr), "");
}
