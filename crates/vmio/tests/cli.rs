//! The command line as a user meets it: the binary is run, its exit code and both outputs are read.
#![allow(clippy::unwrap_used)]

use crate::common;
use crate::help::figures;
use crate::help::state_dir::{StateDir, unfolded};

use std::fs;

use vmio_model::result::{Accel, RunState};

/// A state directory with a finished run (1, under emulation) and one that was broken off (2).
fn stocked() -> StateDir {
    let state = StateDir::new();
    common::store_run(&state.store(), &common::run(Accel::Tcg));
    let mut second = common::run(Accel::Kvm);
    second.environment.kernel = "6.12.0-1-amd64".into();
    second.samples.iter_mut().for_each(|s| s.result.amend(|work| work.seconds /= 1.5));
    second.state = RunState::Running;
    common::store_run(&state.store(), &second);
    state
}

#[test]
fn steady_state_is_not_added_to_a_run_that_goes_on() {
    let state = StateDir::new();
    let name = vmio::studies::ALL[0].0;
    let mut run = common::run(Accel::Tcg);
    (run.kind, run.study) = (name.into(), vmio::studies::named(name).unwrap());
    run.state = RunState::Interrupted("Ctrl-C".into());
    common::store_run(&state.store(), &run);
    let ended = state.vmio(&["study", "run", name, "--resume", "--steady-state", "--dry-run"]).with(2);
    ended.says(&["began without --steady-state", "start a new run"]);
}

#[test]
fn a_limit_of_writes_without_a_disk_is_refused() {
    let ended = StateDir::new().vmio(&["study", "run", "network-quick", "--gib", "5", "--dry-run"]).with(2);
    ended.says(&["no cell of the study network-quick is on a disk", "leave out --gib"]);
}

/// What never yields a guest's disk has none to write down.
#[test]
fn a_set_up_is_written_of_disks_alone() {
    let state = StateDir::new();
    let file = state.path().join("best");
    let path = file.to_str().unwrap();
    for option in ["--write-xml", "--write-qm"] {
        let ended = state.vmio(&["study", "run", "network-quick", "--dry-run", "--no-gentle", option, path]).with(2);
        assert!(ended.out.is_empty() && !file.exists(), "{}", ended.out);
        ended.says(&["no guest of the study network-quick works on a disk", &format!("help: leave out {option}")]);
    }
    common::store_run(&state.store(), &figures::run(""));
    let ended = state.vmio(&["runs", "show", "1", "--write-xml", path]).with(2);
    ended.says(&["no guest of run 1 works on a disk"]);
    let ended = state.vmio(&["tax", "--noise", "--dry-run", "--html", path]).with(2);
    ended.says(&["--noise makes no report", "help: leave out --html"]);
}

#[test]
fn a_wrong_number_is_told_what_is_wanted() {
    let state = StateDir::new();
    for (option, range) in [
        ("--minutes", "--minutes must be above 0"),
        ("--gib", "--gib must be above 0"),
        ("--gentle-share", "--gentle-share -3 is not in 0 to 1"),
    ] {
        let word = state.vmio(&["tax", "--dry-run", option, "abc"]).with(2);
        assert!(!word.err.contains("float"), "{}", word.err);
        word.says(&["give a number, for example 5 or 0.5"]);
        let negative = state.vmio(&["tax", "--dry-run", option, "-3"]).with(2);
        assert!(!negative.err.contains("unexpected"), "{}", negative.err);
        negative.says(&[range]);
    }
}

/// An experiment over time is a study like others: shown, planned, and compared once it was run.
#[test]
fn an_experiment_is_a_study() {
    let state = StateDir::new();
    let shown = state.vmio(&["study", "show", "amamou2012"]).with(0);
    shown.says(&["[guard.exact]", "network = \"shared\""]);
    let plan = state.vmio(&["study", "run", "amamou2012", "--no-gentle", "--dry-run"]).with(0);
    plan.says(&["5 native and 5 guest cells"]);
    let quick = state.vmio(&["study", "run", "amamou2012-quick", "--no-gentle", "--dry-run"]).with(0);
    quick.says(&["7 native cells", "no guest is booted"]);
    state.vmio(&["study", "compare", "amamou2012", "paper"]).with(3).says(&["no runs yet"]);
}

/// A slip is told before minutes of measuring, and before the plan.
#[test]
fn an_unknown_rule_to_prove_is_refused_at_once() {
    let state = StateDir::new();
    for more in ["--dry-run", "--yes"] {
        let with = |rule: &str, says: &str| {
            let ended = state.vmio(&["tax", "--quick", "--prove", rule, more]).with(2);
            assert!(ended.out.is_empty(), "{}", ended.out);
            ended.says(&[says]).err
        };
        with("emulated-drivr", "no rule has this name; did you mean `emulated-driver`?");
        let err = with("zzzzzz", "no rule has this name (docs/rules.md");
        assert!(!err.contains("did you mean"), "{err}");
    }
    assert_eq!(state.files(), [""; 0], "nothing was made");
}

#[test]
fn the_plan_of_a_proof_says_what_follows() {
    let state = StateDir::new();
    let plan = |more: &[&str]| state.vmio(&[&["tax", "--quick", "--dry-run"][..], more].concat());
    assert!(!unfolded(&plan(&[]).out).contains(" then "));
    let costliest = plan(&["--prove"]).says(&["then the costliest finding is proven", "its plan is shown first"]);
    assert!(!unfolded(&costliest.out).contains("then then"), "{}", costliest.out);
    plan(&["--prove", "emulated-driver"]).says(&["then the finding emulated-driver is proven"]);
}

/// A plan of a proof is no report of the run whose finding it proves.
#[test]
fn the_plan_of_a_proof_is_printed_alone() {
    let state = stocked();
    for more in [&["--of", "1"][..], &[]] {
        let out = state.vmio(&[&["tax", "--quick", "--prove", "--dry-run"][..], more].concat()).out;
        assert!(out.matches("Plan: ").count() <= 1 && !out.contains("Findings"), "{out}");
    }
}

/// What networks need is what their entries require, and no lack of a host that measures disks.
#[test]
fn doctor_names_what_networks_lack() {
    let state = StateDir::new();
    let ended = state.finish(state.command(&["doctor", "--json"]).env("PATH", "/nowhere")).with(3);
    let json = ended.json();
    let lacks = |point: &str, name: &str| -> Vec<String> {
        let all = json["abilities"].as_array().unwrap();
        let found = all.iter().find(|a| a["point"] == point && a["name"] == name);
        let missing = found.unwrap_or_else(|| panic!("{point} {name}: {json}"))["missing"].as_array().unwrap();
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
    let state = StateDir::new();
    state.vmio(&["--help"]).with(0).says(&["runs", "Examples:", "Exit codes:"]);
    let unknown = state.vmio(&["rums"]).with(2);
    assert!(unknown.out.is_empty() && unknown.err.starts_with("error:"), "{}", unknown.err);
    unknown.says(&["runs"]);
    state.vmio(&["runs", "show", "seven"]).with(2);
    state.vmio(&["runs", "list", "--help"]).with(0);
    // A run that was measured is told and written; a stored one is shown or written.
    state.vmio(&["tax", "-h"]).with(0).says(&["Also write the report", "Also write the best"]);
    let show = state.vmio(&["runs", "show", "-h"]).with(0).says(&["Write the report to"]).out;
    assert!(!show.contains("Also write") && show.matches("instead").count() == 3, "{show}");
    assert_eq!(state.files(), [""; 0], "nothing is made by asking for help");
}

#[test]
fn a_bare_vmio_scans_and_says_where_the_rest_is() {
    let state = StateDir::new();
    let text = state.vmio(&[]).with(0);
    assert!(text.out.contains("guest") && text.out.contains("vmio "), "{}", text.out);
    assert!(text.err.contains("vmio --help"), "{}", text.err);
    let json = state.vmio(&["--json"]).with(0);
    assert!(json.json().is_object() && !json.err.contains("--help"), "{}", json.err);
    assert_eq!(state.files(), [""; 0], "nothing is made by looking");
}

#[test]
fn scan_on_this_machine_in_every_form() {
    let state = StateDir::new();
    let ended = state.vmio(&["scan", "--json"]).with(0);
    let json = ended.json();
    assert!(json["guests"].is_array() && json["unread"].is_array() && json["seconds"].as_f64().unwrap() > 0.0);
    assert!(ended.err.is_empty() && json["schema_version"] == "1.0", "{}", ended.err);
    let (page, metrics) = (state.path().join("s.html"), state.path().join("vmio.prom"));
    state.vmio(&["scan", "--html", page.to_str().unwrap()]).with(0);
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    let ended = state.vmio(&["scan", &format!("--prometheus={}", metrics.display())]).with(0);
    assert!(ended.out.is_empty() && fs::read_to_string(&metrics).unwrap().contains("\nvmio_scan_guests "));
    assert_eq!(state.files(), ["s.html", "vmio.prom"], "nothing is left beside");
    state.vmio(&["scan", "--prometheus"]).with(0).says(&["# TYPE vmio_scan_findings gauge"]);
    let nagios = state.vmio(&["scan", "--nagios"]);
    let word = ["OK", "WARNING", "CRITICAL", "UNKNOWN"][nagios.code.unwrap() as usize];
    let first = nagios.out.lines().next().unwrap();
    assert!(first.starts_with(&format!("VMIO SCAN {word}: ")) && first.contains(" | guests="), "{first}");
}

#[test]
fn a_scan_leaves_a_store_of_another_format() {
    let state = StateDir::new();
    drop(state.store());
    let path = state.path().join("vmio.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 1).unwrap();
    let file = || (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    let before = file();
    let json = state.vmio(&["scan", "--json"]).with(0).json();
    let unread = json["unread"].as_array().unwrap();
    let told = unread.iter().find(|u| u["what"] == "results of earlier runs on this host").unwrap();
    assert!(told["why"].as_str().unwrap().contains("another version of vmio"), "{told}");
    assert!(told["mend"].as_str().unwrap().contains("vmio runs export"), "{told}");
    assert!(file() == before, "the store was written");
}

#[test]
fn scan_refuses_what_cannot_be_meant() {
    let state = StateDir::new();
    let scan = |args: &[&str], code| state.vmio(&[&["scan"][..], args].concat()).with(code);
    for pair in
        [["--json", "--nagios"], ["--json", "--prometheus"], ["--prometheus", "--html=x"], ["--json", "--prometheus=x"]]
    {
        scan(&pair, if pair.contains(&"--nagios") { 3 } else { 2 }).says(&["cannot be used with"]);
    }
    scan(&["--ignore", "emulated-drivers"], 2)
        .says(&["unknown rule emulated-drivers", "did you mean emulated-driver?"]);
    scan(&["--ignore", "zzz@web1"], 2).says(&["the rules are: ", " unsafe-cache,"]);
    scan(&["--fail-on", "dreadful"], 2).says(&["note, advice, warning, severe"]);
    scan(&["no-such-guest-anywhere"], 2).says(&["no guest no-such-guest-anywhere runs here", "help:"]);
    // With one code, whether the directory is missing or refuses: `/proc` is there, and nobody may make a file in it.
    for file in ["--html=/nowhere/at/all", "--html=/proc/all", "--prometheus=/nowhere/at/all", "--prometheus=/proc/all"]
    {
        scan(&[file], 1).says(&[&format!("{} cannot be written", file.split_once('=').unwrap().1)]);
    }
    // A plugin says what is wrong with it on standard output, and ends with 3.
    for wrong in [&["no-such-guest-anywhere"][..], &["--ignore", "zzz"], &["--no-such-option"], &["--fail-on", "no"]] {
        let ended = scan(&[&["--nagios"][..], wrong].concat(), 3);
        let one_line = ended.out.starts_with("VMIO SCAN UNKNOWN: ") && ended.out.lines().count() == 1;
        assert!(one_line && ended.err.is_empty(), "{}{}", ended.out, ended.err);
    }
}

#[test]
fn an_empty_store_is_no_error_to_list_and_one_to_show() {
    let state = StateDir::new();
    let list = state.vmio(&["runs", "list"]).with(0);
    assert!(list.out.is_empty() && list.err.contains("vmio tax"), "{}", list.err);
    assert_eq!(state.vmio(&["runs", "list", "--json"]).with(0).json()["runs"], serde_json::json!([]));
    state.vmio(&["runs", "show"]).with(3).says(&["error: no runs yet", "help:"]);
    drop(state.store());
    state.vmio(&["runs", "show", "last"]).with(2).says(&["help: it is empty"]);
}

#[test]
fn list_shows_how_each_run_ended() {
    let state = stocked();
    let out = state.vmio(&["runs", "list"]).with(0).out;
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[1].contains("   2  ") && lines[1].contains("interrupted") && lines[1].contains("KVM"), "{out}");
    assert!(lines[2].contains("   1  ") && lines[2].contains("done") && lines[2].contains("emulation"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours into a pipe");
    let json = state.vmio(&["--json", "runs", "list"]).with(0).json();
    assert_eq!((json["runs"][0]["run"].as_i64(), json["runs"][0]["state"].as_str()), (Some(2), Some("interrupted")));
}

#[test]
fn show_in_every_form() {
    let state = stocked();
    let show = |more: &[&str], code| state.vmio(&[&["runs", "show"][..], more].concat()).with(code);
    show(&["1"], 0).says(&["software emulation", "durable-append"]);
    show(&[], 0).says(&["vmio run 2", "partial"]);
    let ended = show(&["1", "--json"], 0);
    let json = ended.json();
    assert!(ended.err.is_empty() && json["schema_version"] == "2.0" && json["emulated"] == true);
    assert!(show(&["1", "--markdown"], 0).out.starts_with("# vmio run 1"));
    let page = state.path().join("r.html");
    assert_eq!(show(&["1", "--html", page.to_str().unwrap()], 0).out, "");
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    let nowhere = state.path().join("not/there.html");
    show(&["1", "--html", nowhere.to_str().unwrap()], 1).says(&["there.html", "help:", "cause:"]);
    show(&["1", "--json", "--markdown"], 2);
}

#[test]
fn explain_tells_runs_from_guests() {
    let state = stocked();
    let told = state.vmio(&["explain", "1", "--json"]).with(0).json();
    assert_eq!((told["run"]["run"].as_i64(), told["guest"].is_null()), (Some(1), true));
    assert!(!told["run"]["cells"].as_array().unwrap().is_empty(), "{told}");
    state.vmio(&["explain", "1"]).with(0).says(&["Run 1: where the time of one request goes"]);
    state.vmio(&["explain", "1", "--cell", "no-such-cell"]).with(2).says(&["error: no disk cell of run 1", "help:"]);
    state.vmio(&["explain", "1", "--qmp"]).with(2).says(&["error: only a running guest has a monitor", "--guest"]);
    state.vmio(&["explain", "1", "--cost"]).with(2).says(&["error: only a running guest is watched", "--guest"]);
    for no_run in ["77", "no-such-guest"] {
        let asked = state.vmio(&["explain", no_run, "--cell", "rand"]).with(2);
        asked.says(&["error: only a run has cells", "help: leave out --cell"]);
    }
}

#[test]
fn the_best_set_up_is_written_for_libvirt_and_proxmox() {
    let state = stocked();
    let (xml, qm) = (state.path().join("best.xml"), state.path().join("best.qm"));
    let files = ["--write-xml", xml.to_str().unwrap(), "--write-qm", qm.to_str().unwrap()];
    state.vmio(&[&["runs", "show", "1"][..], &files].concat()).with(0);
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
    let state = StateDir::new();
    let run = common::run(Accel::Kvm);
    assert_eq!(common::store_run(&state.store(), &run), 1);
    let finding = vmio::report::Report::of(&run).findings.into_iter().find(|f| f.proof.is_some()).unwrap();
    let proof = finding.proof.unwrap();
    let mut later = run.clone();
    later.kind = vmio_model::kind::RunKind::Proof(1);
    later.samples.retain(|s| s.cell == proof.before || s.cell == proof.after);
    assert_eq!(common::store_run(&state.store(), &later), 2);
    state.vmio(&["runs", "show", "last"]).with(0).says(&["vmio run 1:", "--prove, run 2: proven"]);
    state.vmio(&["runs", "show", "2"]).with(0).says(&["vmio run 2: prove-1"]);
}

#[test]
fn an_unknown_run_is_answered_with_the_nearest_and_the_last() {
    let state = stocked();
    for args in [&["runs", "show", "77"][..], &["runs", "export", "77"], &["runs", "compare", "1", "77"]] {
        state.vmio(args).with(2).says(&["no run 77", "the last is 2"]);
    }
    state.vmio(&["runs", "delete", "0"]).with(2).says(&["the nearest is 1, the last is 2"]);
}

#[test]
fn compare_names_what_was_not_the_same_first() {
    let state = stocked();
    let out = state.vmio(&["runs", "compare", "1", "2"]).with(0).out;
    let (kernel, cell) = (out.find("6.12.0-1-amd64").unwrap(), out.find("device/native/seq-write").unwrap());
    assert!(kernel < cell && out.contains("faster") && out.contains("1.5"), "{out}");
    let out = state.vmio(&["runs", "compare", "1", "1"]).with(0).says(&["The environment was the same"]).out;
    assert!(!out.contains("faster"), "{out}");
    assert_eq!(state.vmio(&["runs", "compare", "1", "last", "--json"]).with(0).json()["b"], 2);
}

#[test]
fn export_and_delete() {
    let state = stocked();
    // The raw output is in it.
    state.vmio(&["runs", "export", "1"]).with(0).says(&["fio version"]);
    assert!(state.vmio(&["runs", "export", "1", "--format", "csv"]).with(0).out.starts_with("run,study,"));
    state.vmio(&["runs", "export", "1", "--format", "xml"]).with(2);
    state.vmio(&["runs", "delete", "1"]).with(2).says(&["--yes"]);
    state.vmio(&["runs", "delete", "last"]).with(2).says(&["name the run by its number", "`vmio runs list`"]);
    state.vmio(&["runs", "show", "1"]).with(0);
    state.vmio(&["runs", "delete", "1", "--yes"]).with(0);
    state.vmio(&["runs", "show", "1"]).with(2);
}

#[test]
fn a_damaged_store_is_named_with_its_mend() {
    let state = StateDir::new();
    fs::write(state.path().join("vmio.db"), "no database at all".repeat(1000)).unwrap();
    state.vmio(&["runs", "list"]).with(1).says(&[state.path().to_str().unwrap(), "help: move it away"]);
    // A run is not planned first, and learns afterwards that nothing can be kept.
    let plan = state.vmio(&["tax", "--quick", "--dry-run"]).with(3);
    assert!(!plan.out.contains("Plan: "), "{}", plan.out);
    plan.says(&["cannot use the state directory", state.path().to_str().unwrap(), "--state DIR"]);
}

#[test]
fn completions_and_man_pages() {
    let state = StateDir::new();
    for shell in ["bash", "zsh", "fish"] {
        let out = state.vmio(&["completions", shell]).with(0).says(&["vmio", "compare"]).out;
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
    let pages = state.path().join("man");
    state.vmio(&["man", pages.to_str().unwrap()]).with(0);
    let page = fs::read_to_string(pages.join("vmio-runs-compare.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("Compare two runs"), "{page}");
}
