//! The report as one HTML file that loads nothing: style and drawings are inline, and there is no
//! script. Each bar stands in a table row with its figure, so the table is the drawings' text form.

use vmio_model::run::Run;
use vmio_model::summary::Headline;

use super::page::{self, Html, html};
use super::{Report, by_cell, cost, finding, format, like, paper, scores, svg, view};

mod curves;
mod raw;
mod table;

/// The whole page.
pub fn html(report: &Report<'_>) -> String {
    let (run, summary) = (report.run, &report.summary);
    let (state, why) = format::state(&run.state);
    let body = html! {
        p.dim { (format::utc(run.started_unix)) ", " (state) ", " (run.samples.len()) " samples" }
        @if let Some(title) = like::title(run) {
            p { (title) }
        }
        @if let Some(why) = why {
            div.note { p { strong { "This result is partial." } " " (why) } }
        }
        (headline(report))
        @if let Some(statement) = &summary.statement {
            div.note role="note" { p { (statement) } }
        }
        (scores::html_tables(report))
        (findings(report))
        (mended(run))
        (paper::html_tables(report))
        (paper::html_controls(report))
        (table::measured(report))
        (cpu(report))
        (by_cell::page(report))
        @if !summary.skipped.is_empty() {
            h2 { "Not measured" }
            ul { @for (key, reason) in view::not_measured(summary) { li { (key) ": " (reason) } } }
        }
        (environment(report))
        h2 { "Again" }
        pre { (view::repeat(run)) }
        (raw::raw(run))
    };
    page::whole(&format!("vmio run {}: {}", run.id, run.kind), &body)
}

fn mended(run: &Run) -> Html {
    let mended: Vec<String> = like::mended(run).iter().map(like::Mended::line).collect();
    html! {
        @if !mended.is_empty() {
            h2 { "The guest's setup with each change, against it unchanged" }
            (page::list(&mended))
        }
    }
}

fn headline(report: &Report<'_>) -> Html {
    html! {
        (overall(report))
        @if let Some(told) = &report.summary.tells_apart { p { (told.text) } }
    }
}

fn overall(report: &Report<'_>) -> Html {
    html! {
        @for (heading, h) in view::headlines(&report.summary) { (head(report, heading.as_deref(), h)) }
        @if report.summary.headline.is_none() {
            div.head { p { (report.versus.no_headline(&report.summary)) } }
        }
    }
}

fn head(report: &Report<'_>, heading: Option<&str>, h: &Headline) -> Html {
    let ratio = &h.share_ratio;
    // Both with the same decimals.
    let shown = format::share(ratio);
    let (value, interval) = shown.split_once(" (").unwrap_or((&shown, ""));
    let interval = match ratio.told_interval() {
        Some(_) => format!("95 %: {}", interval.trim_end_matches(')')),
        None => "no interval".to_owned(),
    };
    html! {
        div.head {
            div.big {
                @if let Some(heading) = heading { span.nature { (heading) } }
                (value)
                small {
                    (interval) ", " (ratio.pairs) " pairs, " (ratio.boots) " boots "
                    @if !h.converged { (not_converged()) }
                }
            }
            div.what {
                p { (h.text) }
                @if let Some(about) = &h.about_interval { p.dim { (about) } }
                (svg::gauge(ratio.value, ratio.told_interval(), &h.text, report.versus.whole()))
                ul { @for line in &h.lines { li { (line) } } }
            }
        }
    }
}

pub(super) fn not_converged() -> Html {
    html! { span.tag { "not converged" } }
}

fn findings(report: &Report<'_>) -> Html {
    html! {
        h2 { "Findings" }
        @if report.findings.is_empty() {
            p { "None supported by these figures." }
        }
        @for (i, found) in report.findings.iter().enumerate() {
            (finding::html(found, &report.shown(i, found)))
        }
    }
}

fn cpu(report: &Report<'_>) -> Html {
    let rows = cost::rows(report);
    if rows.is_empty() && !report.summary.cells.is_empty() {
        return html! {};
    }
    let [gigabytes, requests, kernel] = cost::counted(rows.iter().copied());
    let idle = cost::any_idle(rows.iter().copied());
    html! {
        h2 { "CPU time" }
        details {
            summary { "CPU seconds of the host, of QEMU by thread role and of the kernel's threads" }
            p.dim { (cost::meaning(report)) }
            div.scroll {
                table {
                    thead {
                        tr {
                            th.l scope="col" { "Cell" }
                            @if gigabytes { th scope="col" { "Host, s/GB" } }
                            @if requests { th scope="col" { "Host, each request" } }
                            @if idle { th scope="col" { "Host idle" } }
                            th.l scope="col" { "QEMU or container, s/GB" }
                            @if kernel { th scope="col" { "Kernel threads, s/GB" } }
                        }
                    }
                    tbody {
                        @for cell in rows {
                            @let [gigabyte, request, roles, threads] = cost::cpu(cell);
                            tr {
                                th scope="row" { (cell.key) }
                                @if gigabytes { td { (gigabyte) } }
                                @if requests { td { (request) } }
                                @if idle { td { (cost::idle(cell)) } }
                                td.l { (roles) }
                                @if kernel { td { (threads) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn environment(report: &Report<'_>) -> Html {
    html! {
        h2 { "Where" }
        div.scroll {
            table.env {
                tbody {
                    @for (name, value) in view::environment(&report.summary) {
                        tr { th scope="row" { (name) } td.l.w { (value) } }
                    }
                    @for (key, settings) in &report.summary.effective {
                        @let list: Vec<String> = settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
                        tr {
                            th scope="row" { (key) br; span.dim { (view::told_by(key)) } }
                            td.l.w { (list.join(", ")) }
                        }
                    }
                }
            }
        }
    }
}
