//! The guard: what keeps each guest's guaranteed bandwidth in force on a host.
//!
//! [`desired`] says, as a pure function, what is to be in force; a [plane](planes) puts it in force; [`core`] keeps
//! both together and runs the loop round the plane; [`daemon`] is the thread that does; [`demand`] says of what was counted
//! who wanted what; [`groups`] has what a guest is owed of processors and memory. [`undo_log`] is where it is written down what a
//! change was before it is made, [`alone`] keeps a second guard out. [`manager`] is what may be asked of all this, [`api`] how, [`metrics`] what Prometheus is told.
//!
//! It starts no program and prints nothing (`clippy.toml`); what needs a process of its own is an errand of
//! `vmio_node`, which is this program once more.

// What is tested is set up by other means; the build without tests is held to clippy.toml all the same.
#![cfg_attr(test, allow(clippy::disallowed_types, clippy::disallowed_methods))]

pub mod alone;
pub mod api;
pub mod core;
pub mod daemon;
pub mod demand;
pub mod desired;
pub mod found;
pub mod groups;
pub mod manager;
pub mod metrics;
pub mod observed;
pub mod planes;
pub mod service;
pub mod source;
#[cfg(test)]
mod testing;
pub mod undo_log;
