//! All integration tests, in one program. Each file has its line here.

#![allow(missing_docs)]
// Tests read fixtures and measure times, which the crate itself must not.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod common;

mod guest_change;
mod hostile_change;
mod papers;
mod policy;
mod policy_fuzz;
mod proxmox_change;
mod study;
