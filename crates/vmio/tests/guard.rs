//! `vmio guard check` and `plan` as a user meets them.
#![allow(clippy::unwrap_used)]

use std::fs;

use crate::help::state_dir::{Ended, StateDir, is_narrow, unfolded};

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
fn with_files(files: &[(&str, &str)]) -> StateDir {
    let state = StateDir::new();
    for (name, text) in files {
        fs::write(state.path().join(name), text).unwrap();
    }
    state
}

/// What `vmio guard` says there, which ends with this code.
#[track_caller]
fn ends(state: &StateDir, args: &[&str], code: i32) -> Ended {
    state.finish(state.command(&["guard"]).args(args).current_dir(state.path())).with(code)
}

/// Of the machine that runs the tests: its guests are its own, so only what is there on any is held.
#[test]
fn a_host_is_looked_at_only_where_that_is_asked() {
    // The one link that every machine has.
    let policy = POLICY.replace("eth0", "lo");
    let state = with_files(&[("guard.toml", &policy), ("typo.toml", &POLICY.replace("eth0", "lo9"))]);
    let host = |args: &[&str]| ends(&state, args, 0).json()["host"].clone();
    assert!(host(&["check", "--config", "guard.toml", "--json"]).is_null());
    let host = host(&["check", "--config", "guard.toml", "--host", "--json"]);
    assert!(host["interfaces"].is_u64() && host["limits"].is_array() && host["refused"].as_array().unwrap().is_empty());
    ends(&state, &["check", "--config", "guard.toml", "--host"], 0)
        .says(&["This host: ", "guard.toml:11:9: no interface that is here now matches vnet0"]);
    // `check --host` refuses what `run` refuses.
    for args in [&["check", "--config", "typo.toml", "--host"][..], &["run", "--dry-run", "--config", "typo.toml"]] {
        ends(&state, args, 2).says(&["lo9: no such interface"]);
    }
    // The policy is good, but HTB's smallest rates add up to more than the uplink has.
    let tiny = "[uplink.lo]\ncapacity = \"10kbit\"\n";
    fs::write(state.path().join("tiny.toml"), tiny).unwrap();
    ends(&state, &["check", "--config", "tiny.toml"], 0);
    ends(&state, &["check", "--config", "tiny.toml", "--host"], 2)
        .says(&["refused: this host cannot hold the policy: ", "error: this host cannot hold the policy"]);
    // The refusal comes last.
    let out = unfolded(&ends(&state, &["check", "--config", "typo.toml", "--host"], 2).out);
    assert!(out.starts_with("The policy is valid, but not on this host (see below): "), "{out}");
    let last = out.rsplit("refused: ").next().unwrap();
    assert!(last.starts_with("this host cannot hold the policy: ") && last.ends_with("see: ip link"), "{out}");
}

/// Refused before a daemon is asked.
#[test]
fn requests_that_make_no_sense_say_what_would() {
    let state = with_files(&[("guard.toml", POLICY)]);
    let example = format!("help: for example: vmio guard set --state {} class NAME --clear", state.path().display());
    for (args, words) in [
        (&["set", "class", "--clear"][..], "the name of the class is missing"),
        (&["set", "class", "--clear"], example.as_str()),
        (&["set", "class", "gold", "--max", "5Mbit", "--confirm", "5m"], "write \"300s\""),
        (&["apply", "--config", "guard.toml"], "the daemon rereads the files that it was started with"),
    ] {
        ends(&state, args, 2).says(&[words]);
    }
}

/// The file that comes with vmio is what the README has people paste.
#[test]
fn the_policy_to_start_from_is_one() {
    let state = with_files(&[("guard.toml", include_str!("../../../packaging/guard.toml"))]);
    let ended = ends(&state, &["check", "--config", "guard.toml"], 0).says(&["1 interface named, 1 pattern."]);
    assert_eq!(ended.err, "");
    ends(&state, &["plan", "--config", "guard.toml"], 0).says(&["gold"]);
}

#[test]
fn a_good_policy_is_summed_up() {
    let state = with_files(&[("guard.toml", POLICY)]);
    let ended = ends(&state, &["check", "--config", "guard.toml"], 0);
    assert_eq!(ended.err, "");
    ended
        .says(&["1 interface named, 1 pattern.", "eth0 guest_tx: 320 Mbit/s of 1 Gbit/s guaranteed to 2 members"])
        .says(&["local traffic is not limited: what members of gold send"]);
    let open = |text: &str| {
        fs::write(state.path().join("guard.toml"), text).unwrap();
        ends(&state, &["check", "--config", "guard.toml", "--json"], 0).json()["not_limited_locally"].clone()
    };
    assert_eq!(open(POLICY)[0], "gold");
    let limits = POLICY.replace("max = \"600Mbit\"", "local = \"limit\"\nqueue = \"25ms\"\nmax = \"600Mbit\"");
    let limits = format!("[guard]\nspoofing = \"drop\"\n{limits}");
    assert!(open(&limits).as_array().unwrap().is_empty());
    let out = ends(&state, &["check", "--config", "guard.toml"], 0).out;
    assert!(!out.contains("local traffic"), "{out}");
    for line in ["  class gold: queue 25 ms, local limit\n", "  guard: on_conflict report, spoofing drop\n"] {
        assert!(out.contains(line), "{out}");
    }
}

/// What a class says of processors and memory stands in `check` and in the plan, as it was written.
#[test]
fn processors_and_memory_are_shown() {
    let more = "max = \"600Mbit\"\ncpu_weight = 400\ncpu_max = \"150%\"\nmemory_max = \"4GiB\"\n";
    let text = POLICY.replace("max = \"600Mbit\"\n", more).replace("weight = 2\n", "weight = 2\ncpu_weight = 10\n");
    let state = with_files(&[("guard.toml", &text), ("plain.toml", POLICY)]);
    let out = ends(&state, &["check", "--config", "guard.toml"], 0).out;
    assert!(out.contains("  class gold: cpu_weight 400, cpu_max 150%, memory_max 4 GiB\n"), "{out}");
    let out = ends(&state, &["plan", "--config", "guard.toml", "--demand", "vm:web1=1Mbit"], 0).out;
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [&["vnet0", "400", "150%", "4", "GiB"][..], &["vm:web1", "10", "-", "-"]] {
        assert!(rows.iter().any(|r| r == row), "{row:?}: {out}");
    }
    is_narrow(&out);
    let out = ends(&state, &["plan", "--config", "plain.toml"], 0).out;
    assert!(!out.contains("memory"), "{out}");

    let more = "max = \"600Mbit\"\nmemory_min = \"512MiB\"\nmemory_max = \"2GiB\"\nmemory_move = true\n";
    let state = with_files(&[("guard.toml", &POLICY.replace("max = \"600Mbit\"\n", more))]);
    let out = ends(&state, &["check", "--config", "guard.toml"], 0).out;
    assert!(out.contains("  class gold: memory_min 512 MiB, memory_max 2 GiB, memory_move true\n"), "{out}");
}

/// What guests may claim to be, and what holds of local traffic and queues.
#[test]
fn what_is_written_besides_rates_is_shown() {
    let text = POLICY
        .replace("\"1Gbit\"", "\"1Gbit\"\ngateways = [\"192.0.2.1\"]")
        .replace("priority = 1\n", "priority = 1\nqueue = \"25ms\"\nlocal = \"limit\"\n")
        .replace("rx_class = \"gold\"\n", "rx_class = \"gold\"\naddresses = [\"192.0.2.7\", \"2001:db8::7\"]\n");
    let state = with_files(&[("guard.toml", &format!("{text}router = true\n"))]);
    let ended = ends(&state, &["check", "--config", "guard.toml"], 0);
    assert_eq!(ended.err, "");
    is_narrow(&ended.out);
    for line in [
        "  class gold: queue 25 ms, local limit",
        "  vnet0: addresses 192.0.2.7 2001:db8::7",
        "  vm:web*: router",
        "  guard: on_conflict report, spoofing warn",
        "  eth0: gateways 192.0.2.1",
    ] {
        assert!(ended.out.lines().any(|shown| shown == line), "{line}: {}", ended.out);
    }
    let said = ends(&state, &["check", "--config", "guard.toml", "--json"], 0).json()["policy"].clone();
    let guard = &said["guard"];
    assert_eq!((guard["spoofing"].as_str(), guard["period_seconds"].as_f64()), (Some("warn"), Some(0.01)));
    assert_eq!(said["uplinks"][0]["gateways"][0], "192.0.2.1");
    let classes: Vec<(&str, Option<&str>, Option<f64>)> = said["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["name"].as_str().unwrap(), c["local"].as_str(), c["queue_seconds"].as_f64()))
        .collect();
    let wanted = [
        ("default", None, None),
        ("gold", Some("limit"), Some(0.025)),
        ("host", None, None),
        ("tin", Some("count"), None),
    ];
    assert_eq!(classes, wanted);
    let (vnet0, web) = (&said["interfaces"][0], &said["interfaces"][1]);
    assert_eq!((&vnet0["addresses"][1], vnet0["router"].as_bool()), (&"2001:db8::7".into(), Some(false)));
    assert_eq!((&web["match"], web["router"].as_bool()), (&"vm:web*".into(), Some(true)));
    assert!(web["rx_class"].is_null() && web["place"].as_str().unwrap().starts_with("guard.toml:"));
    fs::write(state.path().join("guard.toml"), "x").unwrap();
    assert!(ends(&state, &["check", "--config", "guard.toml", "--json"], 2).json()["policy"].is_null());
}

/// What is dropped above a maximum: what it means is said, and what contradicts it refused.
#[test]
fn what_drops_is_said() {
    let flow = "[[class.tin.flow]]\nname = \"dns\"\nmatch = { ports = [53] }\nmax = \"1Mbit\"\nexcess = \"drop\"\n";
    let text = POLICY.replace("\"600Mbit\"\n", "\"600Mbit\"\nexcess = \"drop\"\nburst = \"20ms\"\n") + flow;
    let over = text.replace("burst = \"20ms\"", "over_max = true");
    let state = with_files(&[("guard.toml", &text), ("plain.toml", POLICY), ("over.toml", &over)]);
    let ended = ends(&state, &["check", "--config", "guard.toml"], 0);
    is_narrow(&ended.out);
    ended.says(&[
        "class gold: excess drop, burst 20 ms",
        "class tin: flow classes dns (excess drop)",
        "excess is dropped: what is above a maximum of gold, tin is lost at once",
    ]);
    assert!(!ends(&state, &["check", "--config", "plain.toml"], 0).out.contains("dropped"));
    let said = ends(&state, &["check", "--config", "guard.toml", "--json"], 0).json()["policy"]["classes"].clone();
    let of = |name: &str| said.as_array().unwrap().iter().find(|class| class["name"] == name).unwrap().clone();
    let (gold, tin) = (of("gold"), of("tin"));
    assert_eq!((gold["excess"].as_str(), gold["burst_seconds"].as_f64()), (Some("drop"), Some(0.02)));
    assert_eq!((tin["excess"].as_str(), tin["flows"][0]["excess"].as_str()), (Some("queue"), Some("drop")));
    ends(&state, &["check", "--config", "over.toml"], 2).says(&["class.gold.excess: \"drop\" and over_max"]);
}

/// Maxima that drop, and nothing else that is asked for.
#[test]
fn that_an_uplink_needs_no_queue_is_said() {
    let text = "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.host]\nmin = \"0bit\"\npriority = 4\n\
                [class.default]\npriority = 4\n[class.low]\nmax = \"10Mbit\"\nexcess = \"drop\"\n\
                [[interface]]\nmatch = { name = \"tap1\" }\nclass = \"low\"\n";
    let queued = text.replace("min = \"0bit\"\n", "");
    let state = with_files(&[("guard.toml", text), ("queued.toml", &queued)]);
    let said = "eth0 guest_tx: no queue; maxima by token bucket";
    ends(&state, &["check", "--config", "guard.toml"], 0).says(&[said]);
    let why = "eth0 guest_tx: queues behind the token buckets, for class.host.min";
    ends(&state, &["check", "--config", "queued.toml"], 0).says(&[why]);
    ends(&state, &["plan", "--config", "guard.toml"], 0).says(&["990 Mbit/s unused; no queue; maxima by token bucket"]);
    for (file, queueless) in [("guard.toml", true), ("queued.toml", false)] {
        let checked = ends(&state, &["check", "--config", file, "--json"], 0).json();
        assert_eq!(checked["policy"]["uplinks"][0]["queueless"], queueless, "{file}");
        let plan = ends(&state, &["plan", "--config", file, "--json"], 0).json();
        assert_eq!(
            (&plan["pools"][0]["queueless"], &plan["pools"][1]["queueless"]),
            (&queueless.into(), &false.into())
        );
    }
}

/// Targets of delay: what is chosen for them, and why they cannot be met.
#[test]
fn what_is_chosen_for_a_delay_is_shown() {
    let text = POLICY.replace("priority = 1\n", "delay = \"20ms\"\njitter = \"15ms\"\n");
    let state = with_files(&[("guard.toml", &text), ("short.toml", &text.replace("20ms", "2ms"))]);
    let ended = ends(&state, &["check", "--config", "guard.toml"], 0);
    is_narrow(&ended.out);
    ended.says(&["class gold: delay 20 ms, jitter 15 ms, priority 2, waits at most "]);
    let said = ends(&state, &["check", "--config", "guard.toml", "--json"], 0).json()["policy"]["classes"].clone();
    let gold = said.as_array().unwrap().iter().find(|class| class["name"] == "gold").unwrap();
    let of = |key: &str| gold[key].as_f64().unwrap();
    assert_eq!((of("priority"), of("delay_seconds"), of("jitter_seconds")), (2.0, 0.02, 0.015));
    assert!(of("longest_wait_seconds") <= 0.015 && of("queue_seconds") > 0.0, "{gold}");
    let refused = ends(&state, &["check", "--config", "short.toml"], 2);
    refused.says(&["class.gold.delay: 2 ms cannot be met at eth0 guest_tx: a packet may wait ", "behind its own"]);
}

/// Also where the output is no terminal: COLUMNS says how wide it is to be.
#[test]
fn problems_and_summary_fit_40_columns_and_break_no_word() {
    let bad = POLICY.replace("\"300Mbit\"", "\"300Mbps\"").replace("weight", "wieght");
    let bad = format!("{bad}rx_class = \"goold\" # a remark that goes on to the end of the line, and beyond\n");
    let state = with_files(&[("good.toml", POLICY), ("bad.toml", &bad)]);
    let shown = |columns: &str, file: &str, code| {
        let mut command = state.command(&["guard", "check", "--config", file]);
        let ended = state.finish(command.env("COLUMNS", columns).current_dir(state.path())).with(code);
        ended.out + &ended.err
    };
    for (file, code) in [("good.toml", 0), ("bad.toml", 2)] {
        let words = unfolded(&shown("80", file, code));
        for columns in ["40", "60"] {
            let text = shown(columns, file, code);
            let width: usize = columns.parse().unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            if code == 0 {
                assert_eq!(unfolded(&text), words, "no word is broken");
            }
        }
    }
    let text = unfolded(&shown("40", "bad.toml", 2));
    for words in ["`bps` means bytes in some tools and bits in others; write", "`weight`? (there is priority, min,"] {
        assert!(text.contains(words), "{text}");
    }
    // As wide as before where nothing is said.
    assert!(shown("", "bad.toml", 2).lines().any(|line| line.chars().count() > 60));
}

#[test]
fn a_refused_policy_shows_every_problem_and_ends_with_2() {
    let bad = POLICY.replace("\"300Mbit\"", "\"300Mbps\"").replace("weight", "wieght");
    let state = with_files(&[("guard.toml", &bad)]);
    let ended = ends(&state, &["check", "--config", "guard.toml"], 2);
    assert_eq!(ended.out, "");
    ended
        .says(&["--> guard.toml:5:7", "--> guard.toml:8:1", "^^^^^^^^^", "did you mean `weight`?"])
        .says(&["error: the policy is refused: 2 problems"]);
    // The plan refuses it likewise, and prints no JSON.
    assert_eq!(ends(&state, &["plan", "--config", "guard.toml", "--json"], 2).out, "");
    let ended = ends(&state, &["check", "--config", "guard.toml", "--json"], 2);
    let (json, err) = (ended.json(), &ended.err);
    assert_eq!((json["accepted"].as_bool(), json["problems"][0]["line"].as_u64()), (Some(false), Some(5)));
    // The snippets are on standard error, as without --json.
    assert!(err.contains("--> guard.toml:5:7") && err.contains("error: the policy is refused: 2 problems"), "{err}");
    fs::write(state.path().join("guard.toml"), POLICY.replace("\"600Mbit\"", "\"2Gbit\"")).unwrap();
    let ended = ends(&state, &["check", "--config", "guard.toml", "--json"], 0);
    assert_eq!(ended.json()["warnings"][0]["key"], "class.gold.max");
    ended.says(&["warning: class.gold.max"]);
}

#[test]
fn directories_add_up_in_order_and_other_files_are_left_alone() {
    let state = with_files(&[
        ("10-uplink.toml", "[uplink.eth0]\ncapacity = \"1Gbit\"\n"),
        (
            "20-classes.toml",
            "[class.gold]\nmax = \"2Gbit\"\n[[interface]]\nmatch = { name = \"v\" }\nclass = \"gold\"\n",
        ),
        ("README", "not TOML"),
        (".20-classes.toml", "a half-written copy ["),
    ]);
    ends(&state, &["check", "--config", "."], 0).says(&["1 interface named", "warning: class.gold.max"]);
    // The same as two files; and a directory with nothing in it is no policy.
    ends(&state, &["check", "--config", "10-uplink.toml", "20-classes.toml"], 0);
    fs::create_dir(state.path().join("empty")).unwrap();
    ends(&state, &["check", "--config", "empty"], 2).says(&["empty: contains no *.toml"]);
    ends(&state, &["plan", "--config", "missing.toml"], 2).says(&["missing.toml: cannot be read"]);
    fs::write(state.path().join("bad.toml"), b"# one\n\xff\n").unwrap();
    ends(&state, &["check", "--config", "bad.toml"], 2).says(&["bad.toml: line 2, is not UTF-8"]);
}

#[test]
fn a_plan_as_json_and_as_a_table() {
    let state = with_files(&[("guard.toml", POLICY)]);
    let args = ["plan", "--config", "guard.toml", "--demand", "vm:web1=unbounded", "vnet0:rx=5Mbit", "--json"];
    let ended = ends(&state, &args, 0);
    assert_eq!(ended.err, "");
    let json = ended.json();
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

    let out = ends(&state, &args[..args.len() - 1], 0).out;
    assert!(out.lines().all(|l| l.chars().count() <= 100), "{out}");
    assert!(out.contains("vm:web1 tin") && out.contains('█') && out.contains('▒'), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours into a pipe");

    // Every uplink has both directions in JSON; the table leaves out where nobody is.
    let state = with_files(&[("guard.toml", &POLICY.replace("rx_class = \"gold\"\n", ""))]);
    let out = ends(&state, &["plan", "--config", "guard.toml"], 0).out;
    ends(&state, &["plan", "--config", "guard.toml"], 0)
        .says(&["Not shown: vm:web* (tin) is a pattern; try --demand vm:web0=all"]);
    let idle = "Not shown, because only an idle host and default are in it: eth0 guest_rx\n";
    assert!(out.ends_with(idle) && out.contains("eth0 guest_tx: 1 Gbit/s"), "{out}");
    let json = ends(&state, &["plan", "--config", "guard.toml", "--json"], 0).json();
    assert_eq!((json["pools"].as_array().unwrap().len(), &json["pools"][1]["direction"]), (2, &"guest_rx".into()));
    let out = ends(&state, &["plan", "--config", "guard.toml", "--demand", "host:rx=5Mbit"], 0).out;
    assert!(out.contains("eth0 guest_rx: 1 Gbit/s, 995 Mbit/s unused") && !out.contains("Not shown"), "{out}");
}

#[test]
fn demands_that_cannot_be_and_an_uplink_without_capacity() {
    let state = with_files(&[("guard.toml", POLICY), ("open.toml", "[uplink.eth0]\n")]);
    let plan = |demand: &str, code| ends(&state, &["plan", "--config", "guard.toml", "--demand", demand], code);
    plan("vnet0=5", 2).says(&["bare number"]);
    plan("web1=5Mbit", 2).says(&["did you mean `vm:web1`?"]);
    let ended = plan("vm:web1:rx=5Mbit", 0).says(&["warning: vm:web1 has no rx_class"]);
    assert!(!ended.out.is_empty());
    ends(&state, &["plan", "--config", "open.toml"], 2).says(&["--> open.toml:1:9", "capacity = \"1Gbit\""]);
    // `check` looks at this host, which has no link of that name; the loopback has no speed either.
    for text in ["[uplink.nosuch0]\n", "[uplink.lo]\n"] {
        fs::write(state.path().join("open.toml"), text).unwrap();
        ends(&state, &["check", "--config", "open.toml"], 2).says(&[
            "no link speed is known",
            "help: write it",
            "help: or check it on the host",
        ]);
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
    let state = with_files(&[("guard.toml", &policy)]);
    let out = ends(&state, &["plan", "--config", "guard.toml"], 0).out;
    assert!(out.lines().all(|l| l.chars().count() <= 100), "{out}");
    assert!(out.lines().any(|l| l == "vm:a-virtual-machine-with-a-very-long-name-in-it"), "{out}");
}
