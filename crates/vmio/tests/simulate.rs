//! `vmio guard simulate` as a user meets it. Needs no host: plain `cargo test`.
#![allow(clippy::unwrap_used)]

use crate::help::state_dir::{Ended, StateDir, is_narrow, unfolded};

use std::fs;

#[track_caller]
fn simulate(args: &[&str], code: i32) -> Ended {
    StateDir::new().vmio(&[&["guard", "simulate"], args].concat()).with(code)
}

const POLICY: &str = include_str!("fixtures/guard.toml");

#[test]
fn a_policy_is_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, page) = (dir.path().join("guard.toml"), dir.path().join("page.html"));
    fs::write(&policy, POLICY).unwrap();
    let (policy, page) = (policy.to_str().unwrap(), page.to_str().unwrap());
    let args = ["--config", policy, "--demand", "vnet0=20Mbit", "--seconds", "2", "--json", "--html", page];
    let ended = simulate(&args, 0);
    let document = ended.json();
    let run = &document["runs"][0];
    assert_eq!((run["subject"].as_str(), run["packets"].as_bool()), (Some("eth0 guest_tx"), Some(true)));
    let mbit = |name: &str| {
        let all = run["members"].as_array().unwrap();
        let one = all.iter().find(|m| m["name"] == name).unwrap();
        one["received_bytes"].as_f64().unwrap() * 8.0 / 2e6
    };
    assert!((mbit("vnet0") - 20.0).abs() < 0.5, "{}", mbit("vnet0"));
    assert!((mbit("vnet1") - 50.0).abs() < 1.0, "{}", mbit("vnet1"));
    assert_eq!(mbit("host"), 0.0);
    assert_eq!(simulate(&args, 0).out, ended.out, "the same input gives the same figures");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<polyline") && !page.contains("<script") && !page.contains("NaN"));
    // What the plan warns of is not lost.
    let warned = simulate(&["--config", policy, "--demand", "vnet0:rx=1Mbit", "--seconds", "1"], 0);
    warned.says(&["warning: vnet0 has no rx_class"]);
    simulate(&args[..6], 0).says(&["vnet1", "min met"]);
}

/// The published loop is simulated over the members that `plan` gives it: an idle host is not one,
/// or nobody would come to Figure 4's 500 and 200 Mbit/s.
#[test]
fn the_published_loop_has_the_plans_members() {
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/policy/good/amamou2012.toml");
    let common = ["--config", policy, "--demand", "vm:MV1=200Mbit", "--seconds", "2", "--json", "--algorithm", "dba"];
    let received = |more: &[&str]| {
        let document = simulate(&[&common, more].concat(), 0).json();
        let members = document["runs"][0]["members"].as_array().unwrap().clone();
        let one = |m: &serde_json::Value| {
            (m["name"].as_str().unwrap().to_owned(), m["received_bytes"].as_f64().unwrap() * 8.0 / 2e6)
        };
        members.iter().map(one).collect::<Vec<_>>()
    };
    let all = received(&[]);
    assert_eq!(all.iter().map(|m| m.0.as_str()).collect::<Vec<_>>(), ["vm:MV1", "vm:MV2", "vm:MV3"]);
    for ((name, got), want) in all.iter().zip([200.0, 500.0, 200.0]) {
        assert!((got - want).abs() < 8.0, "{name} {got}");
    }
    // In a hierarchy the host is a member.
    assert_eq!(received(&["--enforcement", "hierarchy"])[0].0, "host");
}

#[test]
fn bad_input_names_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "uplink = \"1 Gbps\"\nperiod_ms = 10\nduration_s = 1\n").unwrap();
    simulate(&["--scenario", path], 2).says(&["s.toml:1:10", "uplink: ", "vm: missing"]);
    simulate(&["--scenario", dir.path().join("none").to_str().unwrap()], 2).says(&["cannot read"]);
    simulate(&[], 2).says(&["--study"]);
    simulate(&["--study", "amamou2012", "--algorithm", "dba"], 2);
    simulate(&["--scenario", path, "--period", "11s"], 2);
}

#[test]
fn the_published_experiment_stands_beside_its_simulation() {
    let document = simulate(&["--study", "amamou2012", "--seconds", "2", "--json"], 0).json();
    let hows: Vec<&str> = document["runs"].as_array().unwrap().iter().map(|r| r["how"].as_str().unwrap()).collect();
    assert_eq!(hows.len(), 5);
    assert_eq!(hows[..2], ["unshaped, one queue for all", "unshaped, in turns"]);
    assert_eq!(document["study"]["periods"].as_array().unwrap().len(), 21);
    let figures = document["study"]["figures"].as_array().unwrap();
    let six_hundred = figures.iter().find(|f| f["published"]["value"] == 600.0).unwrap();
    for run in six_hundred["simulated"].as_array().unwrap() {
        let value = run["value"].as_f64().unwrap();
        // The loop that sees only what passed is still on its way up after two seconds.
        assert!((450.0..610.0).contains(&value), "{run}");
    }
}

/// In the columns of a terminal, and no label is cut.
#[test]
fn the_text_of_the_published_experiment_fits() {
    let out = simulate(&["--study", "amamou2012", "--seconds", "1"], 0).out;
    is_narrow(&out);
    let words = unfolded(&out);
    let paper = "Compared with the figures printed in A. Amamou et al., A Dynamic Bandwidth Allocator";
    assert!(words.contains(paper), "{out}");
    let queued = [", queued on the host simulated ", ", held in the guest simulated "];
    assert!(queued.iter().any(|how| words.contains(how)), "{out}");
    assert!(!out.contains('…'), "{out}");
}
