//! What runs on any machine that vmio measures: commands with limits, files, timed reading
//! of `/proc` and `/sys`, and the journal of changes.
//!
//! A [`Node`] is a machine. [`local::Local`] is this one; [`remote::Remote`] is one reached by
//! `vmio-agent` over a byte stream (virtio-serial to a guest, later ssh and consoles). The node
//! is dumb on purpose: what a sample means is decided in `vmio-host` and `vmio-model`.

mod change;
mod child;
mod journal;
mod local;
pub mod machine;
mod node;
mod recover;
mod sampler;

pub use change::{Change, SCRATCH_MARKER};
pub use journal::{ChangeId, Journal};
pub use local::Local;
pub use node::*;
pub use recover::{Recovered, leftovers, recover};
