//! A netlink socket for interfaces, qdiscs and classes (rtnetlink(7)), with an acknowledgement for each request.
//!
//! Many requests go out in one call; the kernel does them in their order before the call returns, and each is
//! acknowledged by its number. What the kernel says beside an error (extended acknowledgements, Linux 4.12) is in
//! the error.

use std::io;

use vmio_node::netlink::Socket;
pub use vmio_node::netlink::wire;

use super::{Error, Result};
use wire::{ERROR, Malformed, Message, Request};

pub mod events;

/// The most that one dump may hold: 10,000 classes with their statistics are 3 MB.
const DUMP: usize = 256 << 20;
/// Requests in one call, so that all their acknowledgements find room in the socket's buffer.
const BATCH: usize = 128;
/// Bytes in one call; a request has a few hundred.
const BATCH_BYTES: usize = 96 << 10;

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
    socket: Socket,
    changes: u64,
}

impl Netlink {
    /// Opens one.
    ///
    /// # Errors
    /// When the kernel gives none.
    pub fn open() -> Result<Self> {
        Ok(Self { socket: Socket::open(DUMP)?, changes: 0 })
    }

    /// The number that the kernel has given this socket.
    pub(super) fn port(&self) -> Result<u32> {
        Ok(self.socket.port()?)
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
        Ok(self.socket.dump(what, request, take)?)
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
        Ok(self.socket.ask(what, request, take)?)
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
            let sequence = self.socket.send(&first.what, &requests)?;
            self.acknowledged(sequence, batch)?;
        }
        Ok(())
    }

    /// Waits for the acknowledgements of a batch.
    fn acknowledged(&mut self, first: u32, batch: &[Change]) -> Result<()> {
        let mut waiting = vec![true; batch.len()];
        let mut left = batch.len();
        let mut worst: Option<(usize, Error)> = None;
        while left > 0 {
            let datagram = self.socket.receive(&batch[0].what)?;
            for message in wire::messages(datagram).map_err(|e| malformed(&batch[0].what, e.0))? {
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
