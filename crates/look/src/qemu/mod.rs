//! QEMU's command line and threads, seen from outside.

pub mod options;
pub mod rings;
pub mod threads;
