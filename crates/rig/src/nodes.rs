//! The machines of a run, in one list: this host, the guests that run on it, and others that were reached for it before
//! its plan, whose connection lasts as long as whoever owns the run keeps it. What works somewhere names its machine by
//! a [`NodeId`]; what one machine has and others have not is data of its entry.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use vmio_model::cell::Side;
use vmio_node::linux::addresses;
use vmio_node::{Exec, Node, Output, RemoteDevice};

/// Where files are made on another machine, where no directory is named: on its disk, not in its memory.
pub const DIR: &str = "/var/tmp";

/// Which machine of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeId {
    /// This host; of a run in a lab host, that guest.
    Host,
    /// Another host, which a network namespace of this one plays.
    Played,
    /// A guest on this host, or a container.
    Guest(Side),
    /// The machine that the side `ssh` is.
    Measured,
    /// The machine at the other end of the network `wire`.
    Peer,
}

impl NodeId {
    /// Where a side works.
    pub fn of(side: &Side) -> Self {
        match side {
            host if host.is_native() => Self::Host,
            other if other.is_afar() => Self::Measured,
            guest => Self::Guest(guest.clone()),
        }
    }

    /// Whether it is another machine: nothing of this host is held for it, no probe of this host sees it, and no
    /// network of vmio's own leads there.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Measured | Self::Peer)
    }
}

/// A machine of a run.
#[derive(Clone)]
pub struct Machine {
    /// How it is reached, in words: `ssh://root@host`, `libvirt://web1`, `this host`.
    pub address: String,
    /// Where commands run in it. What they leave on another machine goes with the connection.
    pub node: Arc<dyn Node>,
    /// What it is, with what only such a one has.
    pub is: Is,
}

/// What a machine is to a run.
#[derive(Clone)]
pub enum Is {
    /// This host.
    Host,
    /// A guest on it, or a container.
    Guest(Side),
    /// Measured as it is.
    Measured(Measured),
    /// The other end of paths from here.
    Peer(Peer),
}

/// What a machine has that is measured as it is.
#[derive(Clone)]
pub struct Measured {
    /// The directory of its own in which files are made.
    pub dir: PathBuf,
    /// The user's own device there, as the target `device`, held from now on.
    pub device: Option<RemoteDevice>,
    /// Use it whatever it holds.
    pub force: bool,
    /// What a scan of this host says of it, where it is a guest of this host.
    pub scan: GuestScan,
}

/// What a scan of this host says of one of its guests: the settings of its devices, in words, and findings.
#[derive(Clone, Default)]
pub struct GuestScan {
    /// Device -> its settings.
    pub settings: BTreeMap<String, String>,
    /// Findings of the rules.
    pub findings: Vec<String>,
}

/// What a machine has at the other end of the network `wire`, where servers run.
#[derive(Clone)]
pub struct Peer {
    /// The address that paths lead to, and the one of this host that they come from.
    pub ends: (IpAddr, IpAddr),
    /// The address that servers listen at there.
    pub serves: IpAddr,
    /// The directory of its own in which files are made.
    pub dir: PathBuf,
    /// Versions of what cells run there.
    pub programs: BTreeMap<String, String>,
    /// Where they differ from those of this host, in words.
    pub told: Vec<String>,
}

impl Machine {
    /// This host.
    pub fn host(node: Arc<dyn Node>) -> Self {
        Self { address: "this host".to_owned(), node, is: Is::Host }
    }

    /// A guest on it, or a container.
    pub fn guest(side: &Side, node: Arc<dyn Node>) -> Self {
        Self { address: format!("{side} on this host"), node, is: Is::Guest(side.clone()) }
    }

    /// What it is named by.
    pub fn id(&self) -> NodeId {
        match &self.is {
            Is::Host => NodeId::Host,
            Is::Guest(side) => NodeId::Guest(side.clone()),
            Is::Measured(_) => NodeId::Measured,
            Is::Peer(_) => NodeId::Peer,
        }
    }
}

/// Its address; of a peer with the one that paths lead to, `ssh://root@host (192.0.2.7)`.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.is {
            Is::Peer(own) => write!(f, "{} ({})", self.address, own.ends.0),
            _ => f.write_str(&self.address),
        }
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The machines of a run, each once.
#[derive(Debug, Clone, Default)]
pub struct Nodes(Vec<Machine>);

impl Nodes {
    /// Adds one, in the place of what had its name.
    pub fn add(&mut self, machine: Machine) {
        self.remove(&machine.id());
        self.0.push(machine);
    }

    /// Takes one out that is gone.
    pub fn remove(&mut self, id: &NodeId) {
        self.0.retain(|machine| machine.id() != *id);
    }

    /// Where commands run in one.
    pub fn node(&self, id: &NodeId) -> Option<&Arc<dyn Node>> {
        self.0.iter().find(|machine| machine.id() == *id).map(|machine| &machine.node)
    }

    /// The machine that the side `ssh` is.
    pub fn measured(&self) -> Option<(&Machine, &Measured)> {
        self.0.iter().find_map(|machine| match &machine.is {
            Is::Measured(own) => Some((machine, own)),
            _ => None,
        })
    }

    /// The machine at the other end of the network `wire`.
    pub fn peer(&self) -> Option<(&Machine, &Peer)> {
        self.0.iter().find_map(|machine| match &machine.is {
            Is::Peer(own) => Some((machine, own)),
            _ => None,
        })
    }
}

impl From<Machine> for Nodes {
    fn from(only: Machine) -> Self {
        Self(vec![only])
    }
}

impl Peer {
    /// Of a machine that is reached at the first of these addresses from the second. Only looks.
    pub fn of(node: &dyn Node, ends: (IpAddr, IpAddr)) -> Self {
        let (programs, told) = (BTreeMap::new(), Vec::new());
        Self { ends, serves: serves(node, ends.0), dir: DIR.into(), programs, told }
    }

    /// What is to be said where servers listen elsewhere than at the address that leads there.
    pub fn served_at(&self) -> Option<String> {
        let reached = self.ends.0;
        match self.serves {
            same if same == reached => None,
            any if any.is_unspecified() => Some(format!(
                "{reached} is not one of the machine's own addresses: servers listen at all of them while a cell runs"
            )),
            own => Some(format!(
                "{reached} is not one of the machine's own addresses: servers listen at {own}, where ssh arrives"
            )),
        }
    }
}

/// How long a shell may take to say what it was asked.
const SAYS_WITHIN: Duration = Duration::from_secs(10);

/// The address that servers listen at on a machine that is reached by this one: the same where an interface there has
/// it. Else addresses are translated on the way, as a cloud's public ones are, and it is the one at which `ssh`
/// arrives; where that is none of the machine's own (`ssh` was passed on, too), any.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_node::fake::{Fake, says};

    use super::*;

    #[test]
    fn a_machine_is_found_by_its_name_as_long_as_it_is_there() {
        let fake = |name: &str| -> Arc<dyn Node> { Arc::new(Fake::new(name)) };
        let (side, other) = (Side::of("qemu"), Side { nth: 1, ..Side::of("qemu") });
        let mut nodes = Nodes::from(Machine::host(fake("here")));
        for name in ["qemu-0", "qemu-1"] {
            nodes.add(Machine::guest(&side, fake(name)));
        }
        let peer = Peer::of(&Fake::new("there"), ([192, 0, 2, 7].into(), [192, 0, 2, 1].into()));
        nodes.add(Machine { address: "ssh://there".into(), node: fake("there"), is: Is::Peer(peer) });
        let name = |nodes: &Nodes, side: &Side| nodes.node(&NodeId::of(side)).map(|node| node.name().to_owned());
        assert_eq!(name(&nodes, &Side::native()).as_deref(), Some("here"));
        assert_eq!((name(&nodes, &side).as_deref(), name(&nodes, &other)), (Some("qemu-1"), None), "booted anew");
        let (machine, _) = nodes.peer().unwrap();
        assert_eq!((machine.id(), machine.to_string().as_str()), (NodeId::Peer, "ssh://there (192.0.2.7)"));
        nodes.remove(&NodeId::of(&side));
        assert_eq!(name(&nodes, &side), None);
        assert!(nodes.measured().is_none() && name(&nodes, &Side::of("ssh")).is_none());
        let elsewhere = [Side::of("ssh"), Side::native(), side].map(|side| NodeId::of(&side).is_elsewhere());
        assert_eq!((elsewhere, NodeId::Peer.is_elsewhere()), ([true, false, false], true));
    }

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
