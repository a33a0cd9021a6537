//! Other machines that take part in a run: the one that is measured, and the peer of its paths. Whoever owns the run
//! reaches them, and keeps the connection as long as it lasts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vmio_model::cell::Cell;
use vmio_model::result;
use vmio_model::versions::unlike;
use vmio_node::linux::{addresses, system};
use vmio_node::{Exec, Local, Node, Output, Spare};

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
    /// The address that servers listen at there.
    pub serves: IpAddr,
    /// Versions of what cells run there.
    pub programs: BTreeMap<String, String>,
    /// What is to be said of them beside this host's.
    pub told: Vec<String>,
}

impl Peer {
    /// Asks a machine for what these cells need to know of it. Only looks.
    pub fn new(address: &str, node: Arc<dyn Node>, ends: (IpAddr, IpAddr), cells: &[Cell]) -> Self {
        let programs = environment::programs_of_peer(cells, &*node);
        let told = unlike(&environment::programs(cells, None, &Local::new(), None), &programs);
        let serves = serves(&*node, ends.0);
        Self { address: address.to_owned(), node, ends, serves, programs, told }
    }

    /// What is to be said where servers listen elsewhere than at the address that leads there.
    pub fn served_at(&self) -> Option<String> {
        let reached = self.ends.0;
        match self.serves {
            same if same == reached => None,
            any if any.is_unspecified() => {
                Some(format!("{reached} is no address of its own: servers listen at all that it has while a cell runs"))
            }
            own => Some(format!("{reached} is no address of its own: servers listen at {own}, where ssh arrives")),
        }
    }
}

/// How long a shell may take to say what it was asked.
const SAYS_WITHIN: Duration = Duration::from_secs(10);

/// The address that servers listen at on a machine that is reached by this one: the same where an interface there has it.
/// Else addresses are translated on the way, as a cloud's public ones are, and it is the one at which `ssh` arrives;
/// where that is none of the machine's own (`ssh` was passed on, too), any.
fn serves(node: &dyn Node, reached: IpAddr) -> IpAddr {
    let own = |address: &IpAddr| addresses::has(node.reader(), *address);
    if own(&reached) {
        return reached;
    }
    let ask = Exec::new("sh").args(["-c", "printf %s \"$SSH_CONNECTION\""]).limit(SAYS_WITHIN);
    // Client, its port, server, its port (ssh(1)).
    let said = node.exec(&ask).ok().filter(Output::ok).map(|output| output.out()).unwrap_or_default();
    let of_ssh = said.split_whitespace().nth(2).and_then(|address| address.parse::<IpAddr>().ok());
    let any = if reached.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let leads = |address: &IpAddr| address.is_ipv6() == reached.is_ipv6() && !address.is_loopback() && own(address);
    of_ssh.filter(leads).unwrap_or(any)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn servers_listen_where_packets_arrive() {
        let trie =
            |own: &str| format!("Local:\n  |-- {own}\n     /32 host LOCAL\n  |-- 127.0.0.0\n     /8 host LOCAL\n");
        let told = |own: &str, ssh: &'static str, reached: &str| {
            let node = Fake::new("there")
                .file("/proc/self/net/fib_trie", trie(own))
                .file("/proc/self/net/if_inet6", "")
                .command(move |cmd| (cmd.program == "sh").then(|| says(ssh)));
            serves(&node, reached.parse().unwrap()).to_string()
        };
        assert_eq!(told("192.0.2.7", "198.51.100.1 4 10.0.0.5 22", "192.0.2.7"), "192.0.2.7", "its own");
        assert_eq!(told("10.0.0.5", "198.51.100.1 4 10.0.0.5 22", "203.0.113.7"), "10.0.0.5", "where ssh arrives");
        for no_help in ["198.51.100.1 4 10.0.0.6 22", "127.0.0.1 4 127.0.0.1 22", "::1 4 fd00::1 22", "", "x y -z 22"] {
            assert_eq!(told("10.0.0.5", no_help, "203.0.113.7"), "0.0.0.0", "{no_help}");
        }
        assert_eq!(told("10.0.0.5", "198.51.100.1 4 10.0.0.5 22", "2001:db8::7"), "::");
    }
}
