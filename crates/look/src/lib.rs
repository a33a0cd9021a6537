//! Reads guests and their host, and cannot change either: it has a reader and a closed list of questions
//! ([`vmio_node::Questions`]), and `clippy.toml` of this crate forbids writing files, starting programs and keeping a
//! journal. The one exception is [`trace`]: its eBPF programs end with the process that loaded them.

// Tests write files and start programs; the build without tests obeys clippy.toml.
#![cfg_attr(test, allow(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod backing;
mod behind;
mod host_state;
mod host_view;
pub mod images;
pub mod kinds;
pub mod limits;
pub mod managers;
pub mod neighbours;
pub mod ovs;
pub mod parallel;
pub mod policing;
pub mod qemu;
pub mod require;
pub mod scan;
pub mod storage;
pub mod top;
pub mod trace;
mod way;

pub use host_view::*;
