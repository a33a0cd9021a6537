//! The report of a run as a document: conclusions, then figures, then the environment.

use vmio_model::summary::Headline;
use vmio_model::summary::components;

use super::document::{Block, Document, Head, In, Kind, Name, Pairs, Span, Text, heading, list, paragraph, say};
use super::{
    Report, by_cell, by_component, cost, events, finding, format, like, measured, paper, raw, scores, short, view,
};

/// The whole report.
pub(super) fn document(report: &Report<'_>) -> Document {
    let (run, summary) = (report.run, &report.summary);
    let title = format!("vmio run {}: {}", run.id, run.kind);
    let mut doc = Document::new(&title);
    doc.only(In::TERMINAL, heading(2, title));
    head(&mut doc, report);
    if let Some(statement) = &summary.statement {
        doc.put(paragraph(Kind::Warning, (0, 2), statement));
        doc.gap();
    }
    // The conclusions are above the figures on a page, and below them elsewhere.
    concluded(&mut doc, report, In::HTML);
    scores::put(&mut doc, report);
    measured::put(&mut doc, report);
    concluded(&mut doc, report, In::SOURCE);
    cost::put(&mut doc, report);
    doc.add(events::tables(&report.events, summary.emulated), In::ALL);
    doc.add(by_component::tables(&components::by_cell(summary)), In::ALL);
    by_cell::put(&mut doc, report);
    if !summary.skipped.is_empty() {
        let cells = view::not_measured(summary);
        doc.put(heading(2, "Not measured"));
        doc.put(list((2, 4), cells.iter().map(|(key, reason)| format!("{key}: {reason}"))));
        doc.gap();
    }
    place(&mut doc, report);
    doc.put(heading(2, "Again"));
    doc.put(Block::Code(view::repeat(run)));
    raw::put(&mut doc, run);
    // A terminal ends with the answer.
    let mut end = Document::new("");
    end.gap();
    short::closing(&mut end, report, true);
    doc.add(end, In::TERMINAL);
    doc
}

fn head(doc: &mut Document, report: &Report<'_>) {
    let (run, summary) = (report.run, &report.summary);
    let (state, _) = format::state(&run.state);
    let made = format!("{}, {state}, {}", format::utc(run.started_unix), format::count(run.samples.len(), "sample"));
    doc.put(paragraph(Kind::Dim, (0, 0), made));
    like::title(run).into_iter().for_each(|title| doc.put(say((0, 0), title)));
    if let Some(why) = short::partial(report) {
        let partial = Text::from(Span::Strong("This result is partial:".into()));
        doc.put(paragraph(Kind::Notice, (2, 2), partial.and(Span::Plain(format!(" {why}")))));
    }
    doc.gap();
    for (name, of) in view::headlines(summary) {
        doc.put(Block::Head(Box::new(headline(report, name, of))));
        let higher = report.uncapped.as_ref().and_then(|uncapped| uncapped.why_higher(of));
        higher.into_iter().for_each(|why| doc.put(say((0, 0), why)));
    }
    if summary.headline.is_none() {
        let text = report.versus.no_headline(summary);
        doc.put(Block::Head(Box::new(Head { text, ..Head::default() })));
    }
    summary.tells_apart.iter().for_each(|note| doc.put(say((0, 0), &note.text)));
    doc.gap();
}

fn headline(report: &Report<'_>, name: Option<String>, of: &Headline) -> Head {
    let ratio = &of.share_ratio;
    // Value and interval have the same decimals.
    let shown = format::known_share(ratio, of.converged);
    let (value, interval) = shown.split_once(" (").unwrap_or((&shown, ""));
    let interval = match ratio.shown_interval(of.converged) {
        Some(_) => format!("95 %: {}", interval.trim_end_matches(')')),
        None => "no interval".to_owned(),
    };
    let small = Text::from(format!("{interval}, {} pairs, {} boots ", ratio.pairs, ratio.boots));
    let small = if of.converged { small } else { small.and(Span::Tag("not converged".into())) };
    Head {
        name,
        figure: Some((value.to_owned(), small)),
        text: of.text.clone(),
        about: of.about_interval.clone(),
        gauge: Some((ratio.value, ratio.shown_interval(of.converged), report.versus.whole())),
        lines: of.lines.clone(),
    }
}

/// Adds the conclusions, in these forms.
fn concluded(doc: &mut Document, report: &Report<'_>, forms: In) {
    let mut part = Document::new("");
    findings(&mut part, report);
    let gains = like::gains(report.run);
    if !gains.is_empty() {
        part.put(heading(2, "The guest's setup with each change, against it unchanged"));
        part.put(list((2, 6), gains.iter().map(like::Gain::line)));
        part.gap();
    }
    paper::put(&mut part, report);
    doc.add(part, forms);
}

fn findings(doc: &mut Document, report: &Report<'_>) {
    doc.put(heading(2, "Findings"));
    if report.findings.is_empty() {
        doc.put(say((2, 2), "None supported by these figures."));
    } else {
        doc.only(In::TERMINAL, say((2, 2), "Some set-ups are poor on purpose; each finding names its set-up."));
    }
    for (place, found) in report.findings.iter().enumerate() {
        let mut card = finding::card(&report.findings, place, finding::made(&found.change));
        card.proof = report.proof(found).map(|proof| (proof.run, proof.verdict.clone()));
        doc.put(Block::Card(Box::new(card)));
    }
    doc.gap();
}

/// Adds the environment, and the settings in force.
fn place(doc: &mut Document, report: &Report<'_>) {
    let environment = view::environment(&report.summary).into_iter();
    let environment = environment.map(|(name, value)| (In::ALL, Text::from(name), value));
    let effective = report.summary.effective.iter().map(|(attachment, settings)| {
        let list: Vec<String> = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let source = Span::Dim(view::setting_source(attachment));
        (In::ROOM, Text::from(attachment).and(Span::Break(" ")).and(source), list.join(", "))
    });
    let pairs = environment.chain(effective).collect();
    doc.put(heading(2, "Where"));
    doc.put(Block::Pairs(Pairs { indent: 2, width: 22, long: Name::Pushes, pairs }));
    doc.gap();
}
