//! Frames that are sent as they are, as any guest may send them.

use std::ffi::CString;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A packet socket at an interface of the thread's namespace, which does not wait for what it has sent.
pub struct Raw {
    socket: OwnedFd,
    to: libc::sockaddr_ll,
}

impl Raw {
    pub fn open(interface: &str) -> Self {
        let name = CString::new(interface).unwrap();
        // SAFETY: no memory is handed over.
        let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(socket >= 0, "{}", Error::last_os_error());
        // SAFETY: it was just opened, and is nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        boundless(&socket);
        // SAFETY: all zero is a valid address of this kind.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        // SAFETY: the name ends with a zero and outlives the call.
        to.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
        to.sll_halen = 6;
        Self { socket, to }
    }

    /// As `skb->priority` of what it sends from now on.
    pub fn priority(self, value: u32) -> Self {
        set(&self.socket, libc::SOL_SOCKET, libc::SO_PRIORITY, value as i32);
        self
    }

    /// Whether the interface took it.
    pub fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: frame and address outlive the call, and their sizes are given.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const self.to).cast(),
                size_of_val(&self.to) as libc::socklen_t,
            )
        };
        sent == frame.len() as isize
    }
}

/// Gives a socket room for more than any queue.
pub fn boundless(socket: &impl AsRawFd) {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 64 << 20);
}

/// Sets an option of a socket.
pub fn set(socket: &impl AsRawFd, level: i32, name: i32, value: i32) {
    // SAFETY: the value outlives the call, and its size is given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    assert_eq!(done, 0, "{}", Error::last_os_error());
}

/// An Ethernet frame; `kind` is its type, with any tags before it.
pub fn ethernet(to: [u8; 6], from: [u8; 6], kind: &[u8], payload: &[u8]) -> Vec<u8> {
    [&to[..], &from, kind, payload].concat()
}

/// An IPv4 packet (RFC 791) with this in the fields for its TOS, fragment and protocol.
pub fn ipv4(from: [u8; 4], to: [u8; 4], [tos, protocol]: [u8; 2], fragment: u16, payload: &[u8]) -> Vec<u8> {
    let [most, least] = (20 + payload.len() as u16).to_be_bytes();
    let [offset, rest] = fragment.to_be_bytes();
    let head = [0x45, tos, most, least, 0, 7, offset, rest, 64, protocol, 0, 0];
    let mut packet = [&head[..], &from, &to].concat();
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    [&packet[..], payload].concat()
}

/// A datagram to port 9 without a checksum, of so many bytes of payload.
pub fn udp(bytes: usize) -> Vec<u8> {
    let [most, least] = (8 + bytes as u16).to_be_bytes();
    [&[0x40, 0, 0, 9, most, least, 0, 0][..], &vec![7; bytes]].concat()
}

/// An echo request (RFC 792) of so many bytes of payload.
pub fn echo(bytes: usize) -> Vec<u8> {
    let mut message = [&[8, 0, 0, 0, 0, 1, 0, 1][..], &vec![7; bytes]].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// An announcement to all by ARP: this IP address is at this Ethernet address.
pub fn announcement(from: [u8; 6], mac: [u8; 6], ip: [u8; 4]) -> Vec<u8> {
    let payload = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &mac, &ip, &mac, &ip, &[0; 18]].concat();
    ethernet([0xff; 6], from, &[8, 6], &payload)
}

/// Of an even number of bytes (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let sum: u32 = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}
