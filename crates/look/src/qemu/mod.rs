//! QEMU's command line and threads, seen from outside.

pub mod commands;
pub mod config;
pub mod instance;
pub mod options;
pub mod rings;
pub mod threads;
