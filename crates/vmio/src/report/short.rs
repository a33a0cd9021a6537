//! The short report of a run for a terminal: what was compared, the findings, and at its end the answer. `--verbose`
//! has every table and setting.

use std::collections::BTreeSet;

use vmio_model::cell::Baseline;
use vmio_model::modelled::ModelledDisk;
use vmio_model::result::{Accel, RunState};
use vmio_model::rules::Finding;
use vmio_model::run::Run;
use vmio_model::summary::{self, CellRow, Headline, PartialReason, Share, Summary, summarise, widest_difference};
use vmio_model::words::count;

use super::document::{
    Block, Column, Document, Fit, In, Kind, Layout, Name, Pairs, Row, Span, Table, Text, heading, list, paragraph, say,
};
use super::{Report, finding, format, like, view};
use crate::fit;
use crate::term::Style;

/// Most lines of it.
pub const LINES: usize = 60;
/// How many findings and rows are shown, from the most to the fewest: the first that fits is taken.
const SIZES: [(usize, usize); 8] = [(5, 16), (4, 16), (3, 16), (2, 16), (2, 8), (1, 8), (1, 4), (0, 4)];
/// Gains of `--like` that are shown.
const GAINS: usize = 6;
/// Columns of a headline's name.
const LEAD: usize = 14;
const MOST_LEAD: usize = 24;
/// Columns of a command.
const COMMAND: usize = 36;
/// Share of a cap from which a guest reaches it.
const REACHES: f64 = 0.95;
/// The steps by which the table of workloads is fitted: native figure, place, grade, guest's figure.
const FIT: [Fit; 5] = [Fit::Drop(2), Fit::Drop(1), Fit::Drop(5), Fit::Drop(3), Fit::Least(0, 12)];
const FIT_FIGURES: [Fit; 1] = [Fit::Least(0, 12)];

/// The headlines of a run of the same study without `--gentle`: what the guest gets where nothing caps it.
#[derive(Debug, Clone, PartialEq)]
pub struct Uncapped {
    run: i64,
    headlines: Vec<Headline>,
}

impl Uncapped {
    /// Judges that run.
    pub fn of(run: &Run) -> Self {
        Self { run: run.id, headlines: summarise(run).headlines().cloned().collect() }
    }

    /// Why a share of a cap is higher than the share of the host was; `None` where it is not.
    pub(super) fn why_higher(&self, of: &Headline) -> Option<String> {
        let same = |h: &&Headline| (h.nature, &h.side) == (of.nature, &of.side);
        let earlier = self.headlines.iter().find(same)?.share_ratio;
        (of.share_ratio.value > earlier.value).then(|| {
            let share = format::percent(earlier.value);
            format!("run {} without --gentle showed {share}: above the cap the guest's own speed is not seen", self.run)
        })
    }
}

/// The short report.
pub(super) fn text(report: &Report<'_>, style: Style, width: usize) -> String {
    let of = |size: &(usize, usize)| document(report, *size).text(style, width);
    let fits = |text: &String| text.lines().count() <= LINES;
    SIZES.iter().map(of).find(fits).unwrap_or_else(|| of(&SIZES[SIZES.len() - 1]))
}

fn document(report: &Report<'_>, (findings, rows): (usize, usize)) -> Document {
    let mut doc = Document::new("");
    head(&mut doc, report);
    measured(&mut doc, report, rows);
    left_out(&mut doc, &report.summary);
    found(&mut doc, report, findings);
    gains(&mut doc, report.run);
    closing(&mut doc, report, false);
    doc
}

/// The run in a line, and what limits its result.
fn head(doc: &mut Document, report: &Report<'_>) {
    let run = report.run;
    let started: String = format::utc(run.started_unix).chars().take(16).collect();
    let (state, samples) = (format::state(&run.state).0, count(run.samples.len(), "sample"));
    let title = Text::from(Span::Bold(format!("vmio run {}: {}", run.id, run.kind)));
    doc.put(say((0, 2), title.and(Span::Plain(format!(", {started}, {state}, {samples}")))));
    like::title(run).into_iter().for_each(|title| doc.put(say((0, 2), title)));
    if let Some(why) = partial(report) {
        doc.put(paragraph(Kind::Notice, (0, 2), format!("This result is partial: {why}")));
    }
    for limit in limits(&report.summary) {
        doc.put(paragraph(Kind::Warning, (0, 2), limit));
    }
    doc.gap();
}

/// Why a result is partial: the run was broken off, or shares lack pairs.
pub(super) fn partial(report: &Report<'_>) -> Option<String> {
    let (run, summary) = (report.run, &report.summary);
    let broken_off = format::state(&run.state).1.map(str::to_owned);
    broken_off.or_else(|| {
        let found = summary::partial(run, summary).filter(|p| p.reason == PartialReason::TooFewPairs)?;
        let (short, all) = (found.short_shares, count(found.shares, "share"));
        let rule = &summary.convergence;
        let needs =
            format!("{} and {}", count(rule.min_pairs as usize, "pair"), count(rule.min_boots as usize, "boot"));
        let has = if short == 1 { "does" } else { "do" };
        Some(format!("{short} of {all} {has} not have {needs} yet; --minutes gives a run more time"))
    })
}

/// What may not be concluded, a short sentence each.
fn limits(summary: &Summary) -> Vec<String> {
    let environment = &summary.environment;
    let emulated = environment.accel == Some(Accel::Tcg);
    let emulated =
        emulated.then(|| "Guests ran under software emulation (TCG): trust directions, not sizes.".to_owned());
    let lab = environment
        .node
        .as_ref()
        .map(|node| format!("This host is itself a guest ({node}): no figure is a real host's."));
    let modelled = environment.modelled.as_ref().map(|disk| format!("The disk was modelled, {disk}."));
    let capped = environment
        .cap_ratio
        .map(|cap| format!("Capped at {:.0} % (--gentle): shares are of the cap, not of the host.", cap * 100.0));
    [emulated, lab, modelled, capped].into_iter().flatten().collect()
}

/// A row for each workload of the reference guests; of many those with the lowest shares.
fn measured(doc: &mut Document, report: &Report<'_>, most: usize) {
    let summary = &report.summary;
    let mut shares: Vec<&Share> =
        summary.headlines().flat_map(|h| &h.cells).filter_map(|key| summary.share(key)).collect();
    if shares.is_empty() {
        return figures(doc, report, most);
    }
    let all = shares.len();
    if all > most {
        let mut lowest: Vec<f64> = shares.iter().map(|share| share.share_ratio.value).collect();
        lowest.sort_by(f64::total_cmp);
        let limit = lowest[(most / 2).max(1) - 1];
        shares.retain(|share| share.share_ratio.value <= limit);
    }
    let capped = summary.environment.cap_ratio.is_some();
    let native = match (capped, &summary.baseline) {
        (true, _) => "allowed",
        (_, Baseline::Native) => "native",
        _ => "baseline",
    };
    let share = if capped { "of the cap" } else { report.versus.narrow() };
    let columns = [
        Column::new("on", 0).left(),
        Column::new(native, 0),
        Column::new("guest", 0),
        Column::new(share, 0).left(),
        Column::new("grade", 0).left(),
    ];
    let kinds = summary.headlines().map(|h| &h.side).collect::<BTreeSet<_>>().len();
    let rows: Vec<Row> = shares.iter().map(|share| row(summary, share, kinds > 1)).collect();
    let remarks = rows.iter().any(|row| row.cells.last().is_some_and(|cell| cell.text.plain().ends_with('*')));
    let table = Table::new("Workload", Layout { fit: &FIT, ..Layout::new(0) }, columns);
    doc.put(Table { narrow: "workload".into(), ..table.with(rows) }.into());
    if all > shares.len() {
        doc.put(say((0, 0), format!("… {} more (--verbose); these have the lowest shares", all - shares.len())));
    }
    if remarks {
        doc.put(say((0, 0), "* with remarks on its samples (--verbose)"));
    }
    doc.gap();
}

fn row(summary: &Summary, share: &Share, with_kind: bool) -> Row {
    let figure = |key: &str| {
        let judged = summary.cell(key).and_then(view::judged);
        judged.map_or_else(|| "–".to_owned(), |(unit, of)| format::figure(unit, of.value))
    };
    let said = if share.converged {
        format::known_share(&share.share_ratio, true)
    } else {
        format!("so far {}", format::percent(share.share_ratio.value))
    };
    let marked = |key: &str| summary.cell(key).is_some_and(|row| !row.marks.is_empty());
    let remarks = marked(&share.key) || marked(&share.baseline) || !share.outlier_rounds.is_empty();
    let grade = share.graded.as_ref().map_or_else(String::new, |graded| graded.grade.to_string());
    let grade = format!("{grade}{}", if remarks { "*" } else { "" });
    let (place, kind) = (share.cell.lead.subject.place(), &share.cell.lead.side.kind);
    let place = if with_kind { format!("{place}, {kind}") } else { place };
    Row::new(share.cell.workload(), [place, figure(&share.baseline), figure(&share.key), said, grade])
}

/// The figures themselves, where nothing is compared.
fn figures(doc: &mut Document, report: &Report<'_>, most: usize) {
    let rows: Vec<&CellRow> = report.summary.asked_for().collect();
    if rows.is_empty() {
        return;
    }
    let columns = [Column::new("figure", 0).left()];
    let shown = rows.iter().take(most).map(|row| {
        let judged = view::judged(row).map_or_else(|| "–".to_owned(), |(unit, e)| format::estimate(unit, &e));
        Row::new(row.key.as_str(), [judged])
    });
    let table = Table::new("Cell", Layout { fit: &FIT_FIGURES, ..Layout::new(0) }, columns).with(shown);
    doc.put(Table { narrow: "cell".into(), ..table }.into());
    if rows.len() > most {
        doc.put(say((0, 0), format!("… {} more (--verbose)", rows.len() - most)));
    }
    doc.gap();
}

/// The cells that were not measured, by reason, a line each.
fn left_out(doc: &mut Document, summary: &Summary) {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for (_, reason) in view::not_measured(summary) {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, cells)) => *cells += 1,
            None => reasons.push((reason, 1)),
        }
    }
    let pairs: Vec<(In, Text, String)> = reasons
        .iter()
        .take(2)
        .enumerate()
        .map(|(nth, (reason, cells))| {
            let name = if nth == 0 { "Not measured" } else { "" };
            (In::TERMINAL, name.into(), format!("{}: {reason}", count(*cells, "cell")))
        })
        .collect();
    if pairs.is_empty() {
        return;
    }
    doc.put(Block::Pairs(Pairs { indent: 0, width: LEAD, long: Name::Cut, pairs }));
    if reasons.len() > 2 {
        doc.put(say((LEAD, LEAD), format!("… and for {} (--verbose)", count(reasons.len() - 2, "other reason"))));
    }
    doc.gap();
}

/// The findings, the costliest first: title, cause in a sentence, change.
fn found(doc: &mut Document, report: &Report<'_>, most: usize) {
    if report.findings.is_empty() {
        doc.put(say((0, 0), "Findings: none supported by these figures."));
        doc.gap();
        return;
    }
    doc.put(heading(2, "Findings"));
    for (place, found) in report.findings.iter().enumerate().take(most) {
        let title = Text::from(Span::Bold(format!("{}. {}", place + 1, found.title)));
        doc.put(say((0, 3), title.and(Span::Plain(format!(" [{}]", found.severity)))));
        doc.put(say((3, 3), format!("{}: {}", found.subject, sentence(&found.cause))));
        doc.put(say((3, 3), change(&report.findings, place, found)));
        if let Some(proof) = report.proof(found) {
            doc.put(say((3, 3), format!("--prove, run {}: {}", proof.run, proof.verdict)));
        }
    }
    let more = report.findings.len().saturating_sub(most);
    if more > 0 {
        doc.put(say((0, 0), format!("… {} (--verbose)", count(more, "more finding"))));
    }
    doc.gap();
}

fn change(all: &[Finding], place: usize, found: &Finding) -> String {
    match finding::same_change(all, place) {
        Some(first) => format!("Change: as for finding {}.", first + 1),
        None => format!("Change: {}", found.change.what),
    }
}

/// The first sentence of a text.
fn sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

/// What each change of `--like` brought.
fn gains(doc: &mut Document, run: &Run) {
    let gains = like::gains(run);
    if gains.is_empty() {
        return;
    }
    doc.put(heading(2, "With each change, against the set-up as it is"));
    doc.put(list((2, 6), gains.iter().take(GAINS).map(like::Gain::line)));
    if gains.len() > GAINS {
        doc.put(say((2, 2), format!("… {} more (--verbose)", gains.len() - GAINS)));
    }
    doc.gap();
}

/// What a report ends with: what to do next, then the answer: the headlines, and the widest difference between two
/// set-ups.
pub(super) fn closing(doc: &mut Document, report: &Report<'_>, whole: bool) {
    let next = next(report, whole);
    if !next.is_empty() {
        doc.put(say((0, 0), "Next:"));
        let pairs = next.into_iter().map(|(command, what)| (In::TERMINAL, Text::from(command), what.to_owned()));
        let pairs = pairs.collect();
        doc.put(Block::Pairs(Pairs { indent: 2, width: COMMAND, long: Name::Command, pairs }));
        doc.gap();
    }
    let mut pairs: Vec<(In, Text, String)> = Vec::new();
    for (name, of) in view::headlines(&report.summary) {
        let name = fit::name(&name.unwrap_or_else(|| of.nature.heading().to_owned()), MOST_LEAD);
        pairs.push((In::TERMINAL, Text::from(name), headline(report, of)));
        let higher = report.uncapped.as_ref().and_then(|uncapped| uncapped.why_higher(of));
        pairs.extend(higher.map(|why| (In::TERMINAL, Text::default(), why)));
    }
    if pairs.is_empty() {
        doc.put(say((0, 0), report.versus.no_headline(&report.summary)));
    } else {
        let longest = pairs.iter().map(|(_, name, _)| fit::columns(&name.plain())).max().unwrap_or(0);
        doc.put(Block::Pairs(Pairs { indent: 0, width: LEAD.max(longest + 2), long: Name::Pushes, pairs }));
    }
    if let Some(widest) = widest_difference(report.run, &report.summary) {
        doc.gap();
        doc.put(say((0, 2), widest));
    }
}

/// `21 % (18 to 24 %) of this host: virtio-blk,none,native on device, 5 workloads`.
fn headline(report: &Report<'_>, of: &Headline) -> String {
    let (summary, ratio) = (&report.summary, &of.share_ratio);
    let share = format::known_share(ratio, of.converged).replace('–', " to ");
    let share = if of.converged { share } else { format!("so far {share}") };
    let cells: Vec<&Share> = of.cells.iter().filter_map(|key| summary.share(key)).collect();
    let subject = cells.first().map(|first| &first.cell.lead.subject);
    let seen = subject.and_then(|s| Some(format!("{} on {}", s.seen_by()?, s.place())));
    let who = format!("{}, {}", seen.unwrap_or_else(|| of.guest.clone()), count(cells.len(), "workload"));
    let host = summary.environment.modelled.as_ref().map_or_else(|| "this host".to_owned(), ModelledDisk::headline);
    match (summary.environment.cap_ratio, summary.baseline.is_native()) {
        (_, false) => format!("{share} of its baseline: {who}"),
        (None, true) => format!("{share} of {host}: {who}"),
        (Some(cap), true) => {
            let means = if ratio.value >= REACHES {
                format!("at least {:.0} % of {host}", cap * 100.0)
            } else {
                format!("about {} of {host}", format::percent(ratio.value * cap))
            };
            let got = allowed(summary, &cells).map_or_else(String::new, |got| format!("{got}, "));
            format!("{got}{share} of a cap of {:.0} %: {means}; {who}", cap * 100.0)
        }
    }
}

/// `62.0 MB/s of 63.0 MB/s allowed`, of a single workload.
fn allowed(summary: &Summary, shares: &[&Share]) -> Option<String> {
    let [share] = shares else { return None };
    let figure = |key: &str| summary.cell(key).and_then(view::judged).map(|(unit, of)| format::figure(unit, of.value));
    Some(format!("{} of {} allowed", figure(&share.key)?, figure(&share.baseline)?))
}

/// An option of a run with its value, as its command line has it.
fn option(run: &Run, name: &str) -> Vec<String> {
    let words = &run.command;
    let is_joined = |word: &&String| word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
    let apart = words.windows(2).find(|two| two[0] == name).map(<[String]>::to_vec);
    let joined = || words.iter().find(is_joined).map(|word| vec![word.clone()]);
    apart.or_else(joined).unwrap_or_default()
}

/// What to do next: commands to paste, each with what it does; at most three.
pub fn next(report: &Report<'_>, whole: bool) -> Vec<(String, &'static str)> {
    let (run, mut all) = (report.run, Vec::new());
    let id = run.id.to_string();
    // Where the run is stored, and where its targets were made.
    let (state, on) = (option(run, "--state"), option(run, "--on"));
    let command = |words: &[&str], more: &[String]| {
        let words = words.iter().map(|word| (*word).to_owned());
        format::shell(&words.chain(more.iter().chain(&state).cloned()).collect::<Vec<_>>())
    };
    if matches!(run.state, RunState::Interrupted(_)) {
        let again = view::repeat(run);
        let resumes = run.command.iter().any(|word| word == "--resume");
        all.push((if resumes { again } else { format!("{again} --resume") }, "measure the rest"));
    }
    let open = report.findings.iter().find(|f| f.proof.is_some() && report.proof(f).is_none());
    // A device is named again only by who may lose what is on it.
    if let Some(found) = open.filter(|_| !run.command.iter().any(|word| word.starts_with("--device"))) {
        let prove = command(&["vmio", "tax", &format!("--prove={}", found.rule), "--of", &id], &on);
        all.push((prove, "measure that change: before and after"));
    }
    if !whole {
        all.push((command(&["vmio", "runs", "show", &id, "--verbose"], &[]), "every table and setting"));
    }
    let page = format!("run-{id}.html");
    all.push((command(&["vmio", "runs", "show", &id, "--html", &page], &[]), "the same as a page"));
    all.truncate(3);
    all
}
