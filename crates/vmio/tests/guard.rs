//! `vmio guard check` and `plan` as a user meets them.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::help::bed::Bed;

const POLICY: &str = r#"[uplink.eth0]
capacity = "1Gbit"
[class.gold]
priority = 1
min = "300Mbit"
max = "600Mbit"
[class.tin]
weight = 2
over_max = true
[[interface]]
match = { name = "vnet0" }
class = "gold"
rx_class = "gold"
[[interface]]
match = { vm = "web*" }
class = "tin"
"#;

/// A state directory with these files.
fn with_files(files: &[(&str, &str)]) -> Bed {
    let bed = Bed::new();
    for (name, text) in files {
        fs::write(bed.state().join(name), text).unwrap();
    }
    bed
}

/// What `vmio guard` says there, which ends with this code.
#[track_caller]
fn ends(bed: &Bed, args: &[&str], code: i32) -> (String, String) {
    let ended = bed.finish(bed.command(&["guard"]).args(args).current_dir(bed.state())).with(code);
    (ended.out, ended.err)
}

/// Of the machine that runs the tests: its guests are its own, so only what is there on any is held.
#[test]
fn a_host_is_looked_at_only_where_that_is_asked() {
    // The one link that every machine has.
    let policy = POLICY.replace("eth0", "lo");
    let bed = with_files(&[("guard.toml", &policy), ("typo.toml", &POLICY.replace("eth0", "lo9"))]);
    let host = |args: &[&str]| {
        let (out, _) = ends(&bed, args, 0);
        serde_json::from_str::<serde_json::Value>(&out).unwrap()["host"].clone()
    };
    assert!(host(&["check", "--config", "guard.toml", "--json"]).is_null());
    let host = host(&["check", "--config", "guard.toml", "--host", "--json"]);
    assert!(host["interfaces"].is_u64() && host["limits"].is_array() && host["refused"].as_array().unwrap().is_empty());
    let (out, _) = ends(&bed, &["check", "--config", "guard.toml", "--host"], 0);
    assert!(out.contains("This host: "), "{out}");
    let said = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("guard.toml:11:9: no interface that is here now matches vnet0"), "{out}");
    // What `guard run` would refuse, both looks refuse.
    for args in [&["check", "--config", "typo.toml", "--host"][..], &["run", "--dry-run", "--config", "typo.toml"]] {
        let (out, err) = ends(&bed, args, 2);
        assert!(format!("{out}{err}").contains("lo9: there is no such interface"), "{out}{err}");
    }
    // More minima than HTB's least rates leave room for: the policy is good, the plane cannot hold it.
    let tiny = "[uplink.lo]\ncapacity = \"10kbit\"\n";
    fs::write(bed.state().join("tiny.toml"), tiny).unwrap();
    ends(&bed, &["check", "--config", "tiny.toml"], 0);
    let (out, err) = ends(&bed, &["check", "--config", "tiny.toml", "--host"], 2);
    assert!(out.contains("refused: ") && err.contains("this host cannot hold the policy"), "{out}{err}");
}

/// The file that comes with vmio is what the README has people paste.
#[test]
fn the_policy_to_start_from_is_one() {
    let bed = with_files(&[("guard.toml", include_str!("../../../packaging/guard.toml"))]);
    let (out, err) = ends(&bed, &["check", "--config", "guard.toml"], 0);
    assert!(out.contains("1 interface named, 1 pattern.") && err.is_empty(), "{out}{err}");
    let (out, _) = ends(&bed, &["plan", "--config", "guard.toml"], 0);
    assert!(out.contains("gold"), "{out}");
}

#[test]
fn a_good_policy_is_summed_up() {
    let bed = with_files(&[("guard.toml", POLICY)]);
    let (out, err) = ends(&bed, &["check", "--config", "guard.toml"], 0);
    assert!(out.contains("1 interface named, 1 pattern.") && err.is_empty(), "{out}{err}");
    assert!(out.contains("eth0 guest_tx: 320 Mbit/s of 1 Gbit/s guaranteed to 2 members"), "{out}");
}

/// What a class says of processors and memory stands in `check` and in the plan, as it was written.
#[test]
fn processors_and_memory_are_shown() {
    let more = "max = \"600Mbit\"\ncpu_weight = 400\ncpu_max = \"150%\"\nmemory_max = \"4GiB\"\n";
    let text = POLICY.replace("max = \"600Mbit\"\n", more).replace("weight = 2\n", "weight = 2\ncpu_weight = 10\n");
    let bed = with_files(&[("guard.toml", &text), ("plain.toml", POLICY)]);
    let (out, _) = ends(&bed, &["check", "--config", "guard.toml"], 0);
    assert!(out.contains("  class gold: cpu_weight 400, cpu_max 150%, memory_max 4 GiB\n"), "{out}");
    let (out, _) = ends(&bed, &["plan", "--config", "guard.toml", "--demand", "vm:web1=1Mbit"], 0);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [&["vnet0", "400", "150%", "4", "GiB"][..], &["vm:web1", "10", "-", "-"]] {
        assert!(rows.iter().any(|r| r == row), "{row:?}: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let (out, _) = ends(&bed, &["plan", "--config", "plain.toml"], 0);
    assert!(!out.contains("memory"), "{out}");
}

#[test]
fn a_refused_policy_shows_every_problem_and_ends_with_2() {
    let bad = POLICY.replace("\"300Mbit\"", "\"300Mbps\"").replace("weight", "wieght");
    let bed = with_files(&[("guard.toml", &bad)]);
    let (out, err) = ends(&bed, &["check", "--config", "guard.toml"], 2);
    assert!(out.is_empty() && err.contains("--> guard.toml:5:7") && err.contains("--> guard.toml:8:1"), "{err}");
    assert!(err.contains("^^^^^^^^^") && err.contains("did you mean `weight`?"), "{err}");
    assert!(err.contains("error: the policy is refused: 2 problems"), "{err}");
    // The plan refuses it likewise, and prints no JSON.
    let (out, _) = ends(&bed, &["plan", "--config", "guard.toml", "--json"], 2);
    assert!(out.is_empty(), "{out}");
    let (out, err) = ends(&bed, &["check", "--config", "guard.toml", "--json"], 2);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((json["accepted"].as_bool(), json["problems"][0]["line"].as_u64()), (Some(false), Some(5)));
    // A person reads along: the snippets are on standard error here, too.
    assert!(err.contains("--> guard.toml:5:7") && err.contains("error: the policy is refused: 2 problems"), "{err}");
    fs::write(bed.state().join("guard.toml"), POLICY.replace("\"600Mbit\"", "\"2Gbit\"")).unwrap();
    let (out, err) = ends(&bed, &["check", "--config", "guard.toml", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["warnings"][0]["key"], "class.gold.max");
    assert!(err.contains("warning: class.gold.max"), "{err}");
}

#[test]
fn directories_add_up_in_order_and_other_files_are_left_alone() {
    let bed = with_files(&[
        ("10-uplink.toml", "[uplink.eth0]\ncapacity = \"1Gbit\"\n"),
        (
            "20-classes.toml",
            "[class.gold]\nmax = \"2Gbit\"\n[[interface]]\nmatch = { name = \"v\" }\nclass = \"gold\"\n",
        ),
        ("README", "not TOML"),
        (".20-classes.toml", "a half-written copy ["),
    ]);
    let (out, err) = ends(&bed, &["check", "--config", "."], 0);
    assert!(out.contains("1 interface named") && err.contains("warning: class.gold.max"), "{out}{err}");
    // The same as two files; and a directory with nothing in it is no policy.
    ends(&bed, &["check", "--config", "10-uplink.toml", "20-classes.toml"], 0);
    fs::create_dir(bed.state().join("empty")).unwrap();
    let (_, err) = ends(&bed, &["check", "--config", "empty"], 2);
    assert!(err.contains("empty: contains no *.toml"), "{err}");
    let (_, err) = ends(&bed, &["plan", "--config", "missing.toml"], 2);
    assert!(err.contains("missing.toml: cannot be read"), "{err}");
    fs::write(bed.state().join("bad.toml"), b"# one\n\xff\n").unwrap();
    let (_, err) = ends(&bed, &["check", "--config", "bad.toml"], 2);
    assert!(err.contains("bad.toml: line 2, is not UTF-8"), "{err}");
}

#[test]
fn a_plan_as_json_and_as_a_table() {
    let bed = with_files(&[("guard.toml", POLICY)]);
    let args = ["plan", "--config", "guard.toml", "--demand", "vm:web1=unbounded", "vnet0:rx=5Mbit", "--json"];
    let (out, err) = ends(&bed, &args, 0);
    assert!(err.is_empty(), "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = json["interfaces"].as_array().unwrap();
    let row = |name: &str, direction: &str| {
        rows.iter()
            .find(|r| r["name"] == name && r["direction"] == direction)
            .unwrap_or(&serde_json::Value::Null)
            .clone()
    };
    assert_eq!(row("vnet0", "guest_tx")["rate_bps"], 600_000_000);
    assert_eq!(row("vnet0", "guest_tx")["limited_by"], "max");
    assert_eq!(row("vm:web1", "guest_tx")["rate_bps"], 400_000_000);
    assert_eq!(row("vm:web1", "guest_tx")["limited_by"], "capacity");
    assert_eq!(row("vnet0", "guest_rx")["rate_bps"], 5_000_000);
    assert!(row("vm:web1", "guest_rx").is_null(), "no row for a direction without a class");
    assert_eq!(json["pools"][1]["unused_bps"], 995_000_000);

    let (out, _) = ends(&bed, &args[..args.len() - 1], 0);
    assert!(out.lines().all(|l| l.chars().count() <= 100), "{out}");
    assert!(out.contains("vm:web1 tin") && out.contains('█') && out.contains('▒'), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours into a pipe");

    // Every uplink has both directions in JSON; the table leaves out where nobody is.
    let bed = with_files(&[("guard.toml", &POLICY.replace("rx_class = \"gold\"\n", ""))]);
    let (out, _) = ends(&bed, &["plan", "--config", "guard.toml"], 0);
    let idle = "Not shown, because only an idle host and default are in it: eth0 guest_rx\n";
    assert!(out.ends_with(idle) && out.contains("eth0 guest_tx: 1 Gbit/s"), "{out}");
    let (out, _) = ends(&bed, &["plan", "--config", "guard.toml", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((json["pools"].as_array().unwrap().len(), &json["pools"][1]["direction"]), (2, &"guest_rx".into()));
    let (out, _) = ends(&bed, &["plan", "--config", "guard.toml", "--demand", "host:rx=5Mbit"], 0);
    assert!(out.contains("eth0 guest_rx: 1 Gbit/s, 995 Mbit/s unused") && !out.contains("Not shown"), "{out}");
}

#[test]
fn demands_that_cannot_be_and_an_uplink_without_capacity() {
    let bed = with_files(&[("guard.toml", POLICY), ("open.toml", "[uplink.eth0]\n")]);
    let plan = |demand: &str, code| ends(&bed, &["plan", "--config", "guard.toml", "--demand", demand], code);
    assert!(plan("vnet0=5", 2).1.contains("bare number"));
    assert!(plan("web1=5Mbit", 2).1.contains("did you mean `vm:web1`?"));
    let (out, err) = plan("vm:web1:rx=5Mbit", 0);
    assert!(err.contains("warning: vm:web1 has no rx_class") && !out.is_empty(), "{err}");
    let (_, err) = ends(&bed, &["plan", "--config", "open.toml"], 2);
    assert!(err.contains("--> open.toml:1:9") && err.contains("capacity = \"1Gbit\""), "{err}");
    // `check` looks at this host, which has no link of that name; the loopback has no speed either.
    for text in ["[uplink.nosuch0]\n", "[uplink.lo]\n"] {
        fs::write(bed.state().join("open.toml"), text).unwrap();
        let (_, err) = ends(&bed, &["check", "--config", "open.toml"], 2);
        assert!(err.contains("no link speed is known") && err.contains("help: write it"), "{err}");
        assert!(err.contains("help: or check it on the host"), "{err}");
    }
}

#[test]
fn long_names_and_many_interfaces_stay_inside_the_width() {
    let mut policy = POLICY.replace("web*", "a-virtual-machine-with-a-very-long-name-in-it");
    policy = policy
        .replace("[class.tin]", "[class.a-class-with-a-very-long-name]")
        .replace("\"tin\"", "\"a-class-with-a-very-long-name\"");
    policy = policy.replace("\"1Gbit\"", "\"123456789.123456kbit\"");
    for i in 1..50 {
        policy += &format!("[[interface]]\nmatch = {{ name = \"tap{i}\" }}\nclass = \"gold\"\n");
    }
    policy = policy.replace("min = \"300Mbit\"", "min = \"1.23456Mbit\"");
    let bed = with_files(&[("guard.toml", &policy)]);
    let (out, _) = ends(&bed, &["plan", "--config", "guard.toml"], 0);
    assert!(out.lines().all(|l| l.chars().count() <= 100), "{out}");
    assert!(out.lines().any(|l| l == "vm:a-virtual-machine-with-a-very-long-name-in-it"), "{out}");
}
