//! A scan for Prometheus: the text exposition format (version 0.0.4) for node_exporter's textfile
//! collector. Names follow Prometheus' "Metric and label naming": base units, no type in a name.

use std::collections::BTreeMap;
use std::fmt::Write;

use vmio_model::sanitize;

use super::View;

/// A family of gauges: its name, its help, its samples as labels and value.
fn family(out: &mut String, name: &str, help: &str, samples: impl IntoIterator<Item = (String, f64)>) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in samples {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

/// The scan in the text format.
pub fn prometheus(view: &View) -> String {
    let mut out = String::new();
    let one = |value: f64| [(String::new(), value)];
    family(&mut out, "vmio_scan_guests", "Guests that the scan shows.", one(view.rows.len() as f64));
    let help = "Findings of a guest by rule; a rule may find several of its devices.";
    family(&mut out, "vmio_scan_findings", help, findings(view));
    let unread = view.all_unread().count() as f64;
    family(&mut out, "vmio_scan_unread", "Settings that could not be read.", one(unread));
    let by = |(from, n): &(String, usize)| (format!("{{by=\"{}\"}}", escape(from)), *n as f64);
    let help = "Findings left out because they are intended, by who asked for it.";
    family(&mut out, "vmio_scan_ignored", help, view.ignored_by.iter().map(by));
    family(&mut out, "vmio_scan_duration_seconds", "How long the scan took.", one(view.seconds));
    let help = "Start of the scan, in seconds since the epoch.";
    family(&mut out, "vmio_scan_timestamp_seconds", help, one(view.at_unix_seconds));
    out
}

/// One sample for each set of labels: a repeated set would make the file invalid.
fn findings(view: &View) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for row in &view.rows {
        for f in &row.findings {
            let labels = format!(
                "{{guest=\"{}\",kind=\"{}\",rule=\"{}\",severity=\"{}\"}}",
                escape(&row.guest.name),
                escape(row.kind()),
                escape(&f.rule),
                f.severity
            );
            *all.entry(labels).or_insert(0.0) += 1.0;
        }
    }
    all
}

/// The value of a label, with backslash and quote escaped and control characters replaced, since dashboards and alerts
/// show the text as it is.
fn escape(value: &str) -> String {
    sanitize::line(&value.replace('\\', "\\\\").replace('"', "\\\"")).into_owned()
}
