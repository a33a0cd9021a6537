//! The alert rules as Prometheus reads them: their form, their expressions, and what fires at which figures
//! (`fixtures/guard-alerts.yml`). It needs no root, but promtool, which `scripts/test-images` gets.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::help::guarded::promtool;
use crate::help::state_dir::fixture;

#[test]
#[ignore = "root: needs promtool"]
fn every_alert_rule_fires_when_it_should() {
    let monitoring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
    let dir = tempfile::tempdir().unwrap();
    for file in ["vmio-guard.rules.yml", "prometheus.yml"] {
        fs::copy(monitoring.join(file), dir.path().join(file)).unwrap();
    }
    fs::copy(fixture("guard-alerts.yml"), dir.path().join("guard-alerts.yml")).unwrap();
    let said = |args: &[&str]| {
        let output = promtool().args(args).current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "promtool {args:?}: {said}");
        said
    };
    let rules = fs::read_to_string(monitoring.join("vmio-guard.rules.yml")).unwrap();
    let named = |text: &str, key: &str| -> BTreeSet<String> {
        text.lines().filter_map(|line| Some(line.trim().split_once(key)?.1.to_owned())).collect()
    };
    let alerts = named(&rules, "- alert: ");
    let checked = said(&["check", "rules", "vmio-guard.rules.yml"]);
    assert!(checked.contains(&format!("{} rules found", alerts.len())), "{checked}");
    // The token of the example is on no machine: its form alone.
    said(&["check", "config", "--syntax-only", "prometheus.yml"]);
    said(&["test", "rules", "guard-alerts.yml"]);
    assert_eq!(
        named(&fs::read_to_string(fixture("guard-alerts.yml")).unwrap(), "alertname: "),
        alerts,
        "each is tried"
    );
}
