//! The guard's policy: parsing of good files, messages for bad ones, and the plan.
//!
//! `tests/fixtures/policy/{good,refused,warned}`: each `NAME.toml`, or directory of several, has a `NAME.txt` with the
//! expected output. `VMIO_BLESS=1` rewrites it: read the difference.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{amamou2012, fixture, fixtures, read};
use vmio_model::policy::plan::{Algorithm, Ask, LimitedBy, Plan, Row, plan};
use vmio_model::policy::{Direction, Framing, HOST, Kind, Links, Policy};
use vmio_model::rate::{BitRate, MBIT as M};

#[test]
fn every_message_is_pinned() {
    let mut messages = 0;
    for (kind, path) in fixtures() {
        let files = fixture(&path);
        let (problems, warnings) = match read(&files, &Links::default()) {
            Ok(loaded) => (Vec::new(), loaded.warnings),
            Err(error) => (error.problems, error.warnings),
        };
        let name = path.display();
        match kind {
            "good" => assert!(problems.is_empty() && warnings.is_empty(), "{name}: {problems:?} {warnings:?}"),
            "refused" => assert!(!problems.is_empty(), "{name}"),
            _ => assert!(problems.is_empty() && !warnings.is_empty(), "{name}: {problems:?}"),
        }
        messages += problems.len() + warnings.len();
        let shown = problems.iter().map(|p| p.snippet("error")).chain(warnings.iter().map(|p| p.snippet("warning")));
        let shown: String = shown.map(|s| s + "\n").collect();
        let expected = path.with_extension("txt");
        if std::env::var_os("VMIO_BLESS").is_some() && !shown.is_empty() {
            std::fs::write(&expected, &shown).unwrap();
        }
        let pinned = std::fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(shown, pinned, "{name}");
    }
    assert!(messages > 60, "{messages} messages: are the fixtures there?");
}

fn good(name: &str) -> Policy {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/policy/good").join(name);
    read(&fixture(&path), &Links::default()).unwrap().policy
}

/// As written; the default is preamble and gap on physical ports.
#[test]
fn what_is_said_over_the_files_goes_before_them() {
    let text = "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.gold]\nmin = \"100Mbit\"\nmax = \"200Mbit\"\n";
    let under = |over: &str| Policy::read_under(&[("guard.toml", text)], ("guard set", over), &Links::default());
    let policy = under("[class.gold]\nmax = \"500Mbit\"\n[class.host]\nmin = \"50Mbit\"\n").unwrap().policy;
    let gold = policy.class("gold");
    assert_eq!((gold.min, gold.max), (Some(100 * M), Some(500 * M)));
    assert_eq!(policy.class("host").min, Some(50 * M));
    let owed = |over: &str| under(over).unwrap().policy.class("gold").group;
    let whole = owed("[class.gold]\ncpu_weight = 7\ncpu_max = \"50%\"\nmemory_max = \"1GiB\"");
    assert_eq!((whole.cpu_weight, whole.cpu_max, whole.memory_max), (Some(7), Some(50_000), Some(1 << 30)));
    let refused = |over: &str| under(over).unwrap_err().to_string();
    let unknown = refused("[class.gald]\nmax = \"1Mbit\"\n");
    assert!(unknown.starts_with("guard set: class.gald: ") && unknown.contains("did you mean `gold`"), "{unknown}");
    assert!(refused("[uplink.eth0]\ncapacity = \"2Gbit\"\n").contains("only classes"), "a link is no class");
    assert!(refused("[class.gold]\nmin = \"300Mbit\"\n").contains("200 Mbit/s"), "checked together with the files");
}

#[test]
fn framing_is_written_or_seen() {
    let text = "[uplink.eth0]\ncapacity = \"1Gbit\"\n[uplink.eth1]\ncapacity = \"1Gbit\"\nframing = \"none\"\n\
                [uplink.br0]\ncapacity = \"1Gbit\"\nframing = \"ethernet\"\n[uplink.br1]\ncapacity = \"1Gbit\"\n";
    let links = Links { physical: ["eth0", "eth1"].map(String::from).into(), ..Links::default() };
    let policy = Policy::read(&[("guard.toml", text)], &links).unwrap().policy;
    let of = |name: &str| policy.uplinks[name].framing;
    assert_eq!(
        ["eth0", "eth1", "br0", "br1"].map(of),
        [Framing::ETHERNET, Framing::NONE, Framing::ETHERNET, Framing::NONE]
    );
    assert_eq!([46 + 14, 64, 1514].map(|bytes| Framing::ETHERNET.wire_bytes(bytes)), [84, 88, 1538]);
}

#[test]
fn local_traffic_is_counted_unless_limited() {
    let loaded = |local: &str| {
        let text = format!(
            "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.gold]\nmax = \"2Mbit\"\n{local}[class.tin]\nmax = \"1Mbit\"\n\
             [class.free]\n[[interface]]\nmatch = {{ name = \"a\" }}\nclass = \"gold\"\nrx_class = \"tin\"\n\
             [[interface]]\nmatch = {{ name = \"b\" }}\nclass = \"free\"\n"
        );
        Policy::read(&[("guard.toml", &text)], &Links::default()).unwrap()
    };
    let exceeded = |local: &str| loaded(local).policy.exceeded_locally(|_| false).join(" ");
    assert_eq!([exceeded(""), exceeded("local = \"count\"\n")], ["gold", "gold"], "of what is sent, with a maximum");
    assert_eq!(exceeded("local = \"limit\"\n"), "");
    assert!(loaded("").policy.exceeded_locally(|uplink| uplink == "eth0").is_empty(), "queues stand before the uplink");
    let gold = |local: &str| loaded(local).policy.class("gold").most_on(1000 * M);
    assert_eq!([gold(""), gold("over_max = true\n")], [2 * M, 1000 * M]);
}

#[test]
fn the_issues_own_example() {
    let policy = good("issue.toml");
    assert_eq!(policy.uplinks["eth0"].capacity, 1000 * M);
    let gold = policy.class("gold");
    assert_eq!((gold.priority, gold.min, gold.max), (1, Some(300 * M), Some(600 * M)));
    assert_eq!((gold.weight, gold.hard, gold.over_max), (1, false, false));
    assert_eq!(policy.guard.period, Duration::from_millis(10));
    // The two built-in classes: the host has 2 %.
    let host = policy.class(HOST).member(1000 * M);
    assert_eq!((host.priority, host.min, host.max), (1, 20 * M, 1000 * M));
    let default = policy.class("default").member(1000 * M);
    assert_eq!((default.priority, default.min, default.max), (8, BitRate::ZERO, 1000 * M));
}

#[test]
fn kinds_defaults_and_several_files() {
    let policy = good("kinds.toml");
    assert_eq!(policy.uplinks["bond0.7"].capacity, policy.uplinks["eth0"].capacity);
    assert_eq!(policy.find(Kind::Mac, "52:54:00:ab:00:99").unwrap().class_in(Direction::GuestRx), Some("web"));
    assert_eq!(policy.find(Kind::Vm, "101").unwrap().class_in(Direction::GuestTx), Some("web"));
    assert_eq!(policy.find(Kind::Netns, "blue-7").unwrap().uplink, "bond0.7");
    assert!(policy.find(Kind::Netns, "blue-77").is_none() && policy.find(Kind::Name, "101").is_none());
    let host = policy.class(HOST);
    assert_eq!((host.priority, host.min, host.weight), (1, Some(50 * M), 3));
    assert_eq!((policy.class("default").priority, policy.class("default").min), (7, Some(BitRate::ZERO)));
    assert!(policy.guard.allow_unenforced && !policy.guard.measure_delay);
    assert_eq!((policy.guard.on_conflict.word(), policy.guard.spoofing.word()), ("restore", "drop"));
    let claims = policy.find(Kind::Vm, "101").unwrap();
    assert!(claims.addresses.iter().map(ToString::to_string).eq(["192.0.2.7", "2001:db8::7"]) && !claims.router);
    assert!(policy.find(Kind::Netns, "blue-7").unwrap().router);
    assert!(policy.uplinks["eth0"].gateways.iter().map(ToString::to_string).eq(["192.0.2.1", "2001:db8::1"]));

    let policy = good("several");
    assert_eq!((policy.class("gold").min, policy.class("gold").max), (Some(300 * M), Some(600 * M)));
    assert!(policy.entries[0].place.ends_with("20-tenants.toml:4:9"), "{}", policy.entries[0].place);
}

#[test]
fn a_capacity_may_come_from_the_link() {
    let text =
        "[uplink.eth0]\n[class.gold]\nmin = \"2Gbit\"\n[[interface]]\nmatch = { name = \"v\" }\nclass = \"gold\"\n";
    let links = |speed: BitRate| Links { speeds: BTreeMap::from([("eth0".into(), speed)]), ..Links::default() };
    let loaded = Policy::read(&[("a", text)], &links(10_000 * M)).unwrap();
    assert_eq!((loaded.policy.uplinks["eth0"].capacity, loaded.warnings.len()), (10_000 * M, 0));
    let error = Policy::read(&[("a", text)], &links(1000 * M)).unwrap_err().to_string();
    assert!(error.contains("a:1: uplink.eth0.capacity: the minima of guest_tx add up to 2.02 Gbit/s"), "{error}");
    // A written capacity overrides the kernel's.
    let written = text.replace("[uplink.eth0]", "[uplink.eth0]\ncapacity = \"3Gbit\"");
    let loaded = Policy::read(&[("a", &written)], &links(BitRate::ONE)).unwrap();
    assert_eq!(loaded.policy.uplinks["eth0"].capacity, 3000 * M);
}

/// (name, rate, guaranteed, limited by) of each row, in Mbit/s.
fn rows(plan: &Plan) -> Vec<(&str, u64, u64, LimitedBy)> {
    plan.interfaces.iter().map(|r| (r.name.as_str(), r.rate_bps / M, r.guaranteed_bps / M, r.limited_by)).collect()
}

fn asks(texts: &[&str]) -> Vec<Ask> {
    texts.iter().map(|t| Ask::parse(t).unwrap()).collect()
}

#[test]
fn figure_4_by_hand() {
    let policy = amamou2012();
    let plan = plan(&policy, &asks(&["vm:MV1=200Mbit"]), Algorithm::Exact).unwrap();
    // 300 are reserved for MV1: 700 are left. MV2 has its minimum of 100 and 200 up to its maximum, MV3 100 up to its
    // own; the last 300 are shared 2:1 beyond the maxima.
    assert_eq!(
        rows(&plan),
        [
            ("host", 0, 0, LimitedBy::Demand),
            ("vm:MV1", 200, 200, LimitedBy::Demand),
            ("vm:MV2", 500, 100, LimitedBy::Capacity),
            ("vm:MV3", 200, 0, LimitedBy::Capacity),
            ("default", 0, 0, LimitedBy::Demand),
            // Without an rx_class all of the wire is for host and default.
            ("host", 0, 0, LimitedBy::Demand),
            ("default", 0, 0, LimitedBy::Demand),
        ]
    );
    assert_eq!(
        (plan.pools.len(), plan.pools[1].direction, plan.pools[1].unused_bps),
        (2, Direction::GuestRx, 1000 * M)
    );
    assert!(
        plan.rows(&plan.pools[1]).all(|r| r.is_idle_implicit())
            && !plan.rows(&plan.pools[0]).all(|r| r.is_idle_implicit())
    );
    assert_eq!((plan.pools[0].direction, plan.pools[0].unused_bps), (Direction::GuestTx, 100 * M));
}

#[test]
fn the_published_loop_plans_figure_4_too() {
    let plan = plan(&amamou2012(), &asks(&["vm:MV1=200Mbit"]), Algorithm::Dba).unwrap();
    let rates: Vec<u64> = rows(&plan)[1..4].iter().map(|r| r.1).collect();
    // The loop's rates are limits: MV1's minimum of 300 stays reserved while it sends 200.
    assert_eq!(rates, [300, 500, 200]);
    assert_eq!((rows(&plan)[1].3, plan.pools[0].unused_bps), (LimitedBy::Demand, BitRate::ZERO));
    // With demand the host takes part.
    let host = self::plan(&amamou2012(), &asks(&["vm:MV1=200Mbit", "host=20Mbit"]), Algorithm::Dba).unwrap();
    assert_eq!(rows(&host)[0].1, 20);
}

#[test]
fn the_published_loop_grants_minima_to_the_first_created() {
    let text = "[uplink.e]\ncapacity = \"1000bit\"\n[class.a]\npriority = 1\nmin = \"600bit\"\n\
                [[interface]]\nmatch = { name = \"a*\" }\nclass = \"a\"\n";
    let policy = Policy::read(&[("a", text)], &Links::default()).unwrap().policy;
    let all = asks(&["a1=unbounded", "a2=unbounded"]);
    let rows = |algorithm| {
        let plan = plan(&policy, &all, algorithm).unwrap();
        let bits = |r: &Row| [r.min_effective_bps, r.guaranteed_bps, r.rate_bps].map(BitRate::bits);
        plan.interfaces[1..3].iter().map(bits).collect::<Vec<_>>()
    };
    assert_eq!(rows(Algorithm::Dba), [[600, 600, 600], [400, 400, 400]]);
    // Exact shares in proportion, with the host's 20: 1000 x 600 / 1220; the idle host lends its share.
    assert_eq!(rows(Algorithm::Exact), [[491, 491, 500], [491, 491, 500]]);
}

#[test]
fn the_published_loop_keeps_what_was_written_or_named_of_the_host() {
    let rates = |host: &str, demands: &[&str]| {
        let text = format!(
            "[uplink.e]\ncapacity = \"1000bit\"\n{host}[class.a]\n[[interface]]\nmatch = {{ name = \"a\" }}\nclass = \"a\"\n"
        );
        let policy = Policy::read(&[("a", &text)], &Links::default()).unwrap().policy;
        let plan = plan(&policy, &asks(demands), Algorithm::Dba).unwrap();
        [0, 1].map(|i| plan.interfaces[i].rate_bps.bits())
    };
    let written = "[class.host]\nmin = \"100bit\"\n";
    // Neither named nor written: the loop ignores the host.
    assert_eq!(rates("", &[]), [0, 1000]);
    assert_eq!(rates("[class.host]\nmin = \"0bit\"\n", &[]), [0, 1000]);
    // Else its minimum is reserved although idle: as written, or 2 %.
    assert_eq!(rates(written, &[]), [100, 900]);
    assert_eq!(rates(written, &["host=0bit"]), [100, 900]);
    assert_eq!(rates("", &["host=0bit"]), [20, 980]);
}

#[test]
fn everything_is_wanted_unless_a_demand_says_otherwise() {
    let policy = amamou2012();
    let all = plan(&policy, &[], Algorithm::Exact).unwrap();
    // Maxima 600, 300, 100 fill the uplink.
    let expected = [600, 300, 100];
    assert!(rows(&all)[1..4].iter().zip(expected).all(|(r, e)| r.1 == e), "{:?}", rows(&all));
    assert_eq!(rows(&all)[1].3, LimitedBy::Max);
    assert_eq!(rows(&all)[2].3, LimitedBy::Capacity);
    assert_eq!((all.interfaces[1].demand_bps, all.interfaces[0].demand_bps), (None, Some(BitRate::ZERO)));
    // The host's 2 % come from the lowest priority.
    let host = plan(&policy, &asks(&["host=20Mbit"]), Algorithm::Exact).unwrap();
    assert_eq!(rows(&host)[0], ("host", 20, 20, LimitedBy::Demand));
    assert_eq!(rows(&host)[3].1, 80);
}

#[test]
fn patterns_are_planned_by_name_and_get_effective_minima() {
    let policy = Policy::read(
        &[(
            "a",
            "[uplink.eth0]\ncapacity = \"1Gbit\"\n[class.gold]\npriority = 2\nmin = \"300Mbit\"\n[class.tin]\nmin = \
             \"100Mbit\"\n[[interface]]\nmatch = { name = \"vnet*\" }\nclass = \"gold\"\nrx_class = \"tin\"\n\
             [[interface]]\nmatch = { mac = \"52:54:00:AB:00:01\" }\nclass = \"tin\"\n",
        )],
        &Links::default(),
    )
    .unwrap()
    .policy;
    let demands =
        ["vnet0=unbounded", "vnet1=300Mbit", "vnet2=unbounded", "vnet3:rx=5Mbit", "mac:52:54:00:ab:00:01=1Gbit"];
    let plan = plan(&policy, &asks(&demands), Algorithm::Exact).unwrap();
    let tx: Vec<_> = plan.interfaces.iter().filter(|r| r.direction == Direction::GuestTx).collect();
    let names: Vec<&str> = tx.iter().map(|r| r.name.as_str()).collect();
    // First in the order of the policy, then of the demands; upper and lower case as in the policy.
    assert_eq!(names, ["host", "mac:52:54:00:AB:00:01", "vnet0", "vnet1", "vnet2", "vnet3", "default"]);
    // 20 for the host; 4 x 300 do not fit the 980 left: 245 each; priority 4 gets nothing.
    let minima: Vec<u64> = tx.iter().map(|r| r.min_effective_bps / M).collect();
    assert_eq!(minima, [20, 0, 245, 245, 245, 245, 0]);
    assert_eq!(tx[1].contract.min, 100 * M);
    // The host's idle 20 Mbit/s are lent to the first priority, 5 each.
    assert_eq!(tx[2].rate_bps, 250 * M);
    // Without rx_class there is no row; a demand in one direction says nothing about the other.
    let rx: Vec<_> = plan.interfaces.iter().filter(|r| r.direction == Direction::GuestRx).collect();
    assert_eq!(rx.len(), 6);
    assert_eq!((rx[1].demand_bps, rx[4].demand_bps), (None, Some(5 * M)));
}

#[test]
fn no_demand_is_too_much() {
    let plan = plan(&amamou2012(), &asks(&["vm:MV1=200Tbit", "vm:MV2=0.5bit"]), Algorithm::Exact).unwrap();
    let demands: Vec<Option<BitRate>> = plan.interfaces[1..3].iter().map(|r| r.demand_bps).collect();
    assert_eq!(demands, [Some(100_000_000 * M), Some(BitRate::ZERO)]);
}

#[test]
fn a_name_may_end_like_a_direction() {
    let text = "[uplink.e]\ncapacity = \"1Gbit\"\n[class.g]\n[[interface]]\nmatch = { vm = \"rx\" }\nclass = \"g\"\n\
                rx_class = \"g\"\n[[interface]]\nmatch = { vm = \"a:rx\" }\nclass = \"g\"\n";
    let policy = Policy::read(&[("a", text)], &Links::default()).unwrap().policy;
    let rows = |demand: &str| {
        let plan = plan(&policy, &asks(&[demand]), Algorithm::Exact).unwrap();
        let rows = plan.interfaces.iter().filter(|r| r.demand_bps == Some(BitRate::new(5)));
        rows.map(|r| (r.name.clone(), r.direction)).collect::<Vec<_>>()
    };
    // There is no interface `vm` and no machine `a`: the whole is the name.
    assert_eq!(rows("vm:rx=5bit"), [("vm:rx".to_owned(), Direction::GuestTx)]);
    assert_eq!(rows("vm:a:rx=5bit"), [("vm:a:rx".to_owned(), Direction::GuestTx)]);
    assert_eq!(rows("vm:rx:rx=5bit"), [("vm:rx".to_owned(), Direction::GuestRx)]);
}

#[test]
fn two_spellings_behind_a_pattern_are_one_interface() {
    let text = "[uplink.e]\ncapacity = \"1Gbit\"\n[class.g]\n[[interface]]\nmatch = { mac = \"52:54:*\" }\nclass = \"g\"\n\
                rx_class = \"g\"\n";
    let policy = Policy::read(&[("a", text)], &Links::default()).unwrap().policy;
    let both = ["mac:52:54:00:AB:00:01=1Mbit", "mac:52:54:00:ab:00:01:rx=2Mbit"];
    let plan = plan(&policy, &asks(&both), Algorithm::Exact).unwrap();
    let rows = plan.interfaces.iter().filter(|r| r.class == "g");
    let rows: Vec<_> = rows.map(|r| (r.name.as_str(), r.demand_bps)).collect();
    assert_eq!(rows, [("mac:52:54:00:AB:00:01", Some(M)), ("mac:52:54:00:AB:00:01", Some(2 * M))]);
    let twice = asks(&[both[0], "mac:52:54:00:ab:00:01=2Mbit"]);
    let error = self::plan(&policy, &twice, Algorithm::Exact).unwrap_err().to_string();
    assert_eq!(error, "guest_tx of mac:52:54:00:AB:00:01 has two demands");
}

/// The overlap check ends: by cheap comparisons, or by giving up.
#[test]
fn many_patterns_are_told_apart_or_refused() {
    let policy = |entries: usize, pattern: &dyn Fn(usize) -> String| {
        let mut text = "[uplink.e]\ncapacity = \"1Gbit\"\n[class.g]\n".to_owned();
        for i in 0..entries {
            text += &format!("[[interface]]\nmatch = {{ vm = \"{}\" }}\nclass = \"g\"\n", pattern(i));
        }
        Policy::read(&[("a", &text)], &Links::default())
    };
    let letter = |i: usize| char::from(b'a' + (i % 26) as u8);
    // Equal up to the last three of 240 parts, and without a literal prefix.
    let tail = |i: usize| format!("{}[{}][{}][{}]", "?".repeat(230), letter(i / 676), letter(i / 26), letter(i));
    assert_eq!(policy(500, &tail).unwrap().policy.entries.len(), 500);
    // Half with stars and half without, equal in all but a letter behind the stars: each pair needs the full
    // comparison, some thousand positions.
    let bits = |i: usize| -> String { (0..8).map(|bit| if i >> bit & 1 == 0 { "[a]" } else { "[b]" }).collect() };
    let costly = |i: usize| match i % 2 {
        0 => format!("{}{}*c*", bits(i / 2), "*[ab]".repeat(40)),
        _ => format!("{}{}{}", "[ab]".repeat(8), bits(i / 2), "[ab]".repeat(40)),
    };
    assert!(policy(20, &costly).is_ok());
    let error = policy(160, &costly).unwrap_err();
    assert!(error.problems.iter().any(|p| p.what.contains("too similar")), "{error}");
}

#[test]
fn demands_that_cannot_be() {
    let policy = amamou2012();
    let wrong = |texts: &[&str]| plan(&policy, &asks(texts), Algorithm::Exact).unwrap_err().to_string();
    assert_eq!(wrong(&["MV1=1Mbit"]), "no [[interface]] matches `MV1`; did you mean `vm:MV1`?");
    assert_eq!(wrong(&["vm:MV11=1Mbit"]), "no [[interface]] matches `vm:MV11`; did you mean `vm:MV1`?");
    assert_eq!(wrong(&["vm:MV1=1Mbit", "vm:MV1=2Mbit"]), "guest_tx of vm:MV1 has two demands");
    let unheard = plan(&policy, &asks(&["vm:MV1:rx=1Mbit", "host:rx=1Mbit"]), Algorithm::Exact).unwrap();
    // The host receives on every uplink; a guest without an rx_class is not limited there.
    assert_eq!(unheard.warnings.len(), 1);
    assert!(unheard.warnings[0].contains("vm:MV1 has no rx_class"), "{:?}", unheard.warnings);
    let host = unheard.rows(&unheard.pools[1]).next().unwrap();
    assert_eq!((host.name.as_str(), host.rate_bps), ("host", M));
    for (text, part) in [
        ("vnet0", "has no `=`"),
        ("vnet0=5", "bare number"),
        ("vnet0=5Mbps", "bytes in some tools"),
        ("vnet*=5Mbit", "is a pattern"),
        ("=5Mbit", "must not be empty"),
        (":rx=5Mbit", "must not be empty"),
        ("mac:52:54=5Mbit", "invalid MAC address"),
        ("vnet0=", "or \"unbounded\" (\"all\")"),
    ] {
        let error = Ask::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert_eq!(Ask::parse("mac:52:54:00:12:34:56:rx=1Mbit").unwrap().direction, Direction::GuestRx);
    assert_eq!(Ask::parse("name:vnet0=1Mbit"), Ask::parse("vnet0=1Mbit"));
}

#[test]
fn the_plans_json_has_these_fields_and_no_others() {
    let plan = plan(&amamou2012(), &asks(&["vm:MV1=200Mbit"]), Algorithm::Exact).unwrap();
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["schema_version"], "1.0");
    assert_eq!(
        json["pools"][0],
        serde_json::json!({
            "uplink": "eth0", "direction": "guest_tx", "capacity_bps": 1_000_000_000u64, "unused_bps": 100_000_000,
            "queueless": false,
        })
    );
    assert_eq!(
        json["interfaces"][2],
        serde_json::json!({
            "name": "vm:MV2", "uplink": "eth0", "direction": "guest_tx", "class": "two", "demand_bps": null,
            "rate_bps": 500_000_000, "guaranteed_bps": 100_000_000, "spare_bps": 400_000_000,
            "min_effective_bps": 100_000_000, "limited_by": "capacity"
        })
    );
    assert_eq!((json.as_object().unwrap().len(), &json["groups"]), (4, &serde_json::json!([])));
}

#[test]
fn what_is_owed_besides_the_wire_is_planned_too() {
    let owed = serde_json::to_value(plan(&good("groups.toml"), &[], Algorithm::Exact).unwrap()).unwrap();
    assert_eq!(
        owed["groups"],
        serde_json::json!([{"name": "vm:web1", "cpu_weight": 400, "cpu_max_us": 150_000, "memory_max_bytes": 4u64 << 30}])
    );
}

/// Every fixture directory has files, so that a wrong path does not pass.
#[test]
fn fixtures_are_found() {
    let all: Vec<(&str, PathBuf)> = fixtures();
    for kind in ["good", "refused", "warned"] {
        assert!(all.iter().filter(|(k, _)| *k == kind).count() >= 3, "{kind}");
    }
}
