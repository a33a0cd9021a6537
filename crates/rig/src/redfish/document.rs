//! The resources of Redfish that tell power (DMTF DSP0268, data models): `Chassis`, `Power`, `EnvironmentMetrics`. Only
//! what is used of them is read; each property may be absent or null.

use serde::Deserialize;
use vmio_model::result::is_power;

use super::{Amount, MOST_LETTERS, shown};

/// Most parts of a chassis that are told.
const MOST_PARTS: usize = 16;

/// A link to another resource.
#[derive(Debug, Deserialize)]
pub(super) struct Link {
    #[serde(rename = "@odata.id")]
    pub path: String,
}

/// A collection.
#[derive(Debug, Deserialize)]
pub(super) struct Collection {
    #[serde(rename = "Members")]
    pub members: Vec<Link>,
}

/// A chassis.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Chassis {
    #[serde(default)]
    pub power: Option<Link>,
    #[serde(default)]
    pub environment_metrics: Option<Link>,
}

/// `Power` or `EnvironmentMetrics`: what one has, the other has not.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Told {
    #[serde(default)]
    power_control: Option<Vec<PowerControl>>,
    #[serde(default)]
    power_watts: Option<Excerpt>,
    #[serde(default, rename = "EnergykWh")]
    energy_kwh: Option<Excerpt>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PowerControl {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    power_consumed_watts: Option<f64>,
}

/// The reading of a sensor, in short.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Excerpt {
    #[serde(default)]
    reading: Option<f64>,
}

impl Told {
    /// Power, or else energy, with the name of the part where there are several. What is negative or boundless is no
    /// reading.
    pub(super) fn amounts(&self) -> Vec<(Option<String>, Amount)> {
        let sound = |watts: &f64| is_power(*watts);
        let reading = |excerpt: &Option<Excerpt>| excerpt.as_ref()?.reading;
        if let Some(watts) = reading(&self.power_watts).filter(sound) {
            return vec![(None, Amount::Watts(watts))];
        }
        let controls = self.power_control.as_deref().unwrap_or_default();
        let several = controls.len() > 1;
        let control = |(at, control): (usize, &PowerControl)| {
            let name = control.name.as_deref().filter(|name| !name.is_empty());
            let watts = control.power_consumed_watts.filter(sound)?;
            let numbered = || format!("{} {}", at + 1, shown(name.unwrap_or("part"), MOST_LETTERS));
            Some((several.then(numbered), Amount::Watts(watts)))
        };
        let all: Vec<_> = controls.iter().take(MOST_PARTS).enumerate().filter_map(control).collect();
        if !all.is_empty() {
            return all;
        }
        let energy = reading(&self.energy_kwh).filter(|kwh| *kwh >= 0.0 && kwh.is_finite());
        energy.map(|kwh| (None, Amount::KilowattHours(kwh))).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(text: &str) -> Vec<(Option<String>, Amount)> {
        serde_json::from_str::<Told>(text).unwrap().amounts()
    }

    #[test]
    fn both_models_are_read() {
        let older = include_str!("../../tests/fixtures/redfish/power.json");
        assert_eq!(of(older), [(None, Amount::Watts(344.0))]);
        let newer = include_str!("../../tests/fixtures/redfish/environment_metrics.json");
        assert_eq!(of(newer), [(None, Amount::Watts(374.0))]);
        let counted = newer.replace("374", "null");
        assert_eq!(of(&counted), [(None, Amount::KilowattHours(325.675))]);
        let two = r#"{"PowerControl": [{"Name": "CPU", "PowerConsumedWatts": 90}, {"PowerConsumedWatts": 30.5}]}"#;
        assert_eq!(
            of(two),
            [(Some("1 CPU".into()), Amount::Watts(90.0)), (Some("2 part".into()), Amount::Watts(30.5))]
        );
    }

    #[test]
    fn what_is_no_reading_is_none() {
        for none in [
            "{}",
            "[]",
            r#"{"PowerControl": [], "PowerWatts": null}"#,
            r#"{"PowerControl": null}"#,
            r#"{"PowerControl": [{"PowerConsumedWatts": null}]}"#,
            r#"{"PowerControl": [{"PowerConsumedWatts": -4}]}"#,
            r#"{"PowerWatts": {"Reading": 1e30}, "EnergykWh": {"Reading": null}}"#,
        ] {
            assert_eq!(of(none), [], "{none}");
        }
        for nonsense in ["", "7", r#"{"PowerControl": 7}"#, r#"{"PowerWatts": {"Reading": "many"}}"#] {
            assert!(serde_json::from_str::<Told>(nonsense).is_err(), "{nonsense}");
        }
    }
}
