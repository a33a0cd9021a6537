//! Networks: what builds a path between an actor and a peer, and names both ends.
//!
//! A path lies in network namespaces of vmio's own ([`Namespace`]): the one that plays the host, which guests
//! are plugged into, and others beside it. Nothing is added to the host's own network (but to a lab host's:
//! [`join_first`]), so no address, route or firewall rule of it can be in the way, or be changed. The namespaces are
//! held open by vmio alone: whatever ends it, the kernel takes them down with all that is in them, so there is nothing
//! to undo.
//!
//! Adding a network: a file with a type that implements [`Network`], and its line in [`ALL`].

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::{Missing, Requirement, program, root};
use vmio_model::cell::{Actor, Subject};
use vmio_node::{Exec, Node, Reader};

use crate::nodes::Nodes;

mod bridge;
mod error;
mod first;
mod in_guest;
mod loopback;
mod namespace;
mod path;
mod shared;
mod uplink;
mod veth;
mod wire;

pub use error::{Error, Result};
pub(crate) use first::LAB_HOST;
pub use first::{LAB_SETUP, join_first};
pub use in_guest::{bring_up, turn_to};
pub use namespace::Namespace;
pub use path::{NetEnd, NetPath, Plug, Port};

/// All networks, in the order in which they are shown.
pub const ALL: &[&dyn Network] =
    &[&loopback::Loopback, &veth::Veth, &bridge::Bridge, &uplink::Uplink, &shared::Shared, &wire::Wire];

/// The network of that name.
pub fn find(name: &str) -> Option<&'static dyn Network> {
    ALL.iter().copied().find(|n| n.name() == name)
}

/// Whether an actor works over what joins this host with another machine, which vmio does not build.
pub fn is_over_wire(actor: &Actor) -> bool {
    matches!(&actor.subject, Subject::Path { network, .. } if find(network).is_some_and(|network| !network.is_ours()))
}

/// Names of all peers that any network has.
pub fn peers() -> Vec<String> {
    let mut all: Vec<String> = ALL.iter().flat_map(|n| n.peers()).map(|p| (*p).to_owned()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Names of the networks that guests need no card for.
pub fn inside() -> Vec<String> {
    ALL.iter().filter(|n| n.is_inside()).map(|n| n.name().to_owned()).collect()
}

/// Why there is no wire where no machine was named.
pub const NO_PEER: &str = "no machine is named for the network wire: name one with --peer ssh://[USER@]HOST[:PORT]";
/// The peer that is the host which guests are on.
pub const HOST: &str = "host";
pub use vmio_model::cell::NEIGHBOUR;
/// The peer that is another host.
pub const REMOTE: &str = "remote";

/// Builds paths.
pub trait Network: Sync {
    /// Name in studies and results.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// What this machine must have.
    fn requirements(&self) -> &'static [Requirement] {
        &[IP, NSENTER, UNSHARE, ROOT]
    }
    /// Names of the other ends.
    fn peers(&self) -> &'static [&'static str];
    /// Whether a guest can be plugged in.
    fn takes_guests(&self) -> bool;
    /// Whether both ends are on the actor's own machine: a guest needs no card for it, and what serves is held to what the
    /// actor is held to.
    fn is_inside(&self) -> bool {
        false
    }
    /// Whether packets go over an interface whose MTU can be set.
    fn has_wire(&self) -> bool {
        true
    }
    /// The peers that lie behind a link between hosts, whose rate can be set.
    fn linked(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether all its paths of a run are one network, which those to come are added to ([`NetCtx::first`]).
    fn is_shared(&self) -> bool {
        false
    }
    /// Whether it is built in namespaces of vmio's own; else it is what is there, and nothing of it is set.
    fn is_ours(&self) -> bool {
        true
    }
    /// Builds the path of one actor.
    ///
    /// # Errors
    /// What could not be built.
    fn build(&self, ctx: &NetCtx<'_>) -> Result<NetPath>;
}

/// What a path is built from.
pub struct NetCtx<'a> {
    /// This machine.
    pub node: &'a dyn Node,
    /// The namespace that plays the host.
    pub host: &'a Namespace,
    /// The how-manieth path of the run, from 0: its interfaces and addresses are told apart by it.
    pub number: u8,
    /// Queues of the guest that is to be plugged in; `None` where the actor is native.
    pub guest: Option<u32>,
    /// The network namespace that the actor's end is put into; `None` where it gets one of its own.
    pub actor: Option<&'a Arc<Namespace>>,
    /// The path of a shared network that was built first; `None` where this is the first, or has a network of its own.
    pub first: Option<&'a NetPath>,
    /// The machines of the run: the peer of a wire is one.
    pub nodes: &'a Nodes,
}

/// The MTU of a link to another host ([`beside`]), in bytes. A connection's segments never become larger than what both of
/// its ends took when it was made, so it is made with the largest that cells may set; each cell sets its own.
pub const LINK_MTU: u32 = 9000;

/// Another host, which a namespace plays, behind the uplink of a bridge of its own: the path has no actor's end, this
/// host is the peer [`HOST`], the other one [`REMOTE`].
///
/// # Errors
/// What could not be built.
pub fn beside(node: &dyn Node, host: &Namespace) -> Result<NetPath> {
    let (nodes, number) = (&Nodes::default(), host.link_number());
    let ctx = NetCtx { node, host, number, guest: None, actor: None, first: None, nodes };
    let (bridge, mut path) = (ctx.interface("br"), NetPath::empty());
    bridge::made(&ctx, &bridge, ctx.addresses())?;
    path.between.push(bridge);
    uplink::lead_to_remote(&ctx, &mut path)?;
    let far = path.held.iter().map(|beside| &**beside).zip(path.peers.get(REMOTE).map(|end| &end.interface));
    for (namespace, interface) in far.chain(path.between.iter().map(|port| (host, port))) {
        namespace.ip(node, &[&format!("link set {interface} mtu {LINK_MTU}")])?;
    }
    Ok(path)
}

/// The addresses of actors on the bridge before another host begin here, those of its network's ends are below.
const FIRST_GUEST: u8 = 10;
const MOST_GUESTS: u8 = u8::MAX - FIRST_GUEST;

/// Makes the path of an actor that is one of those on the bridge before another host ([`beside`]), the `nth` there, from 0:
/// they share its uplink.
///
/// # Errors
/// What could not be built.
pub fn join(ctx: &NetCtx<'_>, link: &NetPath, nth: usize) -> Result<NetPath> {
    let no_room = || Error::NoRoom { most: MOST_GUESTS };
    let nth = u8::try_from(nth).ok().filter(|nth| *nth < MOST_GUESTS).ok_or_else(no_room)?;
    let here = link.peers.get(HOST).ok_or_else(no_room)?;
    let IpAddr::V4(address) = here.address else { return Err(no_room()) };
    let [first, second, third, _] = address.octets();
    let [host_end, actor, remote, neighbour] =
        [1, FIRST_GUEST + nth, 3, 4].map(|last| Ipv4Addr::new(first, second, third, last));
    let addresses = Addresses { host: host_end, actor, remote, neighbour, prefix: 24 };
    let mut path = bridge::plugged(ctx, &here.interface, addresses)?;
    path.peers = link.peers.clone();
    path.uplink = link.uplink.clone();
    // The ports of the bridge before it.
    let bridge = link.between.len().saturating_sub(1);
    path.between.splice(0..0, link.between[..bridge].iter().cloned());
    path.between.extend(link.between[bridge..].iter().cloned());
    Ok(path)
}

/// The same for a guest that reaches the other host's disk by itself: its card takes what the link does.
///
/// # Errors
/// What could not be built.
pub fn plug_in(ctx: &NetCtx<'_>, link: &NetPath, nth: usize) -> Result<NetPath> {
    let mut path = join(ctx, link, nth)?;
    if let Some(plug) = &mut path.plug {
        ctx.host.ip(ctx.node, &[&format!("link set {} mtu {LINK_MTU}", plug.tap)])?;
        plug.mtu = Some(LINK_MTU);
    }
    Ok(path)
}

/// The addresses of a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    host: Ipv4Addr,
    actor: Ipv4Addr,
    remote: Ipv4Addr,
    neighbour: Ipv4Addr,
    prefix: u8,
}

impl Addresses {
    /// As `ip address` takes one of them.
    fn with_prefix(&self, end: Ipv4Addr) -> String {
        format!("{end}/{}", self.prefix)
    }
}

impl NetCtx<'_> {
    /// The addresses of this path's own network: 1 is the host, 2 the actor, 3 another host, 4 a neighbour. The networks are of the
    /// range for measurements between networks (RFC 2544, 198.18.0.0/15), which no one routes.
    fn addresses(&self) -> Addresses {
        let [host, actor, remote, neighbour] = [1, 2, 3, 4].map(|end| Ipv4Addr::new(198, 18, self.number, end));
        Addresses { host, actor, remote, neighbour, prefix: 24 }
    }

    /// The addresses of this path in the network that paths share, which has the other half of that range.
    fn shared_addresses(&self) -> Addresses {
        let [host, remote, neighbour] = [1, 3, 4].map(|end| Ipv4Addr::new(198, 19, 0, end));
        Addresses { host, actor: Ipv4Addr::new(198, 19, 1, self.number), remote, neighbour, prefix: 16 }
    }

    /// The name of an interface of this path.
    fn interface(&self, kind: &str) -> String {
        format!("{kind}{}", self.number)
    }

    /// The host's end.
    fn host_end(&self, interface: &str) -> NetEnd {
        NetEnd { enter: self.host.enter(), address: self.addresses().host.into(), interface: interface.to_owned() }
    }

    /// The actor's namespace, where it is no guest that is plugged in, joined with the host's by a veth pair.
    fn actors(&self, here: &str, addresses: Addresses) -> Result<(Arc<Namespace>, NetEnd)> {
        match self.actor {
            // Others of its paths may end there.
            Some(actor) => self.joined(Arc::clone(actor), (here, &self.interface("eth")), addresses, addresses.actor),
            None => self.beside(here, "eth0", addresses, addresses.actor),
        }
    }

    /// A new namespace joined with the host's by a veth pair; the host's end is called as said, and has no address.
    fn beside(&self, here: &str, there: &str, addresses: Addresses, end: Ipv4Addr) -> Result<(Arc<Namespace>, NetEnd)> {
        self.joined(Arc::new(Namespace::make(self.node)?), (here, there), addresses, end)
    }

    fn joined(
        &self,
        beside: Arc<Namespace>,
        (here, there): (&str, &str),
        addresses: Addresses,
        end: Ipv4Addr,
    ) -> Result<(Arc<Namespace>, NetEnd)> {
        let path = beside.path();
        self.host.ip(self.node, &[&format!("link add {here} type veth peer name {there} netns {path}")])?;
        self.host.ip(self.node, &[&format!("link set {here} up")])?;
        let address = addresses.with_prefix(end);
        let lines = ["link set lo up", &format!("address add {address} dev {there}"), &format!("link set {there} up")];
        beside.ip(self.node, &lines)?;
        let end = NetEnd { enter: beside.enter(), address: end.into(), interface: there.to_owned() };
        Ok((beside, end))
    }

    /// A tap for the guest, as a port of a bridge.
    fn tap(&self, bridge: &str, queues: u32, addresses: Addresses) -> Result<Plug> {
        let tap = self.interface("tap");
        let many = if queues > 1 { " multi_queue" } else { "" };
        let lines = [
            format!("tuntap add dev {tap} mode tap{many}"),
            format!("link set {tap} master {bridge}"),
            format!("link set {tap} up"),
        ];
        self.host.ip(self.node, &lines.each_ref().map(String::as_str))?;
        Ok(Plug { tap, mac: mac(self.number), address: addresses.actor.into(), prefix: addresses.prefix, mtu: None })
    }
}

/// The hardware address of a guest's device on the path of this number: no other of the run has it, whichever guests lie
/// on one bridge. Locally administered (IEEE 802, bit 1 of the first octet); QEMU's own prefix.
pub(crate) fn mac(number: u8) -> String {
    format!("52:54:00:76:00:{number:02x}")
}

/// Has `ip` (ip(8)), as it is started there, do each of these lines; it stops at the first that fails.
fn ip(node: &dyn Node, program: &Exec, lines: &[&str]) -> Result<()> {
    for line in lines {
        let output = node.exec(&program.clone().args(line.split_whitespace()).limit(IP_LIMIT))?;
        if !output.ok() {
            return Err(Error::Ip { line: (*line).to_owned(), said: output.err().trim().to_owned() });
        }
    }
    Ok(())
}

/// How long `ip` may take: a guest under emulation is slow.
const IP_LIMIT: Duration = Duration::from_secs(20);
/// The programs that vmio itself runs in guests that have network devices.
pub const PROGRAMS: &[&str] = &["ip", "ethtool"];

pub(crate) const IP: Requirement = Requirement {
    name: "ip",
    why: "builds networks",
    fix: "apt install iproute2",
    check: |reader| program(reader, "ip"),
};
pub(crate) const NSENTER: Requirement = Requirement {
    name: "nsenter",
    why: "runs commands in a network namespace",
    fix: "apt install util-linux",
    check: |reader| program(reader, "nsenter"),
};
pub(crate) const UNSHARE: Requirement = Requirement {
    name: "unshare",
    why: "makes network namespaces",
    fix: "apt install util-linux",
    check: |reader| program(reader, "unshare"),
};
pub(crate) const ROOT: Requirement =
    Requirement { name: "root", why: "makes network namespaces", fix: "run vmio as root", check: root };
/// What a network that guests are plugged into needs beside.
pub(crate) const TUN: Requirement = Requirement {
    name: "/dev/net/tun",
    why: "is the host's end of a guest's network device",
    fix: "modprobe tun",
    check: |reader| there(reader, "/dev/net/tun"),
};

/// A device node: it is not opened, since some do something at that.
fn there(reader: &dyn Reader, path: &str) -> Result<(), Missing> {
    reader.stat(Path::new(path))?.map(drop).ok_or(Missing::NotThere)
}

/// What a device needs whose packets the host's kernel carries.
pub const VHOST: Requirement = Requirement {
    name: "/dev/vhost-net",
    why: "carries a guest's packets in the host's kernel",
    fix: "modprobe vhost_net (for good: echo vhost_net > /etc/modules-load.d/vhost_net.conf), or leave `vhost` out",
    check: |reader| there(reader, "/dev/vhost-net"),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_of_every_network() {
        for (i, network) in ALL.iter().enumerate() {
            let name = network.name();
            assert!(!name.contains([' ', ',', '/', '.', '+', '&', '@', '~']), "{name}: cell keys use these characters");
            assert!(ALL[..i].iter().all(|n| n.name() != name), "{name} twice");
            assert!(!network.about().is_empty() && !network.requirements().is_empty(), "{name}");
            assert!(!network.peers().is_empty(), "{name}");
            let tun = network.requirements().iter().any(|r| r.name == TUN.name);
            assert_eq!(tun, network.takes_guests(), "{name}");
            assert!(network.linked().iter().all(|peer| network.has_wire() && network.peers().contains(peer)), "{name}");
            assert_eq!(find(name).map(Network::name), Some(name));
        }
        assert_eq!(peers(), [HOST, NEIGHBOUR, wire::PEER, REMOTE]);
    }
}
