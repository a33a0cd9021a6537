//! How long a packet waits at most in a member's queue, from what HTB does (net/sched/sch_htb.c):
//!
//! * A leaf sends on its own rate while it has tokens, and before all that is borrowed (`htb_dequeue` serves level 0
//!   first); a packet takes it below zero by its own size at most (`htb_charge_class`), borrowed ones do not
//!   (`cl->level >= level` there). So what is in a queue of Q bytes has its tokens after `(Q + L) / r`: r is the leaf's
//!   rate, L the largest packet.
//! * With tokens it waits for the leaves of a better or the same priority that have some as well. In any time t each of
//!   these sends at most its bucket b, one packet beyond, and its rate: `b + L + r t`. A packet of any other leaf that
//!   has begun is finished: one L.
//!
//! Together, with C for what the members share, and j for the others of a better or the same priority:
//!
//! ```text
//! wait <= (Q + L) / r + (L + sum of (b_j + L)) / (C - sum of r_j)
//! ```
//!
//! While others go first, the leaf's own tokens gather in its bucket, which has no room for more than its burst b. If
//! the second part is longer than b / r, some of them are lost at each burst of the others. It then only has tokens for
//! the time that these leave, which is (C - sum of r_j) / C of all, and that part of r stands for r above.
//!
//! That is the bound of token buckets behind a server with priorities (R. Cruz, A calculus for network delay, part I,
//! IEEE Transactions on Information Theory 37 (1), 1991, section IV), as generalised processor sharing has it with a
//! packet more (Parekh and Gallager 1993). C - sum of r_j is at least r, since the rates fit the capacity. It assumes a
//! link that is as fast as the capacity; a faster one is better. What waits in the card behind the queue, and for a
//! processor, is not in it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Compiler, burst, queue, rank};
use crate::policy::delay::shown;
use crate::policy::pool::Pool;
use crate::policy::units::show_time;
use crate::policy::{Abilities, Form};
use crate::rate::BitRate;

/// Smallest Ethernet frame as the kernel counts it, in bytes: 64 without the check sequence.
const LEAST_FRAME: u32 = 60;

/// Nanoseconds in which a rate of 1 bit/s gives a byte.
const BYTE_NS: u128 = 8_000_000_000;

/// The longest wait of a member's packets, and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Length of its queue.
    pub queue_bytes: u32,
    /// Its rate while all others send: its own, or what remains of it where its bucket is too small.
    pub own_bps: BitRate,
    /// Behind packets of its own.
    pub own: Duration,
    /// Members of a better or the same priority.
    pub ahead: usize,
    /// What these leave of the capacity.
    pub left_bps: BitRate,
    /// Behind packets of others.
    pub others: Duration,
}

impl Wait {
    /// All of it.
    pub fn longest(&self) -> Duration {
        self.own.saturating_add(self.others)
    }
}

/// The longest waits of a pool's members.
pub struct Waits<'a>(Compiler<'a>);

impl<'a> Waits<'a> {
    /// In the hierarchy that a plane gets.
    pub fn of(pool: &'a Pool, plane: &'a Abilities) -> Waits<'a> {
        Waits(Compiler::new(pool, plane))
    }

    /// A member of each class that has a target, by the class: the index of its seat. All of a class wait alike.
    pub fn targets(&self) -> BTreeMap<&'a str, usize> {
        self.0.targets()
    }

    /// Of the member of a seat, with the queue that it has.
    pub fn longest(&self, seat: usize) -> Wait {
        self.0.longest(seat)
    }

    /// The same with the shortest queue that there is.
    pub fn shortest(&self, seat: usize) -> Wait {
        self.0.wait(seat, self.0.least_queue())
    }

    /// The longest queue in which no packet waits longer than a target, as the time in which the ceiling empties it; no
    /// longer than without a target. `None` where the shortest queue is too long.
    pub fn room(&self, seat: usize, target: Duration) -> Option<Duration> {
        let Compiler { pool, plane, .. } = self.0;
        let Wait { queue_bytes: least, own_bps, others, .. } = self.shortest(seat);
        let left = target.checked_sub(others)?;
        let counted = u128::from(own_bps) * left.as_nanos() / BYTE_NS;
        let behind = counted.saturating_sub(u128::from(plane.packet_bytes));
        let bytes = behind * u128::from(LEAST_FRAME) / u128::from(pool.framing.wire_bytes(LEAST_FRAME));
        if bytes < u128::from(least) {
            return None;
        }
        let ceiling = self.0.ceiling(&self.0.members[seat], self.0.own[seat]);
        let bytes = bytes.min(u128::from(queue(None, ceiling, pool.direction, plane)));
        // Whole microseconds, as they are shown.
        let micros = bytes * BYTE_NS / u128::from(ceiling).max(1) / 1000;
        Some(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }
}

impl<'a> Compiler<'a> {
    fn targets(&self) -> BTreeMap<&'a str, usize> {
        let pool: &'a Pool = self.pool;
        let mut first = BTreeMap::new();
        for (at, seat) in pool.seats.iter().enumerate().filter(|(_, seat)| seat.delay.is_some()) {
            first.entry(seat.class.as_str()).or_insert(at);
        }
        first
    }

    /// Length of the shortest queue that a class may have.
    fn least_queue(&self) -> u32 {
        queue(Some(Duration::ZERO), BitRate::ZERO, self.pool.direction, self.plane)
    }

    fn longest(&self, seat: usize) -> Wait {
        let ceiling = self.ceiling(&self.members[seat], self.own[seat]);
        self.wait(seat, queue(self.pool.seats[seat].queue, ceiling, self.pool.direction, self.plane))
    }

    fn wait(&self, seat: usize, queue_bytes: u32) -> Wait {
        let (packet, mine) = (u128::from(self.plane.packet_bytes), rank(&self.members[seat]));
        let (mut ahead, mut bytes, mut rates) = (0, packet, BitRate::ZERO);
        for (other, (member, own)) in self.members.iter().zip(&self.own).enumerate() {
            if other == seat || rank(member) > mine {
                continue;
            }
            ahead += 1;
            bytes += u128::from(burst(self.ceiling(member, *own), self.plane)) + packet;
            rates = rates.saturating_add(*own);
        }
        let own = self.own[seat];
        let left_bps = self.shared.saturating_sub(rates).max(own);
        let others = time(bytes, left_bps);
        let bucket = burst(self.ceiling(&self.members[seat], own), self.plane);
        let own_bps = if others <= time(u128::from(bucket), own) {
            own
        } else {
            BitRate::of_sum(u128::from(own) * u128::from(left_bps) / u128::from(self.shared).max(1))
        };
        // A queue counts no framing, and its class does.
        let wire = u128::from(self.pool.framing.wire_bytes(LEAST_FRAME));
        let before = (u128::from(queue_bytes) * wire).div_ceil(u128::from(LEAST_FRAME)) + packet;
        Wait { queue_bytes, own_bps, own: time(before, own_bps), ahead, left_bps, others }
    }

    /// Targets that are not certain with these members: interfaces of patterns are admitted whatever they make of them.
    pub(super) fn delay_notes(&self) -> Vec<String> {
        let at = self.where_it_is();
        let note = |(class, seat): (&str, usize)| {
            if self.plane.form == Form::Limits {
                return Some(format!("{at}: the delay of class {class} is not certain: limits are set by the loop"));
            }
            let (target, wait) = (self.pool.seats[seat].delay?, self.longest(seat));
            (wait.longest() > target).then(|| {
                format!(
                    "{at}: {} for class {class} are not certain: beside {} of its priority and before, a packet may \
                     wait {}",
                    show_time(target),
                    wait.ahead,
                    shown(wait.longest())
                )
            })
        };
        self.targets().into_iter().filter_map(note).collect()
    }
}

/// Time in which a rate gives so many bytes, rounded up.
fn time(bytes: u128, rate: BitRate) -> Duration {
    let nanos = (bytes * BYTE_NS).div_ceil(u128::from(rate).max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Direction, Links, Policy};
    use crate::rate::MBIT as M;

    /// A pool of an uplink of 1 Gbit/s with so many interfaces of class `fast`.
    fn pool(keys: &str, interfaces: usize, framing: &str) -> Result<Pool, String> {
        let names: Vec<String> = (0..interfaces).map(|i| format!("vnet{i}")).collect();
        let text = format!(
            "[uplink.eth0]\ncapacity = \"1Gbit\"\nframing = \"{framing}\"\n[class.fast]\n{keys}\n\
             [[interface]]\nmatch = {{ name = \"vnet*\" }}\nclass = \"fast\"\n"
        );
        let read = Policy::read(&[("guard.toml", &text)], &Links::default());
        let policy = read.map_err(|error| error.to_string())?.policy;
        let all = names.iter().map(|name| (name.as_str(), &policy.entries[0]));
        Ok(Pool::of(&policy, "eth0", Direction::GuestTx, all).unwrap())
    }

    #[test]
    fn by_hand() {
        let pool = pool("min = \"400Mbit\"\nmax = \"600Mbit\"\ndelay = \"10ms\"", 1, "none").unwrap();
        let waits = Waits::of(&pool, &Abilities::HTB);
        let seat = waits.targets()["fast"];
        assert_eq!((seat, pool.seats[seat].contract.priority), (1, 2), "behind the host");
        let wait = waits.longest(seat);
        // One packet that has begun, and the host's 2 of 128 KiB in its bucket, and a packet: 256 KiB at 980 Mbit/s.
        assert_eq!((wait.ahead, wait.left_bps, wait.others), (1, 980 * M, Duration::from_nanos(2_139_952)));
        // 7.860048 ms of 400 Mbit/s are 393,002 bytes: one packet, and 4,366 us of 600 Mbit/s.
        assert_eq!((pool.seats[seat].queue, wait.queue_bytes), (Some(Duration::from_micros(4_366)), 327_450));
        assert!(wait.longest() <= Duration::from_millis(10) && wait.longest() > Duration::from_micros(9_999));
        assert_eq!(waits.shortest(seat).queue_bytes, 131_072);
    }

    #[test]
    fn tokens_without_room_are_lost() {
        let own = |min: u64| {
            let pool = pool(&format!("min = \"{min}Mbit\"\ndelay = \"10ms\""), 1, "none").unwrap();
            let wait = Waits::of(&pool, &Abilities::HTB).longest(1);
            assert!(wait.longest() <= Duration::from_millis(10), "{wait:?}");
            wait.own_bps
        };
        // 128 KiB are 2.62 ms of 400 Mbit/s and 1.75 ms of 600 Mbit/s; the host may take 2.14 ms, and 2 % of the time.
        assert_eq!((own(400), own(600)), (400 * M, 588 * M));
    }

    #[test]
    fn what_is_written_is_kept() {
        let of = |keys: &str| {
            let pool = pool(keys, 1, "none").unwrap();
            (pool.seats[1].contract.priority, pool.seats[1].queue, pool.seats[1].delay)
        };
        let ms = Duration::from_millis;
        let (priority, queue, delay) = of("min = \"400Mbit\"\npriority = 1\nqueue = \"2ms\"\njitter = \"10ms\"");
        assert_eq!((priority, queue, delay), (1, Some(ms(2)), Some(ms(10))));
        let (_, queue, delay) = of("min = \"400Mbit\"\njitter = \"1s\"\ndelay = \"2s\"");
        assert_eq!((queue, delay), (Some(ms(50)), Some(ms(1000))), "no longer than without a target");
        assert_eq!(of("min = \"400Mbit\"\nqueue = \"2ms\""), (4, Some(ms(2)), None));
    }

    #[test]
    fn framing_and_others_take_time() {
        let keys = "min = \"100Mbit\"\ndelay = \"40ms\"";
        let longest = |interfaces, framing| {
            let pool = pool(keys, interfaces, framing).unwrap();
            let waits = Waits::of(&pool, &Abilities::HTB);
            (waits.longest(1), compile_notes(&pool))
        };
        let (bare, notes) = longest(1, "none");
        assert_eq!(notes, [""; 0]);
        let (framed, _) = longest(1, "ethernet");
        assert!(framed.queue_bytes < bare.queue_bytes, "{framed:?} {bare:?}");
        let (crowded, notes) = longest(8, "none");
        assert_eq!(crowded.ahead, 8, "the host and its own kind");
        let note = "eth0 guest_tx: 40 ms for class fast are not certain: beside 8 of its priority and before";
        assert!(notes.len() == 1 && notes[0].starts_with(note), "{notes:?}");
    }

    fn compile_notes(pool: &Pool) -> Vec<String> {
        Compiler::new(pool, &Abilities::HTB).delay_notes()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// A target is met with the queue that was chosen for it, or refused where the shortest one is too long.
        #[test]
        fn a_chosen_queue_meets_its_target(
            min in 1u64..900, more in 0u64..2000, priority in 1u8..=8, target in 1u64..500, framed in any::<bool>()
        ) {
            let max = min + more;
            let keys = format!("min = \"{min}Mbit\"\nmax = \"{max}Mbit\"\npriority = {priority}\n");
            let framing = if framed { "ethernet" } else { "none" };
            let written = |key: &str| pool(&format!("{keys}{key}"), 1, framing);
            match written(&format!("delay = \"{target}ms\"")) {
                Ok(pool) => {
                    let wait = Waits::of(&pool, &Abilities::HTB).longest(1);
                    prop_assert!(wait.longest() <= Duration::from_millis(target), "{:?}", wait);
                    prop_assert!(wait.queue_bytes >= 131_072);
                }
                Err(why) => {
                    prop_assert!(why.contains("class.fast.delay") && why.contains("a packet may wait"), "{}", why);
                    let without = written("").unwrap();
                    let wait = Waits::of(&without, &Abilities::HTB).shortest(1);
                    // Up to some bytes that rounding takes.
                    let longest = wait.longest() + Duration::from_micros(20);
                    prop_assert!(longest > Duration::from_millis(target), "{:?}", wait);
                }
            }
        }
    }

    #[test]
    fn who_comes_later_is_not_waited_for() {
        let keys = |priority: u8| format!("min = \"100Mbit\"\npriority = {priority}\ndelay = \"1s\"");
        let wait = |priority| {
            let pool = pool(&keys(priority), 3, "none").unwrap();
            Waits::of(&pool, &Abilities::HTB).shortest(1)
        };
        let waits: Vec<(usize, Duration)> = (1..=8).map(|p| (wait(p).ahead, wait(p).others)).collect();
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!(waits.iter().map(|(ahead, _)| *ahead).collect::<Vec<_>>(), [3, 3, 3, 3, 3, 3, 3, 4]);
    }
}
