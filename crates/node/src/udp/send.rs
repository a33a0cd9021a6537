//! The generator: sends each packet when it is due, whatever became of those before it.
//!
//! It sleeps to the next deadline by an absolute timer. Where packets are closer together than [`BATCH_NS`] it sleeps
//! that long and then sends all that are due by then, so a batch spans 250 us and a packet is late by no more on
//! purpose. It never spins, since it shares its processor with what is measured, and asks for real-time priority, since
//! on a busy machine an ordinary program is late by milliseconds again and again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with};

use super::packet::{HEADER_BYTES, Kind, Packet};
use super::report::{NeverSent, SendReport};
use super::schedule::Schedule;
use super::{SECOND_NS, clock, seconds, tally};
use crate::machine::{poll_for, random};

/// The shortest sleep: a quarter of what is allowed. To wake up is most of what it costs to send at such rates.
pub const BATCH_NS: u64 = 250_000;
/// Between two greetings.
const GREET_AGAIN: Duration = Duration::from_millis(20);
/// Between the packets that tell the end: the first goes at once, and each is as likely to be lost as any other.
const ENDS_AFTER_MS: [u64; 6] = [0, 5, 10, 20, 40, 80];

/// What is sent to whom.
#[derive(Debug, Clone)]
pub struct Job {
    /// The receiver.
    pub to: SocketAddr,
    /// Bytes of payload of each packet, [`HEADER_BYTES`] at least.
    pub bytes: usize,
    /// When each is due.
    pub schedule: Schedule,
    /// Whether it waits where the socket's buffer is full, instead of going on without the packet.
    pub waits: bool,
    /// How long it may take until the receiver answers a greeting, which is when the schedule begins; `None`: it begins
    /// at once.
    pub greet_ns: Option<u64>,
}

/// Why the kernel did not take a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The socket's buffer is full.
    Full,
    /// It has no room.
    NoRoom,
    /// Nobody has the port at the other end.
    Port,
    /// Another error.
    Other,
}

/// Where packets go, and the clock that they go by: in ns from the start.
pub trait Wire {
    /// Now.
    fn now_ns(&mut self) -> u64;
    /// Sleeps until then, or less.
    fn sleep_until(&mut self, at_ns: u64);
    /// Sends a packet that was due then; never waits.
    ///
    /// # Errors
    /// Why it was not taken.
    fn send(&mut self, sequence: u64, due_ns: u64, now_ns: u64) -> Result<(), Refused>;
    /// Waits until the socket's buffer has room, until then at most.
    fn wait_for_room(&mut self, until_ns: u64);
}

/// What became of the packets of a schedule: all of them are sent, never sent or held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Taken by the kernel.
    pub sent: u64,
    /// Due and not sent.
    pub never_sent: NeverSent,
    /// Sent later than may be.
    pub late: u64,
    /// By how much the latest one was.
    pub worst_late_ns: u64,
    /// Not due any more when a sender that waits was let on.
    pub held_back: u64,
    /// How long it waited.
    pub held_ns: u64,
}

/// Sends a schedule to its end.
pub fn drive(schedule: &Schedule, waits: bool, wire: &mut impl Wire) -> Counts {
    let (mut counts, mut number) = (Counts::default(), 0);
    let end_ns = schedule.length_ns();
    while let Some(due) = schedule.due_ns(number) {
        let mut now = wire.now_ns();
        if now < due {
            wire.sleep_until(due.max(now.saturating_add(BATCH_NS)));
            now = wire.now_ns();
            if now < due {
                continue;
            }
        }
        if now > end_ns.saturating_add(schedule.allowed_ns(number)) {
            // The time is over: what it is behind with is never come to.
            counts.never_sent.no_time += schedule.packets() - number;
            break;
        }
        match wire.send(counts.sent, due, now) {
            Ok(()) => {
                let late = now - due;
                counts.sent += 1;
                counts.worst_late_ns = counts.worst_late_ns.max(late);
                counts.late += u64::from(late > schedule.allowed_ns(number));
            }
            Err(Refused::Full) if waits => {
                // Whatever is due meanwhile is not offered: who waits is behind, and does not catch up.
                let (offered, freed) = hold(&mut counts, wire, (due, now), end_ns);
                let next = schedule.first_from(freed).max(number + 1);
                counts.held_back += next - number - u64::from(offered);
                number = next;
                continue;
            }
            Err(reason) => counts.never_sent.add(reason),
        }
        number += 1;
    }
    counts
}

/// Waits with a packet until it is taken or fails, or the time is over: whether it was offered, and when.
fn hold(counts: &mut Counts, wire: &mut impl Wire, (due, since): (u64, u64), end_ns: u64) -> (bool, u64) {
    let (mut now, mut offered) = (since, false);
    while !offered && now < end_ns {
        wire.wait_for_room(end_ns);
        now = wire.now_ns();
        offered = match wire.send(counts.sent, due, now) {
            Ok(()) => {
                counts.sent += 1;
                true
            }
            Err(Refused::Full) => false,
            Err(reason) => {
                counts.never_sent.add(reason);
                true
            }
        };
    }
    counts.held_ns += now - since;
    (offered, now)
}

impl NeverSent {
    fn add(&mut self, reason: Refused) {
        *match reason {
            Refused::Full => &mut self.buffer_full,
            Refused::NoRoom => &mut self.no_room,
            Refused::Port => &mut self.refused,
            Refused::Other => &mut self.other,
        } += 1;
    }
}

/// A socket, and the clock.
struct Line {
    socket: OwnedFd,
    start_ns: u64,
    /// A whole packet, whose header is written each time.
    buffer: Vec<u8>,
    sender: u64,
    clock: u64,
}

impl Line {
    fn put(&mut self, packet: Packet, bytes: usize) -> Result<(), Errno> {
        self.buffer[..HEADER_BYTES].copy_from_slice(&packet.header());
        loop {
            match send(&self.socket, &self.buffer[..bytes], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                other => return other.map(drop),
            }
        }
    }

    fn packet(&self, kind: Kind, sequence: u64, due_ns: u64, sent_ns: u64) -> Packet {
        let (due_ns, sent_ns) = (self.start_ns.saturating_add(due_ns), self.start_ns.saturating_add(sent_ns));
        Packet { kind, sender: self.sender, sequence, due_ns, sent_ns, clock: self.clock }
    }
}

impl Wire for Line {
    fn now_ns(&mut self) -> u64 {
        clock::now_ns().saturating_sub(self.start_ns)
    }
    fn sleep_until(&mut self, at_ns: u64) {
        clock::sleep_until(self.start_ns.saturating_add(at_ns));
    }
    fn send(&mut self, sequence: u64, due_ns: u64, now_ns: u64) -> Result<(), Refused> {
        let packet = self.packet(Kind::Data, sequence, due_ns, now_ns);
        self.put(packet, self.buffer.len()).map_err(|error| match error {
            Errno::AGAIN => Refused::Full,
            Errno::NOBUFS | Errno::NOMEM => Refused::NoRoom,
            Errno::CONNREFUSED => Refused::Port,
            _ => Refused::Other,
        })
    }
    fn wait_for_room(&mut self, until_ns: u64) {
        let left = until_ns.saturating_sub(self.now_ns());
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        // Whatever it says, the packet is tried again.
        let _ = poll_for(&mut fds, Some(Duration::from_nanos(left)));
    }
}

/// Asks until the receiver answers: until then links may be down and addresses not resolved, and what is sent is lost
/// though the path is sound.
fn greet(line: &mut Line, to: SocketAddr, within_ns: u64) -> io::Result<()> {
    let began = clock::now_ns();
    let mut buffer = [0; HEADER_BYTES];
    for number in 0.. {
        // One that fails is repeated.
        let _ = line.put(Packet { sequence: number, ..line.packet(Kind::Greeting, 0, 0, 0) }, HEADER_BYTES);
        poll_for(&mut [PollFd::new(&line.socket, PollFlags::IN)], Some(GREET_AGAIN))?;
        while let Ok((_, length)) = recv(&line.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            let answer = Packet::read(&buffer[..length.min(HEADER_BYTES)]);
            if answer.is_some_and(|answer| answer.kind == Kind::Answer && answer.sender == line.sender) {
                return Ok(());
            }
        }
        if clock::now_ns() - began >= within_ns {
            break;
        }
        // An error is told at once, where nobody has the port.
        clock::sleep_until(began + (number + 1) * GREET_AGAIN.as_nanos() as u64);
    }
    let text = format!("the receiver at {} port {} does not answer", to.ip(), to.port());
    Err(io::Error::new(io::ErrorKind::TimedOut, text))
}

/// Sends all of it, and then a few times how many they were.
///
/// # Errors
/// When there is no socket to send from, or the receiver does not answer.
pub fn run(job: &Job) -> io::Result<SendReport> {
    let family = if job.to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    connect(&socket, &job.to)?;
    let name = random()?;
    let real_time = clock::be_punctual();
    let mut line = Line {
        socket,
        start_ns: clock::now_ns(),
        buffer: vec![0; job.bytes.max(HEADER_BYTES)],
        sender: u64::from_ne_bytes(name),
        clock: clock::which(),
    };
    if let Some(within_ns) = job.greet_ns {
        greet(&mut line, job.to, within_ns)?;
        line.start_ns = clock::now_ns();
    }
    let counts = drive(&job.schedule, job.waits, &mut line);
    let length_ns = job.schedule.length_ns();
    while line.now_ns() < length_ns {
        line.sleep_until(length_ns);
    }
    let took_ns = line.now_ns();
    for after in ENDS_AFTER_MS {
        let at = line.now_ns() + after * (SECOND_NS / 1000);
        while line.now_ns() < at {
            line.sleep_until(at);
        }
        let now = line.now_ns();
        let packet = line.packet(Kind::End, counts.sent, now, now);
        // One that is not taken is as one that is lost.
        let _ = line.put(packet, HEADER_BYTES);
    }
    Ok(SendReport { real_time, ..report(job, counts, line.sender, took_ns) })
}

fn report(job: &Job, counts: Counts, sender: u64, took_ns: u64) -> SendReport {
    let Counts { sent, never_sent, late, worst_late_ns, held_back, held_ns } = counts;
    let (bytes, seconds_taken) = (job.bytes as u64, seconds(took_ns));
    SendReport {
        sender: tally::shown(sender),
        bytes,
        seconds: seconds_taken,
        scheduled: sent + never_sent.all(),
        sent,
        never_sent,
        late,
        allowed_late_seconds: seconds(job.schedule.least_allowed_ns()),
        worst_late_seconds: seconds(worst_late_ns),
        real_time: false,
        blocking: job.waits,
        held_back,
        held_seconds: seconds(held_ns),
        sent_bits_per_second: (sent * bytes * 8) as f64 / seconds_taken,
    }
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
