//! Serves a volume to the guests of another host, over TCP: which host that is, the pool's record says until the volume
//! is detached, whether it is served meanwhile or not.

use std::net::SocketAddr;
use std::path::PathBuf;

use vmio_node::Node;

use super::attachment::{Holder, Reach};
use super::key::{Key, refuse_clear};
use super::server::{Event, Export, program};
use super::{Error, Name, Pool, Result};

/// The host that has no key: this one.
const SAME: &str = "localhost";

/// Serves one volume. Where this goes out of scope its server is ended; the volume stays the other host's.
pub struct Listener<'a> {
    node: &'a dyn Node,
    pool: &'a Pool,
    program: PathBuf,
    name: Name,
    export: Export,
}

impl<'a> Listener<'a> {
    /// Becomes the one that serves a volume to the host that the key names.
    ///
    /// # Errors
    /// A guest of this host or another host has it, or what is served would leave this host in clear.
    pub fn start(node: &'a dyn Node, pool: &'a Pool, name: &Name, at: SocketAddr, key: Option<&Key>) -> Result<Self> {
        refuse_clear(at, key)?;
        let program = program(node)?;
        let host = key.map_or(SAME, |key| key.host.as_str()).to_owned();
        let holder = Holder::of(&format!("host {host} at {at}"), std::process::id())?;
        let attachment = pool.claim_as(name, &holder, &Reach::To { host, at })?;
        let export = Export::new(attachment, by_port(name, at, key), None);
        Ok(Listener { node, pool, program, name: name.clone(), export })
    }

    /// Starts the server where none runs.
    ///
    /// # Errors
    /// The volume is no longer the host's, or its record cannot be read.
    pub fn tick(&mut self) -> Result<Option<Event>> {
        if self.pool.attachment(&self.name)?.as_ref() != Some(&self.export.attachment) {
            return Err(Error::Detached(self.name.clone()));
        }
        let name = self.name.clone();
        Ok(match self.export.advance(self.node, self.pool, &self.program, &self.name) {
            Ok(true) => Some(Event::Served { name, guest: self.export.attachment.holder.guest.clone() }),
            Ok(false) => None,
            Err(why) => Some(Event::Failed { name, why }),
        })
    }
}

/// Where a server listens, and to whom.
fn by_port(name: &Name, at: SocketAddr, key: Option<&Key>) -> Vec<String> {
    let mut listen =
        vec![format!("--export-name={name}"), format!("--bind={}", at.ip()), format!("--port={}", at.port())];
    listen.extend(key.into_iter().flat_map(Key::server));
    listen
}

#[cfg(test)]
mod tests {
    use super::super::tests::name;
    use super::*;

    #[test]
    fn a_server_listens_where_it_is_told() {
        let listen = by_port(&name("data"), SocketAddr::from(([127, 0, 0, 1], 10809)), None);
        assert_eq!(listen, ["--export-name=data", "--bind=127.0.0.1", "--port=10809"]);
    }
}
