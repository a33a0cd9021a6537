//! Other machines that take part in a run, reached before its plan and kept until its end.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;

use vmio_model::failure::{Exit, Failure};
use vmio_node::ssh::{Address, Machine, SCHEME};
use vmio_rig::engine::afar::{Afar, Peer};

use super::Wishes;
use crate::ssh;

/// Where files are made on another machine where nobody says: on its disk, not in its memory.
const DIR: &str = "/var/tmp";

/// The machines of a run. When it is dropped, all is undone there.
#[derive(Default)]
pub struct Reached {
    afar: Option<(Machine, Afar)>,
    peer: Option<(Machine, Peer)>,
}

/// Another machine as `--on` names it, `ssh://[USER@]HOST[:PORT][/DIR]`, with the directory; `None` where it names a place of
/// this host.
pub fn named(on: &str) -> Option<Result<(Address, PathBuf), Failure>> {
    let rest = on.strip_prefix(SCHEME)?;
    let (host, dir) = rest.split_once('/').map_or((rest, ""), |(host, dir)| (host, dir));
    let dir = if dir.is_empty() { PathBuf::from(DIR) } else { PathBuf::from(format!("/{dir}")) };
    let address = format!("{SCHEME}{host}").parse().map_err(|why: String| Failure::new(Exit::Usage, why));
    Some(address.map(|address| (address, dir)))
}

/// Whether `--on` names another machine.
pub fn is_afar(on: Option<&str>) -> bool {
    on.is_some_and(|on| on.starts_with(SCHEME))
}

impl Reached {
    /// Goes to the machines that are wished for.
    pub fn by(wishes: &Wishes) -> Result<Self, Failure> {
        let afar = match wishes.on.as_deref().and_then(named).transpose()? {
            None => None,
            Some((address, dir)) => {
                let machine = ssh::open(&address)?;
                let afar = Afar { address: address.to_string(), node: machine.shared(), dir };
                Some((machine, afar))
            }
        };
        let peer = match &wishes.peer {
            None => None,
            Some(address) => {
                let machine = ssh::open(address)?;
                let peer = Peer { address: address.to_string(), node: machine.shared(), ends: ends(address)? };
                Some((machine, peer))
            }
        };
        Ok(Self { afar, peer })
    }

    /// The machine that the side `ssh` is.
    pub fn afar(&self) -> Option<Afar> {
        self.afar.as_ref().map(|(_, afar)| afar.clone())
    }

    /// The machine at the other end of the network `wire`.
    pub fn peer(&self) -> Option<Peer> {
        self.peer.as_ref().map(|(_, peer)| peer.clone())
    }
}

/// The addresses of a machine and of this host towards it. What the other machine says of itself is not asked: it could name
/// anybody.
fn ends(address: &Address) -> Result<(IpAddr, IpAddr), Failure> {
    let failed = |what: String| Failure::new(Exit::Precondition, format!("{address}: {what}"));
    let name = ssh::host_name(address).map_err(|e| failed(format!("ssh does not say which host that is: {e}")))?;
    let unknown = |e: std::io::Error| {
        failed(format!("there is no address of {name}: {e}")).help("paths lead to it without ssh: it needs one here")
    };
    let theirs = (name.as_str(), 0).to_socket_addrs().map_err(unknown)?.next();
    let theirs = theirs.ok_or_else(|| failed(format!("there is no address of {name}")))?.ip();
    // Connecting sends nothing: the kernel chooses the way (udp(7)).
    let any: SocketAddr = if theirs.is_ipv6() { ([0; 8], 0).into() } else { ([0; 4], 0).into() };
    let own = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((theirs, 9))?;
        socket.local_addr()
    });
    let own = own.map_err(|e| failed(format!("no way leads from here to {theirs}: {e}")))?.ip();
    Ok((theirs, own))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_place_on_another_machine_is_an_address_with_a_directory() {
        let told = |on: &str| named(on).map(|read| read.map(|(a, dir)| (a.to_string(), dir.display().to_string())));
        let is = |on: &str| told(on).unwrap().unwrap();
        assert_eq!(is("ssh://root@host:22"), ("ssh://root@host:22".into(), "/var/tmp".into()));
        assert_eq!(is("ssh://host/"), ("ssh://host".into(), "/var/tmp".into()));
        assert_eq!(is("ssh://[fe80::1]:22/srv/a b"), ("ssh://[fe80::1]:22".into(), "/srv/a b".into()));
        assert!(told("/srv").is_none() && told("lvm:vg").is_none());
        assert!(told("ssh://-oProxyCommand=x/srv").unwrap().is_err(), "no option of ssh");
        assert!(is_afar(Some("ssh://h")) && !is_afar(Some("ssh")) && !is_afar(None));
    }
}
