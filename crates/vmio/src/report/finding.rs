//! How a finding is shown, the same in the report of a run and in that of a scan: title, severity,
//! cause, the settings it rests on, what the change may bring, the change, and when it takes effect.

use vmio_model::rules::change::Takes;
use vmio_model::rules::{Finding, Severity};

use super::Proved;
use super::page::{Html, chip, html};
use super::text::Out;
use crate::fit;
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

/// The finding as a card of a page.
pub(super) fn html(finding: &Finding, shown: &Shown<'_>) -> Html {
    html! {
        article class={ "card " (finding.severity.name()) } {
            h3 { (shown.number) ". " (finding.title) " " (chip(finding.severity)) }
            p.dim { (finding.subject) }
            p { (finding.cause) }
            dl {
                @if let Some(proof) = shown.proof {
                    dt { "--prove" }
                    dd { strong { (proof.verdict) } " (run " (proof.run) ")" }
                }
                @if !finding.evidence.is_empty() {
                    dt { "Evidence" }
                    dd {
                        ul.plain {
                            @for e in &finding.evidence {
                                li { code { (e.setting) " = " (e.value) } " " span.dim { "read from " (e.from) } }
                            }
                        }
                    }
                }
                @if let Some(expected) = &finding.expected {
                    dt { "Expect" }
                    dd { (expected.text) " " span.dim { (expected.source) } }
                }
                dt { "Change" }
                @match shown.same_change {
                    Some(first) => { dd { "as for finding " (first + 1) } },
                    None => { (change_html(finding, shown)) },
                }
            }
        }
    }
}

fn change_html(finding: &Finding, shown: &Shown<'_>) -> Html {
    let elsewhere: Vec<&str> = shown.elsewhere.iter().map(|(name, _)| *name).collect();
    html! {
        dd { (finding.change.what) " " (takes(finding.change.takes)) }
        (ways(&shown.ways))
        @if let Some(remark) = shown.remark {
            dt {}
            dd.dim { (remark) }
        }
        @if !elsewhere.is_empty() {
            dt {}
            dd {
                details {
                    summary { "The same for " (elsewhere.join(" and ")) }
                    dl { (ways(&shown.elsewhere)) }
                }
            }
        }
        @if !finding.references.is_empty() {
            dt { "See" }
            dd { (finding.references.join("; ")) }
        }
    }
}

/// How a change is made, each way as a block that one click selects whole.
pub(super) fn ways(ways: &[(&str, &str)]) -> Html {
    html! {
        @for (name, how) in ways.iter().filter(|(_, how)| !how.is_empty()) {
            dt { (name) }
            dd { pre.copy { (how) } }
        }
    }
}
