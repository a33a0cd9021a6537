#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};

use vmio_model::policy::Direction;
use vmio_model::rate::BitRate;

use super::*;
use crate::manager::document::{
    Appeared, Bucket, DelayDocument, ExcessDocument, FlowDocument, LocalDocument, LoopStatus, MemoryDocument,
    PolicyStatus, SettingsDocument, StageDocument,
};

const ALERTS: &str = include_str!("../../../../packaging/monitoring/vmio-guard.rules.yml");
const DASHBOARD: &str = include_str!("../../../../packaging/monitoring/vmio-guard.grafana.json");
const DOCS: &str = include_str!("../../../../docs/guard-api.md");

fn member(name: &str, min: u64) -> MemberDocument {
    MemberDocument {
        name: name.into(),
        guest: None,
        class: "gold".into(),
        priority: 4,
        min_effective_bps: BitRate::new(min),
        max_bps: BitRate::new(100_000_000),
        limit_bps: Some(BitRate::new(50_000_000)),
        rate_bps: Some(BitRate::ONE),
        passed_bytes_total: 18_446_744_073_709,
        dropped_packets_total: 7,
        waiting_bytes: 1514,
        offered_bps: Some(BitRate::new(2)),
        offered_bytes_total: 3,
        held_seconds_total: 1.5,
        guarantee_wanted_seconds_total: 4.0,
        guarantee_met_seconds_total: 3.0,
        guarantee_met_ratio: Some(0.75),
        breaches_total: 1,
        breached_seconds: Some(2.5),
        flooded_seconds_total: 5.0,
        flooded_seconds: Some(3.0),
        spoofed_packets_total: 9,
        spoofed_dropped_packets_total: 8,
        resolution_dropped_packets_total: 5,
        excess: Some(ExcessDocument { waits: "held".into(), send_buffer_bytes: Some(9000), reason: String::new() }),
        local: Some(LocalDocument {
            limited: true,
            rate_bps: Some(BitRate::ONE),
            bytes_total: 11,
            waiting_bytes: 12,
            dropped_packets_total: 13,
        }),
        settings: Some(SettingsDocument {
            excess: "queue".into(),
            queue_seconds: None,
            delay_seconds: Some(0.02),
            jitter_seconds: Some(0.01),
            longest_wait_seconds: None,
            local: None,
            spoofing: None,
            addresses: Vec::new(),
            addresses_by: None,
            router: None,
        }),
        flows: (["voice", "rest"].into_iter().map(flow)).collect(),
        other_limit: None,
        delay: Some(DelayDocument {
            median_seconds: Some(0.001),
            p99_seconds: Some(0.025),
            jitter_seconds: Some(0.024),
            met: Some(false),
            missed_seconds: Some(3.0),
            misses_total: 4,
            packets_total: 5,
            wait_seconds_total: 0.5,
            buckets: vec![Bucket { at_most_seconds: 0.001024, total: 3 }],
        }),
    }
}

fn flow(name: &str) -> FlowDocument {
    FlowDocument {
        name: name.into(),
        priority: 4,
        min_bps: BitRate::ZERO,
        max_bps: BitRate::ONE,
        rate_bps: None,
        passed_bytes_total: 14,
        dropped_packets_total: 15,
        waiting_bytes: 16,
    }
}

fn memory() -> MemoryDocument {
    MemoryDocument {
        guest: "web1".into(),
        min_bytes: Some(1 << 30),
        max_bytes: None,
        is_moved: true,
        actual_bytes: Some(2 << 30),
        before_bytes: Some(3 << 30),
        hits_percent: Some(75),
        to_bytes: Some(2 << 30),
        why: None,
        why_not: None,
        free_bytes: None,
        available_bytes: None,
        host_cached_bytes: None,
    }
}

/// One that knows all that there is to know.
fn status(members: Vec<MemberDocument>) -> Status {
    Status {
        schema_version: "1.0".into(),
        vmio_version: "0.1.0".into(),
        plane: "fake".into(),
        algorithm: "exact".into(),
        measures: None,
        started_unix_seconds: 1.0,
        policy: PolicyStatus {
            revision: 3,
            files: Vec::new(),
            files_differ: true,
            over: String::new(),
            taken_back_in_seconds: Some(5.0),
            refused: None,
            warnings: Vec::new(),
        },
        loops: LoopStatus {
            period_seconds: 0.01,
            periods_total: 10,
            last_seconds: 1e-5,
            longest_seconds: 2e-5,
            corrected_changes_total: 0,
            seconds_total: 1e-4,
            buckets: vec![Bucket { at_most_seconds: 2e-5, total: 9 }, Bucket { at_most_seconds: 1.0, total: 10 }],
        },
        appeared: Appeared { total: 2, p50_seconds: Some(0.01), p99_seconds: Some(0.02), seconds_total: 0.03 },
        pools: vec![PoolDocument {
            uplink: "eth0".into(),
            direction: Direction::GuestTx,
            capacity_bps: BitRate::new(100_000_000),
            shared_bps: BitRate::new(98_000_000),
            not_in_force: None,
            interruptions_total: 1,
            interrupted_seconds_total: 0.5,
            queueless: false,
            stage: Some(StageDocument {
                shared_bps: BitRate::new(97_000_000),
                waiting_bytes: 1,
                dropped_packets_total: 2,
            }),
            arrived_bytes_total: Some(1 << 40),
            link_full: Some(true),
            members,
        }],
        guests: Vec::new(),
        memory: vec![memory()],
        memory_moves_total: 3,
        notes: Vec::new(),
        uplinks_down: Vec::new(),
        trouble: None,
        observed: None,
    }
}

/// Name and type of each metric of a text; all that the format asks for is asserted.
fn read(text: &str) -> BTreeMap<String, String> {
    let (mut types, mut series) = (BTreeMap::new(), BTreeSet::new());
    let mut family = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.ends_with('.') && !types.contains_key(name), "{line}");
            name.clone_into(&mut family);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family, "its help stands before it");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            types.insert(name.to_owned(), kind.to_owned());
        } else {
            let (of, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().unwrap().is_finite() && !value.contains('e'), "{line}");
            let name = of.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let known = name == family || base == Some(family.as_str());
            assert!(known, "{line} stands below {family}");
            assert!(name.starts_with(PREFIX) && series.insert(of.to_owned()), "{line}");
        }
    }
    types
}

/// Names of ours in a file.
fn named(text: &str) -> BTreeSet<String> {
    let of = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    text.match_indices(PREFIX).map(|(at, _)| of(&text[at..])).collect()
}

#[test]
fn format_with_hostile_names() {
    let names = ["a", "b\"} 1\nvmio_guard_trouble 1", "c\\", "d\u{202e}\r", "d\u{feff}\r", "host", "host", ""];
    let members: Vec<MemberDocument> = names.iter().map(|name| member(name, 1)).collect();
    let text = text(&status(members));
    assert!(text.ends_with('\n'));
    let types = read(&text);
    assert_eq!(types["vmio_guard_loop_duration_seconds"], "histogram");
    // Of the two `d`, which are shown alike, and the two `host` one each.
    assert_eq!(text.matches("\nvmio_guard_waiting_bytes{").count(), names.len() - 2);
    assert!(text.contains("member=\"b\\\"} 1\u{fffd}vmio_guard_trouble 1\",class=\"gold\"} 1514\n"), "{text}");
    assert!(text.contains("vmio_guard_dropped_packets_total{uplink=\"eth0\",direction=\"guest_tx\",member=\"c\\\\\",class=\"gold\",place=\"queue\"} 7\n"));
    assert!(text.contains("vmio_guard_passed_bytes_total{uplink=\"eth0\",direction=\"guest_tx\",member=\"a\",class=\"gold\"} 18446744073709\n"));
    assert!(text.contains("vmio_guard_loop_duration_seconds_bucket{le=\"0.00002\"} 9\n"));
    assert!(
        text.contains("vmio_guard_dropped_packets_total{uplink=\"eth0\",direction=\"guest_tx\",place=\"uplink\"} 2\n")
    );
    assert!(text.contains("member=\"a\",class=\"gold\",waits=\"held\"} 1\n"));
    assert!(text.contains("member=\"a\",class=\"gold\",flow=\"voice\"} 14\n"));
    assert!(text.contains("member=\"a\",class=\"gold\",le=\"0.001024\"} 3\n"));
    assert!(text.contains("member=\"a\",class=\"gold\",le=\"+Inf\"} 5\n"));
    assert!(text.contains("vmio_guard_appear_duration_seconds{quantile=\"0.99\"} 0.02\n"));
    assert!(text.contains("vmio_guard_memory_before_bytes{guest=\"web1\"} 3221225472\n"));
    assert!(text.contains("vmio_guard_memory_host_cache_hits_ratio{guest=\"web1\"} 0.75\n"));
}

#[test]
fn unknown_values_are_left_out() {
    let mut none = member("a", 0);
    (none.limit_bps, none.rate_bps, none.offered_bps, none.guarantee_met_ratio) = (None, None, None, None);
    (none.guarantee_wanted_seconds_total, none.guarantee_met_seconds_total) = (0.0, 0.0);
    (none.breaches_total, none.breached_seconds, none.excess) = (0, None, None);
    (none.delay, none.settings) = (None, None);
    let mut status = status(vec![none]);
    status.policy.taken_back_in_seconds = None;
    status.pools[0].stage = None;
    (status.appeared.p50_seconds, status.appeared.p99_seconds) = (None, None);
    let less = text(&status);
    for not in [
        "limit_",
        "offered_",
        "guarantee_",
        "breache",
        "policy_unconfirmed",
        "stage",
        "enforcement",
        "send_buffer",
        "delay",
    ] {
        assert!(!less.contains(&format!("{PREFIX}{not}")), "{not}: {less}");
    }
    assert!(!less.contains("quantile="));
    read(&less);
    status.pools.clear();
    assert!(!text(&status).contains("uplink"));
}

#[test]
fn metrics_match_alerts_dashboard_and_docs() {
    let types = read(&text(&status(vec![member("a", 1)])));
    let there: BTreeSet<String> = types
        .iter()
        .flat_map(|(name, kind)| match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
            "summary" => ["", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
            _ => vec![name.clone()],
        })
        .collect();
    for (file, text) in [("vmio-guard.rules.yml", ALERTS), ("vmio-guard.grafana.json", DASHBOARD)] {
        let named = named(text);
        assert!(named.len() >= 8, "{file}: {named:?}");
        assert!(named.is_subset(&there), "{file} names {:?}", named.difference(&there));
    }
    let documented = named(DOCS);
    for name in types.keys() {
        assert!(documented.contains(name), "docs/guard-api.md has no row for {name}");
    }
    let all: BTreeSet<&String> = there.iter().chain(types.keys()).collect();
    let unknown: Vec<&String> = documented.iter().filter(|name| *name != PREFIX && !all.contains(name)).collect();
    assert!(unknown.is_empty(), "docs/guard-api.md has {unknown:?}");
}

#[test]
fn dashboard_panels_do_not_overlap() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut cells = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{title}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{title} lies on another");
        }
        for target in panel["targets"].as_array().unwrap() {
            assert!(target["expr"].as_str().is_some_and(|expr| expr.contains(PREFIX)), "{title}");
        }
    }
}

/// Says how long it takes; asserts only that it is all there.
#[test]
fn ten_thousand_members() {
    let status = status((0..10_000).map(|n| member(&format!("vnet{n}"), 1)).collect());
    let began = std::time::Instant::now();
    let text = text(&status);
    println!("{} members: {} bytes in {:?}", 10_000, text.len(), began.elapsed());
    assert_eq!(text.matches("vmio_guard_breached{").count(), 10_000);
}
