//! Limits in an uplink's card for its virtual functions. A refusal concerns only the interface that it is for.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmio_model::policy::Direction;

use super::super::functions::{self, Function, Rate};
use super::super::{Device, Error, Netlink, links};
use super::Linux;
use crate::desired::{CardLimit, Desired, PoolKey};
use crate::planes::{Count, NotHeld, PlaneError};

/// Maximum age of a card's counters: its driver may have to ask the firmware for each function.
const FRESH: Duration = Duration::from_secs(1);

/// The cards of pools, with the counters of their functions.
#[derive(Debug, Default)]
pub(super) struct Cards(BTreeMap<PoolKey, CardState>);

/// A card, and the state of its functions' limits at a time.
#[derive(Debug)]
struct CardState {
    card: Device,
    at: Instant,
    /// By function: its counters, or why its limit is not in force.
    functions: BTreeMap<u32, Result<Count, Arc<NotHeld>>>,
}

impl Linux {
    /// Sets the desired limits, and restores those that are not desired any more; returns the number of changes.
    pub(super) fn cards(&mut self, desired: &Desired) -> Result<usize, PlaneError> {
        let limited =
            |pool: &&crate::desired::DesiredPool| pool.key.direction == Direction::GuestTx && !pool.cards.is_empty();
        let (mut changes, mut wanted) = (0, Vec::new());
        self.cards.0.clear();
        for pool in desired.pools.iter().filter(limited) {
            let card = links::find(&mut self.netlink, &pool.key.uplink)?;
            let there = functions::of(&mut self.netlink, &card)?;
            let mut state = CardState { card: card.clone(), at: Instant::now(), functions: BTreeMap::new() };
            for carded in &pool.cards {
                wanted.push((card.index, carded.function));
                let done = self.set_card_limit(&card, carded, there.get(&carded.function))?;
                changes += usize::from(matches!(done, Ok(true)));
                let count = there.get(&carded.function).map(|function| function.count).unwrap_or_default();
                state.functions.insert(carded.function, done.map(|_| count).map_err(Arc::new));
            }
            self.cards.0.insert(pool.key.clone(), state);
        }
        for (card, function) in self.past.log.card_limits() {
            if !wanted.contains(&(card.index, function)) {
                self.restore_card_limit(&card, function)?;
                changes += 1;
            }
        }
        Ok(changes)
    }

    /// Sets a limit; returns whether that was a change, or why the card did not take it.
    fn set_card_limit(
        &mut self,
        card: &Device,
        wanted: &CardLimit,
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

    /// Restores a function's limit, unless somebody else has set another one since.
    fn restore_card_limit(&mut self, card: &Device, function: u32) -> Result<(), Error> {
        let Some((_, before, ours)) = self.past.log.card_limit_at(card.index, function) else { return Ok(()) };
        let there = links::by_index(&mut self.netlink, card.index)?.is_some();
        let now = if there { functions::of(&mut self.netlink, card)?.get(&function).copied() } else { None };
        if now.is_some_and(|now| now.rate.max_mbit != before.max_mbit && ours.contains(&now.rate.max_mbit)) {
            functions::limit(&mut self.netlink, card, function, before)?;
        }
        self.past.log.strike_card_limit(card.index, function)
    }

    /// Restores the limits of all functions. Tries all, and returns the first error.
    pub(super) fn cards_undo(&mut self) -> Result<(), Error> {
        self.cards.0.clear();
        let all = self.past.log.card_limits();
        let tried: Vec<Result<(), Error>> =
            all.iter().map(|(card, function)| self.restore_card_limit(card, *function)).collect();
        tried.into_iter().collect()
    }
}

impl Cards {
    /// Counters of each function of a pool, or why its limit is not in force.
    pub(super) fn counted(
        &mut self,
        netlink: &mut Netlink,
        pool: &PoolKey,
    ) -> BTreeMap<u32, Result<Count, Arc<NotHeld>>> {
        let Some(state) = self.0.get_mut(pool) else { return BTreeMap::new() };
        if state.at.elapsed() > FRESH {
            state.at = Instant::now();
            // On failure the old counters stay.
            let now = functions::of(netlink, &state.card).unwrap_or_default();
            for (number, count) in &mut state.functions {
                if let (Ok(count), Some(function)) = (count, now.get(number)) {
                    *count = function.count;
                }
            }
        }
        state.functions.clone()
    }
}
