//! What an actor is plugged into the host by, and the uplink behind it with what it carries.

use vmio_model::study::guard::Plugged;

use super::rate::limit;
use super::{Error, Result};
use crate::nets::Port;

/// An actor's interface, unless its packets are the host's own, and the uplink.
pub(super) fn ends(ports: &[Port]) -> Result<(Option<&Port>, &Port)> {
    // The other end of the link is in another namespace.
    let here = ports.iter().find(|port| !port.is_link).map(|port| &port.enter);
    let uplink = ports.iter().find(|port| port.is_link && Some(&port.enter) == here);
    let uplink = uplink.ok_or_else(|| Error::Refused("an actor's path has no uplink".into()))?;
    Ok((ports.iter().find(|port| port.is_plug), uplink))
}

/// An actor's interface, and the uplink with what it carries.
pub(super) fn plugged(ports: &[Port]) -> Result<Plugged> {
    let (plug, uplink) = ends(ports)?;
    let carries = limit(uplink)?
        .ok_or_else(|| Error::Refused("a guard shares an uplink's rate, and none is set: set `rate` as well".into()))?;
    let interface = plug.map(|plug| plug.interface.clone());
    Ok(Plugged { interface, uplink: uplink.interface.clone(), carries: carries.bits() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_uplink_is_the_links_end_on_the_host() {
        let port = |namespace: &str, interface: &str, is_link: bool| Port {
            node: Arc::new(vmio_node::Fake::new("host")),
            enter: vec![namespace.to_owned()],
            interface: interface.to_owned(),
            is_link,
            is_plug: interface == "tap0",
        };
        let link = [port("remote", "eth0", true), port("host", "up255", true)];
        let of_guest = [&link[..], &[port("host", "tap0", false), port("host", "br255", false)]].concat();
        let (plug, uplink) = ends(&of_guest).unwrap();
        assert_eq!((plug.unwrap().interface.as_str(), uplink.interface.as_str()), ("tap0", "up255"));
        let of_host = [&link[..], &[port("host", "br255", false)]].concat();
        let (plug, uplink) = ends(&of_host).unwrap();
        assert_eq!((plug.is_none(), uplink.interface.as_str()), (true, "up255"));
        assert!(ends(&[port("host", "br255", false)]).is_err() && ends(&[]).is_err());
    }
}
