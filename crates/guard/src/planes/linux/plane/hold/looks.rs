//! What looks at taps have shown, and when the next one is due.

use std::time::{Duration, Instant};

/// Period of looks.
const LOOK: Duration = Duration::from_secs(1);
/// Least time between looks, as a multiple of what one took.
const REST: u32 = 50;
/// The same after so many looks in a row that found all as it was, up to this time.
const STEADY_REST: u32 = 1000;
const STEADY: u32 = 16;
const LONGEST: Duration = Duration::from_secs(180);
/// Most time until the next look where a tap could not be limited.
const TRIED_AGAIN: Duration = Duration::from_secs(5);

/// Of the last eight looks at a tap: at so many its process had set the buffer back since the one before. A driver that
/// switches its queues on does so once or twice.
const AGAIN: u32 = 3;

/// What the last looks at a tap have shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Looks {
    /// Whether the buffer had been set back, the last look in the lowest bit.
    set_back: u8,
    /// Whether the tap is told as one that is not held.
    pub(super) told: bool,
}

impl Looks {
    /// With one more look. What is told stays until all of the last eight looks are clean.
    pub(super) fn and(self, set_back: bool) -> Looks {
        let set_back = self.set_back << 1 | u8::from(set_back);
        Looks { set_back, told: set_back.count_ones() >= AGAIN || (self.told && set_back != 0) }
    }

    /// Whether the last look found it set back.
    pub(super) fn is_set_back(self) -> bool {
        self.set_back & 1 == 1
    }
}

/// When all taps are looked at.
#[derive(Debug)]
pub(super) struct Pace {
    last: Instant,
    rest: Duration,
    /// The rest where something was found.
    usual: Duration,
    /// Looks in a row that found all as it was.
    same: u32,
}

impl Pace {
    /// The first look is due at once.
    pub(super) fn new(now: Instant) -> Pace {
        Pace { last: now, rest: Duration::ZERO, usual: Duration::ZERO, same: 0 }
    }

    /// Time until the next look.
    pub(super) fn rests(&self, now: Instant) -> Duration {
        self.rest.saturating_sub(now.saturating_duration_since(self.last))
    }

    /// A look found this: a tap that could not be limited, or one that was not as before.
    pub(super) fn looked(&mut self, began: Instant, ended: Instant, failed: bool, changed: bool) {
        self.same = if failed || changed { 0 } else { self.same.saturating_add(1) };
        let took = ended.saturating_duration_since(began);
        self.usual = LOOK.max(took.saturating_mul(REST));
        if failed {
            self.usual = self.usual.min(TRIED_AGAIN);
        }
        let seldom = took.saturating_mul(STEADY_REST).min(LONGEST);
        self.rest = if self.same >= STEADY { self.usual.max(seldom) } else { self.usual };
        self.last = ended;
    }

    /// Something may be wrong.
    pub(super) fn doubt(&mut self) {
        (self.same, self.rest) = (0, self.usual);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_stays_until_eight_looks_are_clean() {
        let told = |looks: &mut Looks, set_back: bool| {
            *looks = looks.and(set_back);
            looks.told
        };
        let mut looks = Looks::default();
        // Drivers that switch their queues on.
        assert!(![true, true].into_iter().chain([false; 8]).any(|set_back| told(&mut looks, set_back)));
        assert!([true; 3].into_iter().filter(|set_back| told(&mut looks, *set_back)).count() == 1);
        // Set back at every fourth look.
        assert!((1..=40).all(|look| told(&mut looks, look % 4 == 0)));
        assert!((0..7).all(|_| told(&mut looks, false)));
        assert!(!told(&mut looks, false) && !told(&mut looks, true));
    }

    /// Looks of so many milliseconds -> seconds until the next one.
    #[test]
    fn taps_that_stay_as_they_are_are_looked_at_seldom() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        assert!(pace.rests(began).is_zero());
        let look = |pace: &mut Pace, took: u64, failed: bool, changed: bool| {
            let ended = began + Duration::from_millis(took);
            pace.looked(began, ended, failed, changed);
            pace.rests(ended).as_secs()
        };
        assert_eq!(look(&mut pace, 1, false, true), 1);
        assert_eq!(look(&mut pace, 64, false, true), 3);
        let steady: Vec<u64> = (0..STEADY).map(|_| look(&mut pace, 64, false, false)).collect();
        assert_eq!((steady[0], steady[14], steady[15]), (3, 3, 64));
        pace.doubt();
        assert_eq!(pace.rests(began + Duration::from_millis(64)).as_secs(), 3, "not more often than ever");
        assert_eq!(look(&mut pace, 64, true, false), 3);
        assert_eq!(look(&mut pace, 1000, true, false), 5);
        for _ in 0..STEADY {
            look(&mut pace, 1000, false, false);
        }
        assert_eq!(look(&mut pace, 1000, false, false), 180);
        assert_eq!(look(&mut pace, 10_000, false, false), 500, "2 % of a processor at most");
    }
}
