//! A namespace and the host, joined by a veth pair: what a container has (for one that vmio starts, its own namespace),
//! and the baseline for guests.

use std::collections::BTreeMap;

use super::{HOST, NetCtx, NetPath, Network, Result};

/// Entry `veth`.
pub struct Veth;

impl Network for Veth {
    fn name(&self) -> &'static str {
        "veth"
    }
    fn about(&self) -> &'static str {
        "a namespace and the host, joined by a veth pair"
    }
    fn peers(&self) -> &'static [&'static str] {
        &[HOST]
    }
    fn takes_guests(&self) -> bool {
        false
    }
    fn build(&self, ctx: &NetCtx<'_>) -> Result<NetPath> {
        let (here, addresses) = (ctx.interface("veth"), ctx.addresses());
        let (beside, native) = ctx.actors(&here, addresses)?;
        ctx.host.ip(ctx.node, &[&format!("address add {} dev {here}", addresses.with_prefix(addresses.host))])?;
        Ok(NetPath {
            native: Some(native),
            peers: BTreeMap::from([(HOST, ctx.host_end(&here))]),
            held: vec![beside],
            ..NetPath::empty()
        })
    }
}
