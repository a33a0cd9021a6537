//! `offloads`: whether packets go through a path in large pieces that are cut late and put together early (TCP
//! segmentation and generic segmentation and receive offload), on both ends and on all interfaces of the host between
//! them. They are in namespaces of vmio's own and in its guests, so nothing of the host is changed.

use vmio_look::require::{Requirement, program};
use vmio_model::cell::Actor;
use vmio_model::study::WordError;

use super::ports::{OfPorts, is_on, over_a_wire};
use super::{Error, Fit, Result, Setting, Undos, Where};
use crate::nets::Port;

/// Entry `offloads`.
pub struct Offloads;

/// What changes and tells them (ethtool(8)); it is carried to guests too.
const ETHTOOL: &str = "ethtool";
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
    fn reader(&self) -> fn(&str) -> Result<String, WordError> {
        |text| is_on(text, "offloads are").map(|_| text.to_owned())
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: ETHTOOL,
            why: "switches the offloads of a path, and reads them back",
            fix: "apt install ethtool",
            check: |reader| program(reader, ETHTOOL),
        }]
    }
    fn fits(&self, _value: &str, actor: &Actor) -> Fit {
        over_a_wire(actor, "they are", "are cut")
    }
    fn apply(&self, value: &str, on: &Where<'_>, undos: &mut Undos) -> Result<String> {
        let wanted = [is_on(value, "offloads are")?; 3];
        OfPorts { found, set, shown }.put(value, |_| wanted, on, undos)
    }
}

/// `tso off, gso on, gro on (tap1)`.
fn shown(port: &Port, now: [bool; 3]) -> String {
    let each = FEATURES.iter().zip(now).map(|((short, _), on)| format!("{short} {}", word(on)));
    format!("{} ({})", each.collect::<Vec<_>>().join(", "), port.interface)
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Those in force: `tcp-segmentation-offload: on`, `… off [fixed]`.
fn found(port: &Port) -> Result<[bool; 3]> {
    let text = port.ask(ETHTOOL, &["-k", &port.interface])?;
    read(&text).ok_or_else(|| Error::Failed(format!("`{ETHTOOL} -k {}` does not show all of them", port.interface)))
}

fn read(text: &str) -> Option<[bool; 3]> {
    let one = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
        is_on(values.next()?.split_whitespace().next()?, "it is").ok()
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
