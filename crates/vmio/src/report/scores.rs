//! Scores of groups of workloads, with their members, and what a paper has of the same groups, in each form of the report.

use vmio_model::paper::{ScoreJudged, Verdict};
use vmio_model::stats::Ratio;
use vmio_model::summary::scores::{Score, Scores};

use super::markdown::plain;
use super::page::{Html, html};
use super::text::Out;
use super::{Report, format};

/// What stands above them in every form.
const INTRODUCTION: &str = "A group's score is the geometric mean of its members' shares, over the rounds that have all of \
    them, with its 95 % interval; in the whole system's each group weighs alike.";

/// Columns of the names in a terminal.
const NAMES: usize = 32;

/// A line: a group with its members behind it, or the whole.
struct Line {
    name: String,
    share: String,
    /// What of the group was not measured; mostly empty.
    without: String,
    /// What the paper has of it; empty where it has nothing.
    published: String,
    /// Whether it is a member of the group above it.
    member: bool,
}

impl Line {
    /// Its share, and what it is without.
    fn measured(&self) -> String {
        let gap = if self.without.is_empty() { "" } else { ", " };
        format!("{}{gap}{}", self.share, self.without)
    }
}

fn told(ratio: Option<&Ratio>, converged: bool) -> String {
    let share = ratio.map_or_else(|| "not measured".to_owned(), format::share);
    if converged || ratio.is_none() { share } else { format!("{share}, not converged") }
}

fn lines(report: &Report<'_>, scores: &Scores) -> Vec<Line> {
    let of_group = |score: &Score| {
        let published = published(report, &scores.guest).find(|p| p.published.group == score.group);
        let group = Line {
            name: words(&score.group),
            share: told(score.score_ratio.as_ref(), score.converged),
            without: without(score),
            published: published.map_or_else(String::new, beside),
            member: false,
        };
        let member = |m: &vmio_model::summary::scores::Member| Line {
            name: m.workload.clone(),
            share: told(Some(&m.share_ratio), m.converged),
            without: String::new(),
            published: String::new(),
            member: true,
        };
        std::iter::once(group).chain(score.members.iter().map(member)).collect::<Vec<_>>()
    };
    let whole = scores.whole_ratio.as_ref().map(|ratio| Line {
        name: "whole system".into(),
        share: told(Some(ratio), scores.whole_converged),
        without: String::new(),
        published: String::new(),
        member: false,
    });
    scores.groups.iter().flat_map(of_group).chain(whole).collect()
}

fn without(score: &Score) -> String {
    if score.lacks.is_empty() { String::new() } else { format!("without {}", score.lacks.join(", ")) }
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

/// Why what the paper has is decided or not: a sentence for each reason, with the groups that it holds for.
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

fn heading(scores: &Scores) -> String {
    format!("Scores of {}", scores.guest)
}

/// For a terminal.
pub fn text(out: &mut Out, report: &Report<'_>) {
    for scores in &report.summary.scores {
        out.line(&out.style.bold(&heading(scores)));
        out.paragraph("  ", 2, INTRODUCTION);
        for line in lines(report, scores) {
            let name = format!("{}{}", if line.member { "    " } else { "  " }, line.name);
            let published = if line.published.is_empty() { String::new() } else { format!("  {}", line.published) };
            out.labelled(&name, NAMES, &format!("{}{published}", line.share));
            if !line.without.is_empty() {
                out.paragraph("    ", 4, &line.without);
            }
        }
        reasons(report, &scores.guest).iter().for_each(|reason| out.paragraph("  ", 2, reason));
        out.line("");
    }
}

/// As Markdown; empty where there are none.
pub fn markdown(report: &Report<'_>) -> String {
    let table = |scores: &Scores| {
        let published = published(report, &scores.guest).next().is_some();
        let column = |text: &str| if published { format!(" {} |", plain(text)) } else { String::new() };
        let row = |line: &Line| {
            let name = plain(&line.name);
            let name = if line.member { format!("– {name}") } else { format!("**{name}**") };
            format!("| {name} | {} |{}\n", plain(&line.measured()), column(&line.published))
        };
        let rows: String = lines(report, scores).iter().map(row).collect();
        let reasons: String = reasons(report, &scores.guest).iter().map(|r| format!("\n{}\n", plain(r))).collect();
        let dashes = if published { "---|" } else { "" };
        let head = format!("| group | share |{}\n|---|---|{dashes}\n", column("paper"));
        format!("## {}\n\n{}\n\n{head}{rows}{reasons}", plain(&heading(scores)), plain(INTRODUCTION))
    };
    report.summary.scores.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// As HTML; nothing where there are none.
pub fn html_tables(report: &Report<'_>) -> Html {
    html! {
        @for scores in &report.summary.scores {
            h2 { (heading(scores)) }
            p.dim { (INTRODUCTION) }
            @let published = published(report, &scores.guest).next().is_some();
            div.scroll {
                table {
                    thead {
                        tr {
                            th.l scope="col" { "Group" }
                            th.l scope="col" { "Share" }
                            @if published { th.l scope="col" { "Paper" } }
                        }
                    }
                    tbody {
                        @for line in lines(report, scores) {
                            tr {
                                @if line.member {
                                    td.l.dim { "– " (line.name) }
                                } @else {
                                    th scope="row" { (line.name) }
                                }
                                td.l { (line.measured()) }
                                @if published { td.l { (line.published) } }
                            }
                        }
                    }
                }
            }
            @for reason in reasons(report, &scores.guest) { p { (reason) } }
        }
    }
}
