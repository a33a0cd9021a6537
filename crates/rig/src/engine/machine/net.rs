//! The paths that cells work over: each built once, before the first guest is booted that is plugged into it.

use std::collections::BTreeMap;

use anyhow::Context as _;
use vmio_model::cell::{Actor, Cell, Nic, Side, Subject};
use vmio_node::Node;
use vmio_node::linux::net::Interfaces;

use crate::guests::{Guest, NicSpec};
use crate::nets::{self, Namespace, NetCtx, NetPath, Plug};
use crate::nics;

/// What tells paths apart: who uses it, which network it is of, how a guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathKey {
    pub(super) side: Side,
    pub(super) network: String,
    pub(super) nic: Option<Nic>,
}

impl PathKey {
    /// That of an actor; `None` where it works over no path.
    fn of(actor: &Actor) -> Option<Self> {
        let Subject::Path { network, nic, .. } = &actor.subject else { return None };
        Some(Self { side: actor.side.clone(), network: network.clone(), nic: nic.clone() })
    }
}

/// The namespace that plays the host, and the paths; `None` and none where no cell works over a path.
pub(super) fn build(
    node: &dyn Node,
    cells: &[Cell],
) -> anyhow::Result<(Option<Namespace>, BTreeMap<PathKey, NetPath>)> {
    let mut keys: Vec<PathKey> = Vec::new();
    for key in cells.iter().flat_map(Cell::actors).filter_map(PathKey::of) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Ok((None, BTreeMap::new()));
    }
    let host = Namespace::make(node)?;
    let mut paths = BTreeMap::new();
    for (number, key) in keys.into_iter().enumerate() {
        let network = nets::find(&key.network).with_context(|| format!("no network {}", key.network))?;
        let number = u8::try_from(number).context("a run has 256 paths at most")?;
        let guest = key.nic.as_ref().map(|nic| nic.queues.unwrap_or(1));
        let ctx = NetCtx { node, host: &host, number, guest };
        let path = network.build(&ctx).with_context(|| format!("cannot build a path of {}", key.network))?;
        paths.insert(key, path);
    }
    Ok((Some(host), paths))
}

/// A device of a guest.
pub(super) struct Plugged<'a> {
    pub(super) spec: NicSpec,
    /// Where it is plugged in.
    plug: &'a Plug,
    /// What results know it by.
    at: String,
}

/// The devices of a guest, each with where it is plugged in.
pub(super) fn of_guest<'a>(paths: &'a BTreeMap<PathKey, NetPath>, side: &Side) -> Vec<Plugged<'a>> {
    let mine = paths.iter().filter(|(key, _)| key.side == *side);
    let plugged = mine.filter_map(|(key, path)| Some((key, key.nic.clone()?, path.plug.as_ref()?)));
    plugged
        .enumerate()
        .map(|(i, (key, nic, plug))| {
            // Locally administered (IEEE 802, bit 1 of the first octet); QEMU's own prefix.
            let mac = format!("52:54:00:76:{:02x}:{:02x}", side.nth % 256, i % 256);
            let at = format!("{}/{side}/{}", key.network, nic.label());
            Plugged { spec: NicSpec { nic, tap: plug.tap.clone(), mac }, plug, at }
        })
        .collect()
}

/// Gives the devices of a guest that has booted their addresses, and looks how it has set them up: by the device's
/// path, as `uplink/qemu/virtio-net`.
pub(super) fn address(
    guest: &dyn Guest,
    name: &str,
    nics: &[Plugged<'_>],
) -> anyhow::Result<Vec<(String, BTreeMap<String, String>)>> {
    let (node, mut found) = (guest.node(), Vec::new());
    for Plugged { spec, plug, at } in nics {
        let interface = nets::bring_up(&*node, name, &spec.mac, plug)?;
        let set_up = nics::effective(&Interfaces::here(node.reader()), &interface);
        let model = nics::find(&spec.nic.model).with_context(|| format!("no network device {}", spec.nic.model))?;
        let differs = |e: String| anyhow::anyhow!("{name} did not set up {} as asked: {e}", spec.nic.label());
        model.readback(&spec.nic, &set_up).map_err(differs)?;
        found.push((at.clone(), set_up));
    }
    Ok(found)
}
