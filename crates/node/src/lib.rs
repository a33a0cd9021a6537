//! What runs on any machine that vmio measures: commands with limits, files, timed reading
//! of `/proc` and `/sys`, and the journal of changes.
//!
//! A [`Node`] is a machine. [`Local`] is this one; [`Remote`] is one reached by
//! `vmio-agent` over a byte stream (virtio-serial to a guest, later ssh and consoles). The node
//! is dumb on purpose: what a sample means is decided in `vmio-rig`, `vmio-look` and `vmio-model`.

pub mod agent;
mod bounds;
mod change;
mod child;
mod client;
pub mod fake;
mod foreign;
pub mod held;
pub mod init;
mod journal;
pub mod linux;
mod local;
mod loops;
pub mod machine;
mod message;
mod node;
mod opened;
mod programs;
pub mod proto;
pub mod qmp;
mod question;
mod recover;
mod remote;
mod removal;
mod sampler;
mod session;
pub mod stream;
mod trust;
mod volume;
pub mod warden;

pub use agent::Agent;
pub use change::{Change, SCRATCH_MARKER, TRACE_PREFIX, remove_trace_instance};
pub use fake::Fake;
pub use journal::{ChangeId, Journal};
pub use local::Local;
pub use node::*;
pub use opened::{At, FileIdentity, Glance, Opened};
pub use programs::find_program;
pub use question::{NoMonitor, Question, Questions, Unanswered};
pub use recover::{Recovered, leftovers, private_dir, recover};
pub use remote::{Halves, Offset, Remote};
pub use volume::{RBD_OWNER, Volume, VolumeKind, ZFS_OWNER};
