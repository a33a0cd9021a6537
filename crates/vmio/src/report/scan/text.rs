//! A scan for a terminal: the overview, a line a guest, and the whole of one guest.

use vmio_look::require::AS_ROOT;
use vmio_look::{kinds, managers};
use vmio_model::facts::Unread;
use vmio_model::rules::Finding;

use super::settings::{devices, disk_label, nic_label};
use super::{HostWide, Row, View, by_mend, first, host, in_one_step};
use crate::fit::{self, WIDTH};
use crate::report::finding::{self, Shown};
use crate::report::format;
use crate::report::text::Out;
use crate::term::Style;

/// Things that could not be read and are named in one line of the overview.
const NAMED: usize = 3;
/// Columns of a command that is proposed.
const COMMAND: usize = 24;

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
        for wide in view.host_wide() {
            out.line("");
            out.paragraph("", 0, &fit::plain(&format!("{}: {}. {}", on(view), wide.line(), wide.cause)));
        }
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

/// A line: guest, VMID, kind, vCPUs, disks, network, and its worst finding with how many more.
struct Line {
    cells: [String; COLUMNS],
    severity: Option<(vmio_model::rules::Severity, String)>,
    otherwise: &'static str,
}

const COLUMNS: usize = 6;
const HEADS: [&str; COLUMNS] = ["guest", "VMID", "kind", "vCPU", "disks", "network"];
/// Columns of [`HEADS`]; the VMID's is there only where a guest has one.
const GUEST: usize = 0;
const VMID: usize = 1;
const KIND: usize = 2;
const VCPU: usize = 3;
const DISKS: usize = 4;
const NETWORK: usize = 5;
/// Between two columns.
const GAP: usize = 2;

fn line(row: &Row, host: &[HostWide<'_>], level: Level) -> Line {
    let vcpus = row.guest.processors.as_ref().and_then(|p| *p.vcpus);
    let severity = host::own(row, host).next().map(|worst| {
        let what = if level.title { &worst.title } else { &worst.rule };
        let more = host::own(row, host).count() - 1;
        (worst.severity, if more > 0 { format!("{what} +{more}") } else { what.clone() })
    });
    Line {
        cells: [
            fit::plain(&row.guest.name).into_owned(),
            row.guest.vmid().map_or("–".into(), |vmid| fit::plain(vmid).into_owned()),
            row.kind().to_owned(),
            vcpus.map_or("–".into(), |n| n.to_string()),
            fit::plain(&disk_label(&row.guest, !level.disks)).into_owned(),
            fit::plain(&nic_label(&row.guest, !level.network)).into_owned(),
        ],
        severity,
        otherwise: match row.is_known() {
            true if row.findings.is_empty() => "nothing found",
            true => "nothing of its own",
            false => "could not be read",
        },
    }
}

impl Line {
    fn finding(&self) -> String {
        self.severity.as_ref().map_or(self.otherwise.into(), |(s, what)| format!("{:<7} {what}", s.name()))
    }
}

fn table(out: &mut Out, view: &View, width: usize) {
    let style = out.style;
    let host = view.host_wide();
    let mut shown: Vec<usize> =
        (0..COLUMNS).filter(|i| *i != VMID || view.rows.iter().any(|row| row.guest.vmid().is_some())).collect();
    let (mut lines, mut widths) = (Vec::new(), [0; COLUMNS]);
    let all = |shown: &[usize], widths: &[usize; COLUMNS]| shown.iter().map(|i| widths[*i] + GAP).sum::<usize>();
    let finding = |lines: &[Line]| lines.iter().map(|l| fit::columns(&l.finding())).max().unwrap_or(0);
    for level in LEVELS {
        lines = view.rows.iter().map(|row| line(row, &host, level)).collect();
        widths = std::array::from_fn(|i| {
            lines.iter().map(|l| fit::columns(&l.cells[i])).chain([HEADS[i].len()]).max().unwrap_or(0)
        });
        if all(&shown, &widths) + finding(&lines) <= width {
            break;
        }
    }
    // The network's device says least; a guest's page has it.
    if all(&shown, &widths) + finding(&lines) > width {
        shown.retain(|i| *i != NETWORK);
    }
    // Names of guests and what they have give way to the finding.
    let least = [(GUEST, 17), (DISKS, 13), (GUEST, 14), (KIND, 8), (DISKS, 8), (GUEST, 8), (VMID, 6)];
    for (column, least) in least {
        let over = (all(&shown, &widths) + finding(&lines)).saturating_sub(width);
        widths[column] = widths[column].saturating_sub(over).max(least.min(widths[column]));
    }
    let rest = width.saturating_sub(all(&shown, &widths));
    // The end of a name tells guests apart.
    let names: Vec<&str> = lines.iter().map(|l| l.cells[GUEST].as_str()).collect();
    let names = fit::names(&names, widths[GUEST]);
    for (line, name) in lines.iter_mut().zip(names) {
        line.cells[GUEST] = name;
    }
    let row = |cells: [&str; COLUMNS]| {
        let cell = |i: usize| {
            let text = fit::cut(cells[i], widths[i]);
            // Numbers stand to the right.
            let text = if i == VCPU || i == VMID { fit::right(&text, widths[i]) } else { fit::left(&text, widths[i]) };
            format!("{text}{:GAP$}", "")
        };
        shown.iter().map(|i| cell(*i)).collect::<String>()
    };
    out.line(&style.dim(&format!("{}worst finding", row(HEADS))));
    for l in &lines {
        let cells = std::array::from_fn(|i| l.cells[i].as_str());
        let text = match &l.severity {
            Some((severity, what)) => {
                let fill = " ".repeat(8 - severity.name().len());
                format!("{}{fill}{}", finding::severity(*severity, style), fit::cut(what, rest.saturating_sub(8)))
            }
            None => style.dim(&fit::cut(l.otherwise, rest)),
        };
        out.line(&format!("{}{text}", row(cells)));
    }
}

/// At the head of what is the host's.
fn on(view: &View) -> String {
    view.on.clone().unwrap_or_else(|| "This host".to_owned())
}

fn nobody(out: &mut Out, view: &View) {
    let host = view.host();
    let seen = match (view.root, view.own_guests) {
        (true, 0) => format!("No guest runs on {host}."),
        (true, _) => format!("No guest runs on {host} but vmio's own."),
        (false, 0) => format!("No guest on {host} is visible to this user."),
        (false, _) => format!("No guest on {host} but vmio's own is visible to this user."),
    };
    out.paragraph("", 0, &seen);
    let kinds = kinds::ALL.iter().map(|k| k.name());
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
            AS_ROOT => "Not visible without root".to_owned(),
            _ => format!("Not read ({mend})"),
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
    all.extend(view.ignored_words());
    if !all.is_empty() {
        out.line("");
        out.paragraph("", 0, &format!("Left out: {}.", all.join(", ")));
    }
}

fn next(out: &mut Out, view: &View) {
    let command = |out: &mut Out, command: &str, what: &str| {
        let shown = out.style.cyan(&fit::left(command, COMMAND));
        // A command that is longer than its column is not broken: it is there to be pasted.
        match fit::columns(command) <= COMMAND {
            true => out.line(&format!("  {shown} {what}")),
            false => {
                out.line(&format!("  {shown}"));
                out.line(&format!("{:1$} {what}", "", COMMAND + 2));
            }
        }
    };
    out.line("");
    match view.rows.first() {
        Some(first) => {
            let name = format::shell(std::slice::from_ref(&first.guest.name));
            let there = view
                .on
                .as_ref()
                .map_or_else(String::new, |address| format!(" --on {}", format::shell(std::slice::from_ref(address))));
            command(out, &format!("vmio scan{there} {name}"), "what to do about it, with the exact change");
            if view.on.is_some() {
                return;
            }
            if is_to_be_like(first) {
                command(out, &format!("vmio tax --like {name}"), "measure a guest that is set up like it");
            }
            command(out, "vmio top", "who uses the disk and the network now");
        }
        None if view.on.is_some() => {}
        None => command(out, "vmio tax", "measure this host with a reference guest"),
    }
}

/// Whether a guest can be measured that is set up like it. One of vmio's own is a measurement itself.
pub(super) fn is_to_be_like(row: &Row) -> bool {
    row.guest.is_qemu() && !row.guest.is_vmios_own()
}

/// All that is known of one guest, what to do first; `sources`: each setting on a line of its own with the
/// place that it was read from.
pub fn detail(row: &Row, style: Style, sources: bool) -> String {
    let mut out = Out::new(style);
    first::lines(&mut out, row);
    for (i, found) in row.findings.iter().enumerate() {
        out.line("");
        finding::text(&mut out, found, &shown(row, i, found));
    }
    for all in row.together() {
        out.line("");
        let head = in_one_step(&all);
        fit::lines(&head, out.width).iter().for_each(|line| out.line(&style.bold(line)));
        finding::made(&mut out, all.change.takes, &row.ways(&all.change).0, row.remark(&all.change));
    }
    out.line("");
    settings(&mut out, row, sources);
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
    out.line(&style.bold("Guest and settings"));
    let known = devices.iter().map(|d| fit::columns(&d.name)).max().unwrap_or(0);
    let width = known.clamp(10, 20);
    let named = |out: &mut Out, name: &str, text: &str| match fit::columns(name) > width {
        true => {
            out.paragraph("  ", 2, name);
            out.paragraph(&" ".repeat(width + 4), width + 4, text);
        }
        false => out.paragraph(&format!("  {}  ", fit::left(name, width)), width + 4, text),
    };
    named(out, "guest", &format!("{}, {}", row.guest.name, identity(row).join(", ")));
    if devices.is_empty() {
        out.line("  No setting could be read.");
    }
    for device in devices {
        if sources {
            out.paragraph("  ", 2, &device.name);
            for s in &device.settings {
                let lead = format!("    {} ", fit::left(s.name, 24));
                out.paragraph(&lead, 29, &format!("{}  ({})", s.value, s.from));
            }
            continue;
        }
        let list: Vec<String> = device.settings.iter().map(|s| format!("{} {}", s.name, s.value)).collect();
        let list = if list.is_empty() { "nothing could be read".into() } else { list.join(", ") };
        named(out, &device.name, &list);
    }
}

fn unread(out: &mut Out, all: &[Unread]) {
    if all.is_empty() {
        return;
    }
    out.line("");
    let head = out.style.bold("Not read");
    out.line(&head);
    for u in all {
        out.paragraph("  ", 4, &format!("{}: {}; {}", u.what, u.why, u.mend));
    }
}
