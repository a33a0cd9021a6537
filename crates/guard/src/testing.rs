//! What the tests of this crate share.
#![allow(clippy::unwrap_used)]

use vmio_model::policy::assign::Interface;
use vmio_model::policy::{Links, Policy};

use crate::found::Found;

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
pub fn tap(index: u32) -> Found {
    Interface { index, name: format!("tap{index}"), ..Interface::default() }.into()
}
