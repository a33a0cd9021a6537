//! Figures that workloads and probes measure. Each declares its figures: name, unit, which way is better, how two are
//! compared, and the form of its values. Shares, intervals, comparison and reports use the declaration and know no
//! workload.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Unit of a figure. Bits and bytes, and amounts and rates, have units of their own, so that they are not confused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes a second.
    BytesPerSecond,
    /// Bits a second.
    BitsPerSecond,
    /// Requests a second.
    RequestsPerSecond,
    /// Packets a second.
    PacketsPerSecond,
    /// Operations a second.
    OperationsPerSecond,
    /// Bytes.
    Bytes,
    /// Requests.
    Requests,
    /// Packets.
    Packets,
    /// Seconds.
    Seconds,
    /// A share, 0 to 1.
    Ratio,
    /// A number of what the figure's name says.
    Count,
    /// Joules.
    Joules,
    /// Watts.
    Watts,
}

impl Unit {
    /// In words: `bytes/second`, `bits/second`, `ratio`.
    pub fn word(self) -> &'static str {
        match self {
            Unit::BytesPerSecond => "bytes/second",
            Unit::BitsPerSecond => "bits/second",
            Unit::RequestsPerSecond => "requests/second",
            Unit::PacketsPerSecond => "packets/second",
            Unit::OperationsPerSecond => "operations/second",
            Unit::Bytes => "bytes",
            Unit::Requests => "requests",
            Unit::Packets => "packets",
            Unit::Seconds => "seconds",
            Unit::Ratio => "ratio",
            Unit::Count => "count",
            Unit::Joules => "joules",
            Unit::Watts => "watts",
        }
    }
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More.
    More,
    /// Less.
    Less,
}

/// How two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compared {
    /// As a ratio.
    Ratio,
    /// As a difference: 0 % of packets lost has no ratio to anything.
    Difference,
    /// Not at all: an amount of work, not its quality. Reports show it only where less is better.
    No,
}

impl Compared {
    /// Whether reports show such a figure by default.
    pub fn is_shown(self, better: Better) -> bool {
        self != Compared::No || better == Better::Less
    }
}

/// Form of a figure's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// One number.
    Scalar,
    /// Mean and percentiles.
    Distribution,
}

/// A figure's declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Its name, unique in the workload or probe: `bandwidth`, `latency`, `loss`.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// How two of them are compared.
    pub compared: Compared,
    /// The form of its values.
    pub form: Form,
    /// Names of the labels of its values: `direction`, `thread`, `component`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

impl Figure {
    /// A number of which more is better, compared as a ratio.
    pub fn rate(name: &str, unit: Unit) -> Self {
        Self {
            name: name.to_owned(),
            unit,
            better: Better::More,
            compared: Compared::Ratio,
            form: Form::Scalar,
            labels: Vec::new(),
        }
    }

    /// Times of which less is better: mean and percentiles, compared as ratios.
    pub fn times(name: &str) -> Self {
        Self { better: Better::Less, form: Form::Distribution, ..Self::rate(name, Unit::Seconds) }
    }

    /// A share of which less is better, compared as a difference.
    pub fn loss(name: &str) -> Self {
        Self { better: Better::Less, compared: Compared::Difference, ..Self::rate(name, Unit::Ratio) }
    }

    /// An amount of work, not its quality.
    pub fn amount(name: &str, unit: Unit) -> Self {
        Self { compared: Compared::No, ..Self::rate(name, unit) }
    }

    /// The same with these labels.
    #[must_use]
    pub fn by(mut self, labels: &[&str]) -> Self {
        self.labels = labels.iter().map(|l| (*l).to_owned()).collect();
        self
    }
}

/// Percentiles that differ by less are equal.
pub(crate) const SAME_PERCENTILE: f64 = 1e-6;

/// Mean and percentiles.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Mean.
    pub mean: f64,
    /// (percentile 0 to 100, value), ascending.
    pub percentiles: Vec<(f64, f64)>,
}

impl Distribution {
    /// The value at a recorded percentile.
    pub fn at(&self, percentile: f64) -> Option<f64> {
        self.percentiles.iter().find(|(p, _)| (p - percentile).abs() < SAME_PERCENTILE).map(|&(_, value)| value)
    }
}

/// The value of a figure, in its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// One number.
    Scalar(f64),
    /// Mean and percentiles.
    Distribution(Distribution),
}

impl Value {
    /// Its form.
    pub fn form(&self) -> Form {
        match self {
            Value::Scalar(_) => Form::Scalar,
            Value::Distribution(_) => Form::Distribution,
        }
    }

    /// Mean and percentiles, where it has them.
    pub fn distribution(&self) -> Option<&Distribution> {
        match self {
            Value::Distribution(d) => Some(d),
            Value::Scalar(_) => None,
        }
    }

    /// One representative number: the scalar itself, or the median (the mean where no median was recorded).
    pub fn typical(&self) -> f64 {
        match self {
            Value::Scalar(value) => *value,
            Value::Distribution(d) => d.at(50.0).unwrap_or(d.mean),
        }
    }

    /// Whether all numbers are finite.
    pub fn is_finite(&self) -> bool {
        match self {
            Value::Scalar(value) => value.is_finite(),
            Value::Distribution(d) => {
                d.mean.is_finite() && d.percentiles.iter().all(|(p, v)| p.is_finite() && v.is_finite())
            }
        }
    }
}

/// Labels of a value, by the names that the figure declares: `direction` -> `read`.
pub type Labels = BTreeMap<String, String>;

/// The label with an actor's number in its cell, from 1; no workload has one of this name.
pub const ACTOR: &str = "actor";

/// The label with the number of a run in a series, from 1.
pub const RUN: &str = "run";

/// A value of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// Name of the figure.
    pub figure: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// The value.
    pub value: Value,
}

impl Reading {
    /// One number.
    pub fn scalar(figure: &str, value: f64) -> Self {
        Self { figure: figure.to_owned(), labels: Labels::new(), value: Value::Scalar(value) }
    }

    /// Mean and percentiles.
    pub fn distribution(figure: &str, value: Distribution) -> Self {
        Self { value: Value::Distribution(value), ..Self::scalar(figure, 0.0) }
    }

    /// The same with a label.
    #[must_use]
    pub fn with(mut self, label: &str, value: impl Into<String>) -> Self {
        self.labels.insert(label.to_owned(), value.into());
        self
    }
}

/// The one number of this figure without labels.
pub fn scalar(readings: &[Reading], figure: &str) -> Option<f64> {
    readings.iter().find(|r| r.figure == figure && r.labels.is_empty()).map(|r| r.value.typical())
}

/// Figures by name; of duplicates the first.
pub(crate) fn by_name(figures: &[Figure]) -> BTreeMap<&str, &Figure> {
    figures.iter().rev().map(|figure| (figure.name.as_str(), figure)).collect()
}

/// How values differ from their declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum NotAsDeclared {
    #[error("it gave no {0}")]
    Missing(String),
    #[error("it gave {0}, which it does not declare")]
    Unknown(String),
    #[error("its {figure} is {given:?} and is declared {declared:?}")]
    Form { figure: String, given: Form, declared: Form },
    #[error("its {0} has labels other than declared")]
    Labels(String),
    #[error("it gave {0} twice")]
    Twice(String),
    #[error("its {0} is not a finite number")]
    NotFinite(String),
}

/// Whether the values are as declared: each figure is present with its declared form and labels, and no other.
///
/// # Errors
/// The first difference.
pub fn check(declared: &[Figure], readings: &[Reading]) -> Result<(), NotAsDeclared> {
    let given: BTreeSet<&str> = readings.iter().map(|r| r.figure.as_str()).collect();
    if let Some(missing) = declared.iter().find(|f| !given.contains(f.name.as_str())) {
        return Err(NotAsDeclared::Missing(missing.name.clone()));
    }
    let by_name = by_name(declared);
    let mut given = BTreeSet::new();
    for reading in readings {
        let name = &reading.figure;
        let Some(figure) = by_name.get(name.as_str()) else {
            return Err(NotAsDeclared::Unknown(name.clone()));
        };
        let (given_form, declared) = (reading.value.form(), figure.form);
        if given_form != declared {
            return Err(NotAsDeclared::Form { figure: name.clone(), given: given_form, declared });
        }
        if !reading.labels.keys().eq(figure.labels.iter().collect::<BTreeSet<_>>()) {
            return Err(NotAsDeclared::Labels(name.clone()));
        }
        if !given.insert((name, &reading.labels)) {
            return Err(NotAsDeclared::Twice(name.clone()));
        }
        if !reading.value.is_finite() {
            return Err(NotAsDeclared::NotFinite(name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_declared_is_a_result() {
        let declared =
            [Figure::rate("bandwidth", Unit::BitsPerSecond), Figure::amount("sent", Unit::Bytes).by(&["way"])];
        let good = [Reading::scalar("bandwidth", 1.0), Reading::scalar("sent", 2.0).with("way", "up")];
        assert_eq!(check(&declared, &good), Ok(()));
        let said = |readings: &[Reading]| check(&declared, readings).unwrap_err().to_string();
        assert!(said(&good[..1]).contains("no sent"));
        let loss = Reading::scalar("loss", 0.0);
        assert!(said(&[good[0].clone(), good[1].clone(), loss]).contains("loss, which it does not declare"));
        assert!(said(&[good[0].clone(), Reading::scalar("sent", 2.0)]).contains("labels"));
        assert!(said(&[good[0].clone(), good[0].clone(), good[1].clone()]).contains("twice"));
        let shape = Reading::distribution("bandwidth", Distribution::default());
        assert!(said(&[shape, good[1].clone()]).contains("Distribution"));
        assert!(said(&[Reading::scalar("bandwidth", f64::NAN), good[1].clone()]).contains("finite"));
    }

    #[test]
    fn one_number_stands_for_a_value() {
        let d = Distribution { mean: 3.0, percentiles: vec![(50.0, 2.0), (99.0, 9.0)] };
        assert_eq!((d.at(99.0), d.at(1.0)), (Some(9.0), None));
        assert_eq!(Value::Distribution(d).typical(), 2.0);
    }
}
