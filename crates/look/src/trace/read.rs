//! Reads maps of the eBPF programs that have a value for each CPU, and `flows` among them. Its layout is that of
//! `struct key` and `struct counts` in `bpf/blocktrace.bpf.c`; a test compares the sizes.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use libbpf_rs::Map;
use libbpf_sys::{bpf_map_batch_opts, bpf_map_lookup_and_delete_batch};

use super::{BUCKETS, Flow, Latency};

/// Bytes of `struct key`.
pub(super) const KEY: usize = 16;
/// Offset of the first of the three counts by bucket in `struct counts`.
const LATENCY: usize = 76;
/// Bytes of one of them.
const COUNTS: usize = 4 * BUCKETS;
/// Bytes of `struct counts`, aligned to 8 as the kernel's copy for each CPU.
pub(super) const VALUE: usize = (LATENCY + 3 * COUNTS).next_multiple_of(8);

/// Entries of one system call; more than ever share a bucket of the kernel's hash.
const BATCH: usize = 128;

/// Memory for a batch, kept, since it is large on machines with many CPUs.
pub(super) struct Buffer {
    /// Bytes of a key, and of its values on all CPUs.
    sizes: [usize; 2],
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Buffer {
    /// For a map whose keys and values (aligned to 8) have so many bytes.
    pub(super) fn new(cpus: usize, key: usize, value: usize) -> Self {
        Self { sizes: [key, value * cpus], keys: vec![0; BATCH * key], values: vec![0; BATCH * value * cpus] }
    }

    /// Reads and removes all entries; `parse` makes something of a key and its values.
    pub(super) fn take<T>(&mut self, map: &Map<'_>, parse: impl Fn(&[u8], &[u8]) -> Option<T>) -> io::Result<Vec<T>> {
        let options = bpf_map_batch_opts { sz: size_of::<bpf_map_batch_opts>() as _, ..Default::default() };
        let mut all = Vec::new();
        // Where the kernel continues: the number of a bucket.
        let mut position: Option<u32> = None;
        loop {
            let mut count = BATCH as u32;
            let mut next = 0u32;
            let from = position.as_mut().map_or(ptr::null_mut(), |p| ptr::from_mut(p).cast());
            // SAFETY: `keys` and `values` have room for `count` entries of this map (the test of the
            // layout compares its sizes; the kernel writes each value once for each possible CPU),
            // and all pointers outlive the call.
            let result = unsafe {
                bpf_map_lookup_and_delete_batch(
                    map.as_fd().as_raw_fd(),
                    from,
                    ptr::from_mut(&mut next).cast(),
                    self.keys.as_mut_ptr().cast(),
                    self.values.as_mut_ptr().cast(),
                    &mut count,
                    &options,
                )
            };
            let error = io::Error::last_os_error();
            // ENOENT: this was the last batch.
            let last = result != 0 && error.kind() == io::ErrorKind::NotFound;
            if result != 0 && !last {
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
            let keys = self.keys.chunks_exact(self.sizes[0]);
            let values = self.values.chunks_exact(self.sizes[1]);
            all.extend(keys.zip(values).take(count as usize).filter_map(|(k, v)| parse(k, v)));
            if last {
                return Ok(all);
            }
            position = Some(next);
        }
    }
}

/// A flow from a key and its value on every CPU; `None` without counts.
pub(super) fn flow(key: &[u8], values: &[u8]) -> Option<Flow> {
    let (pid, device, write) = (u32_at(key, 0), u32_at(key, 8), u32_at(key, 12));
    let (mut latency, mut in_queue, mut at_device) = (Latency::default(), Latency::default(), Latency::default());
    let (mut bytes, mut device_ns, mut queued_ns) = (0, 0, 0);
    let mut named = None;
    for one in values.chunks_exact(VALUE) {
        bytes += u64_at(one, 0);
        device_ns += u64_at(one, 8);
        queued_ns += u64_at(one, 16);
        // Most CPUs counted nothing: a host may have thousands of flows on hundreds of CPUs.
        if !add(&mut latency, &one[LATENCY..]) {
            continue;
        }
        add(&mut in_queue, &one[LATENCY + COUNTS..]);
        add(&mut at_device, &one[LATENCY + 2 * COUNTS..]);
        // Only CPUs that counted have the name, which a process may have emptied.
        named = named.or(Some(one));
    }
    let (named, requests) = (named?, latency.requests());
    let (kernel, comm, work) = (u32_at(named, 32) != 0, text(&named[36..52]), text(&named[52..76]));
    Some(Flow {
        pid: if kernel { 0 } else { pid },
        comm: if work.is_empty() { comm } else { format!("{comm}+{work}") },
        cgroup: u64_at(named, 24),
        device: (device >> 20, device & 0xf_ffff),
        write: write != 0,
        requests,
        bytes,
        device_seconds: device_ns as f64 * 1e-9,
        queued_seconds: queued_ns as f64 * 1e-9,
        latency,
        in_queue,
        at_device,
    })
}

/// Adds the counts by bucket that stand here; whether there were any.
pub(super) fn add(to: &mut Latency, counts: &[u8]) -> bool {
    let mut any = false;
    for (count, at) in to.counts.iter_mut().zip((0..).step_by(4)) {
        let more = u32_at(counts, at);
        *count += u64::from(more);
        any |= more > 0;
    }
    any
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The text up to the first zero.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
