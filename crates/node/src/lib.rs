//! What runs on any machine that vmio measures: commands with limits, files, timed reading
//! of `/proc` and `/sys`, and the journal of changes.
//!
//! A [`Node`] is a machine. [`Local`] is this one; [`Remote`] is one reached by
//! `vmio-agent` over a byte stream (virtio-serial to a guest, [`ssh`], [`libvirt`]). The node
//! is dumb on purpose: what a sample means is decided in `vmio-rig`, `vmio-look` and `vmio-model`.

pub mod agent;
pub mod cpu;
pub mod device_safety;
pub mod ethtool;
pub mod fake;
pub mod group;
pub mod helper;
pub mod io_worker;
mod journal;
pub mod libvirt;
pub mod linux;
mod local;
pub mod machine;
pub mod netlink;
mod node;
pub mod qmp;
pub mod reach;
pub mod ssh;
pub mod tap;
pub mod udp;

pub use agent::remote::Remote;
pub use agent::stream::Halves;
pub use agent::{Agent, container, init, stream};
pub use device_safety::RemoteDevice;
pub use fake::Fake;
pub use helper::proto;
pub use journal::change::{Change, SCRATCH_MARKER, TRACE_PREFIX, remove_trace_instance};
pub use journal::recover::{Recovered, dir_mark, leftovers, private_dir, recover};
pub use journal::trust::trusted_dir;
pub use journal::volume::{RBD_OWNER, Volume, VolumeKind, ZFS_OWNER};
pub use journal::{
    ChangeId, Journal, aoe_disk, balloon, held, histograms, loops, mapped, nvme_export, reaper, undo_log,
};
pub use local::{LOCAL, Local};
pub use node::opened::{At, CowFilesystem, Extents, FileIdentity, FileLayout, Opened, Peek};
pub use node::programs::find_program;
pub use node::question::{NetworkAnswer, NetworkQuestion, NoMonitor, Question, Questions, Unanswered};
pub use node::*;

/// All that is done in a process of its own: its storage may never answer, or it holds a descriptor of another process.
pub(crate) static IO_TASKS: [&io_worker::IoTask; 3] = [&local::look::LOOK, &journal::io_task::UNDO, &tap::SEND_BUFFER];
