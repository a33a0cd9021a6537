//! The addresses that a machine's own interfaces have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::Reader;

/// How much is read of a table: that of a router of the whole Internet has a million routes.
const MOST_BYTES: usize = 4 << 20;

/// Whether an address is the machine's own, so that a server can listen at it. One that cannot be told is not.
pub fn has(reader: &dyn Reader, address: IpAddr) -> bool {
    let text = |file: &str| {
        let bytes = reader.read_start(Path::new(file), MOST_BYTES).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match address {
        IpAddr::V4(address) => has_ipv4(&text("/proc/self/net/fib_trie"), address),
        IpAddr::V6(address) => has_ipv6(&text("/proc/self/net/if_inet6"), address),
    }
}

/// By the content of `net/fib_trie`: below `|-- 192.0.2.0`, each type of route to that on a line of its own, `/32 host
/// LOCAL` for what is the machine's own (Linux net/ipv4/fib_trie.c, `fib_trie_seq_show`).
fn has_ipv4(text: &str, address: Ipv4Addr) -> bool {
    let mut base = None;
    text.lines().map(str::trim).any(|line| {
        if let Some(rest) = line.strip_prefix("|-- ") {
            base = rest.parse::<Ipv4Addr>().ok();
            return false;
        }
        let bits = line.strip_prefix('/').and_then(|rest| rest.strip_suffix(" host LOCAL")?.parse::<u32>().ok());
        let Some((base, bits)) = base.zip(bits.filter(|bits| *bits <= 32)) else { return false };
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        (u32::from(base) ^ u32::from(address)) & mask == 0
    })
}

/// By the content of `net/if_inet6`: a line each, the address first, in 32 digits (Linux net/ipv6/addrconf.c,
/// `if6_seq_show`).
fn has_ipv6(text: &str, address: Ipv6Addr) -> bool {
    let digits = format!("{:032x}", u128::from(address));
    text.lines().any(|line| line.split_ascii_whitespace().next() == Some(&digits))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Fake, Local};

    /// As Linux 6.18 prints them, of a machine with the address 192.0.2.2.
    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 127.0.0.0/8 2 0 2\n        \
        +-- 127.0.0.0/31 1 0 0\n           |-- 127.0.0.0\n              /8 host LOCAL\n           |-- 127.0.0.1\n              \
        /32 host LOCAL\n        |-- 127.255.255.255\n           /32 link BROADCAST\n     +-- 192.0.2.0/24 2 0 2\n           \
        |-- 192.0.2.0\n              /24 link UNICAST\n           |-- 192.0.2.2\n              /32 host LOCAL\n        \
        |-- 192.0.2.255\n           /32 link BROADCAST\n";
    const INET6: &str = "00000000000000000000000000000001 01 80 10 80       lo\n\
        fd000000000000000000000000000002 04 40 00 82     eth0\n";

    #[test]
    fn own_addresses() {
        let fake = Fake::new("there").file("/proc/self/net/fib_trie", TRIE).file("/proc/self/net/if_inet6", INET6);
        let own = |address: &str| has(&fake, address.parse().unwrap());
        for (address, is) in [
            ("192.0.2.2", true),
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("192.0.2.3", false),
            ("192.0.2.255", false),
            ("203.0.113.7", false),
            ("::1", true),
            ("fd00::2", true),
            ("fd00::3", false),
        ] {
            assert_eq!(own(address), is, "{address}");
        }
        assert!(!has(&Fake::new("bare"), "192.0.2.2".parse().unwrap()), "what cannot be told");
        assert!(
            has(&Local::new(), "127.0.0.1".parse().unwrap()) && !has(&Local::new(), "192.0.2.250".parse().unwrap())
        );
    }
}
