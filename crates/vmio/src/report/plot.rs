//! Lines over a linear or logarithmic axis, as inline SVG: rates over time, loss over the period.

use super::page::{Html, html};
use super::svg::{class, dash, tenth};

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// In the series' colour and dashes.
    Series(usize),
    /// Thin and grey, in the background.
    Thin,
}

/// A line.
pub struct Line {
    /// How it looks.
    pub stroke: Stroke,
    /// Its name.
    pub label: String,
    /// Points, x rising.
    pub points: Vec<(f64, f64)>,
}

/// A horizontal line at a value, with a word at its right end.
pub struct Mark {
    /// Where.
    pub value: f64,
    /// The word.
    pub label: String,
    /// Whose colour.
    pub series: usize,
}

/// A drawing.
pub struct Plot {
    /// For readers who do not see it.
    pub title: String,
    /// Under the horizontal axis.
    pub x_label: &'static str,
    /// Decades take the same room; x must be above 0.
    pub x_log: bool,
    /// Width and height.
    pub size: (f64, f64),
    /// From the bottom's value up to the top's; the axis begins at 0 where that is `None`.
    pub y_range: Option<(f64, f64)>,
    /// Appended to the numbers of the vertical axis.
    pub y_unit: &'static str,
    /// Drawn in this order.
    pub lines: Vec<Line>,
    /// Drawn before the lines.
    pub marks: Vec<Mark>,
}

impl Plot {
    /// Lines over seconds, whose vertical axis begins at 0.
    pub fn over_seconds(title: impl Into<String>, size: (f64, f64), lines: Vec<Line>, marks: Vec<Mark>) -> Self {
        let (x_label, x_log, y_range, y_unit) = ("seconds", false, None, "");
        Plot { title: title.into(), x_label, x_log, size, y_range, y_unit, lines, marks }
    }

    /// The drawing; `None` where there is nothing to draw.
    pub(super) fn svg(&self, css: &str) -> Option<Html> {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let (first, last) = points().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), p| (a.min(p.0), b.max(p.0)));
        let highest = points().map(|p| p.1).chain(self.marks.iter().map(|m| m.value)).fold(0.0, f64::max);
        if last <= first || (self.x_log && first <= 0.0) {
            return None;
        }
        let (low, high) = self.y_range.unwrap_or((0.0, if highest > 0.0 { highest * 1.05 } else { 1.0 }));
        let (width, height) = self.size;
        let (left, right, top, bottom) = (58.0, width - 46.0, 10.0, height - 40.0);
        let along = |v: f64| if self.x_log { v.log10() } else { v };
        let x = |v: f64| left + (along(v) - along(first)) / (along(last) - along(first)) * (right - left);
        let y = |v: f64| bottom - ((v - low) / (high - low)).clamp(0.0, 1.0) * (bottom - top);
        let across = |v: f64| format!("M{left} {:.1}H{right}", y(v));
        let ticks = if self.x_log { decades(first, last) } else { round(first, last, 6.0) };
        let path = |line: &Line| {
            let points = line.points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1)));
            points.collect::<Vec<_>>().join(" ")
        };
        Some(html! {
            svg class=(css) viewBox={ "0 0 " (width) " " (height) } role="img" {
                title { (self.title) }
                @for tick in round(low, high, 5.0) {
                    path class="grid" d=(across(tick)) {}
                    text x=(left - 6.0) y=(tenth(y(tick) + 4.0)) text-anchor="end" { (tick) (self.y_unit) }
                }
                @for tick in ticks {
                    path class="grid" d=(format!("M{:.1} {top}V{bottom}", x(tick))) {}
                    text x=(tenth(x(tick))) y=(bottom + 16.0) text-anchor="middle" { (tick) }
                }
                text x=(tenth((left + right) / 2.0)) y=(tenth(height - 5.0)) text-anchor="middle" class="axis" {
                    (self.x_label)
                }
                @for mark in &self.marks {
                    g class=(class(mark.series)) {
                        path class="level" d=(across(mark.value)) {}
                        text x=(right + 4.0) y=(tenth(y(mark.value) + 4.0)) { (mark.label) }
                    }
                }
                @for line in &self.lines {
                    @let (outer, inner, dashes) = match line.stroke {
                        Stroke::Series(s) => (class(s), "line", dash(s)),
                        Stroke::Thin => (String::new(), "thin", ""),
                    };
                    g class=(outer) {
                        title { (line.label) }
                        polyline class=(inner) stroke-dasharray=(dashes) points=(path(line)) {}
                    }
                }
            }
        })
    }
}

/// Round values between two, about so many: multiples of 1, 2 or 5 times a power of ten.
fn round(low: f64, high: f64, about: f64) -> Vec<f64> {
    let rough = (high - low) / about;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|s| s * decade).into_iter().find(|s| *s >= rough).unwrap_or(decade * 10.0);
    let (from, to) = ((low / step).ceil() as i64, (high / step + 1e-9).floor() as i64);
    // Rounded again, or 3 x 0.1 shows as 0.30000000000000004.
    (from..=to).map(|i| (i as f64 * step * 1e9).round() / 1e9).collect()
}

/// 1, 2 and 5 in each decade between two values above 0.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps: &[f64] = if to - from > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = (from..=to).flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
    all.filter(|v| (low * 0.999..=high * 1.001).contains(v)).map(|v| (v * 1e9).round() / 1e9).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>, x_log: bool) -> Plot {
        let line = Line { stroke: Stroke::Series(1), label: "a".into(), points };
        Plot { x_log, ..Plot::over_seconds("<t>", (480.0, 200.0), vec![line], Vec::new()) }
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(round(0.0, 840.0, 5.0), [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!(round(0.0, 1.0, 5.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(round(16.0, 18.0, 5.0), [16.0, 16.5, 17.0, 17.5, 18.0]);
        assert_eq!(decades(1.0, 1000.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn draws_points_and_nothing_without_them() {
        assert!(plot(vec![], false).svg("wide").is_none());
        assert!(plot(vec![(0.0, 1.0), (1.0, 2.0)], true).svg("wide").is_none(), "no 0 on a logarithmic axis");
        let svg = plot(vec![(0.0, 0.0), (10.0, 2.1)], false).svg("wide").map(|svg| svg.text()).unwrap_or_default();
        assert!(svg.contains("&lt;t&gt;") && svg.contains("points=\"58.0,160.0 434.0,17.1\""), "{svg}");
    }
}
