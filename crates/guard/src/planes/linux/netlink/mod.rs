//! A netlink socket for interfaces, qdiscs and classes (rtnetlink(7)), with an acknowledgement for each request.
//!
//! Many requests go out in one call; the kernel does them in their order before the call returns, and each is
//! acknowledged by its number. What the kernel says beside an error (extended acknowledgements, Linux 4.12) is in
//! the error.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recvfrom, sendto, socket_with,
};

use super::{Error, Result};
use wire::{DONE, ERROR, Malformed, Message, OVERRUN, Request, flag};

pub mod events;
pub mod wire;

#[cfg(test)]
mod tests;

/// How long the kernel may take for an answer. It answers at once; this keeps a fault from hanging.
const LIMIT: Duration = Duration::from_secs(10);
/// The most that one datagram of the kernel may hold. Its dumps come in pieces of at most 32 KiB.
const DATAGRAM: usize = 256 << 10;
/// The most that one dump may hold: 10,000 classes with their statistics are 3 MB.
const DUMP: usize = 256 << 20;
/// Most repetitions of a dump that was inconsistent.
const ATTEMPTS: usize = 16;
/// Requests in one call, so that all their acknowledgements find room in the socket's buffer.
const BATCH: usize = 128;
/// Bytes in one call; a request has a few hundred.
const BATCH_BYTES: usize = 96 << 10;
/// Room asked for acknowledgements that wait.
const RECEIVE: usize = 1 << 20;

/// A request that changes something, and what it does, in words that follow "cannot".
#[derive(Debug, Clone)]
pub struct Change {
    /// Such as "add class 7a00:2 on eth0".
    pub what: String,
    /// The request.
    pub request: Request,
}

/// A socket to the kernel, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    changes: u64,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens one.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open() -> Result<Self> {
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
        Ok(Self { socket, sequence: 0, changes: 0, buffer: vec![0; DATAGRAM] })
    }

    /// The number that the kernel has given this socket.
    pub(super) fn port(&self) -> Result<u32> {
        let address = getsockname(&self.socket).and_then(SocketAddrNetlink::try_from);
        let failed = |e: rustix::io::Errno| refused("see a netlink socket's number", e.raw_os_error(), String::new());
        address.map(|address| address.pid()).map_err(failed)
    }

    /// How many requests that change something were sent so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Runs a dump, and converts each message by `take`. An inconsistent dump is discarded and repeated.
    ///
    /// # Errors
    /// When the kernel refuses, or what it says makes no sense.
    pub fn dump<T>(
        &mut self,
        what: &str,
        request: &Request,
        take: impl Fn(&Message<'_>) -> std::result::Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>> {
        for _ in 0..ATTEMPTS {
            let sequence = self.send(what, std::slice::from_ref(request))?;
            if let Some(all) = self.collect(what, sequence, &take)? {
                return Ok(all);
            }
        }
        Err(malformed(what, format!("changed while it was given, {ATTEMPTS} times")))
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

    /// Removes an object. It or its interface may be gone already (ENODEV, ENOENT, EINVAL of filters and qdiscs without
    /// a parent).
    ///
    /// # Errors
    /// When the kernel refuses otherwise.
    pub fn take_away(&mut self, change: Change) -> Result<()> {
        match self.change(&[change]) {
            Err(Error::Refused { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::EINVAL)) =>
            {
                Ok(())
            }
            done => done,
        }
    }

    /// Sends changes, in their order. The kernel goes on after one that it refuses, but no further batch is sent.
    ///
    /// # Errors
    /// The first that was refused.
    pub fn change(&mut self, changes: &[Change]) -> Result<()> {
        let mut rest = changes;
        while let Some(first) = rest.first() {
            let mut bytes = 0;
            let mut requests = Vec::new();
            for change in rest.iter().take(BATCH) {
                let request = change.request.encode(0).map_err(|e| malformed(&change.what, e.0))?;
                bytes += request.len();
                if bytes > BATCH_BYTES && !requests.is_empty() {
                    break;
                }
                requests.push(change.request.clone());
            }
            let (batch, behind) = rest.split_at(requests.len());
            rest = behind;
            self.changes += batch.len() as u64;
            let sequence = self.send(&first.what, &requests)?;
            self.acknowledged(sequence, batch)?;
        }
        Ok(())
    }

    /// Sends requests in one call; gives the number of the first.
    fn send(&mut self, what: &str, requests: &[Request]) -> Result<u32> {
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
    fn receive(&mut self, what: &str) -> Result<usize> {
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
                    return Ok(whole);
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
        let (mut all, mut bytes, mut interrupted) = (Vec::new(), 0, false);
        loop {
            let length = self.receive(what)?;
            bytes += length;
            if bytes > DUMP {
                return Err(malformed(what, format!("has more than {DUMP} bytes")));
            }
            for message in wire::messages(&self.buffer[..length]).map_err(|e| malformed(what, e.0))? {
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

    /// Waits for the acknowledgements of a batch.
    fn acknowledged(&mut self, first: u32, batch: &[Change]) -> Result<()> {
        let mut waiting = vec![true; batch.len()];
        let mut left = batch.len();
        let mut worst: Option<(usize, Error)> = None;
        while left > 0 {
            let length = self.receive(&batch[0].what)?;
            for message in wire::messages(&self.buffer[..length]).map_err(|e| malformed(&batch[0].what, e.0))? {
                let at = message.sequence.wrapping_sub(first) as usize;
                if message.kind != ERROR || at >= batch.len() || !std::mem::take(&mut waiting[at]) {
                    continue;
                }
                left -= 1;
                let what = &batch[at].what;
                let (code, said) = wire::outcome(&message).map_err(|e| malformed(what, e.0))?;
                if code != 0 && worst.as_ref().is_none_or(|(other, _)| at < *other) {
                    worst = Some((at, refused(what, code, said)));
                }
            }
        }
        worst.map_or(Ok(()), |(_, e)| Err(e))
    }
}

fn refused(what: &str, code: i32, said: String) -> Error {
    Error::Refused { what: what.to_owned(), source: io::Error::from_raw_os_error(code), said }
}

fn malformed(what: &str, why: String) -> Error {
    Error::Malformed { what: what.to_owned(), why }
}
