//! Published figures in an experiment's file, beside its scenario, each of which can be calculated from an outcome of
//! the simulation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Outcome, Scenario, Source, Vif};

/// A published experiment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Paper {
    /// Short name.
    pub key: String,
    /// What to cite.
    pub citation: String,
    /// Section.
    pub section: String,
    /// The studies that measure it again; empty for one that is only simulated.
    #[serde(default)]
    pub studies: Vec<String>,
    /// Its published figures.
    pub published: Vec<Published>,
    /// Its contradictions.
    pub footnote: Vec<Footnote>,
}

/// A published figure.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Published {
    /// Its system.
    pub system: System,
    /// Its kind.
    pub what: What,
    /// Its member.
    pub vm: String,
    /// Its value, in the unit of `what`.
    pub value: f64,
    /// Offered Mbit/s of the members, in order, while it holds; empty for the whole run.
    #[serde(default)]
    pub while_offered_mbit: Vec<u64>,
}

/// Systems compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// Without an allocator.
    Native,
    /// With the published allocator.
    Dba,
}

/// Kind of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// 1 - received / scheduled, in per cent.
    LossPercent,
    /// Received, in Mbit/s.
    ThroughputMbit,
}

/// A remark on a figure.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Footnote {
    /// The figure concerned.
    pub about: String,
    /// The remark.
    pub text: String,
}

impl Published {
    /// The same with rates multiplied by this factor.
    #[must_use]
    pub fn scaled(&self, ratio: f64) -> Published {
        let value = if self.what == What::ThroughputMbit { self.value * ratio } else { self.value };
        let offered = self.while_offered_mbit.iter().map(|mbit| (*mbit as f64 * ratio).round() as u64).collect();
        Published { value, while_offered_mbit: offered, ..self.clone() }
    }

    /// The same figure of an outcome; `None` where the scenario lacks the member or moment. A throughput is the mean
    /// over all the time with these offers, without what comes right after a change ([`Outcome::settling`]).
    pub fn simulated(&self, scenario: &Scenario, outcome: &Outcome) -> Option<f64> {
        let i = scenario.vifs.iter().position(|v| v.name == self.vm)?;
        match self.what {
            What::LossPercent => Some(outcome.totals.get(i)?.loss_ratio() * 100.0),
            What::ThroughputMbit => {
                let holds = |at: u64| {
                    let offers = |v: &Vif| v.source.offers(at).bits() / 1_000_000;
                    scenario.vifs.iter().map(offers).collect::<Vec<u64>>() == self.while_offered_mbit
                };
                let settling = outcome.settling();
                let within = |at: u64| at >= settling && holds(at - settling) && holds(at.saturating_sub(1));
                let rates: Vec<f64> = outcome
                    .series
                    .iter()
                    .filter(|s| within(s.at))
                    .filter_map(|s| Some(s.received.get(i)?.bits() as f64))
                    .collect();
                (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64 / 1e6)
            }
        }
    }
}

/// The share of a member's offered traffic above its maximum, which a limit cannot let pass; `None` for a source
/// without a schedule, or an empty one.
pub fn above_maximum_ratio(scenario: &Scenario, vif: &Vif) -> Option<f64> {
    let Source::OpenLoop(schedule) = &vif.source else { return None };
    let ends = schedule.iter().skip(1).map(|s| s.0).chain([u64::MAX]);
    let (mut offered, mut above) = (0u128, 0u128);
    for ((from, rate), to) in schedule.iter().zip(ends) {
        let time = u128::from(to.min(scenario.duration).saturating_sub(*from));
        offered += u128::from(*rate) * time;
        above += u128::from(rate.saturating_sub(vif.contract.max)) * time;
    }
    (offered > 0).then(|| above as f64 / offered as f64)
}
