//! A scan as one HTML file that loads nothing: the overview, then a section a guest.

use vmio_model::words::plural;

use super::settings::{devices, disk_label, nic_label};
use super::text::{identity, shown};
use super::{Row, View, by_mend, host, in_one_step};
use crate::report::page::{self, Html, chip, html};
use crate::report::{finding, format};

/// The whole page.
pub fn html(view: &View) -> String {
    let n = view.rows.len();
    let counts = match view.counts() {
        none if none.is_empty() => "Nothing found.".to_owned(),
        counts => format!("Findings: {counts}."),
    };
    let body = html! {
        p.dim { (format::utc(view.at_unix_seconds)) ", " (view.headline()) }
        div.head {
            div.big { (n) small { (plural(n, "guest")) } }
            div.what {
                p { (counts) }
                p.dim {
                    "Read from this host alone: nothing was sent to a guest and nothing was changed. Findings are based \
                     on settings; the expected gain of a change is given with its source."
                }
            }
        }
        (overview(view))
        @for (i, row) in view.rows.iter().enumerate() {
            (guest(i, row))
        }
        (unread(view))
    };
    page::whole("vmio scan: the guests of this host", &body)
}

/// Columns of the overview, with their alignment.
const COLUMNS: [(&str, &str); 6] =
    [("Guest", "l"), ("Kind", "l"), ("vCPUs", ""), ("Disks", "l"), ("Network", "l"), ("Worst finding", "l")];

fn overview(view: &View) -> Html {
    let wide = view.host_wide();
    html! {
        h2 { "Guests" }
        div.scroll tabindex="0" role="region" aria-label="Guests" {
            table {
                thead { tr { @for (column, class) in COLUMNS { th class=(class) scope="col" { (column) } } } }
                tbody {
                    @for (i, row) in view.rows.iter().enumerate() {
                        @let vcpus = row.guest.processors.as_ref().and_then(|p| p.vcpus);
                        tr {
                            th scope="row" { a href={ "#g" (i) } { (row.guest.name) } }
                            td.l { (row.kind()) }
                            td { (vcpus.map_or("–".into(), |n| n.to_string())) }
                            td.l { (disk_label(&row.guest, false)) }
                            td.l { (nic_label(&row.guest, false)) }
                            td.l.w { (worst(row, &wide)) }
                        }
                    }
                }
            }
        }
        @for wide in &wide {
            p { "This host: " (wide.line()) ". " (wide.cause) }
        }
    }
}

/// The finding of a guest's own that costs most, and how many more there are.
fn worst(row: &Row, wide: &[host::HostWide<'_>]) -> Html {
    let own: Vec<_> = host::own(row, wide).collect();
    html! {
        @if let Some((first, more)) = own.split_first() {
            (chip(first.severity)) " " (first.title)
            @if !more.is_empty() { " " span.dim { "and " (more.len()) " more" } }
        } @else if row.is_known() && row.findings.is_empty() {
            span.dim { "nothing found" }
        } @else if row.is_known() {
            span.dim { "nothing of its own" }
        } @else {
            span.dim { "could not be read" }
        }
    }
}

fn guest(i: usize, row: &Row) -> Html {
    let unread = |u: &vmio_model::facts::Unread| format!("{}: {}; {}", u.what, u.why, u.mend);
    let unread: Vec<String> = row.guest.unread.iter().map(unread).collect();
    html! {
        h2 id={ "g" (i) } { (row.guest.name) }
        p.dim { (identity(row).join(", ")) }
        @if row.findings.is_empty() {
            p {
                @if row.is_known() {
                    "No rule found a problem in what could be read."
                } @else {
                    "No setting could be read, so no rule was applied."
                }
            }
        }
        @for (i, found) in row.findings.iter().enumerate() {
            (finding::html(found, &shown(row, i, found)))
        }
        @for all in row.together() {
            article.card {
                h3 { (in_one_step(&all)) }
                p { (finding::takes(all.change.takes)) }
                dl { (finding::ways(&row.ways(&all.change).0)) }
                @if let Some(remark) = row.remark(&all.change) {
                    p.dim { (remark) }
                }
            }
        }
        (list("Differs from the reference guest of vmio tax", &row.differences))
        (list("Not read", &unread))
        (settings(row))
    }
}

fn list(head: &str, lines: &[String]) -> Html {
    html! {
        @if !lines.is_empty() {
            h3 { (head) }
            (page::list(lines))
        }
    }
}

fn settings(row: &Row) -> Html {
    let devices = devices(&row.guest);
    html! {
        @if !devices.is_empty() {
            details {
                summary { "Settings, and where each was read" }
                div.scroll {
                    table {
                        thead {
                            tr {
                                @for head in ["Device", "Setting", "Value", "Read from"] {
                                    th.l scope="col" { (head) }
                                }
                            }
                        }
                        tbody {
                            @for device in &devices {
                                @for (i, s) in device.settings.iter().enumerate() {
                                    tr {
                                        th scope="row" { @if i == 0 { (device.name) } }
                                        td.l { (s.name) }
                                        td.l.w { (s.value) }
                                        td.l.w.dim { (s.from) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn unread(view: &View) -> Html {
    let folded = by_mend(view);
    html! {
        @if !folded.is_empty() {
            h2 { "Not read" }
            ul { @for (mend, what) in &folded { li { strong { (mend) } ": " (what.join(", ")) } } }
        }
    }
}
