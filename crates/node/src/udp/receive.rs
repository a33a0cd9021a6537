//! The receiver: a socket, a clock, and the [`Tally`] that they are told to.
//!
//! A datagram's time is when the program read it, so the time that the receiver itself takes to wake up is part of
//! what is told as delay.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recvfrom, sendto, socket_with,
    sockopt,
};

use super::packet::MOST_BYTES;
use super::report::ReceiveReport;
use super::tally::Tally;
use super::{SECOND_NS, clock};
use crate::linux::sockets;
use crate::machine::poll_for;

/// What the socket's buffer is asked to hold: a receiver that is not let run for a moment should lose nothing.
const BUFFER_BYTES: usize = 8 << 20;
/// Datagrams that are read before anything else is looked at.
const AT_ONCE: usize = 256;
/// Between two looks whether it is told to end.
const LOOK: Duration = Duration::from_millis(100);
/// After the end of the last sender, for what was overtaken by it.
const LINGER_NS: u64 = SECOND_NS / 5;

/// What is received for how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Where: port 0 is any that is free.
    pub at: SocketAddr,
    /// The longest time.
    pub length_ns: u64,
    /// It ends when so many senders have told their end; `None`: it does not.
    pub senders: Option<usize>,
    /// It ends when nothing came for so long, once something has; `None`: it does not.
    pub quiet_ns: Option<u64>,
}

/// A receiver that has its port.
pub struct Receiver {
    socket: OwnedFd,
    at: SocketAddr,
    bound_ns: u64,
}

impl Receiver {
    /// Takes the port.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        // More than the machine's usual most is for root alone (socket(7)); what it drops is counted either way.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        }
        bind(&socket, &at)?;
        let at = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok(Self { socket, at, bound_ns: clock::now_ns() })
    }

    /// Where it receives.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Receives until the job's time is over, its senders are done, it is quiet, or `stop` is set.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn run(&self, job: &Job, stop: &AtomicBool) -> io::Result<ReceiveReport> {
        // So that its buffer does not overflow, and times are not those of its own waiting.
        let real_time = clock::be_punctual();
        let mut tally = Tally::new(clock::which());
        let mut buffer = vec![0; MOST_BYTES + 1];
        let end_ns = self.bound_ns.saturating_add(job.length_ns);
        let (mut last_ns, mut done_ns) = (None, None);
        loop {
            let now = clock::now_ns();
            if done_ns.is_none() && job.senders.is_some_and(|senders| tally.done() >= senders) {
                done_ns = Some(now);
            }
            let quiet = last_ns.zip(job.quiet_ns).map(|(last, quiet): (u64, u64)| last.saturating_add(quiet));
            let lingered = done_ns.map(|done: u64| done.saturating_add(LINGER_NS));
            let until = [Some(end_ns), quiet, lingered].into_iter().flatten().min().unwrap_or(end_ns);
            if now >= until || stop.load(Ordering::Relaxed) {
                break;
            }
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            poll_for(&mut fds, Some(LOOK.min(Duration::from_nanos(until - now))))?;
            if self.drain(&mut tally, &mut buffer)? {
                last_ns = Some(clock::now_ns());
            }
        }
        Ok(ReceiveReport { real_time, ..tally.report(self.bound_ns, clock::now_ns(), self.drops()) })
    }

    /// Reads what is there; whether anything was.
    fn drain(&self, tally: &mut Tally, buffer: &mut [u8]) -> io::Result<bool> {
        let before = tally.datagrams();
        for _ in 0..AT_ONCE {
            match recvfrom(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((_, length, from)) => {
                    let answer = tally.add(&buffer[..length.min(MOST_BYTES + 1)], clock::now_ns());
                    if let Some((answer, from)) = answer.zip(from) {
                        // No longer than what it answers. One that is not taken is as one that is lost.
                        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                        let _ = sendto(&self.socket, &answer.header(), flags, &from);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(tally.datagrams() > before)
    }

    /// What its buffer had no room for.
    fn drops(&self) -> Option<u64> {
        let inode = rustix::fs::fstat(&self.socket).ok()?.st_ino;
        let files = sockets::udp_files(std::process::id());
        files.iter().find_map(|file| sockets::udp_drops(&std::fs::read_to_string(file).ok()?, inode))
    }
}
