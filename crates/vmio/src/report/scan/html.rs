//! A scan as one HTML file that loads nothing: the overview, then a section a guest.

use std::fmt::Write;

use super::settings::{devices, disk_label, nic_label};
use super::text::{identity, shown};
use super::{Row, View, by_mend, in_one_step};
use crate::report::html::{END, chip, escape, head};
use crate::report::{finding, format};

macro_rules! put {
    ($page:expr, $($arg:tt)*) => { let _ = write!($page, $($arg)*); };
}

/// The whole page.
pub fn html(view: &View) -> String {
    let mut page = head("vmio scan: the guests of this host");
    put!(page, "<p class=\"dim\">{}, {}</p>\n", format::utc(view.at_unix_seconds), view.headline());
    let n = view.rows.len();
    let counts = view.counts();
    let counts = if counts.is_empty() { "Nothing found.".to_owned() } else { format!("Findings: {counts}.") };
    put!(
        page,
        "<div class=\"head\"><div class=\"big\">{n}<small>guest{}</small></div><div class=\"what\"><p>{counts}</p>\
         <p class=\"dim\">Read from this host alone: nothing was sent to a guest and nothing was changed. Findings are based \
         on settings; the expected gain of a change is given with its source.</p></div></div>\n",
        if n == 1 { "" } else { "s" }
    );
    overview(&mut page, view);
    for (i, row) in view.rows.iter().enumerate() {
        guest(&mut page, i, row);
    }
    unread(&mut page, view);
    page + END
}

fn overview(page: &mut String, view: &View) {
    *page += "<h2>Guests</h2>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Guests\"><table><thead><tr>";
    for (column, class) in
        [("Guest", "l"), ("Kind", "l"), ("vCPUs", ""), ("Disks", "l"), ("Network", "l"), ("Worst finding", "l")]
    {
        put!(page, "<th class=\"{class}\" scope=\"col\">{column}</th>");
    }
    *page += "</tr></thead><tbody>";
    let host = view.host_wide();
    for (i, row) in view.rows.iter().enumerate() {
        let worst = match super::host::own(row, &host).next() {
            Some(f) => {
                let more = super::host::own(row, &host).count() - 1;
                let more =
                    if more > 0 { format!(" <span class=\"dim\">and {more} more</span>") } else { String::new() };
                format!("{} {}{more}", chip(f.severity), escape(&f.title))
            }
            None if row.is_known() && row.findings.is_empty() => "<span class=\"dim\">nothing found</span>".into(),
            None if row.is_known() => "<span class=\"dim\">nothing of its own</span>".into(),
            None => "<span class=\"dim\">could not be read</span>".into(),
        };
        let vcpus = row.guest.processors.as_ref().and_then(|p| *p.vcpus).map_or("–".into(), |n| n.to_string());
        put!(
            page,
            "<tr><th scope=\"row\"><a href=\"#g{i}\">{}</a></th><td class=\"l\">{}</td><td>{vcpus}</td><td class=\"l\">{}</td>\
             <td class=\"l\">{}</td><td class=\"l w\">{worst}</td></tr>",
            escape(&row.guest.name),
            escape(row.kind()),
            escape(&disk_label(&row.guest, false)),
            escape(&nic_label(&row.guest, false))
        );
    }
    *page += "</tbody></table></div>\n";
    for wide in &host {
        put!(page, "<p>This host: {}. {}</p>\n", escape(&wide.line()), escape(wide.cause));
    }
}

fn guest(page: &mut String, i: usize, row: &Row) {
    put!(
        page,
        "<h2 id=\"g{i}\">{}</h2>\n<p class=\"dim\">{}</p>\n",
        escape(&row.guest.name),
        escape(&identity(row).join(", "))
    );
    if row.findings.is_empty() {
        *page += match row.is_known() {
            true => "<p>No rule found a problem in what could be read.</p>\n",
            false => "<p>No setting could be read, so no rule was applied.</p>\n",
        };
    }
    for (i, f) in row.findings.iter().enumerate() {
        finding::html(page, f, &shown(row, i, f));
    }
    for all in row.together() {
        put!(
            page,
            "<article class=\"card\"><h3>{}</h3><p>{}</p><dl>",
            escape(&in_one_step(&all)),
            finding::takes(all.change.takes)
        );
        row.ways(&all.change).0.iter().for_each(|(name, how)| finding::way(page, name, how));
        let remark = row.remark(&all.change).map(|r| format!("<p class=\"dim\">{}</p>", escape(r)));
        put!(page, "</dl>{}</article>\n", remark.unwrap_or_default());
    }
    let list = |page: &mut String, head: &str, all: Vec<String>| {
        if !all.is_empty() {
            put!(page, "<h3>{head}</h3><ul>");
            all.iter().for_each(|line| put_line(page, line));
            *page += "</ul>\n";
        }
    };
    list(page, "Differs from the reference guest of vmio tax", row.differences.clone());
    let unread = row.guest.unread.iter().map(|u| format!("{}: {}; {}", u.what, u.why, u.mend)).collect();
    list(page, "Not read", unread);
    settings(page, row);
}

fn put_line(page: &mut String, line: &str) {
    put!(page, "<li>{}</li>", escape(line));
}

fn settings(page: &mut String, row: &Row) {
    let devices = devices(&row.guest);
    if devices.is_empty() {
        return;
    }
    *page += "<details><summary>Settings, and where each was read</summary><div class=\"scroll\"><table><thead><tr>\
              <th class=\"l\" scope=\"col\">Device</th><th class=\"l\" scope=\"col\">Setting</th><th class=\"l\" scope=\"col\">Value</th>\
              <th class=\"l\" scope=\"col\">Read from</th></tr></thead><tbody>";
    for device in devices {
        for (i, s) in device.settings.iter().enumerate() {
            let name = if i == 0 { escape(&device.name) } else { String::new() };
            put!(
                page,
                "<tr><th scope=\"row\">{name}</th><td class=\"l\">{}</td><td class=\"l w\">{}</td><td class=\"l w dim\">{}</td></tr>",
                s.name,
                escape(&s.value),
                escape(&s.from)
            );
        }
    }
    *page += "</tbody></table></div></details>\n";
}

fn unread(page: &mut String, view: &View) {
    let folded = by_mend(view);
    if folded.is_empty() {
        return;
    }
    *page += "<h2>Not read</h2>\n<ul>";
    for (mend, what) in folded {
        put!(page, "<li><strong>{}</strong>: {}</li>", escape(mend), escape(&what.join(", ")));
    }
    *page += "</ul>\n";
}
