//! The rate at which a gentle measurement may move data: a share of what a short probe showed.
//!
//! The caller runs the probe, with the same pattern (block size, depth, direction) as the
//! workload that is then held to the cap: a quarter of a sequential bandwidth would not hold
//! back small random requests at all.

use serde::{Deserialize, Serialize};
use vmio_model::rate::ByteRate;

/// Share of the probed bandwidth when the user sets none.
pub const DEFAULT_SHARE: f64 = 0.25;

/// A rate not to be exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cap {
    /// At least 1.
    pub bytes_per_second: ByteRate,
}

/// Why there is no cap. Without one a gentle measurement must not run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CapError {
    /// The share is not one.
    #[error("a bandwidth share of {share} is not possible; use a number above 0 and up to 1 (default {DEFAULT_SHARE})")]
    Share {
        /// What was given.
        share: f64,
    },
    /// The probe moved nothing.
    #[error("the probe moved {bytes_per_second} bytes a second, so no share can be computed; see its own error")]
    Probe {
        /// What the probe showed.
        bytes_per_second: f64,
    },
}

/// Cap of `share` (above 0, up to 1) of the bandwidth that a probe showed, in bytes a second.
pub fn cap(probe_bytes_per_second: f64, share: f64) -> Result<Cap, CapError> {
    if !(share > 0.0 && share <= 1.0) {
        return Err(CapError::Share { share });
    }
    if !(probe_bytes_per_second.is_finite() && probe_bytes_per_second > 0.0) {
        return Err(CapError::Probe { bytes_per_second: probe_bytes_per_second });
    }
    Ok(Cap { bytes_per_second: ByteRate::new(((probe_bytes_per_second * share) as u64).max(1)) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_quarter_of_the_probe() {
        let c = cap(400e6, DEFAULT_SHARE).unwrap();
        assert_eq!(c.bytes_per_second, ByteRate::new(100_000_000));
        assert_eq!(cap(400e6, 1.0).unwrap().bytes_per_second, ByteRate::new(400_000_000));
    }

    #[test]
    fn a_tiny_probe_still_gives_a_rate() {
        assert_eq!(cap(0.5, 0.25).unwrap().bytes_per_second, ByteRate::new(1));
    }

    #[test]
    fn nonsense_is_refused() {
        for share in [0.0, -0.1, 1.01, f64::NAN] {
            assert!(matches!(cap(1e6, share), Err(CapError::Share { .. })), "{share}");
        }
        for probe in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(cap(probe, 0.25), Err(CapError::Probe { .. })), "{probe}");
        }
    }
}
