//! What an actor is plugged into the host by, and the uplink behind it with what it carries.

use vmio_model::study::guard::Plugged;

use super::rate::limit;
use super::{Error, Result};
use crate::nets::Port;

/// An actor's interface, and the uplink.
pub(super) fn ends(ports: &[Port]) -> Result<(&Port, &Port)> {
    let plug = ports.iter().find(|port| port.is_plug);
    let plug = plug.ok_or_else(|| Error::Refused("an actor is not plugged into the host".into()))?;
    // The other end of the link is in another namespace.
    let uplink = ports.iter().find(|port| port.is_link && port.enter == plug.enter);
    Ok((plug, uplink.ok_or_else(|| Error::Refused("an actor's path has no uplink".into()))?))
}

/// An actor's interface, and the uplink with what it carries.
pub(super) fn plugged(ports: &[Port]) -> Result<Plugged> {
    let (plug, uplink) = ends(ports)?;
    let carries = limit(uplink)?
        .ok_or_else(|| Error::Refused("a guard shares an uplink's rate, and none is set: set `rate` as well".into()))?;
    Ok(Plugged { interface: plug.interface.clone(), uplink: uplink.interface.clone(), carries: carries.bits() })
}
