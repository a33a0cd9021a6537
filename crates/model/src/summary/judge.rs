//! The figure by which a cell is judged, and its values in samples.

use std::collections::BTreeMap;

use crate::cell::Cell;
use crate::figure::{ACTOR, Better, Figure, Form, Labels, Reading, Unit, Value, by_name};
use crate::result::{BANDWIDTH, Sample, WorkloadResult, WorkloadTraits, figures_of};

/// The figure by which a cell is judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Judge {
    /// The figure.
    pub figure: Figure,
    /// Whether the actors' figures are added up, since their work is of one kind.
    sum: bool,
}

/// Name of the fairness figure of several actors: Jain's index, 1 when all did the same, 1/n when one did all (R. Jain
/// et al., DEC-TR-301, 1984).
pub const FAIRNESS: &str = "fairness";

/// The figure by which a cell is judged: its leading workload's, added up over the actors where all are judged by it
/// and more is better; bandwidth when the run has no traits of it.
pub fn judge_of(workloads: &[WorkloadTraits], cell: &Cell) -> Judge {
    let of = |name: &str| workloads.iter().find(|w| w.name == name)?.judge();
    let figure = of(cell.workload()).cloned().unwrap_or_else(|| Figure::rate(BANDWIDTH, Unit::BytesPerSecond));
    let alike = cell.beside.iter().all(|a| of(&a.workload) == Some(&figure));
    Judge { sum: alike && figure.better == Better::More && figure.form == Form::Scalar, figure }
}

/// The figure by which a cell and its baseline are compared: the cell's, or, with different numbers of actors, the
/// leading actor's alone. `None` where the baseline's workload does not measure it.
pub(crate) fn judge_between(workloads: &[WorkloadTraits], base: &Cell, cell: &Cell) -> Option<Judge> {
    let judge = judge_of(workloads, cell);
    let traits = workloads.iter().find(|w| w.name == base.workload());
    let measured = traits.is_none_or(|traits| traits.figures.contains(&judge.figure));
    measured.then(|| Judge { sum: judge.sum && as_many(base, cell), ..judge })
}

/// Whether both have the same number of actors.
pub(super) fn as_many(base: &Cell, cell: &Cell) -> bool {
    base.beside.len() == cell.beside.len()
}

impl Judge {
    /// Whether all actors' figures are added up.
    pub(super) fn is_sum(&self) -> bool {
        self.sum
    }

    /// Its value in a sample.
    pub fn of(&self, sample: &Sample) -> Option<f64> {
        let one = |result: &WorkloadResult| result.figure(&self.figure.name);
        if self.sum { sample.results().map(one).sum() } else { one(&sample.result) }
    }

    /// Its value in a sample, inverted where less is better: for ratios.
    pub fn rising(&self, sample: &Sample) -> Option<f64> {
        let value = self.of(sample)?;
        Some(if self.figure.better == Better::More { value } else { 1.0 / value })
    }

    /// All figures of a sample with their declarations: of one actor as they are, of several by actor, with sum and
    /// fairness of the judging figure.
    pub fn all(&self, sample: &Sample, workloads: &[WorkloadTraits]) -> Vec<(Figure, Reading)> {
        if sample.cell.is_alone() {
            return of_lead(sample, workloads);
        }
        let actors = sample.cell.actors().zip(sample.results()).enumerate();
        let mut all: Vec<(Figure, Reading)> = actors
            .flat_map(|(i, (actor, result))| {
                let labelled =
                    move |(figure, reading): (Figure, Reading)| (figure, reading.with(ACTOR, (i + 1).to_string()));
                declared(&actor.workload, result, workloads).into_iter().map(labelled)
            })
            .collect();
        let each: Option<Vec<f64>> = sample.results().map(|r| r.figure(&self.figure.name)).collect();
        if let Some(each) = each.filter(|_| self.sum) {
            let reading = |figure: &Figure, value: f64| (figure.clone(), Reading::scalar(&figure.name, value));
            all.push(reading(&self.figure, each.iter().sum()));
            let fairness = Figure { better: Better::More, ..Figure::loss(FAIRNESS) };
            all.extend(jain(&each).map(|index| reading(&fairness, index)));
        }
        all
    }
}

/// The leading actor's figures with their declarations.
pub(super) fn of_lead(sample: &Sample, workloads: &[WorkloadTraits]) -> Vec<(Figure, Reading)> {
    declared(sample.cell.workload(), &sample.result, workloads)
}

/// The declared figures of a result, with their declarations.
fn declared(workload: &str, result: &WorkloadResult, workloads: &[WorkloadTraits]) -> Vec<(Figure, Reading)> {
    let figures = figures_of(workloads, workload);
    let figures = by_name(&figures);
    let with_figure = |reading: &Reading| {
        let figure = figures.get(reading.figure.as_str())?;
        Some(((*figure).clone(), reading.clone()))
    };
    result.figures.iter().filter_map(with_figure).collect()
}

/// Jain's fairness index; `None` where nothing was done.
fn jain(each: &[f64]) -> Option<f64> {
    let squares: f64 = each.iter().map(|x| x * x).sum();
    let sum: f64 = each.iter().sum();
    (squares > 0.0).then(|| sum * sum / (each.len() as f64 * squares))
}

/// The values of a figure of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Collected {
    /// The figure.
    pub figure: Figure,
    /// Their labels.
    pub labels: Labels,
    /// The values by round.
    pub values: BTreeMap<u32, RoundValue>,
}

/// A value and its boot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoundValue {
    /// The boot.
    pub boot: u32,
    /// The value.
    pub value: Value,
}

/// Identifies a figure of a cell: names are unique in a workload, and actors have a label.
pub(super) type FigureKey = (String, Labels);

impl Collected {
    /// Its identification.
    pub(super) fn key(&self) -> FigureKey {
        (self.figure.name.clone(), self.labels.clone())
    }
}

/// The figures of a cell's samples, in order of appearance; `figures` lists a sample's.
pub(super) fn collect<'a>(
    samples: impl Iterator<Item = &'a Sample>,
    figures: impl Fn(&Sample) -> Vec<(Figure, Reading)>,
) -> Vec<Collected> {
    let mut all: Vec<Collected> = Vec::new();
    let mut places: BTreeMap<FigureKey, usize> = BTreeMap::new();
    for sample in samples {
        for (figure, Reading { labels, value, .. }) in figures(sample) {
            let at = *places.entry((figure.name.clone(), labels.clone())).or_insert_with(|| {
                all.push(Collected { figure, labels, values: BTreeMap::new() });
                all.len() - 1
            });
            all[at].values.insert(sample.round, RoundValue { boot: sample.boot, value });
        }
    }
    all
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
