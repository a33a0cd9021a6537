//! All tests that boot real guests, in one program. A file has its line here.

#![allow(missing_docs)]

#[path = "common/machine.rs"]
mod help;

mod guest_arm;
mod guest_explain;
mod guest_guard;
mod guest_guard_host;
mod guest_guard_hostile;
mod guest_guard_memory;
mod guest_images;
mod guest_lab_guard;
mod guest_lab_host;
mod guest_libvirt;
mod guest_like;
mod guest_object_store;
mod guest_rescue;
mod guest_scan;
mod guest_scan_faults;
mod guest_schema;
mod guest_study_cpu;
mod guest_study_networks;
mod guest_study_places;
mod guest_tax;
