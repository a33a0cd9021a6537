//! Probes the port of a server on another machine: a firewall may block it, or an address may be translated to one that
//! does not lead there. Client programs then wait for minutes, and report no more than a timeout.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

use super::{End, Error, Result};

/// How long another machine may take to answer: a packet that is lost is sent again after 1 s and after 3 s (tcp(7)).
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// When a server is ready. A port counts when the server itself, or a process that it started, has it, and not
/// another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// When it listens on this TCP port.
    Listens(u16),
    /// When it has this UDP port.
    Receives(u16),
    /// When it listens on this TCP port; datagrams come by the UDP port of that number, too.
    Both(u16),
}

/// Probes the port of a server by the address that leads there from here.
pub(super) struct PortProbe {
    node: String,
    address: IpAddr,
    ready: Ready,
}

impl PortProbe {
    /// For a server; `None` where no foreign network leads to it.
    pub(super) fn of(end: &End, ready: Ready) -> Option<Self> {
        Some(Self { node: end.node.name().to_owned(), address: end.elsewhere()?, ready })
    }

    /// Checks, before the server is started, that anything answers: a host refuses connections to a port that nobody
    /// listens at (RFC 9293, section 3.10.7.1).
    ///
    /// # Errors
    /// When nothing gets through.
    pub(super) fn check_reachable(&self) -> Result<()> {
        match self.connect() {
            Some(Err(e)) if e.kind() != io::ErrorKind::ConnectionRefused => {
                Err(self.unreachable("nothing gets through", &e.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The error of a client whose server still runs: that of the port where it cannot be reached.
    pub(super) fn classify_failure(&self, error: Error) -> Error {
        match (self.connect(), self.ready, &error) {
            (Some(Err(e)), ..) => {
                self.unreachable("nothing gets through", &format!("{e}, though a server listens there; {error}"))
            }
            (_, Ready::Both(_) | Ready::Receives(_), Error::Failed { .. }) => {
                self.unreachable("datagrams may not get through", &error.to_string())
            }
            _ => error,
        }
    }

    /// Connects to it; `None` where no connection can be made.
    fn connect(&self) -> Option<io::Result<TcpStream>> {
        let (Ready::Listens(port) | Ready::Both(port)) = self.ready else { return None };
        Some(TcpStream::connect_timeout(&(self.address, port).into(), ANSWERS_WITHIN))
    }

    fn unreachable(&self, what: &'static str, how: &str) -> Error {
        let ports = match self.ready {
            Ready::Listens(port) => format!("TCP port {port}"),
            Ready::Receives(port) => format!("UDP port {port}"),
            Ready::Both(port) => format!("port {port} (TCP and UDP)"),
        };
        Error::PortUnreachable { node: self.node.clone(), what, address: self.address, ports, how: how.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;
    use std::sync::Arc;

    use vmio_node::Local;

    use super::*;
    use crate::nodes::NodeId;
    use crate::workloads::At;

    fn probe(on: NodeId, ready: Ready) -> Option<PortProbe> {
        let at = At::address(IpAddr::from([127, 0, 0, 1]));
        PortProbe::of(&End { on, ..End::here(Arc::new(Local::new()), at) }, ready)
    }

    fn failed() -> Error {
        Error::Failed { node: "here".into(), command: "client".into(), how: "Exit(1)".into(), said: "no answer".into() }
    }

    #[test]
    fn who_refuses_is_there_and_who_refuses_while_a_server_listens_is_not_that_server() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = probe(NodeId::Peer, Ready::Listens(port)).unwrap();
        assert!(open.check_reachable().is_ok() && matches!(open.classify_failure(failed()), Error::Failed { .. }));
        drop(listener);
        let closed = probe(NodeId::Peer, Ready::Listens(port)).unwrap();
        assert!(closed.check_reachable().is_ok(), "nobody is there yet");
        let said = closed.classify_failure(failed()).to_string();
        for word in ["nothing gets through to 127.0.0.1", &format!("Open TCP port {port}"), "refused", "no answer"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        let said = probe(NodeId::Peer, Ready::Receives(port)).unwrap().classify_failure(failed()).to_string();
        assert!(said.contains("datagrams may not get through") && said.contains(&format!("UDP port {port}")), "{said}");
        assert!(
            probe(NodeId::Peer, Ready::Receives(port)).unwrap().check_reachable().is_ok(),
            "UDP says nothing beforehand"
        );
        assert!(probe(NodeId::Played, Ready::Listens(port)).is_none(), "vmio's own network");
    }
}
