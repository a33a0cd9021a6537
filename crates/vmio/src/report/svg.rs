//! The drawings of the HTML report, as inline SVG: bars with their interval, and latency curves.
//! Colours are those of Okabe and Ito (*Color Universal Design*, 2008), which people with any
//! common colour-blindness can tell apart; dashes and markers say the same without colour.

use vmio_model::stats::Interval;

use super::format::{percent, time};
use super::page::{Html, html};

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

/// Where a value stands along a bar. `scale` is a little before the right end, so that the last whisker is not cut off.
fn along(value: f64, scale: f64) -> f64 {
    (value / scale).clamp(0.0, 1.0) * 98.0
}

fn percent_of_width(x: f64) -> String {
    format!("{x:.2}%")
}

/// A bar with its interval as a whisker. It begins at `from`, mostly zero; `scale` is the value at full width.
pub fn bar(from: f64, value: f64, interval: Option<Interval>, scale: f64, series: usize, title: &str) -> Html {
    html! {
        svg class={ "bar " (class(series)) } role="img" {
            title { (title) }
            (value_and_whisker(from, value, interval, scale))
        }
    }
}

/// A value below zero is drawn to the left of `from`.
fn value_and_whisker(from: f64, value: f64, interval: Option<Interval>, scale: f64) -> Html {
    let x = |v: f64| along(from + v, scale);
    let (left, right) = (x(0.0).min(x(value)), x(0.0).max(x(value)));
    let begins = (left > 0.0).then(|| percent_of_width(left));
    let lines = |i: Interval| {
        let (low, high) = (x(i.low), x(i.high));
        [(low, 9, high, 9), (low, 4, low, 14), (high, 4, high, 14)]
    };
    html! {
        rect class="fill" x=[begins] y="2" width=(percent_of_width((right - left).max(0.2))) height="14" {}
        @if let Some(i) = interval {
            @for class in ["halo", "whisker"] {
                @for (x1, y1, x2, y2) in lines(i) {
                    line class=(class) x1=(percent_of_width(x1)) y1=(y1) x2=(percent_of_width(x2)) y2=(y2) {}
                }
            }
        }
    }
}

/// Marks of an axis of shares up to `top`. On a long one there is no room for all.
fn shares(top: f64) -> impl Iterator<Item = f64> {
    [0.0, 0.25, 0.5, 0.75, 1.0].into_iter().filter(move |tick| match *tick {
        1.0 => true,
        0.0 => top <= 8.0,
        _ => top <= 2.0,
    })
}

/// A headline's share on the axis that all headlines have, from nothing to `top`.
pub fn share(value: f64, interval: Option<Interval>, top: f64, title: &str) -> Html {
    html! {
        svg class={ "bar " (class(1)) } role="img" {
            title { (title) }
            rect class="track" y="2" width=(percent_of_width(along(top, top))) height="14" {}
            (value_and_whisker(0.0, value, interval, top))
            @for tick in shares(top).map(|tick| percent_of_width(along(tick, top))) {
                line class="thin" x1=(tick) y1="16" x2=(tick) y2="20" {}
            }
        }
    }
}

/// The axis below such bars. `whole` names the baseline. Like the bars it is drawn in shares of the width and is not
/// scaled, so its words have one size.
pub fn axis(top: f64, whole: &str) -> Html {
    let anchor = |tick: f64| match along(tick, top) {
        x if x < 20.0 => "start",
        x if x > 80.0 => "end",
        _ => "middle",
    };
    let label = |tick: f64| match tick {
        1.0 => whole.to_owned(),
        _ => percent(tick).replace(".0 %", " %"),
    };
    // Where there is little room, only every second one is shown.
    let minor = |tick: f64| [0.25, 0.75].contains(&tick).then_some("minor");
    html! {
        svg.axis role="presentation" {
            @for tick in shares(top) {
                text class=[minor(tick)] x=(percent_of_width(along(tick, top))) y="12" text-anchor=(anchor(tick)) {
                    (label(tick))
                }
            }
        }
    }
}

/// A coordinate, rounded to what can be seen.
pub(super) fn tenth(place: f64) -> String {
    format!("{place:.1}")
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

/// The place of a percentile on the axis, on which each further nine takes the same room.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

/// Percentiles with a line of their own, and with a marker on each curve.
const MARKED: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// Latency of `what` by percentile, both axes logarithmic. `None` where there is no point to draw.
pub fn latency(curves: &[Curve], title: &str, what: &str) -> Option<Html> {
    if !can_draw(curves) {
        return None;
    }
    let points = || curves.iter().flat_map(|c| &c.points).filter(|p| drawable(p));
    let low = points().map(|p| p.1).fold(f64::INFINITY, f64::min);
    let high = points().map(|p| p.1).fold(0.0, f64::max);
    let last = points().map(|p| nines(p.0)).fold(0.0, f64::max);
    // A little room, and at least half a decade, so that a flat curve looks flat.
    let (low, high) = (low / 1.15, (high * 1.15).max(low * 3.2));
    let (left, right, top, bottom) = (54.0, 338.0, 10.0, 190.0);
    let x = |p: f64| left + nines(p) / last * (right - left);
    let y = |s: f64| bottom - (s / low).log10() / (high / low).log10() * (bottom - top);
    let line = |curve: &Curve| {
        let path = curve.points.iter().filter(|p| drawable(p)).map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)));
        path.collect::<Vec<_>>().join(" ")
    };
    Some(html! {
        svg.curves viewBox="0 0 360 230" role="img" {
            title { (title) }
            @for tick in ticks(low, high) {
                path class="grid" d=(format!("M{left} {:.1}H{right}", y(tick))) {}
                text x=(left - 6.0) y=(tenth(y(tick) + 4.0)) text-anchor="end" {
                    (time(tick).replace(".00 ", " ").replace(".0 ", " "))
                }
            }
            @for tick in MARKED.into_iter().filter(|t| nines(*t) <= last + 1e-9) {
                path class="grid" d=(format!("M{:.1} {top}V{bottom}", x(tick))) {}
                text x=(tenth(x(tick))) y=(bottom + 17.0) text-anchor="middle" { "p" (tick) }
            }
            text x=(tenth((left + right) / 2.0)) y="225" text-anchor="middle" {
                "share of " (what) " that took no longer"
            }
            @for curve in curves {
                g class=(class(curve.series)) {
                    title { (curve.label) }
                    polyline class="line" stroke-dasharray=(dash(curve.series)) points=(line(curve)) {}
                    @for (p, s) in curve.points.iter().filter(|p| drawable(p) && MARKED.contains(&p.0)) {
                        (marker(curve.series, x(*p), y(*s)))
                    }
                }
            }
        }
    })
}

/// Whether there is a line among them.
pub fn can_draw(curves: &[Curve]) -> bool {
    let points = || curves.iter().flat_map(|c| &c.points).filter(|p| drawable(p));
    points().count() > 1 && points().any(|p| nines(p.0) > 0.0)
}

fn drawable(point: &(f64, f64)) -> bool {
    nines(point.0).is_finite() && point.1.is_finite() && point.1 > 0.0
}

/// The sample of a series for the legend.
pub fn swatch(series: usize) -> Html {
    html! {
        svg class={ "swatch " (class(series)) } viewBox="0 0 34 12" aria-hidden="true" {
            path class="line" stroke-dasharray=(dash(series)) d="M1 6H33" {}
            (marker(series, 17.0, 6.0))
        }
    }
}

fn marker(series: usize, x: f64, y: f64) -> Html {
    let d = match series % DASHES.len() {
        0 => return html! { circle class="mark" cx=(tenth(x)) cy=(tenth(y)) r="3.2" {} },
        1 => format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, y - 3.0),
        2 => format!("M{x:.1} {:.1}l4 7h-8z", y - 4.0),
        3 => format!("M{x:.1} {:.1}l4 4-4 4-4-4z", y - 4.0),
        4 => format!("M{x:.1} {:.1}l-4-7h8z", y + 4.0),
        _ => format!("M{:.1} {:.1}h2.4v-2.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4z", x - 3.6, y - 1.2),
    };
    html! { path class="mark" d=(d) {} }
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
        assert!(!bar(0.0, 1.0, None, 2.0, 0, "x").text().contains("whisker"));
        assert!(bar(0.0, 1.0, Some(Interval { low: 0.9, high: 1.1 }), 2.0, 0, "x").text().contains("whisker"));
        assert!(bar(0.0, 1.0, None, 2.0, 1, "<b>").text().contains("&lt;b&gt;"));
    }

    #[test]
    fn a_bar_begins_where_it_is_told_to_and_one_below_zero_ends_there() {
        for (value, place) in [
            (25.0, "x=\"49.00%\" y=\"2\" width=\"24.50%\""),
            (-2.0, "x=\"47.04%\" y=\"2\" width=\"1.96%\""),
            (0.0, "x=\"49.00%\" y=\"2\" width=\"0.20%\""),
        ] {
            let text = bar(50.0, value, None, 100.0, 1, "x").text();
            assert!(text.contains(place), "{text}");
        }
    }

    /// One axis for all: the same share is at the same place whatever its own interval is, and is where its mark is.
    #[test]
    fn shares_and_axis_have_one_scale() {
        let wide = Some(Interval { low: 0.3, high: 1.5 });
        for top in [1.0, 1.5, 9.0] {
            let width = format!("{:.2}%", 0.5 / top * 98.0);
            for interval in [None, wide] {
                let text = share(0.5, interval, top, "<b>").text();
                assert!(text.contains(&format!("class=\"fill\" y=\"2\" width=\"{width}\"")), "{text}");
                assert!(text.contains("&lt;b&gt;") && !text.contains("<text"), "{text}");
            }
            let axis = axis(top, "100 % = native").text();
            assert_eq!(axis.contains(&format!("x=\"{width}\"")), top <= 2.0, "{axis}");
            assert!(axis.contains(">100 % = native<") && axis.contains(">0 %<") == (top <= 8.0), "{axis}");
            assert!(!axis.contains("viewBox"), "its words are not scaled: {axis}");
        }
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let curve = |points| [Curve { series: 0, label: "native".into(), points }];
        assert!(latency(&curve(vec![]), "t", "requests").is_none());
        let svg = latency(&curve(vec![(50.0, 1e-4), (99.0, 1e-3), (100.0, 1.0)]), "t", "requests")
            .map(|svg| svg.text())
            .unwrap_or_default();
        assert!(svg.contains("p99<") && !svg.contains("inf") && !svg.contains("NaN"), "{svg}");
    }
}
