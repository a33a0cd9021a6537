//! Whether standard output was closed (`vmio scan >&-`). Rust's start-up code puts /dev/null where one of the
//! three standard descriptors is closed, so that what is written there is lost without a word: it has to be
//! looked at before that, among the functions that the loader calls first (`.init_array`, System V ABI,
//! "Initialization and Termination Functions").

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the program began.
pub(super) fn stdout() -> bool {
    // This use keeps the linker from dropping the function.
    std::hint::black_box(&CHECK);
    CLOSED.load(Ordering::Relaxed)
}

// SAFETY: the section holds pointers to functions of this form; this one makes one system call and stores
// an atomic, which needs nothing that is not there before `main`.
#[unsafe(link_section = ".init_array")]
#[used]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    // SAFETY: the number is used for this call alone, which only asks whether it is open.
    let out = unsafe { BorrowedFd::borrow_raw(1) };
    CLOSED.store(rustix::io::fcntl_getfd(out) == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
}
