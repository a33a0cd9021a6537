//! The curves of latency.

use vmio_model::figure::{Form, Unit};
use vmio_model::result::WorkloadResult;
use vmio_model::run::Run;
use vmio_model::summary::{FigureRow, Percentile};

use crate::report::groups::{self, Group, Row};
use crate::report::page::{Html, html};
use crate::report::svg;

/// Latency by percentile: each point is the table's figure, the geometric mean over all of the cell's samples, so that no
/// curve falls. It ends where a sample has no request beyond, from where on fio repeats its longest.
pub(super) fn curves(run: &Run, groups: &[Group<'_>], series: &[&str]) -> Html {
    let number = |label: &str| series.iter().position(|s| *s == label).unwrap_or(0);
    let curve = |row: &Row<'_>| {
        let results: Vec<&WorkloadResult> =
            run.samples.iter().filter(|s| s.cell == row.cell.cell).map(|s| &s.result).collect();
        let figure = times(row)?;
        let timed: Vec<&WorkloadResult> =
            results.into_iter().filter(|r| r.distribution(&figure.name).is_some()).collect();
        let fewest = timed.iter().map(|r| r.disk_work().ios).min()? as f64;
        // What works on no disk does not say how often it did what it timed.
        let lies_beyond = |p: f64| row.cell.cell.target().is_none() || fewest * (1.0 - p / 100.0) >= 1.0;
        let of_all = |p: &&Percentile| p.over.n as usize == timed.len() && lies_beyond(p.percentile);
        let points = figure.percentiles.iter().filter(of_all).map(|p| (p.percentile, p.over.value)).collect();
        Some(svg::Curve { series: number(&row.label), label: row.label.clone(), points })
    };
    let (mut figures, mut shown) = (Vec::new(), Vec::new());
    for group in groups {
        let all: Vec<svg::Curve> = group.rows.iter().filter_map(curve).collect();
        let title = format!("Latency of {} on {} by percentile", group.workload, groups::on(group));
        let Some(drawing) = svg::latency(&all, &title, if group.on_disk() { "requests" } else { "all" }) else {
            continue;
        };
        figures.push((&group.workload, drawing));
        shown.extend(all.into_iter().map(|c| c.series));
    }
    html! {
        @if !figures.is_empty() {
            h3 { "Latency by percentile " span.dim { "geometric mean over the samples, as in the table; both axes logarithmic" } }
            ul.legend {
                @for (n, label) in series.iter().enumerate().filter(|(n, _)| shown.contains(n)) {
                    li { (svg::swatch(n)) (label) }
                }
            }
            div.grid3 {
                @for (workload, drawing) in &figures { figure { figcaption { (workload) } (drawing) } }
            }
        }
    }
}

/// The times that a row has percentiles of, without those of several actors.
fn times<'a>(row: &'a Row<'_>) -> Option<&'a FigureRow> {
    let figures = &row.cell.figures;
    let timed = |f: &&FigureRow| f.unit == Unit::Seconds && f.form == Form::Distribution;
    figures.iter().filter(timed).find(|f| f.labels.is_empty() || !row.cell.cell.is_alone())
}
