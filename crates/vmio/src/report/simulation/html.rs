//! Simulated runs as one HTML file that loads nothing and needs no script: for each run all
//! members' rates over time in one plot, then each member against its minimum and maximum.

use vmio_model::rate::BitRate;
use vmio_model::simulate::paper::above_maximum_ratio;
use vmio_model::simulate::{Allocator, SECOND, Sample, Totals, Vif};

use super::{Report, Simulated, Study, beside, mbit, mean_bps, ratio, shown, time, what};
use crate::report::page::{self, Html, html};
use crate::report::plot::{Line, Mark, Plot, Stroke};
use crate::report::svg::swatch;

/// More lines than this in one plot cannot be told apart.
const TOGETHER: usize = 6;

/// More rows than this are not put into a page.
const MOST: usize = 200;

/// The whole page.
pub fn html(report: &Report) -> String {
    let title = match (&report.study, report.runs.first()) {
        (Some(study), _) => format!("vmio guard, simulated: {}", study.paper.key),
        (None, Some(run)) => format!("vmio guard, simulated: {}", run.subject),
        (None, None) => "vmio guard, simulated".into(),
    };
    let body = html! {
        p.dim {
            "A simulation in virtual time, not a measurement. CPU time is not part of it. Rates are of \
             packets as they count on the wire. Loss is 1 - received / scheduled: what a full ring kept from being sent \
             counts."
        }
        @if let Some(study) = &report.study {
            (published(report, study))
            (periods(report, study))
        }
        @for run in &report.runs {
            (one(run))
        }
        h2 { "Again" }
        pre { (report.command) }
    };
    page::whole(&title, &body)
}

fn published(report: &Report, study: &Study) -> Html {
    html! {
        h2 { "Compared with the published figures" }
        p { (study.paper.citation) ", " (study.paper.section) "." }
        div.scroll {
            table {
                thead {
                    tr {
                        th.l { "figure" }
                        th { "published" }
                        @for run in &report.runs { th { "simulated" small { (in_lines(&run.how())) } } }
                    }
                }
                tbody {
                    @for figure in &study.paper.published {
                        tr {
                            th { (what(figure)) }
                            td { (shown(figure, figure.value)) }
                            @for run in &report.runs {
                                td {
                                    @if let Some(v) = figure.simulated(&run.scenario, &run.outcome)
                                        .filter(|_| beside(run, figure)) { (shown(figure, v)) }
                                }
                            }
                        }
                    }
                }
            }
        }
        ul.dim {
            @for note in &study.paper.footnote { li { (note.about) ": " (note.text) } }
        }
    }
}

/// The parts of a text, each on a line of its own.
fn in_lines(text: &str) -> Html {
    html! {
        @for (i, part) in text.split(", ").enumerate() {
            @if i > 0 { br; }
            (part)
        }
    }
}

fn periods(report: &Report, study: &Study) -> Html {
    let Some((run, first)) = report.runs.first().and_then(|r| Some((r, r.scenario.vifs.first()?))) else {
        return html! {};
    };
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
    let above = above_maximum_ratio(&run.scenario, first).unwrap_or(0.0) * 100.0;
    let marks = [Mark { value: above, label: format!("{above:.2}"), series: 0 }];
    let highest = lines.iter().flat_map(|l| &l.points).map(|p| p.1).fold(0.0, f64::max);
    let plot = Plot {
        title: "Loss over the period",
        x_label: "period in ms",
        x_log: true,
        size: (960.0, 260.0),
        y_range: Some((above.floor(), (highest * 1.02).ceil().max(1.0))),
        y_unit: " %",
        lines: &lines,
        marks: &marks,
    };
    html! {
        h2 { "Loss of " (first.name) " over the loop's period" }
        (legend(&lines))
        (drawn(&plot, "wide"))
        p.dim {
            "The axis does not begin at 0. " (format!("{above:.2}")) " % of what " (first.name)
            " offers is above its maximum (dashed)."
        }
        div.scroll {
            table {
                thead {
                    tr {
                        th.l { "loss of each member" }
                        @for (_, period, _) in allocators.first().into_iter().flat_map(|a| of(*a)) {
                            th { (time(*period)) }
                        }
                    }
                }
                tbody {
                    @for allocator in &allocators {
                        @for (i, vif) in run.scenario.vifs.iter().enumerate() {
                            tr {
                                th { (allocator.label()) ": " (vif.name) }
                                @for (_, _, loss) in of(*allocator) { td { (format!("{:.2} %", loss[i] * 100.0)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A drawing, or nothing where there is nothing to draw.
fn drawn(plot: &Plot<'_>, css: &str) -> Html {
    html! { @if let Some(svg) = plot.svg(css) { (svg) } }
}

fn one(run: &Simulated) -> Html {
    let form = if run.outcome.packets { "packet by packet" } else { "as a fluid" };
    let kept = run.outcome.series.first().map_or(0, |s| s.received.len());
    let sends = |i: &usize| run.outcome.totals[*i].scheduled_bits > 0;
    let all: Vec<Line> = (0..kept)
        .filter(sends)
        .take(TOGETHER)
        .enumerate()
        .map(|(series, i)| Line {
            stroke: Stroke::Series(series),
            label: run.scenario.vifs[i].name.clone(),
            points: points(run, &|s| s.received[i]),
        })
        .collect();
    let top = Some((0.0, run.scenario.capacity.bits() as f64 / 1e6 * 1.02));
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
    html! {
        h2 { (run.subject) ": " (run.how()) }
        p.dim { (run.scenario.capacity) ", " (run.seconds()) " s of virtual time, " (form) }
        (legend(&all))
        (drawn(&plot, "wide"))
        p.dim {
            "Received, in Mbit/s. Below: each against what it offers (thin), its minimum and its maximum (dashed)."
        }
        div.grid3 { @for i in (0..kept).filter(sends) { (member(run, i)) } }
        (table(run))
    }
}

/// Mbit/s over seconds.
fn points(run: &Simulated, of: &dyn Fn(&Sample) -> BitRate) -> Vec<(f64, f64)> {
    run.outcome.series.iter().map(|s| (s.at as f64 / SECOND as f64, of(s).bits() as f64 / 1e6)).collect()
}

/// A member against its minimum and maximum.
fn member(run: &Simulated, i: usize) -> Html {
    let vif = &run.scenario.vifs[i];
    let lines = [
        Line { stroke: Stroke::Thin, label: "offered".into(), points: points(run, &|s| s.scheduled[i]) },
        Line { stroke: Stroke::Series(0), label: "received".into(), points: points(run, &|s| s.received[i]) },
    ];
    let mark =
        |rate: BitRate, label: &str, series| Mark { value: rate.bits() as f64 / 1e6, label: label.into(), series };
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
    html! { figure { figcaption { (vif.name) } (drawn(&plot, "curves")) } }
}

/// Columns after a member's name, with a small word below.
const COLUMNS: [(&str, Option<&str>); 8] = [
    ("minimum", Some("Mbit/s")),
    ("maximum", Some("Mbit/s")),
    ("offered", Some("Mbit/s, mean")),
    ("received", Some("Mbit/s, mean")),
    ("loss", None),
    ("never sent", Some("held in the guest")),
    ("dropped", Some("on the host")),
    ("minimum met", Some("of the time")),
];

/// What these columns show.
fn figures(run: &Simulated, vif: &Vif, t: &Totals) -> [String; 8] {
    let percent = |ratio: f64| format!("{:.2} %", ratio * 100.0);
    [
        mbit(vif.contract.min.bits() as f64),
        mbit(vif.contract.max.bits() as f64),
        mbit(mean_bps(t.scheduled_bits, run.seconds())),
        mbit(mean_bps(t.received_bits, run.seconds())),
        percent(t.loss_ratio()),
        percent(ratio(t.never_sent_bits, t.scheduled_bits)),
        percent(ratio(t.dropped_bits, t.scheduled_bits)),
        format!("{:.1} %", t.met_ratio() * 100.0),
    ]
}

fn table(run: &Simulated) -> Html {
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th.l { "member" }
                        @for (head, below) in COLUMNS {
                            th { (head) @if let Some(below) = below { small { (below) } } }
                        }
                    }
                }
                tbody {
                    @for (vif, t) in run.scenario.vifs.iter().zip(&run.outcome.totals).take(MOST) {
                        tr { th { (vif.name) } @for figure in figures(run, vif, t) { td { (figure) } } }
                    }
                }
            }
        }
        @if run.scenario.vifs.len() > MOST {
            p.dim { "The first " (MOST) " of " (run.scenario.vifs.len()) " members; --json has all." }
        }
    }
}

fn legend(lines: &[Line]) -> Html {
    html! {
        ul.legend {
            @for line in lines {
                @if let Stroke::Series(series) = line.stroke {
                    li { (swatch(series)) (line.label) }
                }
            }
        }
    }
}
