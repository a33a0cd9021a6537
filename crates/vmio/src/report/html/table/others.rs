//! The table of what works on no disk: each figure that is compared has a column, each of several actors a row.

use super::{column, notes, of_sides, scale, share};
use vmio_model::figure::Form;

use crate::report::figures::{Part, Shown};
use crate::report::groups::{Group, Row};
use crate::report::page::{Html, html};
use crate::report::view;
use crate::report::{Report, format, svg};

/// The table of a group.
pub(super) fn table(group: &Group<'_>, report: &Report<'_>, number: &dyn Fn(&Row<'_>) -> usize) -> Html {
    let (others, compared) = (group.others(), report.versus.any());
    let judged = group.rows.iter().find_map(|row| row.cell.judged());
    let title = judged.map_or_else(String::new, |f| format::title(&f.name, f.unit));
    let mean = word(judged.is_some_and(|f| f.form == Form::Distribution));
    let of = Columns { others: &others, compared, scale: scale(group) };
    let head = html! {
        th scope="col" colspan="2" class="l" { (title) small { (mean) } }
        @if compared { (column(&report.versus.title(), "95 %")) }
        @for name in &others { (column(&format::capital(name), of_what(group, name))) }
    };
    of_sides(group, &head, |row| rows(row, &of, number(row)))
}

/// What a column shows.
fn word(of_distributions: bool) -> &'static str {
    if of_distributions { "p50, 95 %" } else { "mean, 95 %" }
}

fn of_what(group: &Group<'_>, name: &str) -> &'static str {
    let of = |row: &Row<'_>| row.beside.figures.iter().any(|shown| shown.name == name && shown.p99.is_some());
    let of_actor =
        |row: &Row<'_>| row.beside.actors.iter().flat_map(|p| &p.beside).any(|s| s.name == name && s.p99.is_some());
    word(group.rows.iter().any(|row| of(row) || of_actor(row)))
}

/// The columns of a table.
struct Columns<'a> {
    /// Names of the figures beside the one that is judged.
    others: &'a [&'a str],
    /// Whether there is one of shares.
    compared: bool,
    /// The value at the full width of a bar.
    scale: f64,
}

impl Columns<'_> {
    fn count(&self) -> usize {
        4 + self.others.len() + usize::from(self.compared)
    }
}

/// A line below a cell: one of its actors, or how evenly they did.
pub(super) struct Line<'a> {
    /// What it is.
    pub label: &'a str,
    /// What it is judged by.
    pub shown: Option<&'a Shown>,
    /// Whether that has a bar beside the cell's.
    pub drawn: bool,
    /// Its other figures.
    beside: &'a [Shown],
    /// Whether something about the same cell stands below.
    pub goes_on: bool,
}

/// The lines below a cell.
pub(super) fn lines<'a>(row: &'a Row<'_>) -> Vec<Line<'a>> {
    let (label, shown) = (|part: &'a Part| part.label.as_str(), |part: &'a Part| part.judged.as_ref());
    let line = |label, shown, drawn, beside| Line { label, shown, drawn, beside, goes_on: true };
    let actors = row.beside.actors.iter().map(|part| line(label(part), shown(part), part.alike, &*part.beside));
    let fairness = row.beside.fairness.iter().map(|shown| line(&*shown.name, Some(shown), false, &[]));
    let mut all: Vec<Line<'_>> = actors.chain(fairness).collect();
    if let Some(last) = all.last_mut() {
        last.goes_on = !view::notes(row).is_empty();
    }
    all
}

/// A cell, each of several actors, and what is to be known of it.
fn rows(row: &Row<'_>, of: &Columns<'_>, number: usize) -> Html {
    let judged = row.cell.judged().map(|figure| Shown::of(figure, None));
    let below = !view::notes(row).is_empty() || !row.beside.actors.is_empty();
    html! {
        tr class=[below.then_some("has")] {
            th scope="row" { (row.label) }
            (figure(&row.label, judged.as_ref(), true, of.scale, number))
            @if of.compared { (share(row)) }
            (figures(&row.beside.figures, of))
            td { (row.cell.samples) }
        }
        @for line in lines(row) {
            tr class=[line.goes_on.then_some("has")] {
                th.dim scope="row" { (line.label) }
                (figure(line.label, line.shown, line.drawn, of.scale, number))
                @if of.compared { td { (line.shown.map_or("", |s| s.share.as_str())) } }
                (figures(line.beside, of))
                td {}
            }
        }
        (notes(row, of.count()))
    }
}

/// A value and its bar.
pub(super) fn figure(label: &str, shown: Option<&Shown>, drawn: bool, scale: f64, number: usize) -> Html {
    html! {
        @match shown {
            Some(shown) => {
                td { (value(shown)) }
                td.b {
                    @if drawn {
                        @let e = shown.estimate;
                        @let title = format!("{label}: {}, {} samples", shown.text(), e.n);
                        (svg::bar(e.value, e.interval, scale, number, &title))
                    }
                }
            },
            None => { td { "–" } td {} },
        }
    }
}

/// A value, with its 99th percentile below.
fn value(shown: &Shown) -> Html {
    html! {
        (shown.value)
        @if let Some(p99) = &shown.p99 { br; "p99 " (p99) }
    }
}

/// The other figures, each in its column.
fn figures(all: &[Shown], of: &Columns<'_>) -> Html {
    html! {
        @for name in of.others {
            td {
                @match all.iter().find(|shown| shown.name == *name) {
                    Some(shown) => {
                        (value(shown))
                        @if !shown.share.is_empty() { br; span.dim { (shown.share) } }
                    },
                    None => { "–" },
                }
            }
        }
    }
}
