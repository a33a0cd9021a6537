//! All tests that need root, guests or what looks like one, in one program. A file has its line here.

#![allow(missing_docs)]
// What is tested here is set up by other means than a look has.
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
