//! IP addresses that managers' configurations name for a guest's network cards.

use std::net::IpAddr;

/// Most of a card.
const MOST: usize = 16;

/// Those of the texts that are addresses of one guest. Link-local ones are left out: separate networks have the same.
pub fn usable<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for address in texts.filter_map(|text| text.parse::<IpAddr>().ok()).filter(is_usable) {
        if all.len() < MOST && !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

fn is_usable(address: &IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80 || address.to_ipv4_mapped().is_some(),
    };
    !local && !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_guest() {
        let shown = |texts: &[&str]| {
            usable(texts.iter().copied()).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&["192.0.2.7", "2001:db8:0::7", "192.0.2.7"]), "192.0.2.7 2001:db8::7");
        let others = ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.1.1", "::", "::1", "fe80::1"];
        assert_eq!(shown(&others), "");
        assert_eq!(shown(&["ff02::1", "::ffff:192.0.2.7", "192.0.2.0/24", "dhcp", "dc/web1", ""]), "");
        let many: Vec<String> = (0..40).map(|i| format!("192.0.2.{i}")).collect();
        assert_eq!(usable(many.iter().map(String::as_str)).len(), MOST);
    }
}
