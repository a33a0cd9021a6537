//! Demands on the command line.

use crate::allocate::Demand;
use crate::policy::matcher::{Kind, Matcher, label};
use crate::policy::{DEFAULT, Direction, HOST, Policy, units};

/// A demand from the command line: `vnet0=300Mbit`, `vm:web1:rx=unbounded`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// Its direction.
    pub direction: Direction,
    /// Its rate.
    pub demand: Demand,
    /// The whole text as a name, where it ends in `:rx` and that may be part of the name.
    whole: Option<(Kind, String)>,
}

impl Ask {
    /// Parses `NAME[:rx]=RATE`. A name that is not an interface's begins with its kind: `mac:52:54:00:12:34:56`,
    /// `vm:web1`, `netns:blue`.
    ///
    /// # Errors
    /// What is wrong, in a sentence.
    pub fn parse(text: &str) -> Result<Ask, String> {
        let how = "write NAME=RATE or NAME:rx=RATE, for example vnet0=300Mbit";
        let (who, amount) = text.rsplit_once('=').ok_or_else(|| format!("`{text}` has no `=`; {how}"))?;
        let demand = match amount {
            "unbounded" | "all" => Demand::Unbounded,
            rate => Demand::Rate(units::limit(rate).map_err(|e| format!("{e}, or \"unbounded\" (\"all\")"))?),
        };
        let one = |who: &str| {
            let by_kind = Kind::ALL.into_iter().find_map(|k| Some((k, who.strip_prefix(k.word())?.strip_prefix(':')?)));
            let (kind, name) = by_kind.unwrap_or((Kind::Name, who));
            let matcher = Matcher::new(kind, name).map_err(|why| format!("`{text}`: the name {why}; {how}"))?;
            if matcher.is_exact() {
                return Ok((kind, name.to_owned()));
            }
            Err(format!("`{text}`: `{name}` is a pattern; name one interface that it matches"))
        };
        let ask = |(kind, name), direction, whole| Ask { kind, name, direction, demand, whole };
        let Some(stripped) = who.strip_suffix(":rx") else { return Ok(ask(one(who)?, Direction::GuestTx, None)) };
        match (one(stripped), one(who).ok()) {
            (Ok(named), whole) => Ok(ask(named, Direction::GuestRx, whole)),
            (Err(_), Some(whole)) => Ok(ask(whole, Direction::GuestTx, None)),
            (Err(error), None) => Err(error),
        }
    }

    /// Resolves a `:rx` at the end, which belongs to the name where only the whole name matches.
    pub(super) fn meant(&self, policy: &Policy) -> Ask {
        let known = |kind, name: &str| policy.find(kind, name).is_some();
        match &self.whole {
            Some((kind, name)) if self.implicit().is_none() && !known(self.kind, &self.name) && known(*kind, name) => {
                Ask { kind: *kind, name: name.clone(), direction: Direction::GuestTx, demand: self.demand, whole: None }
            }
            _ => self.clone(),
        }
    }

    pub(super) fn label(&self) -> String {
        label(self.kind, &self.name)
    }

    /// The name of an implicit member, if it is one.
    pub(super) fn implicit(&self) -> Option<&'static str> {
        [HOST, DEFAULT].into_iter().find(|name| self.kind == Kind::Name && self.name == *name)
    }
}
