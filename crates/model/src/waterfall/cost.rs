//! What it costs a running guest to be watched: requests a second of its disks with tracing and without, in turns.

use schemars::JsonSchema;
use serde::Serialize;

use crate::stats::{Pair, Ratio, paired_ratio};

/// Tracing may cost this share of the requests.
pub const MOST_LOST: f64 = 0.05;

/// What tracing costs. The requests are those that the kernel counts at the disks of the host which the guest used,
/// whoever sent them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct TracingCost {
    /// Requests a second without tracing, the mean over the turns.
    pub without_per_second: f64,
    /// Requests a second with it.
    pub with_per_second: f64,
    /// With it over without, paired by turn.
    pub ratio: Ratio,
}

impl TracingCost {
    /// From requests a second without it (`base`) and with it (`test`); `None` where the disks were idle.
    pub fn of(turns: &[Pair]) -> Option<Self> {
        let ratio = paired_ratio(turns)?;
        let mean = |side: fn(&Pair) -> f64| turns.iter().map(side).sum::<f64>() / turns.len() as f64;
        Some(Self { without_per_second: mean(|turn| turn.base), with_per_second: mean(|turn| turn.test), ratio })
    }

    /// Whether it costs at most [`MOST_LOST`]; `None` where the interval does not decide that.
    pub fn is_small(&self) -> Option<bool> {
        let (interval, least) = (self.ratio.interval?, 1.0 - MOST_LOST);
        if interval.low >= least {
            Some(true)
        } else if interval.high < least {
            Some(false)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cost(turns: &[(f64, f64)]) -> Option<TracingCost> {
        let pair = |(boot, &(base, test)): (u32, &(f64, f64))| Pair { boot, base, test };
        TracingCost::of(&(0..).zip(turns).map(pair).collect::<Vec<_>>())
    }

    #[test]
    fn what_tracing_costs_is_told_from_turns() {
        let small = cost(&[(1000.0, 980.0), (1020.0, 1000.0), (980.0, 962.0)]).unwrap();
        assert_eq!((small.without_per_second, small.ratio.pairs), (1000.0, 3));
        assert!((small.with_per_second - 2942.0 / 3.0).abs() < 1e-9 && (small.ratio.value - 0.98).abs() < 2e-3);
        let is_small = |turns: &[(f64, f64)]| cost(turns).unwrap().is_small();
        assert_eq!(small.is_small(), Some(true));
        assert_eq!(is_small(&[(1000.0, 800.0), (1000.0, 810.0), (1000.0, 790.0)]), Some(false));
        assert_eq!(is_small(&[(1000.0, 1100.0), (1000.0, 800.0)]), None, "the turns differ by more");
        assert_eq!(is_small(&[(1000.0, 990.0)]), None, "one turn has no interval");
    }

    #[test]
    fn idle_disks_tell_nothing() {
        assert_eq!(cost(&[(0.0, 0.0), (0.0, 0.0)]), None);
        assert_eq!(cost(&[]), None);
    }
}
