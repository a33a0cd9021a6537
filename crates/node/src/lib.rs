//! What runs on any machine that vmio measures: commands with limits, files, timed reading
//! of `/proc` and `/sys`, and the journal of changes.
//!
//! A [`Node`] is a machine. [`local::Local`] is this one; [`remote::Remote`] is one reached by
//! `vmio-agent` over a byte stream (virtio-serial to a guest, later ssh and consoles). The node
//! is dumb on purpose: what a sample means is decided in `vmio-host` and `vmio-model`.

mod node;

pub use node::*;
