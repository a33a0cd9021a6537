//! The table of what works on no disk: each figure that is compared has a column, each of several actors a row.

use super::super::super::figures::{Part, Shown};
use super::super::super::page::{Html, html};
use super::super::super::view::{Group, Row};
use super::super::super::{Report, format, svg};
use super::{column, notes, scale, share};

/// The table of a group.
pub(super) fn table(group: &Group<'_>, report: &Report<'_>, number: &dyn Fn(&Row<'_>) -> usize) -> Html {
    let (others, compared) = (group.others(), report.versus.any());
    let judged = group.rows.iter().find_map(|row| row.cell.judged());
    let title = judged.map_or_else(String::new, |f| format::title(&f.name, f.unit));
    let mean = if judged.is_some_and(|f| f.p99.is_some()) { "median, 95 %" } else { "mean, 95 %" };
    let of = Columns { others: &others, compared, scale: scale(group) };
    html! {
        div.scroll tabindex="0" role="region" aria-label={ (group.workload) " on " (group.place) } {
            table {
                thead {
                    tr {
                        th.l scope="col" { "Side" }
                        th scope="col" colspan="2" class="l" { (title) small { (mean) } }
                        @if compared { (column(&report.versus.title(), "95 %")) }
                        @for name in &others { (column(&format::capital(name), "mean, 95 %")) }
                        (column("n", "samples"))
                    }
                }
                tbody { @for row in &group.rows { (rows(row, &of, number(row))) } }
            }
        }
    }
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

/// A cell, each of several actors, and what is to be known of it.
fn rows(row: &Row<'_>, of: &Columns<'_>, number: usize) -> Html {
    let judged = row.cell.judged().map(|figure| Shown::of(figure, None));
    let below = !super::view::notes(row).is_empty() || !row.beside.actors.is_empty();
    html! {
        tr class=[below.then_some("has")] {
            th scope="row" { (row.label) }
            (figure(&row.label, judged.as_ref(), true, of.scale, number))
            @if of.compared { (share(row)) }
            (figures(&row.beside.figures, of))
            td { (row.cell.samples) }
        }
        @for part in &row.beside.actors { (actor(part, of, number)) }
        @if let Some(fairness) = &row.beside.fairness {
            tr.has {
                th.dim scope="row" { (fairness.name) }
                (figure(&fairness.name, Some(fairness), false, of.scale, number))
                @if of.compared { td { (fairness.share) } }
                td colspan=(of.others.len() + 1) {}
            }
        }
        (notes(row, of.count()))
    }
}

fn actor(part: &Part, of: &Columns<'_>, number: usize) -> Html {
    html! {
        tr.has {
            th.dim scope="row" { (part.label) }
            (figure(&part.label, part.judged.as_ref(), true, of.scale, number))
            @if of.compared { td { (part.judged.as_ref().map_or("", |judged| judged.share.as_str())) } }
            (figures(&part.beside, of))
            td {}
        }
    }
}

/// A value and its bar.
pub(super) fn figure(label: &str, shown: Option<&Shown>, drawn: bool, scale: f64, number: usize) -> Html {
    html! {
        @match shown {
            Some(shown) => {
                td { (shown.value) }
                td.b {
                    @if drawn {
                        @let e = shown.estimate;
                        @let title = format!("{label}: {}, {} samples", shown.value, e.n);
                        (svg::bar(e.value, e.interval, scale, number, &title))
                    }
                }
            },
            None => { td { "–" } td {} },
        }
    }
}

/// The other figures, each in its column.
fn figures(all: &[Shown], of: &Columns<'_>) -> Html {
    html! {
        @for name in of.others {
            @match all.iter().find(|shown| shown.name == *name) {
                Some(shown) => {
                    td {
                        (shown.value)
                        @if !shown.share.is_empty() { br; span.dim { (shown.share) } }
                    }
                },
                None => { td { "–" } },
            }
        }
    }
}
