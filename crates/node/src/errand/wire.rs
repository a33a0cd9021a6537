//! How an errand and its answer cross the pipe: the length of a text of JSON, that of bytes, both.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::machine::poll_for;

/// Longest part of a message: what is read of a file is bounded well below.
const MOST: usize = 128 << 20;

/// Sends a message; past `until` it is given up (`TimedOut`).
pub(super) fn send(
    line: &mut UnixStream,
    message: &impl Serialize,
    beside: &[u8],
    until: Option<Instant>,
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let mut all = Vec::with_capacity(8 + text.len() + beside.len());
    for part in [text.as_slice(), beside] {
        let length = u32::try_from(part.len()).map_err(io::Error::other)?;
        all.extend_from_slice(&length.to_le_bytes());
    }
    all.extend_from_slice(&text);
    all.extend_from_slice(beside);
    let mut sent = 0;
    while sent < all.len() {
        match line.write(&all[sent..]) {
            Ok(n) => sent += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait(line, PollFlags::OUT, until)?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Receives a message; past `until` it is given up (`TimedOut`).
pub(super) fn receive<T: DeserializeOwned>(line: &mut UnixStream, until: Option<Instant>) -> io::Result<(T, Vec<u8>)> {
    let mut lengths = [0; 8];
    fill(line, &mut lengths, until)?;
    let [text, beside] = [0, 4].map(|at| {
        let bytes = [lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]];
        u32::from_le_bytes(bytes) as usize
    });
    if text > MOST || beside > MOST {
        return Err(io::Error::new(ErrorKind::InvalidData, "a message without measure"));
    }
    let mut message = vec![0; text];
    fill(line, &mut message, until)?;
    let mut bytes = vec![0; beside];
    fill(line, &mut bytes, until)?;
    Ok((serde_json::from_slice(&message)?, bytes))
}

fn fill(line: &mut UnixStream, buffer: &mut [u8], until: Option<Instant>) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match line.read(&mut buffer[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait(line, PollFlags::IN, until)?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn wait(line: &UnixStream, what: PollFlags, until: Option<Instant>) -> io::Result<()> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    match poll_for(&mut [PollFd::new(line, what)], left)? {
        0 => Err(ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn messages_arrive_whole_and_a_silent_end_is_given_up() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let large = vec![7; 3 << 20];
        let sent = large.clone();
        let sender = std::thread::spawn(move || {
            send(&mut theirs, &"told", &sent, None).unwrap();
            theirs
        });
        let (text, bytes): (String, _) = receive(&mut ours, None).unwrap();
        assert_eq!((text.as_str(), bytes == large), ("told", true));
        let theirs = sender.join().unwrap();
        let until = Some(Instant::now() + Duration::from_millis(20));
        assert_eq!(receive::<String>(&mut ours, until).unwrap_err().kind(), ErrorKind::TimedOut);
        // Nobody reads: the pipe is full at some time.
        assert_eq!(send(&mut ours, &"", &large, until).unwrap_err().kind(), ErrorKind::TimedOut);
        drop(theirs);
        // The kernel tells an end with messages that nobody read as a reset.
        let gone = receive::<String>(&mut ours, None).unwrap_err().kind();
        assert!(matches!(gone, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{gone:?}");
    }
}
