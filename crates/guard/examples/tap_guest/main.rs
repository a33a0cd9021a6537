//! For tests in a lab host, where no guest can be booted: a process that has a tap as QEMU has one, and a sink that
//! counts what arrives. Started under QEMU's name with QEMU's own options (`-netdev tap,ifname=…`, `-device
//! virtio-net-pci,mac=…`), it sends IPv4 datagrams into the tap at a rate, whatever becomes of them, and waits where
//! there is no room: by write(2), or with `vhost=on` through a ring of descriptors that the kernel's vhost-net serves.
//! With `WITHOUT_LIMIT` in its environment it takes the limit off its send buffer ten times a second.
//!
//! `tap_guest sink ADDRESS SECONDS` prints `SENDER=BYTES` for each sender, by the last part of its address, in bytes of
//! frames. At `::` it takes IPv6 and IPv4.
//!
//! `tap_guest give ADDRESS SECONDS` sends a stream by TCP for so long, and `tap_guest take ADDRESS SECONDS` counts what
//! of one arrives, from two seconds after it began, as `sink` does, but its payload alone.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_types)]

mod vhost;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Of include/uapi/linux/if_tun.h.
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNGETSNDBUF: libc::c_ulong = 0x8004_54d3;
const TUNSETSNDBUF: libc::c_ulong = 0x4004_54d4;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;
const TAP: u16 = 0x0002;
const NO_PI: u16 = 0x1000;
const VNET_HDR: u16 = 0x4000;

/// Bytes of `struct virtio_net_hdr_v1` before each frame.
const HEADER: usize = 12;
/// Ethernet, IPv4, UDP, and a payload that fills an Ethernet frame.
const HEADERS: usize = 14 + 20 + 8;
/// IPv6 has so much more (RFC 8200).
const MORE: usize = 20;
const FRAME: usize = 1514;
/// Discard (RFC 863).
const PORT: u16 = 9;
/// How far a sender may be behind before it gives the rest up.
const BEHIND: f64 = 0.02;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sink", address, seconds] => sink(address, Duration::from_secs(seconds.parse().unwrap())),
        ["give", address, seconds] => give(address, Duration::from_secs(seconds.parse().unwrap())),
        ["take", address, seconds] => take(address, Duration::from_secs(seconds.parse().unwrap())),
        _ => guest(&args),
    }
}

/// The value of `KEY=` in an option of the command line.
fn option(args: &[String], name: &str, key: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1)?.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("no {name}"))
}

fn guest(args: &[String]) {
    let tap = open(&option(args, "-netdev", "ifname").unwrap());
    let mac = address(&option(args, "-device", "mac").unwrap());
    let from: Ipv4Addr = variable("GUEST_ADDRESS").parse().unwrap();
    let frame = frame(mac, from, address(&variable("TO_MAC")), variable("TO_ADDRESS").parse().unwrap());
    let per_second = variable("MBIT").parse::<f64>().unwrap() * 1e6 / 8.0 / FRAME as f64;
    let mut ring = option(args, "-netdev", "vhost").filter(|v| v == "on").map(|_| vhost::Ring::new(&tap, &frame));
    let (mut told, mut sent, mut began) = (0, 0.0, Instant::now());
    let mut unlimited = std::env::var_os("WITHOUT_LIMIT").map(|_| Instant::now());
    loop {
        if let Some(last) = unlimited.as_mut().filter(|last| last.elapsed() >= Duration::from_millis(100)) {
            unlimit(&tap);
            *last = Instant::now();
        }
        let size = send_buffer(&tap);
        if size != told {
            println!("sndbuf {size}");
            told = size;
        }
        let due = began.elapsed().as_secs_f64() * per_second;
        while sent < due {
            let room = match &mut ring {
                Some(ring) => ring.send(),
                None => write(&tap, &frame),
            };
            if !room {
                break;
            }
            sent += 1.0;
        }
        // What nobody took in time is not offered later: the guest's own queue is full.
        if due - sent > per_second * BEHIND {
            (sent, began) = (0.0, Instant::now());
        }
        sleep(Duration::from_millis(4));
    }
}

fn open(name: &str) -> File {
    let tun = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun").unwrap();
    let mut ifreq = [0u8; 40];
    ifreq[..name.len()].copy_from_slice(name.as_bytes());
    ifreq[16..18].copy_from_slice(&(TAP | NO_PI | VNET_HDR).to_ne_bytes());
    let header = HEADER as libc::c_int;
    // SAFETY: the calls read one `struct ifreq` of 40 bytes, and one `int`.
    unsafe {
        assert_eq!(
            libc::ioctl(tun.as_raw_fd(), TUNSETIFF, ifreq.as_mut_ptr()),
            0,
            "{}",
            std::io::Error::last_os_error()
        );
        assert_eq!(libc::ioctl(tun.as_raw_fd(), TUNSETVNETHDRSZ, &raw const header), 0);
    }
    tun
}

fn send_buffer(tap: &File) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call fills one `int`.
    assert_eq!(unsafe { libc::ioctl(tap.as_raw_fd(), TUNGETSNDBUF, &raw mut bytes) }, 0);
    bytes
}

fn unlimit(tap: &File) {
    let bytes = libc::c_int::MAX;
    // SAFETY: the call reads one `int`.
    assert_eq!(unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETSNDBUF, &raw const bytes) }, 0);
}

/// Whether there was room.
fn write(mut tap: &File, frame: &[u8]) -> bool {
    match tap.write(frame) {
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::WouldBlock => false,
        Err(e) => panic!("{e}"),
    }
}

fn address(text: &str) -> [u8; 6] {
    let parts: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16).unwrap()).collect();
    parts.try_into().unwrap()
}

/// A datagram with a virtio header before it (RFC 791, RFC 768: no checksum of UDP).
fn frame(from_mac: [u8; 6], from: Ipv4Addr, to_mac: [u8; 6], to: Ipv4Addr) -> Vec<u8> {
    let long = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    let mut ip = [[0x45, 0], long(FRAME - 14), [0, 0], [0, 0], [64, 17], [0, 0]].concat();
    ip.extend(from.octets().into_iter().chain(to.octets()));
    let sum: u32 = ip.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = [PORT.to_be_bytes(), PORT.to_be_bytes(), long(FRAME - 14 - 20), [0, 0]].concat();
    let mut frame = [&[0; HEADER][..], &to_mac, &from_mac, &[8, 0], &ip, &udp].concat();
    frame.resize(HEADER + FRAME, 7);
    frame
}

fn sink(address: &str, long: Duration) {
    // Whatever a busy processor keeps this from, what waits in the socket came after that.
    let began = Instant::now();
    let socket = UdpSocket::bind((address.parse::<IpAddr>().unwrap(), PORT)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut bytes: BTreeMap<String, usize> = BTreeMap::new();
    let mut buffer = [0; 2048];
    while began.elapsed() < long {
        if let Ok((count, from)) = socket.recv_from(&mut buffer) {
            // What came by IPv4 to a socket of IPv6 has an address of its own kind (RFC 4291, 2.5.5.2).
            let from = from.ip().to_canonical();
            let headers = if from.is_ipv6() { HEADERS + MORE } else { HEADERS };
            let who = from.to_string();
            *bytes.entry(who.rsplit(['.', ':']).next().unwrap().to_owned()).or_default() += count + headers;
        }
    }
    let said: Vec<String> = bytes.iter().map(|(who, bytes)| format!("{who}={bytes}")).collect();
    println!("{} {}", began.elapsed().as_secs_f64(), said.join(" "));
}

/// How long a stream may take to begin or to go on.
const PATIENCE: Duration = Duration::from_secs(20);
/// A stream finds its rate in so long.
const BEGINS: Duration = Duration::from_secs(2);

fn give(address: &str, long: Duration) {
    let end = Instant::now() + long;
    let to = SocketAddr::from((address.parse::<IpAddr>().unwrap(), PORT));
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    // Whoever takes it may have enough before.
    while Instant::now() < end && stream.write_all(&[7; 1 << 14]).is_ok() {}
}

fn take(address: &str, long: Duration) {
    let listener = TcpListener::bind((address.parse::<IpAddr>().unwrap(), PORT)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let end = Instant::now() + PATIENCE;
    let (mut stream, from) = loop {
        match listener.accept() {
            Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < end => sleep(Duration::from_millis(20)),
            accepted => break accepted.unwrap(),
        }
    };
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut buffer = [0; 1 << 16];
    let mut count = |long: Duration| {
        let (began, mut bytes) = (Instant::now(), 0);
        while began.elapsed() < long {
            bytes += stream.read(&mut buffer).unwrap_or(0);
        }
        (began.elapsed().as_secs_f64(), bytes)
    };
    count(BEGINS);
    let (seconds, bytes) = count(long);
    let who = from.ip().to_canonical().to_string();
    println!("{seconds} {}={bytes}", who.rsplit(['.', ':']).next().unwrap());
}
