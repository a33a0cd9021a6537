//! Outcome of a simulation: totals and rates over time.

use super::Scenario;
use crate::picos::{MILLISECOND, SECOND, bits_of, rate_of};
use crate::rate::BitRate;

/// Length of the windows in which minima are judged, in picoseconds.
const WINDOW: u64 = 100 * MILLISECOND;
/// Most points of a series.
const POINTS: u64 = 600;
/// Number of members with a series.
const SERIES: usize = 16;

/// Totals of a member's traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Bits that the generator scheduled (for a TCP-like source: sent).
    pub scheduled_bits: u64,
    /// Never sent, since the guest's ring was full. Costs the host nothing.
    pub never_sent_bits: u64,
    /// Dropped on the host, after the copy.
    pub dropped_bits: u64,
    /// Received at the far end of the uplink.
    pub received_bits: u64,
    /// Windows of 100 ms in which it had its minimum, or all that it offered.
    pub windows_met: u32,
    /// Number of windows.
    pub windows: u32,
}

impl Totals {
    /// 1 - received / scheduled; bits in flight at the end count as lost. 0 where nothing was scheduled.
    pub fn loss_ratio(&self) -> f64 {
        if self.scheduled_bits == 0 {
            return 0.0;
        }
        1.0 - self.received_bits as f64 / self.scheduled_bits as f64
    }

    /// Share of windows in which the minimum was met.
    pub fn met_ratio(&self) -> f64 {
        if self.windows == 0 { 1.0 } else { f64::from(self.windows_met) / f64::from(self.windows) }
    }
}

/// A point of all members' series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// End of the point, in picoseconds from the start.
    pub at: u64,
    /// Received, by member.
    pub received: Vec<BitRate>,
    /// Scheduled, by member.
    pub scheduled: Vec<BitRate>,
    /// Limits at the end, by member; [`BitRate::MAX`] for none.
    pub caps: Vec<BitRate>,
}

/// Outcome of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// By member.
    pub totals: Vec<Totals>,
    /// Rates over time, of the first 16 members.
    pub series: Vec<Sample>,
    /// Simulated time, in picoseconds.
    pub duration: u64,
    /// Whether it was simulated packet by packet.
    pub packets: bool,
}

impl Outcome {
    /// How long offers must be unchanged at a point's end for it to count: a second, and where points are long so much
    /// that the point begins a quarter of a second after the change.
    pub fn settling(&self) -> u64 {
        let step = self.series.first().map_or(0, |point| point.at);
        SECOND.max(step.saturating_add(SECOND / 4))
    }
}

/// Collects an outcome during a simulation.
pub struct Recorder {
    pub totals: Vec<Totals>,
    minima: Vec<BitRate>,
    packet_bits: u64,
    window: (u64, Vec<Totals>),
    sample: (u64, Vec<Totals>),
    step: u64,
    series: Vec<Sample>,
}

impl Recorder {
    pub fn new(scenario: &Scenario) -> Recorder {
        let totals = vec![Totals::default(); scenario.vifs.len()];
        let kept = totals[..totals.len().min(SERIES)].to_vec();
        Recorder {
            minima: scenario.vifs.iter().map(|v| v.contract.min).collect(),
            packet_bits: u64::from(scenario.packet_bytes) * 8,
            window: (0, totals.clone()),
            sample: (0, kept),
            step: (scenario.duration / POINTS).max(1),
            series: Vec::new(),
            totals,
        }
    }

    /// Time of the next call of [`Self::look`].
    pub fn next(&self) -> u64 {
        (self.window.0 + WINDOW).min(self.sample.0 + self.step)
    }

    /// Records what is due at `now`, which is [`Self::next`] or the next step after it.
    pub fn look(&mut self, now: u64, caps: &[BitRate]) {
        if now >= self.window.0 + WINDOW {
            let time = now - self.window.0;
            for (i, before) in self.window.1.iter_mut().enumerate() {
                let all = &mut self.totals[i];
                let asked = all.scheduled_bits - before.scheduled_bits;
                let owed = bits_of(self.minima[i], time).min(asked);
                // Packets in flight, and a bucket's rounding, are no violation.
                let got = all.received_bits - before.received_bits + 8 * self.packet_bits + owed / 100;
                all.windows += 1;
                all.windows_met += u32::from(got >= owed);
                *before = *all;
            }
            self.window.0 = now;
        }
        if now >= self.sample.0 + self.step {
            let time = now - self.sample.0;
            let rates = |of: fn(&Totals) -> u64| -> Vec<BitRate> {
                self.sample.1.iter().zip(&self.totals).map(|(b, t)| rate_of(of(t) - of(b), time)).collect()
            };
            let n = self.sample.1.len();
            self.series.push(Sample {
                at: now,
                received: rates(|t| t.received_bits),
                scheduled: rates(|t| t.scheduled_bits),
                caps: caps[..n].to_vec(),
            });
            self.sample = (now, self.totals[..n].to_vec());
        }
    }

    pub fn finish(self, duration: u64, packets: bool) -> Outcome {
        Outcome { totals: self.totals, series: self.series, duration, packets }
    }
}
