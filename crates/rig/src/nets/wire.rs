//! What joins this host with another machine that `ssh` reaches, as it is: nothing is built or set, and packets go the way
//! that this host's own network sends them.

use std::collections::BTreeMap;

use super::{Error, NetCtx, NetEnd, NetPath, Network, Result};

/// Entry `wire`.
pub struct Wire;

/// The machine at its other end.
pub const PEER: &str = "peer";

impl Network for Wire {
    fn name(&self) -> &'static str {
        "wire"
    }
    fn about(&self) -> &'static str {
        "what joins this host with another machine (--peer ssh://HOST), as it is"
    }
    fn peers(&self) -> &'static [&'static str] {
        &[PEER]
    }
    fn takes_guests(&self) -> bool {
        false
    }
    fn has_wire(&self) -> bool {
        false
    }
    fn is_ours(&self) -> bool {
        false
    }
    fn build(&self, ctx: &NetCtx<'_>) -> Result<NetPath> {
        let (theirs, own) = ctx.nodes.peer().ok_or(Error::NoPeer)?.1.ends;
        let end = |address| NetEnd { enter: Vec::new(), address, interface: String::new() };
        Ok(NetPath { native: Some(end(own)), peers: BTreeMap::from([(PEER, end(theirs))]), ..NetPath::empty() })
    }
}
