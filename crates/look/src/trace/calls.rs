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
use super::{BUCKETS, lacking, map, not_counted, said};

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

/// Why system calls are not seen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel lacks what the programs are attached to.
    #[error("the kernel has no tracepoint {0}")]
    NoTracepoint(&'static str),
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

/// Whether the kernel has the tracepoints of io_uring.
///
/// # Errors
/// When it lacks one of system calls.
fn has_rings(reader: &dyn Reader) -> Result<bool, Error> {
    // Without type information it has none.
    let lacks = |names: &[&'static str; 2]| lacking(reader, names).unwrap_or(Some(names[0]));
    match lacks(&OF_CALLS) {
        Some(name) => Err(Error::NoTracepoint(name)),
        None => Ok(lacks(&OF_RINGS).is_none()),
    }
}

impl CallTrace {
    /// Loads and attaches the programs on this machine, which `here` reads and which meets the requirements of block
    /// tracing. No process is watched yet.
    ///
    /// # Errors
    /// When the kernel has no such tracepoints, or refuses the programs.
    pub fn start(here: &dyn Reader) -> Result<Self, Error> {
        let rings = has_rings(here)?;
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
    fn without_the_tracepoints_of_io_uring_system_calls_are_seen() {
        let of = |types: &str| has_rings(&Fake::new("host").file(BTF, types)).map_err(|why| why.to_string());
        let both = "\0btf_trace_sys_enter\0btf_trace_sys_exit\0";
        let rings = "\0btf_trace_io_uring_submit_req\0btf_trace_io_uring_complete\0";
        assert_eq!(of(&format!("{both}{rings}")), Ok(true));
        assert_eq!(of(&format!("{both}\0btf_trace_io_uring_submit_sqe\0btf_trace_io_uring_complete\0")), Ok(false));
        assert_eq!(of(rings), Err("the kernel has no tracepoint sys_enter".to_owned()));
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
