//! Energy as meters report it, in the cells of a run and with the machine at rest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mark;
use super::seen::ProbeResult;
use crate::figure::{Labels, Reading, Unit};

/// A meter's figure: joules taken in all, by [`DOMAIN`].
pub const ENERGY: &str = "energy";
/// A meter's figure: mean watts, by [`DOMAIN`].
pub const POWER: &str = "power";
/// The label of both: what the meter measures, such as `machine` or `package-0`.
pub const DOMAIN: &str = "domain";

/// Power above which a reading is none, in watts.
const MOST_WATTS: f64 = 1e6;

/// Whether so many watts are a power that a meter of a machine may report.
pub fn is_power(watts: f64) -> bool {
    (0.0..=MOST_WATTS).contains(&watts)
}

/// The machine at rest, between the cells of a run: no workload and no guest of vmio's runs. Energy above rest is above
/// this power.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtRest {
    /// Seconds since the epoch at the start.
    pub started_unix: f64,
    /// Results of the meters, and of the probe of other processes.
    pub seen: Vec<ProbeResult>,
    /// What speaks against it: with `processors-busy` it was not at rest, and is not used.
    pub marks: Vec<Mark>,
}

/// What one meter reported of one domain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metered<'a> {
    /// The meter: the name of its probe.
    pub meter: &'a str,
    /// What it measures.
    pub domain: &'a str,
    /// Joules taken.
    pub joules: f64,
    /// Mean watts, above 0.
    pub watts: f64,
}

impl Metered<'_> {
    /// Seconds that both are of.
    pub fn seconds(&self) -> f64 {
        self.joules / self.watts
    }
}

/// The power with these labels.
fn power(figures: &[Reading], labels: &Labels) -> Option<f64> {
    figures.iter().find(|reading| reading.figure == POWER && reading.labels == *labels).map(|r| r.value.typical())
}

/// All that meters of this host reported. What has no power above 0 is no meter at work.
pub fn metered(seen: &[ProbeResult]) -> impl Iterator<Item = Metered<'_>> {
    let meters = seen.iter().filter(|seen| seen.node.is_empty() && seen.units.get(ENERGY) == Some(&Unit::Joules));
    meters.flat_map(|seen| {
        let energies = seen.figures.iter().filter(|reading| reading.figure == ENERGY);
        energies.filter_map(|energy| {
            let domain = energy.labels.get(DOMAIN)?;
            let watts = power(&seen.figures, &energy.labels).filter(|watts| *watts > 0.0)?;
            Some(Metered { meter: &seen.probe, domain, joules: energy.value.typical(), watts })
        })
    })
}
