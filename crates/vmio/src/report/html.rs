//! The report as one HTML file that loads nothing: style and drawings are inline, and there is no
//! script. Each bar stands in a table row with its figure, so the table is the drawings' text form.

use std::fmt::Write;

use vmio_model::result::{Figure, Run, WorkloadResult};
use vmio_model::rules::Severity;
use vmio_model::shown;
use vmio_model::stats::{Estimate, median};

use super::format::{self, rate, spread, time};
use super::view::{self, Group, Row};
use super::{Report, finding, like, paper, svg};

/// Text for HTML and SVG, in elements and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c if shown::is_hidden(c) && c != '\n' && c != '\t' => out.push(shown::INSTEAD),
            c => out.push(c),
        }
    }
    out
}

/// The beginning of a page that loads nothing, up to its headline.
pub(super) fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <style>{}</style></head><body><main>\n<h1>{title}</h1>",
        include_str!("style.css")
    )
}

/// The end of every page.
pub(super) const END: &str = "</main></body></html>\n";

/// A severity as a chip.
pub(super) fn chip(severity: Severity) -> String {
    format!("<span class=\"tag {0}\">{0}</span>", severity.name())
}

macro_rules! put {
    ($page:expr, $($arg:tt)*) => { let _ = write!($page, $($arg)*); };
}

/// The whole page.
pub fn html(report: &Report<'_>) -> String {
    let (run, summary) = (report.run, &report.summary);
    let title = format!("vmio run {}: {}", run.id, run.study);
    let mut page = head(&title);
    let (state, why) = format::state(&run.state);
    put!(page, "<p class=\"dim\">{}, {state}, {} samples</p>\n", format::utc(run.started_unix), run.samples.len());
    if let Some(title) = like::title(run) {
        put!(page, "<p>{}</p>\n", escape(&title));
    }
    if let Some(why) = why {
        put!(page, "<div class=\"note\"><p><strong>This result is partial.</strong> {}</p></div>\n", escape(why));
    }
    headline(&mut page, report);
    if let Some(statement) = &summary.statement {
        put!(page, "<div class=\"note\" role=\"note\"><p>{}</p></div>\n", escape(statement));
    }
    findings(&mut page, report);
    mended(&mut page, run);
    page += &paper::html_tables(report);
    page += &paper::html_controls(report);
    measured(&mut page, report);
    cpu(&mut page, report);
    if !summary.skipped.is_empty() {
        page += "<h2>Not measured</h2>\n<ul>";
        for s in &summary.skipped {
            put!(page, "<li>{}: {}</li>", escape(&s.setup.key()), escape(&s.reason));
        }
        page += "</ul>\n";
    }
    environment(&mut page, report);
    put!(page, "<h2>Again</h2>\n<pre>{}</pre>\n", escape(&view::repeat(run)));
    raw(&mut page, run);
    page + END
}

fn mended(page: &mut String, run: &Run) {
    let mended = like::mended(run);
    if mended.is_empty() {
        return;
    }
    *page += "<h2>The guest's setup with each change, against it unchanged</h2>\n<ul>";
    for mend in &mended {
        put!(page, "<li>{}</li>", escape(&mend.line()));
    }
    *page += "</ul>\n";
}

fn headline(page: &mut String, report: &Report<'_>) {
    let Some(h) = &report.summary.headline else {
        let _ = writeln!(page, "<div class=\"head\"><p>{}</p></div>", view::no_headline(&report.summary));
        return;
    };
    let ratio = &h.share_ratio;
    let interval = ratio.interval.map_or("no interval".into(), |_| format!("95 %: {}", inner(&format::share(ratio))));
    let doubt = if h.converged { "" } else { "<span class=\"tag\">not converged</span>" };
    put!(
        page,
        "<div class=\"head\"><div class=\"big\">{}<small>{interval}, {} pairs, {} boots {doubt}</small></div><div class=\"what\"><p>{}</p>{}",
        format::percent(ratio.value),
        ratio.pairs,
        ratio.boots,
        escape(&h.text),
        svg::gauge(ratio.value, ratio.interval, &h.text)
    );
    *page += "<ul>";
    for line in &h.lines {
        put!(page, "<li>{}</li>", escape(line));
    }
    *page += "</ul></div></div>\n";
}

/// The part in brackets: `44 % (41–47 %)` to `41–47 %`.
fn inner(text: &str) -> &str {
    text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(text)
}

fn findings(page: &mut String, report: &Report<'_>) {
    *page += "<h2>Findings</h2>\n";
    if report.findings.is_empty() {
        *page += "<p>None supported by these figures.</p>\n";
    }
    for (i, found) in report.findings.iter().enumerate() {
        finding::html(page, found, &report.shown(i, found));
    }
}

fn measured(page: &mut String, report: &Report<'_>) {
    let groups = view::groups(report.run, &report.summary);
    // A side keeps its colour, dash and marker all over the page; native is the first.
    let mut series: Vec<&str> = vec!["native"];
    for label in groups.iter().flat_map(|g| &g.rows).map(|r| r.label.as_str()) {
        if !series.contains(&label) {
            series.push(label);
        }
    }
    let number = |row: &Row<'_>| series.iter().position(|s| *s == row.label).unwrap_or(0);
    for of_target in groups.chunk_by(|a, b| a.target == b.target) {
        put!(page, "<h2>Target: {}</h2>\n", escape(of_target[0].target));
        for group in of_target {
            let (name, about) = (escape(group.workload), escape(&group.about));
            put!(page, "<h3>{name} <span class=\"dim\">{about}</span></h3>\n");
            table(page, group, &number);
        }
        curves(page, report.run, of_target, &series);
    }
    if groups.is_empty() {
        return;
    }
    *page += "<p class=\"dim\">Bars begin at zero; the whisker is the 95 % interval of the mean, and a bar without one has too \
              few samples for it. Shares are geometric means of guest/native pairs. Request size, queue depth and busy are \
              what the backing device saw; avgrq-sz counts sectors of 512 bytes.</p>\n";
    for (mark, meaning) in view::legend(&report.summary) {
        put!(page, "<p class=\"dim\"><strong>{mark}</strong>: {meaning}.</p>\n");
    }
}

fn table(page: &mut String, group: &Group<'_>, number: &dyn Fn(&Row<'_>) -> usize) {
    let top = |e: &Estimate| e.interval.map_or(e.value, |i| i.high.max(e.value));
    let scale = group.rows.iter().filter_map(|r| view::figure(r.cell)).map(|e| top(&e)).fold(0.0, f64::max);
    let unit = match group.rows.first().map(|r| r.cell.figure) {
        Some(Figure::Iops) => "Requests a second",
        _ => "Bandwidth",
    };
    let latency = group.rows.iter().any(|r| r.cell.latency_p50_seconds.is_some());
    let name = escape(&format!("{} on {}", group.workload, group.target));
    put!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{name}\"><table><thead><tr><th class=\"l\" scope=\"col\">Side</th>"
    );
    let columns = |page: &mut String, all: &[(&str, &str)]| {
        for (head, small) in all {
            put!(page, "<th scope=\"col\">{head}<small>{small}</small></th>");
        }
    };
    let first = group.rows.iter().any(|r| r.cell.latency_first);
    let times = [("p50", "latency"), ("p99", "latency")];
    if latency && first {
        columns(page, &times);
    }
    put!(page, "<th scope=\"col\" colspan=\"2\" class=\"l\">{unit}<small>mean, 95 %</small></th>");
    columns(page, &[("Share of native", "95 %")]);
    if latency && !first {
        columns(page, &times);
    }
    columns(page, &[("Request", "avgrq-sz"), ("Depth", "avgqu-sz"), ("Busy", "%util"), ("n", "samples")]);
    *page += "</tr></thead><tbody>";
    for row in &group.rows {
        let cell = row.cell;
        let notes = view::notes(row);
        let class = if notes.is_empty() { "" } else { " class=\"has\"" };
        put!(page, "<tr{class}><th scope=\"row\">{}</th>", escape(&row.label));
        let times = |page: &mut String| {
            for e in [&cell.latency_p50_seconds, &cell.latency_p99_seconds] {
                put!(page, "<td>{}</td>", e.map_or("–".into(), |e| time(e.value)));
            }
        };
        if latency && first {
            times(page);
        }
        match view::figure(cell) {
            Some(e) => {
                let text = format!("{} {}", rate(cell.figure, e.value), spread(&e));
                let title = format!("{}: {text}, {} samples", row.label, e.n);
                let bar = svg::bar(e.value, e.interval, scale, number(row), &title);
                put!(page, "<td>{text}</td><td class=\"b\">{bar}</td>");
            }
            None => *page += "<td>–</td><td></td>",
        }
        match row.share {
            Some(s) if s.converged => put_cell(page, &format::share(&s.share_ratio)),
            Some(_) => *page += "<td><span class=\"tag\">not converged</span></td>",
            None => *page += "<td></td>",
        }
        if latency && !first {
            times(page);
        }
        match (view::device(cell), cell.device) {
            (Some([kib, depth, busy]), Some(device)) => {
                let size = if device.request_bytes.value == 0.0 {
                    kib
                } else {
                    format!("{kib} KiB ({:.0})", device.avgrq_sz_sectors.value)
                };
                [size, depth, busy].iter().for_each(|text| put_cell(page, text));
            }
            _ => *page += "<td colspan=\"3\" class=\"dim\">not visible here</td>",
        }
        put!(page, "<td>{}</td></tr>", cell.samples);
        if !notes.is_empty() {
            put!(
                page,
                "<tr class=\"notes\"><td colspan=\"{}\">{}</td></tr>",
                if latency { 10 } else { 8 },
                escape(&notes.join("; "))
            );
        }
    }
    *page += "</tbody></table></div>";
}

fn put_cell(page: &mut String, text: &str) {
    put!(page, "<td>{}</td>", escape(text));
}

/// Latency by percentile: the median of each percentile over the cell's samples. A sample counts
/// for a percentile only if at least one of its requests lies beyond; fio repeats the longest else.
fn curves(page: &mut String, run: &Run, groups: &[Group<'_>], series: &[&str]) {
    let number = |label: &str| series.iter().position(|s| *s == label).unwrap_or(0);
    let curve = |row: &Row<'_>| {
        let results: Vec<&WorkloadResult> =
            run.samples.iter().filter(|s| s.setup == row.cell.setup).map(|s| &s.result).collect();
        let percentiles = &results.iter().find_map(|r| r.latency.as_ref())?.percentiles;
        let points = percentiles.iter().filter_map(|&(p, _)| {
            let seen = results.iter().filter(|r| r.ios as f64 * (1.0 - p / 100.0) >= 1.0);
            let all: Vec<f64> = seen.filter_map(|r| r.latency.as_ref()?.at(p)).collect();
            Some((p, median(&all)?))
        });
        Some(svg::Curve { series: number(&row.label), label: row.label.clone(), points: points.collect() })
    };
    let (mut figures, mut shown) = (String::new(), Vec::new());
    for group in groups {
        let all: Vec<svg::Curve> = group.rows.iter().filter_map(curve).collect();
        let title = format!("Latency of {} on {} by percentile", group.workload, group.target);
        let Some(drawing) = svg::latency(&all, &title) else { continue };
        put!(figures, "<figure><figcaption>{}</figcaption>{drawing}</figure>", escape(group.workload));
        shown.extend(all.into_iter().map(|c| c.series));
    }
    if figures.is_empty() {
        return;
    }
    *page += "<h3>Latency by percentile <span class=\"dim\">median over the samples, both axes logarithmic</span></h3>\n<ul class=\"legend\">";
    for (n, label) in series.iter().enumerate().filter(|(n, _)| shown.contains(n)) {
        put!(page, "<li>{}{}</li>", svg::swatch(n), escape(label));
    }
    put!(page, "</ul><div class=\"grid3\">{figures}</div>\n");
}

fn cpu(page: &mut String, report: &Report<'_>) {
    *page += "<h2>CPU time</h2>\n<details><summary>CPU seconds of the host, and of QEMU by thread role</summary><div class=\"scroll\">\
              <table><thead><tr><th class=\"l\" scope=\"col\">Cell</th><th scope=\"col\">Host, s/GB</th>\
              <th scope=\"col\">Host, each request</th><th class=\"l\" scope=\"col\">QEMU, s/GB</th></tr></thead><tbody>";
    for cell in &report.summary.cells {
        let [gigabyte, request, roles] = view::cpu(cell);
        let (key, roles) = (escape(&cell.key), escape(&roles));
        put!(
            page,
            "<tr><th scope=\"row\">{key}</th><td>{gigabyte}</td><td>{request}</td><td class=\"l\">{roles}</td></tr>"
        );
    }
    *page += "</tbody></table></div></details>\n";
}

fn environment(page: &mut String, report: &Report<'_>) {
    *page += "<h2>Where</h2>\n<div class=\"scroll\"><table class=\"env\"><tbody>";
    for (name, value) in view::environment(&report.summary) {
        put!(page, "<tr><th scope=\"row\">{}</th><td class=\"l w\">{}</td></tr>", escape(name), escape(&value));
    }
    for (attachment, settings) in &report.summary.effective {
        let list: Vec<String> = settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        put!(
            page,
            "<tr><th scope=\"row\">{}<br><span class=\"dim\">{}</span></th><td class=\"l w\">{}</td></tr>",
            escape(attachment),
            view::told_by(attachment),
            escape(&list.join(", "))
        );
    }
    *page += "</tbody></table></div>\n";
}

fn raw(page: &mut String, run: &Run) {
    put!(
        page,
        "<h2>Raw figures</h2>\n<details><summary>All {} samples</summary><div class=\"scroll\"><table><thead><tr>\
         <th class=\"l\" scope=\"col\">Cell</th>",
        run.samples.len()
    );
    for head in ["Round", "Boot", "MB/s", "IOPS", "p50", "p99", "Device KiB", "Depth", "Busy", "Foreign bytes", "Marks"]
    {
        put!(page, "<th scope=\"col\">{head}</th>");
    }
    *page += "</tr></thead><tbody>";
    for s in &run.samples {
        let (result, latency) = (&s.result, s.result.latency.as_ref());
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        let marks: Vec<&str> = s.marks.iter().map(|m| format::mark(*m)).collect();
        put!(page, "<tr><th scope=\"row\">{}</th>", escape(&s.setup.key()));
        let cells = [
            s.round.to_string(),
            s.boot.to_string(),
            format!("{:.2}", result.bandwidth() / 1e6),
            or_dash((result.ios > 0).then(|| format!("{:.0}", result.iops()))),
            or_dash(latency.and_then(|l| l.at(50.0)).map(time)),
            or_dash(latency.and_then(|l| l.at(99.0)).map(time)),
            or_dash(s.device.map(|d| format!("{:.1}", d.request_bytes / 1024.0))),
            or_dash(s.device.map(|d| format!("{:.2}", d.queue_depth))),
            or_dash(s.device.and_then(|d| d.busy_ratio).map(|b| format!("{:.0} %", b * 100.0))),
            or_dash(s.foreign.during_bytes_ratio.map(format::percent)),
            marks.join(", "),
        ];
        cells.iter().for_each(|text| put_cell(page, text));
        *page += "</tr>";
    }
    *page += "</tbody></table></div></details>\n";
}
