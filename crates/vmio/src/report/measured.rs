//! The tables of what was measured, one for each group, with a bar beside each figure and the curves of latency.

use vmio_model::figure::{Form, Unit};
use vmio_model::result::WorkloadResult;
use vmio_model::stats::Estimate;
use vmio_model::summary::{CellRow, FigureRow, Percentile};

use super::document::{
    Bar, Block, Cell, Column, Document, Drawing, Heading, In, Layout, Plots, Row, Span, Table, Text, Wide, aside,
    heading, remarks, say,
};
use super::figures::FigureText;
use super::format::{self, spread, time};
use super::groups::{self, Group};
use super::svg::{self, Curve};
use super::{Report, cost, view};

/// Adds all that was measured.
pub(super) fn put(doc: &mut Document, report: &Report<'_>) {
    let groups = groups::groups(report);
    // A side has the same colour, dash and marker on the whole page; native is always the first series.
    let rows = || groups.iter().flat_map(|group| &group.rows);
    let native = rows().filter(|row| row.cell.cell.is_native()).map(|row| row.label.as_str());
    let mut series: Vec<&str> = vec![native.min_by_key(|label| label.len()).unwrap_or("native")];
    for row in rows() {
        if !series.contains(&row.label.as_str()) {
            series.push(&row.label);
        }
    }
    for of_thing in groups.chunk_by(Group::same_thing) {
        let first = &of_thing[0];
        doc.only(In::SHOWN, heading(2, groups::heading(first)));
        for name in first.on.iter().filter(|_| first.on_disk()) {
            let Some(entry) = vmio_rig::disks::targets::find(name) else { continue };
            let lead = if first.on.len() > 1 { format!("{name}: ") } else { String::new() };
            doc.only(In::TERMINAL, say((2, 2), format!("{lead}{}", entry.about())));
        }
        // On a terminal the tables of one subject share the first one's heads.
        doc.only(In::TERMINAL, table(first, report).into());
        of_thing.iter().for_each(|group| self::group(doc, report, group, &series));
        curves(doc, report, of_thing, &series);
    }
    if !report.summary.cells.is_empty() {
        words(doc, report, &groups);
    }
}

fn group(doc: &mut Document, report: &Report<'_>, group: &Group<'_>, series: &[&str]) {
    let label = format!("{} on {}", group.workload, groups::on(group));
    let aside = group.about_all().map(str::to_owned);
    let head = |level, text: &String| {
        Block::Heading(Heading { level, text: text.clone(), aside: aside.clone(), hang: 2, ..Heading::default() })
    };
    doc.only(In::SHOWN, head(3, &group.workload));
    doc.only(In::MARKDOWN, head(2, &label));
    doc.put(remarks((2, 4), group.about_each().map(|about| (String::new(), about))));
    let scale = scale(group);
    let rows = group.rows.iter().map(|of| {
        let series = series.iter().position(|label| *label == of.label).unwrap_or(0);
        row(report, group, of, (scale, series))
    });
    doc.put(Table { heads: In::ROOM, label, ..table(group, report).with(rows) }.into());
    doc.gap();
}

/// The meaning of columns, shares, grades and drawings.
fn words(doc: &mut Document, report: &Report<'_>, groups: &[Group<'_>]) {
    let shares = view::shares_are(report);
    doc.only(In::TERMINAL, say((0, 0), format!("n: number of samples. {shares}")));
    let unusual = view::not_taken_for_granted(report);
    if !unusual.is_empty() {
        doc.only(In::MARKDOWN, say((0, 0), unusual));
    }
    let mut drawn =
        "Bars begin at zero; the whisker is the 95 % interval, and a bar without one has too few samples for it. "
            .to_owned();
    drawn += &shares.replace(" with 95 % intervals", "");
    if groups.iter().any(Group::on_disk) {
        drawn += " Request size, queue depth and busy are what the backing device saw; avgrq-sz counts sectors of 512 \
            bytes. Queue ";
        drawn += cost::LOAD;
    }
    doc.only(In::HTML, aside((0, 0), drawn));
    let timed = || report.summary.cells.iter().filter(|cell| view::latencies(cell)[0].is_some());
    if timed().next().is_some() {
        doc.only(In::ROOM, aside((0, 0), view::TIMES));
    }
    if timed().any(|cell| cell.cell.target().is_some() && is_disowned(report, cell)) {
        let meaning = ": latency of a guest under software emulation, which says nothing about one under KVM.";
        doc.put(aside((0, 0), Text::from(Span::Strong(DISOWNED.into())).and(Span::Plain(meaning.into()))));
    }
    for (mark, meaning) in view::legend(&report.summary) {
        let mark = Text::from(Span::Strong(mark.to_owned()));
        doc.put(aside((0, 0), mark.and(Span::Plain(format!(": {meaning}.")))));
    }
    doc.gap();
}

/// Behind a latency that the statement on emulation says nothing can be concluded from.
const DISOWNED: &str = "*";

/// Whether that statement is about the latencies of this cell: those of emulated guests.
fn is_disowned(report: &Report<'_>, cell: &CellRow) -> bool {
    report.summary.emulated && cell.cell.actors().any(|actor| !actor.side.shares_kernel())
}

/// The table of a group without rows, in the order of all tables: the figure with its bar, its share, latencies, other
/// figures that are compared, the device's, samples. Only disks have latencies and a device here.
fn table(group: &Group<'_>, report: &Report<'_>) -> Table {
    let disk = group.on_disk();
    let judged = group.rows.iter().find_map(|row| row.cell.judged());
    let title = judged.map_or_else(String::new, |figure| format::title(&figure.name, figure.unit));
    let of_times = !disk && judged.is_some_and(|figure| figure.form == Form::Distribution);
    let (figure, share, wide) = if disk { (17, 16, Wide::Takes) } else { (31, 18, Wide::Breaks) };
    // Room for [`DISOWNED`].
    let (label, time) = if disk && report.summary.emulated { (25, 9) } else { (27, 8) };
    let where_any = |any: bool| if any { In::ALL } else { In::TERMINAL };
    let timed = group.rows.iter().any(|row| view::latencies(row.cell)[0].is_some());
    let times = [("p50", 3), ("p99", 2)];
    let times = times.map(|(head, rank)| Column::new(head, time).small("latency").rank(rank).only(where_any(timed)));
    let figure = Column::new(title, figure).small(mean(of_times)).narrow("figure (95 %)").tight();
    let share = Column::new(report.versus.title(), share).small("95 %").narrow(report.versus.narrow()).tight();
    let others = group.others().into_iter().map(|name| {
        let head = Column::new(format::capital(name), 0).small(figure_note(group, name)).narrow(name);
        Column { below: true, ..head.only(where_any(!disk)) }
    });
    let device = [("Request", "avgrq-sz"), ("Depth", "avgqu-sz"), ("Busy", "%util")];
    let device = device.map(|(head, small)| Column::new(head, 0).small(small).only(In::ROOM));
    let mut columns = vec![Column { bars: true, ..figure }, share.only(where_any(report.versus.any()))];
    columns.extend(times.into_iter().filter(|_| disk));
    columns.extend(others);
    columns.extend(device.into_iter().filter(|_| disk));
    columns.push(Column::new("n", 4).small("samples").rank(1));
    let layout = Layout { wide, note: ("    ^ ", 6), ..Layout::new(label) };
    Table { heads: In::TERMINAL, marks: "marks", ..Table::new("Side", layout, columns) }
}

/// The content of a column.
fn mean(of_distributions: bool) -> &'static str {
    if of_distributions { "p50, 95 %" } else { "mean, 95 %" }
}

fn figure_note(group: &Group<'_>, name: &str) -> &'static str {
    let mut shown = group.rows.iter().flat_map(|row| row.details.shown());
    mean(shown.any(|shown| shown.name == name && shown.p99.is_some()))
}

/// The value at the full width of a bar: the highest of the group, its actors' and intervals included.
fn scale(group: &Group<'_>) -> f64 {
    let top = |e: &Estimate| e.interval.map_or(e.value, |i| i.high.max(e.value));
    let alike = group.rows.iter().flat_map(|r| &r.details.actors).filter(|part| part.alike);
    let actors = alike.filter_map(|part| Some(part.judged.as_ref()?.estimate));
    let cells = group.rows.iter().filter_map(|r| view::judged(r.cell)).map(|(_, e)| e);
    cells.chain(actors).map(|e| top(&e)).fold(0.0, f64::max)
}

/// The row of a cell, with its actors, their fairness, and notes.
fn row(report: &Report<'_>, group: &Group<'_>, of: &groups::Row<'_>, (scale, series): (f64, usize)) -> Row {
    let cell = of.cell;
    let bar = |label: &str, said: &Text, e: &Estimate| {
        let title = format!("{label}: {}, {} samples", said.plain(), e.n);
        Bar { from: 0.0, value: e.value, interval: e.interval, scale, series, title }
    };
    let (said, narrow, estimate) = match (group.on_disk(), cell.judged()) {
        (true, Some(figure)) if figure.typical.n > 0 => {
            let (value, e) = (format::figure(figure.unit, figure.typical.value), figure.typical);
            let narrow = e.interval.is_none().then(|| format!("{value} ±?"));
            (Text::from(format!("{value} {}", spread(&e))), narrow, Some(e))
        }
        (false, Some(figure)) => (FigureText::of(figure, None).words(), None, Some(figure.typical)),
        _ => (Text::from("–"), None, None),
    };
    let bar_of = estimate.map(|e| bar(&of.label, &said, &e));
    let judged = Cell { text: said, narrow, bar: bar_of, ..Cell::default() };
    let latency = |e: Option<Estimate>| match e.map(|e| time(e.value)) {
        Some(told) if is_disowned(report, cell) => Text::from(Span::Dim(told + DISOWNED)),
        Some(told) => Text::from(told),
        None => Text::from("–"),
    };
    let times = view::latencies(cell).map(latency);
    let mut cells = cells(group, [judged, share(of)], times, &of.details.figures);
    if group.on_disk() {
        cells.extend(match (view::device(cell), cell.device) {
            (Some([kib, depth, busy]), Some(device)) => {
                let sectors = format!(" KiB ({:.0})", device.avgrq_sz_sectors.value);
                let sectors = if device.request_bytes.value == 0.0 { String::new() } else { sectors };
                vec![Cell::from(kib + &sectors), depth.into(), busy.into()]
            }
            _ => Cell::over(3, "not visible here"),
        });
    }
    cells.push(cell.samples.to_string().into());
    let part = |label: &String, shown: Option<&FigureText>, drawn: bool, figures: &[FigureText]| {
        let said = shown.map_or_else(|| Text::from("–"), FigureText::words);
        let bar = shown.filter(|_| drawn).map(|shown| bar(label, &said, &shown.estimate));
        let narrow = shown.is_none().then(String::new);
        let judged = Cell { text: said, narrow, bar, ..Cell::default() };
        let share = shown.map_or_else(Cell::default, |shown| Cell::from(&shown.share));
        Row::new(label, self::cells(group, [judged, share], Default::default(), figures))
    };
    let actors = of.details.actors.iter().map(|of| part(&of.label, of.judged.as_ref(), of.alike, &of.figures));
    let fairness = of.details.fairness.iter().map(|shown| part(&shown.name, Some(shown), false, &[]));
    Row { parts: actors.chain(fairness).collect(), notes: view::notes(of), ..Row::new(&of.label, cells) }
}

/// The cells of a row, or of a part of it, up to the device's figures.
fn cells(group: &Group<'_>, first: [Cell; 2], times: [Text; 2], figures: &[FigureText]) -> Vec<Cell> {
    let other = |name: &&str| match figures.iter().find(|shown| shown.name == **name) {
        Some(shown) => Cell { aside: shown.share.clone(), ..shown.words().into() },
        None => Cell::default(),
    };
    let times = times.into_iter().filter(|_| group.on_disk()).map(|text| Cell { text, ..Cell::default() });
    first.into_iter().chain(times).chain(group.others().iter().map(other)).collect()
}

/// The share of a row with its grade.
fn share(of: &groups::Row<'_>) -> Cell {
    let Some(share) = of.share else { return Cell::default() };
    let said = if share.converged {
        Text::from(format::known_share(&share.share_ratio, true))
    } else {
        Text::from(Span::Tag("not converged".into()))
    };
    let grade = share.graded.as_ref().map(|graded| Span::Strong(format!(" {}", graded.grade)));
    grade.into_iter().fold(said, Text::and).into()
}

/// Latency by percentile: each point is the table's figure, the geometric mean over all of the cell's samples, so that
/// no curve falls. It ends where a sample has no request beyond, from where on fio repeats its longest. What the
/// statement on emulation disowns is not drawn.
fn curves(doc: &mut Document, report: &Report<'_>, groups: &[Group<'_>], series: &[&str]) {
    let curve = |row: &groups::Row<'_>| {
        let results: Vec<&WorkloadResult> =
            report.run.samples.iter().filter(|s| s.cell == row.cell.cell).map(|s| &s.result).collect();
        let figure = times(row)?;
        let timed: Vec<&WorkloadResult> =
            results.into_iter().filter(|r| r.distribution(&figure.name).is_some()).collect();
        let fewest = timed.iter().map(|r| r.disk_work().ios).min()? as f64;
        // A workload that works on no disk does not report the number of its operations.
        let lies_beyond = |p: f64| row.cell.cell.target().is_none() || fewest * (1.0 - p / 100.0) >= 1.0;
        let of_all = |p: &&Percentile| p.over.n as usize == timed.len() && lies_beyond(p.percentile);
        let points = figure.percentiles.iter().filter(of_all).map(|p| (p.percentile, p.over.value)).collect();
        let series = series.iter().position(|label| *label == row.label).unwrap_or(0);
        Some(Curve { series, label: row.label.clone(), points })
    };
    let (mut drawings, mut shown) = (Vec::new(), Vec::new());
    for group in groups.iter().filter(|group| !group.rows.iter().any(|row| is_disowned(report, row.cell))) {
        let all: Vec<Curve> = group.rows.iter().filter_map(curve).collect();
        if svg::can_draw(&all) {
            let title = format!("Latency of {} on {} by percentile", group.workload, groups::on(group));
            let what = if group.on_disk() { "requests" } else { "all" };
            shown.extend(all.iter().map(|curve| curve.series));
            drawings.push((group.workload.clone(), Drawing::Latency(all, title, what)));
        }
    }
    if drawings.is_empty() {
        return;
    }
    let legend = series.iter().enumerate().filter(|(n, _)| shown.contains(n));
    let legend = legend.map(|(n, label)| (n, (*label).to_owned())).collect();
    let (level, text) = (3, "Latency by percentile".to_owned());
    let aside = Some("geometric mean over the samples, as in the table; both axes logarithmic".to_owned());
    doc.only(In::HTML, Block::Heading(Heading { level, text, aside, ..Heading::default() }));
    doc.only(In::HTML, Block::Plots(Plots { legend, drawings }));
}

/// The timed figures of a row that have percentiles, without those of several actors.
fn times<'a>(row: &'a groups::Row<'_>) -> Option<&'a FigureRow> {
    let figures = &row.cell.figures;
    let timed = |f: &&FigureRow| f.unit == Unit::Seconds && f.form == Form::Distribution;
    figures.iter().filter(timed).find(|f| f.labels.is_empty() || !row.cell.cell.is_alone())
}
