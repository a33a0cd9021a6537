//! What generators and receivers report of a cell, as totals and rates over time, in bits as the link counts them.

use serde_json::Value;

use crate::figure::scalar;
use crate::rate::BitRate;
use crate::result::{Sample as Taken, WorkloadResult};
use crate::simulate::{MILLISECOND, Outcome, SECOND, Sample, Scenario, Totals};

/// Most points of a measured series.
const POINTS: u64 = 120;
/// Shortest time of a point.
const SHORTEST: u64 = 100 * MILLISECOND;
/// Who sends, in raw reports: the actor, and a second one that sends to the same receiver.
const SENDERS: [&str; 2] = ["sender", "co-sender"];
/// Bytes of a full frame, and of TCP's payload in it: headers of Ethernet, IPv4 and TCP with timestamps.
const FRAME: (f64, f64) = (1514.0, 1448.0);

/// A sender's reports.
pub(super) struct Reports {
    pub totals: Totals,
    pub late_ratio: f64,
    pub packet_bytes: u32,
    /// Received, in bit/s, from the start.
    pub series: Vec<f64>,
}

/// Those of all senders of a sample, in the order of the actors; second senders behind the actor's own.
pub(super) fn of_sample(sample: &Taken, duration: u64) -> Option<Vec<Reports>> {
    let all: Option<Vec<Vec<Reports>>> =
        std::iter::once(&sample.result).chain(&sample.beside).map(|result| of_result(result, duration)).collect();
    Some(all?.into_iter().flatten().collect())
}

fn of_result(result: &WorkloadResult, duration: u64) -> Option<Vec<Reports>> {
    if result.raw["intervals"].is_array() {
        return Some(vec![of_stream(result, duration)?]);
    }
    let senders = SENDERS.iter().map(|role| &result.raw[*role]).filter(|sent| sent.is_object());
    let all: Vec<Reports> = senders.map(|sent| of_datagrams(result, sent, duration)).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}

/// Of vmio-udp.
fn of_datagrams(result: &WorkloadResult, sent: &Value, duration: u64) -> Option<Reports> {
    let receiver = &result.raw["receiver"];
    // Of a sender that was starved nothing may have come.
    let nothing = Value::Null;
    let mine = receiver["senders"].as_array()?.iter().find(|one| one["sender"] == sent["sender"]).unwrap_or(&nothing);
    let whole = |of: &Value, key: &str| of[key].as_u64();
    let bytes = whole(sent, "bytes")?;
    let figure = |name: &str| scalar(&result.figures, name);
    // Counted bits for each bit of payload: includes headers where the workload counts frames.
    let counted = figure("bandwidth")? * result.seconds / (figure("moved")? * 8.0);
    let packet_bytes = (bytes as f64 * counted).round();
    let bits = |packets: u64| (packets as f64 * packet_bytes * 8.0) as u64;
    let (scheduled, went) = (whole(sent, "scheduled")?, whole(sent, "sent")?);
    let came = whole(mine, "received").unwrap_or(0);
    let window = receiver["window_seconds"].as_f64().filter(|s| *s > 0.0)?;
    let mut series = Series::new(duration);
    let windows = mine["bytes_by_window"].as_array().into_iter().flatten().filter_map(Value::as_u64);
    for (i, bytes) in windows.enumerate() {
        series.add((i as f64 * window, (i + 1) as f64 * window), bytes as f64 * counted * 8.0);
    }
    Some(Reports {
        totals: Totals {
            scheduled_bits: bits(scheduled),
            never_sent_bits: bits(scheduled.saturating_sub(went)),
            dropped_bits: bits(went.saturating_sub(came)),
            received_bits: bits(came),
            ..Totals::default()
        },
        late_ratio: figure("late")?,
        packet_bytes: packet_bytes as u32,
        series: series.rates,
    })
}

/// Of iperf3: a TCP stream offers what it sends, and loses nothing. Its intervals are the sender's.
fn of_stream(result: &WorkloadResult, duration: u64) -> Option<Reports> {
    let counted = 8.0 * FRAME.0 / FRAME.1;
    let bits = (scalar(&result.figures, "moved")? * counted) as u64;
    let mut series = Series::new(duration);
    for interval in result.raw["intervals"].as_array()? {
        let of = |key: &str| interval["sum"][key].as_f64();
        series.add((of("start")?, of("end")?), of("bytes")? * counted);
    }
    Some(Reports {
        totals: Totals { scheduled_bits: bits, received_bits: bits, ..Totals::default() },
        late_ratio: 0.0,
        packet_bytes: FRAME.0 as u32,
        series: series.rates,
    })
}

/// Rates by point.
struct Series {
    step: f64,
    rates: Vec<f64>,
}

impl Series {
    fn new(duration: u64) -> Series {
        let step = step(duration);
        Series { step: step as f64 / SECOND as f64, rates: vec![0.0; duration.div_ceil(step) as usize] }
    }

    /// Bits that came between two seconds, which may overlap several points.
    fn add(&mut self, (from, to): (f64, f64), bits: f64) {
        let (from, to) = (from / self.step, to / self.step);
        if !(from >= 0.0 && to > from) {
            return;
        }
        for point in from as usize..=(to as usize).min(self.rates.len()) {
            let part = (to.min(point as f64 + 1.0) - from.max(point as f64)) / (to - from);
            if let Some(rate) = self.rates.get_mut(point) {
                *rate += part.max(0.0) * bits / self.step;
            }
        }
    }
}

/// Duration of a point, in picoseconds.
fn step(duration: u64) -> u64 {
    (duration / POINTS).max(SHORTEST)
}

/// The mean of several rounds.
pub(super) fn outcome(rounds: &[Vec<Reports>], scenario: &Scenario) -> Outcome {
    let count = rounds.len().max(1) as u64;
    let of =
        |i: usize, part: fn(&Totals) -> u64| rounds.iter().map(|members| part(&members[i].totals)).sum::<u64>() / count;
    let totals = |i: usize| Totals {
        scheduled_bits: of(i, |t| t.scheduled_bits),
        never_sent_bits: of(i, |t| t.never_sent_bits),
        dropped_bits: of(i, |t| t.dropped_bits),
        received_bits: of(i, |t| t.received_bits),
        ..Totals::default()
    };
    let places = 0..scenario.vifs.len();
    let points = rounds.iter().flatten().map(|member| member.series.len()).min().unwrap_or(0);
    let rate = |i: usize, point: usize| {
        BitRate::new((rounds.iter().map(|members| members[i].series[point]).sum::<f64>() / count as f64) as u64)
    };
    let step = step(scenario.duration);
    let sample = |point: usize| Sample {
        at: (point as u64 + 1) * step,
        received: places.clone().map(|i| rate(i, point)).collect(),
        scheduled: scenario.vifs.iter().map(|vif| vif.source.offers(point as u64 * step + step / 2)).collect(),
        caps: Vec::new(),
    };
    Outcome {
        totals: places.clone().map(totals).collect(),
        series: (0..points).map(sample).collect(),
        duration: scenario.duration,
        packets: true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::figure::Reading;
    use crate::rate::MBIT as M;

    /// 2 s of 1,000 packets of 1,250 bytes, which count 250 bytes more for headers; half of them arrived.
    fn result() -> WorkloadResult {
        let windows: Vec<u64> = vec![6_250; 200];
        let raw = json!({
            "sender": { "sender": "a", "bytes": 1250, "scheduled": 2000, "sent": 1800 },
            "receiver": { "window_seconds": 0.01, "senders": [
                { "sender": "b", "bytes": 7, "received": 1, "bytes_by_window": [7] },
                { "sender": "a", "bytes": 1_250_000, "received": 1000, "bytes_by_window": windows } ] },
        });
        let figures = vec![
            Reading::scalar("bandwidth", 1_250_000.0 * 8.0 * 1.2 / 2.0),
            Reading::scalar("moved", 1_250_000.0),
            Reading::scalar("late", 0.004),
        ];
        WorkloadResult { seconds: 2.0, figures, raw, command: String::new() }
    }

    fn paper() -> Scenario {
        Scenario::from_toml("amamou2012.toml", include_str!("../../../../../papers/amamou2012.toml")).unwrap()
    }

    fn one(result: &WorkloadResult, duration: u64) -> Reports {
        let mut all = of_result(result, duration).unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn reports_become_totals_and_a_series() {
        let member = one(&result(), 2 * SECOND);
        assert_eq!((member.packet_bytes, member.late_ratio), (1500, 0.004));
        let bits = 1500 * 8;
        let Totals { scheduled_bits, never_sent_bits, dropped_bits, received_bits, .. } = member.totals;
        assert_eq!((scheduled_bits, never_sent_bits), (2000 * bits, 200 * bits));
        assert_eq!((dropped_bits, received_bits), (800 * bits, 1000 * bits));
        assert_eq!(member.series.len(), 20);
        assert!(member.series.iter().all(|rate| (rate - 6e6).abs() < 1.0), "{:?}", member.series);
        let scenario = paper().scaled(10 * M, 2 * SECOND);
        let mut both: Vec<Vec<Reports>> = Vec::new();
        for _ in 0..2 {
            both.push((0..3).map(|_| one(&result(), 2 * SECOND)).collect());
        }
        let outcome = outcome(&both, &scenario);
        assert_eq!((outcome.totals.len(), outcome.series.len()), (3, 20));
        assert!((outcome.totals[1].loss_ratio() - 0.5).abs() < 1e-9);
        assert_eq!(outcome.series[0].scheduled, [8 * M; 3]);
        assert_eq!(outcome.series[19].at, 2 * SECOND);
        let nothing = WorkloadResult { raw: json!({}), ..result() };
        assert!(of_result(&nothing, SECOND).is_none());
    }

    /// The second sender's own part is told apart, also where nothing of it came.
    #[test]
    fn a_second_sender_is_a_member_of_its_own() {
        let mut both = result();
        both.raw["co-sender"] = json!({ "sender": "b", "bytes": 1250, "scheduled": 2000, "sent": 2000 });
        let [own, other]: [Reports; 2] = of_result(&both, 2 * SECOND).unwrap().try_into().ok().unwrap();
        assert_eq!(own.totals, one(&result(), 2 * SECOND).totals);
        assert_eq!((other.totals.received_bits, other.totals.dropped_bits), (1500 * 8, 1999 * 1500 * 8));
        both.raw["co-sender"]["sender"] = json!("starved");
        assert_eq!(of_result(&both, 2 * SECOND).unwrap()[1].totals.received_bits, 0);
    }

    /// 2 s of 181 Mbit/s of payload, as iperf3 tells it.
    #[test]
    fn a_stream_is_counted_in_frames() {
        let interval = |n: u32| json!({ "sum": { "start": n, "end": n + 1, "bytes": 22_625_000 } });
        let raw = json!({ "intervals": [interval(0), interval(1)] });
        let figures = vec![Reading::scalar("moved", 45_250_000.0)];
        let stream = one(&WorkloadResult { seconds: 2.0, figures, raw, command: String::new() }, 2 * SECOND);
        assert_eq!(stream.totals.scheduled_bits, stream.totals.received_bits);
        assert!((stream.totals.received_bits as f64 / 2e6 - 189.25).abs() < 0.01);
        assert!(stream.series.iter().all(|rate| (rate / 1e6 - 189.25).abs() < 0.01), "{:?}", stream.series);
    }
}
