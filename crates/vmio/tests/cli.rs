//! The command line as a user meets it: the binary is run, its exit code and both outputs are read.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::{bed, figures};

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use vmio::store::Store;
use vmio_model::result::{Accel, RunState};

fn command(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
    command.env_remove("NO_COLOR").env("VMIO_STATE", state).stdin(Stdio::null());
    command
}

fn vmio(state: &Path, args: &[&str]) -> Output {
    command(state).args(args).output().unwrap()
}

#[track_caller]
fn ends(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {out}\nstderr: {err}");
    assert!(!err.contains("panicked"), "{err}");
    (out, err)
}

/// A state directory with a finished run (1, under emulation) and one that was broken off (2).
fn stocked() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    common::store_run(&store, &common::run(Accel::Tcg));
    let mut second = common::run(Accel::Kvm);
    second.environment.kernel = "6.12.0-1-amd64".into();
    second.samples.iter_mut().for_each(|s| s.result.amend(|work| work.seconds /= 1.5));
    second.state = RunState::Running;
    common::store_run(&store, &second);
    dir
}

#[test]
fn a_run_that_began_without_steady_state_does_not_go_on_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let name = vmio::studies::ALL[0].0;
    let mut run = common::run(Accel::Tcg);
    (run.kind, run.study) = (name.into(), vmio::studies::named(name).unwrap());
    run.state = RunState::Interrupted("Ctrl-C".into());
    common::store_run(&Store::open(&dir.path().join("vmio.db")).unwrap(), &run);
    let asked = ["study", "run", name, "--resume", "--steady-state", "--dry-run"];
    let (_, err) = ends(&vmio(dir.path(), &asked), 2);
    assert!(err.contains("began without --steady-state") && err.contains("start a new run"), "{err}");
}

#[test]
fn a_limit_of_what_is_written_is_refused_where_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (_, err) = ends(&vmio(dir.path(), &["study", "run", "network-quick", "--gib", "5", "--dry-run"]), 2);
    assert!(
        err.contains("no cell of the study network-quick is on a disk") && err.contains("leave out --gib"),
        "{err}"
    );
}

/// What never yields a guest's disk has none to write down.
#[test]
fn a_set_up_is_written_of_disks_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("best");
    for option in ["--write-xml", "--write-qm"] {
        let asked = ["study", "run", "network-quick", "--dry-run", "--no-gentle", option, file.to_str().unwrap()];
        let (out, err) = ends(&vmio(dir.path(), &asked), 2);
        assert!(err.contains("no guest of the study network-quick works on a disk") && out.is_empty(), "{out}{err}");
        assert!(err.contains(&format!("help: leave out {option}")) && !file.exists(), "{err}");
    }
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    common::store_run(&store, &figures::run(""));
    let (_, err) = ends(&vmio(dir.path(), &["runs", "show", "1", "--write-xml", file.to_str().unwrap()]), 2);
    assert!(err.contains("no guest of run 1 works on a disk"), "{err}");
    let (_, err) = ends(&vmio(dir.path(), &["tax", "--noise", "--dry-run", "--html", file.to_str().unwrap()]), 2);
    assert!(err.contains("--noise makes no report") && err.contains("help: leave out --html"), "{err}");
}

#[test]
fn numbers_that_are_none_are_told_what_is_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for option in ["--minutes", "--gib", "--gentle-share"] {
        let (_, err) = ends(&vmio(dir.path(), &["tax", "--dry-run", option, "abc"]), 2);
        let err = bed::unfolded(&err);
        assert!(err.contains("give a number, for example 5 or 0.5") && !err.contains("float"), "{err}");
    }
}

#[test]
fn numbers_below_nothing_are_told_the_range() {
    let dir = tempfile::tempdir().unwrap();
    for (option, range) in [
        ("--minutes", "--minutes must be above 0"),
        ("--gib", "--gib must be above 0"),
        ("--gentle-share", "--gentle-share -3 is not in 0 to 1"),
    ] {
        let (_, err) = ends(&vmio(dir.path(), &["tax", "--dry-run", option, "-3"]), 2);
        assert!(err.contains(range) && !err.contains("unexpected"), "{err}");
    }
}

/// An experiment over time is a study like others: shown, planned, and compared once it was run.
#[test]
fn an_experiment_is_a_study_and_is_compared_when_it_was_run() {
    let dir = tempfile::tempdir().unwrap();
    let (shown, _) = ends(&vmio(dir.path(), &["study", "show", "amamou2012"]), 0);
    assert!(shown.contains("[guard.exact]") && shown.contains("network = \"shared\""), "{shown}");
    let (plan, _) = ends(&vmio(dir.path(), &["study", "run", "amamou2012", "--no-gentle", "--dry-run"]), 0);
    assert!(plan.contains("3 native and 3 guest cells"), "{plan}");
    let (_, err) = ends(&vmio(dir.path(), &["study", "compare", "amamou2012", "paper"]), 3);
    assert!(err.contains("there are no runs yet"), "{err}");
}

/// A slip is told before minutes of measuring, and before the plan.
#[test]
fn a_rule_to_prove_that_is_none_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for more in [&["--dry-run"][..], &["--yes"]] {
        let with = |rule: &str| {
            let (out, err) = ends(&vmio(dir.path(), &[&["tax", "--quick", "--prove", rule][..], more].concat()), 2);
            assert!(out.is_empty(), "{out}");
            bed::unfolded(&err)
        };
        let err = with("emulated-drivr");
        assert!(err.contains("no rule has this name; did you mean `emulated-driver`?"), "{err}");
        let err = with("zzzzzz");
        assert!(err.contains("no rule has this name (docs/rules.md") && !err.contains("did you mean"), "{err}");
    }
    assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing was made");
}

#[test]
fn the_plan_of_a_proof_says_what_follows() {
    let dir = tempfile::tempdir().unwrap();
    let plan = |more: &[&str]| {
        let output = vmio(dir.path(), &[&["tax", "--quick", "--dry-run"][..], more].concat());
        bed::unfolded(&String::from_utf8(output.stdout).unwrap())
    };
    assert!(!plan(&[]).contains(" then "));
    assert!(plan(&["--prove"]).contains(" then the costliest finding is proven"), "{}", plan(&["--prove"]));
    assert!(plan(&["--prove", "emulated-driver"]).contains(" then the finding emulated-driver is proven"));
}

/// What networks need is what their entries require, and no lack of a host that measures disks.
#[test]
fn doctor_names_what_networks_lack() {
    let dir = tempfile::tempdir().unwrap();
    let output = command(dir.path()).args(["doctor", "--json"]).env("PATH", "/nowhere").output().unwrap();
    let (out, _) = ends(&output, 3);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let lacks = |point: &str, name: &str| -> Vec<String> {
        let all = json["abilities"].as_array().unwrap();
        let found = all.iter().find(|a| a["point"] == point && a["name"] == name);
        let missing = found.unwrap_or_else(|| panic!("{point} {name}: {out}"))["missing"].as_array().unwrap();
        missing.iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect()
    };
    for network in vmio_rig::nets::ALL {
        let lacks = lacks("network", network.name());
        assert!(["nsenter", "unshare"].iter().all(|program| lacks.iter().any(|l| l == program)), "{lacks:?}");
    }
    assert!(lacks("nic", "e1000").is_empty() && lacks("nic", "virtio-net").is_empty());
    assert!(lacks("nic", "virtio-net+vhost").iter().all(|l| l == "/dev/vhost-net"));
    assert!(lacks("workload", "sockperf-tcp").contains(&"sockperf".to_owned()));
    // Whether this host counts energy is its own matter; that it is told is not.
    assert!(lacks("probe", "powercap").iter().all(|l| l == "power meter"));
}

#[test]
fn help_and_usage() {
    let dir = tempfile::tempdir().unwrap();
    let (help, _) = ends(&vmio(dir.path(), &["--help"]), 0);
    assert!(help.contains("runs") && help.contains("Examples:") && help.contains("Exit codes:"), "{help}");
    assert!(help.lines().all(|l| l.chars().count() <= 80), "{help}");
    let (out, err) = ends(&vmio(dir.path(), &["rums"]), 2);
    assert!(out.is_empty() && err.starts_with("error:") && err.contains("runs"), "{err}");
    ends(&vmio(dir.path(), &["runs", "show", "seven"]), 2);
    ends(&vmio(dir.path(), &["runs", "list", "--help"]), 0);
    // A run that was measured is told and written; a stored one is shown or written.
    let (tax, _) = ends(&vmio(dir.path(), &["tax", "-h"]), 0);
    assert!(tax.contains("Also write the report") && tax.contains("Also write the best"), "{tax}");
    let (show, _) = ends(&vmio(dir.path(), &["runs", "show", "-h"]), 0);
    assert!(show.contains("Write the report to") && !show.contains("Also write"), "{show}");
    assert_eq!(show.matches("instead").count(), 3, "{show}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made by asking for help");
}

#[test]
fn a_bare_vmio_scans_and_says_where_the_rest_is() {
    let dir = tempfile::tempdir().unwrap();
    let (out, err) = ends(&vmio(dir.path(), &[]), 0);
    assert!(out.contains("guest") && out.contains("vmio "), "{out}");
    assert!(err.contains("vmio --help"), "{err}");
    let (out, err) = ends(&vmio(dir.path(), &["--json"]), 0);
    assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok() && !err.contains("--help"), "{err}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is made by looking");
}

#[test]
fn scan_on_this_machine_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let (out, err) = ends(&vmio(dir.path(), &["scan", "--json"]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(json["guests"].is_array() && json["unread"].is_array() && json["seconds"].as_f64().unwrap() > 0.0);
    assert!(err.is_empty() && json["schema_version"] == "1.0", "{err}");
    let (page, metrics) = (dir.path().join("s.html"), dir.path().join("vmio.prom"));
    ends(&vmio(dir.path(), &["scan", "--html", page.to_str().unwrap()]), 0);
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    let (out, _) = ends(&vmio(dir.path(), &["scan", &format!("--prometheus={}", metrics.display())]), 0);
    assert!(out.is_empty() && fs::read_to_string(&metrics).unwrap().contains("\nvmio_scan_guests "), "{out}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside");
    let (out, _) = ends(&vmio(dir.path(), &["scan", "--prometheus"]), 0);
    assert!(out.contains("# TYPE vmio_scan_findings gauge"), "{out}");
    let nagios = vmio(dir.path(), &["scan", "--nagios"]);
    let words = ["OK", "WARNING", "CRITICAL", "UNKNOWN"];
    let (out, _) = ends(&nagios, nagios.status.code().unwrap());
    let word = words[nagios.status.code().unwrap() as usize];
    assert!(
        out.starts_with(&format!("VMIO SCAN {word}: ")) && out.lines().next().unwrap().contains(" | guests="),
        "{out}"
    );
}

#[test]
fn a_scan_leaves_a_store_of_another_format_as_it_is_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vmio.db");
    drop(Store::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 1).unwrap();
    let state = || (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    let before = state();
    let (out, _) = ends(&vmio(dir.path(), &["scan", "--json"]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let unread = json["unread"].as_array().unwrap();
    let told = unread.iter().find(|u| u["what"] == "results of earlier runs on this host").unwrap();
    assert!(told["why"].as_str().unwrap().contains("another version of vmio"), "{told}");
    assert!(told["mend"].as_str().unwrap().contains("vmio runs export"), "{told}");
    assert!(state() == before, "the store was written");
}

#[test]
fn scan_refuses_what_cannot_be_meant() {
    let dir = tempfile::tempdir().unwrap();
    let scan = |args: &[&str], code| ends(&vmio(dir.path(), &[&["scan"][..], args].concat()), code);
    for pair in
        [["--json", "--nagios"], ["--json", "--prometheus"], ["--prometheus", "--html=x"], ["--json", "--prometheus=x"]]
    {
        let (out, err) = scan(&pair, if pair.contains(&"--nagios") { 3 } else { 2 });
        assert!(format!("{out}{err}").contains("cannot be used with"), "{pair:?}: {out}{err}");
    }
    let (_, err) = scan(&["--ignore", "emulated-drivers"], 2);
    assert!(err.contains("no rule emulated-drivers") && err.contains("did you mean emulated-driver?"), "{err}");
    let (_, err) = scan(&["--ignore", "zzz@web1"], 2);
    assert!(err.contains("the rules are: ") && err.contains(" unsafe-cache,"), "{err}");
    let (_, err) = scan(&["--fail-on", "dreadful"], 2);
    assert!(err.contains("note, advice, warning, severe"), "{err}");
    let (_, err) = scan(&["no-such-guest-anywhere"], 2);
    assert!(err.contains("no guest no-such-guest-anywhere runs here") && err.contains("help:"), "{err}");
    // With one code, whether the directory is missing or refuses: `/proc` is there, and nobody may make a file in it.
    for file in ["--html=/nowhere/at/all", "--html=/proc/all", "--prometheus=/nowhere/at/all", "--prometheus=/proc/all"]
    {
        let (_, err) = scan(&[file], 1);
        assert!(err.contains(&format!("{} cannot be written", file.split_once('=').unwrap().1)), "{err}");
    }
    // A plugin says what is wrong with it on standard output, and ends with 3.
    for wrong in [&["no-such-guest-anywhere"][..], &["--ignore", "zzz"], &["--no-such-option"], &["--fail-on", "no"]] {
        let (out, err) = scan(&[&["--nagios"][..], wrong].concat(), 3);
        assert!(out.starts_with("VMIO SCAN UNKNOWN: ") && out.lines().count() == 1 && err.is_empty(), "{out}{err}");
    }
}

#[test]
fn an_empty_store_is_no_error_to_list_and_one_to_show() {
    let dir = tempfile::tempdir().unwrap();
    let (out, err) = ends(&vmio(dir.path(), &["runs", "list"]), 0);
    assert!(out.is_empty() && err.contains("vmio tax"), "{err}");
    let (out, _) = ends(&vmio(dir.path(), &["runs", "list", "--json"]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["runs"].as_array().unwrap().len(), 0);
    let (_, err) = ends(&vmio(dir.path(), &["runs", "show"]), 3);
    assert!(err.contains("error: there are no runs yet") && err.contains("help:"), "{err}");
    Store::open(&dir.path().join("vmio.db")).unwrap();
    let (_, err) = ends(&vmio(dir.path(), &["runs", "show", "last"]), 2);
    assert!(err.contains("help: it is empty"), "{err}");
}

#[test]
fn list_shows_how_each_run_ended() {
    let dir = stocked();
    let (out, _) = ends(&vmio(dir.path(), &["runs", "list"]), 0);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[1].contains("   2  ") && lines[1].contains("interrupted") && lines[1].contains("KVM"), "{out}");
    assert!(lines[2].contains("   1  ") && lines[2].contains("done") && lines[2].contains("emulation"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours into a pipe");
    let (out, _) = ends(&vmio(dir.path(), &["--json", "runs", "list"]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((json["runs"][0]["run"].as_i64(), json["runs"][0]["state"].as_str()), (Some(2), Some("interrupted")));
}

#[test]
fn show_in_every_form() {
    let dir = stocked();
    let (text, _) = ends(&vmio(dir.path(), &["runs", "show", "1"]), 0);
    assert!(text.contains("software emulation") && text.contains("durable-append"), "{text}");
    let (last, _) = ends(&vmio(dir.path(), &["runs", "show"]), 0);
    assert!(last.contains("vmio run 2") && last.contains("partial"), "{last}");
    let (json, err) = ends(&vmio(dir.path(), &["runs", "show", "1", "--json"]), 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(err.is_empty() && json["schema_version"] == "2.0" && json["emulated"] == true);
    let (markdown, _) = ends(&vmio(dir.path(), &["runs", "show", "1", "--markdown"]), 0);
    assert!(markdown.starts_with("# vmio run 1"), "{markdown}");
    let page = dir.path().join("r.html");
    let (out, _) = ends(&vmio(dir.path(), &["runs", "show", "1", "--html", page.to_str().unwrap()]), 0);
    assert!(out.is_empty() && fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    let nowhere = dir.path().join("not/there.html");
    let (_, err) = ends(&vmio(dir.path(), &["runs", "show", "1", "--html", nowhere.to_str().unwrap()]), 1);
    assert!(err.contains("there.html") && err.contains("help:") && err.contains("cause:"), "{err}");
    ends(&vmio(dir.path(), &["runs", "show", "1", "--json", "--markdown"]), 2);
}

#[test]
fn the_best_set_up_is_written_for_libvirt_and_proxmox() {
    let dir = stocked();
    let (xml, qm) = (dir.path().join("best.xml"), dir.path().join("best.qm"));
    let files = ["--write-xml", xml.to_str().unwrap(), "--write-qm", qm.to_str().unwrap()];
    ends(&vmio(dir.path(), &[&["runs", "show", "1"][..], &files].concat()), 0);
    let (xml, qm) = (fs::read_to_string(&xml).unwrap(), fs::read_to_string(&qm).unwrap());
    assert!(xml.contains("bus='virtio'") && xml.contains("software emulation"), "{xml}");
    // The reader's own image is not known here: raw over qcow2 would destroy it.
    assert!(xml.contains("type='KIND'") && xml.contains("type='FORMAT'") && !xml.contains("type='raw'"), "{xml}");
    let comment = xml.strip_prefix("<!--").unwrap().split_once("-->").unwrap().0;
    assert!(!comment.contains("--") && comment.contains("as fast as lsi53c895a"), "{xml}");
    let commands: Vec<&str> = qm.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(commands.iter().all(|l| l.starts_with("qm set VMID ")) && !commands.is_empty(), "{qm}");
}

#[test]
fn a_proof_is_shown_with_the_run_whose_finding_it_proves() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("vmio.db")).unwrap();
    let run = common::run(Accel::Kvm);
    assert_eq!(common::store_run(&store, &run), 1);
    let finding = vmio::report::Report::of(&run).findings.into_iter().find(|f| f.proof.is_some()).unwrap();
    let proof = finding.proof.unwrap();
    let mut later = run.clone();
    later.kind = vmio_model::kind::RunKind::Proof(1);
    later.samples.retain(|s| s.cell == proof.before || s.cell == proof.after);
    assert_eq!(common::store_run(&store, &later), 2);
    let (text, _) = ends(&vmio(dir.path(), &["runs", "show", "last"]), 0);
    assert!(text.contains("vmio run 1:") && text.contains("--prove, run 2: proven"), "{text}");
    let (text, _) = ends(&vmio(dir.path(), &["runs", "show", "2"]), 0);
    assert!(text.contains("vmio run 2: prove-1"), "{text}");
}

#[test]
fn an_unknown_run_is_answered_with_the_nearest_and_the_last() {
    let dir = stocked();
    for args in [&["runs", "show", "77"][..], &["runs", "export", "77"], &["runs", "compare", "1", "77"]] {
        let (_, err) = ends(&vmio(dir.path(), args), 2);
        assert!(err.contains("no run 77") && err.contains("the last is 2"), "{err}");
    }
    let (_, err) = ends(&vmio(dir.path(), &["runs", "delete", "0"]), 2);
    assert!(err.contains("the nearest is 1, the last is 2"), "{err}");
}

#[test]
fn compare_names_what_was_not_the_same_first() {
    let dir = stocked();
    let (out, _) = ends(&vmio(dir.path(), &["runs", "compare", "1", "2"]), 0);
    let (kernel, cell) = (out.find("6.12.0-1-amd64").unwrap(), out.find("device/native/seq-write").unwrap());
    assert!(kernel < cell, "{out}");
    assert!(out.contains("faster") && out.contains("1.5"), "{out}");
    assert!(out.lines().all(|l| l.chars().count() <= 80), "{out}");
    let (out, _) = ends(&vmio(dir.path(), &["runs", "compare", "1", "1"]), 0);
    assert!(out.contains("The environment was the same") && !out.contains("faster"), "{out}");
    let (out, _) = ends(&vmio(dir.path(), &["runs", "compare", "1", "last", "--json"]), 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["b"], 2);
}

#[test]
fn export_and_delete() {
    let dir = stocked();
    let (out, _) = ends(&vmio(dir.path(), &["runs", "export", "1"]), 0);
    assert!(out.contains("fio version"), "the raw output is in it");
    let (out, _) = ends(&vmio(dir.path(), &["runs", "export", "1", "--format", "csv"]), 0);
    assert!(out.starts_with("run,study,"));
    ends(&vmio(dir.path(), &["runs", "export", "1", "--format", "xml"]), 2);
    let (_, err) = ends(&vmio(dir.path(), &["runs", "delete", "1"]), 2);
    assert!(err.contains("--yes"), "{err}");
    ends(&vmio(dir.path(), &["runs", "show", "1"]), 0);
    ends(&vmio(dir.path(), &["runs", "delete", "1", "--yes"]), 0);
    ends(&vmio(dir.path(), &["runs", "show", "1"]), 2);
}

#[test]
fn a_damaged_store_is_named_with_its_mend() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("vmio.db"), "no database at all".repeat(1000)).unwrap();
    let (_, err) = ends(&vmio(dir.path(), &["runs", "list"]), 1);
    assert!(err.contains(dir.path().to_str().unwrap()) && err.contains("help: move it away"), "{err}");
}

#[test]
fn a_reader_that_goes_away_hears_nothing_and_ends_it_as_it_ends_other_tools() {
    let dir = stocked();
    let mut command = command(dir.path());
    let mut child =
        command.args(["runs", "export", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    // Nothing was delivered: that is no success, but nothing to talk about either.
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(13));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn completions_and_man_pages() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let (out, _) = ends(&vmio(dir.path(), &["completions", shell]), 0);
        assert!(out.contains("vmio") && out.contains("compare"), "{shell}");
        assert!(out.contains(" durability "), "{shell} offers no studies");
        // Where a path may stand beside a name, files are offered too.
        match shell {
            "fish" => {
                let run = out.lines().find(|l| l.contains("seen_subcommand_from run") && l.contains("-a \"quick "));
                assert!(run.is_some_and(|line| !line.contains(" -f ")), "{run:?}");
            }
            "zsh" => {
                let (before, function) = out.split_once("_vmio_study_or_file() {").unwrap();
                assert!(before.contains("path of a TOML file:_vmio_study_or_file'"), "{before}");
                assert!(function.contains("durability") && function.contains("_files"), "{function}");
                assert!(function.contains("\nif [ \"$funcstack[1]\" = \"_vmio\" ]"), "{function}");
            }
            _ => {}
        }
    }
    let pages = dir.path().join("man");
    ends(&vmio(dir.path(), &["man", pages.to_str().unwrap()]), 0);
    let page = fs::read_to_string(pages.join("vmio-runs-compare.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("Compare two runs"), "{page}");
}
