//! All tests that need root, in one program. A file has its line here.

#![allow(missing_docs)]

#[path = "common/machine.rs"]
mod help;

mod root_alerts;
mod root_btrfs;
mod root_budget;
mod root_container;
mod root_device;
mod root_doctor;
mod root_experiment;
mod root_explain;
mod root_faults;
mod root_guard;
mod root_guard_asked;
mod root_guard_breach;
mod root_guard_churn;
mod root_guard_conflict;
mod root_guard_endurance;
mod root_guard_guests;
mod root_guard_hostile;
mod root_guard_steps;
mod root_hostile_place;
mod root_loops;
mod root_object_store;
mod root_package;
mod root_peer;
mod root_peers;
mod root_places;
mod root_scan;
mod root_scan_elsewhere;
mod root_silent;
mod root_ssh;
mod root_ssh_faults;
mod root_top_journal;
mod root_top_kinds;
mod root_top_load;
mod root_volumes;
