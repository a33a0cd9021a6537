//! Rates of members, from what they have counted at two times.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::core::PoolStatus;
use crate::desired::PoolKey;

/// The rate of each member between the last two times.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    last: BTreeMap<(PoolKey, String), u64>,
    at: Option<Instant>,
    rates: BTreeMap<(PoolKey, String), u64>,
}

impl Rates {
    /// What is counted now.
    pub fn count(&mut self, pools: &[PoolStatus], at: Instant) {
        let seconds = self.at.map(|before| at.duration_since(before).as_secs_f64()).filter(|s| *s > 0.0);
        let members = pools.iter().flat_map(|pool| pool.members.iter().map(move |m| (pool, m)));
        let now: BTreeMap<_, u64> =
            members.map(|(pool, m)| ((pool.key.clone(), m.name.clone()), m.count.passed_bytes)).collect();
        self.rates.clear();
        if let Some(seconds) = seconds {
            for (who, bytes) in &now {
                // One that counts anew, or has just come, has no rate yet.
                let Some(passed) = self.last.get(who).and_then(|before| bytes.checked_sub(*before)) else { continue };
                self.rates.insert(who.clone(), (passed as f64 * 8.0 / seconds) as u64);
            }
        }
        (self.last, self.at) = (now, Some(at));
    }

    /// In bit/s; `None` where it was not there at both times.
    pub fn of(&self, pool: &PoolKey, member: &str) -> Option<u64> {
        self.rates.get(&(pool.clone(), member.to_owned())).copied()
    }
}
