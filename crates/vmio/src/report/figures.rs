//! The figures of a row beside the one that it is judged by, and those of each of several actors, as short texts for
//! all forms of the report.

use vmio_model::cell::{Actor, Cell, Millis};
use vmio_model::figure::{ACTOR, Better, Labels};
use vmio_model::result::WorkloadTraits;
use vmio_model::stats::Estimate;
use vmio_model::summary::{CellRow, FAIRNESS, FigureRow, FigureShare, Share};

use super::document::{Span, Text};
use super::format;

/// A figure as texts.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureText {
    /// Its name: `loss`, `bandwidth receive`.
    pub name: String,
    /// Its value with the interval; for a distribution the median.
    pub value: String,
    /// The 99th percentile of a distribution.
    pub p99: Option<String>,
    /// Its ratio to the baseline's figure, or the difference; empty where that is not known.
    pub share: String,
    /// The value as a number in its unit, for drawings.
    pub estimate: Estimate,
}

/// One of several actors.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// `2: qemu#2`.
    pub label: String,
    /// The figure that its workload is judged by.
    pub judged: Option<FigureText>,
    /// Whether the cell is judged by the same figure, so that both have one scale.
    pub alike: bool,
    /// Its other figures.
    pub figures: Vec<FigureText>,
}

/// Figures of a row besides the one that it is judged by.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowDetails {
    /// Figures of the cell.
    pub figures: Vec<FigureText>,
    /// Its actors, where it has several.
    pub actors: Vec<Part>,
    /// Their fairness.
    pub fairness: Option<FigureText>,
}

impl RowDetails {
    /// The details of a cell. Where its leading actor works on a disk, only those of several actors: latencies have
    /// columns of their own, and the rest follows from the judged figure.
    pub fn of(row: &CellRow, share: Option<&Share>, workloads: &[WorkloadTraits]) -> Self {
        let shown = |figure: &FigureRow| FigureText::of(figure, share.and_then(|share| share_of(share, figure)));
        if row.cell.is_alone() {
            let others = row.figures.iter().filter(|f| f.compared.is_shown(f.better) && !is(f, &row.figure));
            let figures = if row.cell.target().is_some() { Vec::new() } else { others.map(shown).collect() };
            return Self { figures, ..Self::default() };
        }
        let part = |(i, actor): (usize, &Actor)| {
            let nth = (i + 1).to_string();
            let own = || row.figures.iter().filter(|f| f.labels.get(ACTOR) == Some(&nth));
            let traits = workloads.iter().find(|w| w.name == actor.workload);
            let judged_by = traits.map_or(row.figure.as_str(), |traits| &traits.judged_by);
            let judged = |f: &&FigureRow| f.name == judged_by && f.labels.len() == 1;
            let others = own().filter(|f| f.compared.is_shown(f.better) && !judged(f));
            Part {
                label: format!("{nth}: {}", who(&row.cell, actor)),
                judged: own().find(judged).map(shown),
                alike: row.judged().is_some_and(|of| own().find(judged).is_some_and(|f| same(of, f))),
                figures: if actor.target().is_some() { Vec::new() } else { others.map(shown).collect() },
            }
        };
        Self {
            figures: Vec::new(),
            actors: row.cell.actors().enumerate().map(part).collect(),
            fairness: row.figure(FAIRNESS).map(shown),
        }
    }
}

impl RowDetails {
    /// All that is shown.
    pub fn shown(&self) -> impl Iterator<Item = &FigureText> {
        let of_actors = self.actors.iter().flat_map(|part| part.judged.iter().chain(&part.figures));
        self.figures.iter().chain(of_actors).chain(&self.fairness)
    }
}

/// Whether both are of one figure.
fn same(a: &FigureRow, b: &FigureRow) -> bool {
    (&a.name, a.unit, a.form) == (&b.name, b.unit, b.form)
}

/// Whether it is the figure of that name without labels.
fn is(figure: &FigureRow, name: &str) -> bool {
    figure.name == name && figure.labels.is_empty()
}

impl FigureText {
    /// `6.20 Gbit/s ±2 %`; of a distribution `p50 61.2 µs ±3 %, p99 120 µs`.
    pub fn words(&self) -> Text {
        match &self.p99 {
            Some(p99) => {
                let median = Text::from(format!("p50 {}", self.value));
                median.and(Span::Break(", ")).and(Span::Plain(format!("p99 {p99}")))
            }
            None => Text::from(&self.value),
        }
    }

    /// A figure, and its ratio to the baseline's.
    pub fn of(figure: &FigureRow, share: Option<&FigureShare>) -> Self {
        let labels = figure.labels.iter().filter(|(name, _)| *name != ACTOR).map(|(_, value)| value.as_str());
        Self {
            name: std::iter::once(figure.name.as_str()).chain(labels).collect::<Vec<_>>().join(" "),
            value: format::estimate(figure.unit, &figure.typical),
            p99: figure.at(99.0).map(|p99| format::figure(figure.unit, p99.value)),
            share: share.map(against).unwrap_or_default(),
            estimate: figure.typical,
        }
    }
}

/// The figure of a share that belongs to that of a row. Where the baseline has other actors, only the leading
/// one is compared, by figures that name no actor.
fn share_of<'a>(share: &'a Share, figure: &FigureRow) -> Option<&'a FigureShare> {
    let find = |labels: &Labels| share.figures.iter().find(|f| f.name == figure.name && f.labels == *labels);
    let by_actor = share.figures.iter().any(|f| f.labels.contains_key(ACTOR));
    if by_actor || figure.labels.get(ACTOR).is_none_or(|nth| nth != "1") {
        return find(&figure.labels);
    }
    let mut labels = figure.labels.clone();
    labels.remove(ACTOR);
    find(&labels)
}

/// `66 % (64–68 %)`; `2.00× (1.90–2.10)` where less is better; the difference `+1.2 points ±0.1` where there is no
/// ratio.
fn against(share: &FigureShare) -> String {
    match (&share.ratio, &share.difference, share.better) {
        (Some(ratio), _, Better::More) => format::share(ratio),
        (Some(ratio), _, Better::Less) => format::times(ratio),
        (None, Some(difference), _) => format::difference(share.unit, difference),
        (None, None, _) => String::new(),
    }
}

/// A cell's actor, with what differs from the leading one: `qemu#2 rand-read-1`.
pub fn who(cell: &Cell, actor: &Actor) -> String {
    let lead = &cell.lead;
    let mut words = vec![actor.side.to_string()];
    words.extend(actor.subject.seen_by().filter(|seen| lead.subject.seen_by().as_ref() != Some(seen)));
    if actor.subject.place() != lead.subject.place() {
        words.push(format!("on {}", actor.subject.place()));
    }
    if actor.workload != lead.workload {
        words.push(actor.workload.clone());
    }
    words.extend(when(actor));
    words.join(" ")
}

/// `from 0.5s for 2s`, where it does not work during the whole cell.
pub fn when(actor: &Actor) -> Option<String> {
    let from = (actor.start != Millis::ZERO).then(|| format!("from {}", actor.start));
    let long = actor.duration.map(|duration| format!("for {duration}"));
    let words: Vec<String> = from.into_iter().chain(long).collect();
    (!words.is_empty()).then(|| words.join(" "))
}
