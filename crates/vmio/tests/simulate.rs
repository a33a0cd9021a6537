//! `vmio guard simulate` as a user meets it. Needs no host: plain `cargo test`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vmio"));
    command.args(["guard", "simulate"]).args(args).output().unwrap()
}

#[track_caller]
fn ends(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "stdout: {out}\nstderr: {err}");
    (out, err)
}

const POLICY: &str = include_str!("fixtures/guard.toml");

#[test]
fn a_policy_is_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let (policy, page) = (dir.path().join("guard.toml"), dir.path().join("page.html"));
    fs::write(&policy, POLICY).unwrap();
    let (policy, page) = (policy.to_str().unwrap(), page.to_str().unwrap());
    let args = ["--config", policy, "--demand", "vnet0=20Mbit", "--seconds", "2", "--json", "--html", page];
    let (out, _) = ends(&simulate(&args), 0);
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
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
    assert_eq!(ends(&simulate(&args), 0).0, out, "the same input gives the same figures");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<polyline") && !page.contains("<script") && !page.contains("NaN"));
    // What the plan warns of is not lost.
    let (_, err) = ends(&simulate(&["--config", policy, "--demand", "vnet0:rx=1Mbit", "--seconds", "1"]), 0);
    assert!(err.contains("warning: vnet0 has no rx_class"), "{err}");
    let (text, _) = ends(&simulate(&args[..6]), 0);
    assert!(text.contains("vnet1") && text.contains("min met"), "{text}");
}

/// The published loop is simulated over the members that `plan` gives it: an idle host is not one,
/// or nobody would come to Figure 4's 500 and 200 Mbit/s.
#[test]
fn the_published_loop_has_the_plans_members() {
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/policy/good/amamou2012.toml");
    let common = ["--config", policy, "--demand", "vm:MV1=200Mbit", "--seconds", "2", "--json", "--algorithm", "dba"];
    let received = |more: &[&str]| {
        let (out, _) = ends(&simulate(&[&common, more].concat()), 0);
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
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
    // In a scheduler on the host the host is a member.
    assert_eq!(received(&["--enforcement", "hierarchy"])[0].0, "host");
}

#[test]
fn bad_input_names_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "uplink = \"1 Gbps\"\nperiod_ms = 10\nduration_s = 1\n").unwrap();
    let (_, err) = ends(&simulate(&["--scenario", path]), 2);
    assert!(err.contains("s.toml:1:10") && err.contains("uplink: ") && err.contains("vm: missing"), "{err}");
    let (_, err) = ends(&simulate(&["--scenario", dir.path().join("none").to_str().unwrap()]), 2);
    assert!(err.contains("cannot read"), "{err}");
    let (_, err) = ends(&simulate(&[]), 2);
    assert!(err.contains("--study"), "{err}");
    ends(&simulate(&["--study", "amamou2012", "--algorithm", "dba"]), 2);
    ends(&simulate(&["--scenario", path, "--period", "11s"]), 2);
}

#[test]
fn the_published_experiment_stands_beside_its_simulation() {
    let (out, _) = ends(&simulate(&["--study", "amamou2012", "--seconds", "2", "--json"]), 0);
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
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
    let (out, _) = ends(&simulate(&["--study", "amamou2012", "--seconds", "1"]), 0);
    let wide: Vec<&str> = out.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Compared with the figures printed in A. Amamou et al., A Dynamic Bandwidth Allocator"),
        "{out}"
    );
    assert!(
        words.contains(", queued on the host simulated ") || words.contains(", held in the guest simulated "),
        "{out}"
    );
    assert!(!out.contains('…'), "{out}");
}
