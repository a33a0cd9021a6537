//! A scan for a terminal: the overview, a line a guest, and the whole of one guest.

use vmio_host::{guests, managers};
use vmio_model::facts::Unread;
use vmio_model::rules::Finding;

use super::settings::{devices, disk_label, nic_label};
use super::{Row, View, by_mend, in_one_step};
use crate::report::finding::{self, Shown};
use crate::report::format;
use crate::report::text::{Out, WIDTH};
use crate::term::Style;

/// Things that could not be read and are named in one line of the overview.
const NAMED: usize = 3;

/// The overview, in `width` columns.
pub fn overview(view: &View, style: Style, width: usize) -> String {
    let mut out = Out::new(style);
    out.width = width.min(WIDTH);
    if view.rows.is_empty() {
        nobody(&mut out, view);
    } else {
        let counts = view.counts();
        let counts = if counts.is_empty() { "nothing found".into() } else { counts };
        out.paragraph("", 0, &format!("{}: {counts}", view.headline()));
        out.line("");
        table(&mut out, view, width);
    }
    folded(&mut out, view);
    left_out(&mut out, view);
    next(&mut out, view);
    out.text
}

/// How much of a guest stands on its line; what is not there is short.
#[derive(Clone, Copy)]
struct Level {
    /// The title of the finding, else its rule.
    title: bool,
    /// Cache mode and AIO engine of the disks, else the driver alone.
    disks: bool,
    /// What moves the packets, else the model alone.
    network: bool,
}

/// The first that fits is taken.
const LEVELS: [Level; 4] = [
    Level { title: true, disks: true, network: true },
    Level { title: false, disks: true, network: true },
    Level { title: false, disks: true, network: false },
    Level { title: false, disks: false, network: false },
];

/// A line: guest, kind, vCPUs, disks, network, and its worst finding with how many more.
struct Line {
    cells: [String; 5],
    severity: Option<(vmio_model::rules::Severity, String)>,
    otherwise: &'static str,
}

const HEADS: [&str; 5] = ["guest", "kind", "vCPU", "disks", "network"];

fn line(row: &Row, level: Level) -> Line {
    let vcpus = row.guest.processors.as_ref().and_then(|p| p.vcpus);
    let severity = row.worst().map(|worst| {
        let what = if level.title { &worst.title } else { &worst.rule };
        let more = row.findings.len() - 1;
        (worst.severity, if more > 0 { format!("{what} +{more}") } else { what.clone() })
    });
    Line {
        cells: [
            row.guest.name.clone(),
            row.kind().to_owned(),
            vcpus.map_or("?".into(), |n| n.to_string()),
            disk_label(&row.guest, !level.disks),
            nic_label(&row.guest, !level.network),
        ],
        severity,
        otherwise: if row.is_known() { "nothing found" } else { "could not be read" },
    }
}

impl Line {
    fn finding(&self) -> String {
        self.severity.as_ref().map_or(self.otherwise.into(), |(s, what)| format!("{:<7} {what}", s.name()))
    }
}

/// Columns of a text; every character is taken for one.
fn columns(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn table(out: &mut Out, view: &View, width: usize) {
    let style = out.style;
    let (mut lines, mut widths) = (Vec::new(), [0; 5]);
    for level in LEVELS {
        lines = view.rows.iter().map(|row| line(row, level)).collect();
        widths = std::array::from_fn(|i| {
            lines.iter().map(|l| columns(&l.cells[i])).chain([HEADS[i].len()]).max().unwrap_or(0)
        });
        let finding = lines.iter().map(|l| columns(&l.finding())).max().unwrap_or(0);
        if widths.iter().map(|w| w + 2).sum::<usize>() + finding <= width {
            break;
        }
    }
    // Names of guests and what they have give way to the finding.
    for (column, least) in [(0, 14), (3, 13), (4, 11), (0, 8), (1, 8), (3, 8), (4, 8)] {
        let finding = lines.iter().map(|l| columns(&l.finding())).max().unwrap_or(0);
        let over = (widths.iter().map(|w| w + 2).sum::<usize>() + finding).saturating_sub(width);
        widths[column] = widths[column].saturating_sub(over).max(least.min(widths[column]));
    }
    let rest = width.saturating_sub(widths.iter().map(|w| w + 2).sum());
    let row = |cells: [&str; 5]| {
        let cell = |i: usize| {
            let text = cut(cells[i], widths[i]);
            let fill = " ".repeat(widths[i] - columns(&text));
            // Numbers stand to the right.
            if i == 2 { format!("{fill}{text}  ") } else { format!("{text}{fill}  ") }
        };
        (0..5).map(cell).collect::<String>()
    };
    out.line(&style.dim(&format!("{}worst finding", row(HEADS))));
    for l in &lines {
        let cells = std::array::from_fn(|i| l.cells[i].as_str());
        let text = match &l.severity {
            Some((severity, what)) => {
                let fill = " ".repeat(8 - severity.name().len());
                format!("{}{fill}{}", finding::severity(*severity, style), cut(what, rest.saturating_sub(8)))
            }
            None => style.dim(&cut(l.otherwise, rest)),
        };
        out.line(&format!("{}{text}", row(cells)));
    }
}

fn nobody(out: &mut Out, view: &View) {
    let seen =
        if view.root { "No guest runs on this host." } else { "No guest runs on this host that this user can see." };
    out.line(seen);
    let kinds = guests::ALL.iter().map(|k| k.name()).filter(|name| *name != "native");
    let all: Vec<&str> = kinds.chain(managers::ALL.iter().map(|m| m.name())).collect();
    out.paragraph("", 0, &format!("Looked for: {}.", all.join(", ")));
}

fn folded(out: &mut Out, view: &View) {
    let folded = by_mend(view);
    if folded.is_empty() {
        return;
    }
    out.line("");
    for (mend, what) in folded {
        let lead = match mend {
            "run as root" => "As root more would be seen".to_owned(),
            _ => format!("Could not be read ({mend})"),
        };
        let named = what[..what.len().min(NAMED)].join(", ");
        let more = if what.len() > NAMED { format!(" and {} more", what.len() - NAMED) } else { String::new() };
        let lead_in = out.style.yellow("! ");
        out.paragraph(&lead_in, 2, &format!("{lead}: {named}{more}"));
    }
}

fn left_out(out: &mut Out, view: &View) {
    let mut all = Vec::new();
    if view.own_guests > 0 {
        all.push(format!("{} of vmio's own guests (--all shows them)", view.own_guests));
    }
    if view.ignored > 0 {
        all.push(format!("{} by --ignore", format::count(view.ignored, "finding")));
    }
    if !all.is_empty() {
        out.line("");
        out.paragraph("", 0, &format!("Left out: {}.", all.join(", ")));
    }
}

fn next(out: &mut Out, view: &View) {
    let command = |out: &mut Out, command: &str, what: &str| {
        let command = format!("{command:<24}");
        let command = out.style.cyan(&command);
        out.line(&format!("  {command} {what}"));
    };
    out.line("");
    match view.rows.first() {
        Some(first) => {
            let name = format::shell(std::slice::from_ref(&first.guest.name));
            command(out, &format!("vmio scan {name}"), "all of it, with the exact change");
            if first.guest.kind == "qemu" {
                command(out, &format!("vmio tax --like {name}"), "measure a guest that is set up like it");
            }
            command(out, "vmio top", "who uses the disk and the wire now");
        }
        None => command(out, "vmio tax", "measure this host with a guest of vmio's own"),
    }
}

/// All that is known of one guest; `sources`: each setting on a line of its own with the place
/// that it was read from.
pub fn detail(row: &Row, style: Style, sources: bool) -> String {
    let mut out = Out::new(style);
    out.line(&style.bold(&row.guest.name));
    out.paragraph("", 0, &identity(row).join(", "));
    out.line("");
    settings(&mut out, row, sources);
    out.line(&style.bold("Findings"));
    if row.findings.is_empty() {
        out.line(match row.is_known() {
            true => "  No rule found anything wrong in what could be read.",
            false => "  None: no setting could be read.",
        });
    }
    for (i, found) in row.findings.iter().enumerate() {
        finding::text(&mut out, found, &shown(row, i, found));
    }
    for all in row.together() {
        out.line("");
        out.line(&style.bold(&in_one_step(&all)));
        finding::made(&mut out, all.change.takes, &row.ways(&all.change).0, row.remark(&all.change));
    }
    if !row.differences.is_empty() {
        out.line("");
        out.line(&style.bold("Differs from the reference guest of `vmio tax`"));
        row.differences.iter().for_each(|d| out.paragraph("  ", 4, d));
    }
    unread(&mut out, &row.guest.unread);
    out.text
}

/// How a finding of a guest is shown.
pub(super) fn shown<'a>(row: &'a Row, i: usize, f: &'a Finding) -> Shown<'a> {
    let same_change = finding::same_change(&row.findings, i);
    let (ways, elsewhere) = row.ways(&f.change);
    Shown { ways, elsewhere, remark: row.remark(&f.change), same_change, ..Shown::whole(i + 1, f) }
}

/// Who it is: what runs it, what manages it, its numbers.
pub(super) fn identity(row: &Row) -> Vec<String> {
    let guest = &row.guest;
    let mut all = vec![guest.version.clone().unwrap_or_else(|| guest.kind.clone())];
    all.extend(guest.manager.as_ref().map(|m| format!("managed by {m}")));
    all.extend(
        guest.ids.iter().filter(|(k, v)| **v != guest.name && *k != "monitor_held_ms").map(|(k, v)| format!("{k} {v}")),
    );
    all.extend(guest.pid.map(|pid| format!("pid {pid}")));
    all.extend(guest.uuid.as_ref().map(|uuid| format!("uuid {uuid}")));
    all.extend(guest.os.as_ref().map(|os| format!("runs {os}")));
    all
}

fn settings(out: &mut Out, row: &Row, sources: bool) {
    let style = out.style;
    let devices = devices(&row.guest);
    out.line(&style.bold("Settings"));
    if devices.is_empty() {
        out.line("  None could be read.");
    }
    let width = devices.iter().map(|d| columns(&d.name)).max().unwrap_or(0).clamp(10, 20);
    for device in devices {
        if sources {
            out.line(&format!("  {}", device.name));
            for s in &device.settings {
                let lead = format!("    {:<24} ", s.name);
                out.paragraph(&lead, 29, &format!("{}  ({})", s.value, s.from));
            }
            continue;
        }
        let list: Vec<String> = device.settings.iter().map(|s| format!("{} {}", s.name, s.value)).collect();
        let list = if list.is_empty() { "nothing could be read".into() } else { list.join(", ") };
        if columns(&device.name) > width {
            out.line(&format!("  {}", device.name));
            out.paragraph(&" ".repeat(width + 4), width + 4, &list);
        } else {
            out.paragraph(&format!("  {:<width$}  ", device.name), width + 4, &list);
        }
    }
    out.line("");
}

fn unread(out: &mut Out, all: &[Unread]) {
    if all.is_empty() {
        return;
    }
    out.line("");
    let head = out.style.bold("Could not be read");
    out.line(&head);
    for u in all {
        out.paragraph("  ", 4, &format!("{}: {}; {}", u.what, u.why, u.mend));
    }
}
