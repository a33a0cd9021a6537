//! A scan as a document: the overview with a row a guest, and on a page below it each guest by itself.

use vmio_look::{kinds, managers};
use vmio_model::facts::Remedy;
use vmio_model::words::{count, first_of, plural};

use super::settings::{disk_label, nic_label};
use super::{HostWide, Row, View, by_fix, guest, host, is_to_be_like};
use crate::fit;
use crate::report::document::{
    self, Align, Block, Cell, Column, Document, Fit, Head, In, Kind, Layout, Name, Pairs, Span, Table, Text, heading,
    list, paragraph, say,
};
use crate::report::format;
use crate::term::Style;

/// Most names in a line about what could not be read.
const NAMED: usize = 3;
/// Most ways to read more that are told one by one.
const FIXES: usize = 2;
/// Columns of a fix that is shown in the overview.
const LONG: usize = 80;
/// Columns of a command that is proposed.
const COMMAND: usize = 24;

/// The overview for a terminal of so many columns.
pub fn overview(view: &View, style: Style, width: usize) -> String {
    document(view).text(style, width)
}

/// All that could not be read, with the reason and what would help, for a terminal of so many columns; empty where all
/// was.
pub fn not_read(view: &View, style: Style, width: usize) -> String {
    let all: Vec<String> = view.all_unread().map(|(_, u)| format!("{}: {}; {}", u.what, u.why, u.mend)).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut doc = Document::new("");
    doc.put(heading(3, "Not read"));
    doc.put(list((2, 4), all));
    doc.text(style, width)
}

/// The whole page.
pub fn html(view: &View) -> String {
    let mut doc = document(view);
    view.rows.iter().enumerate().for_each(|(nth, row)| guest::put(&mut doc, row, nth, false));
    doc.html()
}

fn document(view: &View) -> Document {
    let mut doc = Document::new("vmio scan: the guests of this host");
    head(&mut doc, view);
    let wide = view.host_wide();
    doc.only(In::HTML, heading(2, "Guests"));
    if !view.rows.is_empty() {
        doc.gap();
    }
    doc.only(if view.rows.is_empty() { In::HTML } else { In::ALL }, table(view, &wide).into());
    for wide in &wide {
        let whose = view.on.clone().unwrap_or_else(|| "This host".to_owned());
        doc.gap();
        doc.put(say((0, 2), fit::plain(&format!("{whose}: {}", wide.line()))));
        doc.put(say((2, 2), fit::plain(wide.what)));
    }
    unread(&mut doc, view);
    left_out(&mut doc, view);
    next(&mut doc, view);
    doc
}

fn head(doc: &mut Document, view: &View) {
    let counts = view.counts();
    let (text, found) = if counts.is_empty() {
        ("Nothing found.".to_owned(), "nothing found")
    } else {
        (format!("Findings: {counts}."), counts.as_str())
    };
    if view.rows.is_empty() {
        no_guests(doc, view);
    } else {
        doc.only(In::TERMINAL, say((0, 0), format!("{}: {found}", view.headline())));
    }
    let when = format!("{}, {}", format::utc(view.at_unix_seconds), view.headline());
    let n = view.rows.len();
    let about = "Read-only: nothing was sent to a guest or changed. Findings are based \
                 on settings; the expected gain of a change is given where one was published or measured.";
    let (figure, about) = (Some((n.to_string(), plural(n, "guest").into())), Some(about.to_owned()));
    doc.only(In::HTML, paragraph(Kind::Aside, (0, 0), when));
    doc.only(In::HTML, Block::Head(Box::new(Head { figure, text, about, ..Head::default() })));
}

fn no_guests(doc: &mut Document, view: &View) {
    let host = view.host();
    let none = match (view.root, view.own_guests) {
        (true, 0) => format!("No guest runs on {host}."),
        (true, _) => format!("No guest runs on {host} but vmio's own."),
        (false, 0) => format!("No guest on {host} is visible to this user."),
        (false, _) => format!("No guest on {host} but vmio's own is visible to this user."),
    };
    let kinds = kinds::ALL.iter().map(|k| k.name());
    let all: Vec<&str> = kinds.chain(managers::ALL.iter().map(|m| m.name())).collect();
    doc.only(In::TERMINAL, say((0, 0), none));
    doc.only(In::TERMINAL, say((0, 0), format!("Looked for: {}.", all.join(", "))));
}

/// What is shortened or left out on a narrow terminal, in order: titles of findings become names of rules, then the
/// network's backend, cache modes of disks, the network's device, then names, vCPUs and the kind.
const FIT: [Fit; 13] = [
    Fit::Short(6),
    Fit::Short(5),
    Fit::Short(4),
    Fit::Drop(5),
    Fit::Least(0, 17),
    Fit::Least(4, 13),
    Fit::Least(0, 14),
    Fit::Least(2, 8),
    Fit::Least(4, 8),
    Fit::Least(0, 8),
    Fit::Least(1, 6),
    Fit::Drop(3),
    Fit::Drop(2),
];

fn table(view: &View, wide: &[HostWide<'_>]) -> Table {
    let numbered = view.rows.iter().any(|row| row.guest.vmid().is_some());
    let columns = [
        Column::new("VMID", 0).only(if numbered { In::TERMINAL } else { In::NONE }),
        Column::new("Kind", 0).left().narrow("kind"),
        Column::new("vCPUs", 0).narrow("vCPU"),
        Column::new("Disks", 0).left().narrow("disks"),
        Column::new("Network", 0).left().narrow("network"),
        Column { align: Align::Words, ..Column::new("Worst finding", 0).narrow("worst finding") },
    ];
    let with = |label: fn(&vmio_model::facts::Guest, bool) -> String, row: &Row| Cell {
        short: Some(label(&row.guest, true)),
        ..label(&row.guest, false).into()
    };
    let row = |(nth, row): (usize, &Row)| {
        let vcpus = row.guest.processors.as_ref().and_then(|p| *p.vcpus);
        let cells = [
            Cell::from(row.guest.vmid().unwrap_or("–")),
            row.kind().into(),
            vcpus.map_or("–".to_owned(), |n| n.to_string()).into(),
            with(disk_label, row),
            with(nic_label, row),
            worst(row, wide),
        ];
        document::Row::new(Span::Link(format!("g{nth}"), row.guest.name.clone()), cells)
    };
    let (narrow, label) = ("guest".to_owned(), "Guests".to_owned());
    let table = Table::new("Guest", Layout { fit: &FIT, ..Layout::new(0) }, columns);
    Table { narrow, label, ..table.with(view.rows.iter().enumerate().map(row)) }
}

/// The costliest finding of the guest itself, and how many more there are.
fn worst(row: &Row, wide: &[HostWide<'_>]) -> Cell {
    let more = host::own(row, wide).count().saturating_sub(1);
    let Some(first) = host::own(row, wide).next() else {
        let said = if !row.is_known() {
            "could not be read"
        } else if row.findings.is_empty() {
            "nothing found"
        } else {
            "nothing of its own"
        };
        return Text::from(Span::Dim(said.to_owned())).into();
    };
    let (plus, also) = match more {
        0 => (String::new(), String::new()),
        more => (format!(" +{more}"), format!("and {more} more")),
    };
    let text = Text::from(format!("{} ", first.title)).and(Span::Dim(also));
    Cell {
        text: if more == 0 { Text::from(&first.title) } else { text },
        narrow: Some(format!("{}{plus}", first.title)),
        short: Some(format!("{}{plus}", first.rule)),
        chip: Some(first.severity),
        ..Cell::default()
    }
}

fn unread(doc: &mut Document, view: &View) {
    let folded = by_fix(view);
    if folded.is_empty() {
        return;
    }
    doc.gap();
    let (as_root, others): (Vec<_>, Vec<_>) = folded.iter().partition(|(fix, _)| matches!(fix, Remedy::Root));
    let told = if others.len() > FIXES { as_root } else { folded.iter().collect() };
    for (fix, what) in told {
        let lead = match fix {
            Remedy::Root => "Not visible without root".to_owned(),
            fix if fit::columns(&fix.to_string()) > LONG => "Not read (vmio scan --verbose says why)".to_owned(),
            fix => format!("Not read ({fix})"),
        };
        doc.only(In::TERMINAL, paragraph(Kind::Warning, (0, 2), format!("{lead}: {}", first_of(what, NAMED))));
    }
    if others.len() > FIXES {
        // As many as the list of `--verbose` has, and of the same name as in a guest's own page.
        let further = view.all_unread().filter(|(_, unread)| unread.mend != Remedy::Root).count();
        let text = format!("Not read: {} (vmio scan --verbose lists them)", count(further, "setting"));
        doc.only(In::TERMINAL, paragraph(Kind::Warning, (0, 2), text));
    }
    let all = folded.iter().map(|(fix, what)| {
        Text::from(Span::Plain(format!("{}: ", what.join(", ")))).and(Span::Strong(fix.to_string()))
    });
    doc.only(In::HTML, heading(2, "Not read"));
    doc.only(In::HTML, list((0, 0), all));
}

fn left_out(doc: &mut Document, view: &View) {
    let mut all = Vec::new();
    if view.own_guests > 0 {
        all.push(format!("{} of vmio's own guests (--all shows them)", view.own_guests));
    }
    all.extend(view.ignored_words());
    if !all.is_empty() {
        doc.gap();
        doc.only(In::TERMINAL, say((0, 0), format!("Left out: {}.", all.join(", "))));
    }
}

/// What to do next, as commands.
fn next(doc: &mut Document, view: &View) {
    let mut pairs = Vec::new();
    let mut command = |command: String, what: &str| pairs.push((In::TERMINAL, Text::from(command), what.to_owned()));
    match (view.rows.first(), &view.on) {
        (Some(first), on) => {
            let name = format::shell(std::slice::from_ref(&first.guest.name));
            let shell = |address: &String| format!(" --on {}", format::shell(std::slice::from_ref(address)));
            let there = on.as_ref().map_or_else(String::new, shell);
            command(format!("vmio scan{there} {name}"), "what to do about it, with the exact change");
            if on.is_none() && is_to_be_like(first) {
                command(format!("vmio tax --like {name}"), "measure a guest that is set up like it");
            }
            if on.is_none() {
                command("vmio top".to_owned(), "who uses the disk and the network now");
            }
        }
        (None, Some(_)) => {}
        (None, None) => command("vmio tax".to_owned(), "measure this host with a reference guest"),
    }
    doc.gap();
    doc.only(In::TERMINAL, Block::Pairs(Pairs { indent: 2, width: COMMAND + 1, long: Name::Command, pairs }));
}
