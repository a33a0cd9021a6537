//! What tests without root share; each uses what it needs.
#![allow(clippy::unwrap_used, dead_code)]

pub mod advice;
#[path = "figures.rs"]
pub mod figures;
#[path = "full.rs"]
pub mod full;
#[path = "recorded.rs"]
pub mod recorded;
#[path = "schema.rs"]
pub mod schema;
#[path = "../../../look/tests/common/stand_in.rs"]
pub mod stand_in;
#[path = "state_dir.rs"]
pub mod state_dir;
