//! What the tests of this crate share.
#![allow(clippy::unwrap_used)]

use vmio_model::policy::assign::Interface;
use vmio_model::policy::{Links, Policy};

use crate::interface::DiscoveredInterface;
use crate::undo_log::Entry;

/// A class for the taps of one uplink.
pub const POLICY: &str = "\
[uplink.eth0]
capacity = \"100Mbit\"
[class.gold]
min = \"40Mbit\"
[[interface]]
match = { name = \"tap*\" }
class = \"gold\"
";

/// A policy of one file.
pub fn policy(text: &str) -> Policy {
    Policy::read(&[("guard.toml", text)], &Links::default()).unwrap().policy
}

/// A tap behind which no guest is known.
pub fn tap(index: u32) -> DiscoveredInterface {
    Interface { index, name: format!("tap{index}"), ..Interface::default() }.into()
}

/// As earlier vmios have written it in that part of the log: what they left in force must be undone by this one.
pub fn form_stays<E: Entry>(part: &str, text: &str) {
    assert_eq!(E::PART, part);
    let entry: E = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&entry).unwrap(), text);
}
