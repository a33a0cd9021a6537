//! What is measured, as data, and the arithmetic on it.

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::stats::median;

use super::bed::Contract;
use super::load::FRAME_BITS;

/// All that was measured.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Results {
    /// What it is, where it is a lab host (docs/lab.md).
    pub lab_host: Option<String>,
    /// The kernel's release.
    pub kernel: String,
    /// Of the machine.
    pub processors: usize,
    /// Of the guests' TCP.
    pub congestion_control: String,
    /// What limiters are told that the uplink has, in bit/s.
    pub uplink_bps: u64,
    /// What the wire carries, in bit/s.
    pub wire_bps: u64,
    /// How many times as long all times are as with an uplink of 200 Mbit/s.
    pub times_longer: f64,
    /// What each is owed.
    pub guests: Vec<Contract>,
    /// In the order of the table.
    pub limiters: Vec<Row>,
}

/// A limiter.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How it is set, and by whom.
    pub how: String,
    /// What differs from that here.
    pub note: Option<String>,
    /// Why there are no figures.
    pub not_run: Option<String>,
    /// What was measured, round by round.
    pub rounds: Vec<Round>,
}

impl Row {
    /// Nothing measured yet.
    pub fn of(name: &str, how: &str) -> Row {
        Row { name: name.to_owned(), how: how.to_owned(), note: None, not_run: None, rounds: Vec::new() }
    }

    /// The median over its rounds.
    pub fn median(&self, figure: impl Fn(&Round) -> Option<f64>) -> Option<f64> {
        median(&self.rounds.iter().filter_map(figure).collect::<Vec<f64>>())
    }

    /// What was measured repeatedly, of all rounds.
    pub fn pooled(&self, figure: impl Fn(&Round) -> &[Option<f64>]) -> Vec<Option<f64>> {
        self.rounds.iter().flat_map(|round| figure(round).to_vec()).collect()
    }
}

/// One round of a limiter.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Round {
    /// What arrived of each guest while all sent, in bit/s of frames.
    pub got_bps: Vec<f64>,
    /// The largest difference of a guest's rate from what the policy gives it, of the uplink's capacity: while all
    /// sent, and while the first was silent.
    pub share_error: f64,
    /// What the guest that fared worst got of its minimum, while all sent.
    pub of_minimum: f64,
    /// What arrived of all, of the uplink's capacity.
    pub used: f64,
    /// How long the first guest was behind its minimum after it began to send, in ms; `null`: for good.
    pub restored_ms: Vec<Option<f64>>,
    /// What one connection of the second guest brought, of its maximum's payload.
    pub tcp_of_limit: f64,
    /// Segments that it sent again.
    pub tcp_retransmits: u64,
    /// Answers to the first guest while nobody sent, in ms; `null`: none came.
    pub idle_ping_ms: Vec<Option<f64>>,
    /// Answers to the first guest while the others sent, in ms; `null`: none came.
    pub neighbours_ping_ms: Vec<Option<f64>>,
    /// Answers to a guest that sent, in ms.
    pub own_ping_ms: Vec<Option<f64>>,
    /// Processors that were busy while all sent (`/proc/stat`: user, nice, system, irq, softirq; all of the machine).
    pub busy: f64,
    /// Their time for each packet that arrived, in microseconds.
    pub busy_us_per_packet: f64,
    /// One small packet from the guest to the receiver, limits far away, in ns of the sender's time; `null` where the
    /// limiter is a stand-in.
    pub packet_ns: Option<f64>,
    /// The same in the same bed just before the limiter was set.
    pub bare_packet_ns: Option<f64>,
    /// Where what was offered went.
    pub excess: Excess,
}

/// Parts of what the guests offered while all sent.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Excess {
    /// Arrived.
    pub arrived: f64,
    /// Never sent: the sender was made to wait.
    pub sender: f64,
    /// Dropped on the host.
    pub host: f64,
    /// Dropped at the wire's port.
    pub wire: f64,
    /// What waited in queues of the host at the end, in ms of the uplink.
    pub waiting_ms: f64,
}

/// The smallest value that so many per cent do not exceed; what never came is above all.
pub fn percentile(values: &[Option<f64>], percent: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
    sorted.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(at.max(1) - 1).copied().filter(|value| value.is_finite())
}

/// Frames of lateness that are a sender's own: it sends what is due every quarter of a millisecond.
const OWN: f64 = 4.0;
/// The part of a trial in which it counts as restored: shortly before the end, nobody is behind for long.
const EARLY: f64 = 0.7;

/// The first moment from which on a guest never falls behind a rate any more, by more than [`OWN`] frames, until the
/// end. Of arrivals in seconds from the begin, in order; all in seconds.
pub fn restored(arrivals: &[f64], rate_bps: f64, end: f64) -> Option<f64> {
    // Behind just after an arrival, and just before the next one (or at the end).
    let after = |n: usize| if n == 0 { 0.0 } else { rate_bps * arrivals[n - 1] - FRAME_BITS * n as f64 };
    let before_next = |n: usize| rate_bps * arrivals.get(n).copied().unwrap_or(end).min(end) - FRAME_BITS * n as f64;
    let (mut most, mut first) = (f64::NEG_INFINITY, None);
    for n in (0..=arrivals.len()).rev() {
        most = most.max(before_next(n));
        if most > after(n) + OWN * FRAME_BITS {
            break;
        }
        first = Some(if n == 0 { 0.0 } else { arrivals[n - 1] });
    }
    first.filter(|moment| *moment <= end * EARLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Full frames at a rate, in a span of seconds.
    fn at(rate_bps: f64, from: f64, to: f64) -> Vec<f64> {
        let gap = FRAME_BITS / rate_bps;
        (1..).map(|n| from + f64::from(n) * gap).take_while(|moment| *moment < to).collect()
    }

    #[test]
    fn a_guarantee_is_restored_when_it_holds_until_the_end() {
        let rate = 100e6;
        // At once, and with more than was asked for.
        assert_eq!(restored(&at(140e6, 0.0, 0.1), rate, 0.1), Some(0.0));
        // After 10 ms of half of it.
        let late = [at(50e6, 0.0, 0.01), at(120e6, 0.01, 0.1)].concat();
        let moment = restored(&late, rate, 0.1).unwrap_or(f64::NAN);
        assert!((0.008..0.0105).contains(&moment), "{moment}");
        // Never: less of it, nothing at all, and a pause in the middle of what is left.
        assert_eq!(restored(&at(85e6, 0.0, 0.1), rate, 0.1), None);
        assert_eq!(restored(&[], rate, 0.1), None);
        let paused = [at(120e6, 0.0, 0.05), at(120e6, 0.09, 0.1)].concat();
        assert_eq!(restored(&paused, rate, 0.1), None);
    }

    #[test]
    fn what_never_came_is_above_all() {
        let some = [Some(3.0), None, Some(1.0), Some(2.0)];
        assert_eq!([25.0, 50.0, 75.0, 99.0].map(|p| percentile(&some, p)), [Some(1.0), Some(2.0), Some(3.0), None]);
        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!([vec![], vec![2.0], vec![3.0, 1.0]].map(|values| median(&values)), [None, Some(2.0), Some(2.0)]);
    }
}
