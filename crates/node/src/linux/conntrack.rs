//! The table of tracked connections (netfilter) of the network namespace of whoever looks.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::system::sysctl;
use crate::Reader;

/// The counters, a line for each processor; the first line names them.
pub const COUNTERS: &str = "/proc/net/stat/nf_conntrack";
/// The connections, a line each; root's alone, and not there without `CONFIG_NF_CONNTRACK_PROCFS`.
const CONNECTIONS: &str = "/proc/net/nf_conntrack";
/// How much of the connections is read: some 2,500 lines. At each page the kernel begins anew from the table's first
/// connection (net/netfilter/nf_conntrack_standalone.c, `ct_get_idx`), so the cost grows with the square.
const MOST_BYTES: usize = 512 << 10;
/// How much of the table of neighbours is read: some 50,000 lines.
const MOST_NEIGHBOURS_BYTES: usize = 4 << 20;

/// How full it is (Documentation/networking/nf_conntrack-sysctl.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Connections in it.
    pub count: u64,
    /// Most connections.
    pub max: u64,
}

/// The table; `None` without the module.
pub fn table(reader: &dyn Reader) -> Option<Table> {
    let number = |name: &str| sysctl(reader, &format!("net.netfilter.nf_conntrack_{name}")).ok()?.parse::<u64>().ok();
    Some(Table { count: number("count")?, max: number("max").filter(|max| *max > 0)? })
}

/// What a table without room did since the host was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Packets that were dropped, at least.
    pub dropped_packets: u64,
    /// Connections without an answer that had to go for new ones.
    pub evicted: u64,
}

/// The losses, of [`COUNTERS`].
pub fn losses(reader: &dyn Reader) -> Option<Losses> {
    losses_of(&reader.read_text(Path::new(COUNTERS)).ok()?)
}

/// The same of its content: hexadecimal numbers below their names (net/netfilter/nf_conntrack_standalone.c,
/// `ct_cpu_seq_show`). Two packets that race to be a connection's first count as dropped, too, and as `insert_failed`
/// besides (nf_conntrack_core.c, `nf_ct_resolve_clash`): they are taken off.
fn losses_of(text: &str) -> Option<Losses> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_ascii_whitespace().collect();
    let at = |name: &str| names.iter().position(|n| *n == name);
    let (drop, failed, early) = (at("drop")?, at("insert_failed")?, at("early_drop")?);
    let mut sums = [0u64; 3];
    for line in lines {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        for (sum, column) in sums.iter_mut().zip([drop, failed, early]) {
            *sum = sum.saturating_add(u64::from_str_radix(words.get(column)?, 16).ok()?);
        }
    }
    let [dropped, failed, evicted] = sums;
    Some(Losses { dropped_packets: dropped.saturating_sub(failed), evicted })
}

/// Who opened the connections at the table's beginning: how many by source address. Whoever sends a packet chooses
/// that address. `None` where it may not be read.
pub fn sources(reader: &dyn Reader) -> Option<BTreeMap<IpAddr, u64>> {
    let text = reader.read_start(Path::new(CONNECTIONS), MOST_BYTES).ok()?;
    Some(sources_of(&String::from_utf8_lossy(&text)))
}

/// Of its content: the first `src=` of a line is of the direction in which it was opened (nf_conntrack_standalone.c,
/// `ct_seq_show`). A line that was cut off before it does not count.
fn sources_of(text: &str) -> BTreeMap<IpAddr, u64> {
    let mut all: BTreeMap<IpAddr, u64> = BTreeMap::new();
    let source = |line: &str| -> Option<IpAddr> {
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("src="))?.parse().ok()
    };
    for address in text.lines().filter_map(source) {
        *all.entry(address).or_default() += 1;
    }
    all
}

/// Hardware addresses by address of IPv4, of the kernel's table of neighbours (`/proc/net/arp`, proc_pid_net(5)).
pub fn neighbours(reader: &dyn Reader) -> BTreeMap<IpAddr, String> {
    let text = reader.read_start(Path::new("/proc/net/arp"), MOST_NEIGHBOURS_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let one = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address: Ipv4Addr = words.next()?.parse().ok()?;
        Some((IpAddr::V4(address), words.nth(2)?.to_lowercase()))
    };
    text.lines().skip(1).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Fake;

    const TEXT: &str = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop \
        early_drop icmp_error  expect_new expect_create expect_delete search_restart\n\
        00000000  0 0 0 0 0 0 0 0 00000003 0000001a 00000002 0 0 0 0 0\n\
        00000000  0 0 0 0 0 0 0 0 00000000 00000005 00000000 0 0 0 0 0\n";

    #[test]
    fn what_a_full_table_dropped_is_apart_from_what_lost_a_race() {
        assert_eq!(losses_of(TEXT), Some(Losses { dropped_packets: 28, evicted: 2 }));
        for none in ["", "entries drop\n0 1\n", &TEXT.replace("0000001a", "x")] {
            assert_eq!(losses_of(none), None, "{none}");
        }
        let fake = Fake::new("fake")
            .file("/proc/sys/net/netfilter/nf_conntrack_count", "9\n")
            .file("/proc/sys/net/netfilter/nf_conntrack_max", "10\n");
        assert_eq!((table(&fake), losses(&fake)), (Some(Table { count: 9, max: 10 }), None));
        assert_eq!((table(&Fake::new("bare")), sources(&Fake::new("bare"))), (None, None));
    }

    #[test]
    fn sources_are_of_who_opened_a_connection() {
        let text = "ipv4     2 tcp      6 431999 ESTABLISHED src=192.0.2.7 dst=192.0.2.1 sport=1 dport=2 src=192.0.2.1 \
            dst=192.0.2.7 sport=2 dport=1 [ASSURED] mark=0 use=1\nipv6     10 udp      17 29 src=2001:db8::1 \
            dst=2001:db8::2 sport=1 dport=2\nipv4     2 tcp      6 1 SYN_SENT src=192.0.2.7 dst=192.0.2.9 \nipv4     2 udp  17 2 sr";
        let by: Vec<(String, u64)> = sources_of(text).into_iter().map(|(from, n)| (from.to_string(), n)).collect();
        assert_eq!(by, [("192.0.2.7".to_owned(), 2), ("2001:db8::1".to_owned(), 1)]);
        let arp = "IP address       HW type     Flags       HW address            Mask     Device\n\
            192.0.2.7        0x1         0x2         52:54:00:AB:00:07     *        virbr0\n";
        let known = neighbours(&Fake::new("fake").file("/proc/net/arp", arp));
        assert_eq!(known.get(&"192.0.2.7".parse().unwrap()).map(String::as_str), Some("52:54:00:ab:00:07"));
    }
}
