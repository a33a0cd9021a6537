//! The work of a look in calls that read, which does not depend on how fast the machine is.

/// A look: how many guests it found, and how often this process called read(2) and its like for it
/// (proc_pid_io(5), `syscr`).
#[derive(Debug, Clone, Copy)]
pub struct Looked {
    guests: usize,
    calls: u64,
}

/// What a look returns, with its work.
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

/// What each guest takes does not grow with their number. One read of every other guest for each of these would
/// double it; guests of other tests that come meanwhile, and take more, are allowed for.
#[track_caller]
pub fn are_the_same_for_each(few: Looked, many: Looked) {
    let each = |looked: Looked| looked.calls as f64 / looked.guests as f64;
    assert!(many.guests > few.guests * 2 && each(few) > 1.0, "{few:?}, {many:?}");
    assert!(each(many) < each(few) * 1.6, "{few:?}, {many:?}");
}
