//! All tests that need root or boot real guests, in one program: a program for each file would take as long to build
//! as all of them together. A file has its line here.

#![allow(missing_docs)]

mod common;

mod guest_boot;
mod guest_cells;
mod guest_drivers;
mod guest_flash_cache;
mod guest_images;
mod guest_layers;
mod guest_nbd;
mod guest_nbd_faults;
mod guest_networks;
mod guest_object_store;
mod guest_served;
mod guest_volumes;
mod guest_workloads;
mod root_blocktrace;
mod root_calls;
mod root_cells;
mod root_components;
mod root_container;
mod root_cpu;
mod root_iostat;
mod root_limits;
mod root_modelled;
mod root_networks;
mod root_places;
mod root_settings;
mod root_targets;
mod root_watch;
