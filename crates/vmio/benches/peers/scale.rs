//! How fast the bed is. Rates, buckets and times in the other files are of an uplink of 200 Mbit/s; on a machine that
//! carries less all become smaller or longer together.

use std::time::Duration;

/// By its uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    uplink_bps: u64,
}

const USUAL_MBIT: u64 = 200;
/// Times are no more than so many times as long: a round of a limiter would take ten minutes at 4 Mbit/s.
const LONGEST: f64 = 10.0;
/// No bucket holds less, in bytes: two full frames.
const LEAST: u64 = 2 * 1514;

impl Scale {
    /// An uplink of 200 Mbit/s.
    pub const USUAL: Scale = Scale { uplink_bps: USUAL_MBIT * 1_000_000 };
    /// 8 Gbit/s: where no limit is to be met.
    pub const FAR: Scale = Scale { uplink_bps: 8_000_000_000 };

    /// With an uplink of so many bit/s; an error is what it may be.
    pub fn of(uplink_bps: u64) -> Result<Scale, String> {
        if (1_000_000..=10_000_000_000).contains(&uplink_bps) {
            Ok(Scale { uplink_bps })
        } else {
            Err("the capacity is from 1Mbit to 10Gbit".to_owned())
        }
    }

    /// What limiters that know of an uplink are told that it has.
    pub fn uplink_bps(self) -> u64 {
        self.uplink_bps
    }

    /// What the wire carries: a little more, as whoever wants the queue on the host arranges it.
    pub fn wire_bps(self) -> u64 {
        self.bps(204)
    }

    /// A rate in bit/s that is so many Mbit/s of 200.
    pub fn bps(self, mbit: u64) -> u64 {
        mbit * self.uplink_bps / USUAL_MBIT
    }

    /// How many times as long all times are.
    pub fn times_longer(self) -> f64 {
        (1.0 / self.rate()).clamp(1.0, LONGEST)
    }

    /// So long.
    pub fn long(self, time: Duration) -> Duration {
        time.mul_f64(self.times_longer())
    }

    /// A bucket or a buffer in bytes, which holds as much of a time as it does at 200 Mbit/s.
    pub fn bytes(self, bytes: u64) -> u64 {
        ((bytes as f64 * self.rate() * self.times_longer()).round() as u64).max(LEAST)
    }

    fn rate(self) -> f64 {
        self.uplink_bps as f64 / Scale::USUAL.uplink_bps as f64
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_slower_bed_has_smaller_buckets_and_longer_times() {
        use super::*;

        let (second, usual) = (Duration::from_secs(1), Scale::USUAL);
        assert_eq!((usual.bps(150), usual.bytes(1_000_000), usual.long(second)), (150_000_000, 1_000_000, second));
        // A fiftieth of the rate, and times at most ten times as long.
        let slow = Scale::of(4_000_000).unwrap();
        assert_eq!((slow.bps(150), slow.bytes(1_000_000), slow.long(second)), (3_000_000, 200_000, 10 * second));
        assert_eq!((slow.wire_bps(), slow.bytes(1000)), (4_080_000, 3028));
        // Half of it, for twice as long: as many bytes.
        let half = Scale::of(100_000_000).unwrap();
        assert_eq!((half.bytes(1_000_000), half.long(second)), (1_000_000, 2 * second));
        assert_eq!(Scale::FAR.long(second), second);
        assert!(Scale::of(999_999).is_err());
    }
}
