//! Other machines that take part in a run, reached before its plan and kept until its end.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use vmio_look::{HostView, scan};
use vmio_model::cell::{Actor, Cell};
use vmio_model::failure::{Exit, Failure};
use vmio_model::rules;
use vmio_model::study::Study;
use vmio_node::Local;
use vmio_node::reach::Machine;
use vmio_node::ssh::Address;
use vmio_rig::engine::environment;
use vmio_rig::nodes::{self, GuestScan, Is, Measured, Nodes};
use vmio_rig::{nets, ours, workloads};

use super::RunOptions;
use crate::report::scan::devices;
use crate::transport::{self, AgentMachine, TRANSPORTS, Transport};

/// The other machines of a run. Dropping it undoes everything there.
#[derive(Default)]
pub struct Reached {
    held: Vec<Machine>,
    /// The same machines as the run sees them.
    pub nodes: Nodes,
}

/// Another machine as `--on` names it.
struct RemotePlace {
    transport: &'static Transport,
    address: String,
    dir: PathBuf,
}

/// What `--on` names; `None` where that is a place of this host.
fn named(on: &str) -> Option<Result<RemotePlace, Failure>> {
    let (transport, rest) =
        TRANSPORTS.iter().find_map(|transport| Some((transport, on.strip_prefix(transport.scheme)?)))?;
    let (place, dir) = rest.split_once('/').unwrap_or((rest, ""));
    let dir = if dir.is_empty() { PathBuf::from(nodes::DIR) } else { PathBuf::from(format!("/{dir}")) };
    let address = format!("{}{place}", transport.scheme);
    let read = (transport.check)(&address)
        .map_err(|why| Failure::new(Exit::Usage, why.0).help(format!("{} ({})", transport.form, transport.page)));
    Some(read.map(|()| RemotePlace { transport, address, dir }))
}

impl Reached {
    /// Connects to the machines of `--on` and `--peer`, and sends them vmio's own programs that the study runs there.
    pub fn by(options: &RunOptions, study: &Study) -> Result<Self, Failure> {
        let mut reached = Self::default();
        if let Some(RemotePlace { transport, address, dir }) = options.on.as_deref().and_then(named).transpose()? {
            let AgentMachine { machine, guest } = (transport.open)(&address)?;
            send(&machine, &address, study, |actor| actor.side.is_afar())?;
            let scan = guest.map(|uuid| scan_of(&uuid)).unwrap_or_default();
            let node = machine.shared();
            let hold = |device: &PathBuf| node.hold_device(device, options.force);
            let device = options.device.first().map(hold).transpose();
            let device = device.map_err(|e| Failure::new(Exit::Precondition, e.to_string()))?;
            let is = Is::Measured(Measured { dir, device, force: options.force, scan });
            reached.add(machine, nodes::Machine { address, node, is });
        }
        if let Some(place) = &options.peer {
            let address = &place.address;
            let machine = transport::by_ssh(address)?;
            send(&machine, &address.to_string(), study, nets::is_over_wire)?;
            let mut peer = environment::peer(&address.to_string(), machine.shared(), ends(address)?, &study.cells());
            if let (Is::Peer(own), Some(dir)) = (&mut peer.is, &place.dir) {
                own.dir.clone_from(dir);
            }
            reached.add(machine, peer);
        }
        Ok(reached)
    }

    fn add(&mut self, held: Machine, is: nodes::Machine) {
        self.held.push(held);
        self.nodes.add(is);
    }
}

/// Sends the programs of vmio's own that actors of the study run there. A program that is not built is no error here:
/// the plan leaves out its cells.
fn send(machine: &Machine, address: &str, study: &Study, there: impl Fn(&Actor) -> bool) -> Result<(), Failure> {
    let cells = study.cells();
    let workloads: BTreeSet<&str> =
        cells.iter().flat_map(Cell::actors).filter(|actor| there(actor)).map(|actor| &*actor.workload).collect();
    let run = |name: &str| workloads.iter().filter_map(|w| workloads::find(w)).any(|w| w.programs().any(|p| p == name));
    for own in ours::of_workloads().filter(|own| run(own.name)) {
        let Ok(file) = own.find(&Local::new()) else { continue };
        machine.send(own.name, &file).map_err(|e| {
            Failure::new(Exit::Precondition, format!("cannot send {} to {address}: {e}", own.name))
                .help("make room there, or leave out the workloads that run it")
        })?;
    }
    Ok(())
}

/// Settings and findings of this host's guest with that UUID; empty where another host runs it.
fn scan_of(uuid: &str) -> GuestScan {
    let local = Local::new();
    let found = scan::scan(&HostView::new(&local)).guests;
    let Some(guest) = found.into_iter().find(|guest| guest.uuid.as_deref() == Some(uuid)) else {
        return GuestScan::default();
    };
    let settings = devices(&guest).into_iter().map(|device| {
        let list: Vec<String> = device.settings.iter().map(|s| format!("{} {}", s.name, s.value)).collect();
        (device.name, list.join(", "))
    });
    let findings = rules::findings(&guest.facts())
        .iter()
        .map(|finding| format!("{}: {}", finding.subject, finding.title))
        .collect();
    GuestScan { settings: settings.filter(|(_, list)| !list.is_empty()).collect(), findings }
}

/// How long another machine may take to answer at one of its addresses.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// The addresses of a machine and of this host towards it. The machine itself is not asked for its address: it could
/// name any.
fn ends(address: &Address) -> Result<(IpAddr, IpAddr), Failure> {
    let failed = |what: String| Failure::new(Exit::Precondition, format!("{address}: {what}"));
    let host = transport::host(address).map_err(|e| failed(format!("ssh does not say which host that is: {e}")))?;
    let name = &host.name;
    let unknown = |e: std::io::Error| {
        failed(format!("{name} has no address: {e}")).help("paths lead to it without ssh: it needs one here")
    };
    let all = (name.as_str(), 0).to_socket_addrs().map_err(unknown)?.map(|found| found.ip());
    let mut all: Vec<IpAddr> = all.filter(|theirs| host.takes(*theirs)).collect();
    all.dedup();
    let first = *all.first().ok_or_else(|| failed(format!("{name} has no address that ssh accepts")))?;
    let reached = all.into_iter().filter_map(|theirs| Some((theirs, own(theirs).ok()?))).collect::<Vec<_>>();
    let answers = |theirs: IpAddr| TcpStream::connect_timeout(&(theirs, host.port).into(), ANSWERS_WITHIN).is_ok();
    match reachable(&reached, answers) {
        Some(ends) => Ok(ends),
        None => {
            let why = own(first).err().map(|e| e.to_string()).unwrap_or_default();
            Err(failed(format!("no way leads from here to {first}: {why}")))
        }
    }
}

/// The address of this host towards another. Connecting a UDP socket sends nothing; the kernel chooses the route
/// (udp(7)).
fn own(theirs: IpAddr) -> std::io::Result<IpAddr> {
    let any: SocketAddr = if theirs.is_ipv6() { ([0; 8], 0).into() } else { ([0; 4], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect((theirs, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Of several addresses the first that answers, which `ssh` takes, too. Where none does (`ssh` goes by a third
/// machine), the first that has a route.
fn reachable(reached: &[(IpAddr, IpAddr)], answers: impl Fn(IpAddr) -> bool) -> Option<(IpAddr, IpAddr)> {
    match reached {
        [] | [_] => reached.first().copied(),
        [first, ..] => Some(*reached.iter().find(|(theirs, _)| answers(*theirs)).unwrap_or(first)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn of_several_addresses_the_one_counts_that_answers() {
        let end = |theirs: &str| (theirs.parse().unwrap(), "192.0.2.1".parse().unwrap());
        let (six, four): ((IpAddr, IpAddr), _) = (end("2001:db8::1"), end("192.0.2.7"));
        assert_eq!(reachable(&[six, four], |theirs| theirs.is_ipv4()), Some(four));
        assert_eq!(reachable(&[six, four], |_| true), Some(six), "the first, as ssh does");
        assert_eq!(reachable(&[six, four], |_| false), Some(six));
        assert_eq!(reachable(&[four], |_| panic!("nobody is asked where there is one")), Some(four));
        assert_eq!(reachable(&[], |_| true), None);
    }

    #[test]
    fn a_place_on_another_machine_is_an_address_with_a_directory() {
        let read = |on: &str| named(on).map(|read| read.map(|n| (n.address, n.dir.display().to_string())));
        let is = |on: &str| read(on).unwrap().unwrap();
        assert_eq!(is("ssh://root@host:22"), ("ssh://root@host:22".into(), "/var/tmp".into()));
        assert_eq!(is("ssh://host/"), ("ssh://host".into(), "/var/tmp".into()));
        assert_eq!(is("libvirt://web 1/srv/a"), ("libvirt://web 1".into(), "/srv/a".into()));
        assert_eq!(is("ssh://[fe80::1]:22/srv/a b"), ("ssh://[fe80::1]:22".into(), "/srv/a b".into()));
        assert!(read("/srv").is_none() && read("lvm:vg").is_none());
        assert!(read("ssh://-oProxyCommand=x/srv").unwrap().is_err(), "no option of ssh");
    }
}
