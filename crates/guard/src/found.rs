//! What a look at the host finds of an interface that may be in a policy: what it is known by, and what decides where its
//! excess can wait. Data alone; who looks is somebody else.

use vmio_model::facts::Nic;
use vmio_model::holding::Way;
use vmio_model::policy::assign::Interface;

/// An interface that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// What it is known by.
    pub interface: Interface,
    /// The guest's network device behind it; `None` where no guest is known.
    pub nic: Option<Nic>,
    /// What lies between it and its uplink.
    pub way: Way,
    /// Processes that may hold it (a tap's hypervisor).
    pub pids: Vec<u32>,
}

impl From<Interface> for Found {
    /// One behind which no guest is known.
    fn from(interface: Interface) -> Found {
        Found { interface, nic: None, way: Way::default(), pids: Vec::new() }
    }
}
