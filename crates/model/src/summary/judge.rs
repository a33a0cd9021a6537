//! By which figure a cell is judged, and what its samples say of it.

use std::collections::BTreeMap;

use crate::cell::Cell;
use crate::figure::{Better, Figure, Labels, Reading, Unit, Value};
use crate::result::{BANDWIDTH, Sample, WorkloadResult, WorkloadTraits, figures_of};

/// The figure that a cell is judged by.
#[derive(Debug, Clone, PartialEq)]
pub struct Judge {
    /// The figure.
    pub figure: Figure,
    /// Whether the actors' figures are added up: they do the same sort of work.
    sum: bool,
}

/// The name of the figure that says how evenly several actors did: Jain's index, 1 when all did alike, 1/n
/// when one did all (R. Jain et al., DEC-TR-301, 1984).
pub const FAIRNESS: &str = "fairness";

/// The label that tells actors apart, from 1.
pub const ACTOR: &str = "actor";

/// What a cell is judged by: its leading workload's figure, summed up over its actors where they all are judged
/// by that; bandwidth when the run holds no traits of it.
pub(crate) fn judge_of(workloads: &[WorkloadTraits], cell: &Cell) -> Judge {
    let of = |name: &str| workloads.iter().find(|w| w.name == name)?.judge();
    let figure = of(cell.workload()).cloned().unwrap_or_else(|| Figure::rate(BANDWIDTH, Unit::BytesPerSecond));
    let alike = cell.beside.iter().all(|a| of(&a.workload).is_some_and(|f| *f == figure));
    Judge { sum: alike && figure.better == Better::More, figure }
}

impl Judge {
    /// What a sample says.
    pub fn of(&self, sample: &Sample) -> Option<f64> {
        let one = |result: &WorkloadResult| result.figure(&self.figure.name);
        match self.sum {
            true => sample.results().map(one).sum(),
            false => one(&sample.result),
        }
    }

    /// The same so that more is better: for ratios.
    pub fn rising(&self, sample: &Sample) -> Option<f64> {
        let value = self.of(sample)?;
        Some(if self.figure.better == Better::More { value } else { 1.0 / value })
    }

    /// All figures of a sample with what they are: those of one actor as they are, those of several by actor,
    /// with the sum and the fairness of what they are judged by.
    pub fn all(&self, sample: &Sample, workloads: &[WorkloadTraits]) -> Vec<(Figure, Reading)> {
        let cell = &sample.cell;
        let several = !cell.beside.is_empty();
        let mut all = Vec::new();
        for (i, (actor, result)) in cell.actors().zip(sample.results()).enumerate() {
            let figures = figures_of(workloads, &actor.workload);
            for reading in &result.figures {
                let Some(figure) = figures.iter().find(|f| f.name == reading.figure) else { continue };
                let reading = match several {
                    true => reading.clone().with(ACTOR, (i + 1).to_string()),
                    false => reading.clone(),
                };
                all.push((figure.clone(), reading));
            }
        }
        if several && self.sum {
            let each: Vec<f64> = sample.results().filter_map(|r| r.figure(&self.figure.name)).collect();
            let scalar = |figure: &Figure, value: f64| {
                let reading =
                    Reading { figure: figure.name.clone(), labels: Labels::new(), value: Value::Scalar(value) };
                (figure.clone(), reading)
            };
            all.push(scalar(&self.figure, each.iter().sum()));
            let fairness = Figure { better: Better::More, ..Figure::loss(FAIRNESS) };
            all.extend(jain(&each).map(|index| scalar(&fairness, index)));
        }
        all
    }
}

/// Jain's index of fairness; `None` where nobody did anything.
fn jain(each: &[f64]) -> Option<f64> {
    let squares: f64 = each.iter().map(|x| x * x).sum();
    let sum: f64 = each.iter().sum();
    (squares > 0.0).then(|| sum * sum / (each.len() as f64 * squares))
}

/// Values by figure and labels, in the order in which they are first seen.
pub(super) type Collected = Vec<(Figure, Labels, BTreeMap<u32, (u32, Value)>)>;

/// All figures of a cell by round, with the boot of each.
pub(super) fn collect<'a>(
    judge: &Judge,
    samples: impl Iterator<Item = &'a Sample>,
    all: &[WorkloadTraits],
) -> Collected {
    let mut found: Collected = Vec::new();
    for sample in samples {
        for (figure, reading) in judge.all(sample, all) {
            let at = found.iter().position(|(f, l, _)| *f == figure && *l == reading.labels).unwrap_or_else(|| {
                found.push((figure, reading.labels.clone(), BTreeMap::new()));
                found.len() - 1
            });
            found[at].2.insert(sample.round, (sample.boot, reading.value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_jains() {
        assert_eq!(jain(&[1.0, 1.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0]), None);
    }
}
