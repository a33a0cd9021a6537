//! How long the host takes for what hypervisors ask of it: eBPF programs at the tracepoints of system calls and of
//! io_uring (`bpf/calls.bpf.c`). While they are loaded, each system call of the host costs a little more; so they are
//! loaded for the processes that are looked at, and only while they are. The layout of what they count is that of
//! `struct key` and `struct counts` there; a test compares the sizes.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, io};

use libbpf_rs::{Link, MapCore, MapFlags, Object, OpenObject};
use vmio_model::top::calls::{CallLoad, Calls};
use vmio_node::Reader;

use super::loader::{self, Aligned};
use super::read::{self, Buffer, u32_at, u64_at};
use super::{BUCKETS, NO_LOCKDOWN, RIGHTS, TYPES, lacking, map, not_counted, said};
use crate::require::{Check, Missing, Requirement, unmet};

/// Bytes of `struct key`.
const KEY: usize = 8;
/// Offset of the counts by bucket in `struct counts`.
const LATENCY: usize = 16;
/// Bytes of `struct counts`.
const VALUE: usize = LATENCY + 4 * BUCKETS;

/// The kinds of `enum kind`.
const READ: u32 = 1;
const WRITE: u32 = 2;
const FLUSH: u32 = 3;
const SUBMIT: u32 = 4;

/// System calls by their number, with the kind. Those that move the file's offset (read, write) are left out: by them a
/// hypervisor also talks to its guest's network, to itself and to its users.
const CALLS: &[(libc::c_long, u32)] = &[
    (libc::SYS_pread64, READ),
    (libc::SYS_preadv, READ),
    (libc::SYS_preadv2, READ),
    (libc::SYS_pwrite64, WRITE),
    (libc::SYS_pwritev, WRITE),
    (libc::SYS_pwritev2, WRITE),
    (libc::SYS_fsync, FLUSH),
    (libc::SYS_fdatasync, FLUSH),
    (libc::SYS_fallocate, FLUSH),
    (libc::SYS_io_submit, SUBMIT),
];

/// Tracepoints of system calls.
const OF_CALLS: [&str; 2] = ["sys_enter", "sys_exit"];
/// Tracepoints of io_uring: their names and their arguments changed until Linux 6.4.
const OF_RINGS: [&str; 2] = ["io_uring_submit_req", "io_uring_complete"];

/// Requirements of timing what hypervisors ask of their host, in the order in which to meet them.
pub const REQUIREMENTS: &[Requirement] = &[
    RIGHTS,
    TYPES,
    Requirement {
        name: "call tracepoints",
        why: "system calls of hypervisors are timed there",
        fix: "boot a kernel with CONFIG_TRACEPOINTS=y",
        check: |n| has(n, &OF_CALLS),
    },
    NO_LOCKDOWN,
];

/// Without it the requests by io_uring alone are not seen.
pub const RINGS: Requirement = Requirement {
    name: "io_uring tracepoints",
    why: "requests of hypervisors by io_uring are timed there",
    fix: "boot a kernel from 6.4",
    check: |n| has(n, &OF_RINGS),
};

/// Why system calls are not seen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine lacks a requirement.
    #[error("{0}")]
    Unmet(Check),
    /// The kernel refused the programs.
    #[error("the kernel refused the eBPF programs: {source}{}", said(log))]
    Kernel {
        /// Cause.
        source: libbpf_rs::Error,
        /// Messages of libbpf and the verifier.
        log: String,
    },
    /// The processes cannot be told to the programs.
    #[error("cannot watch them: {0}")]
    Watch(#[source] libbpf_rs::Error),
    /// The counts cannot be read.
    #[error("cannot read the counts: {0}")]
    Read(#[source] io::Error),
}

/// The attached programs and their counts.
pub struct CallTrace {
    object: Object,
    /// Attached until dropped.
    _links: Vec<Link>,
    buffer: Buffer,
    rings: bool,
    watched: BTreeSet<u32>,
}

impl fmt::Debug for CallTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTrace").finish_non_exhaustive()
    }
}

/// Whether the kernel has all of these tracepoints.
fn has(reader: &dyn Reader, names: &[&str]) -> Result<(), Missing> {
    match lacking(reader, names)? {
        Some(name) => Err(Missing::Unlike(format!("the kernel has no tracepoint {name}"))),
        None => Ok(()),
    }
}

impl CallTrace {
    /// Loads and attaches the programs on this machine, which `here` reads. No process is watched yet.
    ///
    /// # Errors
    /// When a requirement is unmet ([`REQUIREMENTS`] has its fix), or the kernel refuses the programs.
    pub fn start(here: &dyn Reader) -> Result<Self, Error> {
        if let Some((_, check)) = unmet(here, REQUIREMENTS).into_iter().next() {
            return Err(Error::Unmet(check));
        }
        let rings = (RINGS.check)(here).is_ok();
        let wanted = |name: &str| rings || !name.starts_with("ring_");
        loader::loudly(|| {
            let mut open = open()?;
            for mut program in open.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                program.set_autoload(wanted(&name));
            }
            let object = open.load()?;
            let kinds = map(&object, "kinds");
            for (number, kind) in CALLS {
                kinds.update(&(*number as u32).to_ne_bytes(), &kind.to_ne_bytes(), MapFlags::ANY)?;
            }
            let links = object
                .progs_mut()
                .filter(|p| wanted(&p.name().to_string_lossy()))
                .map(|p| p.attach_trace())
                .collect::<libbpf_rs::Result<_>>()?;
            let buffer = Buffer::new(libbpf_rs::num_possible_cpus()?, KEY, VALUE);
            Ok(Self { object, _links: links, buffer, rings, watched: BTreeSet::new() })
        })
        .map_err(|(source, log)| Error::Kernel { source, log })
    }

    /// Counts from now on what these processes ask, and no others. What is under way is not counted.
    ///
    /// # Errors
    /// When there are more than the map has room for.
    pub fn watch(&mut self, pids: &BTreeSet<u32>) -> Result<(), Error> {
        let map = map(&self.object, "watched");
        for pid in self.watched.difference(pids) {
            map.delete(&pid.to_ne_bytes()).map_err(Error::Watch)?;
        }
        for pid in pids.difference(&self.watched) {
            map.update(&pid.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY).map_err(Error::Watch)?;
        }
        self.watched = pids.clone();
        Ok(())
    }

    /// The counts of each watched process since the last call (the first time since it is watched). Resets the counts.
    ///
    /// # Errors
    /// When the kernel does not return the counts.
    pub fn take(&mut self) -> Result<BTreeMap<u32, CallLoad>, Error> {
        let map = map(&self.object, "calls");
        let all = self.buffer.take(&map, calls).map_err(Error::Read)?;
        let mut loads: BTreeMap<u32, CallLoad> = self.watched.iter().map(|pid| (*pid, CallLoad::default())).collect();
        for (pid, kind, calls) in all {
            // Of others there may be what was under way when they were left.
            let Some(load) = loads.get_mut(&pid) else { continue };
            match kind {
                READ => load.reads.add(&calls),
                WRITE => load.writes.add(&calls),
                FLUSH => load.flushes.add(&calls),
                SUBMIT => load.submissions.add(&calls),
                _ => {}
            }
        }
        Ok(loads)
    }

    /// The tracepoint of io_uring that the kernel lacks: then requests by it are not seen.
    pub fn lacks(&self) -> Option<&'static str> {
        (!self.rings).then_some(OF_RINGS[0])
    }

    /// Requests since the start that could not be counted, since a map was full. Those that made room for others while they
    /// were under way are not among them.
    pub fn lost(&self) -> u64 {
        not_counted(&self.object)
    }
}

/// A process, a kind and its requests, from a key and its value on every CPU; `None` without any.
fn calls(key: &[u8], values: &[u8]) -> Option<(u32, u32, Calls)> {
    let mut calls = Calls::default();
    let mut ns = 0u64;
    for one in values.chunks_exact(VALUE) {
        ns += u64_at(one, 0);
        calls.done += u64_at(one, 8);
        read::add(&mut calls.latency, &one[LATENCY..]);
    }
    calls.seconds = ns as f64 * 1e-9;
    (calls.number() > 0).then(|| (u32_at(key, 0), u32_at(key, 4), calls))
}

/// The object as built.
fn open() -> libbpf_rs::Result<OpenObject> {
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o")));
    loader::open("vmio_calls", OBJECT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::BTF;
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn the_object_and_the_reader_agree_on_the_layout() {
        let open = open().unwrap();
        let size = |name: &str| {
            let map = open.maps().find(|m| m.name() == name).unwrap();
            (map.key_size() as usize, map.value_size() as usize)
        };
        assert_eq!((size("calls"), size("kinds"), size("watched")), ((KEY, VALUE), (4, 4), (4, 4)));
        let rings = open.progs().filter(|p| p.name().to_string_lossy().starts_with("ring_")).count();
        assert_eq!((open.progs().count(), rings), (4, 2));
    }

    #[test]
    fn every_number_of_a_system_call_has_its_place() {
        let open = open().unwrap();
        let room = open.maps().find(|m| m.name() == "kinds").unwrap().max_entries() as usize;
        assert!(CALLS.iter().all(|(number, _)| (*number as usize) < room), "{CALLS:?}");
    }

    #[test]
    fn each_need_that_is_unmet_is_named_with_its_mend() {
        let host = || Fake::new("host").file("/proc/self/status", "Name:\tvmio\nCapEff:\t000001ffffffffff\n");
        let of = |fake: Fake| -> Vec<String> {
            unmet(&fake, REQUIREMENTS.iter().chain([&RINGS])).into_iter().map(|(_, check)| check.to_string()).collect()
        };
        let both = "\0btf_trace_sys_enter\0btf_trace_sys_exit\0";
        let rings = "\0btf_trace_io_uring_submit_req\0btf_trace_io_uring_complete\0";
        assert_eq!(of(host().file(BTF, format!("{both}{rings}"))), [""; 0]);
        // Of Linux 6.1.
        let old = "\0btf_trace_io_uring_submit_sqe\0btf_trace_io_uring_complete\0";
        let said = of(host().file(BTF, format!("{both}{old}")));
        let [rings_alone] = said.as_slice() else { panic!("{said:?}") };
        assert!(rings_alone.contains("no tracepoint io_uring_submit_req") && rings_alone.contains("6.4"), "{said:?}");
        let said = of(host().file(BTF, rings));
        let [calls_alone] = said.as_slice() else { panic!("{said:?}") };
        assert!(calls_alone.contains("no tracepoint sys_enter") && calls_alone.contains("CONFIG_"), "{said:?}");
        // Without type information it has neither.
        assert_eq!(of(host()).len(), 3);
        let refused = CallTrace::start(&host()).unwrap_err().to_string();
        assert!(refused.contains("CONFIG_DEBUG_INFO_BTF"), "{refused}");
    }

    fn value(ns: u64, done: u64, counted: &[(usize, u32)]) -> Vec<u8> {
        let mut latency = [0u32; BUCKETS];
        counted.iter().for_each(|&(bucket, n)| latency[bucket] = n);
        let mut value = [ns, done].map(u64::to_ne_bytes).concat();
        value.extend(latency.map(u32::to_ne_bytes).concat());
        value
    }

    #[test]
    fn cpus_are_added_up() {
        let key = [42u32, WRITE].map(u32::to_ne_bytes).concat();
        let cpus = [value(0, 0, &[]), value(3_000_000, 8192, &[(7, 2)]), value(1_000_000, 4096, &[(9, 1)])].concat();
        let (pid, kind, calls) = super::calls(&key, &cpus).unwrap();
        assert_eq!((pid, kind, calls.number(), calls.done, calls.seconds), (42, WRITE, 3, 12288, 4e-3));
        assert_eq!((calls.latency.counts[7], calls.latency.counts[9]), (2, 1));
        assert_eq!(super::calls(&key, &value(0, 0, &[])), None, "nothing counted");
    }
}
