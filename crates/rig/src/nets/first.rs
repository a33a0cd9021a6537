//! A way from vmio's own network namespace, the kernel's first, to the bridge before another host: for what a kernel does in
//! that one alone, such as ATA over Ethernet. Nothing is added to a host's own network; a lab host's is vmio's own.

use std::net::{IpAddr, Ipv4Addr};

use vmio_look::require::{Missing, Requirement};
use vmio_node::{Exec, Node};

use super::{Error, HOST, LINK_MTU, Namespace, NetEnd, NetPath, Result, ip, there};

/// What a lab host has below `/usr`, and no other host: its set-up.
pub const LAB_SETUP: &str = "lib/vmio-lab/setup";

/// The last number of its address on such a link: that of an actor.
const OWN: u8 = 2;

/// Where vmio may do so.
pub(crate) const LAB_HOST: Requirement = Requirement {
    name: "lab host",
    why: "has a network that vmio may add to, where the kernel does something in its first network namespace alone",
    fix: "have a lab host measure its native cells: vmio lab run -- vmio study run NAME --on /srv --yes",
    check: |reader| {
        let nothing = "this host's kernel is its client in the first network namespace alone, where vmio adds nothing";
        there(reader, &format!("/usr/{LAB_SETUP}")).map_err(|_| Missing::Unlike(nothing.to_owned()))
    },
};

/// Gives a link to another host ([`super::beside`]) a native end in vmio's own namespace, behind a port of the bridge. It
/// goes with the namespace that plays the host.
///
/// # Errors
/// What could not be built.
pub fn join_first(node: &dyn Node, host: &Namespace, link: &mut NetPath) -> Result<()> {
    let no_bridge = || Error::Namespace("the link to another host has no bridge".to_owned());
    let here = link.peers.get(HOST).ok_or_else(no_bridge)?;
    let IpAddr::V4(theirs) = here.address else { return Err(no_bridge()) };
    let [one, two, three, _] = theirs.octets();
    let address = Ipv4Addr::new(one, two, three, OWN);
    let (bridge, path) = (&here.interface, host.path());
    // No other run has its name, as that of the port has in a namespace of its own.
    let (port, own) = (format!("to-{bridge}"), format!("v{}-{bridge}", std::process::id()));
    let first = Exec::new("ip");
    ip(node, &first, &[&format!("link add {own} type veth peer name {port} netns {path}")])?;
    let of_port = [
        format!("link set {port} mtu {LINK_MTU}"),
        format!("link set {port} master {bridge}"),
        format!("link set {port} up"),
    ];
    host.ip(node, &of_port.each_ref().map(String::as_str))?;
    let of_own = [
        format!("link set {own} mtu {LINK_MTU}"),
        format!("address add {address}/24 dev {own}"),
        format!("link set {own} up"),
    ];
    ip(node, &first, &of_own.each_ref().map(String::as_str))?;
    link.native = Some(NetEnd { enter: Vec::new(), address: address.into(), interface: own });
    // Before the bridge.
    link.between.insert(0, port);
    Ok(())
}
