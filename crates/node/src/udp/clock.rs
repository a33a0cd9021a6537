//! The one clock of the generator and its receiver: `CLOCK_MONOTONIC`, in ns.

use std::num::NonZeroU64;

use rustix::thread::{ClockId, clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{Timespec, clock_gettime};

use super::SECOND_NS;

/// Now.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // It counts from the machine's start: neither part is ever negative.
    now.tv_sec.unsigned_abs() * SECOND_NS + now.tv_nsec.unsigned_abs()
}

/// Sleeps until then, or until a signal comes.
pub(super) fn sleep_until(at_ns: u64) {
    let until = Timespec { tv_sec: (at_ns / SECOND_NS) as i64, tv_nsec: (at_ns % SECOND_NS) as i64 };
    // Whoever sleeps looks at the clock afterwards.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

/// Above all ordinary programs, and below whoever else asks for real time.
const PRIORITY: libc::c_int = 1;

/// Asks the kernel not to put timers off, which may come 50 us late else (prctl(2), `PR_SET_TIMERSLACK`), and for
/// real-time priority (sched(7)): whether it has that. What measures waits for no other program, else its own lateness
/// is what is measured; it never spins, and the kernel leaves other programs their share of a processor that it would
/// fill (`sched_rt_runtime_us`).
pub(super) fn be_punctual() -> bool {
    // Refused, timers are late by that much, which is well below what counts as late.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let parameter = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the call reads one `sched_param`, which lives until it returns.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

/// Which clock this is: times of two programs can be compared where this is the same and not 0. It is the kernel's
/// boot (random(4), `boot_id`) with the time namespace, which has an offset of its own (time_namespaces(7)).
pub(super) fn which() -> u64 {
    let Ok(boot) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") else { return 0 };
    let space = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    // FNV-1a (draft-eastlake-fnv).
    let text = format!("{}{}", boot.trim(), space.display());
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}
