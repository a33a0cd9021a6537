//! The hypervisor's part of a running guest's requests: from where they enter its block layer, by its own counters, less
//! what the host takes.

use schemars::JsonSchema;
use serde::Serialize;

use super::cells::{CLOCKS, SAME, Why};
use crate::top::Latency;
use crate::top::calls::{CallLoad, Calls};
use crate::top::load::Requests;

/// What a hypervisor has counted of its guest's disks since it started.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HypervisorCounts {
    /// Reads.
    pub reads: Requests,
    /// Writes, flushes and discards.
    pub writes: Requests,
}

impl HypervisorCounts {
    /// What came since then; `None` where the counters have started anew.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let side = |now: &Requests, was: &Requests| {
            Some(Requests {
                requests: now.requests.checked_sub(was.requests)?,
                bytes: now.bytes.checked_sub(was.bytes)?,
                request_seconds: Some(now.request_seconds - was.request_seconds).filter(|seconds| *seconds >= 0.0)?,
            })
        };
        Some(Self { reads: side(&self.reads, &before.reads)?, writes: side(&self.writes, &before.writes)? })
    }
}

/// The hypervisor's part of the requests of one direction. Its counters are sums, so parts are means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct HypervisorPart {
    /// Requests of the guest a second.
    pub per_second: f64,
    /// Mean size of one.
    pub request_bytes: f64,
    /// Mean time from its block layer on: its own, and all of the host.
    pub whole_seconds: f64,
    /// Median of that; `None` without histograms.
    pub p50_seconds: Option<f64>,
    /// 99th percentile of it; `None` without histograms, or with fewer than 100 requests.
    pub p99_seconds: Option<f64>,
    /// Its own part of that; `None` where it is not told from the host's.
    pub own_seconds: Option<f64>,
    /// Why it is not.
    pub untimed: Option<Why>,
}

/// The hypervisor's part of a running guest's requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct LiveHypervisor {
    /// Reads; `None` if there were none.
    pub reads: Option<HypervisorPart>,
    /// Writes, flushes and discards.
    pub writes: Option<HypervisorPart>,
}

impl LiveHypervisor {
    /// With the histograms of reads and of writes.
    #[must_use]
    pub fn with(mut self, [reads, writes]: &[Latency; 2]) -> Self {
        for (part, latency) in [(&mut self.reads, reads), (&mut self.writes, writes)] {
            if let Some(part) = part {
                (part.p50_seconds, part.p99_seconds) = (latency.quantile_seconds(0.5), latency.p99_seconds());
            }
        }
        self
    }

    /// Its own share of the time in both directions; `None` where that is not known of both.
    pub fn own_ratio(&self) -> Option<f64> {
        let parts = || self.reads.iter().chain(&self.writes);
        let whole: f64 = parts().map(|part| part.per_second * part.whole_seconds).sum();
        let own: f64 = parts().map(|part| Some(part.per_second * part.own_seconds?)).sum::<Option<f64>>()?;
        (whole > 0.0).then(|| own / whole)
    }
}

/// What the hypervisor counted in so many seconds, with what it asked of the host in so many (`None` where that is not
/// seen): the two began and ended apart. `None` if nothing was counted.
pub fn hypervisor(counts: &HypervisorCounts, seconds: f64, asked: Option<(&CallLoad, f64)>) -> Option<LiveHypervisor> {
    let part = |counted: &Requests, calls: Option<(&Calls, f64)>| {
        let number = Some(counted.requests).filter(|n| *n > 0 && seconds > 0.0)? as f64;
        let only_handed_over = asked.is_some_and(|(load, _)| load.submissions.number() > 0);
        let own = if only_handed_over { Err(Why::EndNotSeen) } else { own(counted, seconds, calls) };
        Some(HypervisorPart {
            per_second: number / seconds,
            request_bytes: counted.bytes as f64 / number,
            whole_seconds: counted.request_seconds / number,
            p50_seconds: None,
            p99_seconds: None,
            own_seconds: own.ok(),
            untimed: own.err(),
        })
    };
    let changes = asked.map(|(load, seconds)| (load.changes(), seconds));
    let reads = part(&counts.reads, asked.map(|(load, seconds)| (&load.reads, seconds)));
    let writes = part(&counts.writes, changes.as_ref().map(|(calls, seconds)| (calls, *seconds)));
    (reads.is_some() || writes.is_some()).then_some(LiveHypervisor { reads, writes })
}

/// Seconds of one request that the calls do not take. It waits for each of them, unless they are split, or the calls are
/// others' or go on behind its back. Means and rates are compared, since the two were counted in windows of their own.
fn own(counted: &Requests, seconds: f64, asked: Option<(&Calls, f64)>) -> Result<f64, Why> {
    let (calls, watched) = asked.filter(|(_, watched)| *watched > 0.0).ok_or(Why::NotSeen)?;
    let (requests, made) = (counted.requests as f64, calls.number() as f64);
    // Calls for one request.
    let each = (made / watched) / (requests / seconds);
    if each > SAME {
        return Err(Why::MoreRequests);
    }
    // It also asks in a way that is not seen, or one call serves several requests.
    if each * SAME < 1.0 {
        return Err(Why::NotSeen);
    }
    let whole = counted.request_seconds / requests;
    let below = calls.seconds / made * each.min(1.0);
    if below > whole * (1.0 + CLOCKS) { Err(Why::NotWaitedFor) } else { Ok(whole - below) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn counted(requests: u64, us: u64) -> Requests {
        Requests { requests, bytes: requests * 4096, request_seconds: (requests * us) as f64 * 1e-6 }
    }

    fn calls(number: u64, us: u64) -> Calls {
        let mut calls = Calls { done: number * 4096, seconds: (number * us) as f64 * 1e-6, ..Calls::default() };
        (0..number).for_each(|_| calls.latency.add(us));
        calls
    }

    fn reads(requests: Requests, asked: Option<CallLoad>) -> HypervisorPart {
        let counts = HypervisorCounts { reads: requests, ..HypervisorCounts::default() };
        hypervisor(&counts, 2.0, asked.as_ref().map(|asked| (asked, 2.0))).unwrap().reads.unwrap()
    }

    #[test]
    fn its_own_part_is_what_the_calls_do_not_take() {
        let asked = CallLoad { reads: calls(200, 100), ..CallLoad::default() };
        let part = reads(counted(200, 150), Some(asked.clone()));
        assert_eq!((part.per_second, part.request_bytes, part.untimed), (100.0, 4096.0, None));
        assert!((part.whole_seconds - 150e-6).abs() < 1e-12 && (part.own_seconds.unwrap() - 50e-6).abs() < 1e-12);
        let counts = HypervisorCounts { reads: counted(200, 150), ..HypervisorCounts::default() };
        let both = hypervisor(&counts, 2.0, Some((&asked, 2.0))).unwrap();
        assert!((both.own_ratio().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{both:?}");
        let mut latency = Latency::default();
        (0..200).for_each(|_| latency.add(150));
        let told = both.with(&[latency, Latency::default()]).reads.unwrap();
        assert!((told.p99_seconds.unwrap() / 150e-6 - 1.0).abs() < 0.25, "{told:?}");
        // Its counters began a second before the calls: the same requests a second.
        let counts = HypervisorCounts { reads: counted(300, 150), ..HypervisorCounts::default() };
        let apart = hypervisor(&counts, 3.0, Some((&asked, 2.0))).unwrap().reads.unwrap();
        assert!(apart.per_second == 100.0 && (apart.own_seconds.unwrap() - 50e-6).abs() < 1e-12, "{apart:?}");
    }

    #[test]
    fn what_is_not_its_own_is_not_told_as_such() {
        let why = |load: CallLoad| reads(counted(200, 150), Some(load)).untimed;
        let of_reads = |reads| CallLoad { reads, ..CallLoad::default() };
        assert_eq!(reads(counted(200, 150), None).untimed, Some(Why::NotSeen));
        assert_eq!(why(CallLoad::default()), Some(Why::NotSeen), "storage in the hypervisor, or an unseen way to ask");
        assert_eq!(why(of_reads(calls(100, 50))), Some(Why::NotSeen), "half of them");
        assert_eq!(why(of_reads(calls(300, 50))), Some(Why::MoreRequests));
        assert_eq!(why(of_reads(calls(200, 160))), Some(Why::NotWaitedFor));
        let longer = reads(counted(200, 150), Some(of_reads(calls(220, 100)))).own_seconds.unwrap();
        assert!((longer - 50e-6).abs() < 1e-12, "the calls were counted a little longer: {longer}");
        assert_eq!(why(CallLoad { submissions: calls(20, 5), ..CallLoad::default() }), Some(Why::EndNotSeen));
        assert_eq!(hypervisor(&HypervisorCounts::default(), 1.0, None), None, "nothing was counted");
    }

    #[test]
    fn counters_that_start_anew_are_nothing() {
        let of = |requests| HypervisorCounts { reads: counted(requests, 10), writes: counted(5, 10) };
        assert_eq!(of(30).since(&of(10)).unwrap().reads.requests, 20);
        assert_eq!(of(10).since(&of(30)), None);
    }
}
