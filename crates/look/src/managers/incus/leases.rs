//! IP addresses that the DHCP server of a bridge of Incus or LXD keeps for an instance's card: `ipv4.address` and
//! `ipv6.address` of the device, or those that the daemon chose since `security.ipv4_filtering` or
//! `security.ipv6_filtering` is on (lxc/incus, internal/server/device/nic_bridged.go, `rebuildDnsmasqEntry`). Whether
//! these are on is in the daemon's database alone.
//!
//! The daemon writes a file for each card, `networks/NETWORK/dnsmasq.hosts/INSTANCE.DEVICE` with the line
//! `MAC,IPV4,[IPV6],NAME` (internal/server/dnsmasq/dnsmasq.go, `UpdateStaticEntry`, `StaticAllocationFileName`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use vmio_node::Reader;

use crate::managers::addresses::usable;
use crate::qemu::instance::Daemon;

/// Most networks, and most files of one, that are looked at.
const MOST_NETWORKS: usize = 1024;
const MOST_FILES: usize = 65_536;
/// Longest file that is read.
const FILE_BYTES: usize = 1024;

/// A card's MAC address with its IP addresses.
pub type Lease = (String, Vec<IpAddr>);

/// Leases with IP addresses of those instances that are `wanted`, by the instance's name with that of its project. Only
/// files that nobody but root can have written count.
pub fn read(reader: &dyn Reader, daemon: &Daemon, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<Lease>> {
    let mut all: BTreeMap<String, Vec<Lease>> = BTreeMap::new();
    for networks in daemon.states.iter().map(|dir| Path::new(dir).join("networks")) {
        for network in reader.list(&networks).unwrap_or_default().iter().take(MOST_NETWORKS) {
            let hosts = networks.join(network).join("dnsmasq.hosts");
            for name in reader.list(&hosts).unwrap_or_default().iter().take(MOST_FILES) {
                // A project's name and a device's may have dots, an instance's has none.
                let mut starts = name.rmatch_indices('.').map(|(at, _)| &name[..at]);
                let Some(instance) = starts.find(|start| wanted(start)) else { continue };
                let text = reader.read_trusted(&hosts.join(name), FILE_BYTES).unwrap_or_default();
                if let Some(lease) = lease(&String::from_utf8_lossy(&text)) {
                    all.entry(instance.to_owned()).or_default().push(lease);
                }
            }
        }
    }
    all
}

fn lease(text: &str) -> Option<Lease> {
    let mut fields = text.lines().next()?.split(',');
    let mac = fields.next()?.to_lowercase();
    let addresses = usable(fields.map(|field| field.trim_matches(['[', ']'])));
    (!addresses.is_empty()).then_some((mac, addresses))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_a_card_and_its_addresses() {
        let shown = |text: &str| {
            let (mac, all) = lease(text)?;
            Some(format!("{mac} {}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")))
        };
        let both = "10:66:6A:00:00:01,10.0.3.7,[fd42::7],web1\n";
        assert_eq!(shown(both).unwrap(), "10:66:6a:00:00:01 10.0.3.7 fd42::7");
        assert_eq!(shown("10:66:6a:00:00:01,[fd42::7]\n").unwrap(), "10:66:6a:00:00:01 fd42::7");
        assert_eq!([shown("10:66:6a:00:00:01,web1\n"), shown(""), shown("\n")], [None, None, None]);
    }
}
