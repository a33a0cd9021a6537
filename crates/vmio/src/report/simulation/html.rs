//! Simulated runs as one HTML file that loads nothing and needs no script: for each run all
//! members' rates over time in one plot, then each member against its minimum and maximum.

use std::fmt::Write;

use vmio_model::policy::units::show_rate;
use vmio_model::simulate::paper::above_maximum_ratio;
use vmio_model::simulate::{Allocator, SECOND};

use super::{Report, Simulated, Study, beside, mbit, mean_bps, ratio, shown, time, what};
use crate::report::html::{END, escape, head};
use crate::report::plot::{Line, Mark, Plot, Stroke};
use crate::report::svg::swatch;

macro_rules! put {
    ($page:expr, $($arg:tt)*) => { let _ = write!($page, $($arg)*); };
}

/// More lines than this in one plot cannot be told apart.
const TOGETHER: usize = 6;

/// The whole page.
pub fn html(report: &Report) -> String {
    let title = match (&report.study, report.runs.first()) {
        (Some(study), _) => format!("vmio guard, simulated: {}", study.paper.key),
        (None, Some(run)) => format!("vmio guard, simulated: {}", run.subject),
        (None, None) => "vmio guard, simulated".into(),
    };
    let mut page = head(&title);
    page += "<p class=\"dim\">A simulation in virtual time, not a measurement. CPU time is not part of it. Rates are of Ethernet \
             frames without preamble and FCS. Loss is 1 - received / scheduled: what a full ring kept from being sent counts.</p>\n";
    if let Some(study) = &report.study {
        published(&mut page, report, study);
        periods(&mut page, report, study);
    }
    for run in &report.runs {
        one(&mut page, run);
    }
    put!(page, "<h2>Again</h2>\n<pre>{}</pre>\n", escape(&report.command));
    page + END
}

fn published(page: &mut String, report: &Report, study: &Study) {
    put!(
        page,
        "<h2>Compared with the published figures</h2>\n<p>{}, {}.</p>\n",
        escape(&study.paper.citation),
        study.paper.section
    );
    *page += "<div class=\"scroll\"><table><thead><tr><th class=\"l\">figure</th><th>published</th>";
    for run in &report.runs {
        put!(page, "<th>simulated<small>{}</small></th>", escape(&run.how()).replace(", ", "<br>"));
    }
    *page += "</tr></thead><tbody>";
    for figure in &study.paper.published {
        put!(page, "<tr><th>{}</th><td>{}</td>", escape(&what(figure)), shown(figure, figure.value));
        for run in &report.runs {
            let value = figure.simulated(&run.scenario, &run.outcome).filter(|_| beside(run, figure));
            put!(page, "<td>{}</td>", value.map_or(String::new(), |v| shown(figure, v)));
        }
        *page += "</tr>";
    }
    *page += "</tbody></table></div>\n<ul class=\"dim\">";
    for note in &study.paper.footnote {
        put!(page, "<li>{}: {}</li>", escape(&note.about), escape(&note.text));
    }
    *page += "</ul>\n";
}

fn periods(page: &mut String, report: &Report, study: &Study) {
    let Some(first) = report.runs.first().and_then(|r| r.scenario.vifs.first()) else { return };
    put!(page, "<h2>Loss of {} over the loop's period</h2>\n", escape(&first.name));
    let mut allocators: Vec<Allocator> = Vec::new();
    for (allocator, ..) in &study.periods {
        if !allocators.contains(allocator) {
            allocators.push(*allocator);
        }
    }
    let of = |wanted: Allocator| study.periods.iter().filter(move |(a, ..)| *a == wanted);
    let line = |(i, a): (usize, &Allocator)| Line {
        stroke: Stroke::Series(i + 1),
        label: a.label().into(),
        points: of(*a).map(|(_, period, loss)| (*period as f64 / SECOND as f64 * 1e3, loss[0] * 100.0)).collect(),
    };
    let lines: Vec<Line> = allocators.iter().enumerate().map(line).collect();
    legend(page, &lines);
    let above = above_maximum_ratio(&report.runs[0].scenario, first).unwrap_or(0.0);
    let marks = [Mark { value: above * 100.0, label: format!("{:.2}", above * 100.0), series: 0 }];
    let highest = lines.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
    let plot = Plot {
        title: "Loss over the period",
        x_label: "period in ms",
        x_log: true,
        size: (960.0, 260.0),
        y_range: Some(((above * 100.0).floor(), (highest * 1.02).ceil().max(1.0))),
        y_unit: " %",
        lines: &lines,
        marks: &marks,
    };
    *page += &plot.svg("wide").unwrap_or_default();
    put!(
        page,
        "<p class=\"dim\">The axis does not begin at 0. {:.2} % of what {} offers is above its maximum (dashed).</p>\n",
        above * 100.0,
        escape(&first.name)
    );
    *page += "<div class=\"scroll\"><table><thead><tr><th class=\"l\">loss of each member</th>";
    for (_, period, _) in allocators.first().into_iter().flat_map(|a| of(*a)) {
        put!(page, "<th>{}</th>", time(*period));
    }
    *page += "</tr></thead><tbody>";
    for allocator in &allocators {
        for (i, vif) in report.runs[0].scenario.vifs.iter().enumerate() {
            put!(page, "<tr><th>{}: {}</th>", escape(allocator.label()), escape(&vif.name));
            for (_, _, loss) in of(*allocator) {
                put!(page, "<td>{:.2} %</td>", loss[i] * 100.0);
            }
            *page += "</tr>";
        }
    }
    *page += "</tbody></table></div>\n";
}

fn one(page: &mut String, run: &Simulated) {
    let form = if run.outcome.packets { "packet by packet" } else { "as a fluid" };
    put!(
        page,
        "<h2>{}: {}</h2>\n<p class=\"dim\">{}, {} s of virtual time, {form}</p>\n",
        escape(&run.subject),
        escape(&run.how()),
        show_rate(run.scenario.capacity),
        run.seconds()
    );
    let points = |of: &dyn Fn(&vmio_model::simulate::Sample) -> u64| -> Vec<(f64, f64)> {
        run.outcome.series.iter().map(|s| (s.at as f64 / SECOND as f64, of(s) as f64 / 1e6)).collect()
    };
    let kept = run.outcome.series.first().map_or(0, |s| s.received.len());
    let drawn = |i: &usize| run.outcome.totals[*i].scheduled_bits > 0;
    let all: Vec<Line> = (0..kept)
        .filter(drawn)
        .take(TOGETHER)
        .enumerate()
        .map(|(series, i)| Line {
            stroke: Stroke::Series(series),
            label: run.scenario.vifs[i].name.clone(),
            points: points(&|s| s.received[i]),
        })
        .collect();
    legend(page, &all);
    let top = Some((0.0, run.scenario.capacity as f64 / 1e6 * 1.02));
    let plot = Plot {
        title: "Rates received over time",
        x_label: "seconds",
        x_log: false,
        size: (960.0, 260.0),
        y_range: if run.scenario.vifs.len() <= TOGETHER { top } else { None },
        y_unit: "",
        lines: &all,
        marks: &[],
    };
    *page += &plot.svg("wide").unwrap_or_default();
    *page += "<p class=\"dim\">Received, in Mbit/s. Below: each against what it offers (thin), its minimum and its maximum (dashed).</p>\n<div class=\"grid3\">";
    for i in (0..kept).filter(drawn) {
        let vif = &run.scenario.vifs[i];
        let lines = [
            Line { stroke: Stroke::Thin, label: "offered".into(), points: points(&|s| s.scheduled[i]) },
            Line { stroke: Stroke::Series(0), label: "received".into(), points: points(&|s| s.received[i]) },
        ];
        let mark = |value: u64, label: &str, series| Mark { value: value as f64 / 1e6, label: label.into(), series };
        let marks = [mark(vif.contract.max, "max", 2), mark(vif.contract.min, "min", 1)];
        let plot = Plot {
            title: &vif.name,
            x_label: "seconds",
            x_log: false,
            size: (480.0, 200.0),
            y_range: None,
            y_unit: "",
            lines: &lines,
            marks: &marks,
        };
        let svg = plot.svg("curves").unwrap_or_default();
        put!(page, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(&vif.name));
    }
    *page += "</div>\n";
    table(page, run);
}

fn table(page: &mut String, run: &Simulated) {
    *page += "<div class=\"scroll\"><table><thead><tr><th class=\"l\">member</th><th>minimum<small>Mbit/s</small></th>\
        <th>maximum<small>Mbit/s</small></th><th>offered<small>Mbit/s, mean</small></th><th>received<small>Mbit/s, mean</small></th>\
        <th>loss</th><th>never sent<small>held in the guest</small></th><th>dropped<small>on the host</small></th>\
        <th>minimum met<small>of the time</small></th></tr></thead><tbody>";
    let most = 200;
    for (vif, t) in run.scenario.vifs.iter().zip(&run.outcome.totals).take(most) {
        put!(
            page,
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.2} %</td><td>{:.2} %</td><td>{:.2} %</td><td>{:.1} %</td></tr>",
            escape(&vif.name),
            mbit(vif.contract.min as f64),
            mbit(vif.contract.max as f64),
            mbit(mean_bps(t.scheduled_bits, run.seconds())),
            mbit(mean_bps(t.received_bits, run.seconds())),
            t.loss_ratio() * 100.0,
            ratio(t.never_sent_bits, t.scheduled_bits) * 100.0,
            ratio(t.dropped_bits, t.scheduled_bits) * 100.0,
            t.met_ratio() * 100.0
        );
    }
    *page += "</tbody></table></div>\n";
    if run.scenario.vifs.len() > most {
        put!(page, "<p class=\"dim\">The first {most} of {} members; --json has all.</p>\n", run.scenario.vifs.len());
    }
}

fn legend(page: &mut String, lines: &[Line]) {
    *page += "<ul class=\"legend\">";
    for line in lines {
        if let Stroke::Series(series) = line.stroke {
            put!(page, "<li>{}{}</li>", swatch(series), escape(&line.label));
        }
    }
    *page += "</ul>\n";
}
