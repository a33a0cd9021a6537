//! The report as one HTML file that loads nothing: style and drawings are inline, and there is no
//! script. Each bar stands in a table row with its figure, so the table is the drawings' text form.

use vmio_model::result::{Run, Sample, WorkloadResult};
use vmio_model::stats::{Estimate, median};

use super::format::{self, spread, time};
use super::page::{self, Html, html};
use super::view::{self, Group, Row};
use super::{Report, finding, like, paper, svg};

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
        (findings(report))
        (mended(run))
        (paper::html_tables(report))
        (paper::html_controls(report))
        (measured(report))
        (cpu(report))
        @if !summary.skipped.is_empty() {
            h2 { "Not measured" }
            ul { @for s in &summary.skipped { li { (s.cell.key()) ": " (s.reason) } } }
        }
        (environment(report))
        h2 { "Again" }
        pre { (view::repeat(run)) }
        (raw(run))
    };
    page::whole(&format!("vmio run {}: {}", run.id, run.study), &body)
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
    let Some(h) = &report.summary.headline else {
        return html! { div.head { p { (view::no_headline(&report.summary)) } } };
    };
    let ratio = &h.share_ratio;
    let interval = ratio.interval.map_or("no interval".into(), |_| format!("95 %: {}", inner(&format::share(ratio))));
    html! {
        div.head {
            div.big {
                (format::percent(ratio.value))
                small {
                    (interval) ", " (ratio.pairs) " pairs, " (ratio.boots) " boots "
                    @if !h.converged { (not_converged()) }
                }
            }
            div.what {
                p { (h.text) }
                (svg::gauge(ratio.value, ratio.interval, &h.text))
                ul { @for line in &h.lines { li { (line) } } }
            }
        }
    }
}

fn not_converged() -> Html {
    html! { span.tag { "not converged" } }
}

/// The part in brackets: `44 % (41–47 %)` to `41–47 %`.
fn inner(text: &str) -> &str {
    text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(text)
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

fn measured(report: &Report<'_>) -> Html {
    let groups = view::groups(report.run, &report.summary);
    // A side keeps its colour, dash and marker all over the page; native is the first.
    let mut series: Vec<&str> = vec!["native"];
    for label in groups.iter().flat_map(|g| &g.rows).map(|r| r.label.as_str()) {
        if !series.contains(&label) {
            series.push(label);
        }
    }
    let number = |row: &Row<'_>| series.iter().position(|s| *s == row.label).unwrap_or(0);
    html! {
        @for of_target in groups.chunk_by(|a, b| a.place == b.place) {
            h2 { (view::heading(&of_target[0], ": ")) }
            @for group in of_target {
                h3 { (group.workload) " " span.dim { (group.about) } }
                (table(group, &number))
            }
            (curves(report.run, of_target, &series))
        }
        @if !groups.is_empty() {
            p.dim {
                "Bars begin at zero; the whisker is the 95 % interval of the mean, and a bar without one has too \
                 few samples for it. Shares are geometric means of guest/native pairs. Request size, queue depth and \
                 busy are what the backing device saw; avgrq-sz counts sectors of 512 bytes."
            }
            @for (mark, meaning) in view::legend(&report.summary) {
                p.dim { strong { (mark) } ": " (meaning) "." }
            }
        }
    }
}

/// The head of a column: what it is, and a small word below.
fn column(head: &str, small: &str) -> Html {
    html! { th scope="col" { (head) small { (small) } } }
}

fn table(group: &Group<'_>, number: &dyn Fn(&Row<'_>) -> usize) -> Html {
    let top = |e: &Estimate| e.interval.map_or(e.value, |i| i.high.max(e.value));
    let scale = group.rows.iter().filter_map(|r| view::judged(r.cell)).map(|(_, e)| top(&e)).fold(0.0, f64::max);
    let title = group.rows.first().and_then(|r| r.cell.judged()).map(|f| format::title(&f.name, f.unit));
    let title = title.unwrap_or_default();
    let latency = group.rows.iter().any(|r| view::latencies(r.cell)[0].is_some());
    let first = group.rows.iter().any(|r| r.cell.latency_first);
    let times = || html! { (column("p50", "latency")) (column("p99", "latency")) };
    html! {
        div.scroll tabindex="0" role="region" aria-label={ (group.workload) " on " (group.place) } {
            table {
                thead {
                    tr {
                        th.l scope="col" { "Side" }
                        @if latency && first { (times()) }
                        th scope="col" colspan="2" class="l" { (title) small { "mean, 95 %" } }
                        (column("Share of native", "95 %"))
                        @if latency && !first { (times()) }
                        (column("Request", "avgrq-sz"))
                        (column("Depth", "avgqu-sz"))
                        (column("Busy", "%util"))
                        (column("n", "samples"))
                    }
                }
                tbody { @for row in &group.rows { (line(row, [latency, first], scale, number(row))) } }
            }
        }
    }
}

fn line(row: &Row<'_>, [latency, first]: [bool; 2], scale: f64, number: usize) -> Html {
    let cell = row.cell;
    let notes = view::notes(row);
    let times = || {
        html! {
            @for e in view::latencies(cell) {
                td { (e.map_or("–".into(), |e| time(e.value))) }
            }
        }
    };
    html! {
        tr class=[(!notes.is_empty()).then_some("has")] {
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
            td {
                @match row.share {
                    Some(s) if s.converged => { (format::share(&s.share_ratio)) },
                    Some(_) => { (not_converged()) },
                    None => {},
                }
            }
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
        @if !notes.is_empty() {
            tr.notes { td colspan=(if latency { 10 } else { 8 }) { (notes.join("; ")) } }
        }
    }
}

/// Latency by percentile: the median of each percentile over the cell's samples. A sample counts
/// for a percentile only if at least one of its requests lies beyond; fio repeats the longest else.
fn curves(run: &Run, groups: &[Group<'_>], series: &[&str]) -> Html {
    let number = |label: &str| series.iter().position(|s| *s == label).unwrap_or(0);
    let curve = |row: &Row<'_>| {
        let results: Vec<&WorkloadResult> =
            run.samples.iter().filter(|s| s.cell == row.cell.cell).map(|s| &s.result).collect();
        let percentiles = &results.iter().find_map(|r| r.latency())?.percentiles;
        let points = percentiles.iter().filter_map(|&(p, _)| {
            let seen = results.iter().filter(|r| r.disk_work().ios as f64 * (1.0 - p / 100.0) >= 1.0);
            let all: Vec<f64> = seen.filter_map(|r| r.latency()?.at(p)).collect();
            Some((p, median(&all)?))
        });
        Some(svg::Curve { series: number(&row.label), label: row.label.clone(), points: points.collect() })
    };
    let (mut figures, mut shown) = (Vec::new(), Vec::new());
    for group in groups {
        let all: Vec<svg::Curve> = group.rows.iter().filter_map(curve).collect();
        let title = format!("Latency of {} on {} by percentile", group.workload, group.place);
        let Some(drawing) = svg::latency(&all, &title) else { continue };
        figures.push((group.workload, drawing));
        shown.extend(all.into_iter().map(|c| c.series));
    }
    html! {
        @if !figures.is_empty() {
            h3 { "Latency by percentile " span.dim { "median over the samples, both axes logarithmic" } }
            ul.legend {
                @for (n, label) in series.iter().enumerate().filter(|(n, _)| shown.contains(n)) {
                    li { (svg::swatch(n)) (label) }
                }
            }
            div.grid3 {
                @for (workload, drawing) in &figures { figure { figcaption { (workload) } (drawing) } }
            }
        }
    }
}

fn cpu(report: &Report<'_>) -> Html {
    html! {
        h2 { "CPU time" }
        details {
            summary { "CPU seconds of the host, and of QEMU by thread role" }
            div.scroll {
                table {
                    thead {
                        tr {
                            th.l scope="col" { "Cell" }
                            th scope="col" { "Host, s/GB" }
                            th scope="col" { "Host, each request" }
                            th.l scope="col" { "QEMU, s/GB" }
                        }
                    }
                    tbody {
                        @for cell in &report.summary.cells {
                            @let [gigabyte, request, roles] = view::cpu(cell);
                            tr {
                                th scope="row" { (cell.key) }
                                td { (gigabyte) }
                                td { (request) }
                                td.l { (roles) }
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
                    @for (attachment, settings) in &report.summary.effective {
                        @let list: Vec<String> = settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
                        tr {
                            th scope="row" { (attachment) br; span.dim { (view::told_by(attachment)) } }
                            td.l.w { (list.join(", ")) }
                        }
                    }
                }
            }
        }
    }
}

/// Columns of the raw figures, after the cell's name.
const RAW: [&str; 11] =
    ["Round", "Boot", "MB/s", "IOPS", "p50", "p99", "Device KiB", "Depth", "Busy", "Foreign bytes", "Marks"];

fn raw(run: &Run) -> Html {
    html! {
        h2 { "Raw figures" }
        details {
            summary { "All " (run.samples.len()) " samples" }
            div.scroll {
                table {
                    thead { tr { th.l scope="col" { "Cell" } @for head in RAW { th scope="col" { (head) } } } }
                    tbody {
                        @for sample in &run.samples {
                            tr {
                                th scope="row" { (sample.cell.key()) }
                                @for figure in figures(sample) { td { (figure) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A sample in the columns of [`RAW`].
fn figures(s: &Sample) -> [String; 11] {
    let (work, latency) = (s.work(), s.result.latency());
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let marks: Vec<&str> = s.marks.iter().map(|m| format::mark(*m)).collect();
    [
        s.round.to_string(),
        s.boot.to_string(),
        format!("{:.2}", work.bandwidth() / 1e6),
        or_dash((work.ios > 0).then(|| format!("{:.0}", work.iops()))),
        or_dash(latency.and_then(|l| l.at(50.0)).map(time)),
        or_dash(latency.and_then(|l| l.at(99.0)).map(time)),
        or_dash(s.device().map(|d| format!("{:.1}", d.request_bytes / 1024.0))),
        or_dash(s.device().map(|d| format!("{:.2}", d.queue_depth))),
        or_dash(s.device().and_then(|d| d.busy_ratio).map(|b| format!("{:.0} %", b * 100.0))),
        or_dash(s.foreign.during_bytes_ratio.map(format::percent)),
        marks.join(", "),
    ]
}
