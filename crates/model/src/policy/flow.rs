//! Flow classes: parts of what an interface sends or receives, told apart by its packets' headers, each with a minimum,
//! a maximum and a priority inside the share of the interface (amamou2012, section VI). A packet belongs to the first
//! that matches it, and to the rest where none does.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::excess::Excess;
use crate::rate::BitRate;

/// Most flow classes of a class.
pub const MOST_FLOWS: usize = 8;
/// Most ports and ranges of ports of a flow class.
pub const MOST_PORTS: usize = 4;
/// Most letters of a flow class's name.
pub const MOST_LETTERS: usize = 32;
/// Name of all that no flow class matches.
pub const REST: &str = "rest";

/// Names of DSCP values (RFC 2474, 2597, 3246, 5865, 8622).
pub const DSCP: &[(&str, u8)] = &[
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// Names of protocols (IANA's protocol numbers).
pub const PROTOCOLS: &[(&str, u8)] =
    &[("icmp", 1), ("tcp", 6), ("udp", 17), ("gre", 47), ("esp", 50), ("icmpv6", 58), ("sctp", 132)];

/// Protocols whose header begins with the two ports: TCP, UDP, SCTP.
pub const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// A part of a class's traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// Its name, unique in the class.
    pub name: String,
    /// Its packets.
    pub matcher: FlowMatch,
    /// 1 is served first, 8 last, beyond the minima.
    pub priority: u8,
    /// Guaranteed of what its interface gets.
    pub min: BitRate,
    /// Limit; `None` for that of the interface.
    pub max: Option<BitRate>,
    /// What becomes of what is above it.
    pub excess: Excess,
}

/// What a packet must have to belong to a flow class: all that is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FlowMatch {
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// IP protocol, for IPv6 that behind its extension headers.
    pub protocol: Option<u8>,
    /// Source or destination port in one of these ranges, both ends included; empty for any.
    pub ports: Vec<(u16, u16)>,
    /// Network of the other end: the destination of what the guest sends, the source of what it receives.
    pub address: Option<Network>,
}

/// An IP network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// No address, or a prefix that is no number or too long.
    #[error("is no IP address or network; write \"192.0.2.7\", \"10.0.0.0/8\" or \"2001:db8::/32\"")]
    NoNetwork,
    /// The address is inside of a network.
    #[error("is an address in a network; write \"{0}\" for the network")]
    Inside(Network),
}

impl Network {
    /// From an address, or an address and the length of its prefix.
    ///
    /// # Errors
    /// When it is neither, or not the network's first address.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError::NoNetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let prefix: u8 = match prefix {
            Some(prefix) => Some(prefix).filter(digits).and_then(|p| p.parse().ok()).unwrap_or(u8::MAX),
            None => most,
        };
        if prefix > most {
            return Err(NetworkError::NoNetwork);
        }
        let first = match address {
            IpAddr::V4(v4) => IpAddr::V4((u32::from(v4) & high_bits(u128::from(u32::MAX), 32 - prefix) as u32).into()),
            IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & high_bits(u128::MAX, 128 - prefix)).into()),
        };
        let network = Network { address: first, prefix };
        if first == address { Ok(network) } else { Err(NetworkError::Inside(network)) }
    }
}

/// All bits but so many low ones.
fn high_bits(all: u128, low: u8) -> u128 {
    all.checked_shl(u32::from(low)).unwrap_or(0) & all
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// As in the policy: `dscp = "ef", ports = [443]`.
impl fmt::Display for FlowMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |names: &[(&str, u8)], number: u8| match names.iter().find(|(_, n)| *n == number) {
            Some((name, _)) => format!("\"{name}\""),
            None => number.to_string(),
        };
        let port = |(low, high): &(u16, u16)| if low == high { low.to_string() } else { format!("\"{low}-{high}\"") };
        let ports: Vec<String> = self.ports.iter().map(port).collect();
        let parts = [
            self.dscp.map(|dscp| format!("dscp = {}", named(DSCP, dscp))),
            self.protocol.map(|protocol| format!("protocol = {}", named(PROTOCOLS, protocol))),
            (!ports.is_empty()).then(|| format!("ports = [{}]", ports.join(", "))),
            self.address.map(|network| format!("address = \"{network}\"")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_begin_with_their_first_address() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::/0", "::/0"),
            ("fe80::1", "fe80::1/128"),
        ] {
            assert_eq!(Network::parse(text).map(|n| n.to_string()).as_deref(), Ok(shown));
        }
        for text in ["", "10", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/+8", "::/129", "::/1000", "eth0", "10.0.0.0/8/8"] {
            assert_eq!(Network::parse(text), Err(NetworkError::NoNetwork), "{text}");
        }
        let inside = |text: &str| Network::parse(text).map_err(|e| e.to_string());
        assert!(inside("10.1.2.3/8").is_err_and(|why| why.contains("\"10.0.0.0/8\"")));
        assert!(inside("2001:db8::1/32").is_err_and(|why| why.contains("\"2001:db8::/32\"")));
    }

    #[test]
    fn a_match_is_shown_as_it_is_written() {
        let address = Network::parse("10.0.0.0/8").ok();
        let all = FlowMatch { dscp: Some(46), protocol: Some(6), ports: vec![(443, 443), (8000, 8080)], address };
        assert_eq!(
            all.to_string(),
            "dscp = \"ef\", protocol = \"tcp\", ports = [443, \"8000-8080\"], address = \"10.0.0.0/8\""
        );
        assert_eq!(
            FlowMatch { dscp: Some(3), protocol: Some(200), ..FlowMatch::default() }.to_string(),
            "dscp = 3, protocol = 200"
        );
    }
}
