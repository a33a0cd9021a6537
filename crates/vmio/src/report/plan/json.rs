//! The plan for programs.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::cell::Baseline;
use vmio_model::result::Skipped;
use vmio_model::study::Plan;
use vmio_rig::disks::targets;
use vmio_rig::engine::plan::{CgroupPlan, Planned};
use vmio_rig::probes::power::PowerChoice;

/// What a run would do and cost; nothing was measured.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// Version of this document.
    schema_version: &'static str,
    /// Name of the study.
    study: &'a str,
    /// Its title.
    title: &'a str,
    /// What is to be said of it, a sentence each.
    told: &'a [String],
    /// Why this form of the study was chosen; `None` where it was asked for.
    form: Option<&'a str>,
    /// Where targets are made, as `--on` names it, or the other machine that is measured; this and what follows of it is `None` where no cell is on a
    /// disk.
    place: Option<&'a str>,
    /// The scratch directory.
    directory: Option<&'a Path>,
    /// The machine at the other end of the network `wire`.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    /// What is to be said of it: where its servers listen if not at the address that leads there, and which programs are of
    /// another version there; a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    peer_told: Vec<String>,
    /// The disks below, in words.
    backing: Option<String>,
    /// The user's own device (`--device`).
    device: Option<Device<'a>>,
    /// What cells are compared with.
    baseline: &'a Baseline,
    /// What it costs.
    cost: &'a Plan,
    /// Whether the rates behind it were measured here before, in words.
    rates_from: &'a str,
    /// Space left there, or why it does not suffice, in words.
    space: Option<String>,
    /// Whether other guests are spared.
    gentle: bool,
    /// Why their latency is not visible, so that the run does not end when they slow down; `None` where it is, and
    /// where nobody is spared.
    latency_unseen: Option<String>,
    /// How each side is held to its cores and memory, in words.
    held: &'a CgroupPlan,
    /// Whether CPU time is told by component (`--components`).
    components: bool,
    /// Whether guests count the events of their block layers (`--layers`).
    layers: bool,
    /// The meters that the user names; `None` where none is named.
    meter: Option<Meter<'a>>,
    /// File of the kernel that guests boot, where the user names it.
    guest_kernel: Option<&'a Path>,
    /// Guests that run here beside vmio's own.
    other_guests: Vec<String>,
    /// Cells that cannot run here.
    skipped: Vec<Skipped>,
}

/// Meters that tell the power of this machine.
#[derive(Serialize, JsonSchema)]
struct Meter<'a> {
    /// Those of vmio (`--power`): `powercap`, `redfish:https://bmc`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    /// What a shell runs next to each cell, with the rights of vmio, as it was given (`--power-command`).
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
}

fn meter(power: &PowerChoice) -> Option<Meter<'_>> {
    let names: Vec<String> = power.meters.iter().map(ToString::to_string).collect();
    let any = !names.is_empty() || power.command.is_some();
    any.then_some(Meter { names, command: power.command.as_deref() })
}

/// A device whose data would be lost.
#[derive(Serialize, JsonSchema)]
struct Device<'a> {
    /// As it was named.
    path: &'a Path,
    /// The device node behind that.
    node: &'a Path,
    /// What tells it from other disks.
    identity: Identity<'a>,
    /// What could not be seen of its users.
    not_seen: &'a [String],
}

/// What tells one disk from another.
#[derive(Serialize, JsonSchema)]
struct Identity<'a> {
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

/// The plan for programs.
pub fn json(plan: &Planned) -> Document<'_> {
    let (placed, (machine, afar)) = (plan.placed.as_ref(), plan.nodes.measured().unzip());
    let (peer, ends) = plan.nodes.peer().unzip();
    Document {
        schema_version: "2.0",
        study: &plan.study.name,
        title: &plan.study.title,
        told: &plan.told,
        form: plan.form.as_deref(),
        place: placed.map(|p| p.place.name.as_str()).or(machine.map(|machine| machine.address.as_str())),
        directory: placed.map(|p| p.dir.as_path()).or(afar.map(|afar| afar.dir.as_path())),
        backing: placed.map(|p| p.backing.describe()),
        peer: peer.map(ToString::to_string),
        peer_told: ends.iter().flat_map(|ends| ends.served_at().into_iter().chain(ends.told.clone())).collect(),
        device: match (placed.and_then(|p| Some((p, p.device.as_ref()?))), afar.and_then(|afar| afar.device.as_ref())) {
            (Some((p, d)), _) => {
                Some(Device { path: &d.asked, node: &d.node, identity: (&d.identity).into(), not_seen: &p.device_told })
            }
            (None, Some(d)) => {
                Some(Device { path: &d.asked, node: &d.node, identity: (&d.identity).into(), not_seen: &d.told })
            }
            (None, None) => None,
        },
        baseline: &plan.study.baseline,
        cost: &plan.cost,
        rates_from: &plan.rates_from,
        space: placed.map(|_| plan.space.as_ref().map_or_else(ToString::to_string, String::clone)),
        gentle: plan.gentle,
        guest_kernel: plan.kernel.as_ref().map(|(kernel, _)| kernel.file.as_path()),
        latency_unseen: plan.latency_unseen.as_ref().map(ToString::to_string),
        held: &plan.cgroups,
        components: plan.study.components,
        layers: plan.study.layers,
        meter: meter(&plan.power),
        other_guests: plan.others.guests.iter().map(|g| g.label()).collect(),
        skipped: plan.skipped(),
    }
}
