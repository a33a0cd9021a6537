//! `offloads`: whether packets go through a path in large pieces that are cut late and put together early (TCP
//! segmentation and generic segmentation and receive offload), on both ends and on all interfaces of the host between
//! them. They are in namespaces of vmio's own and in its guests, so nothing of the host is changed.

use vmio_look::require::{Requirement, program};
use vmio_model::cell::{Actor, Subject};
use vmio_node::Journal;

use super::{Error, Fit, Result, Setting, Undos, Where};
use crate::nets::{self, Port};

/// Entry `offloads`.
pub struct Offloads;

/// What changes and tells them (ethtool(8)); it is carried to guests too.
pub const ETHTOOL: &str = "ethtool";
/// What `ethtool -K` calls them, and `ethtool -k`.
const FEATURES: [(&str, &str); 3] =
    [("tso", "tcp-segmentation-offload"), ("gso", "generic-segmentation-offload"), ("gro", "generic-receive-offload")];

impl Setting for Offloads {
    fn name(&self) -> &'static str {
        "offloads"
    }
    fn about(&self) -> &'static str {
        "whether packets go through the actor's path in large pieces (TSO, GSO, GRO), on both ends"
    }
    fn examples(&self) -> &'static [&'static str] {
        &["off", "on"]
    }
    fn reader(&self) -> fn(&str) -> std::result::Result<String, String> {
        |text| is_on(text).map(|_| text.to_owned())
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: ETHTOOL,
            why: "switches the offloads of a path, and reads them back",
            mend: "apt install ethtool",
            check: |reader| program(reader, ETHTOOL),
        }]
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        match &actor.subject {
            Subject::Path { network, .. } if !nets::find(network).is_some_and(|n| n.has_wire()) => {
                Fit::Refused(format!("{network} has no wire whose packets are cut: use another network"))
            }
            Subject::Path { .. } => Fit::Sets,
            _ => Fit::Nothing("they are a path's, and no actor works over one: leave it out".into()),
        }
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let wanted = is_on(value).map_err(Error::Refused)?;
        let own = on.own_port()?;
        let is_native = on.actor.side.shares_kernel();
        for (port, on_host) in on.ports.iter().map(|port| (port, true)).chain([(&own, is_native)]) {
            let (before, changed) = (found(port)?, port.clone());
            let undo = move |_: &Journal| set(&changed, before);
            if on_host {
                undos.on_host(undo)
            } else {
                undos.in_guest(undo)
            }
            set(port, [wanted; 3])?;
            let now = found(port)?;
            if now != [wanted; 3] {
                let found = FEATURES.iter().zip(now).map(|((short, _), on)| format!("{short} {}", word(on)));
                let found = found.collect::<Vec<_>>().join(", ");
                return Err(Error::NotAsAsked {
                    asked: value.to_owned(),
                    found: format!("{found} ({})", port.interface),
                });
            }
        }
        Ok(value.to_owned())
    }
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn is_on(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text:?} is neither: offloads are on or off")),
    }
}

/// Those in force: `tcp-segmentation-offload: on`, `… off [fixed]`.
fn found(port: &Port) -> Result<[bool; 3]> {
    let text = port.ask(ETHTOOL, &["-k", &port.interface])?;
    read(&text).ok_or_else(|| Error::Failed(format!("`{ETHTOOL} -k {}` tells not all of them", port.interface)))
}

fn read(text: &str) -> Option<[bool; 3]> {
    let one = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        is_on(values.next()?.split_whitespace().next()?).ok()
    };
    let [(_, tso), (_, gso), (_, gro)] = FEATURES;
    Some([one(tso)?, one(gso)?, one(gro)?])
}

fn set(port: &Port, to: [bool; 3]) -> Result<()> {
    let words = FEATURES.iter().zip(to).flat_map(|((short, _), on)| [*short, word(on)]);
    port.tell(ETHTOOL, &["-K", &port.interface].into_iter().chain(words).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ethtool_tells_is_read() {
        let told = "Features for eth0:\nrx-checksumming: on\ntcp-segmentation-offload: on\n\
                    \ttx-tcp-segmentation: on\n\ttx-tcp6-segmentation: off [fixed]\n\
                    generic-segmentation-offload: off [requested on]\ngeneric-receive-offload: on\n";
        assert_eq!(read(told), Some([true, false, true]));
        assert_eq!(read("Features for eth0:\n"), None);
    }
}
