//! The report for a terminal, at most [`WIDTH`] columns.

use std::collections::BTreeSet;
use std::fmt::Write;

use vmio_model::figure::Better;
use vmio_model::summary::Comparison;

use super::code::broken;
use super::{Report, by_cell, finding, format, like, paper, scores, view};
use crate::fit;
use crate::term::Style;

mod rows;

/// Columns that no line exceeds, save what has to be pasted.
use crate::fit::WIDTH;

/// The whole report.
pub fn text(report: &Report<'_>, style: Style) -> String {
    let mut out = Out::new(style);
    let summary = &report.summary;
    out.head(report);
    if let Some(statement) = &summary.statement {
        out.paragraph(&style.yellow("! "), 2, statement);
        out.line("");
    }
    scores::text(&mut out, report);
    out.measured(report);
    out.findings(report);
    out.mended(report);
    out.controls(report);
    out.paper(report);
    out.cost(report);
    by_cell::text(report, &mut out);
    out.skipped(report);
    out.line(&style.bold("Where"));
    for (name, value) in view::environment(summary) {
        out.paragraph(&format!("  {name:<22}"), 24, &value);
    }
    out.line("");
    out.line(&style.bold("Again"));
    out.paragraph("  ", 2, &view::repeat(report.run));
    out.text
}

/// Width of a cell in the comparison of two runs.
const CELL: usize = 39;

/// Two runs, as [`vmio_model::summary::compare`] sees them.
pub fn comparison(c: &Comparison, style: Style) -> String {
    let mut out = Out::new(style);
    out.line(&style.bold(&format!("Run {} against run {}", c.b, c.a)));
    match c.differences.is_empty() {
        true => out.line("The environment was the same."),
        false => out.line(&format!(
            "{} Any of these may be the cause of a difference below:",
            style.yellow("Their environments differ.")
        )),
    }
    for d in &c.differences {
        out.paragraph(&format!("  {:<22} ", d.what), 25, &format!("{} -> {}", d.a, d.b));
    }
    out.line("");
    match c.cells.is_empty() {
        true if c.uncompared.is_empty() => out.line("They have no cell in common."),
        true => out.line("No cell that they have in common can be compared."),
        false => out.line(&style.dim(&format!(
            "{:<CELL$}{:<18} {:<19} {:>2}",
            format!("run {} / run {}", c.b, c.a),
            "ratio (95 %)",
            "",
            "n"
        ))),
    }
    for cell in &c.cells {
        let verdict = if cell.differs { style.bold(&cell.verdict) } else { cell.verdict.clone() };
        let fill = " ".repeat(19_usize.saturating_sub(cell.verdict.chars().count()));
        out.labelled(
            &cell.key,
            CELL,
            &format!("{:<18} {verdict}{fill} {:>2}", format::factor(&cell.figure_ratio), cell.figure_ratio.pairs),
        );
    }
    for cell in &c.uncompared {
        out.paragraph("  ", 4, &format!("not compared: {}, by its {}: {}", cell.key, cell.figure, cell.why));
    }
    if c.cells.iter().any(|cell| cell.better == Better::Less) {
        let turned = format!("run {} / run {}", c.a, c.b);
        let names: BTreeSet<&str> =
            c.cells.iter().filter(|cell| cell.better == Better::Less).map(|cell| cell.figure.as_str()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        out.paragraph("", 0, &format!("Of {names} less is better: there it is {turned}, so that above 1 is faster."));
    }
    for (run, keys) in [(c.a, &c.only_a), (c.b, &c.only_b)] {
        for key in keys {
            out.paragraph("  ", 4, &format!("only in run {run}: {key}"));
        }
    }
    out.text
}

/// What is written so far.
pub(super) struct Out {
    pub(super) text: String,
    pub(super) style: Style,
    /// Columns that no line exceeds.
    pub(super) width: usize,
}

impl Out {
    pub(super) fn new(style: Style) -> Out {
        Out { text: String::new(), style, width: WIDTH }
    }

    /// A line. Every line comes by here: what others wrote cannot make more of it than a line of text.
    pub(super) fn line(&mut self, line: &str) {
        let line = self.style.line(line.trim_end());
        let _ = writeln!(self.text, "{line}");
    }

    /// Breaks `text` at spaces; the first line begins with `lead`, the others with `indent` spaces.
    /// `lead` may hold escape sequences: it takes `indent` columns, whatever its length.
    pub(super) fn paragraph(&mut self, lead: &str, indent: usize, text: &str) {
        for (i, line) in fit::lines(text, self.width.saturating_sub(indent)).iter().enumerate() {
            let begin = if i == 0 { lead.to_owned() } else { " ".repeat(indent) };
            self.line(&format!("{begin}{line}"));
        }
    }

    /// A line of code keeps its spaces, and is not broken, so that what is pasted is what is meant: a terminal
    /// that is too narrow wraps it by itself. Comments, and XML between its words, may be broken anywhere.
    pub(super) fn code(&mut self, lead: &str, indent: usize, line: &str) {
        let free = line.trim_start().starts_with(['#', '<']);
        let pieces = if free { broken(line, self.width - indent) } else { vec![line.to_owned()] };
        for (i, piece) in pieces.iter().enumerate() {
            let fill = " ".repeat(indent);
            self.line(&format!("{}{piece}", if i == 0 { lead } else { &fill }));
        }
    }

    fn head(&mut self, report: &Report<'_>) {
        let (run, summary, style) = (report.run, &report.summary, self.style);
        let (state, why) = format::state(&run.state);
        self.line(&style.bold(&format!("vmio run {}: {}", run.id, run.kind)));
        self.line(&style.dim(&format!("{}, {}, {} samples", format::utc(run.started_unix), state, run.samples.len())));
        if let Some(title) = like::title(run) {
            self.paragraph("", 0, title);
        }
        if let Some(why) = why {
            self.paragraph("  ", 2, &format!("This result is partial: {why}"));
        }
        self.line("");
        for (heading, h) in view::headlines(summary) {
            if let Some(heading) = &heading {
                self.line(&style.bold(heading));
            }
            self.paragraph("", 0, &h.text);
            if let Some(about) = &h.about_interval {
                self.paragraph("", 0, about);
            }
            for line in &h.lines {
                self.paragraph("  ", 6, line);
            }
            if heading.is_some() {
                self.line("");
            }
        }
        if summary.headline.is_none() {
            self.paragraph("", 0, &report.versus.no_headline(summary));
        }
        if let Some(told) = &summary.tells_apart {
            self.paragraph("", 0, &told.text);
        }
        self.line("");
    }

    fn mended(&mut self, report: &Report<'_>) {
        let mended = like::mended(report.run);
        if mended.is_empty() {
            return;
        }
        self.line(&self.style.bold("The guest's setup with each change, against it unchanged"));
        for mend in &mended {
            self.paragraph("  ", 6, &mend.line());
        }
        self.line("");
    }

    fn findings(&mut self, report: &Report<'_>) {
        self.line(&self.style.bold("Findings"));
        if !report.findings.is_empty() {
            self.paragraph(
                "  ",
                2,
                "A study measures poor set-ups beside good ones on purpose; each finding names the one it is about.",
            );
        }
        if report.findings.is_empty() {
            self.line("  None supported by these figures.");
        }
        for (i, found) in report.findings.iter().enumerate() {
            finding::text(self, found, &report.shown(i, found));
        }
        self.line("");
    }

    fn controls(&mut self, report: &Report<'_>) {
        let explained = &report.summary.explained;
        if explained.is_empty() {
            return;
        }
        self.line(&self.style.bold("Small requests or virtualisation"));
        self.paragraph("  ", 2, paper::CONTROLS);
        for e in explained {
            self.line(&format!("  {}", e.key));
            for line in paper::text_chain(&report.summary, e) {
                self.line(&line);
            }
            if let Some(product) = paper::product(e) {
                self.paragraph("    ", 4, &product);
            }
            if let Some(doubt) = paper::doubt(e) {
                self.paragraph(&format!("    {} ", self.style.yellow("^")), 6, doubt);
            }
        }
        self.line("");
    }

    fn paper(&mut self, report: &Report<'_>) {
        for (i, table) in report.tables.iter().enumerate() {
            if i == 0 {
                self.line(&self.style.bold("Compared with the paper"));
                self.paragraph("  ", 2, &table.citation);
                self.paragraph("  ", 2, paper::INTRODUCTION);
            }
            self.line(&self.style.bold(&format!("  {}", table.caption.title)));
            if let Some(statement) = &table.statement {
                self.paragraph(&self.style.yellow("  ! "), 4, statement);
            }
            paper::text_table(self, table);
            for reading in &table.readings {
                self.paragraph("  ", 6, &paper::reading(reading));
            }
            for (n, text) in &table.footnotes {
                self.paragraph(&format!("  [{n}] "), 6, text);
            }
            self.line("");
        }
    }

    fn skipped(&mut self, report: &Report<'_>) {
        let all = view::not_measured(&report.summary);
        if all.is_empty() {
            return;
        }
        self.line(&self.style.bold("Not measured"));
        for (key, reason) in all {
            self.paragraph("  ", 4, &format!("{key}: {reason}"));
        }
        self.line("");
    }
}
