//! Steady state of flash: SNIA, Solid State Storage Performance Test Specification (SSS PTS) 2.0.1,
//! definition of steady state. In a measurement window of five rounds
//! - the range of the figure (most less least) is at most 20 % of its mean, and
//! - the straight line of least squares rises or falls by at most 10 % of the mean from the first
//!   round of the window to the last.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rounds of the measurement window.
pub const WINDOW: usize = 5;
/// Range over mean, at most.
pub const RANGE: f64 = 0.20;
/// Excursion of the fitted line over mean, at most.
pub const SLOPE: f64 = 0.10;
/// Rounds after which the specification gives up.
pub const MOST_ROUNDS: u32 = 25;

/// Figures of a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Most less least, over the mean.
    pub range_ratio: f64,
    /// Rise (above 0) or fall of the fitted line across the window, over the mean.
    pub slope_ratio: f64,
}

impl Window {
    /// Whether both limits are met.
    fn is_steady(&self) -> bool {
        self.range_ratio <= RANGE && self.slope_ratio.abs() <= SLOPE
    }
}

/// The window that ends with the last value; `None` with fewer than [`WINDOW`] values or a mean that is not above 0.
pub fn window(values: &[f64]) -> Option<Window> {
    let last = &values[values.len().checked_sub(WINDOW)?..];
    let n = WINDOW as f64;
    let mean = last.iter().sum::<f64>() / n;
    if !(mean > 0.0 && mean.is_finite()) {
        return None;
    }
    let (low, high) = last.iter().fold((f64::MAX, f64::MIN), |(l, h), &x| (l.min(x), h.max(x)));
    let centre = (n - 1.0) / 2.0;
    let of_rounds =
        |f: &dyn Fn(f64, f64) -> f64| -> f64 { last.iter().enumerate().map(|(i, &y)| f(i as f64 - centre, y)).sum() };
    let slope = of_rounds(&|x, y| x * (y - mean)) / of_rounds(&|x, _| x * x);
    Some(Window { range_ratio: (high - low) / mean, slope_ratio: slope * (n - 1.0) / mean })
}

/// The fewest rounds after which the last [`WINDOW`] are steady, with that window.
pub fn reached(values: &[f64]) -> Option<(usize, Window)> {
    (WINDOW..=values.len()).find_map(|n| Some((n, window(&values[..n]).filter(Window::is_steady)?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_window_is_range_and_slope_over_the_mean() {
        // Mean 100, range 20, slope by hand: (-2*-10 + -1*0 + 0 + 1*0 + 2*10) / 10 = 4 a round, 16 across.
        let w = window(&[90.0, 100.0, 100.0, 100.0, 110.0]).unwrap();
        assert!((w.range_ratio - 0.2).abs() < 1e-12 && (w.slope_ratio - 0.16).abs() < 1e-12, "{w:?}");
        assert!(!w.is_steady(), "within the range, but it rises");
        let zigzag = window(&[110.0, 90.0, 100.0, 90.0, 110.0]).unwrap();
        assert!(zigzag.is_steady() && zigzag.slope_ratio.abs() < 1e-12, "{zigzag:?}");
        let falling = window(&[105.0, 104.0, 100.0, 96.0, 95.0]).unwrap();
        assert!(falling.slope_ratio < -0.1 && !falling.is_steady(), "{falling:?}");
        assert!(!window(&[100.0, 100.0, 130.0, 100.0, 100.0]).unwrap().is_steady(), "flat, but too wide");
        assert_eq!(window(&[1.0; 4]), None);
        assert_eq!(window(&[0.0; 5]), None);
    }

    /// A new flash disk: fast until its spare blocks are used up, then constant.
    #[test]
    fn it_is_reached_when_the_cliff_has_left_the_window() {
        let mut series = vec![900.0, 850.0, 700.0, 500.0, 400.0, 310.0, 300.0, 305.0, 300.0, 298.0, 302.0];
        let (rounds, w) = reached(&series).unwrap();
        assert_eq!(rounds, 10);
        assert!(w.is_steady());
        series.truncate(9);
        assert_eq!(reached(&series), None);
        assert_eq!(reached(&[300.0; 5]).unwrap().0, 5);
        let sawtooth: Vec<f64> = (0..25).map(|i| if i % 2 == 0 { 100.0 } else { 150.0 }).collect();
        assert_eq!(reached(&sawtooth), None);
    }
}
