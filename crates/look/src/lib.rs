//! Looks at the guests of a host and at the host itself, and cannot change either: it is handed a
//! reader and a closed list of questions ([`vmio_node::Questions`]), and `clippy.toml` of this crate
//! forbids what writes, starts programs or keeps a journal. The one exception is [`trace`]: its eBPF
//! programs end with the process that loaded them.

// What is tested is set up by other means; the build without tests is held to clippy.toml all the same.
#![cfg_attr(test, allow(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod backing;
mod host_view;
pub mod images;
pub mod kinds;
pub mod managers;
pub mod neighbours;
pub mod parallel;
pub mod policing;
pub mod qemu;
pub mod require;
pub mod scan;
pub mod storage;
pub mod top;
pub mod trace;

pub use host_view::*;
