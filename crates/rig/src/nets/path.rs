//! A path as it was built: its ends, and what lies between them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use vmio_node::Node;

use super::{Namespace, REMOTE};

/// A path. It goes with its namespaces, when it and the host's are dropped.
pub struct NetPath {
    /// The native actor's end; `None` where a guest is plugged in.
    pub native: Option<NetEnd>,
    /// Where a guest is plugged in; `None` natively.
    pub plug: Option<Plug>,
    /// The other ends, by name.
    pub peers: BTreeMap<&'static str, NetEnd>,
    /// Interfaces in the host's namespace that are neither end, the ports of a bridge before it.
    pub between: Vec<String>,
    /// The interface that the actor is plugged into the host by: its tap, or the host's end of its veth pair.
    pub port: Option<String>,
    /// The host's end of the link to another host.
    pub uplink: Option<String>,
    /// The namespaces beside the host's.
    pub held: Vec<Arc<Namespace>>,
}

/// An interface of a path.
#[derive(Clone)]
pub struct Port {
    /// The machine that it is on.
    pub node: Arc<dyn Node>,
    /// What goes before a command so that it runs in its namespace.
    pub enter: Vec<String>,
    /// Its name.
    pub interface: String,
    /// Whether it is an end of a link between hosts.
    pub is_link: bool,
    /// Whether the actor is plugged into the host by it.
    pub is_plug: bool,
}

/// An end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetEnd {
    /// What goes before a command so that it runs there.
    pub enter: Vec<String>,
    /// Its address.
    pub address: IpAddr,
    /// Its interface.
    pub interface: String,
}

/// Where a guest is plugged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plug {
    /// The tap device, in the host's namespace.
    pub tap: String,
    /// The hardware address of the guest's device.
    pub mac: String,
    /// The guest's address.
    pub address: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
    /// The MTU that its device is given; `None` where it stays as it is.
    pub mtu: Option<u32>,
}

impl NetPath {
    /// Without an end but this one.
    #[cfg(test)]
    pub(crate) fn to(plug: Option<Plug>) -> Self {
        Self { plug, ..Self::empty() }
    }

    /// Without any end.
    pub(super) fn empty() -> Self {
        Self {
            native: None,
            plug: None,
            peers: BTreeMap::new(),
            between: Vec::new(),
            port: None,
            uplink: None,
            held: Vec::new(),
        }
    }

    /// Its interfaces but the actor's own, the ports of a bridge before it.
    pub fn ports(&self, node: &Arc<dyn Node>, host: &Namespace, peer: &str) -> Vec<Port> {
        // To the host itself none goes over the link.
        let linked = peer == REMOTE;
        let here = |name: &String| Port {
            node: node.clone(),
            enter: host.enter(),
            interface: name.clone(),
            is_link: linked && self.uplink.as_ref() == Some(name),
            is_plug: self.port.as_ref() == Some(name),
        };
        let mut all: Vec<Port> = self.between.iter().map(here).collect();
        if let Some(end) = self.peers.get(peer).filter(|end| !self.between.contains(&end.interface)) {
            let (enter, interface) = (end.enter.clone(), end.interface.clone());
            all.insert(0, Port { node: node.clone(), enter, interface, is_link: linked, is_plug: false });
        }
        all
    }
}
