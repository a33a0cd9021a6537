//! The curves of latency.

use vmio_model::figure::{Form, Unit};
use vmio_model::result::{Run, WorkloadResult};
use vmio_model::stats::median;
use vmio_model::summary::FigureRow;

use crate::report::groups::{self, Group, Row};
use crate::report::page::{Html, html};
use crate::report::svg;

/// Latency by percentile: the median of each percentile over the cell's samples. A sample counts
/// for a percentile only if at least one of its requests lies beyond; fio repeats the longest else.
pub(super) fn curves(run: &Run, groups: &[Group<'_>], series: &[&str]) -> Html {
    let number = |label: &str| series.iter().position(|s| *s == label).unwrap_or(0);
    let curve = |row: &Row<'_>| {
        let results: Vec<&WorkloadResult> =
            run.samples.iter().filter(|s| s.cell == row.cell.cell).map(|s| &s.result).collect();
        let name = times(row)?;
        let percentiles = &results.iter().find_map(|r| r.distribution(name))?.percentiles;
        let points = percentiles.iter().filter_map(|&(p, _)| {
            // What works on no disk does not say how often it did what it timed.
            let lie_beyond = |r: &WorkloadResult| r.disk_work().ios as f64 * (1.0 - p / 100.0) >= 1.0;
            let seen = results.iter().filter(|r| row.cell.cell.target().is_none() || lie_beyond(r));
            let all: Vec<f64> = seen.filter_map(|r| r.distribution(name)?.at(p)).collect();
            Some((p, median(&all)?))
        });
        Some(svg::Curve { series: number(&row.label), label: row.label.clone(), points: points.collect() })
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
            h3 { "Latency by percentile " span.dim { "median over the samples, both axes logarithmic" } }
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

/// The name of the times that a row has percentiles of, without those of several actors.
fn times<'a>(row: &'a Row<'_>) -> Option<&'a str> {
    let figures = &row.cell.figures;
    let timed = |f: &&FigureRow| f.unit == Unit::Seconds && f.form == Form::Distribution;
    figures.iter().filter(timed).find(|f| f.labels.is_empty() || !row.cell.cell.is_alone()).map(|f| f.name.as_str())
}
