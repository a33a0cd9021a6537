//! The loopback interface: both ends on one machine, through no device at all. That of a guest or a container is its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::{HOST, NetCtx, NetEnd, NetPath, Network, Result};

/// Entry `loopback`.
pub struct Loopback;

impl Network for Loopback {
    fn name(&self) -> &'static str {
        "loopback"
    }
    fn about(&self) -> &'static str {
        "both ends on the host, in the guest or in the container, by its loopback interface"
    }
    fn peers(&self) -> &'static [&'static str] {
        &[HOST]
    }
    fn takes_guests(&self) -> bool {
        false
    }
    fn is_inside(&self) -> bool {
        true
    }
    fn has_wire(&self) -> bool {
        false
    }
    fn build(&self, ctx: &NetCtx<'_>) -> Result<NetPath> {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let on = ctx.actor.map_or(ctx.host, |actor| &**actor);
        let end = NetEnd { enter: on.enter(), address, interface: "lo".into() };
        Ok(NetPath { native: Some(end.clone()), peers: BTreeMap::from([(HOST, end)]), ..NetPath::empty() })
    }
}
