//! One bridge and one uplink to another host for all actors: what guests of a host have, who compete for its wire and
//! send to each other. Where another host serves a disk of the run, the link to that is it ([`super::join`]).

use std::collections::BTreeMap;

use vmio_look::require::Requirement;

use super::bridge::{made, plugged};
use super::{HOST, IP, NEIGHBOUR, NSENTER, NetCtx, NetEnd, NetPath, Network, REMOTE, ROOT, Result, TUN, UNSHARE};

/// Entry `shared`.
pub struct Shared;

const BRIDGE: &str = "shared";
const UPLINK: &str = "wire";
/// The port of the namespace that is everybody's neighbour.
const NEXT: &str = "next";

impl Network for Shared {
    fn name(&self) -> &'static str {
        "shared"
    }
    fn about(&self) -> &'static str {
        "one bridge and one uplink to another host (a namespace) for all actors, who reach each other"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[IP, NSENTER, UNSHARE, ROOT, TUN]
    }
    fn peers(&self) -> &'static [&'static str] {
        &[HOST, NEIGHBOUR, REMOTE]
    }
    fn takes_guests(&self) -> bool {
        true
    }
    fn linked(&self) -> &'static [&'static str] {
        &[REMOTE]
    }
    fn is_shared(&self) -> bool {
        true
    }
    fn build(&self, ctx: &NetCtx<'_>) -> Result<NetPath> {
        let addresses = ctx.shared_addresses();
        let (peers, held) = match ctx.first {
            Some(first) => (first.peers.clone(), Vec::new()),
            None => {
                made(ctx, BRIDGE, addresses)?;
                let (beside, remote) = ctx.beside(UPLINK, "eth0", addresses, addresses.remote)?;
                let (next, neighbour) = ctx.beside(NEXT, "eth0", addresses, addresses.neighbour)?;
                let ports = [UPLINK, NEXT].map(|port| format!("link set {port} master {BRIDGE}"));
                ctx.host.ip(ctx.node, &ports.each_ref().map(String::as_str))?;
                let interface = BRIDGE.to_owned();
                let host = NetEnd { enter: ctx.host.enter(), address: addresses.host.into(), interface };
                (BTreeMap::from([(HOST, host), (NEIGHBOUR, neighbour), (REMOTE, remote)]), vec![beside, next])
            }
        };
        let mut path = plugged(ctx, BRIDGE, addresses)?;
        path.peers = peers;
        path.held.extend(held);
        path.uplink = Some(UPLINK.to_owned());
        // The ports of a bridge before it.
        path.between.splice(0..0, [UPLINK, NEXT].map(str::to_owned));
        path.between.push(BRIDGE.to_owned());
        Ok(path)
    }
}
