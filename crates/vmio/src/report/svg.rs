//! The drawings of the HTML report, as inline SVG: bars with their interval, and latency curves.
//! Colours are those of Okabe and Ito (*Color Universal Design*, 2008), which people with any
//! common colour-blindness can tell apart; dashes and markers say the same without colour.

use std::fmt::Write;

use super::format::{percent, time};
use super::html::escape;
use vmio_model::stats::Interval;

/// Series beyond the first, which is native and drawn in the colour of the text.
const DASHES: [&str; 6] = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];

/// CSS class of a series.
pub fn class(series: usize) -> String {
    format!("s{}", series % DASHES.len())
}

/// Dashes of a series' line.
pub fn dash(series: usize) -> &'static str {
    DASHES[series % DASHES.len()]
}

/// A bar from zero with its interval as a whisker; it takes the width that it is given. `scale` is
/// the value at full width.
pub fn bar(value: f64, interval: Option<Interval>, scale: f64, series: usize, title: &str) -> String {
    // A little less than all of it, so that the last whisker is not cut off.
    let x = |v: f64| (v / scale).clamp(0.0, 1.0) * 98.0;
    let mut svg = format!(
        "<svg class=\"bar {}\" role=\"img\"><title>{}</title><rect class=\"fill\" y=\"2\" width=\"{:.2}%\" height=\"14\"/>",
        class(series),
        escape(title),
        x(value).max(0.2)
    );
    if let Some(i) = interval {
        let (low, high) = (x(i.low), x(i.high));
        for class in ["halo", "whisker"] {
            for (x1, y1, x2, y2) in [(low, 9, high, 9), (low, 4, low, 14), (high, 4, high, 14)] {
                let _ =
                    write!(svg, "<line class=\"{class}\" x1=\"{x1:.2}%\" y1=\"{y1}\" x2=\"{x2:.2}%\" y2=\"{y2}\"/>");
            }
        }
    }
    svg + "</svg>"
}

/// The headline's share on a scale from nothing to all of native (or more, where it is more).
pub fn gauge(value: f64, interval: Option<Interval>, title: &str) -> String {
    let top = interval.map_or(value, |i| i.high.max(value)).max(1.0);
    let x = |v: f64| 10.0 + (v / top).clamp(0.0, 1.0) * 580.0;
    let mut svg = format!(
        "<svg class=\"gauge\" viewBox=\"0 0 600 50\" role=\"img\"><title>{}</title>\
         <rect class=\"track\" x=\"10\" y=\"8\" width=\"580\" height=\"18\" rx=\"3\"/>\
         <rect class=\"fill\" x=\"10\" y=\"8\" width=\"{:.1}\" height=\"18\" rx=\"3\"/>",
        escape(title),
        x(value) - 10.0
    );
    if let Some(i) = interval {
        let (low, high) = (x(i.low), x(i.high));
        let path = format!("M{low:.1} 17H{high:.1}M{low:.1} 10V24M{high:.1} 10V24");
        let _ = write!(svg, "<path class=\"halo\" d=\"{path}\"/><path class=\"whisker\" d=\"{path}\"/>");
    }
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let anchor = if tick == 0.0 {
            "start"
        } else if x(tick) > 580.0 {
            "end"
        } else {
            "middle"
        };
        let label = if tick == 1.0 { "100 % = native".into() } else { percent(tick).replace(".0 %", " %") };
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"43\" text-anchor=\"{anchor}\">{label}</text>", x(tick));
    }
    svg + "</svg>"
}

/// A latency curve: percentiles (0 to 100) and seconds, rising.
pub struct Curve {
    /// Number of the series: its colour, dash and marker.
    pub series: usize,
    /// What it is.
    pub label: String,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

/// Where a percentile lies: each further nine takes the same room.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// Latency by percentile, both axes logarithmic. `None` where there is no point to draw.
pub fn latency(curves: &[Curve], title: &str) -> Option<String> {
    let points = || curves.iter().flat_map(|c| &c.points).filter(|p| drawable(p));
    let low = points().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let high = points().map(|p| p.1).fold(0.0, f64::max);
    let last = points().map(|p| nines(p.0)).fold(0.0, f64::max);
    if points().count() < 2 || last <= 0.0 {
        return None;
    }
    // A little room, and at least half a decade, so that a flat curve looks flat.
    let (low, high) = (low / 1.15, (high * 1.15).max(low * 3.2));
    let (left, right, top, bottom) = (62.0, 468.0, 12.0, 216.0);
    let x = |p: f64| left + nines(p) / last * (right - left);
    let y = |s: f64| bottom - (s / low).log10() / (high / low).log10() * (bottom - top);
    let mut svg =
        format!("<svg class=\"curves\" viewBox=\"0 0 480 256\" role=\"img\"><title>{}</title>", escape(title));
    for tick in ticks(low, high) {
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{left} {0:.1}H{right}\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>",
            y(tick),
            left - 6.0,
            y(tick) + 4.0,
            time(tick).replace(".00 ", " ").replace(".0 ", " ")
        );
    }
    for tick in [50.0, 90.0, 99.0, 99.9, 99.99].into_iter().filter(|t| nines(*t) <= last + 1e-9) {
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{0:.1} {top}V{bottom}\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">p{tick}</text>",
            x(tick),
            bottom + 17.0
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"250\" text-anchor=\"middle\" class=\"axis\">share of requests that took no longer</text>",
        (left + right) / 2.0
    );
    for curve in curves {
        let line: Vec<(f64, f64)> = curve.points.iter().filter(|p| drawable(p)).map(|p| (x(p.0), y(p.1))).collect();
        let path: Vec<String> = line.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(
            svg,
            "<g class=\"{}\"><title>{}</title><polyline class=\"line\" stroke-dasharray=\"{}\" points=\"{}\"/>",
            class(curve.series),
            escape(&curve.label),
            DASHES[curve.series % DASHES.len()],
            path.join(" ")
        );
        for (p, at) in curve.points.iter().filter(|p| drawable(p)).zip(&line) {
            if [50.0, 90.0, 99.0, 99.9, 99.99].contains(&p.0) {
                svg += &marker(curve.series, at.0, at.1);
            }
        }
        svg += "</g>";
    }
    Some(svg + "</svg>")
}

fn drawable(point: &(f64, f64)) -> bool {
    nines(point.0).is_finite() && point.1.is_finite() && point.1 > 0.0
}

/// What a series looks like, for the legend.
pub fn swatch(series: usize) -> String {
    format!(
        "<svg class=\"swatch {}\" viewBox=\"0 0 34 12\" aria-hidden=\"true\"><path class=\"line\" stroke-dasharray=\"{}\" \
         d=\"M1 6H33\"/>{}</svg>",
        class(series),
        DASHES[series % DASHES.len()],
        marker(series, 17.0, 6.0)
    )
}

fn marker(series: usize, x: f64, y: f64) -> String {
    let d = match series % DASHES.len() {
        0 => return format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>"),
        1 => format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, y - 3.0),
        2 => format!("M{x:.1} {:.1}l4 7h-8z", y - 4.0),
        3 => format!("M{x:.1} {:.1}l4 4-4 4-4-4z", y - 4.0),
        4 => format!("M{x:.1} {:.1}l-4-7h8z", y + 4.0),
        _ => format!("M{:.1} {:.1}h2.4v-2.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4z", x - 3.6, y - 1.2),
    };
    format!("<path class=\"mark\" d=\"{d}\"/>")
}

/// Round values on a logarithmic axis: decades, with 2 and 5 between where there are few.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if (high / low).log10() > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let all = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
    all.filter(|t| (low..=high).contains(t)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_lie_within() {
        let near =
            |a: Vec<f64>, b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(x, y)| (x / y - 1.0).abs() < 1e-9);
        assert!(near(ticks(8e-6, 3e-2), &[1e-5, 1e-4, 1e-3, 1e-2]));
        assert!(near(ticks(1.5e-4, 1.2e-3), &[2e-4, 5e-4, 1e-3]));
    }

    #[test]
    fn a_bar_without_interval_has_no_whisker() {
        assert!(!bar(1.0, None, 2.0, 0, "x").contains("whisker"));
        assert!(bar(1.0, Some(Interval { low: 0.9, high: 1.1 }), 2.0, 0, "x").contains("whisker"));
        assert!(bar(1.0, None, 2.0, 1, "<b>").contains("&lt;b&gt;"));
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let curve = |points| [Curve { series: 0, label: "native".into(), points }];
        assert!(latency(&curve(vec![]), "t").is_none());
        let svg = latency(&curve(vec![(50.0, 1e-4), (99.0, 1e-3), (100.0, 1.0)]), "t").unwrap_or_default();
        assert!(svg.contains("p99<") && !svg.contains("inf") && !svg.contains("NaN"), "{svg}");
    }
}
