//! A network interface of the host that may be in a policy: its identity, the guest that uses it, and what decides
//! where its excess can wait. Data alone; [`crate::source`] discovers them.

use std::collections::BTreeMap;

use vmio_model::facts::Nic;
use vmio_model::holding::PacketPath;
use vmio_model::policy::assign::Interface;

/// An interface that is there, and what is needed to limit it.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscoveredInterface {
    /// Its index, names and addresses, by which a policy matches it.
    pub interface: Interface,
    /// The guest's device behind it, where one is known.
    pub nic: Option<Nic>,
    /// Processes that run the guest.
    pub pids: Vec<u32>,
    /// Bytes of memory that the guest was given, where it is known.
    pub memory_bytes: Option<u64>,
    /// What lies between it and each uplink that it may share.
    pub paths: BTreeMap<String, PacketPath>,
}

impl From<Interface> for DiscoveredInterface {
    /// An interface of no known guest.
    fn from(interface: Interface) -> DiscoveredInterface {
        DiscoveredInterface { interface, nic: None, pids: Vec::new(), memory_bytes: None, paths: BTreeMap::new() }
    }
}
