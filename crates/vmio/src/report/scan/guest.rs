//! One guest of a scan: what to do, how, and its settings.

use vmio_model::facts::{Subject, Unread};
use vmio_model::rules::{About, Change, Finding, Severity};

use super::settings::{Device, devices};
use super::{Row, Ways, in_one_step, is_to_be_like};
use crate::fit::{self, WIDTH};
use crate::report::document::{
    self, Align, Block, Card, Column, Document, Heading, In, Layout, Made, Name, Pairs, Span, Table, Text, aside,
    heading, list, say,
};
use crate::report::{finding, format};
use crate::term::Style;

/// Columns of the leads of the first lines.
const LEAD: usize = 8;
/// Columns of a guest's name in the first line; the whole name is below.
const NAME: usize = 48;

/// All that is known of one guest, with what to do first; `sources`: each setting on a line of its own with its source.
pub fn detail(row: &Row, style: Style, sources: bool) -> String {
    let mut doc = Document::new(&row.guest.name);
    put(&mut doc, row, 0, sources);
    doc.text(style, WIDTH)
}

/// The whole document of a guest, with this anchor on a page.
pub(super) fn put(doc: &mut Document, row: &Row, nth: usize, sources: bool) {
    first(doc, row);
    let (text, id) = (row.guest.name.clone(), Some(format!("g{nth}")));
    doc.only(In::HTML, Block::Heading(Heading { level: 2, text, id, ..Heading::default() }));
    doc.only(In::HTML, aside((0, 0), identity(row).join(", ")));
    if row.findings.is_empty() {
        let text = if row.is_known() {
            "No rule found a problem in what could be read."
        } else {
            "No setting could be read, so no rule was applied."
        };
        doc.only(In::HTML, say((0, 0), text));
    }
    for (place, found) in row.findings.iter().enumerate() {
        doc.gap();
        let made = fields_first(found, made(row, &found.change));
        doc.put(Block::Card(Box::new(finding::card(&row.findings, place, made))));
    }
    for all in row.together() {
        let made = Some(Made { elsewhere: Vec::new(), ..made(row, &all.change) });
        doc.gap();
        doc.put(Block::Card(Box::new(Card { title: in_one_step(&all), made, ..Card::default() })));
    }
    settings(doc, row, sources);
    let unread = row.guest.unread.iter().map(|u| format!("{}: {}; {}", u.what, u.why, u.mend)).collect();
    for (head, lines) in
        [("Differs from the reference guest of `vmio tax`", row.differences.clone()), ("Not read", unread)]
    {
        if !lines.is_empty() {
            doc.gap();
            doc.put(heading(3, head));
            doc.put(list((2, 4), lines));
        }
    }
}

/// The first lines on a terminal: how much was found, the worst finding, and how sure that is.
pub(super) fn first(doc: &mut Document, row: &Row) {
    let (said, pairs) = match row.worst() {
        Some(worst) => (
            counts(&row.findings),
            vec![("Worst", format!("{} ({})", worst.title, place(worst))), ("Sure", sure(row, worst))],
        ),
        None if row.is_known() => ("nothing found in what could be read".to_owned(), Vec::new()),
        None => {
            let of = |unread: &Unread| {
                [("Why", format!("{}: {}", unread.what, unread.why)), ("Do", unread.mend.to_string())]
            };
            ("no setting could be read".to_owned(), row.guest.unread.first().map(of).into_iter().flatten().collect())
        }
    };
    let name = Text::from(Span::Bold(fit::name(&row.guest.name, NAME)));
    let pairs = pairs.into_iter().map(|(lead, text)| (In::TERMINAL, Text::from(lead), text)).collect();
    doc.only(In::TERMINAL, say((0, 0), name.and(Span::Plain(format!(": {said}")))));
    doc.only(In::TERMINAL, Block::Pairs(Pairs { indent: 0, width: LEAD, long: Name::Cut, pairs }));
}

/// `1 severe, 2 warnings`.
fn counts(findings: &[Finding]) -> String {
    let of = |s: Severity| {
        let n = findings.iter().filter(|f| f.severity == s).count();
        (n > 0).then(|| s.counted(n))
    };
    Severity::ALL.into_iter().rev().filter_map(of).collect::<Vec<_>>().join(", ")
}

/// The device, else the guest itself.
fn place(finding: &Finding) -> String {
    match &finding.subject {
        About::Guest(Subject { device: None, .. }) => "the whole guest".to_owned(),
        subject => subject.within(),
    }
}

/// How sure a finding is: the setting was read; its cost is known from runs or papers, or not at all.
fn sure(row: &Row, finding: &Finding) -> String {
    let gain = match &finding.expected {
        Some(expected) => match expected.times {
            Some(times) => format!("gain {} times in {}", format::two(times), expected.source),
            None => format!("gain as in {}", expected.source),
        },
        None if is_to_be_like(row) => "its cost here is not measured (vmio tax --like)".into(),
        None => "its cost here is not measured".into(),
    };
    if finding.evidence.is_empty() { gain } else { format!("setting certain; {gain}") }
}

/// How a change is made, by the tool of the guest's manager first.
pub(super) fn made(row: &Row, change: &Change) -> Made {
    let owned = |ways: Ways<'_>| -> document::Ways { ways.into_iter().map(|(name, how)| (name, how.into())).collect() };
    let (ways, elsewhere) = row.ways(change);
    let (remark, takes) = (row.remark(change), finding::takes(change.takes));
    Made { ways: owned(ways), elsewhere: owned(elsewhere), remark, takes }
}

/// The same with the fields of what manages the guest first: what that writes itself is apart.
pub(super) fn fields_first(found: &Finding, made: Made) -> Made {
    let Some(fields) = &found.by_manager else { return made };
    let elsewhere = made.ways.into_iter().chain(made.elsewhere).collect();
    Made { ways: vec![(fields.tool.name(), fields.text.clone())], elsewhere, remark: None, takes: made.takes }
}

/// What identifies a guest: hypervisor, manager, ids.
fn identity(row: &Row) -> Vec<String> {
    let guest = &row.guest;
    let mut all = vec![guest.version.clone().unwrap_or_else(|| guest.kind.clone())];
    all.extend(guest.manager.as_ref().map(|m| format!("managed by {m}")));
    all.extend(guest.ids.iter().filter(|(_, v)| **v != guest.name).map(|(k, v)| format!("{k} {v}")));
    all.extend(guest.pid.map(|pid| format!("pid {pid}")));
    all.extend(guest.uuid.as_ref().map(|uuid| format!("uuid {uuid}")));
    let named = guest.os.as_ref().filter(|os| *os != "other");
    all.extend(named.map(|os| format!("runs {os}")));
    all
}

/// Each setting of its devices; a page folds them away and has their sources.
fn settings(doc: &mut Document, row: &Row, sources: bool) {
    let devices = devices(&row.guest);
    let known = devices.iter().map(|d| fit::columns(&d.name)).max().unwrap_or(0);
    let pair = |name: &str, text: String| (In::TERMINAL, Text::from(name), text);
    let mut pairs = vec![pair("guest", format!("{}, {}", row.guest.name, identity(row).join(", ")))];
    let list = |device: &Device| {
        if device.settings.is_empty() {
            "nothing could be read".to_owned()
        } else {
            device.settings.iter().map(|s| format!("{} {}", s.name, s.value)).collect::<Vec<_>>().join(", ")
        }
    };
    pairs.extend(devices.iter().filter(|_| !sources).map(|device| pair(&device.name, list(device))));
    doc.gap();
    doc.only(In::TERMINAL, heading(3, "Guest and settings"));
    let width = known.clamp(10, 20) + 2;
    doc.only(In::TERMINAL, Block::Pairs(Pairs { indent: 2, width, long: Name::Above, pairs }));
    if devices.is_empty() {
        doc.only(In::TERMINAL, say((2, 2), "No setting could be read."));
        return;
    }
    for device in devices.iter().filter(|_| sources) {
        let pairs = device.settings.iter().map(|s| pair(s.name, format!("{}  ({})", s.value, s.from))).collect();
        doc.only(In::TERMINAL, say((2, 2), &device.name));
        doc.only(In::TERMINAL, Block::Pairs(Pairs { indent: 4, width: 25, long: Name::Pushes, pairs }));
    }
    let words = |head: &str| Column { align: Align::Words, ..Column::new(head, 0) };
    let columns = [Column::new("Setting", 0).left(), words("Value"), words("Read from")];
    let rows = devices.iter().flat_map(|device| {
        device.settings.iter().enumerate().map(move |(nth, s)| {
            let name = if nth == 0 { device.name.as_str() } else { "" };
            document::Row::new(name, [s.name, s.value.as_str(), s.from.as_str()])
        })
    });
    let inside = vec![(In::HTML, Table::new("Device", Layout::new(0), columns).with(rows).into())];
    doc.only(In::HTML, Block::Folded("Settings, and where each was read".to_owned(), inside));
}
