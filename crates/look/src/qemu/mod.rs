//! What QEMU shows of itself: its command line and its threads.

pub mod options;
pub mod rings;
pub mod threads;
