//! What a look at the host finds of an interface that may be in a policy: what it is known by, and what decides where its
//! excess can wait. Data alone; who looks is [`crate::source`].

use std::collections::BTreeMap;

use vmio_model::facts::Nic;
use vmio_model::holding::Way;
use vmio_model::policy::assign::Interface;

/// An interface that is there, and what it takes to hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// What it is known by.
    pub interface: Interface,
    /// The guest's device behind it, where one is known.
    pub nic: Option<Nic>,
    /// Processes that run the guest.
    pub pids: Vec<u32>,
    /// Bytes of memory that the guest was given, where it is known.
    pub memory_bytes: Option<u64>,
    /// What lies between it and each uplink that it may share.
    pub ways: BTreeMap<String, Way>,
}

impl From<Interface> for Found {
    /// One behind which no guest is known.
    fn from(interface: Interface) -> Found {
        Found { interface, nic: None, pids: Vec::new(), memory_bytes: None, ways: BTreeMap::new() }
    }
}
