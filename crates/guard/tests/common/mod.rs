//! What the tests share: an uplink, a guest's card, and what a policy would say.

#![allow(dead_code, clippy::unwrap_used, clippy::disallowed_types, clippy::print_stdout)]

use vmio_guard::planes::linux::htb::{Numbers, Tree};
use vmio_guard::planes::linux::{Device, Netlink, links};
use vmio_model::facts::{Nic, Provenance, Subject};
use vmio_model::policy::program::Hierarchy;
pub use vmio_model::rate::MBIT as M;
use vmio_testbed::net::run;

pub mod flood;
pub mod frames;
mod hierarchy;
pub mod holder;
pub mod state;
pub mod test_host;

pub use hierarchy::{leaf, three};

/// An interface that is up, with a peer: `u0` of a veth pair, in the thread's namespace.
pub fn uplink() -> (Netlink, Device) {
    run(&["ip link add u0 type veth peer name u1", "ip link set u0 up", "ip link set u1 up"]);
    let mut netlink = Netlink::open().unwrap();
    let device = links::find(&mut netlink, "u0").unwrap();
    (netlink, device)
}

/// A guest's card and what it is connected to.
pub fn nic(model: &str, backend: &str) -> Nic {
    let from = Provenance::Transcript { name: "test".into() };
    Nic { model: model.into(), backend: backend.into(), ..Nic::unknown(Subject::net("guest", "net0"), from) }
}

pub fn tree(hierarchy: &Hierarchy) -> Tree {
    let named = hierarchy.leaves.iter().zip(2u16..).map(|(leaf, number)| (leaf.name.clone(), number));
    Tree::wanted(hierarchy, &Numbers::given(named.collect()).unwrap()).unwrap()
}
