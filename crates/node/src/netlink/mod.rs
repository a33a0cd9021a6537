//! A netlink socket for interfaces, qdiscs and classes (rtnetlink(7)). What is asked through it is the caller's: [`tc`]
//! has the requests of those who only look; the guard's plane has those that change.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recvfrom, sendto, socket_with,
};

use wire::{DONE, ERROR, Malformed, Message, OVERRUN, Request, flag};

pub mod tc;
pub mod wire;

#[cfg(test)]
mod tests;

/// How long the kernel may take for an answer. It answers at once; this keeps a fault from hanging.
const LIMIT: Duration = Duration::from_secs(10);
/// The most that one datagram of the kernel may hold. Its dumps come in pieces of at most 32 KiB.
const DATAGRAM: usize = 256 << 10;
/// Most repetitions of a dump that was inconsistent.
const ATTEMPTS: u32 = 24;
/// Longest wait between two of them, which begins with 1 ms and doubles: they end after half a second or so.
const LONGEST_WAIT: Duration = Duration::from_millis(32);
/// Room asked for answers that wait.
const RECEIVE: usize = 1 << 20;

/// Why the kernel gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It refused.
    #[error("cannot {what}: {source}")]
    Refused {
        /// What was asked, in words that follow "cannot".
        what: String,
        /// Its error.
        source: io::Error,
        /// Its extended acknowledgement (Linux 4.12), often empty.
        said: String,
    },
    /// Its answer cannot be parsed.
    #[error("cannot {what}: the kernel's answer {why}")]
    Malformed {
        /// What was asked.
        what: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// What was asked about changed all the time, so that no answer was consistent (NLM_F_DUMP_INTR).
    #[error("cannot {what}: it changed each of {} times while it was given; try again", ATTEMPTS)]
    Changing {
        /// What was asked.
        what: String,
    },
}

/// Result with this module's error.
pub type Result<T> = std::result::Result<T, Error>;

/// A socket to the kernel, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    sequence: u32,
    most_bytes: usize,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens one, whose dumps may hold so many bytes.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open(most_bytes: usize) -> Result<Self> {
        let refused = |e: rustix::io::Errno| refused("open a netlink socket", e.raw_os_error(), String::new());
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(refused)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0)).map_err(refused)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(LIMIT)).map_err(refused)?;
        set_socket_timeout(&socket, Timeout::Send, Some(LIMIT)).map_err(refused)?;
        // As much as net.core.rmem_max gives; what there is by default holds a batch's acknowledgements.
        let _ = set_socket_recv_buffer_size(&socket, RECEIVE);
        // Acknowledgements that say why, and do not repeat the request. Older kernels do without either.
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let on: libc::c_int = 1;
            // SAFETY: the value is an int that outlives the call, and its size is given.
            unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_NETLINK,
                    option,
                    (&raw const on).cast(),
                    size_of_val(&on) as libc::socklen_t,
                );
            }
        }
        Ok(Self { socket, sequence: 0, most_bytes, buffer: vec![0; DATAGRAM] })
    }

    /// The number that the kernel has given this socket.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn port(&self) -> Result<u32> {
        let address = getsockname(&self.socket).and_then(SocketAddrNetlink::try_from);
        let failed = |e: rustix::io::Errno| refused("see a netlink socket's number", e.raw_os_error(), String::new());
        address.map(|address| address.pid()).map_err(failed)
    }

    /// Runs a dump, and converts each message by `take`. An inconsistent dump is discarded and repeated, after
    /// longer and longer waits.
    ///
    /// # Errors
    /// When the kernel refuses, or what it says makes no sense.
    pub fn dump<T>(
        &mut self,
        what: &str,
        request: &Request,
        take: impl Fn(&Message<'_>) -> std::result::Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>> {
        let mut wait = Duration::from_millis(1);
        for attempt in 1..=ATTEMPTS {
            let sequence = self.send(what, std::slice::from_ref(request))?;
            if let Some(all) = self.collect(what, sequence, &take)? {
                return Ok(all);
            }
            if attempt < ATTEMPTS {
                thread::sleep(wait);
                wait = LONGEST_WAIT.min(wait * 2);
            }
        }
        Err(Error::Changing { what: what.to_owned() })
    }

    /// The answer to a request for one thing; `None` where there is no such thing (ENODEV, ENOENT).
    ///
    /// # Errors
    /// When the kernel refuses otherwise, or what it says makes no sense.
    pub fn ask<T>(
        &mut self,
        what: &str,
        request: &Request,
        take: impl Fn(&Message<'_>) -> std::result::Result<Option<T>, Malformed>,
    ) -> Result<Option<T>> {
        let sequence = self.send(what, std::slice::from_ref(request))?;
        match self.collect(what, sequence, &take) {
            Ok(all) => Ok(all.and_then(|all| all.into_iter().next())),
            Err(Error::Refused { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ENODEV | libc::ENOENT)) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Sends requests in one call; gives the number of the first. The kernel does them in their order before the call
    /// returns.
    ///
    /// # Errors
    /// When a request is too long, or cannot be sent.
    pub fn send(&mut self, what: &str, requests: &[Request]) -> Result<u32> {
        let first = self.sequence.wrapping_add(1);
        let mut bytes = Vec::new();
        for request in requests {
            self.sequence = self.sequence.wrapping_add(1);
            bytes.extend(request.encode(self.sequence).map_err(|e| malformed(what, e.0))?);
        }
        let failed = |e: rustix::io::Errno| refused(what, e.raw_os_error(), String::new());
        sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).map_err(failed)?;
        Ok(first)
    }

    /// One datagram of the kernel's.
    ///
    /// # Errors
    /// When none comes in time, or it is longer than any may be.
    pub fn receive(&mut self, what: &str) -> Result<&[u8]> {
        loop {
            match recvfrom(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC) {
                Ok((_, whole, from)) => {
                    // Only the kernel has port 0; another process may send to a socket, too.
                    let sender = from.and_then(|a| SocketAddrNetlink::try_from(a).ok()).map(|a| a.pid());
                    if sender != Some(0) {
                        continue;
                    }
                    if whole > self.buffer.len() {
                        return Err(malformed(what, format!("has {whole} bytes at once, more than {DATAGRAM}")));
                    }
                    return Ok(&self.buffer[..whole]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(refused(what, e.raw_os_error(), String::new())),
            }
        }
    }

    /// What answers the request of that number; `None` where it must be asked for anew.
    fn collect<T>(
        &mut self,
        what: &str,
        sequence: u32,
        take: &impl Fn(&Message<'_>) -> std::result::Result<Option<T>, Malformed>,
    ) -> Result<Option<Vec<T>>> {
        let (mut all, mut bytes, mut interrupted, most) = (Vec::new(), 0, false, self.most_bytes);
        loop {
            let datagram = self.receive(what)?;
            bytes += datagram.len();
            if bytes > most {
                return Err(malformed(what, format!("has more than {most} bytes")));
            }
            for message in wire::messages(datagram).map_err(|e| malformed(what, e.0))? {
                if message.sequence != sequence {
                    continue;
                }
                interrupted |= message.flags & flag::INTERRUPTED != 0;
                match message.kind {
                    ERROR | DONE => {
                        // The end of a dump has no number before Linux 4.14.
                        let (code, said) = match message.payload.len() {
                            0 => (0, String::new()),
                            _ => wire::outcome(&message).map_err(|e| malformed(what, e.0))?,
                        };
                        return match code {
                            0 => Ok((!interrupted).then_some(all)),
                            code => Err(refused(what, code, said)),
                        };
                    }
                    OVERRUN => return Err(malformed(what, "did not fit".to_owned())),
                    _ => all.extend(take(&message).map_err(|e| malformed(what, e.0))?),
                }
            }
        }
    }
}

fn refused(what: &str, code: i32, said: String) -> Error {
    Error::Refused { what: what.to_owned(), source: io::Error::from_raw_os_error(code), said }
}

fn malformed(what: &str, why: String) -> Error {
    Error::Malformed { what: what.to_owned(), why }
}
