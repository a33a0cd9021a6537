//! Limits that an uplink's card has for its virtual functions. What a card refuses is told of the interface that it is
//! for, and is nobody else's trouble.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmio_model::policy::Direction;

use super::super::functions::{self, Function, Rate};
use super::super::{Device, Error, Netlink, links};
use super::Linux;
use crate::desired::{Carded, Desired, PoolKey};
use crate::planes::{Count, NotHeld, PlaneError};

/// How old counters of a card may be: its driver may have to ask its firmware for each function.
const FRESH: Duration = Duration::from_secs(1);

/// The cards of pools, with what their functions have sent.
#[derive(Debug, Default)]
pub(super) struct Cards(BTreeMap<PoolKey, CardState>);

/// A card, and the state of its functions' limits at a time.
#[derive(Debug)]
struct CardState {
    card: Device,
    at: Instant,
    /// By function: what it has sent, or why its limit is not in force.
    functions: BTreeMap<u32, Result<Count, Arc<NotHeld>>>,
}

impl Linux {
    /// Has the cards limit what is desired, and puts back what is not any more; how many changes that took.
    pub(super) fn cards(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        let limited =
            |pool: &&crate::desired::DesiredPool| pool.key.direction == Direction::GuestTx && !pool.cards.is_empty();
        let (mut changes, mut wanted) = (0, Vec::new());
        self.cards.0.clear();
        for pool in desired.pools.iter().filter(limited) {
            let card = links::find(&mut self.netlink, &pool.key.uplink)?;
            let there = functions::of(&mut self.netlink, &card)?;
            let mut seen = CardState { card: card.clone(), at: Instant::now(), functions: BTreeMap::new() };
            for carded in &pool.cards {
                wanted.push((card.index, carded.function));
                let done = self.limited(&card, carded, there.get(&carded.function))?;
                changes += usize::from(matches!(done, Ok(true)));
                let count = there.get(&carded.function).map(|function| function.count).unwrap_or_default();
                seen.functions.insert(carded.function, done.map(|_| count).map_err(Arc::new));
            }
            self.cards.0.insert(pool.key.clone(), seen);
        }
        for (card, function) in self.past.log.carded() {
            if !wanted.contains(&(card.index, function)) {
                self.unlimited(&card, function)?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Whether that was a change, or why the card does not.
    fn limited(
        &mut self,
        card: &Device,
        wanted: &Carded,
        now: Option<&Function>,
    ) -> Result<Result<bool, NotHeld>, PlaneError> {
        let Some(now) = now else {
            return Ok(Err(NotHeld::NoFunction { card: card.clone(), function: wanted.function }));
        };
        if now.rate.max_mbit == wanted.mbit {
            return Ok(Ok(false));
        }
        self.past.log.begin_limiting(card, wanted.function, now.rate, wanted.mbit)?;
        let rate = Rate { max_mbit: wanted.mbit, ..now.rate };
        Ok(match functions::limit(&mut self.netlink, card, wanted.function, rate) {
            Ok(()) => Ok(true),
            Err(Error::Refused { source, .. }) if source.kind() == io::ErrorKind::Unsupported => {
                Err(NotHeld::NoLimits(card.clone()))
            }
            Err(e) => Err(e.into()),
        })
    }

    /// Puts back what a function had, unless somebody else has set something since.
    fn unlimited(&mut self, card: &Device, function: u32) -> Result<(), Error> {
        let Some((_, before, ours)) = self.past.log.carded_at(card.index, function) else { return Ok(()) };
        let there = links::by_index(&mut self.netlink, card.index)?.is_some();
        let now = if there { functions::of(&mut self.netlink, card)?.get(&function).copied() } else { None };
        if now.is_some_and(|now| now.rate.max_mbit != before.max_mbit && ours.contains(&now.rate.max_mbit)) {
            functions::limit(&mut self.netlink, card, function, before)?;
        }
        self.past.log.card_is_back(card.index, function)
    }

    /// Puts back what all functions had; the first error is given when all was tried.
    pub(super) fn cards_undo(&mut self) -> Result<(), Error> {
        self.cards.0.clear();
        let all = self.past.log.carded();
        let tried: Vec<Result<(), Error>> =
            all.iter().map(|(card, function)| self.unlimited(card, *function)).collect();
        tried.into_iter().collect()
    }
}

impl Cards {
    /// What each function of a pool has sent, or why its limit is not in force.
    pub(super) fn counted(
        &mut self,
        netlink: &mut Netlink,
        pool: &PoolKey,
    ) -> BTreeMap<u32, Result<Count, Arc<NotHeld>>> {
        let Some(seen) = self.0.get_mut(pool) else { return BTreeMap::new() };
        if seen.at.elapsed() > FRESH {
            seen.at = Instant::now();
            // What cannot be read now was read before.
            let now = functions::of(netlink, &seen.card).unwrap_or_default();
            for (number, count) in &mut seen.functions {
                if let (Ok(count), Some(function)) = (count, now.get(number)) {
                    *count = function.count;
                }
            }
        }
        seen.functions.clone()
    }
}
