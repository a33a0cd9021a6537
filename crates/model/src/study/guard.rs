//! `[guard.NAME]`: a policy that `vmio guard run` keeps in force around a cell. The study has the classes and the class
//! of each actor; vmio adds uplinks, with the rate of the cell's link, and interfaces.

use serde::{Deserialize, Serialize};

use crate::allocate::dba::Measures;
use crate::control::Allocator;
use crate::policy::{Links, Policy, PolicyError};
use crate::rate::BitRate;

/// A policy and its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardPolicy {
    /// Options of `vmio guard run`, such as `--algorithm dba`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The class of each actor's interface, in their order.
    pub classes: Vec<String>,
    /// The policy without uplinks and interfaces. `{30%}` in it is that share of the link's rate.
    pub policy: String,
}

/// Options of `vmio guard run` that a study may use, and whether each has a value.
pub const OPTIONS: [(&str, bool); 2] = [("--algorithm", true), ("--measures", true)];

/// An actor's interface and uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugged {
    /// Its name on the host.
    pub interface: String,
    /// Its uplink on the host.
    pub uplink: String,
    /// Rate of the link.
    pub carries: BitRate,
}

/// Why a study's policy is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say what each one is
pub enum GuardError {
    #[error("it has classes for {classes} actors, and the cell has {actors}")]
    Actors { classes: usize, actors: usize },
    #[error("the actors' links have different rates")]
    Rates,
    #[error("`{word}` is not among the options that a study may set: {}", OPTIONS.map(|(name, _)| name).join(", "))]
    UnknownOption { word: String },
    #[error("`{0}` lacks its value")]
    NoValue(String),
    #[error("a share lacks its `{{`, as in {{30%}}")]
    NoBrace,
    #[error("invalid share `{{{0}%}}`: write it as {{30%}}")]
    NoShare(String),
    #[error("{{{0}%}} is out of range: 0 to 1000")]
    OutOfRange(String),
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl GuardPolicy {
    /// The whole policy for these actors, in order.
    ///
    /// # Errors
    /// What does not fit, or what the policy's parser refuses.
    pub fn whole(&self, actors: &[Plugged]) -> Result<String, GuardError> {
        if actors.len() != self.classes.len() {
            return Err(GuardError::Actors { classes: self.classes.len(), actors: actors.len() });
        }
        let rate = actors.first().map_or(BitRate::ZERO, |actor| actor.carries);
        if actors.iter().any(|actor| actor.carries != rate) {
            return Err(GuardError::Rates);
        }
        let mut text = shares(&self.policy, rate)?;
        let mut uplinks: Vec<&str> = Vec::new();
        for Plugged { uplink, carries, .. } in actors {
            if !uplinks.contains(&&**uplink) {
                uplinks.push(uplink);
                text += &format!("\n[uplink.\"{uplink}\"]\ncapacity = \"{}bit\"\n", carries.bits());
            }
        }
        for (Plugged { interface, uplink, .. }, class) in actors.iter().zip(&self.classes) {
            text += &format!(
                "\n[[interface]]\nmatch = {{ name = \"{interface}\" }}\nclass = \"{class}\"\nuplink = \"{uplink}\"\n"
            );
        }
        Policy::read(&[("policy", &text)], &Links::default())?;
        Ok(text)
    }

    /// Allocator and period in picoseconds; `None` where [`GuardPolicy::check`] refuses it.
    pub fn kept(&self) -> Option<(Allocator, u64)> {
        let value = |name: &str| self.options.iter().skip_while(|word| *word != name).nth(1).map(String::as_str);
        let measures = if value("--measures") == Some("offered") { Measures::Offered } else { Measures::Passed };
        let allocator = if value("--algorithm") == Some("dba") { Allocator::Dba(measures) } else { Allocator::Exact };
        let text = self.whole(&self.anybody()).ok()?;
        let policy = Policy::read(&[("policy", &text)], &Links::default()).ok()?.policy;
        Some((allocator, u64::try_from(policy.guard.period.as_nanos()).ok()?.saturating_mul(1000)))
    }

    /// Made-up actors, one for each class.
    fn anybody(&self) -> Vec<Plugged> {
        let carries = BitRate::new(1_000_000_000);
        let plugged = |i| Plugged { interface: format!("port{i}"), uplink: "uplink".into(), carries };
        (0..self.classes.len()).map(plugged).collect()
    }

    /// Whether it is valid around any cell.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), GuardError> {
        let mut words = self.options.iter();
        while let Some(word) = words.next() {
            let Some((_, more)) = OPTIONS.iter().find(|(name, _)| name == word) else {
                return Err(GuardError::UnknownOption { word: word.clone() });
            };
            if *more && words.next().is_none_or(|value| value.starts_with('-')) {
                return Err(GuardError::NoValue(word.clone()));
            }
        }
        self.whole(&self.anybody()).map(|_| ())
    }
}

/// Replaces each `{30%}` by that share of a rate.
fn shares(text: &str, rate: BitRate) -> Result<String, GuardError> {
    let (mut out, mut rest) = (String::new(), text);
    // TOML tables have braces, too: only what ends with `%}` is a share.
    while let Some(end) = rest.find("%}") {
        let begin = rest[..end].rfind('{').ok_or(GuardError::NoBrace)?;
        let number = &rest[begin + 1..end];
        let share: f64 = number.parse().map_err(|_| GuardError::NoShare(number.to_owned()))?;
        if !(0.0..=1000.0).contains(&share) {
            return Err(GuardError::OutOfRange(number.to_owned()));
        }
        out += &rest[..begin];
        out += &format!("{}bit", (rate.bits() as f64 * share / 100.0).round());
        rest = &rest[end + 2..];
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::rate::MBIT as M;

    fn guard() -> GuardPolicy {
        let policy = "[class.a]\nmin = \"{30%}\"\nmax = \"{60%}\"\n[class.b]\nmax = \"{12.5%}\"\n";
        GuardPolicy { options: Vec::new(), classes: vec!["a".into(), "b".into()], policy: policy.into() }
    }

    fn plugged(interface: &str, carries: BitRate) -> Plugged {
        Plugged { interface: interface.into(), uplink: "wire".into(), carries }
    }

    #[test]
    fn shares_follow_the_link_and_the_whole_is_a_policy() {
        let text = guard().whole(&[plugged("tap0", 100 * M), plugged("port1", 100 * M)]).unwrap();
        let policy = Policy::read(&[("policy", &text)], &Links::default()).unwrap().policy;
        let class = |name: &str| policy.class(name).clone();
        assert_eq!((class("a").min, class("a").max), (Some(30 * M), Some(60 * M)));
        assert_eq!(class("b").max, Some(125 * M / 10));
        assert_eq!(policy.uplinks.keys().collect::<Vec<_>>(), ["wire"], "named once");
        guard().check().unwrap();
    }

    #[test]
    fn who_keeps_it_is_read() {
        assert_eq!(guard().kept(), Some((Allocator::Exact, 10_000_000_000)), "every 10 ms");
        let options: Vec<String> = ["--algorithm", "dba"].map(String::from).into();
        let policy = format!("{}[guard]\nperiod = \"100ms\"\n", guard().policy);
        let dba = GuardPolicy { options: options.clone(), policy, ..guard() };
        assert_eq!(dba.kept(), Some((Allocator::Dba(Measures::Passed), 100_000_000_000)));
        let options = [options, ["--measures", "offered"].map(String::from).into()].concat();
        assert_eq!(GuardPolicy { options, ..dba }.kept().unwrap().0, Allocator::Dba(Measures::Offered));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let problem = |guard: GuardPolicy| guard.check().unwrap_err().to_string();
        let both = [plugged("tap0", M), plugged("tap1", 2 * M)];
        assert_eq!(guard().whole(&both), Err(GuardError::Rates));
        let refused = guard().whole(&both[..1]).unwrap_err().to_string();
        assert!(refused.contains("for 2 actors, and the cell has 1"), "{refused}");
        assert!(problem(GuardPolicy { policy: "[class.a]\nmin = \"{x%}\"".into(), ..guard() }).contains("`{x%}`"));
        assert!(problem(GuardPolicy { policy: "min = \"30%}\"".into(), ..guard() }).contains("lacks its `{`"));
        assert!(problem(GuardPolicy { policy: "[class.a]\nmim = \"1bit\"".into(), ..guard() }).contains("mim"));
        let options =
            |words: &[&str]| problem(GuardPolicy { options: words.iter().map(|w| (*w).into()).collect(), ..guard() });
        assert!(options(&["--listen", "1.2.3.4:5"]).contains("--algorithm"));
        assert!(options(&["--algorithm"]).contains("lacks its value"));
        assert!(options(&["--algorithm", "--measures"]).contains("lacks its value"));
    }
}
