//! Measures how long packets wait in the plane's queues: eBPF programs (`bpf/delay.bpf.c`) where a queue takes a packet
//! and where it gives it up. They hold nothing and end with this process; limits do not depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, OpenObject};
use vmio_look::require::{Missing, Requirement};
use vmio_look::trace;
use vmio_look::trace::loader::{self, Aligned};
use vmio_model::top::Latency;
use vmio_model::top::latency::BUCKETS;
use vmio_node::Reader;

use super::Result;
use super::classifier::{loudly, map};
use crate::planes::DelayCount;

const WHY: &str = "how long packets wait in their class's queue";

/// What measuring needs of a host, beside what the plane does.
pub const REQUIREMENTS: &[Requirement] = &[
    Requirement { why: WHY, ..trace::RIGHTS },
    trace::TYPES,
    trace::NO_LOCKDOWN,
    Requirement {
        name: "queue tracepoints",
        why: WHY,
        fix: "boot a kernel from 5.15 with CONFIG_TRACEPOINTS=y",
        check: tracepoints,
    },
];

/// Tracepoints that the programs are attached to.
const TRACEPOINTS: [&str; 3] = ["qdisc_enqueue", "qdisc_dequeue", "kfree_skb"];

/// Bytes of `struct place`.
const PLACE: usize = 12;
/// Offset of the histogram in `struct delay`.
const COUNTS: usize = 16;
/// Bytes of `struct delay`.
const DELAY: usize = COUNTS + 8 * BUCKETS;

/// A class of a queue: the index of the interface that the queue is at, and the number of the class.
pub type Place = (u32, u16);

/// The attached programs, and the classes that they measure.
pub struct Delays {
    object: Object,
    /// Attached until dropped.
    _links: Vec<Link>,
    /// Inode of the network namespace.
    namespace: u32,
    places: BTreeMap<Place, Measured>,
}

/// What was read last of a class.
#[derive(Default)]
struct Measured {
    count: Arc<DelayCount>,
    /// How many samples that is of.
    samples: u64,
    /// Bytes that had passed at the last two reads, the later one last.
    passed: [Option<u64>; 2],
}

impl fmt::Debug for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delays").field("places", &self.places.len()).finish_non_exhaustive()
    }
}

impl Delays {
    /// Loads and attaches the programs, for queues of the network namespace of this inode.
    ///
    /// # Errors
    /// When the kernel does not take them.
    pub fn start(namespace: u64) -> Result<Delays> {
        let namespace = u32::try_from(namespace).unwrap_or(0);
        loudly("measure how long packets wait", || {
            let object = open()?.load()?;
            let links = object.progs_mut().map(|program| program.attach_trace()).collect::<libbpf_rs::Result<_>>()?;
            Ok(Delays { object, _links: links, namespace, places: BTreeMap::new() })
        })
    }

    /// Measures these classes and no others; those that were measured before count on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn follow(&mut self, wanted: &BTreeSet<Place>) -> Result<()> {
        let gone: Vec<Place> = self.places.keys().filter(|place| !wanted.contains(place)).copied().collect();
        for place in gone {
            self.places.remove(&place);
            // It may not exist, and nobody reads it.
            let _ = delays(&self.object).delete(&self.key(place));
        }
        for place in wanted {
            if !self.places.contains_key(place) {
                let (map, key) = (delays(&self.object), self.key(*place));
                loudly("measure how long packets wait", || map.update(&key, &[0; DELAY], MapFlags::ANY))?;
                self.places.insert(*place, Default::default());
            }
        }
        Ok(())
    }

    /// What packets of a class have waited since it is measured; `None` where it is not. The kernel is asked unless as
    /// many bytes had `passed` at the last two reads: a packet is counted in its class before its wait is.
    pub fn read(&mut self, place: Place, passed: Option<u64>) -> Option<Arc<DelayCount>> {
        let key = self.key(place);
        let measured = self.places.get_mut(&place)?;
        if passed.is_none() || measured.passed != [passed; 2] {
            let value = delays(&self.object).lookup(&key, MapFlags::ANY).ok().flatten()?;
            let samples = number(&value, 0)?;
            if samples != measured.samples {
                (measured.samples, measured.count) = (samples, Arc::new(decode(&value)?));
            }
            measured.passed = [measured.passed[1], passed];
        }
        Some(Arc::clone(&measured.count))
    }

    /// `struct place`.
    fn key(&self, (index, number): Place) -> [u8; PLACE] {
        let mut key = [0; PLACE];
        for (at, value) in [(0, self.namespace), (4, index), (8, u32::from(number))] {
            key[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        key
    }
}

/// What the samples of `struct delay` stand for.
fn decode(value: &[u8]) -> Option<DelayCount> {
    let counts: Option<Vec<u64>> = (0..BUCKETS).map(|bucket| number(value, COUNTS + 8 * bucket)).collect();
    Some(DelayCount { waits: Latency { counts: counts? }, sum: Duration::from_micros(number(value, 8)?) })
}

/// A number of `struct delay`; the first one is that of the samples.
fn number(value: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?))
}

/// Whether the kernel's type information names the tracepoints.
fn tracepoints(reader: &dyn Reader) -> std::result::Result<(), Missing> {
    match trace::lacking(reader, &TRACEPOINTS)? {
        None => Ok(()),
        Some(missing) => Err(Missing::Unlike(format!("the kernel has no tracepoint {missing}"))),
    }
}

fn delays(object: &Object) -> Map<'_> {
    map(object, "delays")
}

/// The object as built.
fn open() -> libbpf_rs::Result<OpenObject> {
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/delay.bpf.o")));
    loader::open("vmio_delay", OBJECT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::Fake;

    use super::*;

    /// As the object declares them; nothing is loaded.
    #[test]
    fn layout_of_the_map() {
        let open = open().unwrap();
        let map = open.maps().find(|m| m.name() == "delays").unwrap();
        assert_eq!((map.key_size() as usize, map.value_size() as usize), (PLACE, DELAY));
        let mut value = vec![0; DELAY];
        value[0] = 7;
        value[8..16].copy_from_slice(&3_000_000u64.to_ne_bytes());
        value[COUNTS + 8 * 5] = 200;
        assert_eq!(number(&value, 0), Some(7));
        let count = decode(&value).unwrap();
        assert_eq!((count.sum, count.waits.counts[5], count.waits.requests()), (Duration::from_secs(3), 200, 200));
        assert!(decode(&value[1..]).is_none());
    }

    #[test]
    fn what_a_kernel_lacks_is_named() {
        let types = |text: &str| Fake::new("fake").file("/sys/kernel/btf/vmlinux", text);
        let old = types("\0btf_trace_qdisc_dequeue\0btf_trace_kfree_skb\0");
        assert!(tracepoints(&old).unwrap_err().to_string().ends_with("no tracepoint qdisc_enqueue"));
        tracepoints(&types("\0btf_trace_qdisc_dequeue\0btf_trace_kfree_skb\0btf_trace_qdisc_enqueue\0")).unwrap();
    }
}
