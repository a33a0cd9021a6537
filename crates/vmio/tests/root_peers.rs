//! The bench `peers` in its smallest form: four limiters in a slower bed, one round. What is judged is that there are
//! figures that can be, not how high they are.
#![allow(clippy::unwrap_used)]

#[path = "../benches/peers/mod.rs"]
mod peers;

use peers::figures::Results;
use peers::rounds::Times;
use peers::scale::Scale;
use peers::{Options, run, table};

#[test]
#[ignore = "root"]
fn peers_are_measured_in_one_bed() {
    let limiters = ["vmio", "htb-classified", "policer-ovs", "edt"].map(str::to_owned).to_vec();
    let results = run(&Options { rounds: 1, limiters, times: Times::SHORT, scale: Scale::of(160_000_000).unwrap() });
    let schema = serde_json::to_value(schemars::schema_for!(Results)).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let json = serde_json::to_value(&results).unwrap();
    let wrong: Vec<String> = schema.iter_errors(&json).map(|e| format!("{}: {e:.300}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // What needs sch_fq has its reason and no figures where the kernel lacks it; the others need nothing of the kind.
    let edt = results.limiters.last().unwrap();
    let lacks = edt.not_run.as_ref().is_some_and(|reason| reason.starts_with("this kernel has no sch_fq"));
    assert_eq!((edt.not_run.is_some(), edt.rounds.is_empty()), (lacks, lacks), "{edt:?}");
    for row in &results.limiters[..if lacks { 3 } else { 4 }] {
        assert_eq!((row.not_run.as_deref(), row.rounds.len()), (None, 1), "{row:?}");
        let round = &row.rounds[0];
        let excess = round.excess;
        let parts = [excess.arrived, excess.sender, excess.host, excess.wire];
        let sum: f64 = parts.iter().sum();
        assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)) && (0.8..1.2).contains(&sum), "{row:?}");
        assert!(round.got_bps.len() == 3 && round.got_bps.iter().all(|bps| *bps > 0.0), "{row:?}");
        assert!(round.share_error < 1.0 && round.of_minimum > 0.0 && round.tcp_of_limit > 0.0, "{row:?}");
        assert!(round.restored_ms.len() == Times::SHORT.trials && round.busy > 0.0, "{row:?}");
        assert!(round.neighbours_ping_ms.iter().any(Option::is_some) && round.packet_ns > Some(0.0), "{row:?}");
        assert!(round.bare_packet_ns > Some(0.0), "{row:?}");
    }
    let page = table::markdown(&results);
    assert!(page.contains("\n| vmio | ") && page.contains("\n| edt | not run: ") == lacks, "{page}");
    assert!(page.contains("uplink of 160 Mbit/s") && page.contains("rates are 0.8 times as high"), "{page}");
    let columns = page.lines().filter(|line| line.starts_with('|')).map(|line| line.matches('|').count());
    assert!(
        columns.clone().count() == 6 && columns.clone().all(|count| Some(count) == columns.clone().next()),
        "{page}"
    );
}
