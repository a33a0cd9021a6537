//! The paths that cells work over: each built once, before the first guest is booted that is plugged into it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context as _;
use vmio_model::cell::{Actor, Cell, Nic, Side, Subject};
use vmio_node::linux::net::Interfaces;
use vmio_node::{Node, Reader};

use super::Machine;
use crate::guests::{Guest, NicSpec};
use crate::nets::{self, Namespace, NetCtx, NetPath, Plug};
use crate::nics;

/// Each has a network of its own: the third number of its addresses.
const MOST_PATHS: usize = 256;

/// What tells paths apart: who uses it, which network it is of, how a guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathKey {
    side: Side,
    network: String,
    nic: Option<Nic>,
}

impl PathKey {
    /// That of an actor; `None` where it works over no path.
    pub(super) fn of(actor: &Actor) -> Option<Self> {
        let Subject::Path { network, nic, .. } = &actor.subject else { return None };
        Some(Self { side: actor.side.clone(), network: network.clone(), nic: nic.clone() })
    }
}

/// The paths of cells, each once; a guest that another one sends to has one, too.
fn keys(cells: &[Cell]) -> BTreeSet<PathKey> {
    cells.iter().flat_map(Cell::with_neighbours).filter_map(|actor| PathKey::of(&actor)).collect()
}

/// Why the paths of these cells cannot all be built.
pub fn too_many(cells: &[Cell]) -> Option<String> {
    let count = keys(cells).len();
    (count > MOST_PATHS)
        .then(|| format!("its cells work over {count} paths, and a run has {MOST_PATHS} at most: split the study"))
}

/// The namespace that plays the host, and the paths; `None` and none where no cell works over a path.
pub(super) fn build(
    node: &dyn Node,
    cells: &[Cell],
    wire: Option<(IpAddr, IpAddr)>,
) -> anyhow::Result<(Option<Namespace>, BTreeMap<PathKey, NetPath>)> {
    let keys = keys(cells);
    if keys.is_empty() {
        return Ok((None, BTreeMap::new()));
    }
    let host = Namespace::make(node)?;
    let mut paths: BTreeMap<PathKey, NetPath> = BTreeMap::new();
    // A container has one network, whatever paths lead there.
    let mut inner: BTreeMap<Side, Arc<Namespace>> = BTreeMap::new();
    for (number, key) in keys.into_iter().enumerate() {
        let network = nets::find(&key.network).with_context(|| format!("no network {}", key.network))?;
        let number = u8::try_from(number).with_context(|| format!("a run has {MOST_PATHS} paths at most"))?;
        let guest = key.nic.as_ref().map(|nic| nic.queues.unwrap_or(1));
        let of_same = || paths.iter().find(|(other, _)| other.network == key.network).map(|(_, path)| path);
        let first = if network.is_shared() { of_same() } else { None };
        let actor = match (guest, key.side.is_native()) {
            (None, false) => match inner.get(&key.side) {
                Some(namespace) => Some(Arc::clone(namespace)),
                None => {
                    let namespace = Arc::new(Namespace::make(node)?);
                    inner.insert(key.side.clone(), Arc::clone(&namespace));
                    Some(namespace)
                }
            },
            _ => None,
        };
        let ctx = NetCtx { node, host: &host, number, guest, actor: actor.as_ref(), first, wire };
        let path = network.build(&ctx).with_context(|| format!("cannot build a path of {}", key.network))?;
        paths.insert(key, path);
    }
    Ok((Some(host), paths))
}

/// What goes before a container's command so that it is in the network that its paths lead to; nothing where there are
/// none.
pub(super) fn of_container(paths: &BTreeMap<PathKey, NetPath>, side: &Side) -> Vec<String> {
    let mut mine = paths.iter().filter(|(key, _)| key.side == *side);
    mine.find_map(|(_, path)| path.native.as_ref()).map(|end| end.enter.clone()).unwrap_or_default()
}

/// A device of a guest, and where its end is.
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
    host: &dyn Reader,
) -> anyhow::Result<Vec<(String, BTreeMap<String, String>)>> {
    let (node, mut found) = (guest.node(), Vec::new());
    for Plugged { spec, plug, at } in nics {
        let interface = nets::bring_up(&*node, &spec.mac, plug)?;
        let mut set_up = nics::effective(&Interfaces::here(node.reader()), &interface);
        if spec.nic.vhost {
            let carried = guest.hypervisor().is_some_and(|h| h.has_vhost(host));
            set_up.insert(nics::VHOST.to_owned(), nics::on_or_off(carried));
        }
        if spec.nic.ring.is_some() {
            let told = guest.hypervisor().and_then(|h| h.property(&spec.tap, nics::RING_PROPERTY));
            set_up.extend(told.map(|ring| (nics::RING.to_owned(), ring.to_string())));
        }
        let model = nics::find(&spec.nic.model).with_context(|| format!("no network device {}", spec.nic.model))?;
        let differs = |e: String| anyhow::anyhow!("{name} did not set up {} as asked: {e}", spec.nic.label());
        model.readback(&spec.nic, &set_up).map_err(differs)?;
        found.push((at.clone(), set_up));
    }
    Ok(found)
}

impl Machine<'_> {
    /// Looks whether the peer of a cell that failed is still there. Without it every cell over a path to it fails, which
    /// says nothing of any.
    pub(super) fn look_for_peer(&mut self, cell: &Cell) {
        let Some(peer) = self.peer.as_ref().filter(|_| cell.actors().any(nets::is_over_wire)) else { return };
        if let Err(e) = peer.node.clock_seconds() {
            self.lost = Some(format!(
                "the machine at the other end of the network wire does not answer: {e}; once it can be reached, --resume \
                 with the same --peer goes on"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_counted_once_whatever_works_over_it_and_there_are_so_many() {
        let on = |nth: u32, workload: &str, peer: &str| {
            let subject = Subject::Path { network: "uplink".into(), peer: peer.into(), nic: None };
            Cell::of(Side { nth, ..Side::native() }, subject, workload)
        };
        let mut cells: Vec<Cell> = (0..256).map(|nth| on(nth, "iperf3-tcp", "host")).collect();
        cells.extend((0..256).map(|nth| on(nth, "iperf3-udp", "remote")));
        assert_eq!((keys(&cells).len(), too_many(&cells)), (256, None));
        cells.push(on(256, "iperf3-tcp", "host"));
        assert!(too_many(&cells).is_some_and(|why| why.contains("257 paths") && why.contains("256 at most")));
    }
}
