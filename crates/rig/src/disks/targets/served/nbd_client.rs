//! A kernel as the client of an NBD server, to which `nbd-client` (nbd-client(8)) hands a connection: a guest's by netlink,
//! and then the program ends; this host's by ioctl, and the program stays, so that the device goes when it is killed,
//! whatever ends vmio. (Of netlink the kernel hears this in its first network namespace alone, and vmio's is another.)

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use vmio_look::require::find_program;
use vmio_node::linux::block::{self, Device};
use vmio_node::{Exec, Node, Output, Process, Reader};

use super::super::{Error, Result};
use crate::disks::Storage;
use crate::limits::OOM_SCORE_ADJ;

/// The program.
pub const CLIENT: &str = "nbd-client";
/// How long it may take to connect, and one that was killed to end.
const LIMIT: Duration = Duration::from_secs(20);
/// Seconds that a request may wait for its answer: then the kernel ends the connection, and the request fails. (Else it waits
/// for ever, and nothing that uses the device can be ended.) All that a kernel writes out at once, 128 requests of 1280 KiB,
/// takes as long at 30 Mbit/s.
const REQUEST_SECONDS: u64 = 45;
const POLL: Duration = Duration::from_millis(20);
/// Most devices that the module makes where its parameter `nbds_max` is not set (drivers/block/nbd.c).
const DEVICES: u32 = 16;

/// The command that connects a kernel's device with a server, with blocks as those of the disks that a hypervisor makes of
/// it.
pub fn client(storage: &Storage, device: &Path) -> Result<Exec> {
    let Storage::NbdTcp { server, export } = storage else {
        let reason = format!("{CLIENT} is no client of {storage:?}");
        return Err(Error::Server { path: device.to_owned(), reason });
    };
    let (host, port, limit) = (server.ip().to_string(), server.port().to_string(), REQUEST_SECONDS.to_string());
    let device = device.to_string_lossy();
    Ok(Exec::new(CLIENT).args([&*host, &*port, &*device, "-N", export.as_str(), "-b", "512", "-t", &*limit]))
}

/// Why it did not.
pub fn refused(command: &Exec, output: &Output) -> Error {
    let (said, reported) = (output.err(), output.out());
    let reason = if said.trim().is_empty() { reported.trim() } else { said.trim() };
    Error::Tool { command: command.shown(), reason: reason.to_owned() }
}

/// A device of this host's kernel that is connected.
pub struct KernelClient {
    device: PathBuf,
    process: Box<dyn Process>,
}

impl KernelClient {
    /// Connects a free device, from where `enter` leads, and waits until it has the size of the target.
    pub fn connect(node: &dyn Node, enter: &[String], storage: &Storage, bytes: u64) -> Result<Self> {
        let reader = node.reader();
        let name = free(reader).ok_or_else(|| Error::NotAsAsked {
            path: "/dev/nbd0".into(),
            reason: "all network block devices are connected; end one with `nbd-client -d`".to_owned(),
        })?;
        let device = block::node_path(&name);
        // It is in a directory that a user's PATH often lacks.
        let program = find_program(reader, CLIENT).ok_or_else(|| Error::Tool {
            command: CLIENT.to_owned(),
            reason: "there is no such program; apt install nbd-client".to_owned(),
        })?;
        let program = program.display().to_string();
        let command = Exec { program, oom_score_adj: Some(OOM_SCORE_ADJ), ..client(storage, &device)? };
        let command = command.args(["-n", "-L"]).behind(enter);
        let process = node.spawn(&command)?;
        let mut this = Self { device, process };
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(output) = this.process.try_wait()? {
                return Err(refused(&command, &output));
            }
            let found = Device::whole(reader, &name);
            if found.nbd_client() == Some(this.process.pid()) && found.size_bytes() == Some(bytes) {
                return Ok(this);
            }
            if Instant::now() > until {
                let (size, by) = (found.size_bytes().unwrap_or(0), found.nbd_client().unwrap_or(0));
                let reason = format!(
                    "after {} s it has {size} bytes, not {bytes}, and is connected by process {by}, not {} (in a container \
                     with process numbers of its own vmio cannot tell its client)",
                    LIMIT.as_secs(),
                    this.process.pid()
                );
                return Err(Error::NotAsAsked { path: this.device.clone(), reason });
            }
            thread::sleep(POLL);
        }
    }

    /// What native workloads open.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// How its process ended, if it has: the server is gone.
    pub fn ended(&mut self) -> Result<Option<Output>> {
        Ok(self.process.try_wait()?)
    }
}

/// The kernel disconnects the device when the process ends.
impl Drop for KernelClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait(Some(LIMIT));
    }
}

/// The first device that nobody has connected.
fn free(reader: &dyn Reader) -> Option<String> {
    let is_free = |name: &String| {
        let device = Device::whole(reader, name);
        device.is_there() && device.nbd_client().is_none()
    };
    (0..DEVICES).map(|number| format!("nbd{number}")).find(is_free)
}

#[cfg(test)]
mod tests {
    use vmio_node::fake::Fake;

    use super::*;

    #[test]
    fn a_device_that_somebody_has_connected_is_left_alone() {
        let host = Fake::new("host").file("/sys/block/nbd0/pid", "77\n").file("/sys/block/nbd1/size", "0\n");
        assert_eq!(free(&host).as_deref(), Some("nbd1"));
        assert_eq!(free(&Fake::new("without the module")), None);
    }
}
