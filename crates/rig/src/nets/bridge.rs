//! A bridge on the host, as most hosts have it: a guest's tap is a port of it, the host has its address there.
//! Each path has a bridge of its own, so that a guest with two devices is reached by the one that is meant
//! (Linux answers ARP for any of its addresses on any of its devices).

use std::collections::BTreeMap;

use vmio_look::require::Requirement;

use super::{Addresses, HOST, IP, NSENTER, NetCtx, NetPath, Network, ROOT, Result, TUN, UNSHARE};

/// Entry `bridge`.
pub struct Bridge;

impl Network for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }
    fn about(&self) -> &'static str {
        "a bridge on the host; guests are plugged in by a tap, a namespace by a veth pair"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[IP, NSENTER, UNSHARE, ROOT, TUN]
    }
    fn peers(&self) -> &'static [&'static str] {
        &[HOST]
    }
    fn takes_guests(&self) -> bool {
        true
    }
    fn build(&self, ctx: &NetCtx<'_>) -> Result<NetPath> {
        let mut path = bridged(ctx)?;
        path.peers = BTreeMap::from([(HOST, ctx.host_end(&ctx.interface("br")))]);
        Ok(path)
    }
}

/// A bridge that has the host's address, with the actor as a port of it.
pub(super) fn bridged(ctx: &NetCtx<'_>) -> Result<NetPath> {
    let bridge = ctx.interface("br");
    made(ctx, &bridge, ctx.addresses())?;
    let mut path = plugged(ctx, &bridge, ctx.addresses())?;
    path.between.push(bridge);
    Ok(path)
}

/// Makes a bridge that has the host's address of a network.
pub(super) fn made(ctx: &NetCtx<'_>, bridge: &str, addresses: Addresses) -> Result<()> {
    let lines = [
        format!("link add {bridge} type bridge"),
        format!("address add {} dev {bridge}", addresses.with_prefix(addresses.host)),
        format!("link set {bridge} up"),
    ];
    ctx.host.ip(ctx.node, &lines.each_ref().map(String::as_str))
}

/// The actor as a port of a bridge; the path has neither the bridge nor peers yet.
pub(super) fn plugged(ctx: &NetCtx<'_>, bridge: &str, addresses: Addresses) -> Result<NetPath> {
    let mut path = NetPath::empty();
    let port = match ctx.guest {
        Some(queues) => {
            let plug = ctx.tap(bridge, queues, addresses)?;
            let tap = plug.tap.clone();
            path.plug = Some(plug);
            tap
        }
        None => {
            let port = ctx.interface("port");
            let (beside, native) = ctx.actors(&port, addresses)?;
            ctx.host.ip(ctx.node, &[&format!("link set {port} master {bridge}")])?;
            path.native = Some(native);
            path.held.push(beside);
            port
        }
    };
    path.between.push(port.clone());
    path.port = Some(port);
    Ok(path)
}
