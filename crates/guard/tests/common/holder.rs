//! A process that holds a tap, as a hypervisor does: this program once more, controlled by lines on its standard input.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vmio_guard::planes::linux::tap::Process;
use vmio_testbed::poll_until;

const WHICH: &str = "VMIO_TEST_TAP";
const MARK: &str = "holder: ";
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETQUEUE: libc::c_ulong = 0x4004_54d9;
const TUNGETSNDBUF: libc::c_ulong = 0x8004_54d3;
const TUNSETSNDBUF: libc::c_ulong = 0x4004_54d4;
const TAP: u16 = 0x0002;
const NO_PI: u16 = 0x1000;
const MULTI_QUEUE: u16 = 0x0100;
const ATTACH: u16 = 0x0200;
const DETACH: u16 = 0x0400;

/// Of a flood.
const ROUND: Duration = Duration::from_millis(150);
/// Result of a flood.
pub struct Flood {
    pub written: u64,
    /// How often there was no room.
    pub again: u64,
}

/// It ends with its owner.
pub struct Holder {
    pub child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Holder {
    /// With so many queues; more than one makes it a multiqueue tap. In the thread's network namespace.
    pub fn start(tap: &str, queues: usize) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["root_tap::helper_holder", "--exact", "--ignored", "--nocapture"])
            .env(WHICH, format!("{tap} {queues}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Self { child, lines };
        assert_eq!(holder.answer(), "ready");
        holder
    }

    pub fn process(&self) -> Process {
        Process::now(self.child.id()).unwrap()
    }

    pub fn tell(&mut self, line: &str) -> String {
        self.ask(line);
        self.answer()
    }

    fn ask(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.trim_end().split_once(MARK) {
                return said.to_owned();
            }
            line.clear();
        }
        panic!("the holder ended");
    }

    /// The send buffers of its queues.
    pub fn sizes(&mut self) -> Vec<u32> {
        self.tell("sizes").split(' ').map(|size| size.parse().unwrap()).collect()
    }

    /// Writes what the queues take, and meanwhile does this again and again: until it has had too much, which then
    /// `was_dropped` or for which there was no room, and for as long as a round once more.
    pub fn flood(&mut self, word: &str, mut was_dropped: impl FnMut() -> bool, mut meanwhile: impl FnMut()) -> Flood {
        let mut all = Flood { written: 0, again: 0 };
        let mut round = |all: &mut Flood| {
            self.ask(&format!("{word} {}", ROUND.as_millis()));
            let end = Instant::now() + ROUND;
            while Instant::now() < end {
                meanwhile();
                std::thread::sleep(Duration::from_millis(5));
            }
            let said = self.answer();
            let (written, again) = said.split_once(' ').unwrap();
            all.written += written.parse::<u64>().unwrap();
            all.again += again.parse::<u64>().unwrap();
        };
        poll_until("a flood for which there is no room", || {
            round(&mut all);
            all.again > 0 || was_dropped()
        });
        round(&mut all);
        all
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The life of one; nothing where this is the tests' own process.
pub fn live() {
    let Ok(which) = std::env::var(WHICH) else { return };
    let (tap, queues) = which.split_once(' ').unwrap();
    let queues: usize = queues.parse().unwrap();
    let kind = if queues > 1 { MULTI_QUEUE } else { 0 };
    let mut held: Vec<File> = (0..queues).map(|_| open(tap, kind)).collect();
    let mut more = Vec::new();
    println!("{MARK}ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, number) = line.split_once(' ').unwrap_or((line.as_str(), "0"));
        let number: usize = number.parse().unwrap();
        let said = match word {
            "sizes" => held.iter().map(size).collect::<Vec<_>>().join(" "),
            "flood" => flood(&held, &strange(), Duration::from_millis(number as u64)),
            "flood-ip" => flood(&held, &ip(), Duration::from_millis(number as u64)),
            "widen" => {
                held.iter().for_each(widen);
                "widened".to_owned()
            }
            "open" => {
                held.push(open(tap, kind));
                "opened".to_owned()
            }
            "off" | "on" => {
                let flags = if word == "on" { ATTACH } else { DETACH };
                assert_eq!(request(&held[number], TUNSETQUEUE, "", flags), 0);
                word.to_owned()
            }
            // Before the tap's own, by their numbers.
            "many" => {
                allow(number as libc::rlim_t + 100);
                more.extend((0..number).map(|_| File::open("/dev/null").unwrap()));
                held.iter_mut().for_each(|queue| *queue = queue.try_clone().unwrap());
                "many".to_owned()
            }
            other => panic!("{other}"),
        };
        println!("{MARK}{said}");
    }
}

fn open(tap: &str, kind: u16) -> File {
    let tun = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
    assert_eq!(request(&tun, TUNSETIFF, tap, TAP | NO_PI | kind), 0, "{}", std::io::Error::last_os_error());
    tun
}

fn request(tun: &File, request: libc::c_ulong, name: &str, flags: u16) -> i32 {
    let mut ifreq = [0u8; 40];
    ifreq[..name.len()].copy_from_slice(name.as_bytes());
    ifreq[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: both calls take one `struct ifreq` of 40 bytes.
    unsafe { libc::ioctl(tun.as_raw_fd(), request, ifreq.as_mut_ptr()) }
}

fn size(tun: &File) -> String {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call fills one `int`.
    assert_eq!(unsafe { libc::ioctl(tun.as_raw_fd(), TUNGETSNDBUF, &raw mut bytes) }, 0);
    bytes.to_string()
}

/// As a hypervisor that wants no limit.
fn widen(tun: &File) {
    let bytes = libc::c_int::MAX;
    // SAFETY: the call reads one `int`.
    assert_eq!(unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETSNDBUF, &raw const bytes) }, 0);
}

/// To the sink, of a kind that nobody listens to (IEEE 802 local experimental) and no firewall on a bridge takes off
/// the tap's account.
fn strange() -> Vec<u8> {
    let mut frame = vec![7; 1514];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 1, 1, 0x88, 0xb5]);
    frame
}

/// To the sink by IPv4, which a firewall on a bridge takes off the tap's account (RFC 791), of protocol 253, which is
/// for experiments (RFC 3692).
fn ip() -> Vec<u8> {
    let mut frame = strange();
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let header = [0x45, 0, 0x05, 0xdc, 0, 0, 0, 0, 64, 253, 0, 0, 10, 9, 0, 101, 10, 9, 0, 9];
    frame[14..34].copy_from_slice(&header);
    let sum: u32 = header.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn flood(queues: &[File], frame: &[u8], long: Duration) -> String {
    let (mut written, mut again) = (0u64, 0u64);
    let end = Instant::now() + long;
    while Instant::now() < end {
        for mut queue in queues {
            match queue.write(frame) {
                Ok(_) => written += 1,
                Err(e) if e.kind() == ErrorKind::WouldBlock => again += 1,
                Err(e) => panic!("{e}"),
            }
        }
        if again > 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    format!("{written} {again}")
}

/// What the hard limit gives.
fn allow(descriptors: libc::rlim_t) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls fill and read one `struct rlimit`.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = descriptors.max(limit.rlim_cur);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}
