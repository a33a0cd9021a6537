//! How a finding is shown, the same in the report of a run and in that of a scan: title, severity,
//! cause, the settings it rests on, what the change may bring, the change, and when it takes effect.

use std::fmt::Write;

use vmio_model::rules::change::Takes;
use vmio_model::rules::{Finding, Severity};

use super::Proved;
use super::fit;
use super::html::{chip, escape};
use super::text::Out;
use crate::term::Style;

/// What a report knows beside the finding itself.
pub(super) struct Shown<'a> {
    /// Its place in the list, from 1.
    pub number: usize,
    /// The ways to make the change that are shown, the reader's own first.
    pub ways: Vec<(&'static str, &'a str)>,
    /// The other ways, which a page shows on request.
    pub elsewhere: Vec<(&'static str, &'a str)>,
    /// What must be known of those ways.
    pub remark: Option<&'static str>,
    /// The earlier finding that asks for the very same change.
    pub same_change: Option<usize>,
    /// What `--prove` showed.
    pub proof: Option<&'a Proved>,
}

impl<'a> Shown<'a> {
    /// A finding with all ways to make its change.
    pub fn whole(number: usize, finding: &'a Finding) -> Self {
        Shown {
            number,
            ways: finding.change.ways(),
            elsewhere: Vec::new(),
            remark: None,
            same_change: None,
            proof: None,
        }
    }
}

/// The earlier finding of a list (its place) that asks for the very same change as the one at
/// `place`, so that the change is shown once.
pub(super) fn same_change(findings: &[Finding], place: usize) -> Option<usize> {
    let (before, rest) = findings.split_at(place);
    before.iter().position(|f| f.rule == rest[0].rule && f.change == rest[0].change)
}

/// When a change takes effect, as a sentence.
pub fn takes(takes: Takes) -> &'static str {
    match takes {
        Takes::NextStart => {
            "Takes effect after the guest is shut down and started (a reboot inside the guest is not enough)."
        }
        Takes::ShutDown => "Make this change while the guest is shut down.",
        Takes::Running => "Takes effect at once, while the guest runs.",
        Takes::InGuest => "Make this change in the guest, or in the application that runs in it.",
    }
}

/// The word for a severity in its colour.
pub fn severity(severity: Severity, style: Style) -> String {
    match severity {
        Severity::Severe => style.red(severity.name()),
        Severity::Warning => style.yellow(severity.name()),
        _ => severity.name().to_owned(),
    }
}

/// The settings that a finding rests on, those of one place together: `driver = ahci, cache = none`.
fn by_place(finding: &Finding) -> Vec<(&str, String)> {
    let mut places: Vec<(&str, String)> = Vec::new();
    for e in &finding.evidence {
        let setting = format!("{} = {}", e.setting, e.value);
        match places.iter_mut().find(|(from, _)| *from == e.from) {
            Some((_, all)) => *all += &format!(", {setting}"),
            None => places.push((&e.from, setting)),
        }
    }
    places
}

/// `1, 2 and 5` of places in a list.
pub(super) fn numbers(places: &[usize]) -> String {
    let numbers: Vec<String> = places.iter().map(|place| (place + 1).to_string()).collect();
    match numbers.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => numbers.concat(),
    }
}

/// The finding for a terminal.
pub(super) fn text(out: &mut Out, finding: &Finding, shown: &Shown<'_>) {
    let style = out.style;
    let level = severity(finding.severity, style);
    let (number, title) = (format!("{}. ", shown.number), &finding.title);
    let whole = format!("{number}{title} [{}, {}]", finding.severity, finding.rule);
    match fit::columns(&whole) <= out.width {
        true => out.line(&format!("{number}{} [{level}, {}]", style.bold(title), finding.rule)),
        false => out.paragraph("", 3, &whole),
    }
    out.paragraph("   ", 3, &format!("{}: {}", finding.subject, finding.cause));
    for (from, settings) in by_place(finding) {
        out.paragraph("   ", 5, &format!("{settings} (read from {from})"));
    }
    if let Some(expected) = &finding.expected {
        out.paragraph("   ", 5, &format!("Expect: {} ({})", expected.text, expected.source));
    }
    match shown.same_change {
        Some(first) => out.line(&format!("   Change: as for finding {}.", first + 1)),
        None => change(out, finding, shown),
    }
    if let Some(proof) = shown.proof {
        out.paragraph("   ", 3, &format!("--prove, run {}: {}", proof.run, proof.verdict));
    }
}

fn change(out: &mut Out, finding: &Finding, shown: &Shown<'_>) {
    let change = &finding.change;
    out.paragraph("   ", 3, &format!("Change: {}", change.what));
    made(out, change.takes, &shown.ways, shown.remark);
    if !finding.references.is_empty() {
        out.paragraph("   ", 5, &format!("See: {}", finding.references.join("; ")));
    }
}

/// How a change is made, and when it is in force.
pub(super) fn made(out: &mut Out, when: Takes, ways: &[(&str, &str)], remark: Option<&str>) {
    for (name, how) in ways {
        for (i, line) in how.lines().enumerate() {
            let lead = format!("     {:<9}", if i == 0 { name } else { "" });
            let lead = out.style.cyan(&lead);
            out.code(&lead, 14, line);
        }
    }
    if let Some(remark) = remark {
        out.paragraph("   ", 3, remark);
    }
    out.paragraph("   ", 3, takes(when));
}

macro_rules! put {
    ($page:expr, $($arg:tt)*) => { let _ = write!($page, $($arg)*); };
}

/// The finding as a card of a page.
pub(super) fn html(page: &mut String, finding: &Finding, shown: &Shown<'_>) {
    put!(
        page,
        "<article class=\"card {0}\"><h3>{1}. {2} {chip}</h3><p class=\"dim\">{3}</p><p>{4}</p><dl>",
        finding.severity.name(),
        shown.number,
        escape(&finding.title),
        escape(&finding.subject.to_string()),
        escape(&finding.cause),
        chip = chip(finding.severity)
    );
    if let Some(proof) = shown.proof {
        put!(page, "<dt>--prove</dt><dd><strong>{}</strong> (run {})</dd>", escape(&proof.verdict), proof.run);
    }
    if !finding.evidence.is_empty() {
        *page += "<dt>Evidence</dt><dd><ul class=\"plain\">";
        for e in &finding.evidence {
            let (setting, value, from) = (escape(&e.setting), escape(&e.value), escape(&e.from));
            put!(page, "<li><code>{setting} = {value}</code> <span class=\"dim\">read from {from}</span></li>");
        }
        *page += "</ul></dd>";
    }
    if let Some(expected) = &finding.expected {
        let (text, source) = (escape(&expected.text), escape(&expected.source));
        put!(page, "<dt>Expect</dt><dd>{text} <span class=\"dim\">{source}</span></dd>");
    }
    if let Some(first) = shown.same_change {
        put!(page, "<dt>Change</dt><dd>as for finding {}</dd></dl></article>\n", first + 1);
        return;
    }
    put!(page, "<dt>Change</dt><dd>{} {}</dd>", escape(&finding.change.what), takes(finding.change.takes));
    shown.ways.iter().for_each(|(name, how)| way(page, name, how));
    if let Some(remark) = shown.remark {
        put!(page, "<dt></dt><dd class=\"dim\">{}</dd>", escape(remark));
    }
    if !shown.elsewhere.is_empty() {
        let names: Vec<&str> = shown.elsewhere.iter().map(|(name, _)| *name).collect();
        put!(page, "<dt></dt><dd><details><summary>The same for {}</summary><dl>", names.join(" and "));
        shown.elsewhere.iter().for_each(|(name, how)| way(page, name, how));
        *page += "</dl></details></dd>";
    }
    if !finding.references.is_empty() {
        put!(page, "<dt>See</dt><dd>{}</dd>", escape(&finding.references.join("; ")));
    }
    *page += "</dl></article>\n";
}

/// How a change is made, as a block that one click selects whole.
pub(super) fn way(page: &mut String, name: &str, how: &str) {
    if !how.is_empty() {
        put!(page, "<dt>{name}</dt><dd><pre class=\"copy\">{}</pre></dd>", escape(how));
    }
}
