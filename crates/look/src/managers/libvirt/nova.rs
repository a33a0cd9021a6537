//! What OpenStack Nova writes of an instance into its domain's metadata (nova/virt/libvirt/config.py,
//! `LibvirtConfigGuestMetaNovaInstance`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use roxmltree::Node;

use super::element::{child, children, text_of};
use crate::managers::addresses::usable;

/// Names of the instance and of its flavor, as ids of the guest.
pub fn names(domain: Node<'_, '_>) -> Vec<(String, String)> {
    let Some(instance) = instance(domain) else { return Vec::new() };
    let name = text_of(instance, "name").map(|name| ("openstack".into(), name.to_owned()));
    let flavor = child(instance, "flavor").and_then(|f| f.attribute("name"));
    name.into_iter().chain(flavor.map(|name| ("flavor".into(), name.to_owned()))).collect()
}

/// Fixed addresses of its ports (`LibvirtConfigGuestMetaNovaPorts`) by the name of the port's tap: `tap` and the first
/// 11 characters of the port's UUID (nova/network/neutron.py, `_nw_info_build_network`; `NIC_NAME_LEN` of
/// nova/network/model.py).
///
/// Nova writes them when the instance starts and when a port comes or goes (nova/virt/libvirt/driver.py,
/// `_get_guest_config_meta`). The port's `allowed_address_pairs` are not there.
pub fn addresses(domain: Node<'_, '_>) -> BTreeMap<String, Vec<IpAddr>> {
    let ports = instance(domain).and_then(|instance| child(instance, "ports"));
    let port = |port: Node<'_, '_>| {
        let tap = format!("tap{}", port.attribute("uuid")?.get(..11)?);
        let fixed = children(port, "ip").filter(|ip| ip.attribute("type") == Some("fixed"));
        Some((tap, usable(fixed.filter_map(|ip| ip.attribute("address")))))
    };
    ports.into_iter().flat_map(|ports| children(ports, "port")).filter_map(port).collect()
}

fn instance<'a, 'i>(domain: Node<'a, 'i>) -> Option<Node<'a, 'i>> {
    let instance = child(child(domain, "metadata")?, "instance")?;
    instance.tag_name().namespace().is_some_and(|space| space.contains("openstack.org")).then_some(instance)
}
