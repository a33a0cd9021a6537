//! The agent's end of a byte stream: a virtio-serial port, or the standard streams.
//!
//! A virtio-serial port (Linux `drivers/char/virtio_console.c`) never ends: while nobody holds
//! the host's side, reads return 0, poll(2) says POLLHUP, and a blocking write sleeps for ever.
//! Hence poll before each read, and writes that do not block.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use crate::machine::poll_for;

/// One direction or both of a stream, over a descriptor.
#[derive(Debug, Clone)]
pub struct Port {
    fd: Arc<OwnedFd>,
    idle: Option<Duration>,
}

impl Port {
    /// A stream over `fd`. With `idle`, a read fails with `TimedOut` after so long without a byte.
    pub fn new(fd: impl Into<OwnedFd>, idle: Option<Duration>) -> Self {
        Self { fd: Arc::new(fd.into()), idle }
    }

    /// Opens a port device. `path` may be the name that udev would give it,
    /// `/dev/virtio-ports/NAME`: it is found without udev.
    ///
    /// # Errors
    /// When it is not there (yet) or another process has it open.
    pub fn open(path: &Path, idle: Option<Duration>) -> io::Result<Self> {
        let device = if path.exists() { path.to_owned() } else { find_by_name(path)? };
        let options = OpenOptions::new().read(true).write(true).custom_flags(NONBLOCK).open(device)?;
        Ok(Self::new(options, idle))
    }

    /// Waits until the host's side is open. The kernel offers no event for that but an immediate
    /// POLLHUP while it is not.
    pub fn wait_for_host(&self) -> io::Result<()> {
        loop {
            let mut fds = [PollFd::new(&*self.fd, PollFlags::OUT)];
            poll_for(&mut fds, None)?;
            if !fds[0].revents().contains(PollFlags::HUP) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// `/dev/vportNpM` of the port that bears the file name of `path`.
fn find_by_name(path: &Path) -> io::Result<PathBuf> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "no such virtio-serial port");
    let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(missing)?;
    ports()?.into_iter().find(|(n, _)| n == name).map(|(_, device)| device).ok_or_else(missing)
}

/// Names and devices of all virtio-serial ports, from `/sys/class/virtio-ports/*/name`.
pub(crate) fn ports() -> io::Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir("/sys/class/virtio-ports")?.flatten();
    let named = entries.filter_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        Some((name.trim().to_owned(), Path::new("/dev").join(entry.file_name())))
    });
    Ok(named.collect())
}

impl Read for Port {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut fds = [PollFd::new(&*self.fd, PollFlags::IN)];
            if poll_for(&mut fds, self.idle)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // What came before the other side closed is still to be read.
            if !fds[0].revents().contains(PollFlags::IN) {
                return Ok(0);
            }
            match rustix::io::read(&*self.fd, &mut *buffer) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&*self.fd, bytes) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    let mut fds = [PollFd::new(&*self.fd, PollFlags::OUT)];
                    poll_for(&mut fds, None)?;
                    if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                }
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
