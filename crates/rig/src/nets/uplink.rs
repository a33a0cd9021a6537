//! A bridge whose uplink leads to another host: a namespace behind a veth pair.

use std::collections::BTreeMap;

use vmio_look::require::Requirement;

use super::bridge::bridged;
use super::{HOST, IP, NSENTER, NetCtx, NetPath, Network, REMOTE, ROOT, Result, TUN, UNSHARE};

/// Entry `uplink`.
pub struct Uplink;

impl Network for Uplink {
    fn name(&self) -> &'static str {
        "uplink"
    }
    fn about(&self) -> &'static str {
        "a bridge as in `bridge`, and behind its uplink another host (a namespace)"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[IP, NSENTER, UNSHARE, ROOT, TUN]
    }
    fn peers(&self) -> &'static [&'static str] {
        &[HOST, REMOTE]
    }
    fn takes_guests(&self) -> bool {
        true
    }
    fn linked(&self) -> &'static [&'static str] {
        &[REMOTE]
    }
    fn build(&self, ctx: &NetCtx<'_>) -> Result<NetPath> {
        let mut path = bridged(ctx)?;
        lead_to_remote(ctx, &mut path)?;
        Ok(path)
    }
}

/// Joins the bridge of a path with another host.
pub(super) fn lead_to_remote(ctx: &NetCtx<'_>, path: &mut NetPath) -> Result<()> {
    let (bridge, uplink) = (ctx.interface("br"), ctx.interface("up"));
    let (beside, remote) = ctx.beside(&uplink, "eth0", ctx.addresses(), ctx.addresses().remote)?;
    ctx.host.ip(ctx.node, &[&format!("link set {uplink} master {bridge}")])?;
    path.peers = BTreeMap::from([(HOST, ctx.host_end(&bridge)), (REMOTE, remote)]);
    path.held.push(beside);
    path.uplink = Some(uplink.clone());
    // Before the bridge.
    path.between.insert(0, uplink);
    Ok(())
}
