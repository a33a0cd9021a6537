//! The host's part of a running guest's requests: how long the host takes for what the hypervisor asks of it, and what
//! of that is the host's own, the queue of its block layer and the device.

use schemars::JsonSchema;
use serde::Serialize;

use super::Layer;
use super::cells::{CLOCKS, FEW, SAME, Times, Why};
use crate::top::calls::{CallLoad, Calls};
use crate::top::load::{DiskSource, GuestLoad, Transfer};

/// Requests of a hypervisor to its host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "HypervisorRequests")]
pub struct Asked {
    /// Requests a second.
    pub per_second: f64,
    /// Mean size: bytes; of calls of io_submit(2), requests that one hands over.
    pub mean_size: f64,
    /// From the system call, or from the submission to io_uring, to its end.
    pub times: Times,
}

/// Where the mean time of these requests goes, in seconds. The parts add up to it; the first one is below zero, by at most
/// 2 % of the whole, where the clocks or windows of the others differ by more than it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "HostTimes")]
pub struct Split {
    /// The host's file system and page cache, with their locks.
    pub file_system_seconds: f64,
    /// The queue of the host's block layer (esxtop: QAVG).
    pub queue_seconds: f64,
    /// The device (esxtop: DAVG).
    pub device_seconds: f64,
}

impl Split {
    /// The host's part without the device (esxtop: KAVG).
    pub fn kernel_seconds(&self) -> f64 {
        self.file_system_seconds + self.queue_seconds
    }

    /// The layer that takes longest, with its seconds.
    fn longest(&self) -> (Layer, f64) {
        let parts = [
            (Layer::Device, self.device_seconds),
            (Layer::HostBlock, self.queue_seconds),
            (Layer::HostFiles, self.file_system_seconds),
        ];
        parts.into_iter().fold(parts[0], |most, part| if part.1 > most.1 { part } else { most })
    }
}

/// The host's part of the requests of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HostPart {
    /// The requests.
    pub asked: Asked,
    /// Where their time goes; `None` where that is not told apart.
    pub split: Option<Split>,
    /// Why it is not.
    pub untimed: Option<Why>,
}

/// What a hypervisor asks of its host for the disks of its guest.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "HypervisorCalls")]
pub struct LiveCalls {
    /// Reads.
    pub reads: Option<HostPart>,
    /// Writes, flushes and discards.
    pub writes: Option<HostPart>,
    /// The flushes and discards among these.
    pub flushes: Option<Asked>,
    /// Calls of io_submit(2). The requests that they hand over are not in `reads` and `writes`: their end is no system
    /// call.
    pub submissions: Option<Asked>,
}

impl LiveCalls {
    /// The directions that there are.
    fn parts(&self) -> impl Iterator<Item = &HostPart> {
        self.reads.iter().chain(&self.writes)
    }

    /// Mean time of a request of both directions without the device (esxtop: KAVG); `None` where it is not told apart.
    pub fn kernel_seconds(&self) -> Option<f64> {
        let rate: f64 = self.parts().map(|part| part.asked.per_second).sum();
        let seconds = |part: &HostPart| Some(part.split.as_ref()?.kernel_seconds() * part.asked.per_second);
        let sum: f64 = self.parts().map(seconds).sum::<Option<f64>>()?;
        (rate > 0.0).then(|| sum / rate)
    }

    /// The layer of the host that takes longest in the direction that takes most time, and its share of the time there.
    pub fn longest(&self) -> Option<(Layer, f64)> {
        let at_once = |part: &HostPart| part.asked.per_second * part.asked.times.mean_seconds;
        let most = self.parts().max_by(|a, b| at_once(a).total_cmp(&at_once(b)))?;
        let whole = most.asked.times.mean_seconds;
        let (layer, seconds) = most.split.as_ref()?.longest();
        Some((layer, if whole > 0.0 { seconds / whole } else { 0.0 }))
    }
}

/// The host's part of a guest's requests; `None` where its hypervisor asked nothing by a call that is counted.
pub fn calls(load: &CallLoad, guest: &GuestLoad, seconds: f64) -> Option<LiveCalls> {
    let (mut reads, mut writes) = (Transfer::default(), Transfer::default());
    for disk in &guest.disks {
        reads.add(&disk.reads);
        writes.add(&disk.writes);
    }
    let lacks = if guest.disk_source == DiskSource::Trace {
        (load.submissions.number() > 0).then_some(Why::EndNotSeen)
    } else {
        Some(Why::NotSeen)
    };
    let part = |calls: &Calls, moved: &Calls, below: &Transfer| {
        let split = lacks.map_or_else(|| split(calls, moved, below), Err);
        Some(HostPart { asked: asked(calls, seconds)?, split: split.ok(), untimed: split.err() })
    };
    let all = LiveCalls {
        reads: part(&load.reads, &load.reads, &reads),
        writes: part(&load.changes(), &load.writes, &writes),
        flushes: asked(&load.flushes, seconds),
        submissions: asked(&load.submissions, seconds),
    };
    (all.reads.is_some() || all.writes.is_some() || all.submissions.is_some()).then_some(all)
}

fn asked(calls: &Calls, seconds: f64) -> Option<Asked> {
    let number = Some(calls.number()).filter(|n| *n > 0 && seconds > 0.0)? as f64;
    Some(Asked {
        per_second: number / seconds,
        mean_size: calls.done as f64 / number,
        times: Times {
            mean_seconds: calls.seconds / number,
            p50_seconds: calls.latency.quantile_seconds(0.5),
            p99_seconds: calls.latency.p99_seconds(),
        },
    })
}

/// Of all calls, of which `moved` moved bytes, with what the block layer did for them. Its sums are theirs only if each
/// of its requests is one of theirs and is waited for.
fn split(calls: &Calls, moved: &Calls, below: &Transfer) -> Result<Split, Why> {
    let number = calls.number() as f64;
    let requests = below.requests.unwrap_or(0) as f64;
    let (queue, device) = (below.queued_seconds.unwrap_or(0.0), below.device_seconds.unwrap_or(0.0));
    if requests > SAME * number || below.bytes as f64 > SAME * calls.done as f64 {
        return Err(Why::MoreRequests);
    }
    // One there is several of theirs. Flushes move nothing, so they make the mean size smaller only there.
    let size = calls.done as f64 / moved.number().max(1) as f64;
    let few = requests < FEW * number && (below.bytes as f64) < FEW * calls.done as f64;
    if !few && below.bytes as f64 / requests > SAME * size {
        return Err(Why::OtherSize);
    }
    if queue + device > calls.seconds * (1.0 + CLOCKS) {
        return Err(Why::NotWaitedFor);
    }
    Ok(Split {
        file_system_seconds: (calls.seconds - queue - device) / number,
        queue_seconds: queue / number,
        device_seconds: device / number,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::top::Latency;
    use crate::top::load::DiskLoad;

    /// So many calls of 4 KiB, each of so many microseconds.
    fn made(number: u64, us: u64) -> Calls {
        let mut calls =
            Calls { done: number * 4096, seconds: (number * us) as f64 * 1e-6, latency: Latency::default() };
        (0..number).for_each(|_| calls.latency.add(us));
        calls
    }

    /// So many requests of so many bytes, each of so many microseconds in the queue and at the device.
    fn below(requests: u64, bytes: u64, queue_us: u64, device_us: u64) -> Transfer {
        let sum = |us: u64| Some((requests * us) as f64 * 1e-6);
        Transfer {
            requests: Some(requests),
            bytes: requests * bytes,
            queued_seconds: sum(queue_us),
            device_seconds: sum(device_us),
            ..Transfer::default()
        }
    }

    fn guest(reads: Transfer, writes: Transfer) -> GuestLoad {
        let disks = vec![DiskLoad { device: Some((254, 0)), reads, writes }];
        GuestLoad { disk_source: DiskSource::Trace, disks, ..GuestLoad::default() }
    }

    fn of_reads(calls: Calls, reads: Transfer) -> HostPart {
        let load = CallLoad { reads: calls, ..CallLoad::default() };
        super::calls(&load, &guest(reads, Transfer::default()), 2.0).unwrap().reads.unwrap()
    }

    #[test]
    fn the_hosts_own_part_is_what_the_block_layer_does_not_take() {
        let part = of_reads(made(200, 150), below(200, 4096, 10, 100));
        assert_eq!((part.asked.per_second, part.asked.mean_size, part.untimed), (100.0, 4096.0, None));
        let split = part.split.unwrap();
        assert!((split.file_system_seconds - 40e-6).abs() < 1e-12 && (split.device_seconds - 100e-6).abs() < 1e-12);
        assert!((split.kernel_seconds() - 50e-6).abs() < 1e-12, "{split:?}");
        let p99 = part.asked.times.p99_seconds.unwrap();
        assert!((p99 / 150e-6 - 1.0).abs() < 0.25, "{p99}");
    }

    #[test]
    fn what_the_page_cache_answers_is_the_hosts_own() {
        let split = of_reads(made(1000, 5), Transfer::default()).split.unwrap();
        assert_eq!((split.queue_seconds, split.device_seconds), (0.0, 0.0));
        assert!((split.file_system_seconds - 5e-6).abs() < 1e-12);
    }

    #[test]
    fn requests_that_are_not_those_of_the_calls_are_not_told_apart() {
        let why = |calls: Calls, reads: Transfer| of_reads(calls, reads).untimed;
        assert_eq!(why(made(200, 150), below(400, 2048, 0, 50)), Some(Why::MoreRequests), "each is split");
        assert_eq!(why(made(200, 150), below(200, 65536, 0, 50)), Some(Why::MoreRequests), "read-ahead");
        assert_eq!(why(made(200, 150), below(50, 16384, 0, 50)), Some(Why::OtherSize), "merged");
        assert_eq!(why(made(1000, 50), below(2, 1 << 20, 0, 50)), Some(Why::OtherSize), "few and large: written back");
        assert_eq!(why(made(200, 150), below(200, 4096, 100, 100)), Some(Why::NotWaitedFor));
        let (load, mut elsewhere) = (made(9, 100), guest(Transfer::default(), Transfer::default()));
        elsewhere.disk_source = DiskSource::None;
        let load = CallLoad { reads: load, ..CallLoad::default() };
        let told = super::calls(&load, &elsewhere, 1.0).unwrap().reads.unwrap();
        assert_eq!((told.split, told.untimed), (None, Some(Why::NotSeen)), "its disk is not here");
    }

    #[test]
    fn flushes_are_told_with_the_writes_and_alone() {
        let flushes = Calls { done: 0, ..made(100, 900) };
        let load = CallLoad { writes: made(100, 100), flushes, ..CallLoad::default() };
        let told = super::calls(&load, &guest(Transfer::default(), below(200, 2048, 0, 400)), 1.0).unwrap();
        let writes = told.writes.as_ref().unwrap();
        assert_eq!((writes.asked.per_second, writes.untimed), (200.0, None));
        assert!((writes.split.unwrap().kernel_seconds() - 100e-6).abs() < 1e-12);
        assert!((told.flushes.as_ref().unwrap().times.mean_seconds - 900e-6).abs() < 1e-12);
        let (layer, share) = told.longest().unwrap();
        assert!(layer == Layer::Device && (share - 0.8).abs() < 1e-9, "{share}");
        // 300 reads a second beside these 200, each 10 us.
        let load = CallLoad { reads: made(300, 10), ..load };
        let told = super::calls(&load, &guest(Transfer::default(), below(200, 2048, 0, 400)), 1.0).unwrap();
        let mean = told.kernel_seconds().unwrap();
        assert!((mean - (300.0 * 10e-6 + 200.0 * 100e-6) / 500.0).abs() < 1e-12, "{mean}");
    }

    #[test]
    fn what_is_only_handed_over_has_no_end() {
        let submissions = Calls { done: 300, ..made(100, 20) };
        let load = CallLoad { submissions, flushes: made(3, 100), ..CallLoad::default() };
        let told = super::calls(&load, &guest(Transfer::default(), below(3, 4096, 0, 10)), 1.0).unwrap();
        assert_eq!(told.kernel_seconds(), None);
        assert_eq!((told.submissions.unwrap().mean_size, told.reads), (3.0, None));
        assert_eq!(told.writes.unwrap().untimed, Some(Why::EndNotSeen));
        assert_eq!(super::calls(&CallLoad::default(), &guest(Transfer::default(), Transfer::default()), 1.0), None);
    }

    proptest! {
        /// Whatever was counted, the parts are the whole.
        #[test]
        fn the_parts_add_up(calls in (1..500u64, 1..500u64), requests in 0..500u64, each in (0..300u64, 0..300u64)) {
            let part = of_reads(made(calls.0, calls.1), below(requests, 4096, each.0, each.1));
            prop_assert_eq!(part.split.is_none(), part.untimed.is_some());
            if let Some(split) = part.split {
                let sum = split.kernel_seconds() + split.device_seconds;
                prop_assert!((sum / part.asked.times.mean_seconds - 1.0).abs() < 1e-9);
            }
        }
    }
}
