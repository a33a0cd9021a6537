//! Guests that attack a neighbour's guarantee, one attack after the other. The neighbour sends more than its minimum
//! all the time and is the last of all priorities, the attackers are the first: it gets what is guaranteed, no more.
//! Its receiver counts what arrives, and the guard's status whatever the attackers have sent.
#![allow(clippy::unwrap_used, clippy::print_stdout, dead_code)]

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vmio_node::udp::{ReceiveReport, SenderReport};
use vmio_testbed::net::{Namespace, run};
use vmio_testbed::process::Companion;
use vmio_testbed::{poll_for, poll_until};

use super::frames::Raw;
use super::guarded::TestHost;
use super::state_dir::built;

const POLICY: &str = r#"[guard]
spoofing = "drop"
[uplink.u0]
capacity = "20Mbit"
framing = "none"
[class.neighbour]
priority = 8
min = "8Mbit"
[class.attacker]
priority = 1
min = "2Mbit"
reserve = "hard"
[[interface]]
match = { name = "t1" }
class = "neighbour"
addresses = ["10.9.0.101"]
[[interface]]
match = { name = "t2" }
class = "attacker"
addresses = ["10.9.0.102"]
[[interface]]
match = { name = "t3" }
class = "attacker"
"#;
/// What the neighbour is guaranteed, in bytes a second.
const MIN: f64 = 1e6;
/// Of its packets: bytes as the guard counts them, and of payload.
const FRAME: f64 = 1514.0;
const PAYLOAD: f64 = 1472.0;
/// Seconds of 99 % of its minimum that may be missing at any moment, over any time before it: what two busy processors
/// are late at times. A bucket makes up for it.
const BEHIND: f64 = 0.05;

/// A host with a sink behind its uplink. The neighbour is the first guest, the next two attack, the last is in no
/// policy.
pub struct Bed {
    pub sink: Namespace,
    pub guests: [Namespace; 4],
}

impl Bed {
    pub fn set_up(host: &TestHost) -> Bed {
        host.write(POLICY);
        for name in ["t2", "t3", "t4"] {
            host.plug(name);
        }
        // Of a larger frame than the uplink takes a bridge's firewall makes fragments.
        for what in ["ip", "ip6", "arp"] {
            // Where the kernel has no such firewall there is nothing to switch off.
            let _ = fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{what}tables"), "0");
        }
        let sink = Namespace::make();
        run(&[
            &format!("ip link set u1 netns {}", sink.path()),
            "ip link set br0 address 02:00:00:00:00:01",
            "ip addr add 10.9.0.1/24 dev br0",
            "ip neigh replace 10.9.0.9 lladdr 02:00:00:00:00:09 dev br0 nud permanent",
            "bridge fdb replace 02:00:00:00:00:09 dev u0 master static",
            "bridge fdb replace 02:00:00:00:01:03 dev t3 master static",
            // It may send larger frames than the uplink takes.
            "ip link set t2 mtu 9000",
        ]);
        sink.run(&[
            "ip link set u1 address 02:00:00:00:00:09",
            "ip addr add 10.9.0.9/24 dev u1",
            "ip link set u1 up",
            "ip neigh replace 10.9.0.101 lladdr 02:00:00:00:01:01 dev u1 nud permanent",
        ]);
        let guests = [1, 2, 3, 4].map(|i| {
            let guest = Namespace::make();
            run(&[&format!("ip link set p-t{i} netns {}", guest.path())]);
            guest.run(&[
                &format!("ip link set p-t{i} name g0"),
                &format!("ip link set g0 address 02:00:00:00:01:0{i}"),
                &format!("ip addr add 10.9.0.10{i}/24 dev g0"),
                &format!("ip link set g0 mtu {} up", if i == 2 { 9000 } else { 1500 }),
                "ip neigh replace 10.9.0.9 lladdr 02:00:00:00:00:09 dev g0 nud permanent",
            ]);
            guest
        });
        Bed { sink, guests }
    }

    /// Starts what counts, and what the neighbour sends.
    fn start(&self) -> (Receiver, Companion) {
        let program = built("vmio-udp");
        let receiver = self.sink.inside(|| Receiver::start(&mut Command::new(&program)));
        let words = ["send", "10.9.0.9", "5401", "--rate", "11000000", "--bytes", "1472"];
        let for_long = ["--seconds", "3600", "--greet", "30"];
        let mut command = Command::new(&program);
        let command = command.args(words).args(for_long);
        (receiver, self.guests[0].inside(|| Companion::start(command)))
    }
}

struct Receiver {
    process: Companion,
    out: BufReader<ChildStdout>,
    /// When it had its port.
    began: Instant,
}

impl Receiver {
    fn start(command: &mut Command) -> Receiver {
        let command = command.args(["receive", "10.9.0.9", "5401", "--seconds", "3600"]).stdin(Stdio::null());
        let mut process = Companion(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut out = BufReader::new(process.0.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready "), "{ready}");
        Receiver { process, out, began: Instant::now() }
    }

    /// Ends it; what it has counted in each window of so many seconds.
    fn end(mut self) -> (f64, SenderReport) {
        kill_process(Pid::from_child(&self.process.0), Signal::TERM).unwrap();
        let mut text = String::new();
        self.out.read_to_string(&mut text).unwrap();
        let report: ReceiveReport = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((report.senders.len(), report.buffer_drops), (1, Some(0)), "{:?}", report.senders);
        (report.window_seconds, report.senders[0].clone())
    }
}

pub struct Attack {
    pub name: &'static str,
    /// Bytes of each frame.
    pub frame: u64,
    /// Whose count of what grows in the status at least by so much. No other member than guests sends meanwhile.
    pub told: (&'static str, &'static str, u64),
    pub act: fn(&Bed, Instant),
}

fn of(status: &Value, member: &str, what: &str) -> u64 {
    let members = status["pools"][0]["members"].as_array().unwrap();
    // While its interface has another name it is not there.
    let Some(member) = members.iter().find(|there| there["name"] == member) else { return 0 };
    if what == "local" {
        return member["local"]["bytes_total"].as_u64().unwrap_or(0);
    }
    member[what].as_u64().unwrap_or_else(|| panic!("no {what}: {member}"))
}

/// Bytes that came from a guest, dropped or not.
fn came(interface: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{interface}:"))).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Of t2, which all frames are of that are accounted for.
const DROPS: [&str; 3] = ["dropped_packets_total", "spoofed_dropped_packets_total", "resolution_dropped_packets_total"];
const BYTES: [&str; 3] = ["passed_bytes_total", "waiting_bytes", "local"];

/// Does one after the other, each for so long. With `accounted` all that t2 has sent is in its status, byte by byte.
pub fn attacked(attacks: &[Attack], each: Duration, accounted: bool) {
    TestHost::with_bpffs(|host| {
        let bed = Bed::set_up(host);
        let daemon = host.run();
        let (receiver, sender) = bed.start();
        poll_until("the neighbour sends", || of(&host.status(), "t1", "passed_bytes_total") > 1_500_000);
        let (first, came_before) = (host.status(), came("t2"));
        let now = || receiver.began.elapsed().as_secs_f64();
        let (settled, mut times, mut dropped) = (now(), Vec::new(), 0);
        let mut before = first.clone();
        for Attack { name, frame, told: (member, what, least), act } in attacks {
            times.push((now(), *name));
            act(&bed, Instant::now() + each);
            let after = poll_for(&format!("{name}: {what} of {member} is told"), || {
                let status = host.status();
                let grown = of(&status, member, what).saturating_sub(of(&before, member, what));
                if grown >= *least { Ok(status) } else { Err(grown) }
            });
            let grown = |member: &str, what: &str| of(&after, member, what).saturating_sub(of(&before, member, what));
            for other in ["host", "default"].into_iter().filter(|other| other != member) {
                assert!(grown(other, "passed_bytes_total") < 200_000, "{name}: {other} has sent: {after}");
            }
            assert_eq!(DROPS[1..].iter().map(|what| grown("t1", what)).sum::<u64>(), 0, "{name}: {after}");
            dropped += frame * DROPS.iter().map(|what| grown("t2", what)).sum::<u64>();
            before = after;
        }
        let ended = now();
        let (window, received) = receiver.end();
        drop(sender);

        let (mut behind, mut worst) = (0.0, (0.0, 0.0));
        let index = |time: f64| ((time - received.first_second) / window) as usize;
        for i in index(settled)..index(ended) {
            let got = received.bytes_by_window.get(i).copied().unwrap_or(0) as f64 * FRAME / PAYLOAD;
            behind = f64::max(behind + 0.99 * MIN * window - got, 0.0);
            if behind > worst.0 {
                worst = (behind, received.first_second + i as f64 * window);
            }
        }
        let name = times.iter().rev().find(|(at, _)| *at <= worst.1).map_or("before", |(_, name)| *name);
        let missing = worst.0 / MIN;
        println!("at most {:.1} ms of the minimum were missing, at {name}", missing * 1e3);
        assert!(missing <= BEHIND, "{missing:.3} s of the minimum are missing at {name}: {times:.1?}, {worst:?}");
        if accounted {
            let handed = came("t2") - came_before;
            poll_for("all that came is accounted for", || {
                let status = host.status();
                let sum = |status: &Value| BYTES.iter().map(|what| of(status, "t2", what)).sum::<u64>();
                let told = sum(&status).saturating_sub(sum(&first)) + dropped;
                // Segments count with their headers, and a tag that a card takes off does not.
                if told * 100 > handed * 98 && told * 100 < handed * 105 { Ok(()) } else { Err((told, handed)) }
            });
        }
        host.ends(&["guard", "undo"], 0);
        assert_eq!(daemon.end(None).0, Some(0));
    });
}

/// Does this again and again, in bursts that leave the processors to others for most of the time.
pub fn paced(until: Instant, each: usize, mut send: impl FnMut(usize)) {
    let mut sent = 0;
    while Instant::now() < until {
        for _ in 0..each {
            send(sent);
            sent += 1;
        }
        thread::sleep(Duration::from_micros(500));
    }
}

/// A guest sends frames as they are, so many at a time.
pub fn raw(bed: &Bed, guest: u8, until: Instant, each: usize, frame: impl Fn(usize) -> Vec<u8> + Send) {
    bed.guests[usize::from(guest) - 1].inside(move || {
        let raw = Raw::open("g0");
        // Where the link is down it is lost.
        paced(until, each, |n| {
            raw.send(&frame(n));
        });
    });
}

/// A guest sends the sink what it can by TCP. What there is no time for is left.
pub fn stream(bed: &Bed, guest: u8, until: Instant) {
    let listener = bed.sink.inside(|| TcpListener::bind("10.9.0.9:0").unwrap());
    listener.set_nonblocking(true).unwrap();
    let to = listener.local_addr().unwrap();
    thread::scope(|s| {
        s.spawn(|| take(&listener, until));
        bed.guests[usize::from(guest) - 1].inside(|| give(to, until));
    });
}

/// Of a stream: whether its time is over is asked after so long.
const TURN: Duration = Duration::from_millis(100);

fn waits(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

fn give(to: SocketAddr, until: Instant) {
    let Ok(mut stream) = TcpStream::connect_timeout(&to, TURN * 5) else { return };
    stream.set_write_timeout(Some(TURN)).unwrap();
    while Instant::now() < until && stream.write_all(&[7; 1 << 16]).map_or_else(|e| waits(&e), |()| true) {}
}

fn take(listener: &TcpListener, until: Instant) {
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(_) if Instant::now() < until => thread::sleep(TURN / 10),
            Err(_) => return,
        }
    };
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(TURN)).unwrap();
    let mut buffer = vec![0; 1 << 16];
    while Instant::now() < until && stream.read(&mut buffer).map_or_else(|e| waits(&e), |bytes| bytes > 0) {}
}
