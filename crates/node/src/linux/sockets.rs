//! Sockets: Unix (`net/unix`), TCP and UDP (`net/tcp`, `net/udp`); proc_pid_net(5).

use std::path::PathBuf;

/// A Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixSocket<'a> {
    /// Whether it waits for connections.
    pub listens: bool,
    /// Its inode, as a descriptor's `socket:[…]` has it.
    pub inode: u64,
    /// Its path. A connection bears the path of the socket that it was made on, also while it waits there.
    pub path: &'a str,
}

/// The sockets that have a name in the content of a `net/unix`: `Num RefCount Protocol Flags Type St Inode Path`
/// (Linux net/unix/af_unix.c, `unix_seq_show`).
pub fn unix_sockets(text: &str) -> impl Iterator<Item = UnixSocket<'_>> {
    /// `__SO_ACCEPTCON` of include/linux/net.h: it listens.
    const LISTENS: u64 = 0x10000;
    text.lines().skip(1).filter_map(|line| {
        // Paths may hold blanks; an abstract or relative name is taken for its last word.
        let (head, path) = match line.find(" /") {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => line.rsplit_once(' ')?,
        };
        let mut fields = head.split_ascii_whitespace();
        let flags = u64::from_str_radix(fields.nth(3)?, 16).ok()?;
        let inode = fields.nth(2)?.parse().ok()?;
        Some(UnixSocket { listens: flags & LISTENS != 0, inode, path })
    })
}

/// Files of the network namespace of a process that list its sockets over IPv4 and IPv6: those of TCP.
pub fn tcp_files(pid: u32) -> [PathBuf; 2] {
    ["tcp", "tcp6"].map(|name| super::process::file(pid, &format!("net/{name}")))
}

/// The same of UDP.
pub fn udp_files(pid: u32) -> [PathBuf; 2] {
    ["udp", "udp6"].map(|name| super::process::file(pid, &format!("net/{name}")))
}

/// A socket of TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InetSocket {
    /// Its own port.
    pub port: u16,
    /// Whether it waits for connections, which UDP does not know.
    pub listens: bool,
    /// Its inode, as a descriptor's `socket:[…]` has it; 0 for a connection that nobody has open any more.
    pub inode: u64,
}

/// The sockets in the content of a `net/tcp`, `net/tcp6`, `net/udp` or `net/udp6`: `sl local_address rem_address st
/// tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode` (Documentation/networking/proc_net_tcp.rst).
pub fn inet_sockets(text: &str) -> impl Iterator<Item = InetSocket> {
    /// `TCP_LISTEN` of include/net/tcp_states.h.
    const LISTENS: &str = "0A";
    text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (_, port) = fields.next()?.rsplit_once(':')?;
        let listens = fields.nth(1)? == LISTENS;
        Some(InetSocket { port: u16::from_str_radix(port, 16).ok()?, listens, inode: fields.nth(5)?.parse().ok()? })
    })
}

/// How many datagrams a socket's buffer had no room for, by the content of a `net/udp` or `net/udp6`, whose last field
/// it is (Linux net/ipv4/udp.c, `udp4_format_sock`); `None` where the socket is not in it.
pub fn udp_drops(text: &str, inode: u64) -> Option<u64> {
    text.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let is_it = fields.nth(9)?.parse() == Ok(inode);
        fields.next_back().filter(|_| is_it)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_a_name() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    ffff8800: 00000002 00000000 00010000 0001 01 12345 /run/a b.sock\n\
                    ffff8801: 00000003 00000000 00000000 0001 03 12346 /run/a b.sock\n\
                    ffff8802: 00000002 00000000 00010000 0001 01 12347 @abstract\n\
                    ffff8803: 00000003 00000000 00000000 0001 03 12348\n";
        let found: Vec<_> = unix_sockets(text).filter(|s| s.path == "/run/a b.sock").collect();
        let socket = |listens, inode| UnixSocket { listens, inode, path: "/run/a b.sock" };
        assert_eq!(found, [socket(true, 12_345), socket(false, 12_346)]);
        assert!(unix_sockets(text).any(|s| s.path == "@abstract" && s.inode == 12_347));
        assert!(!unix_sockets(text).any(|s| s.inode == 12_348));
    }

    #[test]
    fn fields_of_inet_sockets() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                    0: 0100007F:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20911 1\n   \
                    1: 0100007F:9C40 0100007F:1451 01 00000000:00000000 00:00000000 00000000     0        0 20912 1\n";
        let socket = |port, listens, inode| InetSocket { port, listens, inode };
        let found: Vec<_> = inet_sockets(text).collect();
        assert_eq!(found, [socket(5201, true, 20_911), socket(40_000, false, 20_912)]);
        let six =
            "h\n 0: 00000000000000000000000000000000:1451 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1\n";
        assert_eq!(inet_sockets(six).next(), Some(socket(5201, true, 1)));
        assert_eq!(inet_sockets("nonsense\nmore of it\n").next(), None);
    }

    #[test]
    fn a_udp_socket_has_its_drops() {
        let text = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n \
                    1129: 0100007F:14B5 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20911 2 00000000a1b2 42\n";
        assert_eq!((udp_drops(text, 20_911), udp_drops(text, 7), udp_drops("", 7)), (Some(42), None, None));
        assert_eq!(inet_sockets(text).next().map(|s| (s.port, s.inode)), Some((5301, 20_911)));
    }
}
