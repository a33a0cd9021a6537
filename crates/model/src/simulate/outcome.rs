//! What came of a run: totals and rates over time.

use super::Scenario;
use crate::picos::{MILLISECOND, bits_of, rate_of};
use crate::rate::BitRate;

/// Minima are judged over windows of so many picoseconds.
const WINDOW: u64 = 100 * MILLISECOND;
/// Points of a series.
const POINTS: u64 = 600;
/// Series are kept of so many members, the first ones.
const SERIES: usize = 16;

/// What happened to one member's traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Bits that the generator scheduled (a TCP-like source: what it sent).
    pub scheduled_bits: u64,
    /// Never sent: the guest's ring was full. Costs the host nothing.
    pub never_sent_bits: u64,
    /// Dropped on the host, after the copy.
    pub dropped_bits: u64,
    /// Received at the far end of the uplink.
    pub received_bits: u64,
    /// Windows of 100 ms in which it got its minimum, or all that it asked for.
    pub windows_met: u32,
    /// Windows in all.
    pub windows: u32,
}

impl Totals {
    /// 1 - received / scheduled; what is still under way at the end counts as lost. 0 where
    /// nothing was scheduled.
    pub fn loss_ratio(&self) -> f64 {
        if self.scheduled_bits == 0 {
            return 0.0;
        }
        1.0 - self.received_bits as f64 / self.scheduled_bits as f64
    }

    /// Share of the time in which the minimum was met.
    pub fn met_ratio(&self) -> f64 {
        if self.windows == 0 { 1.0 } else { f64::from(self.windows_met) / f64::from(self.windows) }
    }
}

/// One point of the series of all members that have one.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// End of what it covers, in picoseconds from the start.
    pub at: u64,
    /// Received, by member.
    pub received: Vec<BitRate>,
    /// Scheduled, by member.
    pub scheduled: Vec<BitRate>,
    /// Limits at the end, by member; [`BitRate::MAX`] for none.
    pub caps: Vec<BitRate>,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// By member.
    pub totals: Vec<Totals>,
    /// Rates over time, of the first 16 members.
    pub series: Vec<Sample>,
    /// Simulated time, in picoseconds.
    pub duration: u64,
    /// Whether it went packet by packet.
    pub packets: bool,
}

/// Collects an outcome while a run goes on.
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

    /// When [`Self::look`] has something to do next.
    pub fn next(&self) -> u64 {
        (self.window.0 + WINDOW).min(self.sample.0 + self.step)
    }

    /// Notes what is due at `now`; call it at [`Self::next`] or as near after as there is a step.
    pub fn look(&mut self, now: u64, caps: &[BitRate]) {
        if now >= self.window.0 + WINDOW {
            let time = now - self.window.0;
            for (i, before) in self.window.1.iter_mut().enumerate() {
                let all = &mut self.totals[i];
                let asked = all.scheduled_bits - before.scheduled_bits;
                let owed = bits_of(self.minima[i], time).min(asked);
                // Packets under way, and a bucket's rounding, are no breach.
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
