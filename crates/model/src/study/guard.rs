//! `[guard.NAME]`: a policy that `vmio guard run` keeps in force around a cell. The study has the classes and the class
//! of each actor; vmio adds uplinks, with the rate of the cell's link, and interfaces.

use serde::{Deserialize, Serialize};

use crate::allocate::Member;
use crate::allocate::dba::Measures;
use crate::control::Allocator;
use crate::policy::{Class, DEFAULT, HOST, Links, Policy, PolicyError};
use crate::rate::BitRate;

/// What keeps a policy in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeptBy {
    /// `vmio guard run`.
    #[default]
    Vmio,
    /// Plain HTB, put once by tc(8) as by hand: a class each with the minimum as rate, the maximum as ceiling, and the
    /// priority; a filter for each actor's address.
    Tc,
}

impl KeptBy {
    /// Both.
    pub const ALL: [KeptBy; 2] = [KeptBy::Vmio, KeptBy::Tc];

    fn is_vmio(&self) -> bool {
        *self == KeptBy::Vmio
    }
}

impl std::fmt::Display for KeptBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            KeptBy::Vmio => "vmio",
            KeptBy::Tc => "tc",
        })
    }
}

/// A policy and its options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardPolicy {
    /// What keeps it in force.
    #[serde(default, skip_serializing_if = "KeptBy::is_vmio")]
    pub by: KeptBy,
    /// Options of `vmio guard run`, such as `--algorithm dba`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The class of each actor's interface, in their order; one class is that of all. `default` is an interface that
    /// the policy does not name; `host` is for packets of the host's own, which go by no interface of an actor.
    pub classes: Vec<String>,
    /// The policy without uplinks and interfaces. `{30%}` in it is that share of the link's rate.
    pub policy: String,
}

/// The link of a policy that is only looked at.
const ANY_RATE: BitRate = BitRate::new(1_000_000_000);

/// Options of `vmio guard run` that a study may use, and whether each has a value.
pub const OPTIONS: [(&str, bool); 2] = [("--algorithm", true), ("--measures", true)];

/// An actor's interface and uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugged {
    /// Its name on the host; `None` where the actor's packets are the host's own.
    pub interface: Option<String>,
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
    #[error("class {0} is for an interface, and the packets of an actor's disk are the host's own: give it class host")]
    HostsOwn(String),
    #[error("class host is for packets of the host's own, and {0} is an actor's interface: give it another class")]
    Interface(String),
    #[error("`{word}` is not among the options that a study may set: {}", OPTIONS.map(|(name, _)| name).join(", "))]
    UnknownOption { word: String },
    #[error("plain HTB (by = \"tc\") takes no options: leave them out")]
    Options,
    #[error("plain HTB (by = \"tc\") has min, max and priority alone, and class {0} asks for more")]
    Plain(String),
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
    /// Whether it has a class for each of so many actors.
    pub fn fits(&self, actors: usize) -> bool {
        self.classes.len() == 1 || self.classes.len() == actors
    }

    /// The class of the actor at this place.
    pub fn class_at(&self, place: usize) -> Option<&str> {
        if let [all] = self.classes.as_slice() { Some(all) } else { self.classes.get(place).map(String::as_str) }
    }

    /// Whether the policy leaves the interface of the actor at this place to the class of all unmatched traffic.
    pub fn is_unmatched(&self, place: usize) -> bool {
        self.class_at(place) == Some(DEFAULT)
    }

    /// Whether the policy names the interface of the actor at this place.
    pub fn names(&self, place: usize) -> bool {
        !matches!(self.class_at(place), Some(DEFAULT | HOST))
    }

    /// The class of each of so many actors, on a link of this rate.
    ///
    /// # Errors
    /// As [`GuardPolicy::whole`]: also where the minima of so many do not fit.
    pub fn contracts(&self, actors: usize, carries: BitRate) -> Result<Vec<Class>, GuardError> {
        let policy = self.policy_of(actors, carries)?;
        Ok((0..actors).filter_map(|place| policy.classes.get(self.class_at(place)?).cloned()).collect())
    }

    /// The contract of the host's own traffic on a link of this rate; by plain HTB that of all that matches no filter.
    pub fn host(&self, actors: usize, carries: BitRate) -> Option<Member> {
        if self.by == KeptBy::Tc {
            return Some(Class::named(DEFAULT).member(carries));
        }
        Some(self.policy_of(actors, carries).ok()?.classes.get(HOST)?.member(carries))
    }

    /// The policy for so many made-up actors.
    fn policy_of(&self, actors: usize, carries: BitRate) -> Result<Policy, GuardError> {
        let interface = |i| (self.class_at(i) != Some(HOST)).then(|| format!("port{i}"));
        let plugged = |i| Plugged { interface: interface(i), uplink: "uplink".into(), carries };
        let text = self.whole(&(0..actors).map(plugged).collect::<Vec<_>>())?;
        Ok(Policy::read(&[("policy", &text)], &Links::default())?.policy)
    }

    /// The whole policy for these actors, in order.
    ///
    /// # Errors
    /// What does not fit, or what the policy's parser refuses.
    pub fn whole(&self, actors: &[Plugged]) -> Result<String, GuardError> {
        if !self.fits(actors.len()) {
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
        for (place, Plugged { interface, uplink, .. }) in actors.iter().enumerate() {
            match (self.class_at(place), interface) {
                (Some(HOST), Some(interface)) => return Err(GuardError::Interface(interface.clone())),
                (Some(HOST), None) | (Some(DEFAULT), Some(_)) | (None, _) => {}
                (Some(class), None) => return Err(GuardError::HostsOwn(class.to_owned())),
                (Some(class), Some(interface)) => {
                    text += &format!(
                        "\n[[interface]]\nmatch = {{ name = \"{interface}\" }}\nclass = \"{class}\"\nuplink = \
                         \"{uplink}\"\n"
                    );
                }
            }
        }
        Policy::read(&[("policy", &text)], &Links::default())?;
        Ok(text)
    }

    /// Allocator and period in picoseconds, plain HTB with none; `None` where [`GuardPolicy::check`] refuses it.
    pub fn kept(&self) -> Option<(Allocator, u64)> {
        let value = |name: &str| self.options.iter().skip_while(|word| *word != name).nth(1).map(String::as_str);
        let measures = if value("--measures") == Some("offered") { Measures::Offered } else { Measures::Passed };
        let allocator = match value("--algorithm") {
            Some("dba") => Allocator::Dba(measures),
            Some("exact-loop") => Allocator::ExactLoop,
            _ => Allocator::Exact,
        };
        let period = self.policy_of(self.classes.len(), ANY_RATE).ok()?.guard.period;
        let allocator = if self.by == KeptBy::Tc { Allocator::None } else { allocator };
        Some((allocator, u64::try_from(period.as_nanos()).ok()?.saturating_mul(1000)))
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
        let classes = self.contracts(self.classes.len(), ANY_RATE)?;
        if self.by == KeptBy::Vmio {
            return Ok(());
        }
        if !self.options.is_empty() {
            return Err(GuardError::Options);
        }
        let mut named = self.classes.iter().zip(&classes);
        let more = named.find(|(_, class)| {
            let Class { priority, min, max, .. } = **class;
            **class != Class { priority, min, max, ..Class::default() }
        });
        more.map_or(Ok(()), |(name, _)| Err(GuardError::Plain(name.clone())))
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
        GuardPolicy {
            by: KeptBy::Vmio,
            options: Vec::new(),
            classes: vec!["a".into(), "b".into()],
            policy: policy.into(),
        }
    }

    fn plugged(interface: &str, carries: BitRate) -> Plugged {
        Plugged { interface: Some(interface.into()), uplink: "wire".into(), carries }
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
    fn one_class_is_for_all_and_default_is_not_named() {
        let one = GuardPolicy { classes: vec!["b".into()], ..guard() };
        assert!(one.fits(64) && !guard().fits(64));
        let contracts = one.contracts(64, 100 * M).unwrap();
        assert_eq!((contracts.len(), contracts[63].max), (64, Some(125 * M / 10)));
        let many = GuardPolicy { classes: vec!["a".into()], ..guard() };
        assert!(many.contracts(3, 100 * M).is_ok() && many.contracts(4, 100 * M).is_err(), "4 times 30 %");
        let unmatched = GuardPolicy { classes: vec!["a".into(), "default".into()], ..guard() };
        let text = unmatched.whole(&[plugged("tap0", 100 * M), plugged("port1", 100 * M)]).unwrap();
        assert!(text.contains("tap0") && !text.contains("port1"), "{text}");
        assert!(unmatched.is_unmatched(1) && !unmatched.is_unmatched(0));
        assert_eq!(unmatched.host(2, 100 * M).unwrap().min, 2 * M);
        unmatched.check().unwrap();
    }

    #[test]
    fn an_actor_whose_packets_are_the_hosts_own_has_its_class() {
        let policy = "[class.host]\nmin = \"{60%}\"\n[class.b]\nmax = \"{50%}\"\n";
        let own = GuardPolicy { classes: vec!["host".into(), "b".into()], policy: policy.into(), ..guard() };
        own.check().unwrap();
        assert!(own.names(1) && !own.names(0));
        let disk = Plugged { interface: None, ..plugged("", 100 * M) };
        let text = own.whole(&[disk.clone(), plugged("tap1", 100 * M)]).unwrap();
        assert!(text.contains("tap1") && text.matches("[[interface]]").count() == 1, "{text}");
        assert_eq!(own.contracts(2, 100 * M).unwrap()[0].min, Some(60 * M));
        let refused = |of: &GuardPolicy, first: Plugged| of.whole(&[first, plugged("tap1", 100 * M)]).unwrap_err();
        assert_eq!(refused(&own, plugged("tap0", 100 * M)), GuardError::Interface("tap0".into()));
        assert_eq!(refused(&guard(), disk), GuardError::HostsOwn("a".into()));
    }

    #[test]
    fn plain_htb_has_no_more_than_tc() {
        let tc = GuardPolicy { by: KeptBy::Tc, ..guard() };
        tc.check().unwrap();
        assert_eq!(tc.kept().unwrap().0, Allocator::None);
        let host = tc.host(2, 100 * M).unwrap();
        assert_eq!((host.priority, host.min, host.max), (8, BitRate::ZERO, 100 * M), "the last of all");
        let hard = tc.policy.replace("max = \"{60%}\"", "max = \"{60%}\"\nreserve = \"hard\"");
        let refused = GuardPolicy { policy: hard, ..tc.clone() }.check().unwrap_err().to_string();
        assert!(refused.contains("class a asks for more"), "{refused}");
        let options: Vec<String> = ["--algorithm", "dba"].map(String::from).into();
        assert_eq!(GuardPolicy { options, ..tc }.check(), Err(GuardError::Options));
        let options: Vec<String> = ["--algorithm", "exact-loop"].map(String::from).into();
        assert_eq!(GuardPolicy { options, ..guard() }.kept().unwrap().0, Allocator::ExactLoop);
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
