//! Measures how long packets of the pools' members wait, unless the policy says otherwise. What cannot be measured is
//! told, and all else is in force without it.

use std::collections::BTreeSet;
use std::fmt;
use std::iter;
use std::sync::Arc;

use vmio_look::require::{Check, unmet};
use vmio_node::Local as Host;

use super::super::Error;
use super::super::delays::{Delays, Place, REQUIREMENTS};
use super::{InstalledPool, Linux, flows};
use crate::desired::{Desired, GUESTS_NUMBER, PoolKey};
use crate::planes::{Count, DelayCount};

/// What measures.
#[derive(Debug, Default)]
pub(super) enum Meter {
    /// Nothing: no pool is in force, or the policy does not want it.
    #[default]
    Off,
    On(Delays),
    Failed(NotMeasured),
}

/// Why waits are not measured.
#[derive(Debug)]
pub(super) enum NotMeasured {
    Unmet(Check),
    Refused(Error),
}

impl fmt::Display for NotMeasured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotMeasured::Unmet(check) => write!(f, "{check}"),
            NotMeasured::Refused(error) => write!(f, "{error}"),
        }
    }
}

impl Linux {
    /// Measures the members' classes that are in force, and no others.
    pub(super) fn measure(&mut self, desired: &Desired) {
        if !desired.measure_delay || self.pools.is_empty() {
            self.meter = Meter::Off;
            return;
        }
        if matches!(self.meter, Meter::Off) {
            self.meter = match Delays::start(self.past.log.namespace()) {
                Ok(delays) => Meter::On(delays),
                Err(error) => Meter::Failed(match unmet(&Host::new(), REQUIREMENTS).into_iter().next() {
                    Some((_, check)) => NotMeasured::Unmet(check),
                    None => NotMeasured::Refused(error),
                }),
            };
        }
        let places: BTreeSet<Place> = self.pools.values().flat_map(InstalledPool::places).collect();
        if let Meter::On(delays) = &mut self.meter
            && let Err(error) = delays.follow(&places)
        {
            self.meter = Meter::Failed(NotMeasured::Refused(error));
        }
    }

    /// What packets of each member of a pool have waited, in their order; of none where it is not measured. With the
    /// pool's counters as just read.
    pub(super) fn delays(&mut self, key: &PoolKey, counts: &[Count]) -> Vec<Option<Arc<DelayCount>>> {
        let (Meter::On(delays), Some(installed)) = (&mut self.meter, self.pools.get(key)) else { return Vec::new() };
        let passed = counts.iter().map(|count| Some(count.passed_bytes)).chain(iter::repeat(None));
        let members = installed.order.iter().zip(passed);
        members.map(|(number, passed)| delays.read(installed.place(*number), passed)).collect()
    }

    /// The note on waits that cannot be measured.
    pub(super) fn not_measured(&self) -> Option<String> {
        match &self.meter {
            Meter::Failed(why) => Some(format!("how long packets wait is not measured: {why}")),
            Meter::Off | Meter::On(_) => None,
        }
    }
}

impl InstalledPool {
    /// Where a member's class is.
    fn place(&self, number: u16) -> Place {
        let behind = self.stage.is_some() && flows::behind(number);
        (if behind { self.uplink.index } else { self.at.index }, number)
    }

    /// The classes of its members, if there are any; with that of all guests behind a stage, so that its packets are
    /// not taken for those of no class.
    fn places(&self) -> impl Iterator<Item = Place> {
        let guests = self.stage.as_ref().map(|_| (self.uplink.index, GUESTS_NUMBER));
        let all = self.order.iter().map(|number| self.place(*number)).chain(guests);
        all.filter(|_| !self.queueless)
    }
}
