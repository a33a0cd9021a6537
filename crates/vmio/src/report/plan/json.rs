//! The plan for programs.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::cell::Baseline;
use vmio_model::result::Skipped;
use vmio_model::study::Plan;

use vmio_rig::disks::targets;
use vmio_rig::engine::plan::Held;

/// What a run would do and cost; nothing was measured.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    pub(super) schema_version: &'static str,
    /// Name of the study.
    pub(super) study: &'a str,
    /// Its title.
    pub(super) title: &'a str,
    /// What is to be said of it, a sentence each.
    pub(super) told: &'a [String],
    /// Why this form of the study was chosen; `None` where it was asked for.
    pub(super) form: Option<&'a str>,
    /// Where targets are made, as `--on` names it, or the other machine that is measured; this and what follows of it is `None` where no cell is on a
    /// disk.
    pub(super) place: Option<&'a str>,
    /// The scratch directory.
    pub(super) directory: Option<&'a Path>,
    /// The machine at the other end of the network `wire`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer: Option<String>,
    /// What is to be said of it: where its servers listen if not at the address that leads there, and which programs are of
    /// another version there; a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) peer_told: Vec<String>,
    /// The disks below, in words.
    pub(super) backing: Option<String>,
    /// The user's own device (`--device`).
    pub(super) device: Option<Device<'a>>,
    /// What cells are compared with.
    pub(super) baseline: &'a Baseline,
    /// What it costs.
    pub(super) cost: &'a Plan,
    /// Whether the rates behind it were measured here before, in words.
    pub(super) rates_from: &'a str,
    /// Space left there, or why it does not suffice, in words.
    pub(super) space: Option<String>,
    /// Whether other guests are spared.
    pub(super) gentle: bool,
    /// Why their latency is not visible, so that the run does not end when they slow down; `None` where it is, and
    /// where nobody is spared.
    pub(super) latency_unseen: Option<String>,
    /// How each side is held to its cores and memory, in words.
    pub(super) held: &'a Held,
    /// File of the kernel that guests boot, where the user names it.
    pub(super) guest_kernel: Option<&'a Path>,
    /// Guests that run here beside vmio's own.
    pub(super) other_guests: Vec<String>,
    /// Cells that cannot run here.
    pub(super) skipped: Vec<Skipped>,
}

/// A device whose data would be lost.
#[derive(Serialize, JsonSchema)]
pub struct Device<'a> {
    /// As it was named.
    pub(super) path: &'a Path,
    /// The device node behind that.
    pub(super) node: &'a Path,
    /// What tells it from other disks.
    pub(super) identity: Identity<'a>,
    /// What could not be seen of its users.
    pub(super) not_seen: &'a [String],
}

/// What tells one disk from another.
#[derive(Serialize, JsonSchema)]
pub(super) struct Identity<'a> {
    /// (major, minor).
    number: (u32, u32),
    /// Size in bytes.
    bytes: u64,
    /// Sequence number of the disk on this boot, from Linux 5.15 on.
    diskseq: Option<u64>,
    /// Serial number, as the disk tells it.
    serial: Option<&'a str>,
    /// World wide name, or what the kernel has in its place.
    wwn: Option<&'a str>,
    /// Model, for people.
    model: Option<&'a str>,
}

impl<'a> From<&'a targets::Identity> for Identity<'a> {
    fn from(of: &'a targets::Identity) -> Self {
        let targets::Identity { number, bytes, diskseq, serial, wwn, model } = of;
        let (serial, wwn, model) = (serial.as_deref(), wwn.as_deref(), model.as_deref());
        Self { number: *number, bytes: *bytes, diskseq: *diskseq, serial, wwn, model }
    }
}
