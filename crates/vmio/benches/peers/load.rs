//! What guests send and ask, and who takes it at the receiver.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use vmio_testbed::net::Namespace;

use super::bed::{CONGESTION_CONTROL, SINK};
use super::scale::Scale;

/// Of a datagram that fills a frame, and of that frame with its Ethernet header, as queues count it.
const PAYLOAD: usize = 1472;
/// See [`PAYLOAD`].
pub const FRAME_BITS: f64 = 1514.0 * 8.0;
/// Of such a frame, what is TCP's payload, with time stamps (RFC 7323).
pub const TCP_PAYLOAD: f64 = 1448.0 / 1514.0;
/// How far a sender may be behind before it gives the rest up.
const BEHIND: Duration = Duration::from_millis(20);
/// How long a system call waits at most, so that each load ends.
const PATIENCE: Duration = Duration::from_millis(50);
/// When an answer counts as lost.
const LOST: Duration = Duration::from_millis(200);
/// Between two questions.
const GAP: Duration = Duration::from_millis(5);
/// Port of the answers (RFC 862).
pub const ECHO: u16 = 7;
const STREAM: u16 = 5201;

/// A load that runs until the flag is set.
pub type Load<'a> = Box<dyn FnOnce(&AtomicBool) + Send + 'a>;

/// One of them.
pub fn load<'a>(work: impl FnOnce(&AtomicBool) + Send + 'a) -> Load<'a> {
    Box::new(work)
}

/// Works while the loads run, each in a thread.
pub fn under<'a, T>(loads: Vec<Load<'a>>, work: impl FnOnce() -> T) -> T {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&done);
        for load in loads {
            scope.spawn(|| load(&done));
        }
        work()
    })
}

/// Asks for real-time priority, as `vmio-udp` does: what measures waits for no other program. Only for a thread that
/// starts none, which would have it, too.
fn be_punctual() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads one `sched_param`, which lives until it returns.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
}

/// A socket in a namespace, to a port of the receiver.
pub fn socket(from: &Namespace, port: u16) -> UdpSocket {
    let socket = from.inside(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect((SINK, port)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A port of the receiver.
pub fn port(sink: &Namespace, number: u16) -> UdpSocket {
    let socket = sink.inside(|| UdpSocket::bind((SINK, number)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20).unwrap();
    socket
}

/// What became of the packets of a schedule, so far.
#[derive(Default)]
pub struct Sent {
    /// The socket took them.
    pub taken: AtomicU64,
    /// The sender was held up, and gave them up.
    pub never: AtomicU64,
}

/// Sends full frames at a rate, as an open loop does: each when it is due, whatever became of those before it. Who is
/// held up (a full socket makes it wait, as most programs do) gives up what it is behind with.
pub fn send_at(scale: Scale, bps: f64, tick: Duration, socket: &UdpSocket, sent: &Sent, done: &AtomicBool) {
    let datagram = [7u8; PAYLOAD];
    let per_second = bps / FRAME_BITS;
    let (tick, most_behind) = (scale.long(tick), (per_second * scale.long(BEHIND).as_secs_f64()) as u64);
    let (begin, mut number) = (Instant::now(), 0);
    while !done.load(Ordering::Relaxed) {
        let due = (begin.elapsed().as_secs_f64() * per_second) as u64;
        let late = due.saturating_sub(number + most_behind);
        sent.never.fetch_add(late, Ordering::Relaxed);
        number += late;
        if number < due {
            let counter = if socket.send(&datagram).is_ok() { &sent.taken } else { &sent.never };
            counter.fetch_add(1, Ordering::Relaxed);
            number += 1;
        } else {
            sleep(tick);
        }
    }
}

/// As [`send_at`], of whom is looked at: a quarter of a millisecond between two looks at the clock, with priority.
pub fn send_punctually(scale: Scale, bps: f64, socket: &UdpSocket, done: &AtomicBool) {
    be_punctual();
    send_at(scale, bps, Duration::from_micros(250), socket, &Sent::default(), done);
}

/// What arrived of a guest.
#[derive(Default)]
pub struct Receiver {
    /// Full frames.
    pub packets: AtomicU64,
    records: AtomicBool,
    arrivals: Mutex<Vec<Instant>>,
}

impl Receiver {
    /// Counts what comes.
    pub fn run(&self, socket: &UdpSocket, done: &AtomicBool) {
        be_punctual();
        let mut buffer = [0; PAYLOAD];
        while !done.load(Ordering::Relaxed) {
            if socket.recv(&mut buffer).is_ok() {
                self.packets.fetch_add(1, Ordering::Relaxed);
                if self.records.load(Ordering::Relaxed) {
                    self.arrivals.lock().unwrap().push(Instant::now());
                }
            }
        }
    }

    /// When packets arrived while this worked.
    pub fn during(&self, work: impl FnOnce()) -> Vec<Instant> {
        self.records.store(true, Ordering::Relaxed);
        work();
        self.records.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.arrivals.lock().unwrap())
    }
}

/// Answers what is asked.
pub fn echo(socket: &UdpSocket, done: &AtomicBool) {
    be_punctual();
    let mut buffer = [0; 8];
    while !done.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _: Result<usize, _> = socket.send_to(&buffer[..length], from);
        }
    }
}

/// How long answers took, in ms; `None`: none came.
pub fn ping(scale: Scale, socket: &UdpSocket, time: Duration) -> Vec<Option<f64>> {
    let asked = || {
        be_punctual();
        let end = Instant::now() + time;
        let mut times = Vec::new();
        while times.is_empty() || Instant::now() < end {
            let at = Instant::now();
            times.push(ask(socket, times.len() as u64, at, scale.long(LOST)));
            sleep(scale.long(GAP).saturating_sub(at.elapsed()));
        }
        times
    };
    thread::scope(|scope| scope.spawn(asked).join().unwrap())
}

fn ask(socket: &UdpSocket, number: u64, at: Instant, lost: Duration) -> Option<f64> {
    let (question, mut answer) = (number.to_le_bytes(), [0; 8]);
    socket.send(&question).ok()?;
    while at.elapsed() < lost {
        // What comes too late answers an earlier one.
        if socket.recv(&mut answer).is_ok() && answer == question {
            return Some(at.elapsed().as_secs_f64() * 1e3);
        }
    }
    None
}

/// Of one TCP connection.
pub struct Stream {
    /// Payload that arrived, in bit/s.
    pub goodput_bps: f64,
    /// Segments that were sent again, of the whole connection.
    pub retransmits: u64,
}

/// One TCP connection that sends what it can; what arrives is counted from some time after its begin on.
pub fn stream(from: &Namespace, sink: &Namespace, warm: Duration, time: Duration) -> Stream {
    let listener = sink.inside(|| TcpListener::bind((SINK, STREAM)).unwrap());
    let before = retransmits(from);
    let mut outgoing = from.inside(|| TcpStream::connect((SINK, STREAM)).unwrap());
    let (mut incoming, _) = listener.accept().unwrap();
    outgoing.set_write_timeout(Some(PATIENCE)).unwrap();
    incoming.set_read_timeout(Some(PATIENCE)).unwrap();
    sockopt::set_tcp_congestion(&outgoing, CONGESTION_CONTROL).unwrap();
    // What still waits at the end is given up, so that it is in nobody's way.
    sockopt::set_socket_linger(&outgoing, Some(Duration::ZERO)).unwrap();
    let arrived = AtomicU64::new(0);
    let count = &arrived;
    let receive = move |done: &AtomicBool| {
        let mut buffer = vec![0; 1 << 20];
        while !done.load(Ordering::Relaxed) {
            if let Ok(length) = incoming.read(&mut buffer) {
                count.fetch_add(length as u64, Ordering::Relaxed);
            }
        }
    };
    let send = move |done: &AtomicBool| {
        let chunk = vec![7; 1 << 17];
        while !done.load(Ordering::Relaxed) {
            let _: Result<usize, _> = outgoing.write(&chunk);
        }
    };
    under(vec![load(receive), load(send)], || {
        sleep(warm);
        let (at, first) = (Instant::now(), arrived.load(Ordering::Relaxed));
        sleep(time);
        let bytes = arrived.load(Ordering::Relaxed) - first;
        let goodput_bps = bytes as f64 * 8.0 / at.elapsed().as_secs_f64();
        Stream { goodput_bps, retransmits: retransmits(from) - before }
    })
}

/// Of a namespace (`/proc/net/snmp`, proc(5); RFC 4022, tcpRetransSegs).
fn retransmits(of: &Namespace) -> u64 {
    let text = of.inside(|| fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:")).map(str::split_ascii_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    names.zip(values).find(|(name, _)| *name == "RetransSegs").unwrap().1.parse().unwrap()
}

/// The receiver's address and a port nobody reads, for what only costs.
pub fn unread(sink: &Namespace) -> (UdpSocket, SocketAddr) {
    let socket = sink.inside(|| UdpSocket::bind((SINK, 0)).unwrap());
    let address = socket.local_addr().unwrap();
    (socket, address)
}
