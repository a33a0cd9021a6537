//! The paths that cells work over: each built once, before the first guest is booted that is plugged into it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use vmio_model::cell::{Actor, Cell, Nic, Side, Subject};
use vmio_model::read_at::ReadAt;
use vmio_node::Node;
use vmio_node::linux::net::Interfaces;

use crate::disks::targets::{self, Prepared, own_client};
use crate::guests::{Guest, NicSpec};
use crate::nets::{self, Namespace, NetCtx, NetPath, Plug};
use crate::nics;
use crate::nodes::Nodes;
use crate::workloads;

/// Each has a network of its own: the third number of its addresses.
const MOST_PATHS: usize = 256;

/// What tells paths apart: who uses it, which network it is of, how a guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PathKey {
    side: Side,
    network: String,
    nic: Option<Nic>,
}

impl PathKey {
    /// That of an actor; `None` where it works over no path. A guest that reaches its target by itself has a card for it,
    /// and the target is its network. A part of a disk's workload may be on another host.
    fn of(actor: &Actor) -> Option<Self> {
        let (network, nic) = match &actor.subject {
            Subject::Path { network, nic, .. } => (network.clone(), nic.clone()),
            Subject::Disk { target, .. } => {
                let card = Nic::new(nics::VIRTIO_NET.name);
                match workloads::find(&actor.workload).and_then(|workload| workload.other_host()) {
                    Some(other) => (other.network.to_owned(), (!actor.side.shares_kernel()).then_some(card)),
                    None => {
                        own_client::of(actor)?;
                        (target.clone(), Some(card))
                    }
                }
            }
            Subject::Machine => return None,
        };
        Some(Self { side: actor.side.clone(), network, nic })
    }
}

/// Whether a guest has a card for an actor: its hypervisor is then in a network of vmio's own.
pub fn has_card(actor: &Actor) -> bool {
    PathKey::of(actor).is_some_and(|key| key.nic.is_some())
}

/// The paths of cells, each once; a guest that another one sends to has one, too.
fn keys(cells: &[Cell]) -> BTreeSet<PathKey> {
    cells.iter().flat_map(Cell::with_neighbours).filter_map(|actor| PathKey::of(&actor)).collect()
}

/// The targets of these cells that another host serves, each over a link that has a number, too.
fn over_link(cells: &[Cell]) -> BTreeSet<&str> {
    let is_over_link = |name: &&str| targets::find(name).is_some_and(|target| target.over_link());
    cells.iter().flat_map(Cell::targets).filter(is_over_link).collect()
}

/// Why the paths of these cells cannot all be built.
pub fn unbuildable(cells: &[Cell]) -> Option<String> {
    too_many(cells).or_else(|| not_one_network(cells))
}

fn too_many(cells: &[Cell]) -> Option<String> {
    let count = keys(cells).len() + over_link(cells).len();
    (count > MOST_PATHS)
        .then(|| format!("its cells work over {count} paths, and a run has {MOST_PATHS} at most: split the study"))
}

/// Why the network that actors share cannot be one with the link to what serves a disk of these cells.
fn not_one_network(cells: &[Cell]) -> Option<String> {
    let actors: Vec<Actor> = cells.iter().flat_map(Cell::with_neighbours).collect();
    let shares = |actor: &&Actor| matches!(&actor.subject, Subject::Path { network, .. } if is_shared(network));
    let (sharing, served) = (actors.iter().filter(shares), over_link(cells));
    if served.is_empty() || sharing.clone().next().is_none() {
        return None;
    }
    if served.len() > 1 {
        let names = served.into_iter().collect::<Vec<_>>().join(", ");
        return Some(format!("actors share the link to a disk's server, and {names} have one each: split the study"));
    }
    let ends = |actor: &Actor| match &actor.subject {
        Subject::Path { peer, .. } => peer == nets::NEIGHBOUR || actor.co_sender() == Some(nets::NEIGHBOUR),
        _ => false,
    };
    if sharing.clone().any(ends) {
        return Some("there is no end neighbour on the link to a disk's server: use remote or host".to_owned());
    }
    let by_itself = |side: &Side| actors.iter().any(|actor| actor.side == *side && own_client::of(actor).is_some());
    let both = sharing.map(|actor| &actor.side).find(|side| by_itself(side))?;
    Some(format!(
        "{both} would have two cards on one network, for its disk and for its path: let another guest have one (nth = 2)"
    ))
}

/// The namespace that plays the host; `None` where no cell works over a path or needs another host.
pub fn host(node: &dyn Node, cells: &[Cell]) -> nets::Result<Option<Arc<Namespace>>> {
    let needed = !over_link(cells).is_empty() || !keys(cells).is_empty();
    needed.then(|| Namespace::make(node).map(Arc::new)).transpose()
}

/// The paths that cells work over, and the namespace that plays the host.
#[derive(Default)]
pub struct Paths {
    pub host: Option<Arc<Namespace>>,
    all: BTreeMap<PathKey, NetPath>,
}

impl Paths {
    /// Builds those of cells. Some lead to what serves one of these targets.
    pub fn build(
        node: &dyn Node,
        cells: &[Cell],
        host: Option<Arc<Namespace>>,
        nodes: &Nodes,
        targets: &BTreeMap<String, Box<dyn Prepared>>,
    ) -> anyhow::Result<Self> {
        let mut all: BTreeMap<PathKey, NetPath> = BTreeMap::new();
        // A container has one network, whatever paths lead there.
        let mut inner: BTreeMap<Side, Arc<Namespace>> = BTreeMap::new();
        // The link that a path is joined to: that to what serves a target. A network that all share is one with it.
        let link_of = |key: &PathKey| match targets.get(&key.network) {
            Some(target) => target.link(),
            None if is_shared(&key.network) => targets.values().find_map(|target| target.link()),
            None => None,
        };
        for (number, key) in keys(cells).into_iter().enumerate() {
            let host = host.as_deref().context("no namespace plays the host")?;
            let number = u8::try_from(number).with_context(|| format!("a run has {MOST_PATHS} paths at most"))?;
            let guest = key.nic.as_ref().map(|nic| nic.queues.unwrap_or(1));
            let of_same = || all.iter().find(|(other, _)| other.network == key.network).map(|(_, path)| path);
            let first = if is_shared(&key.network) { of_same() } else { None };
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
            let ctx = NetCtx { node, host, number, guest, actor: actor.as_ref(), first, nodes };
            let is_on =
                |other: &PathKey, link: &NetPath| link_of(other).is_some_and(|theirs| std::ptr::eq(theirs, link));
            let path = match (link_of(&key), nets::find(&key.network)) {
                (Some(link), network) => {
                    let nth = all.keys().filter(|other| is_on(other, link)).count();
                    if network.is_some() { nets::join(&ctx, link, nth) } else { nets::plug_in(&ctx, link, nth) }
                }
                (None, network) => network.with_context(|| format!("no network {}", key.network))?.build(&ctx),
            };
            let path = path.with_context(|| format!("cannot build a path of {} for {}", key.network, key.side))?;
            all.insert(key, path);
        }
        Ok(Self { host, all })
    }

    /// That of an actor; `None` where it works over no path.
    pub fn of(&self, actor: &Actor) -> Option<&NetPath> {
        self.all.get(&PathKey::of(actor)?)
    }

    /// What goes before a command so that it runs in the namespace that plays the host.
    pub fn host_end(&self) -> Vec<String> {
        self.host.as_ref().map(|host| host.enter()).unwrap_or_default()
    }

    /// What goes before a container's command so that it is in the network that its paths lead to; nothing where there
    /// are none.
    pub fn of_container(&self, side: &Side) -> Vec<String> {
        let mut mine = self.all.iter().filter(|(key, _)| key.side == *side);
        mine.find_map(|(_, path)| path.native.as_ref()).map(|end| end.enter.clone()).unwrap_or_default()
    }

    /// The devices of a guest, each with where it is plugged in.
    pub fn of_guest(&self, side: &Side) -> Vec<Plugged<'_>> {
        let mine = self.all.iter().filter(|(key, _)| key.side == *side);
        let plugged = mine.filter_map(|(key, path)| Some((key, key.nic.clone()?, path.plug.as_ref()?)));
        plugged
            .map(|(key, nic, plug)| {
                let at = ReadAt::card(&key.network, side, &nic);
                let spec = NicSpec { nic, tap: plug.tap.clone(), mac: plug.mac.clone() };
                Plugged { spec, network: &key.network, plug, at }
            })
            .collect()
    }
}

/// A device of a guest, and where its end is.
pub struct Plugged<'a> {
    pub spec: NicSpec,
    /// The network that it lies on.
    network: &'a str,
    /// Where it is plugged in.
    plug: &'a Plug,
    /// What results know it by.
    at: ReadAt,
}

/// What a guest that has booted has made of its devices.
pub struct Addressed {
    /// How it has set them up, by the device's path, as `uplink/qemu/virtio-net`.
    pub set_up: Vec<(ReadAt, BTreeMap<String, String>)>,
    /// Those that lie on a network with others of its own.
    pub rivals: Vec<Rival>,
}

/// A device of a guest on a network that all paths share, and its name there.
pub struct Rival {
    network: String,
    nic: Nic,
    interface: String,
}

/// Gives the devices of a guest that has booted their addresses, and looks how it has set them up.
pub fn address(guest: &dyn Guest, name: &str, nics: &[Plugged<'_>]) -> anyhow::Result<Addressed> {
    let (node, mut all) = (guest.node(), Addressed { set_up: Vec::new(), rivals: Vec::new() });
    for Plugged { spec, network, plug, at } in nics {
        let interface = nets::bring_up(&*node, plug)?;
        let mut set_up = nics::effective(&Interfaces::here(node.reader()), &interface);
        set_up.extend(guest.card(&spec.tap));
        let model = nics::find(&spec.nic.model).with_context(|| format!("no network device {}", spec.nic.model))?;
        let differs = |e: nics::Unfit| anyhow::anyhow!("{name} did not set up {} as asked: {e}", spec.nic.label());
        model.readback(&spec.nic, &set_up).map_err(differs)?;
        all.set_up.push((at.clone(), set_up));
        if nics.iter().filter(|other| other.network == *network).count() > 1 && is_shared(network) {
            all.rivals.push(Rival { network: (*network).to_owned(), nic: spec.nic.clone(), interface });
        }
    }
    Ok(all)
}

fn is_shared(network: &str) -> bool {
    nets::find(network).is_some_and(|network| network.is_shared())
}

/// Has a guest work by the device that is meant, where others of its own lie on the same network.
pub fn turn_to(guest: &dyn Node, rivals: &[Rival], actor: &Actor) -> nets::Result<()> {
    let Subject::Path { network, nic: Some(nic), .. } = &actor.subject else { return Ok(()) };
    let there: Vec<&Rival> = rivals.iter().filter(|rival| rival.network == *network).collect();
    let (meant, others): (Vec<&Rival>, Vec<&Rival>) = there.into_iter().partition(|rival| rival.nic == *nic);
    let others: Vec<&str> = others.iter().map(|rival| rival.interface.as_str()).collect();
    meant.into_iter().try_for_each(|meant| nets::turn_to(guest, &meant.interface, &others))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use vmio_model::cell::{Aio, Attachment, Cache};
    use vmio_model::study::Study;
    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn a_path_is_counted_once_whatever_works_over_it_and_there_are_so_many() {
        let on = |nth: u32, workload: &str, peer: &str| {
            let subject = Subject::path("uplink", peer, None);
            Cell::of(Side { nth, ..Side::native() }, subject, workload)
        };
        let mut cells: Vec<Cell> = (0..256).map(|nth| on(nth, "iperf3-tcp", "host")).collect();
        cells.extend((0..256).map(|nth| on(nth, "iperf3-udp", "remote")));
        assert_eq!((keys(&cells).len(), too_many(&cells)), (256, None));
        cells.push(on(256, "iperf3-tcp", "host"));
        assert!(too_many(&cells).is_some_and(|why| why.contains("257 paths") && why.contains("256 at most")));
    }

    #[test]
    fn a_workload_on_a_disk_with_a_part_on_another_host_has_a_path() {
        let of = |side: &str, target: &str, workload: &str| {
            PathKey::of(&Cell::on(side, target, None, workload).lead).map(|key| (key.network, key.nic))
        };
        let card = Some(Nic::new("virtio-net"));
        assert_eq!(of("qemu", "device", "dfsio-hdfs-remote"), Some(("uplink".to_owned(), card.clone())));
        assert_eq!(of("native", "device", "dfsio-hdfs-remote"), Some(("uplink".to_owned(), None)));
        assert_eq!(of("qemu", "device", "dfsio-hdfs"), None);
        assert_eq!(of("qemu", "nbd", "seq-write"), Some(("nbd".to_owned(), card)));
        let sides = ["qemu", "native"].map(|side| has_card(&Cell::on(side, "device", None, "dfsio-hdfs-remote").lead));
        assert_eq!(sides, [true, false]);
    }

    #[test]
    fn the_network_that_actors_share_is_the_link_to_one_server() {
        let disk = |nth: u32, target: &str| {
            let mut cell = Cell::on("qemu", target, None, "seq-write");
            cell.lead.side.nth = nth;
            cell
        };
        let path = |nth: u32, network: &str, peer: &str| {
            let subject = Subject::path(network, peer, Some(Nic::new("virtio-net")));
            Cell::of(Side { nth, ..Side::of("qemu") }, subject, "iperf3-tcp")
        };
        let said = |cells: &[Cell]| not_one_network(cells).unwrap_or_default();
        assert_eq!(said(&[disk(0, "nbd"), path(1, "shared", "remote"), path(1, "uplink", "remote")]), "");
        assert_eq!(said(&[disk(0, "nbd"), disk(0, "iscsi"), path(0, "uplink", "remote")]), "", "networks of their own");
        assert_eq!(said(&[path(0, "shared", "neighbour")]), "", "no disk");
        let two = said(&[disk(0, "nbd"), disk(0, "iscsi"), path(1, "shared", "host")]);
        assert!(two.contains("iscsi, nbd have one each"), "{two}");
        assert!(said(&[disk(0, "nbd"), path(1, "shared", "neighbour")]).contains("no end neighbour"));
        let cards = said(&[disk(0, "nbd"), path(0, "shared", "remote")]);
        assert!(cards.starts_with("qemu would have two cards on one network"), "{cards}");
        let driver = Attachment::new("virtio-blk", Cache::None, Aio::Threads);
        let by_host = Cell::on("qemu", "nbd", Some(driver), "seq-write");
        assert_eq!(unbuildable(&[by_host, path(0, "shared", "remote")]), None, "its hypervisor has no card");
    }

    /// All guests of a run are there at once, and those on `shared` lie on one bridge.
    #[test]
    fn no_two_devices_of_a_run_have_one_hardware_address() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies");
        let mut most = 0;
        for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            let text = std::fs::read_to_string(&file).unwrap();
            let study = Study::parse(&file.display().to_string(), &text, &crate::names()).unwrap();
            let cells = study.cells();
            assert_eq!(not_one_network(&cells), None, "{}", file.display());
            let numbered = (0..=u8::MAX).zip(keys(&cells)).map(|(number, key)| {
                let (tap, address) = (format!("tap{number}"), [198, 19, 1, number].into());
                let plug =
                    key.nic.as_ref().map(|_| Plug { tap, mac: nets::mac(number), address, prefix: 16, mtu: None });
                (key, NetPath::to(plug))
            });
            let paths = Paths { host: None, all: numbered.collect() };
            let guests = crate::engine::bed::sides::sides(&cells);
            let devices: Vec<_> = guests.keys().flat_map(|side| paths.of_guest(side)).collect();
            let distinct: BTreeSet<&str> = devices.iter().map(|device| device.spec.mac.as_str()).collect();
            assert_eq!(distinct.len(), devices.len(), "{}", file.display());
            assert!(distinct.iter().all(|mac| mac.starts_with("52:54:00:") && mac.len() == 17), "{distinct:?}");
            most = most.max(devices.iter().filter(|device| device.network == "shared").count());
        }
        assert!(most >= 3, "a study has several guests on one bridge: {most}");
    }

    /// The others are taken down before the one that is meant comes up, once.
    #[test]
    fn the_device_that_is_meant_is_the_only_one() {
        let rival = |model: &str, interface: &str| Rival {
            network: "shared".into(),
            nic: Nic::new(model),
            interface: interface.into(),
        };
        let rivals = [rival("e1000", "eth0"), rival("virtio-net", "eth1")];
        let subject = |nic: &str| Subject::path("shared", "host", Some(Nic::new(nic)));
        let actor = |nic: &str| Cell::of(Side::of("qemu"), subject(nic), "iperf3-tcp").lead;
        let guest = || Fake::new("guest").installed("ip").command(|_| Some(says("")));
        let both = guest().file("/sys/class/net/eth0/carrier", "1\n").file("/sys/class/net/eth1/carrier", "1\n");
        let lines = |guest: &Fake| guest.ran().iter().map(|cmd| cmd.args.join(" ")).collect::<Vec<_>>();
        turn_to(&both, &rivals, &actor("virtio-net")).unwrap();
        assert_eq!(lines(&both), ["link set eth0 down"]);
        let one = guest().file("/sys/class/net/eth1/carrier", "1\n");
        turn_to(&one, &rivals, &actor("virtio-net")).unwrap();
        assert_eq!(lines(&one), [""; 0], "it is the only one already");
        turn_to(&one, &[], &actor("e1000")).unwrap();
        assert_eq!(lines(&one), [""; 0], "a guest with one card is left alone");
    }
}
