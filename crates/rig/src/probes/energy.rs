//! Energy and power of a machine as figures: what the probes of them declare.

use vmio_model::figure::{Figure, Reading, Unit};

/// What was taken in all.
const ENERGY: &str = "energy";
/// Its mean over the time.
const POWER: &str = "power";
/// The label that tells apart what it is of.
const DOMAIN: &str = "domain";

/// The figures of a meter.
pub(super) fn figures() -> Vec<Figure> {
    [(ENERGY, Unit::Joules), (POWER, Unit::Watts)].map(|(name, unit)| Figure::amount(name, unit).by(&[DOMAIN])).into()
}

/// What was taken in some seconds, above 0.
pub(super) fn readings(domain: &str, joules: f64, seconds: f64) -> [Reading; 2] {
    [(ENERGY, joules), (POWER, joules / seconds)].map(|(name, value)| Reading::scalar(name, value).with(DOMAIN, domain))
}
