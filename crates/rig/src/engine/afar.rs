//! Other machines that take part in a run: the one that is measured, and the peer of its paths. Whoever owns the run
//! reaches them, and keeps the connection as long as it lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use vmio_model::result;
use vmio_node::linux::system;
use vmio_node::{Node, Spare};

use super::environment;

/// The machine that the side `ssh` is.
#[derive(Clone)]
pub struct Afar {
    /// How it was reached: `ssh://root@host`, `libvirt://web1`.
    pub address: String,
    /// Where commands run in it. What they leave goes with the connection.
    pub node: Arc<dyn Node>,
    /// The directory of its own in which files are made.
    pub dir: PathBuf,
    /// The user's own device there, as the target `device`, held from now on.
    pub device: Option<Spare>,
    /// Use it whatever it holds.
    pub force: bool,
    /// What this host knows of it, where it is a guest of it.
    pub known: Known,
}

/// A guest's devices with their settings, in words, and what is wrong with them.
#[derive(Clone, Default)]
pub struct Known {
    /// Device -> its settings.
    pub settings: BTreeMap<String, String>,
    /// Findings of the rules.
    pub findings: Vec<String>,
}

/// The machine at the other end of the network `wire`.
#[derive(Clone)]
pub struct Peer {
    /// How it was reached: `ssh://root@host`.
    pub address: String,
    /// Where servers run in it.
    pub node: Arc<dyn Node>,
    /// The address that paths lead to, and the one of this host that they come from.
    pub ends: (IpAddr, IpAddr),
}

impl Afar {
    /// What it says of itself.
    pub fn told(&self) -> result::Afar {
        let reader = self.node.reader();
        result::Afar {
            address: self.address.clone(),
            dir: self.dir.display().to_string(),
            device: self.device.as_ref().map(|device| format!("{}, {}", device.named(), device.identity.describe())),
            kernel: system::release(reader).unwrap_or_default(),
            cpu: environment::cpu(&*self.node),
            cpus: system::cpus_online(&system::cpuinfo(reader)) as u32,
            memory_bytes: environment::memory_bytes(&*self.node),
            settings: self.known.settings.clone(),
            findings: self.known.findings.clone(),
        }
    }
}

impl fmt::Debug for Afar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.dir.display())
    }
}

/// `ssh://root@host (192.0.2.7)`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.ends.0)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
