//! Scores of groups of workloads, with their members, and what a paper has of the same groups.

use vmio_model::paper::{ScoreJudged, Verdict};
use vmio_model::stats::Ratio;
use vmio_model::summary::scores::{Score, Scores};

use super::document::{Cell, Column, Document, In, Layout, Long, Row, Span, Table, Text, aside, heading, say};
use super::{Report, format};

/// The introduction of the scores.
const INTRODUCTION: &str = "A group's score is the geometric mean of its members' shares, over the rounds that have all of \
    them, with its 95 % interval. All groups weigh equally in the total.";

/// Adds the scores of each guest, if there are any.
pub(super) fn put(doc: &mut Document, report: &Report<'_>) {
    for scores in &report.summary.scores {
        let paper = if published(report, &scores.guest).next().is_some() { In::ALL } else { In::TERMINAL };
        let columns = [Column::new("Share", 0).left(), Column::new("Paper", 0).left().gap(2).only(paper)];
        let layout = Layout { long: Long::Outside, early: true, ..Layout::new(32) };
        let whole =
            scores.whole_ratio.as_ref().map(|of| row("whole system", share_text(Some(of), scores.whole_converged)));
        let groups = scores.groups.iter().map(|score| group(report, scores, score));
        let table = Table::new("Group", layout, columns).with(groups.chain(whole));
        doc.put(heading(2, format!("Scores of {}", scores.guest)));
        doc.put(aside((2, 2), INTRODUCTION));
        doc.put(Table { heads: In::ROOM, ..table }.into());
        reasons(report, &scores.guest).into_iter().for_each(|reason| doc.put(say((2, 2), reason)));
        doc.gap();
    }
}

fn share_text(ratio: Option<&Ratio>, converged: bool) -> String {
    let share = ratio.map_or_else(|| "not measured".to_owned(), format::share);
    if converged || ratio.is_none() { share } else { format!("{share}, not converged") }
}

/// The row of a whole group.
fn row(name: &str, share: impl Into<Cell>) -> Row {
    Row::new(Text::from(Span::Strong(name.to_owned())), [share])
}

/// A group with its members; those that were not measured are named in its cell where there is room.
fn group(report: &Report<'_>, scores: &Scores, score: &Score) -> Row {
    let share = share_text(score.score_ratio.as_ref(), score.converged);
    let without = without(score);
    let measured = match &without {
        Some(without) => Cell::from(format!("{share}, {without}")).narrow(share),
        None => share.into(),
    };
    let mut row = row(&words(&score.group), measured);
    let published = published(report, &scores.guest).find(|p| p.published.group == score.group);
    row.cells.extend(published.map(|judged| Cell::from(beside(judged))));
    row.notes.extend(without);
    let members = score.members.iter();
    row.parts = members.map(|m| Row::new(&m.workload, [share_text(Some(&m.share_ratio), m.converged)])).collect();
    row
}

fn without(score: &Score) -> Option<String> {
    (!score.lacks.is_empty()).then(|| format!("without {}", score.lacks.join(", ")))
}

/// A group's name in words.
fn words(group: &str) -> String {
    group.replace('-', " ")
}

fn published<'a>(report: &'a Report<'_>, guest: &str) -> impl Iterator<Item = &'a ScoreJudged> {
    report.published.iter().filter(move |p| p.guest.as_deref() == Some(guest))
}

/// `paper 68 %: not decidable`.
fn beside(judged: &ScoreJudged) -> String {
    format!("paper {:.0} %: {}", judged.published.ratio * 100.0, judged.verdict)
}

/// The reasons of the verdicts, a sentence each, with the groups that they apply to.
fn reasons(report: &Report<'_>, guest: &str) -> Vec<String> {
    let mut all: Vec<(Verdict, &str, Vec<String>)> = Vec::new();
    for judged in published(report, guest) {
        let group = words(&judged.published.group);
        match all.iter_mut().find(|(verdict, reason, _)| (*verdict, *reason) == (judged.verdict, &judged.reason)) {
            Some((.., groups)) => groups.push(group),
            None => all.push((judged.verdict, &judged.reason, vec![group])),
        }
    }
    let cited = report.published.first().map_or_else(String::new, |p| format!(" ({})", p.published.citation));
    let sentence = |(verdict, reason, groups): (Verdict, &str, Vec<String>)| {
        format!("Against the paper{cited}, {} {verdict}: {reason}.", groups.join(", "))
    };
    all.into_iter().map(sentence).collect()
}
