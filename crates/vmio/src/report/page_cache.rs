//! What the host's page cache held of the disks of each cell's guests, in each form of the report.

use std::fmt::Write;

use vmio_model::stats::Estimate;
use vmio_model::summary::CellRow;

use super::Report;
use super::format;
use super::markdown::plain;
use super::page::{Html, html};
use super::text::Out;

const TITLE: &str = "The host's page cache";

/// What the columns mean.
const MEANING: &str = "What the host's page cache held of the raw storage of the cell's guests when the work began and when it \
    had ended (cachestat), the mean over the samples. What guests take of it the rest of the host has not.";

/// Room of a cell's name in a terminal.
const LABEL: usize = 56;

/// The least that is worth a table: what a host writes to files of its own accord is less.
const LEAST_BYTES: f64 = 1e6;

/// The cells with what was held before and after; none where no guest's disk was in the cache at all.
fn rows<'a>(report: &'a Report<'_>) -> Vec<(&'a CellRow, [String; 2])> {
    let all = || report.summary.cells.iter().filter_map(|row| Some((row, row.page_cache?)));
    let any = all().any(|(_, held)| held.before_bytes.value.max(held.after_bytes.value) >= LEAST_BYTES);
    let bytes = |of: Estimate| format::bytes(of.value as u64);
    let told = |(row, held): (&'a CellRow, vmio_model::summary::PageCache)| {
        (row, [bytes(held.before_bytes), bytes(held.after_bytes)])
    };
    if any { all().map(told).collect() } else { Vec::new() }
}

/// For a terminal.
pub(super) fn text(report: &Report<'_>, out: &mut Out) {
    let rows = rows(report);
    if rows.is_empty() {
        return;
    }
    let line = |before: &str, after: &str| format!("{before:>12}{after:>12}");
    out.title(TITLE);
    out.line(&format!("{:LABEL$}{}", "", line("before", "after")));
    for (row, [before, after]) in &rows {
        out.labelled(&format!("  {}", row.key), LABEL, &line(before, after));
    }
    out.line("");
    out.paragraph("", 0, MEANING);
    out.line("");
}

/// As Markdown; empty where there is nothing to say.
pub(super) fn markdown(report: &Report<'_>) -> String {
    let (rows, mut out) = (rows(report), String::new());
    if !rows.is_empty() {
        let _ = writeln!(out, "\n## {TITLE}\n\n{}\n\n| cell | before | after |\n|---|--:|--:|", plain(MEANING));
    }
    for (row, [before, after]) in rows {
        let _ = writeln!(out, "| {} | {before} | {after} |", plain(&row.key));
    }
    out
}

/// As a part of a page.
pub(super) fn page(report: &Report<'_>) -> Html {
    let rows = rows(report);
    html! {
        @if !rows.is_empty() {
            h2 { (TITLE) }
            p.dim { (MEANING) }
            div.scroll {
                table {
                    thead { tr { th.l scope="col" { "Cell" } th scope="col" { "Before" } th scope="col" { "After" } } }
                    tbody {
                        @for (row, [before, after]) in &rows {
                            tr { th scope="row" { (row.key) } td { (before) } td { (after) } }
                        }
                    }
                }
            }
        }
    }
}
