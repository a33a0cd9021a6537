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

/// The two directions of a stream to an agent. A write that may block for ever should have a time
/// limit of the stream's own (`UnixStream::set_write_timeout`).
pub type Halves = (Box<dyn Read + Send>, Box<dyn Write + Send>);

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

/// Bytes after which a [`Spool`] goes on in its next file.
pub const SPOOL_BYTES: usize = 1 << 20;

/// A stream for a reader that looks into files now and then: numbered files in a directory, `0` first. The next one
/// begins when one has [`SPOOL_BYTES`] or more; from then on nothing is added to that, and its reader may empty it.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    number: u64,
    /// None before the first byte.
    file: Option<fs::File>,
    bytes: usize,
}

impl Spool {
    /// A stream into the files of this directory, which is empty.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, number: 0, file: None, bytes: 0 }
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.file.is_some() && self.bytes >= SPOOL_BYTES {
            (self.file, self.number, self.bytes) = (None, self.number + 1, 0);
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none
                .insert(OpenOptions::new().write(true).create_new(true).open(self.dir.join(self.number.to_string()))?),
        };
        let n = file.write(bytes)?;
        self.bytes += n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Port {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut fds = [PollFd::new(&*self.fd, PollFlags::IN)];
            if poll_for(&mut fds, self.idle)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Data from before the close is still to be read.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_spool_goes_on_in_its_next_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path().to_owned());
        let read = |name: &str| fs::read(dir.path().join(name));
        assert!(read("0").is_err(), "nothing was said");
        spool.write_all(&[1; SPOOL_BYTES - 1]).unwrap();
        spool.write_all(&[2; 2]).unwrap();
        assert_eq!(read("0").unwrap().len(), SPOOL_BYTES + 1);
        assert!(read("1").is_err());
        spool.write_all(&[3]).unwrap();
        // The reader empties a file after reading it.
        fs::write(dir.path().join("0"), "").unwrap();
        spool.write_all(&[4]).unwrap();
        assert_eq!((read("0").unwrap(), read("1").unwrap()), (vec![], vec![3, 4]));
    }
}
