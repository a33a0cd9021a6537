//! One guest of a scan on one screen: what to do first in full, the other findings shorter, a line a device.
//! `--verbose` has all of it.

use vmio_model::facts::Remedy;
use vmio_model::rules::Finding;
use vmio_model::rules::change::AppliesAt;
use vmio_model::words::count;

use super::guest::{fields_first, first, made};
use super::settings::{Device, devices};
use super::{Row, in_one_step};
use crate::fit;
use crate::report::document::{Block, Card, Document, In, Made, Name, Pairs, Span, Text, say};
use crate::report::{finding, format};
use crate::term::Style;

/// Lines that it has at most, unless the commands of the first finding alone are longer.
pub const LINES: usize = 40;
/// Columns of a lead.
const LEAD: usize = 18;
/// Columns of the command for the rest.
const COMMAND: usize = 36;

/// How much is shown of what is not the first finding.
#[derive(Clone, Copy)]
struct Amount {
    /// Findings with cause and change.
    cards: usize,
    /// Findings after these, in a line each.
    lines: usize,
    /// Whether the settings that the first finding rests on are shown, and what a combined change is.
    evidence: bool,
    /// Devices, in a line each.
    devices: usize,
}

/// From much to little; the first that fits is taken.
const AMOUNTS: [Amount; 6] = [
    Amount { cards: 2, lines: usize::MAX, evidence: true, devices: usize::MAX },
    Amount { cards: 1, lines: usize::MAX, evidence: true, devices: usize::MAX },
    Amount { cards: 0, lines: usize::MAX, evidence: true, devices: usize::MAX },
    Amount { cards: 0, lines: usize::MAX, evidence: true, devices: 4 },
    Amount { cards: 0, lines: 12, evidence: false, devices: 2 },
    Amount { cards: 0, lines: 6, evidence: false, devices: 0 },
];

/// The guest for a terminal of so many columns; `on`: the machine that was looked at, where that is not this host.
pub fn brief(row: &Row, on: Option<&str>, style: Style, width: usize) -> String {
    let of = |amount: &Amount| document(row, on, *amount).text(style, width);
    let fits = |text: &String| text.lines().count() <= LINES;
    AMOUNTS.iter().map(of).find(fits).unwrap_or_else(|| of(&AMOUNTS[AMOUNTS.len() - 1]))
}

fn document(row: &Row, on: Option<&str>, amount: Amount) -> Document {
    let mut doc = Document::new("");
    first(&mut doc, row);
    let together = row.together();
    let combined = |place: usize| together.iter().any(|all| all.places.contains(&place));
    if let Some(worst) = row.findings.first() {
        doc.gap();
        doc.put(Block::Card(Box::new(worst_card(row, worst, combined(0), amount.evidence))));
    }
    for (place, found) in row.findings.iter().enumerate().skip(1).take(amount.cards) {
        let change = match finding::same_change(&row.findings, place) {
            Some(first) => format!("as for finding {}.", first + 1),
            None => found.change.what.clone(),
        };
        let cause = Some((found.subject.within(), sentence(&found.cause)));
        doc.put(Block::Card(Box::new(Card { cause, change: Some(change), ..title(place, found) })));
    }
    let rest = || row.findings.iter().enumerate().skip(1 + amount.cards);
    for (place, found) in rest().take(amount.lines) {
        let text = format!(" [{}, {}] {}", found.severity, found.rule, found.subject.within());
        doc.put(say((0, 3), Text::from(format!("{}. {}", place + 1, found.title)).and(Span::Plain(text))));
    }
    let more: Vec<&str> = rest().skip(amount.lines).map(|(_, found)| found.rule.as_str()).collect();
    if !more.is_empty() {
        doc.put(say((0, 3), format!("… and {}: {}", count(more.len(), "more finding"), more.join(", "))));
    }
    // Where the first finding is part of a combined change, that has its commands.
    for all in together.iter().filter(|all| amount.evidence || all.places.contains(&0)) {
        let made = Some(commands(made(row, &all.change)));
        doc.put(Block::Card(Box::new(Card { title: in_one_step(all), made, ..Card::default() })));
    }
    footer(&mut doc, row, on, amount.devices);
    doc
}

fn title(place: usize, found: &Finding) -> Card {
    let title = format!("{}. {}", place + 1, found.title);
    Card { title, found: Some((found.severity, found.rule.clone())), ..Card::default() }
}

/// The first finding as `--verbose` has it, but for what the footer says once for all.
fn worst_card(row: &Row, worst: &Finding, combined: bool, evidence: bool) -> Card {
    let whole = finding::card(&row.findings, 0, commands(fields_first(worst, made(row, &worst.change))));
    let evidence = if evidence { whole.evidence } else { Vec::new() };
    let made = whole.made.filter(|_| !combined);
    Card { evidence, made, references: Vec::new(), ..whole }
}

/// The commands of a change, without what the footer says once for all.
fn commands(made: Made) -> Made {
    Made { elsewhere: Vec::new(), remark: None, takes: "", ..made }
}

/// The first sentence of a text.
fn sentence(text: &str) -> String {
    text.find(". ").map_or(text, |end| &text[..=end]).to_owned()
}

/// When the changes take effect, the manager's remark, the devices, what could not be read, and where the rest is.
fn footer(doc: &mut Document, row: &Row, on: Option<&str>, most: usize) {
    let pair = |name: &str, text: String| (In::TERMINAL, Text::from(name), text);
    let mut said: Vec<(In, Text, String)> = Vec::new();
    if !row.findings.is_empty() {
        said.push(pair("Takes effect", effects(&row.findings)));
    }
    let remark = row.findings.iter().find_map(|found| row.remark(&found.change));
    said.extend(remark.map(|remark| pair("Note", remark.to_owned())));
    let unread = &row.guest.unread;
    let as_root = unread.iter().filter(|unread| unread.mend == Remedy::Root).count();
    if as_root > 0 {
        said.push(pair("More as root", format!("{} not read", count(as_root, "setting"))));
    }
    if unread.len() > as_root {
        said.push(pair("Not read", format!("{} (--verbose says why)", count(unread.len() - as_root, "setting"))));
    }
    let all = devices(&row.guest);
    let of = |device: &Device| pair(&fit::name(&device.name, LEAD - 2), settings(device));
    let mut shown: Vec<(In, Text, String)> = all.iter().take(most).map(of).collect();
    let left = all.len() - shown.len();
    match (shown.is_empty(), left) {
        (_, 0) => {}
        (true, left) => shown.push(pair("Settings", format!("of {} (--verbose)", count(left, "device")))),
        (false, left) => shown.push(pair("", format!("… and {}", count(left, "more device")))),
    }
    let rest = vec![pair(&whole(row, on), "every finding's commands, every setting".to_owned())];
    let block = |indent: usize, width: usize, long: Name, pairs| Block::Pairs(Pairs { indent, width, long, pairs });
    doc.gap();
    doc.put(block(0, LEAD, Name::Pushes, said));
    doc.put(block(0, LEAD, Name::Cut, shown));
    doc.put(block(2, COMMAND, Name::Command, rest));
}

/// The command that shows all of a guest.
pub fn whole(row: &Row, on: Option<&str>) -> String {
    let mut words = vec!["vmio".to_owned(), "scan".to_owned()];
    words.extend(on.into_iter().flat_map(|on| ["--on".to_owned(), on.to_owned()]));
    words.extend([row.guest.name.clone(), "--verbose".to_owned()]);
    format::shell(&words)
}

/// The settings of a device in a line.
fn settings(device: &Device) -> String {
    let all: Vec<String> = device.settings.iter().map(|s| format!("{} {}", s.name, s.value)).collect();
    if all.is_empty() { "nothing could be read".to_owned() } else { all.join(", ") }
}

/// `1 and 2 after the guest is shut down and started; 3 at once`.
fn effects(findings: &[Finding]) -> String {
    let kinds = [
        (AppliesAt::NextStart, "after the guest is shut down and started (no reboot inside it)"),
        (AppliesAt::ShutDown, "made while the guest is shut down"),
        (AppliesAt::Running, "at once, while the guest runs"),
        (AppliesAt::InGuest, "made inside the guest"),
    ];
    let of = |takes: AppliesAt| -> Vec<usize> {
        (0..findings.len()).filter(|place| findings[*place].change.takes == takes).collect()
    };
    let each = kinds.into_iter().map(|(takes, words)| (of(takes), words)).filter(|(places, _)| !places.is_empty());
    each.map(|(places, words)| format!("{} {words}", finding::numbers(&places))).collect::<Vec<_>>().join("; ")
}
