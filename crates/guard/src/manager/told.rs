//! What is new of the pools since it was told last: those that are not in force any more or are again, and guests that
//! claim addresses of others. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::core::PoolStatus;
use crate::demand::DelayChange;
use crate::desired::PoolKey;
use crate::planes::Claimed;

/// A member, and a queue that comes back each time that it is removed, are told again after this time at the earliest:
/// others must not fill the log.
const AGAIN: Duration = Duration::from_secs(60);
/// Members of which that is told at once.
const MEMBERS: usize = 10;
/// Members that are kept on record, also such as are gone.
const MOST: usize = 20_000;

/// Something new of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolChange {
    /// The pool.
    pub pool: PoolKey,
    /// What happened.
    pub what: PoolState,
}

/// What happened to a pool.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolState {
    /// It is not in force, for this reason.
    Interrupted(String),
    /// It was not in force for a moment, or not wholly: this was in its way or was changed, and was put right.
    PutRight(String),
    /// It is in force again.
    Back,
    /// A member claims addresses of others, or sends too much of ARP and neighbour discovery.
    Claimed {
        /// Its name.
        member: String,
        /// All so far.
        claimed: Claimed,
    },
    /// A target of delay or jitter of a member is missed, or met again.
    Delay(DelayChange),
}

/// What is new of targets of delay; of more members at once the status and the metrics tell.
pub(super) fn delays(changes: Vec<DelayChange>) -> impl Iterator<Item = PoolChange> {
    let change = |change: DelayChange| PoolChange { pool: change.pool.clone(), what: PoolState::Delay(change) };
    changes.into_iter().take(MEMBERS).map(change)
}

/// What was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pools: BTreeMap<PoolKey, ToldPool>,
    members: BTreeMap<(PoolKey, String), (Claimed, Instant)>,
}

/// What was told of a pool.
#[derive(Debug, Default)]
struct ToldPool {
    /// How often it was not in force.
    total: u64,
    /// Whether it is not now.
    interrupted: bool,
    /// When it was told that it was put right.
    put_right: Option<Instant>,
}

impl Told {
    /// What is new.
    pub(super) fn news(&mut self, pools: &[PoolStatus], at: Instant) -> Vec<PoolChange> {
        // They could not be read.
        if pools.is_empty() {
            return Vec::new();
        }
        self.pools.retain(|key, _| pools.iter().any(|pool| pool.key == *key));
        let news = |pool: &PoolStatus| {
            let (now, told) = (&pool.interruptions, self.pools.entry(pool.key.clone()).or_default());
            let more = std::mem::replace(&mut told.total, now.total) < now.total;
            let was_interrupted = std::mem::replace(&mut told.interrupted, now.now.is_some());
            let what = match (&now.now, &now.put_right) {
                (Some(why), _) if more => PoolState::Interrupted(why.clone()),
                (None, Some(what)) if more => {
                    if told.put_right.is_some_and(|told| at.saturating_duration_since(told) < AGAIN) {
                        return None;
                    }
                    told.put_right = Some(at);
                    PoolState::PutRight(format!("{what} ({} interruptions so far)", now.total))
                }
                (None, _) if more || was_interrupted => PoolState::Back,
                _ => return None,
            };
            Some(PoolChange { pool: pool.key.clone(), what })
        };
        let mut all: Vec<PoolChange> = pools.iter().filter_map(news).collect();
        all.extend(self.claims(pools, at));
        all
    }

    fn claims(&mut self, pools: &[PoolStatus], at: Instant) -> Vec<PoolChange> {
        if self.members.len() > MOST {
            self.members.clear();
        }
        let mut all = Vec::new();
        for pool in pools {
            for member in pool.members.iter().filter(|member| member.count.claimed != Claimed::default()) {
                let (key, now) = ((pool.key.clone(), member.name.clone()), member.count.claimed);
                let before = self.members.get(&key);
                let quiet =
                    before.is_some_and(|(was, told)| *was == now || at.saturating_duration_since(*told) < AGAIN);
                if quiet || all.len() >= MEMBERS {
                    continue;
                }
                let what = PoolState::Claimed { member: member.name.clone(), claimed: now };
                all.push(PoolChange { pool: pool.key.clone(), what });
                self.members.insert(key, (now, at));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use vmio_model::holding::Queue;
    use vmio_model::policy::Direction;
    use vmio_model::rate::BitRate;

    use super::*;
    use crate::planes::Interruptions;

    fn pool(interruptions: Interruptions, members: Vec<crate::core::MemberStatus>) -> PoolStatus {
        PoolStatus {
            key: PoolKey { uplink: "eth0".into(), direction: Direction::GuestTx },
            root_bps: BitRate::ZERO,
            queue: Some(Queue::Uplink),
            stage: None,
            arrived_bytes: None,
            capacity_bps: BitRate::ZERO,
            interruptions,
            members,
        }
    }

    #[test]
    fn each_interruption_is_told_once() {
        let (mut told, began) = (Told::default(), Instant::now());
        let mut news = |second, total, now: Option<&str>, put_right: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let interruptions =
                Interruptions { total, now: text(now), put_right: text(put_right), ..Interruptions::default() };
            let pool = pool(interruptions, Vec::new());
            told.news(&[pool], began + Duration::from_secs(second)).into_iter().map(|change| change.what).next()
        };
        let put_right = |total| Some(PoolState::PutRight(format!("tbf ({total} interruptions so far)")));
        assert_eq!(news(0, 0, None, None), None);
        assert_eq!(news(1, 1, Some("gone"), None), Some(PoolState::Interrupted("gone".into())));
        assert_eq!(news(2, 1, Some("gone"), None), None);
        assert_eq!(news(3, 1, None, None), Some(PoolState::Back));
        assert_eq!(news(4, 2, None, Some("tbf")), put_right(2));
        assert_eq!(news(5, 2, None, Some("tbf")), None);
        // It comes back each second.
        assert_eq!(news(6, 3, None, Some("tbf")), None);
        assert_eq!(news(7, 4, Some("gone"), None), Some(PoolState::Interrupted("gone".into())));
        assert_eq!(news(8, 4, None, None), Some(PoolState::Back));
        assert_eq!(news(64, 5, None, Some("tbf")), put_right(5));
    }

    #[test]
    fn claims_are_told_once_a_minute() {
        let (mut told, began) = (Told::default(), Instant::now());
        let mut news = |second: u64, packets: u64| {
            let claimed = Claimed { packets, ..Claimed::default() };
            let member = crate::core::MemberStatus {
                name: "tap1".into(),
                class: "gold".into(),
                min_effective_bps: BitRate::ZERO,
                limit_bps: None,
                count: crate::planes::Count { claimed, ..Default::default() },
                held: None,
                local: None,
                flows: Vec::new(),
                other_limit: None,
                delay: crate::core::MemberDelay::default(),
            };
            let pool = pool(Interruptions::default(), vec![member]);
            told.news(&[pool], began + Duration::from_secs(second)).len()
        };
        let seen = [(0, 0), (1, 5), (2, 9), (61, 9), (90, 9), (200, 9), (201, 10), (230, 11), (261, 11)];
        assert_eq!(seen.map(|(second, packets)| news(second, packets)), [0, 1, 0, 1, 0, 0, 1, 0, 1]);
    }
}
