//! Floods during some work, and their throughput while their queues are full.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vmio_testbed::poll_for;

use super::test_host::{SINK, TestHost};

/// A load that runs until the flag is set.
pub type Load<'a> = Box<dyn FnOnce(&AtomicBool) + Send + 'a>;

/// Works while the loads run, each in a thread.
pub fn under<'a, T>(loads: impl IntoIterator<Item = Load<'a>>, work: impl FnOnce() -> T) -> T {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let _end = End(&done);
        for load in loads {
            s.spawn(|| load(&done));
        }
        work()
    })
}

/// These send to the sink what they can: 0 is the host, then the tenants.
pub fn floods<'a>(host: &'a TestHost, who: &[usize]) -> Vec<Load<'a>> {
    let one = |member: &usize| -> Load<'a> {
        match member.checked_sub(1) {
            Some(tenant) => of_size(host, tenant, 1400),
            None => Box::new(|done| flood(SINK, 1400, 1 << 20, done)),
        }
    };
    who.iter().map(one).collect()
}

/// A tenant sends the sink what it can, in datagrams of so many bytes.
pub fn of_size(host: &TestHost, tenant: usize, bytes: usize) -> Load<'_> {
    Box::new(move |done| host.tenants[tenant].namespace.inside(|| flood(SINK, bytes, 1 << 20, done)))
}

/// Sends what it can to port 9 there, in the thread's namespace, in datagrams of so many bytes from a socket whose
/// buffer has twice as many as told: its queue stays full though this thread may wait for its turn for a while.
pub fn flood(to: &str, bytes: usize, buffer_bytes: usize, done: &AtomicBool) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size_force(&socket, buffer_bytes).unwrap();
    let datagram = vec![7; bytes];
    while !done.load(Ordering::Relaxed) {
        let _ = socket.send_to(&datagram, (to, 9));
    }
}

/// A TCP connection on which the first tenant sends the sink what it can, and the sink reads it.
pub fn stream(host: &TestHost) -> [Load<'_>; 2] {
    stream_of(host, 0, 9)
}

/// As [`stream`], of any tenant, to a port. Less than a megabyte is left to be sent when it ends.
pub fn stream_of(host: &TestHost, tenant: usize, port: u16) -> [Load<'_>; 2] {
    let listener = host.sink.inside(|| TcpListener::bind((SINK, port)).unwrap());
    let receive = move |_: &AtomicBool| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 20];
        while stream.read(&mut buffer).unwrap() > 0 {}
    };
    let send = move |done: &AtomicBool| {
        host.tenants[tenant].namespace.inside(|| {
            let mut stream = TcpStream::connect((SINK, port)).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size_force(&stream, 1 << 18).unwrap();
            while !done.load(Ordering::Relaxed) {
                stream.write_all(&[7; 1 << 17]).unwrap();
            }
        });
    };
    [Box::new(receive), Box::new(send)]
}

/// Bytes that have passed, and that wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    pub passed: u64,
    pub waiting: u64,
}

/// Periods in which all had something waiting.
#[derive(Debug)]
pub struct Full {
    pub time: Duration,
    /// Bytes that passed in them, by member.
    pub moved: Vec<u64>,
}

impl Full {
    /// Of all that passed, by member.
    pub fn shares(&self) -> Vec<f64> {
        let sum: u64 = self.moved.iter().sum();
        self.moved.iter().map(|moved| *moved as f64 / sum as f64).collect()
    }
}

/// What passed in `enough` time of periods in which all of these members had something waiting. Only what passes after
/// `settle` of uninterrupted such periods counts: in a pause buckets fill. In such a period no more of a member passed
/// than had waited when it began, so its queue never ran dry, however long the machine took: where a sender pauses,
/// what it leaves is the others'. `look` is told how long ago it was asked last.
pub fn while_full(
    who: &[usize],
    (settle, enough): (Duration, Duration),
    mut look: impl FnMut(Duration) -> Vec<Look>,
) -> Full {
    let (mut settled, mut at) = (Duration::ZERO, Instant::now());
    let mut before = look(Duration::ZERO);
    let mut full = Full { time: Duration::ZERO, moved: vec![0; before.len()] };
    poll_for(&format!("periods in which all of {who:?} had something waiting, {enough:?} in all"), || {
        let since = at.elapsed();
        let now = look(since);
        let time = at.elapsed();
        at += time;
        if who.iter().all(|i| now[*i].passed - before[*i].passed < before[*i].waiting) {
            if settled < settle {
                settled += time;
            } else {
                full.time += time;
                for (moved, (now, before)) in full.moved.iter_mut().zip(now.iter().zip(&before)) {
                    *moved += now.passed - before.passed;
                }
            }
        } else {
            settled = Duration::ZERO;
        }
        before = now;
        if full.time >= enough { Ok(()) } else { Err((settled, full.time, before.clone())) }
    });
    full
}
