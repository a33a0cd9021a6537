//! The way of a card's packets on the host: its interface, and what they pass from there.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An interface on the way of a card's packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    /// Its name.
    pub interface: String,
    /// What it is.
    pub kind: HopKind,
    /// Largest packet in bytes that it takes.
    pub mtu_bytes: Option<u64>,
    /// The kernel's driver of a network card.
    pub driver: Option<String>,
    /// Whether it is in the network namespace of vmio itself.
    pub here: bool,
}

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HopKind {
    /// A tap.
    Tap,
    /// A macvlan or macvtap.
    Macvlan,
    /// A bridge of Linux.
    Bridge,
    /// A bridge of Open vSwitch.
    OvsBridge,
    /// An end of a veth pair.
    Veth,
    /// A VLAN over another interface.
    Vlan,
    /// A bond or a team.
    Bond,
    /// A VXLAN or GENEVE tunnel.
    Tunnel,
    /// A network card of the host.
    Card,
    /// Anything else.
    Other,
}

impl HopKind {
    /// Whether it is a bridge, whose own MTU decides nothing for the packets that it passes on.
    pub fn is_bridge(self) -> bool {
        matches!(self, HopKind::Bridge | HopKind::OvsBridge)
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        self.mtu_bytes.map_or(Ok(()), |mtu| write!(f, " {mtu}"))
    }
}

/// A way in words, each interface with its MTU: `tap0 1500, br0 1500, eth0 1500`.
pub fn way_shown(way: &[Hop]) -> String {
    way.iter().map(Hop::to_string).collect::<Vec<String>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_shown_with_its_mtus() {
        let hop = |interface: &str, mtu_bytes| Hop {
            interface: interface.into(),
            kind: HopKind::Other,
            mtu_bytes,
            driver: None,
            here: true,
        };
        assert_eq!(way_shown(&[hop("tap0", Some(1500)), hop("ovs-system", None)]), "tap0 1500, ovs-system");
    }
}
