//! Rate limits of a network card, taken off: virsh(1), `domiftune`; qm(1), `--net[n]`; ovs-vswitchd.conf.db(5), "Ingress
//! Policing" and "Port Table", `qos`; ovs-vsctl(8); tc(8).

use super::names::{Names, shell};
use super::slot::read_slot;
use crate::facts::{LimitedAt, RateLimit};
use crate::policy::Direction;

fn flag(limit: &RateLimit) -> &'static str {
    match limit.direction {
        Direction::GuestTx => "outbound",
        Direction::GuestRx => "inbound",
    }
}

/// libvirt's limits of a card, by its MAC address or its interface. Where a policer's burst is too small for TCP, also how
/// to keep the limit with one that lasts a second: average, peak and burst are in kilobytes.
pub fn unlimited_by_libvirt(names: Names<'_>, device: &str, limits: &[&RateLimit]) -> String {
    let (domain, device) = (names.domain(), shell(device));
    // CloudStack's domains are transient: libvirt refuses --config for them (virsh(1), "domiftune").
    let transient = limits.iter().any(|limit| limit.platform.as_deref() == Some("cloudstack"));
    let keep = if transient { "--live" } else { "--live --config" };
    let flags: String = limits.iter().map(|limit| format!(" --{} 0", flag(limit))).collect();
    let mut text = format!("virsh domiftune {domain} {device}{flags} {keep}");
    for limit in limits.iter().filter(|limit| limit.hurts_tcp()) {
        let (way, rate) = (flag(limit), limit.rate_bps.bytes().bytes() / 1000);
        text.push_str(&format!(
            "\n# or, to keep it with a burst that TCP can do with:\n\
             # virsh domiftune {domain} {device} --{way} {rate},{rate},{rate} {keep}"
        ));
    }
    text
}

/// Proxmox's limit of a card. The line is rewritten from itself, which keeps everything else.
pub fn unlimited_by_proxmox(names: Names<'_>) -> String {
    let (vmid, slot) = (names.vmid(), names.slot("net0"));
    let read = read_slot("card", &vmid, &slot, "s/,(rate)=[^,]*//g;");
    format!("{read} && \\\nqm set {vmid} --{slot} \"$card\"")
}

/// Open vSwitch's limits of a port: its policer, and the queues of its column `qos`. Their record goes, too, which the
/// database refuses where another port has it.
pub fn unlimited_by_ovs(interface: &str, limits: &[&RateLimit]) -> String {
    let port = shell(interface);
    let is_queue = |limit: &&RateLimit| limit.at == Some(LimitedAt::Root);
    let mut lines = Vec::new();
    if !limits.iter().all(is_queue) {
        lines.push(format!("ovs-vsctl set interface {port} ingress_policing_rate=0 ingress_policing_burst=0"));
    }
    if limits.iter().any(is_queue) {
        lines.push(
            "# to the guest; the last command is refused where another port has the record, too: leave it".into(),
        );
        lines.push(format!(
            "qos=$(ovs-vsctl get port {port} qos) && ovs-vsctl clear port {port} qos && ovs-vsctl destroy qos \"$qos\""
        ));
    }
    lines.join("\n")
}

/// What sets a limit anew, where tc alone does not last.
pub fn set_anew(by: &str) -> Option<&'static str> {
    match by {
        "cni" => Some(
            "# a CNI plugin sets it with the pod: take kubernetes.io/ingress-bandwidth and egress-bandwidth off its\n\
             # annotations, and recreate the pod",
        ),
        "lxd" => Some(
            "# LXD sets it with the card: lxc config device unset NAME CARD limits.max (and limits.ingress,\n\
             # limits.egress)",
        ),
        _ => None,
    }
}

/// Limits that hang at an interface, or where else the kernel has them. With `clsact` the filter alone goes, since
/// others' programs hang there, too.
pub fn unlimited_by_tc(interface: &str, limits: &[&RateLimit]) -> String {
    let dev = shell(limits.iter().find_map(|limit| limit.interface.as_deref()).unwrap_or(interface));
    let mut lines = vec![format!("tc -s qdisc show dev {dev}    # what is in force")];
    for limit in limits {
        let command = match limit.at {
            Some(LimitedAt::Root) => format!("tc qdisc del dev {dev} root"),
            Some(LimitedAt::Ingress) => format!("tc qdisc del dev {dev} ingress"),
            Some(LimitedAt::Clsact { egress, preference }) => {
                let hook = if egress { "egress" } else { "ingress" };
                format!("tc filter del dev {dev} {hook} pref {preference}")
            }
            None => continue,
        };
        let way = match limit.direction {
            Direction::GuestTx => "from the guest",
            Direction::GuestRx => "to the guest",
        };
        lines.push(format!("{command}    # {way}"));
    }
    lines.join("\n")
}
