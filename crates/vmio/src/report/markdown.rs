//! The report as Markdown (GitHub's flavour), for an issue, a pull request or `docs/results/`.

use std::fmt::Write;

use vmio_model::shown;

use super::{Report, by_cell, cost, format, groups, like, paper, scores, view};

mod table;

/// The report as Markdown.
pub fn markdown(report: &Report<'_>) -> String {
    let (run, summary) = (report.run, &report.summary);
    let mut out = String::new();
    let mut put = |line: String| {
        let _ = writeln!(out, "{line}");
    };
    put(format!("# vmio run {}: {}\n", run.id, plain(&run.kind.to_string())));
    let (state, why) = format::state(&run.state);
    put(format!("{}, {state}, {} samples\n", format::utc(run.started_unix), run.samples.len()));
    if let Some(title) = like::title(run) {
        put(format!("{}\n", plain(title)));
    }
    if let Some(why) = why {
        put(format!("**This result is partial:** {}\n", plain(why)));
    }
    for (heading, h) in view::headlines(summary) {
        heading.iter().for_each(|heading| put(format!("## {heading}\n")));
        put(format!("**{}**\n", plain(&h.text)));
        h.about_interval.iter().for_each(|about| put(format!("{}\n", plain(about))));
        h.lines.iter().for_each(|line| put(format!("- {}", plain(line))));
        put(String::new());
    }
    if summary.headline.is_none() {
        put(format!("{}\n", plain(&report.versus.no_headline(summary))));
    }
    summary.tells_apart.iter().for_each(|told| put(format!("{}\n", plain(&told.text))));
    if let Some(statement) = &summary.statement {
        put(format!("> **Note.** {}\n", plain(statement)));
    }
    if !summary.scores.is_empty() {
        put(scores::markdown(report));
    }
    for group in groups::groups(report) {
        put(format!("## {} on {}\n", plain(&group.workload), plain(&groups::on(&group))));
        group.about_all().into_iter().for_each(|about| put(format!("{}\n", plain(about))));
        let each: String = group.about_each().map(|about| format!("- {}\n", plain(&about))).collect();
        if !each.is_empty() {
            put(each);
        }
        table::rows(&group, &report.versus).into_iter().for_each(&mut put);
        put(String::new());
    }
    let unusual = view::not_taken_for_granted(report);
    if !unusual.is_empty() {
        put(format!("{}\n", plain(&unusual)));
    }
    if summary.cells.iter().any(|cell| view::latencies(cell)[0].is_some()) {
        put(format!("{}\n", view::TIMES));
    }
    view::legend(summary).iter().for_each(|(mark, meaning)| put(format!("**{mark}**: {meaning}.\n")));
    put(paper::markdown(report));
    let cost = cost::rows(report);
    let counted = cost::counted(cost.iter().copied());
    let idle = cost::any_idle(cost.iter().copied());
    if !cost.is_empty() || summary.cells.is_empty() {
        let [a, b, c] = counted.map(|there| if there { "--:|" } else { "" });
        let title = |dashes: &str, title: &'static str| if dashes.is_empty() { "" } else { title };
        let (bytes, requests) = (title(a, " host, s/GB |"), title(b, " host, each request |"));
        let kernel = title(c, " kernel threads, s/GB |");
        let (idle, d) = if idle { (" host idle |", "--:|") } else { ("", "") };
        let head =
            format!("| cell |{bytes}{requests}{idle} QEMU by thread role, s/GB |{kernel}\n|---|{a}{b}{d}---|{c}");
        put(format!("\n## CPU time\n\n{head}"));
    }
    for cell in cost {
        let [gigabyte, request, roles, threads] = cost::cpu(cell);
        let [first, second, last] = counted;
        let column = |text: String, there: bool| if there { format!(" {text} |") } else { String::new() };
        let [gigabyte, request] = [column(gigabyte, first), column(request, second)];
        let (name, idle, last) = (plain(&cell.key), column(cost::idle(cell), idle), column(threads, last));
        put(format!("| {name} |{gigabyte}{request}{idle} {} |{last}", plain(&roles)));
    }
    let means = cost::meaning(report);
    if counted.contains(&true) || idle {
        put(format!("\n{}", plain(&means)));
    }
    put(by_cell::markdown(report));
    let mended = like::mended(run);
    if !mended.is_empty() {
        put("\n## The guest's setup with each change, against it unchanged\n".into());
        mended.iter().for_each(|mend| put(format!("- {}", plain(&mend.line()))));
    }
    put("\n## Findings\n".into());
    if report.findings.is_empty() {
        put("None supported by these figures.\n".into());
    }
    for (i, finding) in report.findings.iter().enumerate() {
        let change = &finding.change;
        put(format!("### {}. {} ({})\n", i + 1, plain(&finding.title), finding.severity));
        put(format!("{}: {}\n", plain(&finding.subject.to_string()), plain(&finding.cause)));
        if let Some(first) = report.same_change(i) {
            put(format!("The change is that of finding {}.\n", first + 1));
        } else {
            put(format!("{}\n", plain(&change.what)));
            for (name, how) in change.ways() {
                put(format!("{name}:\n\n{}", code(how)));
            }
            finding.references.iter().for_each(|r| put(format!("See {}\n", plain(r))));
        }
        if let Some(proof) = report.proof(finding) {
            put(format!("`--prove`, run {}: {}\n", proof.run, plain(&proof.verdict)));
        }
    }
    if !summary.skipped.is_empty() {
        put("## Not measured\n".into());
        let all = view::not_measured(summary);
        all.iter().for_each(|(key, reason)| put(format!("- {}: {}", plain(key), plain(reason))));
        put(String::new());
    }
    put("## Where\n\n| | |\n|---|---|".into());
    view::environment(summary).iter().for_each(|(name, value)| put(format!("| {name} | {} |", plain(value))));
    for (key, settings) in &summary.effective {
        let list: Vec<String> = settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        put(format!("| {} {} | {} |", plain(key), view::told_by(key), plain(&list.join(", "))));
    }
    put(format!("\n## Again\n\n{}", code(&view::repeat(run))));
    out
}

/// Text that means nothing to Markdown, on one line.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => out.push(' '),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c if shown::is_hidden(c) => out.push(shown::INSTEAD),
            c => out.push(c),
        }
    }
    out
}

/// A block of code, indented: no text can end it early as it could end a fence.
fn code(text: &str) -> String {
    shown::lines(text).lines().map(|line| format!("    {line}\n")).collect()
}
