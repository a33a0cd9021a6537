//! All tests from outside, in one program. A file has its line here.

#![allow(missing_docs)]
// Fixtures are files, and times are measured around the model.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod common;

mod guest_change;
mod hostile_change;
mod papers;
mod policy;
mod policy_fuzz;
mod proxmox_change;
mod study;
