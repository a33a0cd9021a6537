//! All tests that need root or guests, in one program. Each file has its line here.

#![allow(missing_docs)]
// The tests start programs, which the crate itself must not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "common/reads.rs"]
mod reads;
#[path = "common/stand_in.rs"]
mod stand_in;

mod guest_disks;
mod guest_monitor;
mod guest_monitor_change;
mod guest_running;
mod root_containers;
mod root_libvirt;
