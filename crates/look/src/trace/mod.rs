//! Disk use by process, request by request: eBPF programs at the block layer's tracepoints (`bpf/blocktrace.bpf.c`)
//! count in the kernel, and the counts are read here.
//!
//! Nothing is pinned: the programs end when the [`BlockTrace`] is dropped or its process ends, also by SIGKILL.
//! docs/probes.md defines the figures.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::{fmt, io};

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, OpenObject};
use memchr::memmem;
use vmio_model::top::latency::BUCKETS;
use vmio_model::top::{Flow, Latency};
use vmio_node::Reader;
use vmio_node::linux::process::{self, Status};

use crate::require::{Check, Missing, Requirement, unmet};
use loader::Aligned;

pub mod calls;
pub mod loader;
mod read;
pub mod syncs;

/// Type information of the running kernel (Documentation/bpf/btf.rst).
const BTF: &str = "/sys/kernel/btf/vmlinux";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Rights to load tracing programs.
pub const RIGHTS: Requirement = Requirement {
    name: "tracing rights",
    why: WHY,
    fix: "run it with CAP_BPF and CAP_PERFMON, which root has outside of containers",
    check: |n| capable(n),
};

/// The kernel's description of its types.
pub const TYPES: Requirement = Requirement {
    name: "kernel types",
    why: "they are needed to adapt eBPF programs to the running kernel",
    fix: "boot a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian, Ubuntu, Fedora and Proxmox ship it)",
    check: |n| n.stat(Path::new(BTF))?.map(drop).ok_or_else(|| Missing::Unlike(format!("{BTF} is missing"))),
};

/// That the kernel lets programs read its memory.
pub const NO_LOCKDOWN: Requirement = Requirement {
    name: "no kernel lockdown",
    why: "it prevents eBPF programs from reading kernel memory",
    fix: "boot with lockdown=integrity or none (Secure Boot needs only integrity)",
    check: |n| not_locked_down(n),
};

const WHY: &str = "who uses which disk, by eBPF";

/// Requirements of tracing, in the order in which to meet them.
pub const REQUIREMENTS: &[Requirement] = &[
    RIGHTS,
    TYPES,
    Requirement {
        name: "block tracepoints",
        why: "requests are counted there",
        fix: "boot a kernel from 5.12 with CONFIG_TRACEPOINTS=y",
        check: |n| Tracepoints::of(n)?.complete(),
    },
    NO_LOCKDOWN,
];

/// Why there is no tracing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine lacks a requirement.
    #[error("block tracing: {0}")]
    Unmet(Check),
    /// The kernel refused the programs.
    #[error("block tracing: cannot load the eBPF programs: {source}{}\n  help: {MEND}", said(log))]
    Kernel {
        /// Cause.
        source: libbpf_rs::Error,
        /// Messages of libbpf and the verifier.
        log: String,
    },
    /// The counts cannot be read.
    #[error("block tracing: cannot read the counts: {0}")]
    Read(#[source] io::Error),
}

const MEND: &str = "in a container this needs the host's CAP_BPF and CAP_PERFMON; else please report it with \
                    the kernel's version";

/// Result with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("\n{}", log.trim_end()) }
}

/// Tracepoints that the kernel's type information names.
#[derive(Debug, Clone, Copy)]
struct Tracepoints {
    issue: bool,
    complete: bool,
    insert: bool,
    merge: bool,
    /// From 6.5: shows who submits a request, with or without a scheduler.
    io_start: bool,
}

impl Tracepoints {
    fn of(reader: &dyn Reader) -> std::result::Result<Self, Missing> {
        let types = reader.read(Path::new(BTF))?;
        let has = |name: &str| names(&types, name);
        Ok(Self {
            issue: has("block_rq_issue"),
            complete: has("block_rq_complete"),
            insert: has("block_rq_insert"),
            merge: has("block_rq_merge"),
            io_start: has("block_io_start"),
        })
    }

    fn complete(self) -> std::result::Result<(), Missing> {
        let missing = if !self.issue {
            "block_rq_issue"
        } else if !self.complete {
            "block_rq_complete"
        } else if !self.io_start && !self.insert {
            "block_io_start or block_rq_insert"
        } else {
            return Ok(());
        };
        Err(Missing::Unlike(format!("the kernel has no tracepoint {missing}")))
    }

    /// Whether a program of the object is used with these.
    fn want(self, program: &str) -> bool {
        match program {
            "io_start" => self.io_start,
            "rq_insert" => !self.io_start,
            "rq_merge" => self.merge,
            _ => true,
        }
    }
}

/// Whether type information names a tracepoint.
fn names(types: &[u8], tracepoint: &str) -> bool {
    memmem::find(types, format!("\0btf_trace_{tracepoint}\0").as_bytes()).is_some()
}

/// The first of these tracepoints that the kernel's type information does not name.
///
/// # Errors
/// When it cannot be read.
pub fn lacking<'a>(reader: &dyn Reader, tracepoints: &[&'a str]) -> std::result::Result<Option<&'a str>, Missing> {
    let types = reader.read(Path::new(BTF))?;
    Ok(tracepoints.iter().find(|tracepoint| !names(&types, tracepoint)).copied())
}

/// CAP_SYS_ADMIN, or CAP_PERFMON and CAP_BPF (capabilities(7)), in the effective set of proc(5).
fn capable(reader: &dyn Reader) -> std::result::Result<(), Missing> {
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON_AND_BPF: u64 = 1 << 38 | 1 << 39;
    let status = Status::of(reader, "self")?;
    let unknown = || Missing::Unlike("cannot read the capabilities from /proc/self/status".to_owned());
    let set = status.capabilities().ok_or_else(unknown)?;
    if set & SYS_ADMIN != 0 || set & PERFMON_AND_BPF == PERFMON_AND_BPF {
        return Ok(());
    }
    Err(Missing::Unlike(format!("neither CAP_SYS_ADMIN nor CAP_BPF and CAP_PERFMON (CapEff {set:#x})")))
}

/// kernel_lockdown(7): the word in brackets is in force; without the file there is no lockdown.
fn not_locked_down(reader: &dyn Reader) -> std::result::Result<(), Missing> {
    match reader.read_text(Path::new(LOCKDOWN)) {
        Ok(text) if text.contains("[confidentiality]") => {
            Err(Missing::Unlike(format!("{LOCKDOWN} says confidentiality")))
        }
        _ => Ok(()),
    }
}

/// The attached programs and their counts.
pub struct BlockTrace {
    object: Object,
    tracepoints: Tracepoints,
    /// Attached until dropped.
    _links: Vec<Link>,
    buffer: read::Buffer,
}

impl fmt::Debug for BlockTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockTrace").finish_non_exhaustive()
    }
}

impl BlockTrace {
    /// Loads and attaches the programs on this machine, which `here` reads. Requests in flight are not counted.
    ///
    /// # Errors
    /// When a requirement is unmet ([`REQUIREMENTS`] has its fix), or the kernel refuses the programs.
    pub fn start(here: &dyn Reader) -> Result<Self> {
        if let Some((_, check)) = unmet(here, REQUIREMENTS).into_iter().next() {
            return Err(Error::Unmet(check));
        }
        let tracepoints = Tracepoints::of(here).unwrap_or_else(|_| unreachable!("it is a requirement"));
        loader::loudly(|| {
            let mut open = open()?;
            for mut program in open.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                program.set_autoload(tracepoints.want(&name));
            }
            let object = open.load()?;
            let links = object
                .progs_mut()
                .filter(|p| tracepoints.want(&p.name().to_string_lossy()))
                .map(|p| p.attach_trace())
                .collect::<libbpf_rs::Result<_>>()?;
            let buffer = read::Buffer::new(libbpf_rs::num_possible_cpus()?, read::KEY, read::VALUE);
            Ok(Self { object, tracepoints, _links: links, buffer })
        })
        .map_err(|(source, log)| Error::Kernel { source, log })
    }

    /// The counts since the last call (the first time since the start): a flow for each process, disk and direction
    /// with completed requests. Resets the counts.
    ///
    /// # Errors
    /// When the kernel does not return the counts.
    pub fn take(&mut self) -> Result<Vec<Flow>> {
        let map = map(&self.object, "flows");
        self.buffer.take(&map, read::flow).map_err(Error::Read)
    }

    /// Requests since the start that could not be counted: more were in flight, or more processes active, than the maps
    /// have room for, or a request completed in an interrupt while a program ran (the kernel runs a program once at a
    /// time on each CPU, and counts the skipped runs).
    pub fn lost(&self) -> u64 {
        let full = not_counted(&self.object);
        let attached = self.object.progs().filter(|p| self.tracepoints.want(&p.name().to_string_lossy()));
        let left_out = |descriptor: i32| {
            let info = std::fs::read_to_string(process::file("self", &format!("fdinfo/{descriptor}"))).ok()?;
            process::fdinfo(&info, "recursion_misses")?.parse::<u64>().ok()
        };
        full + attached.filter_map(|p| left_out(p.as_fd().as_raw_fd())).sum::<u64>()
    }
}

/// The variable `lost` of the object, its only one.
fn not_counted(object: &Object) -> u64 {
    let value = map(object, ".bss").lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    value.and_then(|v| Some(u64::from_ne_bytes(v.get(..8)?.try_into().ok()?))).unwrap_or(0)
}

/// A map of the object. The kernel prefixes those of variables with a part of the object's name.
fn map<'o>(object: &'o Object, name: &str) -> Map<'o> {
    let found = object.maps().find(|m| m.name().to_string_lossy().ends_with(name));
    found.expect("the object was built with this map")
}

/// The object as built.
fn open() -> libbpf_rs::Result<OpenObject> {
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/blocktrace.bpf.o")));
    loader::open("vmio_block", OBJECT)
}

#[cfg(test)]
mod tests;
