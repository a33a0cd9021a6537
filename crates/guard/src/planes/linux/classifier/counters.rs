//! The counters of the eBPF program, mapped into this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Bytes of `struct counts`, and of others in such maps.
pub(super) const BYTES: usize = 64;
const NUMBERS: usize = BYTES / 8;

/// Counters of the ingress of a guest's interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that passed, before segmentation.
    pub packets: u64,
    /// Frames that passed, after segmentation.
    pub frames: u64,
    /// Bytes that passed, before segmentation.
    pub bytes: u64,
    /// Bytes of all frames, with the headers of each segment and the framing. Headers inside of tunnels are
    /// underestimated.
    pub wire_bytes: u64,
    /// Packets that were dropped for a source address that is not the guest's.
    pub spoofed_packets: u64,
    /// Bytes of these.
    pub spoofed_bytes: u64,
    /// Of `wire_bytes`, those that reached an uplink and were dropped there above a maximum.
    pub above_bytes: u64,
    /// Of `wire_bytes`, those that left by an uplink.
    pub left_bytes: u64,
}

/// The mapping.
pub(super) struct Counters {
    start: NonNull<AtomicU64>,
    entries: usize,
}

// SAFETY: the mapping belongs to the value and is only read, by atomic loads.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Counters {
    /// Maps a map of so many times `struct counts`, or others of as many bytes.
    pub(super) fn map(map: BorrowedFd<'_>, entries: usize) -> io::Result<Self> {
        // SAFETY: a new mapping of the kernel's choice, which nothing else knows; it is only read.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), entries * BYTES, libc::PROT_READ, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).map(|start| Self { start, entries }).ok_or_else(|| io::Error::other("mapped at 0"))
    }

    /// Counters of a slot; each is read at its own moment.
    pub(super) fn read(&self, slot: u32) -> Counts {
        let number = |at: usize| self.number(slot, at);
        Counts {
            packets: number(0),
            frames: number(1),
            bytes: number(2),
            wire_bytes: number(3),
            spoofed_packets: number(4),
            spoofed_bytes: number(5),
            above_bytes: number(6),
            left_bytes: number(7),
        }
    }

    /// One number of a slot.
    pub(super) fn number(&self, slot: u32, at: usize) -> u64 {
        let (slot, at) = ((slot as usize).min(self.entries - 1), at.min(NUMBERS - 1));
        // SAFETY: `slot` and `at` lie in the mapping, which lives as long as `self` and is aligned to a page.
        unsafe { self.start.add(slot * NUMBERS + at).as_ref() }.load(Ordering::Relaxed)
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `map`, and nothing points into it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.entries * BYTES) };
    }
}
