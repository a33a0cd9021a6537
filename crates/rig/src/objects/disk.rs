//! An image of a store as a disk: `nbdkit` serves its bytes by the NBD protocol on a Unix socket, to guests of this
//! user. What they write is kept beside it (nbdkit-cow-filter(1)), and ends with the disk: the object stays as it is.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::find_program;
use vmio_node::{Exec, Node, Process};

use super::client::Client;
use super::forward::{Object, Tell};
use super::local::ended_with;
use super::sign::encoded;
use super::{Error, Result};
use crate::qemu::waiting;

/// The program.
const NBDKIT: &str = "nbdkit";
/// What is kept of its messages.
const KEPT_BYTES: usize = 64 << 10;
/// How long a killed one may take to end.
const END: Duration = Duration::from_secs(10);

/// How the bytes of an object are read.
pub enum Way {
    /// From the server, by ranges (nbdkit-curl-plugin(1)).
    Ranges {
        /// Waits before a request is repeated.
        pause: fn(Duration),
        /// Told why bytes could not be had; the guest's read fails then.
        tell: Tell,
    },
    /// From the object's file, where the server is the store of this host (nbdkit-file-plugin(1)).
    InPlace,
}

/// A disk that is served. It is ended where this goes out of scope.
pub struct Disk {
    socket: PathBuf,
    process: Box<dyn Process>,
    /// The object, which the server has by this descriptor.
    _file: Option<File>,
}

impl Disk {
    /// Serves an object. The sockets and what guests write are in `dir`, which is this user's alone.
    ///
    /// # Errors
    /// The program is missing, the object is, or the program does not serve it.
    pub fn open(node: &dyn Node, client: Client, key: &str, dir: &Path, way: Way) -> Result<Self> {
        let program = find_program(node.reader(), NBDKIT).ok_or(Error::NoNbdkit)?;
        let failed = |why: String| Error::NotOpened { why };
        let (socket, http) = (dir.join("disk"), dir.join("http"));
        let (bytes, file) = match way {
            Way::Ranges { pause, tell } => {
                Object::find(Arc::new(client), key, pause, tell)?.serve(&http)?;
                (curl(&http), None)
            }
            Way::InPlace => {
                let file = client.file(key)?;
                let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
                (vec!["file".to_owned(), format!("file={path}")], Some(file))
            }
        };
        let mut command = Exec { keep_bytes: KEPT_BYTES, ..Exec::new(program.display().to_string()) };
        command = command.args(["--foreground", "--unix", &socket.display().to_string(), "--filter=cow"]).args(bytes);
        command.env.insert("TMPDIR".into(), dir.display().to_string());
        // Those of the user's are not for a socket of this host.
        command.env.insert("no_proxy".into(), "*".into());
        let process = node.spawn(&command).map_err(|e| failed(e.to_string()))?;
        let mut disk = Disk { socket, process, _file: file };
        disk.listens()?;
        Ok(disk)
    }

    fn listens(&mut self) -> Result<()> {
        let Self { socket, process, .. } = self;
        let mut ended = || process.try_wait().ok().flatten();
        let why = match waiting::connect(socket, &mut ended) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => format!("{NBDKIT} does not listen at {}", socket.display()),
            Err(e) => format!("cannot connect to {}: {e}", socket.display()),
        };
        // If it ended, how says more.
        let why = waiting::ended_soon(ended).map_or(why, |output| ended_with(NBDKIT, &output));
        Err(Error::NotOpened { why })
    }

    /// What a hypervisor opens it by (NBD project, doc/uri.md).
    pub fn uri(&self) -> String {
        uri(&self.socket)
    }

    /// Fails once its server has ended, with what that said.
    ///
    /// # Errors
    /// It ended.
    pub fn still_runs(&mut self) -> Result<()> {
        let ended = self.process.try_wait().map_err(|e| Error::NotOpened { why: e.to_string() })?;
        ended.map_or(Ok(()), |output| Err(Error::NotOpened { why: ended_with(NBDKIT, &output) }))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait(Some(END));
    }
}

/// The plugin for ranges. It knows a socket and no key.
fn curl(socket: &Path) -> Vec<String> {
    let socket = format!("unix-socket-path={}", socket.display());
    vec!["curl".to_owned(), "protocols=http".to_owned(), socket, "url=http://image/disk".to_owned()]
}

/// The address of a socket, whatever letters its path has.
fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", encoded(&socket.display().to_string(), true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_is_told_a_socket_and_nothing_of_the_store() {
        let line = curl(Path::new("/s/http")).join(" ");
        assert_eq!(line, "curl protocols=http unix-socket-path=/s/http url=http://image/disk");
    }

    #[test]
    fn an_address_is_one_word() {
        assert_eq!(uri(Path::new("/a b&c/open-7/disk")), "nbd+unix:///?socket=/a%20b%26c/open-7/disk");
    }
}
