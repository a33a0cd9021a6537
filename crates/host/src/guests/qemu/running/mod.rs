//! QEMU guests that run on this host, whoever started them, as far as /proc and /sys show them.

pub mod options;
