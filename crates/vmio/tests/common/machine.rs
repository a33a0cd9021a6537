//! What tests with root and guests share; each uses what it needs.
#![allow(clippy::unwrap_used, dead_code)]

#[path = "attacked.rs"]
pub mod attacked;
#[path = "disk.rs"]
pub mod disk;
#[path = "../../../guard/tests/common/frames.rs"]
pub mod frames;
#[path = "guarded.rs"]
pub mod guarded;
#[path = "live.rs"]
pub mod live;
#[path = "schema.rs"]
pub mod schema;
#[path = "silent.rs"]
pub mod silent;
#[path = "sshd.rs"]
pub mod sshd;
#[path = "../../../look/tests/common/stand_in.rs"]
pub mod stand_in;
#[path = "state_dir.rs"]
pub mod state_dir;
#[path = "tmux.rs"]
pub mod tmux;
#[path = "watched.rs"]
pub mod watched;
