//! The bench `peers` in its smallest form: two limiters in its bed, one round. What is judged is that there are figures
//! that can be, not how high they are.
#![allow(clippy::unwrap_used)]

#[path = "../benches/peers/mod.rs"]
mod peers;

use peers::figures::Results;
use peers::rounds::Times;
use peers::{Options, run, table};

#[test]
#[ignore = "root"]
fn peers_are_measured_in_one_bed() {
    let limiters = ["vmio", "policer-ovs", "edt"].map(str::to_owned).to_vec();
    let results = run(&Options { rounds: 1, limiters, times: Times::SHORT });
    let schema = serde_json::to_value(schemars::schema_for!(Results)).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let json = serde_json::to_value(&results).unwrap();
    let wrong: Vec<String> = schema.iter_errors(&json).map(|e| format!("{}: {e:.300}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // What this kernel lacks has its reason and no figures.
    let edt = results.limiters.last().unwrap();
    assert!(edt.rounds.is_empty() && edt.not_run.is_some(), "{edt:?}");
    for row in &results.limiters[..2] {
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
    }
    let page = table::markdown(&results);
    assert!(page.contains("\n| vmio | ") && page.contains("\n| edt | not run: "), "{page}");
    let columns = page.lines().filter(|line| line.starts_with('|')).map(|line| line.matches('|').count());
    assert!(
        columns.clone().count() == 5 && columns.clone().all(|count| Some(count) == columns.clone().next()),
        "{page}"
    );
}
