//! Rate limits of a network card, taken off: virsh(1), `domiftune`; qm(1), `--net[n]`; ovs-vswitchd.conf.db(5), "Ingress
//! Policing" and "Port Table", `qos`; ovs-vsctl(8); tc(8).

use serde_json::{Value, json};

use super::names::{Names, comment, shell};
use super::slot::read_slot_by;
use crate::facts::{CLOUD_HYPERVISOR, FIRECRACKER, Guarded, LimitedAt, Place, RateLimit};
use crate::policy::{DEFAULT, Direction};

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

/// Proxmox's limit of a card, by its interface on the host. The line is rewritten from itself, which keeps everything
/// else. A container's interface is a `veth…` (pve-container, PVE/LXC.pm), and its tool is pct(1).
pub fn unlimited_by_proxmox(names: Names<'_>, interface: &str) -> String {
    let (vmid, slot) = (names.vmid(), names.slot("net0"));
    let tool = if interface.starts_with("veth") { "pct" } else { "qm" };
    let read = read_slot_by(tool, "card", &vmid, &slot, "s/,(rate)=[^,]*//g;");
    format!("{read} && \\\n{tool} set {vmid} --{slot} \"$card\"")
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

/// Limits that a guest's hypervisor holds itself (Firecracker, docs/api_requests/patch-network-interface.md, "Removing
/// Rate Limiting"; Cloud Hypervisor, docs/io_throttling.md).
pub fn unlimited_by_hypervisor(place: &Place, limits: &[&RateLimit]) -> Option<String> {
    let id = place.device_id.as_deref().unwrap_or("ID");
    if limits.iter().any(|limit| limit.by == CLOUD_HYPERVISOR) {
        return Some(format!(
            "# in its own --net with id={}, from the next start on: remove these, keep all else\n\
             # bw_size, bw_refill_time, bw_one_time_burst, ops_size, ops_refill_time, ops_one_time_burst",
            comment(id)
        ));
    }
    let of = |limit: &&RateLimit| match limit.direction {
        Direction::GuestTx => "tx_rate_limiter",
        Direction::GuestRx => "rx_rate_limiter",
    };
    let keys: Vec<&str> = limits.iter().filter(|limit| limit.by == FIRECRACKER).map(of).collect();
    let none = json!({"bandwidth": {"size": 0, "refill_time": 0}});
    let body: serde_json::Map<String, Value> = [("iface_id".to_owned(), json!(id))]
        .into_iter()
        .chain(keys.iter().map(|key| ((*key).to_owned(), none.clone())))
        .collect();
    (!keys.is_empty()).then(|| {
        format!(
            "# SOCKET is its --api-sock\n\
             curl --unix-socket SOCKET -X PATCH {} \\\n  -d {}\n\
             # for good: remove {} in its configuration",
            shell(&format!("http://localhost/network-interfaces/{id}")),
            shell(&Value::Object(body).to_string()),
            keys.join(" and ")
        )
    })
}

/// Limits of vmio's own guard: how to see and change them, by class; without its daemon, how to remove all.
pub fn unlimited_by_guard(limits: &[&Guarded]) -> Option<String> {
    let first = limits.first()?;
    let state = first.state.as_deref().map_or_else(String::new, |dir| format!(" --state {}", shell(dir)));
    if !first.runs {
        return Some(format!(
            "vmio guard undo{state}    # removes all of its limits\n\
             vmio guard run{state}    # or resumes them (with its --config, if it had one)"
        ));
    }
    let mut lines = vec![format!("vmio guard status{state} --verbose    # what is in force")];
    for class in limits.iter().filter_map(|limit| limit.class.as_deref()) {
        // What is in no class has no maximum of its own.
        if class == DEFAULT {
            continue;
        }
        let line =
            format!("vmio guard set{state} class {} --max RATE    # as 500Mbit; until it is cleared", shell(class));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.push(format!("# for good: edit the policy's files, then run: vmio guard apply{state}"));
    Some(lines.join("\n"))
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
        "incus" => Some(
            "# Incus sets it with the card: incus config device unset NAME CARD limits.max (and limits.ingress,\n\
             # limits.egress)",
        ),
        _ => None,
    }
}

/// Limits that hang at an interface, or where else the kernel has them. With `clsact` the filter alone goes, since
/// others' programs hang there, too.
pub fn unlimited_by_tc(interface: &str, limits: &[&RateLimit]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for limit in limits {
        let dev = shell(limit.interface.as_deref().unwrap_or(interface));
        let show = format!("tc -s qdisc show dev {dev}    # what is in force");
        if !lines.contains(&show) {
            lines.push(show);
        }
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
