//! Simulated runs as a document: a table for each run and, on a page, all members' rates over time in one plot, then
//! each member against its minimum and maximum; below them the published figures.

use vmio_model::rate::BitRate;
use vmio_model::simulate::paper::above_maximum_ratio;
use vmio_model::simulate::{Allocator, SECOND, Sample, Totals, Vif};

use super::{Report, Simulated, Study, beside, mbit, mean_bps, ratio, shown, time, what};
use crate::fit;
use crate::report::document::{
    Block, Column, Document, Drawing, Heading, In, Kind, Layout, Long, Plots, Row, Span, Table, Text, aside, heading,
    list, paragraph, say,
};
use crate::report::plot::{Line, Mark, Plot, Stroke};

/// Most lines in a plot; more cannot be told apart.
const TOGETHER: usize = 6;
/// Most rows on a terminal, and on a page.
const MOST: [usize; 2] = [40, 200];
/// Members that the answer names, and the share of time from which on a minimum is met: as it is rounded.
const NAMED: usize = 5;
const MET: f64 = 0.9995;
/// Most members in the columns of the table of periods.
const ABREAST: usize = 4;

/// The whole document.
pub(super) fn document(report: &Report) -> Document {
    let mut doc = Document::new(match (&report.study, report.runs.first()) {
        (Some(study), _) => format!("vmio guard, simulated: {}", study.paper.key),
        (None, Some(run)) => format!("vmio guard, simulated: {}", run.subject),
        (None, None) => "vmio guard, simulated".into(),
    });
    doc.only(
        In::HTML,
        aside(
            (0, 0),
            "A simulation in virtual time, not a measurement. CPU time is not part of it. Rates are of packets as they \
             count on the wire. Not delivered (in the published figures: loss) is 1 - received / scheduled: packets \
             that a full ring kept from being sent count, too.",
        ),
    );
    report.runs.iter().for_each(|run| one(&mut doc, run));
    if report.study.is_none() {
        answer(&mut doc, report);
    }
    if let Some(study) = &report.study {
        published(&mut doc, report, study);
        doc.gap();
        periods(&mut doc, report, study);
        doc.gap();
        notes(&mut doc, &study.paper);
    }
    doc.only(In::HTML, heading(2, "Again"));
    doc.only(In::HTML, Block::Code(report.command.clone()));
    doc
}

/// Where the publication contradicts itself.
pub(in crate::report) fn notes(doc: &mut Document, paper: &vmio_model::simulate::paper::Paper) {
    doc.put(heading(2, "Notes"));
    doc.put(list((2, 4), paper.footnote.iter().map(|note| format!("{}: {}", note.about, note.text))));
}

/// What the columns mean, and last whether the members had their minima.
fn answer(doc: &mut Document, report: &Report) {
    let legend =
        "missing: not sent or dropped; not sent: held back at the sender; dropped: on the host; min met: of the time";
    doc.only(In::TERMINAL, paragraph(Kind::Dim, (0, 2), legend));
    let of = |run: &Simulated| -> Vec<String> {
        let members = run.scenario.vifs.iter().zip(&run.outcome.totals);
        let missed = members.filter(|(vif, t)| vif.contract.min > BitRate::ZERO && t.met_ratio() < MET);
        missed.map(|(vif, t)| format!("{} {} {:.1} %", run.subject, vif.name, t.met_ratio() * 100.0)).collect()
    };
    let missed: Vec<String> = report.runs.iter().flat_map(of).collect();
    let more = missed.len().saturating_sub(NAMED);
    let named = missed.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let said = match (missed.is_empty(), more) {
        (true, _) => "Every member had its minimum whenever it wanted it.".to_owned(),
        (false, 0) => format!("Members without their minimum all of the time: {named}."),
        (false, more) => format!("Members without their minimum all of the time: {named} and {more} more."),
    };
    doc.only(In::TERMINAL, say((0, 2), Text::from(Span::Bold(said))));
}

fn one(doc: &mut Document, run: &Simulated) {
    let form = if run.outcome.packets { "packet by packet" } else { "as a fluid" };
    let text = format!("{}: {}", run.subject, run.how());
    let about = format!(
        "{} for {} s of virtual time, {form}; Mbit/s are means over all of it",
        run.scenario.capacity,
        run.seconds()
    );
    doc.put(Block::Heading(Heading { level: 2, text, ..Heading::default() }));
    doc.put(paragraph(Kind::Dim, (2, 2), about));
    drawings(doc, run);
    let (vifs, totals) = (&run.scenario.vifs, &run.outcome.totals);
    let [few, many] = MOST;
    let rows: Vec<Row> = vifs.iter().zip(totals).take(many).map(|(vif, t)| member(run, vif, t)).collect();
    doc.only(In::TERMINAL, table(rows.iter().take(few).cloned()).into());
    doc.only(In::HTML, table(rows).into());
    if vifs.len() > few {
        let met = totals.iter().map(Totals::met_ratio).fold(1.0, f64::min);
        let more = format!("and {} more; worst of all, minimum met {:.1} %", vifs.len() - few, met * 100.0);
        doc.only(In::TERMINAL, say((2, 2), more));
    }
    if vifs.len() > many {
        let note = format!("The first {many} of {} members; --json has all.", vifs.len());
        doc.only(In::HTML, aside((0, 0), note));
    }
    doc.gap();
}

fn table(rows: impl IntoIterator<Item = Row>) -> Table {
    let column = |narrow: &str, width: usize, head: &str, small| {
        Column::new(head, width).small(small).narrow(narrow).gap(1).tight()
    };
    let columns = [
        column("min", 7, "minimum", "Mbit/s"),
        column("max", 7, "maximum", "Mbit/s"),
        column("offered", 7, "offered", "Mbit/s, mean"),
        column("received", 8, "received", "Mbit/s, mean"),
        column("missing", 7, "not delivered", "never sent or dropped"),
        column("not sent", 8, "never sent", "held in the guest"),
        column("dropped", 7, "dropped", "on the host"),
        column("min met", 7, "minimum met", "of the time"),
    ];
    let layout = Layout { long: Long::Shortened, ..Layout::new(14) };
    Table { narrow: "member".to_owned(), ..Table::new("member", layout, columns).with(rows) }
}

fn member(run: &Simulated, vif: &Vif, t: &Totals) -> Row {
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    let cells = [
        mbit(vif.contract.min.bits() as f64),
        mbit(vif.contract.max.bits() as f64),
        mbit(mean_bps(t.scheduled_bits, run.seconds())),
        mbit(mean_bps(t.received_bits, run.seconds())),
        percent(t.loss_ratio()),
        percent(ratio(t.never_sent_bits, t.scheduled_bits)),
        percent(ratio(t.dropped_bits, t.scheduled_bits)),
        format!("{:.1} %", t.met_ratio() * 100.0),
    ];
    Row::new(&vif.name, cells)
}

/// All members in one plot, then each by itself.
fn drawings(doc: &mut Document, run: &Simulated) {
    let kept = run.outcome.series.first().map_or(0, |s| s.received.len());
    let sends = |i: &usize| run.outcome.totals[*i].scheduled_bits > 0;
    let line = |(series, i): (usize, usize)| Line {
        stroke: Stroke::Series(series),
        label: run.scenario.vifs[i].name.clone(),
        points: points(run, &|s| s.received[i]),
    };
    let all: Vec<Line> = (0..kept).filter(sends).take(TOGETHER).enumerate().map(line).collect();
    let top = Some((0.0, run.scenario.capacity.bits() as f64 / 1e6 * 1.02));
    let y_range = top.filter(|_| run.scenario.vifs.len() <= TOGETHER);
    let plot = Plot { y_range, ..Plot::over_seconds("Rates received over time", (960.0, 260.0), all, Vec::new()) };
    doc.only(In::HTML, Block::Plots(wide(plot)));
    doc.only(
        In::HTML,
        aside(
            (0, 0),
            "Received, in Mbit/s. Below: each against what it offers (thin), its minimum and its maximum (dashed).",
        ),
    );
    let each = |i: usize| {
        let vif = &run.scenario.vifs[i];
        let lines = vec![
            Line { stroke: Stroke::Thin, label: "offered".into(), points: points(run, &|s| s.scheduled[i]) },
            Line { stroke: Stroke::Series(0), label: "received".into(), points: points(run, &|s| s.received[i]) },
        ];
        let mark =
            |rate: BitRate, label: &str, series| Mark { value: rate.bits() as f64 / 1e6, label: label.into(), series };
        let marks = vec![mark(vif.contract.max, "max", 2), mark(vif.contract.min, "min", 1)];
        (vif.name.clone(), Drawing::Lines(Plot::over_seconds(&vif.name, (360.0, 200.0), lines, marks)))
    };
    let drawings = (0..kept).filter(sends).map(each).collect();
    doc.only(In::HTML, Block::Plots(Plots { legend: Vec::new(), drawings }));
}

/// A drawing as wide as the page, with its legend.
fn wide(plot: Plot) -> Plots {
    let legend = plot.lines.iter().filter_map(|line| match line.stroke {
        Stroke::Series(series) => Some((series, line.label.clone())),
        Stroke::Thin => None,
    });
    Plots { legend: legend.collect(), drawings: vec![(String::new(), Drawing::Lines(plot))] }
}

/// Mbit/s over seconds.
fn points(run: &Simulated, of: &dyn Fn(&Sample) -> BitRate) -> Vec<(f64, f64)> {
    run.outcome.series.iter().map(|s| (s.at as f64 / SECOND as f64, of(s).bits() as f64 / 1e6)).collect()
}

/// Each printed figure with the same of the runs that it is set beside.
fn published(doc: &mut Document, report: &Report, study: &Study) {
    let row = |label: String, word: &str, value: String| Row::new(label, [word.to_owned(), value]);
    let rows = study.paper.published.iter().map(|figure| {
        let simulated = |run: &Simulated| {
            let value = figure.simulated(&run.scenario, &run.outcome).map_or("none".into(), |v| shown(figure, v));
            row(run.how(), "simulated", value)
        };
        let parts = report.runs.iter().filter(|run| beside(run, figure)).map(simulated).collect();
        Row { parts, ..row(what(figure), "published", shown(figure, figure.value)) }
    });
    let columns = [Column::new("", 9).left().gap(1), Column::new("value", 14).gap(1)];
    let text = format!("Compared with the figures printed in {}", study.paper.citation);
    doc.put(Block::Heading(Heading { level: 2, text, ..Heading::default() }));
    doc.only(In::HTML, aside((0, 0), format!("{}.", study.paper.section)));
    doc.put(Table { heads: In::HTML, ..Table::new("figure", Layout::new(55), columns).with(rows) }.into());
}

/// Loss over the period of the loop, of the first member drawn and of all in a table.
fn periods(doc: &mut Document, report: &Report, study: &Study) {
    doc.put(heading(2, "Loss over the loop's period"));
    let Some(run) = report.runs.first() else { return };
    if let Some(first) = run.scenario.vifs.first() {
        drawn(doc, run, first, study);
    }
    for (part, vifs) in run.scenario.vifs.chunks(ABREAST).enumerate() {
        let members = vifs.iter().enumerate().map(|(nth, vif)| {
            Column::new(&vif.name, 9).narrow(fit::name(&vif.name, 9)).gap(if nth == 0 { 3 } else { 1 })
        });
        let rows = study.periods.iter().map(|(allocator, period, loss)| {
            let loss = loss.iter().skip(part * ABREAST).take(ABREAST).map(|loss| format!("{:.2} %", loss * 100.0));
            Row::new(allocator.label(), std::iter::once(time(*period)).chain(loss))
        });
        let columns = std::iter::once(Column::new("period", 8).gap(1)).chain(members);
        doc.put(Table::new("loss of each member", Layout::new(26), columns).with(rows).into());
    }
}

fn drawn(doc: &mut Document, run: &Simulated, first: &Vif, study: &Study) {
    let mut allocators: Vec<Allocator> = Vec::new();
    for (allocator, ..) in &study.periods {
        if !allocators.contains(allocator) {
            allocators.push(*allocator);
        }
    }
    let line = |(i, allocator): (usize, &Allocator)| {
        let of = study.periods.iter().filter(|(a, ..)| a == allocator);
        let points = of.map(|(_, period, loss)| (*period as f64 / SECOND as f64 * 1e3, loss[0] * 100.0)).collect();
        Line { stroke: Stroke::Series(i + 1), label: allocator.label().into(), points }
    };
    let lines: Vec<Line> = allocators.iter().enumerate().map(line).collect();
    let above = above_maximum_ratio(&run.scenario, first).unwrap_or(0.0) * 100.0;
    let percent = format!("{above:.2}");
    let marks = vec![Mark { value: above, label: percent.clone(), series: 0 }];
    let highest = lines.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
    let plot = Plot {
        x_label: "period in ms",
        x_log: true,
        y_range: Some((above.floor(), (highest * 1.02).ceil().max(1.0))),
        y_unit: " %",
        ..Plot::over_seconds(format!("Loss of {} over the period", first.name), (960.0, 260.0), lines, marks)
    };
    let name = &first.name;
    let about = format!(
        "Drawn: the loss of {name}. The axis does not begin at 0. {percent} % of what {name} offers is above its maximum \
         (dashed)."
    );
    doc.only(In::HTML, Block::Plots(wide(plot)));
    doc.only(In::HTML, aside((0, 0), about));
}
