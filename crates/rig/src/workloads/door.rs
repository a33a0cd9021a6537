//! The port of a server on another machine as it is seen from here: a firewall may be between, or a translation of
//! addresses that does not lead there. Programs wait for minutes then, and say no more than that time is out.

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

/// The port of a server, and the address that leads there from here.
pub(super) struct Door {
    node: String,
    address: IpAddr,
    ready: Ready,
}

impl Door {
    /// That of a server; `None` where no foreign network leads there.
    pub(super) fn of(end: &End, ready: Ready) -> Option<Self> {
        Some(Self { node: end.node.name().to_owned(), address: end.elsewhere()?, ready })
    }

    /// Looks before the server is there whether anything answers at all: who has nobody at a port says so (RFC 9293,
    /// section 3.10.7.1).
    ///
    /// # Errors
    /// When nothing gets through.
    pub(super) fn passable(&self) -> Result<()> {
        match self.knock() {
            Some(Err(e)) if e.kind() != io::ErrorKind::ConnectionRefused => {
                Err(self.shut("nothing gets through", &e.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// What failed for a client whose server is there all the same.
    pub(super) fn blame(&self, error: Error) -> Error {
        match (self.knock(), self.ready, &error) {
            (Some(Err(e)), ..) => {
                self.shut("nothing gets through", &format!("{e}, though a server listens there; {error}"))
            }
            (_, Ready::Both(_) | Ready::Receives(_), Error::Failed { .. }) => {
                self.shut("datagrams may not get through", &error.to_string())
            }
            _ => error,
        }
    }

    /// Connects to it; `None` where no connection can be made.
    fn knock(&self) -> Option<io::Result<TcpStream>> {
        let (Ready::Listens(port) | Ready::Both(port)) = self.ready else { return None };
        Some(TcpStream::connect_timeout(&(self.address, port).into(), ANSWERS_WITHIN))
    }

    fn shut(&self, what: &'static str, how: &str) -> Error {
        let ports = match self.ready {
            Ready::Listens(port) => format!("TCP port {port}"),
            Ready::Receives(port) => format!("UDP port {port}"),
            Ready::Both(port) => format!("port {port} (TCP and UDP)"),
        };
        Error::Shut { node: self.node.clone(), what, address: self.address, ports, how: how.to_owned() }
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

    fn door(on: NodeId, ready: Ready) -> Option<Door> {
        let at = At::address(IpAddr::from([127, 0, 0, 1]));
        Door::of(&End { on, ..End::here(Arc::new(Local::new()), at) }, ready)
    }

    fn failed() -> Error {
        Error::Failed { node: "here".into(), command: "client".into(), how: "Exit(1)".into(), said: "no answer".into() }
    }

    #[test]
    fn who_refuses_is_there_and_who_refuses_while_a_server_listens_is_not_that_server() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = door(NodeId::Peer, Ready::Listens(port)).unwrap();
        assert!(open.passable().is_ok() && matches!(open.blame(failed()), Error::Failed { .. }));
        drop(listener);
        let shut = door(NodeId::Peer, Ready::Listens(port)).unwrap();
        assert!(shut.passable().is_ok(), "nobody is there yet");
        let said = shut.blame(failed()).to_string();
        for word in ["nothing gets through to 127.0.0.1", &format!("Open TCP port {port}"), "refused", "no answer"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        let said = door(NodeId::Peer, Ready::Receives(port)).unwrap().blame(failed()).to_string();
        assert!(said.contains("datagrams may not get through") && said.contains(&format!("UDP port {port}")), "{said}");
        assert!(door(NodeId::Peer, Ready::Receives(port)).unwrap().passable().is_ok(), "UDP says nothing beforehand");
        assert!(door(NodeId::Played, Ready::Listens(port)).is_none(), "vmio's own network");
    }
}
