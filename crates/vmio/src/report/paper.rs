//! A paper's tables with this run's figures beside the published ones, and what control cells
//! say, in each form of the report.

use std::fmt::Write;

use vmio_model::figure::Unit;
use vmio_model::paper::{Ours, Reading, Table, TableRow};
use vmio_model::stats::{Estimate, Ratio};
use vmio_model::summary::explain::{Asked, Differs};
use vmio_model::summary::{Explanation, Summary};

use super::Report;
use super::format::{self, spread, three};
use super::markdown::plain;
use super::page::{Html, html};
use super::text::Out;
use super::view;
use crate::fit;

/// Columns of a paper's table.
const COLUMNS: [&str; 4] = ["MB/s", "avgrq-sz", "avgqu-sz", "%util"];

/// What stands above the tables in every form.
pub const INTRODUCTION: &str = "Published figures, and those of this run as the mean with the half width of its 95 % \
    interval. MB/s: as the application saw it. avgrq-sz (sectors of 512 bytes), avgqu-sz (requests) and %util: at the \
    host's disk. *: Eucalyptus' default setup.";

/// The same for control cells.
pub const CONTROLS: &str = "Guests whose requests reached the disk smaller than native ones. Each row of a chain changes one \
    thing, and its ratio is of its bandwidth to that of the row above: the workload natively; the requests that reached the \
    disk of it, by fio, natively (another program); the same at the guest's size; at its queue depth; the very same job in \
    the guest (virtualisation, or emulation where the guest's processor was emulated); the workload in the guest (another \
    program again). The losses above the guest's first row would occur without any guest. All ratios of a chain are of the \
    same rounds, so they multiply up to the guest's share in those.";

fn published(row: &TableRow) -> [String; 4] {
    let or_dash = |x: Option<f64>| x.map_or("–".to_owned(), plain_number);
    let p = &row.published;
    [plain_number(p.bandwidth_mb_s), or_dash(p.avgrq_sz_sectors), or_dash(p.avgqu_sz_requests), or_dash(p.util_percent)]
}

/// A published figure as it was printed: no digit more.
fn plain_number(x: f64) -> String {
    format!("{x}")
}

fn ours(row: &Ours) -> [String; 4] {
    let of = |e: Option<Estimate>, factor: f64| {
        e.map_or("not visible".to_owned(), |e| {
            let spread = if e.interval.is_some() { spread(&e) } else { "±?".into() };
            format!("{} {spread}", three(e.value * factor))
        })
    };
    [
        of(Some(row.bandwidth_bytes_per_second), 1e-6),
        of(row.avgrq_sz_sectors, 1.0),
        of(row.avgqu_sz_requests, 1.0),
        of(row.util_ratio, 100.0),
    ]
}

/// What we take a word of the paper for.
pub fn reading(reading: &Reading) -> String {
    format!("Our reading of \"{}\": {}.", reading.word, reading.taken_for)
}

/// What was measured here of a row: more than one line where the paper leaves open which cache mode it had.
fn here(row: &TableRow) -> impl Iterator<Item = &Ours> {
    row.ours.iter().chain(&row.other_modes)
}

/// A word, with the cache mode where there are several.
fn mode(word: &str, row: &TableRow, found: &Ours) -> String {
    match found.cache {
        Some(cache) if !row.other_modes.is_empty() => format!("{word}, {cache}"),
        _ => word.to_owned(),
    }
}

fn why_not(row: &TableRow) -> String {
    format!("not run: {}", row.not_run.as_deref().unwrap_or("reason unknown"))
}

/// The paper's words for a row, default and footnotes marked.
fn names(row: &TableRow) -> [String; 3] {
    let p = &row.published;
    let star = if p.eucalyptus_default { "*" } else { "" };
    let notes: String = p.notes.iter().map(|n| format!("[{n}]")).collect();
    let gap = if notes.is_empty() { "" } else { " " };
    [p.vmm.clone(), format!("{}{star}", p.target), format!("{}{gap}{notes}", p.driver)]
}

/// A row of a chain of control cells.
pub struct ChainRow {
    /// What runs.
    pub label: String,
    /// Bandwidth with its interval.
    pub bandwidth: String,
    /// Request size and queue depth at the disk.
    pub device: [String; 2],
    /// What differs from the row above, and what that does; empty in the first row.
    pub step: [String; 2],
}

/// The chain from native to a guest.
pub fn chain(summary: &Summary, e: &Explanation) -> Vec<ChainRow> {
    let row = |key: &str, label: String, step: &str, ratio: Option<&Option<Ratio>>| {
        let cell = summary.cell(key);
        let device = cell.and_then(view::device).map_or(["–".into(), "–".into()], |[kib, depth, _]| [kib, depth]);
        let ratio = ratio.map(|r| r.as_ref().map_or("not measured".into(), format::factor));
        ChainRow {
            label,
            bandwidth: cell.map_or("–".into(), |c| {
                c.disk.as_ref().map_or("–".into(), |disk| {
                    let bandwidth = &disk.bandwidth_bytes_per_second;
                    format!("{} {}", format::figure(Unit::BytesPerSecond, bandwidth.value), spread(bandwidth))
                })
            }),
            device,
            step: [step.to_owned(), ratio.unwrap_or_default()],
        }
    };
    let job = |side: &str, asked: &Asked| format!("{side}, {} × {}", format::bytes(asked.request_bytes), asked.depth);
    let workload = e.cell.workload();
    let mut rows = Vec::new();
    if let Some(first) = e.links.first() {
        rows.push(row(&first.from, format!("native, {workload}"), "", None));
    }
    let asked: Vec<&Asked> = [Some(&e.reference), Some(&e.size), e.depth.as_ref()].into_iter().flatten().collect();
    for link in &e.links {
        let label = match asked.iter().find(|asked| asked.key == link.to) {
            Some(asked) => job("native", asked),
            None if link.to == e.key => format!("guest, {workload}"),
            None => job("guest", e.nearest()),
        };
        let step = match link.differs {
            Differs::Program => "program",
            Differs::Size => "small requests",
            Differs::Depth => "shallow queue",
            Differs::Virtualisation if summary.emulated => "emulated (TCG)",
            Differs::Virtualisation => "virtualisation",
            Differs::Rest => "guest, program",
        };
        rows.push(row(&link.to, label, step, Some(&link.ratio)));
    }
    rows
}

/// What the links make together.
pub fn product(e: &Explanation) -> Option<String> {
    let share = e.share_ratio.filter(|_| e.is_whole())?;
    let rounds = e.rounds();
    let s = if rounds == 1 { "" } else { "s" };
    Some(format!(
        "Together: {} of native, the share in the {rounds} round{s} that have them all.",
        format::factor(&share)
    ))
}

/// What must be known before a chain is believed.
pub fn doubt(e: &Explanation) -> Option<&'static str> {
    (!e.links_enough).then_some("fewer pairs than the study requires: these ratios are not final")
}

/// The rows of a table for a terminal: what is published, and below it what was measured here.
pub fn text_table(out: &mut Out, table: &Table) {
    let line = |what: &str, cells: &[String; 4]| {
        let [a, b, c, d] = cells.each_ref().map(|cell| cell.replace(" %", "%"));
        format!("      {what:<18}{a:>12}{b:>12}{c:>12}{d:>12}")
    };
    out.line(&format!("  VMM, target, driver{}", &line("", &COLUMNS.map(str::to_owned))[21..]));
    for row in &table.rows {
        out.line(&format!("  {}", names(row).join(", ")));
        out.line(&line("published", &published(row)));
        if row.ours.is_none() {
            out.paragraph("      here    ", 14, &why_not(row));
        }
        for found in here(row) {
            out.line(&line(&mode("here", row, found), &ours(found)));
        }
    }
}

/// Lines of a chain for a terminal.
pub fn text_chain(summary: &Summary, e: &Explanation) -> Vec<String> {
    let line = |label: &str, [bandwidth, kib, depth, step, ratio]: [&str; 5]| {
        // Narrow: no space before the percent sign.
        let bandwidth = bandwidth.replace(" %", "%");
        format!("  {label:<19}{bandwidth:>16}{kib:>6}{depth:>5} {step:<15}{ratio}")
    };
    let mut lines = vec![line("", ["bandwidth", "KiB", "qd", "", "of row above"])];
    for r in chain(summary, e) {
        let ([kib, depth], [step, ratio]) = (&r.device, &r.step);
        let label = if fit::columns(&r.label) > 19 {
            lines.push(format!("  {}", r.label));
            ""
        } else {
            &r.label
        };
        lines.push(line(label, [&r.bandwidth, kib, depth, step, ratio]));
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Both sections as Markdown.
pub fn markdown(report: &Report<'_>) -> String {
    let mut out = String::new();
    if !report.summary.explained.is_empty() {
        let _ = writeln!(out, "## Small requests or virtualisation\n\n{}\n", plain(CONTROLS));
    }
    for e in &report.summary.explained {
        let _ = writeln!(out, "### {}\n\n{}\n", plain(&e.key), plain(&e.why));
        if let Some(doubt) = doubt(e) {
            let _ = writeln!(out, "**{doubt}**\n");
        }
        out += "| | bandwidth (95 %) | KiB per request at the disk | depth | what differs | of the row above (95 %) |\n|---|--:|--:|--:|---|--:|\n";
        for row in chain(&report.summary, e) {
            let [kib, depth] = &row.device;
            let _ = writeln!(
                out,
                "| {} | {} | {kib} | {depth} | {} | {} |",
                row.label, row.bandwidth, row.step[0], row.step[1]
            );
        }
        out.push('\n');
        if let Some(product) = product(e) {
            let _ = writeln!(out, "{}\n", plain(&product));
        }
    }
    for (i, table) in report.tables.iter().enumerate() {
        if i == 0 {
            let _ =
                writeln!(out, "## Compared with the paper\n\n{}\n\n{}\n", plain(&table.citation), plain(INTRODUCTION));
        }
        let _ = writeln!(out, "### {}\n", plain(&table.caption.title));
        if let Some(statement) = &table.statement {
            let _ = writeln!(out, "> **Note.** {}\n", plain(statement));
        }
        let heads = |which: &str| COLUMNS.map(|c| format!("{c}, {which}")).join(" | ");
        let _ = writeln!(
            out,
            "| VMM | Target | Driver | {} | {} |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
            heads("published"),
            heads("here")
        );
        for row in &table.rows {
            let [vmm, target, driver] = names(row).map(|n| plain(&n));
            let published = published(row).join(" | ");
            if row.ours.is_none() {
                let _ = writeln!(out, "| {vmm} | {target} | {driver} | {published} | {} | | | |", plain(&why_not(row)));
            }
            for found in here(row) {
                let (driver, here) = (mode(&driver, row, found), ours(found).join(" | "));
                let _ = writeln!(out, "| {vmm} | {target} | {driver} | {published} | {here} |");
            }
        }
        out.push('\n');
        for reading in &table.readings {
            let _ = writeln!(out, "- {}", plain(&self::reading(reading)));
        }
        for (n, text) in &table.footnotes {
            let _ = writeln!(out, "- {}", plain(&format!("[{n}] {text}")));
        }
        out.push('\n');
    }
    out
}

/// What control cells say, as HTML.
pub fn html_controls(report: &Report<'_>) -> Html {
    html! {
        @if !report.summary.explained.is_empty() {
            h2 { "Small requests or virtualisation" }
            p { (CONTROLS) }
        }
        @for e in &report.summary.explained {
            h3 {
                (e.key)
                @if let Some(doubt) = doubt(e) { " " span.tag { (doubt) } }
            }
            p.dim { (e.why) }
            div.scroll tabindex="0" role="region" aria-label={ "Chain to " (e.key) } {
                table {
                    thead {
                        tr {
                            th.l scope="col" { "Cell" }
                            th scope="col" { "Bandwidth" small { "mean, 95 %" } }
                            th scope="col" { "Request" small { "KiB at the disk" } }
                            th scope="col" { "Depth" small { "avgqu-sz" } }
                            th.l scope="col" { "What differs" }
                            th scope="col" { "Of the row above" small { "95 %" } }
                        }
                    }
                    tbody {
                        @for row in chain(&report.summary, e) {
                            tr {
                                th scope="row" { (row.label) }
                                td { (row.bandwidth) }
                                @for figure in &row.device { td { (figure) } }
                                td.l { (row.step[0]) }
                                td { (row.step[1]) }
                            }
                        }
                    }
                }
            }
            @if let Some(product) = product(e) { p.dim { (product) } }
        }
    }
}

/// The paper's tables, as HTML.
pub fn html_tables(report: &Report<'_>) -> Html {
    html! {
        @if let Some(first) = report.tables.first() {
            h2 { "Compared with the paper" }
            p { (first.citation) }
            p.dim { (INTRODUCTION) }
        }
        @for table in &report.tables {
            h3 { (table.caption.title) }
            @if let Some(statement) = &table.statement {
                div.note role="note" { p { (statement) } }
            }
            (html_table(table))
            @for of in &table.readings {
                p.dim { (reading(of)) }
            }
            @for (n, text) in &table.footnotes {
                p.dim { "[" (n) "] " (text) }
            }
        }
    }
}

/// The first of what was measured here is set apart from what was published.
fn apart(column: usize) -> Option<&'static str> {
    (column == 0).then_some("here")
}

fn html_table(table: &Table) -> Html {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(table.caption.title) {
            table.beside {
                thead {
                    tr {
                        @for head in ["VMM", "Target", "Driver"] {
                            th.l scope="col" rowspan="2" { (head) }
                        }
                        th scope="colgroup" colspan="4" { "Published" }
                        th.here scope="colgroup" colspan="4" { "Here" }
                    }
                    tr {
                        @for column in COLUMNS { th scope="col" { (column) } }
                        @for (n, column) in COLUMNS.iter().enumerate() {
                            th scope="col" class=[apart(n)] { (column) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        @let [vmm, target, driver] = names(row);
                        @if row.ours.is_none() {
                            tr {
                                th scope="row" { (vmm) }
                                td.l { (target) }
                                td.l { (driver) }
                                @for cell in published(row) { td { (cell) } }
                                td colspan="4" class="l w here dim" { (why_not(row)) }
                            }
                        }
                        @for found in here(row) {
                            tr {
                                th scope="row" { (vmm) }
                                td.l { (target) }
                                td.l { (mode(&driver, row, found)) }
                                @for cell in published(row) { td { (cell) } }
                                @for (n, cell) in ours(found).iter().enumerate() { td class=[apart(n)] { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
