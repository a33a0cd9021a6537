//! QEMU guests that run on this host, whoever started them, as far as /proc and /sys show them.

mod monitor;
pub mod options;

pub use monitor::ask;
