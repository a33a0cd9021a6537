//! The guard: what keeps each guest's guaranteed bandwidth in force on a host.
//!
//! [`desired`] computes, as a pure function, what is to be in force; a [plane](planes) puts it in force; [`core`] keeps
//! both together and runs the control loop of the plane, in the thread of [`daemon`]; [`demand`] derives from counters
//! who wanted how much; [`groups`] limits the processors and the memory of guests, [`memory`] moves it between them.
//! [`undo_log`] records what was there before a change, before it is made; [`namespace_lock`] keeps a second guard out.
//! [`manager`] is what may be asked of all this, over [`api`]; [`metrics`] is for Prometheus.
//!
//! It starts no program and prints nothing (`clippy.toml`); what needs a process of its own is an I/O task of
//! `vmio_node`, which is this program once more.

// What is tested is set up by other means; the build without tests is held to clippy.toml all the same.
#![cfg_attr(test, allow(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod api;
pub mod core;
pub mod daemon;
pub mod demand;
pub mod desired;
pub mod groups;
pub mod interface;
pub mod manager;
pub mod memory;
pub mod metrics;
pub mod namespace_lock;
pub mod observed;
pub mod planes;
pub mod service;
pub mod source;
#[cfg(test)]
mod testing;
pub mod undo_log;
