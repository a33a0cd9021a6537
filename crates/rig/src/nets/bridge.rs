//! A bridge on the host, as most hosts have it: a guest's tap is a port of it, the host has its address there.
//! Each path has a bridge of its own, so that a guest with two devices is reached by the one that is meant
//! (Linux answers ARP for any of its addresses on any of its devices).

use std::collections::BTreeMap;

use vmio_look::require::Requirement;

use super::{HOST, IP, NSENTER, NetCtx, NetPath, Network, ROOT, Result, TUN, UNSHARE};

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
    let lines = [
        format!("link add {bridge} type bridge"),
        format!("address add {} dev {bridge}", ctx.with_prefix(1)),
        format!("link set {bridge} up"),
    ];
    ctx.host.ip(ctx.node, &lines.each_ref().map(String::as_str))?;
    let mut path = NetPath::empty();
    match ctx.guest {
        Some(queues) => {
            let plug = ctx.tap(&bridge, queues)?;
            path.between.push(plug.tap.clone());
            path.plug = Some(plug);
        }
        None => {
            let port = ctx.interface("port");
            let (beside, native) = ctx.beside(&port, "eth0", 2)?;
            ctx.host.ip(ctx.node, &[&format!("link set {port} master {bridge}")])?;
            path.native = Some(native);
            path.held.push(beside);
            path.between.push(port);
        }
    }
    path.between.push(bridge);
    Ok(path)
}
