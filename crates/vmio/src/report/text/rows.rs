//! The rows of the terminal's report: what was measured, and what it cost.

use vmio_model::stats::Estimate;

use super::Out;
use crate::fit::{self, WIDTH};
use crate::report::figures::Shown;
use crate::report::format::{self, spread, time};
use crate::report::groups::{self, Group, Row};
use crate::report::view;
use crate::report::{Report, Versus, cost};

/// Width of the label column.
const LABEL: usize = 27;
/// Width of a figure and of a share: on disks, whose latencies and figure have as many columns, and elsewhere.
const ON_DISK: [usize; 2] = [33, 16];
/// See [`ON_DISK`].
const ELSEWHERE: [usize; 2] = [31, 18];
/// Width of the label in the table of the device and the CPU time.
const COST_LABEL: usize = 42;

impl Out {
    /// What was measured.
    pub(super) fn measured(&mut self, report: &Report<'_>) {
        let (style, groups) = (self.style, groups::groups(report));
        for of_thing in groups.chunk_by(Group::same_thing) {
            let first = &of_thing[0];
            self.title(&groups::heading(first, " "));
            for name in first.on.iter().filter(|_| first.on_disk()) {
                let Some(entry) = vmio_rig::disks::targets::find(name) else { continue };
                let lead = if first.on.len() > 1 { format!("{name}: ") } else { String::new() };
                self.paragraph("  ", 2, &format!("{lead}{}", entry.about()));
            }
            self.line(&style.dim(&head(first, &report.versus)));
            of_thing.iter().for_each(|group| self.group(group));
        }
        if report.summary.cells.is_empty() {
            return;
        }
        self.paragraph("", 0, &format!("n: number of samples. {}", view::shares_are(report)));
        for (mark, meaning) in view::legend(&report.summary) {
            self.paragraph("", 0, &format!("{mark}: {meaning}."));
        }
        self.line("");
    }

    fn group(&mut self, group: &Group<'_>) {
        match group.about_all() {
            Some(about) if fit::columns(&group.workload) + fit::columns(about) + 3 <= WIDTH => {
                self.line(&format!("{} ({about})", self.style.bold(&group.workload)));
            }
            about => {
                self.title(&group.workload);
                about.iter().for_each(|about| self.paragraph("  ", 2, &format!("({about})")));
            }
        }
        group.about_each().for_each(|about| self.paragraph("  ", 4, &about));
        for row in &group.rows {
            let n = row.cell.samples.to_string();
            match group.on_disk() {
                true => self.disk(row, &n),
                false => self.wide(ELSEWHERE, &format!("  {}", row.label), &judged(row), &view::share(row), &n),
            }
            self.beside(row, if group.on_disk() { ON_DISK } else { ELSEWHERE });
            for note in view::notes(row) {
                let lead = format!("    {} ", self.style.yellow("^"));
                self.paragraph(&lead, 6, &note);
            }
        }
        self.line("");
    }

    /// A row of a disk: its latencies have columns.
    fn disk(&mut self, row: &Row<'_>, n: &str) {
        let latency = |e: &Option<Estimate>| e.map_or("–".into(), |e| time(e.value));
        let figure = view::judged(row.cell).map_or("–".into(), |(unit, e)| {
            let spread = if e.interval.is_some() { spread(&e) } else { "±?".into() };
            format!("{} {spread}", format::figure(unit, e.value))
        });
        let label = format!("  {}", row.label);
        let [p50, p99] = view::latencies(row.cell).map(|e| latency(&e));
        let label = self.or_above(&label);
        let (room, line) = columns([&p50, &p99, &figure, &view::share(row), n]);
        let label = if fit::columns(label) <= room { label } else { self.above(label) };
        self.line(&format!("{}{line}", fit::left(label, room)));
    }

    /// The figures below a row: its others, and those of each of several actors.
    fn beside(&mut self, row: &Row<'_>, widths: [usize; 2]) {
        let mut small = |indent: usize, name: &str, shown: Option<&Shown>| {
            let (value, share) = shown.map(|s| (s.text(), s.share.as_str())).unwrap_or_default();
            self.wide(widths, &format!("{:indent$}{name}", ""), &value, share, "");
        };
        for shown in &row.beside.figures {
            small(4, &shown.name, Some(shown));
        }
        for part in &row.beside.actors {
            small(4, &part.label, part.judged.as_ref());
            for shown in &part.beside {
                small(6, &shown.name, Some(shown));
            }
        }
        if let Some(fairness) = &row.beside.fairness {
            small(4, &fairness.name, Some(fairness));
        }
    }

    /// A row of one figure and a share, which has a line of its own where both are too long for one.
    fn wide(&mut self, [figures, shares]: [usize; 2], label: &str, figure: &str, share: &str, n: &str) {
        let label = self.or_above(label);
        let (figure, share) = (narrow(figure), narrow(share));
        let before = |width: usize| format!("{}{}", fit::left(label, LABEL), fit::right(&figure, width));
        let after = |width: usize| format!("{}{}", fit::right(&share, width), fit::right(n, 4));
        // A share that is wider than its column takes of the room before it.
        let over = if share.is_empty() { 0 } else { (fit::columns(&share) + 1).saturating_sub(shares) };
        if fit::columns(&figure) + over <= figures {
            self.line(&(before(figures - over) + &after(shares + over)));
        } else {
            self.line(&before(figures));
            self.line(&after(LABEL + figures + shares));
        }
    }

    /// A heading; names that are joined in it may be many.
    pub(in crate::report) fn title(&mut self, text: &str) {
        if fit::columns(text) <= WIDTH {
            self.line(&self.style.bold(text));
            return;
        }
        for (i, line) in fit::lines(text, WIDTH - 2).iter().enumerate() {
            let indent = if i == 0 { "" } else { "  " };
            self.line(&format!("{indent}{}", self.style.bold(line)));
        }
    }

    /// A label, or nothing where it is too long for its column and was written above.
    fn or_above<'b>(&mut self, label: &'b str) -> &'b str {
        if fit::columns(label) <= LABEL { label } else { self.above(label) }
    }

    /// Writes a label above its row, which begins with nothing then.
    fn above(&mut self, label: &str) -> &'static str {
        let text = label.trim_start();
        let indent = label.len() - text.len();
        self.paragraph(&" ".repeat(indent), indent + 2, text);
        ""
    }

    /// A label in a column, or on a line of its own where it is too long.
    pub(in crate::report) fn labelled(&mut self, label: &str, width: usize, rest: &str) {
        if fit::columns(label) > width {
            self.paragraph("", 2, label);
            self.line(&format!("{:width$}{rest}", ""));
        } else {
            self.line(&format!("{}{rest}", fit::left(label, width)));
        }
    }

    /// What it cost.
    pub(super) fn cost(&mut self, report: &Report<'_>) {
        let groups = groups::groups(report);
        let groups: Vec<&Group<'_>> = groups.iter().filter(|g| g.rows.iter().any(|r| cost::any(r.cell))).collect();
        for of_thing in groups.chunk_by(|a, b| a.same_thing(b)) {
            let on_disk = of_thing[0].on_disk();
            let what = if on_disk { "At the device and CPU time" } else { "CPU time" };
            self.title(&format!("{what}, {}", groups::named(of_thing[0])));
            let device = if on_disk { device_columns(["KiB", "depth", "busy"]) } else { String::new() };
            let rows = || of_thing.iter().flat_map(|group| &group.rows).map(|row| row.cell);
            let ([gigabytes, requests, _], idle) = (cost::counted(rows()), cost::any_idle(rows()));
            let title = |there: bool, title: &'static str| if there { title } else { "" };
            let titles =
                cpu_columns([title(gigabytes, "CPU s/GB"), title(requests, "CPU/req"), title(idle, "idle")]) + &device;
            self.line(&self.style.dim(&format!("{:COST_LABEL$}{titles}", "")));
            for row in of_thing.iter().flat_map(|group| &group.rows) {
                let [gigabyte, request, ..] = cost::cpu(row.cell);
                let device = match view::device(row.cell) {
                    _ if !on_disk => String::new(),
                    Some([kib, depth, busy]) => device_columns([&kib, &depth, &busy]),
                    None => format!("{:>18}", "not visible here"),
                };
                let label = format!("  {} {}", row.cell.cell.workload(), row.label);
                let columns = cpu_columns([&gigabyte, &request, &cost::idle(row.cell)]);
                self.labelled(&label, COST_LABEL, &(columns + &device));
                let parts = cost::parts(row.cell);
                if !parts.is_empty() {
                    self.paragraph("      ", 6, &parts);
                }
            }
            self.line("");
        }
        if groups.is_empty() {
            return;
        }
        let device = match groups.iter().any(|g| g.on_disk()) {
            true => format!(
                "KiB: mean request at the device (avgrq-sz, which counts sectors of 512 bytes). {} ",
                cost::LOAD
            ),
            false => String::new(),
        };
        let timed = groups.iter().flat_map(|g| &g.rows).any(|row| view::latencies(row.cell)[0].is_some());
        let times = if timed { format!("{} ", view::TIMES) } else { String::new() };
        self.paragraph("", 0, &format!("{times}{device}{}", cost::meaning(report)));
        self.line("");
    }
}

/// The head of the columns of a thing.
fn head(group: &Group<'_>, versus: &Versus) -> String {
    match group.on_disk() {
        true => {
            let (room, line) = columns(["p50", "p99", "figure (95 %)", versus.narrow(), "n"]);
            format!("{:room$}{line}", "")
        }
        false => {
            let [figures, shares] = ELSEWHERE;
            let (figure, share) = (fit::right("figure (95%)", figures), fit::right(versus.narrow(), shares));
            format!("{:LABEL$}{figure}{share}{:>4}", "", "n")
        }
    }
}

/// The figure that a row is judged by.
fn judged(row: &Row<'_>) -> String {
    row.cell.judged().map_or("–".into(), |figure| Shown::of(figure, None).text())
}

/// No space before the percent sign.
fn narrow(text: &str) -> String {
    text.replace(" %", "%")
}

/// The columns of a disk after its label, and how much room is left for that. What is wider than its column takes
/// of the room before it.
fn columns(cells: [&str; 5]) -> (usize, String) {
    let (mut over, mut line) = (0, String::new());
    for (cell, width) in cells.map(narrow).iter().zip([8, 8, 17, 16, 4]).rev() {
        let needs = if cell.is_empty() { 0 } else { fit::columns(cell) + 1 };
        let has = needs.max(width - over.min(width));
        over = (over + has) - width;
        line = fit::right(cell, has) + &line;
    }
    (LABEL - over.min(LABEL), line)
}

/// What the device saw: KiB, depth, busy.
fn device_columns([kib, depth, busy]: [&str; 3]) -> String {
    // Buffered writes reach the device in megabytes: no decimals then, and always a gap.
    let kib = if kib.len() > 5 { kib.split('.').next().unwrap_or(kib) } else { kib };
    format!("{kib:>7}{depth:>6}{:>5}", narrow(busy))
}

/// What a cell cost: seconds of the host's processors for each GB, and for each request; and how idle they were, which stands
/// where the columns of the device are for a disk.
fn cpu_columns([gigabyte, request, idle]: [&str; 3]) -> String {
    let idle = if idle.is_empty() { String::new() } else { format!("{idle:>10}") };
    format!("{gigabyte:>10}{request:>10}{idle}")
}
