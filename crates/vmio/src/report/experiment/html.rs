//! The same as a page: rates over time, measured and simulated next to each other, printed figures marked.

use vmio_model::simulate::paper::{Published, What};
use vmio_model::simulate::{Outcome, SECOND};

use super::{Beside, Report, columns};
use crate::report::page::{self, Html, html};
use crate::report::plot::{Line, Mark, Plot, Stroke};
use crate::report::simulation::{shown, what};
use crate::report::svg::swatch;

/// The whole page.
pub fn html(report: &Report) -> String {
    let figures = |native: bool| report.cells.iter().filter(move |cell| cell.trial.guard.is_none() == native);
    let body = html! {
        p.dim {
            "Left: measured (run " (report.run) "). Right: the same, simulated. Mbit/s of frames that arrived. Rates and \
             times of the paper are scaled to each uplink; dashed levels are figures that the paper prints (" (report.paper.citation)
            ", " (report.paper.section) ") and that hold while so much is offered as the table says."
        }
        @for (native, title) in [(true, "Figure 3: nobody shapes"), (false, "Figure 4: guaranteed bandwidth")] {
            h2 { (title) }
            @for cell in figures(native) { (one(report, cell)) }
        }
        @if !report.missing.is_empty() {
            h2 { "Not measured" }
            ul { @for (cell, why) in &report.missing { li { (cell) ": " (why) } } }
        }
        h2 { "Notes" }
        ul.dim { @for note in &report.paper.footnote { li { (note.about) ": " (note.text) } } }
        h2 { "Again" }
        pre { (report.command) }
    };
    page::whole(&format!("{}, measured and simulated", report.paper.key), &body)
}

fn one(report: &Report, cell: &Beside) -> Html {
    let printed: Vec<Published> = cell.published(report).collect();
    html! {
        h3 { (cell.title()) }
        p.dim { (cell.remarks()) "." }
        ul.legend {
            @for (series, vif) in cell.trial.scenario.vifs.iter().enumerate() { li { (swatch(series)) (vif.name) } }
        }
        div.grid3 {
            (drawn(cell, &cell.trial.measured, "measured", &printed))
            (drawn(cell, &cell.simulated, "simulated", &printed))
        }
        (members(cell))
        (compared(cell, &printed))
    }
}

fn drawn(cell: &Beside, outcome: &Outcome, word: &str, printed: &[Published]) -> Html {
    let scenario = &cell.trial.scenario;
    let line = |(i, vif): (usize, &vmio_model::simulate::Vif)| Line {
        stroke: Stroke::Series(i),
        label: vif.name.clone(),
        points: outcome
            .series
            .iter()
            .map(|s| (s.at as f64 / SECOND as f64, s.received[i].bits() as f64 / 1e6))
            .collect(),
    };
    let lines: Vec<Line> = scenario.vifs.iter().enumerate().map(line).collect();
    let mark = |figure: &Published| {
        let series = scenario.vifs.iter().position(|vif| vif.name == figure.vm)?;
        (figure.what == What::ThroughputMbit).then(|| Mark {
            value: figure.value,
            label: format!("{:.0}", figure.value),
            series,
        })
    };
    let marks: Vec<Mark> = printed.iter().filter_map(mark).collect();
    let plot = Plot {
        title: word,
        x_label: "seconds",
        x_log: false,
        size: (480.0, 230.0),
        y_range: Some((0.0, scenario.capacity.bits() as f64 / 1e6 * 1.02)),
        y_unit: "",
        lines: &lines,
        marks: &marks,
    };
    html! { figure { figcaption { (word) } @if let Some(svg) = plot.svg("curves") { (svg) } } }
}

fn members(cell: &Beside) -> Html {
    let heads = [
        ("offered", "measured"),
        ("received", "measured"),
        ("", "simulated"),
        ("loss", "measured"),
        ("", "simulated"),
        ("never sent", "measured"),
        ("", "simulated"),
    ];
    html! {
        div.scroll {
            table {
                thead { tr { th.l { "Mbit/s" } @for (head, below) in heads { th { (head) small { (below) } } } } }
                tbody {
                    @for (i, vif) in cell.trial.scenario.vifs.iter().enumerate() {
                        @if let Some(row) = columns(cell, i) { tr { th { (vif.name) } @for text in row { td { (text) } } } }
                    }
                }
            }
        }
    }
}

fn compared(cell: &Beside, printed: &[Published]) -> Html {
    html! {
        div.scroll {
            table {
                thead { tr { th.l { "printed figure" } th { "printed" small { "scaled" } } th { "measured" } th { "simulated" } } }
                tbody {
                    @for figure in printed {
                        tr {
                            th { (what(figure)) }
                            td { (shown(figure, figure.value)) }
                            @for value in cell.both(figure) { td { @if let Some(v) = value { (shown(figure, v)) } } }
                        }
                    }
                }
            }
        }
    }
}
