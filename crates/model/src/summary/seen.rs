//! Probe results that no other field of a row contains: each figure as declared, over the samples of a cell. New probes
//! are reported by this alone.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::figure::{Labels, Unit};
use crate::result::{Sample, Watched};
use crate::stats::{Estimate, mean};

/// Results for one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeenRow {
    /// The subject's machine; left out for the host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The subject.
    pub watched: Watched,
    /// Its figures.
    pub figures: Vec<SeenFigure>,
}

/// A figure of a probe over the samples of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeenFigure {
    /// Its name.
    pub name: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Its unit.
    pub unit: Unit,
    /// Mean over the samples that have it.
    pub mean: Estimate,
}

/// The values of a subject's figures, by name and labels.
type Values<'a> = BTreeMap<(&'a str, &'a Labels), (Unit, Vec<f64>)>;

/// The figures that came with units.
pub(super) fn seen(samples: &[&Sample]) -> Vec<SeenRow> {
    let mut all: BTreeMap<(&str, &Watched), Values<'_>> = BTreeMap::new();
    for seen in samples.iter().flat_map(|sample| &sample.seen) {
        for reading in &seen.figures {
            let value = Some(reading.value.typical()).filter(|value| value.is_finite());
            let Some((value, unit)) = value.zip(seen.units.get(&reading.figure)) else { continue };
            let figures = all.entry((seen.node.as_str(), &seen.watched)).or_default();
            let figure = figures.entry((reading.figure.as_str(), &reading.labels));
            figure.or_insert_with(|| (*unit, Vec::new())).1.push(value);
        }
    }
    let figures = |values: Values<'_>| -> Vec<SeenFigure> {
        let figures = values.into_iter().filter_map(|((name, labels), (unit, values))| {
            Some(SeenFigure { name: name.to_owned(), labels: labels.clone(), unit, mean: mean(&values)? })
        });
        figures.collect()
    };
    let rows = all.into_iter().map(|((node, watched), values)| SeenRow {
        node: node.to_owned(),
        watched: watched.clone(),
        figures: figures(values),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::figure::{Reading, Unit};
    use crate::result::{ProbeResult, Watched};
    use crate::summary::summarise;
    use crate::testing::{Bench, native};

    #[test]
    fn what_no_field_has_is_told_as_it_is() {
        let cell = native("device", "seq-write");
        let mut run = Bench::new().cell(cell.clone(), 5e8).run();
        let plain = serde_json::to_value(summarise(&run).cell(&cell.key()).unwrap()).unwrap();
        assert!(plain.get("seen").is_none(), "what has a field of its own is in no other");
        let n = run.samples.len();
        for (i, sample) in run.samples.iter_mut().enumerate() {
            let energy = |domain: &str, joules: f64| Reading::scalar("energy", joules).with("domain", domain);
            let figures = vec![energy("package-0", 40.0 + i as f64), energy("dram", 3.0), Reading::scalar("odd", 1.0)];
            let units = [("energy".to_owned(), Unit::Joules)].into();
            sample.seen.push(ProbeResult {
                units,
                ..ProbeResult::here(Watched::Other("powercap".into()), "powercap", figures)
            });
        }
        // A sample without it is left out and is no 0.
        run.samples[0].seen.pop();
        let row = summarise(&run).cell(&cell.key()).unwrap().clone();
        let [seen] = row.seen.as_slice() else { panic!("{:?}", row.seen) };
        assert_eq!((seen.node.as_str(), &seen.watched), ("", &Watched::Other("powercap".into())));
        let means: Vec<_> =
            seen.figures.iter().map(|f| (f.labels["domain"].as_str(), f.mean.value, f.mean.n)).collect();
        let mean = (1..n).map(|i| 40.0 + i as f64).sum::<f64>() / (n - 1) as f64;
        assert_eq!(means, [("dram", 3.0, n as u32 - 1), ("package-0", mean, n as u32 - 1)]);
    }
}
