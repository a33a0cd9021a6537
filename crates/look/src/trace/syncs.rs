//! Who waits in fsync on an ext4, and who dirties the pages that are written there: eBPF programs of their own
//! (`bpf/fsync.bpf.c`), beside those of the block layer, since a kernel may lack what they need. The layout of what
//! they count is that of `struct user` and `struct use` there; a test compares the sizes.

use std::path::Path;
use std::{fmt, io};

use libbpf_rs::{Link, Object, OpenObject};
use memchr::memmem;
use vmio_model::top::load::JournalFlow;
use vmio_node::Reader;
use vmio_node::linux::mounts;

use super::loader::{self, Aligned};
use super::read::{Buffer, text, u32_at, u64_at};
use super::{BTF, map, not_counted, said};

/// Type information of ext4 where it is a module.
const MODULE: &str = "/sys/kernel/btf/ext4";

/// Bytes of `struct user`.
pub(super) const KEY: usize = 24;
/// Bytes of `struct use`.
pub(super) const VALUE: usize = 80;

/// Why fsync waits are not seen.
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
    /// The counts cannot be read.
    #[error("cannot read the counts: {0}")]
    Read(#[source] io::Error),
}

/// The attached programs and their counts.
pub struct SyncTrace {
    object: Object,
    /// Attached until dropped.
    _links: Vec<Link>,
    buffer: Buffer,
}

impl fmt::Debug for SyncTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncTrace").finish_non_exhaustive()
    }
}

/// The program that counts dirtied pages, by the kernel's tracepoint: from 5.18 of a folio, before of a page.
pub(super) fn dirty_program(reader: &dyn Reader) -> Result<&'static str, Error> {
    let core = reader.read(Path::new(BTF)).unwrap_or_default();
    let module = reader.read(Path::new(MODULE)).unwrap_or_default();
    let has = |types: &[u8], name: &str| memmem::find(types, format!("\0btf_trace_{name}\0").as_bytes()).is_some();
    for name in ["ext4_sync_file_enter", "ext4_sync_file_exit"] {
        if !has(&core, name) && !has(&module, name) {
            return Err(Error::NoTracepoint(name));
        }
    }
    if has(&core, "writeback_dirty_folio") {
        Ok("dirty_folio")
    } else if has(&core, "writeback_dirty_page") {
        Ok("dirty_page")
    } else {
        Err(Error::NoTracepoint("writeback_dirty_folio"))
    }
}

impl SyncTrace {
    /// Loads and attaches the programs on this machine, which `here` reads and which meets the requirements of block
    /// tracing. `None` where the kernel has no ext4.
    ///
    /// # Errors
    /// When the kernel has no such tracepoints, or refuses the programs.
    pub fn start(here: &dyn Reader) -> Result<Option<Self>, Error> {
        if mounts::has_filesystem(here, "ext4") == Some(false) {
            return Ok(None);
        }
        let dirty = dirty_program(here)?;
        let wanted = |name: &str| name == dirty || name.starts_with("sync_");
        loader::loudly(|| {
            let mut open = open()?;
            for mut program in open.progs_mut() {
                let name = program.name().to_string_lossy().into_owned();
                program.set_autoload(wanted(&name));
            }
            let object = open.load()?;
            let links = object
                .progs_mut()
                .filter(|p| wanted(&p.name().to_string_lossy()))
                .map(|p| p.attach_trace())
                .collect::<libbpf_rs::Result<_>>()?;
            let buffer = Buffer::new(libbpf_rs::num_possible_cpus()?, KEY, VALUE);
            Ok(Some(Self { object, _links: links, buffer }))
        })
        .map_err(|(source, log)| Error::Kernel { source, log })
    }

    /// The counts since the last call (the first time since the start): one for each process and file system. Resets
    /// the counts.
    ///
    /// # Errors
    /// When the kernel does not return the counts.
    pub fn take(&mut self) -> Result<Vec<JournalFlow>, Error> {
        let map = map(&self.object, "users");
        self.buffer.take(&map, flow).map_err(Error::Read)
    }

    /// Flushes and dirtied pages since the start that could not be counted, since more processes were active than the
    /// map has room for.
    pub fn lost(&self) -> u64 {
        not_counted(&self.object)
    }
}

/// What a key and its value on every CPU say; `None` without counts.
pub(super) fn flow(key: &[u8], values: &[u8]) -> Option<JournalFlow> {
    let kernel = u32_at(key, 4) != 0;
    let device = u32_at(key, 12);
    let mut flow = JournalFlow {
        pid: if kernel { 0 } else { u32_at(key, 0) },
        device: (device >> 20, device & 0xf_ffff),
        inode: u64_at(key, 16),
        ..JournalFlow::default()
    };
    let (mut pages, mut wait_ns, mut worst_ns) = (0u64, 0u64, 0);
    let mut named = None;
    for one in values.chunks_exact(VALUE) {
        pages += u64_at(one, 0);
        flow.syncs += u64_at(one, 8);
        wait_ns += u64_at(one, 16);
        worst_ns = u64_at(one, 24).max(worst_ns);
        // Only CPUs that counted have the name, which a process may have emptied.
        named = named.or(Some(one).filter(|v| u64_at(v, 0) > 0 || u64_at(v, 8) > 0));
    }
    let named = named?;
    let (comm, work) = (text(&named[40..56]), text(&named[56..80]));
    flow.comm = if work.is_empty() { comm } else { format!("{comm}+{work}") };
    flow.cgroup = u64_at(named, 32);
    flow.dirtied_bytes = pages * rustix::param::page_size() as u64;
    (flow.wait_seconds, flow.worst_seconds) = (wait_ns as f64 * 1e-9, worst_ns as f64 * 1e-9);
    Some(flow)
}

/// The object as built.
pub(super) fn open() -> libbpf_rs::Result<OpenObject> {
    static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/fsync.bpf.o")));
    loader::open("vmio_fsync", OBJECT)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::Fake;

    #[test]
    fn the_object_and_the_reader_agree_on_the_layout() {
        let open = open().unwrap();
        let map = open.maps().find(|m| m.name() == "users").unwrap();
        assert_eq!((map.key_size() as usize, map.value_size() as usize), (KEY, VALUE));
        let names: Vec<_> = open.progs().map(|p| p.name().to_string_lossy().into_owned()).collect();
        for name in ["sync_enter", "sync_exit", "dirty_folio", "dirty_page"] {
            assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
        }
    }

    #[test]
    fn the_programs_follow_the_tracepoints() {
        let sync = "\0btf_trace_ext4_sync_file_enter\0btf_trace_ext4_sync_file_exit\0";
        let program = |core: &str, module: &str| {
            let fake = Fake::new("host").file(BTF, core).file(MODULE, module);
            dirty_program(&fake).map_err(|why| why.to_string())
        };
        let folio = "\0btf_trace_writeback_dirty_folio\0";
        assert_eq!(program(&format!("{sync}{folio}"), ""), Ok("dirty_folio"));
        // Debian's ext4 is a module.
        assert_eq!(program(folio, sync), Ok("dirty_folio"));
        assert_eq!(program("\0btf_trace_writeback_dirty_page\0", sync), Ok("dirty_page"));
        assert_eq!(program(folio, ""), Err("the kernel has no tracepoint ext4_sync_file_enter".to_owned()));
        assert_eq!(program(sync, ""), Err("the kernel has no tracepoint writeback_dirty_folio".to_owned()));
    }

    fn value(pages: u64, syncs: u64, wait_ns: u64, worst_ns: u64, name: &str, work: &str) -> Vec<u8> {
        let mut value = [pages, syncs, wait_ns, worst_ns, 77].map(u64::to_ne_bytes).concat();
        for (text, room) in [(name, 16), (work, 24)] {
            value.extend(text.bytes());
            value.resize(value.len() + room - text.len(), 0);
        }
        value
    }

    fn key(pid: u32, kernel: u32, inode: u64) -> Vec<u8> {
        let mut key = [pid, kernel, 0, 8 << 20 | 17].map(u32::to_ne_bytes).concat();
        key.extend(inode.to_ne_bytes());
        key
    }

    #[test]
    fn cpus_are_added_up_and_the_longest_wait_is_kept() {
        let cpus = [
            value(0, 0, 0, 0, "", ""),
            value(3, 2, 500_000_000, 400_000_000, "postgres", ""),
            value(1, 1, 250_000_000, 250_000_000, "postgres", ""),
        ]
        .concat();
        let flow = super::flow(&key(42, 0, 0), &cpus).unwrap();
        assert_eq!((flow.pid, flow.comm.as_str(), flow.device, flow.cgroup), (42, "postgres", (8, 17), 77));
        assert_eq!((flow.syncs, flow.wait_seconds, flow.worst_seconds), (3, 0.75, 0.4));
        assert_eq!(flow.dirtied_bytes, 4 * rustix::param::page_size() as u64);
        let worker = value(0, 1, 1, 1, "kworker/0:1", "loop0");
        let flow = super::flow(&key(9, 1, 1234), &worker).unwrap();
        assert_eq!((flow.pid, flow.comm.as_str(), flow.inode), (0, "kworker/0:1+loop0", 1234));
        assert_eq!(super::flow(&key(9, 1, 0), &value(0, 0, 0, 0, "x", "")), None, "nothing counted");
        // PR_SET_NAME takes an empty name.
        let flow = super::flow(&key(42, 0, 0), &value(5, 0, 0, 0, "", "")).unwrap();
        assert_eq!((flow.pid, flow.comm.as_str(), flow.cgroup), (42, "", 77));
    }
}
