//! The connection between a helper and its owner: a pair of sockets with the frames of the agent ([`super::proto`]).
//!
//! A message is a text of JSON, in pieces with the id 0, bytes beside it, in pieces with the id 1, and an end. Each end
//! says hello before its first message; what stood on its standard output before that is skipped.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::proto::{Decoder, Frame, Hello, Item, Kind, MAX_PAYLOAD, READY, VERSION, encode};

/// Longest part of a message: what is read of a file is bounded well below.
const MOST: usize = 128 << 20;

/// One end of the way.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    decoder: Decoder,
    greeted: bool,
    /// The time limits that the socket has, to receive and to send.
    limits: [Option<Duration>; 2],
    /// Of the message that has begun to come: its text, and the bytes beside it.
    parts: [Vec<u8>; 2],
}

impl Line {
    /// The owner's end, and the one for the helper. Both close on exec.
    ///
    /// # Errors
    /// When the kernel gives no sockets.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self::over(ours), theirs.into()))
    }

    /// The end that this process was given. It closes on exec.
    ///
    /// # Errors
    /// When the kernel gives no descriptor.
    pub fn own(end: impl AsFd) -> io::Result<Self> {
        Ok(Self::over(end.as_fd().try_clone_to_owned()?.into()))
    }

    fn over(stream: UnixStream) -> Self {
        Self { stream, decoder: Decoder::new(), greeted: false, limits: [None; 2], parts: Default::default() }
    }

    /// Sends a message. Past `until` it is given up (`TimedOut`), and with it the line.
    ///
    /// # Errors
    /// When the other end is gone, or does not read in time.
    pub fn send(&mut self, message: &impl Serialize, beside: &[u8], until: Option<Instant>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let mut all = Vec::with_capacity(64 + text.len() + beside.len());
        if !std::mem::replace(&mut self.greeted, true) {
            all.extend_from_slice(&Hello { version: VERSION, nonce: READY }.encode());
        }
        for (id, part) in [(0, text.as_slice()), (1, beside)] {
            for piece in part.chunks(MAX_PAYLOAD) {
                encode(Kind::Data, id, piece, &mut all).map_err(io::Error::other)?;
            }
        }
        encode(Kind::End, 0, &[], &mut all).map_err(io::Error::other)?;
        let mut sent = 0;
        while sent < all.len() {
            let limit = left(until);
            if self.limits[1] != limit {
                self.stream.set_write_timeout(limit)?;
                self.limits[1] = limit;
            }
            sent += unless_late(self.stream.write(&all[sent..]))?.unwrap_or(0);
        }
        Ok(())
    }

    /// Receives a message. Past `until` it is waited for no more (`TimedOut`); the next call goes on where this ended.
    ///
    /// # Errors
    /// When the other end is gone, says nothing in time, or something else than what is expected.
    pub fn receive<T: DeserializeOwned>(&mut self, until: Option<Instant>) -> io::Result<(T, Vec<u8>)> {
        let invalid = |why: String| io::Error::new(ErrorKind::InvalidData, why);
        loop {
            match self.decoder.next_item().map_err(|fault| invalid(fault.to_string()))? {
                Some(Item::Frame(Frame { kind: Kind::End, .. })) => {
                    let [text, beside] = std::mem::take(&mut self.parts);
                    return Ok((serde_json::from_slice(&text)?, beside));
                }
                Some(Item::Frame(Frame { id, payload, .. })) => {
                    let part = self.parts.get_mut(id as usize).filter(|part| part.len() + payload.len() <= MOST);
                    part.ok_or_else(|| invalid("a message without measure".into()))?.extend_from_slice(&payload);
                }
                Some(Item::Hello(_)) => {}
                None => {
                    let limit = left(until);
                    if self.limits[0] != limit {
                        self.stream.set_read_timeout(limit)?;
                        self.limits[0] = limit;
                    }
                    let mut buffer = [0; 16 << 10];
                    match unless_late(self.stream.read(&mut buffer))? {
                        Some(0) => return Err(ErrorKind::UnexpectedEof.into()),
                        n => self.decoder.push(&buffer[..n.unwrap_or(0)]),
                    }
                }
            }
        }
    }
}

/// How long a call may take, in whole steps of time where it is longer than one, so that quick calls one after another
/// have the same. The kernel takes none at all for no limit.
fn left(until: Option<Instant>) -> Option<Duration> {
    const STEP_MS: u128 = 10;
    let until = until?.saturating_duration_since(Instant::now());
    let steps = until.as_millis() / STEP_MS;
    Some(match u64::try_from((steps + 1) * STEP_MS) {
        Ok(ms) if steps > 0 => Duration::from_millis(ms),
        _ => until.max(Duration::from_millis(1)),
    })
}

/// The bytes of a call that had a time limit (`SO_RCVTIMEO` of socket(7)); none where a signal ended it.
fn unless_late(done: io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Err(e) if e.kind() == ErrorKind::Interrupted => Ok(None),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        done => done.map(Some),
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn messages_and_time_limits() {
        let (mut ours, theirs) = Line::pair().unwrap();
        let mut theirs = Line::own(theirs).unwrap();
        // Both longer than a frame.
        let (long, large) = ("told".repeat(1 << 19), vec![7_u8; 3 << 20]);
        std::thread::scope(|scope| {
            scope.spawn(|| theirs.send(&long, &large, None).unwrap());
            assert!(ours.receive::<String>(None).unwrap() == (long.clone(), large.clone()));
        });
        let until = || Some(Instant::now() + Duration::from_millis(20));
        assert_eq!(ours.receive::<String>(until()).unwrap_err().kind(), ErrorKind::TimedOut);
        // What began to come before a deadline is not lost with it.
        let mut cut = Vec::new();
        encode(Kind::Data, 0, b"7", &mut cut).unwrap();
        encode(Kind::End, 0, &[], &mut cut).unwrap();
        theirs.stream.write_all(&cut[..12]).unwrap();
        assert_eq!(ours.receive::<u8>(until()).unwrap_err().kind(), ErrorKind::TimedOut);
        theirs.stream.write_all(&cut[12..]).unwrap();
        assert_eq!(ours.receive::<u8>(until()).unwrap(), (7, Vec::new()));
        // Nobody reads, so that the sockets become full.
        assert_eq!(ours.send(&"", &large, until()).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(theirs);
        // The kernel tells an end with messages that nobody read as a reset.
        let gone = ours.receive::<String>(None).unwrap_err().kind();
        assert!(matches!(gone, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{gone:?}");
    }
}
