//! Every sample of a run, in a table that is folded away: those of disks with columns of their own, all else
//! with whatever it measured.

use vmio_model::figure::{Figure, Reading, Value};
use vmio_model::result::Sample;
use vmio_model::run::Run;
use vmio_model::summary::judge_of;

use crate::report::format::{self, time};
use crate::report::page::{Html, html};
use crate::report::view;

/// Columns of the raw figures of disks, after the cell's name.
const DISK: [&str; 11] =
    ["Round", "Boot", "MB/s", "IOPS", "p50", "p99", "Device KiB", "Depth", "Busy", "Foreign bytes", "Marks"];
/// All samples.
pub(super) fn raw(run: &Run) -> Html {
    let (disks, others): (Vec<&Sample>, Vec<&Sample>) = run.samples.iter().partition(|s| s.cell.target().is_some());
    html! {
        h2 { "Raw figures" }
        details {
            summary { "All " (run.samples.len()) " samples" }
            @if !disks.is_empty() || others.is_empty() { (of_disks(&disks)) }
            @if !others.is_empty() { (of_others(&others, run)) }
        }
    }
}

fn of_disks(samples: &[&Sample]) -> Html {
    html! {
        div.scroll {
            table {
                thead { tr { th.l scope="col" { "Cell" } @for head in DISK { th scope="col" { (head) } } } }
                tbody {
                    @for sample in samples {
                        tr {
                            th scope="row" { (sample.cell.key()) }
                            @for figure in of_disk(sample) { td { (figure) } }
                        }
                    }
                }
            }
        }
    }
}

fn of_others(samples: &[&Sample], run: &Run) -> Html {
    let heads = ["Round", "Boot"];
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th.l scope="col" { "Cell" }
                        @for head in heads { th scope="col" { (head) } }
                        th.l scope="col" { "Figures" }
                    }
                }
                tbody {
                    @for sample in samples {
                        tr {
                            th scope="row" { (sample.cell.key()) }
                            td { (view::nth(sample.round)) }
                            td { (view::nth(sample.boot)) }
                            td.l.w { (of_other(sample, run)) }
                        }
                    }
                }
            }
        }
    }
}

/// A sample in the columns of [`DISK`].
fn of_disk(s: &Sample) -> [String; 11] {
    let (work, latency) = (s.work(), s.result.latency());
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let marks: Vec<&str> = s.marks.iter().map(|m| format::mark(*m)).collect();
    [
        view::nth(s.round),
        view::nth(s.boot),
        format!("{:.2}", work.bandwidth() / 1e6),
        or_dash((work.ios > 0).then(|| format!("{:.0}", work.iops()))),
        or_dash(latency.and_then(|l| l.at(50.0)).map(time)),
        or_dash(latency.and_then(|l| l.at(99.0)).map(time)),
        or_dash(s.device().map(|d| format!("{:.1}", d.request_bytes / 1024.0))),
        or_dash(s.device().map(|d| format!("{:.2}", d.queue_depth))),
        or_dash(s.device().and_then(|d| d.busy_ratio).map(|b| format!("{:.0} %", b * 100.0))),
        or_dash(s.foreign.during_bytes_ratio.map(format::percent)),
        marks.join(", "),
    ]
}

/// All figures of a sample, amounts too, with what tells them apart.
fn of_other(s: &Sample, run: &Run) -> String {
    let all = judge_of(&run.workloads, &s.cell).all(s, &run.workloads);
    all.iter().map(|(figure, reading)| one(figure, reading)).collect::<Vec<_>>().join("; ")
}

fn one(figure: &Figure, reading: &Reading) -> String {
    let labels: Vec<String> = reading.labels.iter().map(|(name, value)| format!(" {name} {value}")).collect();
    let value = |x: f64| format::figure(figure.unit, x);
    let text = match &reading.value {
        Value::Distribution(d) => {
            let at = |p: f64| d.at(p).map_or(String::new(), |x| format!(", p{p:.0} {}", value(x)));
            format!("mean {}{}{}", value(d.mean), at(50.0), at(99.0))
        }
        other => other.typical().map_or("–".into(), value),
    };
    format!("{}{}: {text}", figure.name, labels.concat())
}
