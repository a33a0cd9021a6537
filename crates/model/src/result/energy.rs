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

/// How the domain of a chassis of a management controller begins.
pub const CHASSIS_DOMAIN: &str = "chassis ";

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

/// What a meter of the machine as a whole reported, not one of a part: of the machine, of what the user put a meter to,
/// of the only chassis, or of the platform.
pub fn of_machine(seen: &[ProbeResult]) -> Option<Metered<'_>> {
    let named = |domain: &str| metered(seen).find(|told| told.domain == domain);
    let mut chassis = metered(seen).filter(|told| told.domain.starts_with(CHASSIS_DOMAIN));
    let only = chassis.next().filter(|_| chassis.next().is_none());
    named("machine").or_else(|| named("meter")).or(only).or_else(|| named("psys"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::meter;

    #[test]
    fn a_part_of_a_machine_is_not_the_machine() {
        let of = |meters: &[(&str, &str)]| {
            let seen = meters.iter().map(|(name, domain)| meter(name, domain, 200.0, 100.0));
            of_machine(&seen.collect::<Vec<_>>()).map(|told| format!("{} {}", told.meter, told.domain))
        };
        let package = ("powercap", "package-0");
        assert_eq!((of(&[]), of(&[package, ("powercap", "package-1")])), (None, None));
        assert_eq!(of(&[package, ("powercap", "psys")]).as_deref(), Some("powercap psys"));
        assert_eq!(of(&[package, ("ipmi", "machine")]).as_deref(), Some("ipmi machine"));
        let chassis = ("redfish", "chassis 1");
        assert_eq!(of(&[package, chassis]).as_deref(), Some("redfish chassis 1"));
        assert_eq!(of(&[chassis, ("redfish", "chassis 2")]), None, "which one is this host's is not known");
        assert_eq!(of(&[chassis, ("power-command", "meter")]).as_deref(), Some("power-command meter"));
    }
}
