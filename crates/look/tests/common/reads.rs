//! The work of a scan as a number of read calls, which does not depend on the machine's speed.

/// A scan: the number of its guests, and of this process's read(2) calls (proc_pid_io(5), `syscr`).
#[derive(Debug, Clone, Copy)]
pub struct Looked {
    guests: usize,
    calls: u64,
}

/// The result of a scan, with its work.
pub fn during<T>(look: impl FnOnce() -> T, guests: impl FnOnce(&T) -> usize) -> (T, Looked) {
    let before = calls();
    let seen = look();
    let calls = calls() - before;
    let guests = guests(&seen);
    (seen, Looked { guests, calls })
}

fn calls() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("the kernel counts what a process reads");
    let line = io.lines().find_map(|l| l.strip_prefix("syscr: ")).expect("it counts the calls");
    line.parse().expect("a number")
}

/// Asserts that the work for each guest does not grow with their number. Reading every other guest for each one would
/// double it; the rest allows for guests of other tests, which take more.
#[track_caller]
pub fn are_the_same_for_each(few: Looked, many: Looked) {
    let each = |looked: Looked| looked.calls as f64 / looked.guests as f64;
    assert!(many.guests > few.guests * 2 && each(few) > 1.0, "{few:?}, {many:?}");
    assert!(each(many) < each(few) * 1.6, "{few:?}, {many:?}");
}
