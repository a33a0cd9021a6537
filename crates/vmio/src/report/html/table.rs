//! The tables of what was measured, with their bars: of disks here, of all else in [`others`].

use vmio_model::stats::Estimate;

use super::{curves, not_converged};
use crate::report::cost;
use crate::report::format::{self, spread, time};
use crate::report::groups::{self, Group, Row};
use crate::report::page::{Html, html};
use crate::report::view;
use crate::report::{Report, svg};

mod others;

/// All that was measured.
pub(super) fn measured(report: &Report<'_>) -> Html {
    let groups = groups::groups(report);
    // A side keeps its colour, dash and marker all over the page; native is the first, wherever it is.
    let plain = groups.iter().flat_map(|g| &g.rows).filter(|r| r.cell.cell.is_native()).map(|r| r.label.as_str());
    let mut series: Vec<&str> = vec![plain.min_by_key(|label| label.len()).unwrap_or("native")];
    for label in groups.iter().flat_map(|g| &g.rows).map(|r| r.label.as_str()) {
        if !series.contains(&label) {
            series.push(label);
        }
    }
    let number = |row: &Row<'_>| series.iter().position(|s| *s == row.label).unwrap_or(0);
    html! {
        @for of_thing in groups.chunk_by(Group::same_thing) {
            h2 { (groups::heading(&of_thing[0], ": ")) }
            @for group in of_thing {
                h3 { (group.workload) @if let Some(about) = group.about_all() { " " span.dim { (about) } } }
                @for about in group.about_each() { p.dim { (about) } }
                @match group.on_disk() {
                    true => { (disk(group, report, &number)) },
                    false => { (others::table(group, report, &number)) },
                }
            }
            (curves::curves(report.run, of_thing, &series))
        }
        @if !groups.is_empty() {
            p.dim { (words(report, &groups)) }
            @for (mark, meaning) in view::legend(&report.summary) {
                p.dim { strong { (mark) } ": " (meaning) "." }
            }
        }
    }
}

/// What the drawings and columns mean.
fn words(report: &Report<'_>, groups: &[Group<'_>]) -> String {
    let mut words =
        "Bars begin at zero; the whisker is the 95 % interval, and a bar without one has too few samples for it. "
            .to_owned();
    words += &view::shares_are(report).replace(" with 95 % intervals", "");
    if groups.iter().any(Group::on_disk) {
        words += " Request size, queue depth and busy are what the backing device saw; avgrq-sz counts sectors of 512 \
            bytes. Queue ";
        words += cost::LOAD;
    }
    if groups.iter().flat_map(|g| &g.rows).any(|row| view::latencies(row.cell)[0].is_some()) {
        words += " ";
        words += view::TIMES;
    }
    words
}

/// The head of a column: what it is, and a small word below.
pub(super) fn column(head: &str, small: &str) -> Html {
    html! { th scope="col" { (head) small { (small) } } }
}

/// The value at the full width of a bar: the highest of the group, its actors' and intervals included.
pub(super) fn scale(group: &Group<'_>) -> f64 {
    let top = |e: &Estimate| e.interval.map_or(e.value, |i| i.high.max(e.value));
    let alike = group.rows.iter().flat_map(|r| &r.beside.actors).filter(|part| part.alike);
    let actors = alike.filter_map(|part| Some(part.judged.as_ref()?.estimate));
    let cells = group.rows.iter().filter_map(|r| view::judged(r.cell)).map(|(_, e)| e);
    cells.chain(actors).map(|e| top(&e)).fold(0.0, f64::max)
}

/// What a row gets of its baseline.
pub(super) fn share(row: &Row<'_>) -> Html {
    html! {
        td {
            @match row.share {
                Some(s) if s.converged => { (format::share(&s.share_ratio)) strong { (view::letter(s)) } },
                Some(s) => { (not_converged()) strong { (view::letter(s)) } },
                None => {},
            }
        }
    }
}

/// The words under a row, if there are any.
pub(super) fn notes(row: &Row<'_>, columns: usize) -> Html {
    let notes = view::notes(row);
    html! {
        @if !notes.is_empty() {
            tr.notes { td colspan=(columns) { (notes.join("; ")) } }
        }
    }
}

/// A table of a disk: its latencies and its device have columns.
fn disk(group: &Group<'_>, report: &Report<'_>, number: &dyn Fn(&Row<'_>) -> usize) -> Html {
    let scale = scale(group);
    let title = group.rows.first().and_then(|r| r.cell.judged()).map(|f| format::title(&f.name, f.unit));
    let title = title.unwrap_or_default();
    let latency = group.rows.iter().any(|r| view::latencies(r.cell)[0].is_some());
    let first = group.rows.iter().any(|r| r.cell.latency_first);
    let times = || html! { (column("p50", "latency")) (column("p99", "latency")) };
    let head = html! {
        @if latency && first { (times()) }
        th scope="col" colspan="2" class="l" { (title) small { "mean, 95 %" } }
        @if report.versus.any() { (column(&report.versus.title(), "95 %")) }
        @if latency && !first { (times()) }
        (column("Request", "avgrq-sz"))
        (column("Depth", "avgqu-sz"))
        (column("Busy", "%util"))
    };
    of_sides(group, &head, |row| line(row, [latency, first, report.versus.any()], scale, number(row)))
}

/// A table with a row or more for each cell of a group, between its side and the number of its samples.
fn of_sides(group: &Group<'_>, head: &Html, rows: impl Fn(&Row<'_>) -> Html) -> Html {
    html! {
        div.scroll tabindex="0" role="region" aria-label={ (group.workload) " on " (groups::on(group)) } {
            table {
                thead { tr { th.l scope="col" { "Side" } (head) (column("n", "samples")) } }
                tbody { @for row in &group.rows { (rows(row)) } }
            }
        }
    }
}

fn line(row: &Row<'_>, [latency, first, compared]: [bool; 3], scale: f64, number: usize) -> Html {
    let cell = row.cell;
    let below = !view::notes(row).is_empty() || !row.beside.actors.is_empty();
    let times = || {
        html! {
            @for e in view::latencies(cell) {
                td { (e.map_or("–".into(), |e| time(e.value))) }
            }
        }
    };
    html! {
        tr class=[below.then_some("has")] {
            th scope="row" { (row.label) }
            @if latency && first { (times()) }
            @if let Some((unit, e)) = view::judged(cell) {
                @let text = format!("{} {}", format::figure(unit, e.value), spread(&e));
                @let title = format!("{}: {text}, {} samples", row.label, e.n);
                td { (text) }
                td.b { (svg::bar(e.value, e.interval, scale, number, &title)) }
            } @else {
                td { "–" }
                td {}
            }
            @if compared { (share(row)) }
            @if latency && !first { (times()) }
            @if let (Some([kib, depth, busy]), Some(device)) = (view::device(cell), cell.device) {
                td {
                    (kib)
                    @if device.request_bytes.value != 0.0 {
                        " KiB (" (format!("{:.0}", device.avgrq_sz_sectors.value)) ")"
                    }
                }
                td { (depth) }
                td { (busy) }
            } @else {
                td colspan="3" class="dim" { "not visible here" }
            }
            td { (cell.samples) }
        }
        (actors(row, [latency, first, compared], scale, number))
        (notes(row, 7 + 2 * usize::from(latency) + usize::from(compared)))
    }
}

/// What each of several actors did, and how evenly.
fn actors(row: &Row<'_>, [latency, first, compared]: [bool; 3], scale: f64, number: usize) -> Html {
    let times = || html! { td {} td {} };
    html! {
        @for line in others::lines(row) {
            tr class=[line.goes_on.then_some("has")] {
                th.dim scope="row" { (line.label) }
                @if latency && first { (times()) }
                (others::figure(line.label, line.shown, line.drawn, scale, number))
                @if compared { td { (line.shown.map_or("", |s| s.share.as_str())) } }
                @if latency && !first { (times()) }
                td colspan="4" {}
            }
        }
    }
}
