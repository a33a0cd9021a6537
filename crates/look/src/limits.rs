//! Limits of guests' network cards in force: what the kernel has (tc(8), in vmio's own network namespace), joined with
//! what a manager's configuration and Open vSwitch say of the same card.
//!
//! Whose limit it is shows where it hangs: libvirt (src/util/virnetdevbandwidth.c, `virNetDevBandwidthSet`) and Proxmox
//! VE (PVE/Network.pm, `tap_rate_limit`) have it in their configuration; Open vSwitch polices at preference 49, and its
//! queues are below a class 1:fffe (lib/netdev-linux.c, `tc_add_policer`, `htb_tc_install`); a CNI plugin gives a pod's
//! veth a tbf, and an ifb named `bwp…` for the other direction (plugins/meta/bandwidth/main.go, ifb_creator.go); LXD
//! and Incus make htb's default class 1:10, at containers' veth pairs and machines' taps (device_utils_network.go,
//! `networkSetupHostVethLimits`).
//!
//! A limit at what all guests of a bridge leave by, or at the bridge itself where the host routes for it (a network of
//! libvirt's with `<bandwidth>`), is theirs together.
//!
//! Of a tap in another network namespace (a pod's) the limits at the pod's end on the host are read; those at the tap
//! itself would have vmio enter that namespace, and are told as not read.

use std::collections::BTreeMap;

use vmio_model::facts::{Fact, Guest, Hop, HopKind, Nic, RateLimit, Unread};
use vmio_model::rate::BitRate;
use vmio_model::rules::change::shell;
use vmio_node::Unanswered;
use vmio_node::linux::{net, process};

use crate::host_view::HostView;
use crate::policing;

mod kernel;

use kernel::{Found, Kernel, Passed};

/// Whether a card's interface is a port of Open vSwitch.
fn is_switched(nic: &Nic) -> bool {
    nic.way.iter().any(|hop| hop.kind == HopKind::OvsBridge)
}

/// Completes the limits of all cards. What could not be read is returned.
pub fn settle(host: &HostView<'_>, guests: &mut [Guest]) -> Vec<Unread> {
    let mut unread = Vec::new();
    let nics = || guests.iter().flat_map(|guest| &guest.nics);
    let has_interfaces = nics().any(|nic| nic.interface.is_some());
    let has_ports = nics().any(is_switched);
    // Why Open vSwitch did not answer is told once, by the scan.
    let ports = if has_ports { policing::policed(host).unwrap_or_default() } else { BTreeMap::new() };
    let kernel = if has_interfaces { Kernel::read(host).map(Some) } else { Ok(None) };
    let kernel = kernel.unwrap_or_else(|why| {
        unread.push(not_read(&why));
        None
    });
    let mut ask = |passed: Passed<'_>| {
        let found = kernel.as_ref()?.found(passed);
        found.unwrap_or_else(|why| {
            unread.push(not_read(&why));
            None
        })
    };
    let mut shared: BTreeMap<String, Vec<RateLimit>> = BTreeMap::new();
    for guest in guests {
        let own = is_of_own_namespace(host, guest);
        let container = guest.shares_kernel();
        let daemon = match guest.manager.as_deref() {
            Some("incus") => Some("incus"),
            Some("lxd") => Some("lxd"),
            _ => container.then_some("lxd"),
        };
        for nic in &mut guest.nics {
            let Some(name) = nic.interface.value().clone().filter(|name| net::is_name(name)) else { continue };
            let switched = is_switched(nic);
            if !is_here(own, nic) {
                let read = host_end(nic).and_then(|name| {
                    let found = ask(Passed {
                        name: &name,
                        container: true,
                        switched,
                        daemon: Some("lxd"),
                        guests_view: false,
                    })?;
                    join_at(nic, &name, found);
                    Some(name)
                });
                guest.unread.extend(guest.pid.map(|pid| elsewhere(&name, pid, read.as_deref())));
                continue;
            }
            let guests_view = nic.backend.as_deref() == Some("macvtap");
            let found = ask(Passed { name: &name, container, switched, daemon, guests_view });
            guest.unread.extend(found.as_ref().and_then(|found| opaque(&name, found)));
            join(nic, found, ports.get(&name));
            for (name, guests_view) in shared_hops(nic) {
                let passed = Passed { name: &name, container: false, switched: false, daemon: None, guests_view };
                let limits = shared
                    .entry(name.clone())
                    .or_insert_with(|| ask(passed).map(|found| found.limits).unwrap_or_default());
                join_shared(nic, &name, limits);
            }
        }
        name_platform(guest);
    }
    unread.dedup();
    unread
}

/// The interface of this host that a card's packets pass, and whether it is not the card's own: then it is the end here
/// of its pod's veth pair.
pub fn passed_here(host: &HostView<'_>, guest: &Guest, nic: &Nic) -> Option<(String, bool)> {
    if is_here(is_of_own_namespace(host, guest), nic) {
        return Some((nic.interface.value().clone()?, false));
    }
    host_end(nic).map(|end| (end, true))
}

/// Whether a guest's process is in vmio's own network namespace.
fn is_of_own_namespace(host: &HostView<'_>, guest: &Guest) -> bool {
    guest.pid.is_none_or(|pid| process::same_namespace(host.reader(), pid, "net"))
}

/// Whether a card's interface is in vmio's own network namespace, by whether its guest (`own`) is.
fn is_here(own: bool, nic: &Nic) -> bool {
    // A container's interface is the end of its veth pair here.
    own || nic.backend.as_deref() == Some("veth")
}

/// What the kernel limits at interfaces of this host behind which no guest's card is known (the end of a veth pair of
/// `ip netns`, a tap of nobody), given by name and number; and what could not be read.
pub fn at_interfaces<'n>(
    host: &HostView<'_>,
    interfaces: impl IntoIterator<Item = (&'n str, u32)>,
) -> (BTreeMap<String, Vec<RateLimit>>, Vec<Unread>) {
    let (mut all, mut unread) = (BTreeMap::new(), Vec::new());
    let kernel = match Kernel::read(host) {
        Ok(kernel) => kernel,
        Err(why) => return (all, vec![not_read(&why)]),
    };
    for (name, index) in interfaces {
        let switched = host.ovs().is_ok_and(|ovs| ovs.interfaces.contains_key(name));
        match kernel.found_at(index, Passed { name, container: false, switched, daemon: None, guests_view: false }) {
            Ok(found) => {
                unread.extend(opaque(name, &found));
                // What each flow may have limits no guest as a whole.
                let limits: Vec<RateLimit> = found.limits.into_iter().filter(|limit| !limit.per_flow).collect();
                if !limits.is_empty() {
                    all.insert(name.to_owned(), limits);
                }
            }
            Err(why) => unread.push(not_read(&why)),
        }
    }
    unread.dedup();
    (all, unread)
}

/// That a limit is there whose rate is not read.
fn opaque(name: &str, found: &Found) -> Option<Unread> {
    let kind = found.opaque.as_deref()?;
    Some(Unread {
        what: format!("limit of {name}"),
        why: format!("vmio does not take a qdisc of kind {kind} apart"),
        mend: format!("look at it: tc -s class show dev {}", shell(name)).into(),
    })
}

fn not_read(why: &Unanswered) -> Unread {
    Unread {
        what: "limits of network cards by tc".into(),
        why: why.to_string(),
        mend: "look at them there: tc -s qdisc show".into(),
    }
}

/// The end here of the veth pair of a card's namespace: all of its packets pass it, and CNI plugins limit there.
fn host_end(nic: &Nic) -> Option<String> {
    let end = nic.way.iter().find(|hop| hop.here && hop.kind == HopKind::Veth)?;
    Some(end.interface.clone())
}

fn elsewhere(name: &str, pid: u32, end: Option<&str>) -> Unread {
    let seen = end.map_or_else(String::new, |end| format!("; those at {end}, which its packets pass here, were read"));
    Unread {
        what: format!("limits (tc) of {name}"),
        why: format!("it is in another network namespace{seen}"),
        mend: format!("look at them there: nsenter -t {pid} -n tc -s qdisc show dev {}", shell(name)).into(),
    }
}

/// The platform of a guest: OpenStack's metadata, KubeVirt's pod, or a name of CloudStack's form (`i-2-20-VM`:
/// VirtualMachineName.java, `getVmName`).
fn platform(guest: &Guest) -> Option<&'static str> {
    if guest.ids.contains_key("openstack") {
        return Some("nova");
    }
    if guest.manager.as_deref() == Some("kubevirt") {
        return Some("kubevirt");
    }
    let name = guest.ids.get("domain").unwrap_or(&guest.name);
    let parts: Vec<&str> = name.split('-').collect();
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match parts[..] {
        ["i", account, instance, "VM"] if number(account) && number(instance) => Some("cloudstack"),
        _ => None,
    }
}

/// Names the platform behind each limit.
fn name_platform(guest: &mut Guest) {
    let platform = platform(guest);
    for nic in guest.nics.iter_mut().filter(|nic| !nic.rate_limits.is_empty()) {
        for limit in nic.rate_limits.amend() {
            // What guests share, their platform has not set; CloudStack sets its own by libvirt.
            let is_its = |platform: &&str| !limit.shared && (*platform != "cloudstack" || limit.by == "libvirt");
            limit.platform = platform.filter(is_its).map(str::to_owned);
        }
    }
}

/// Adds what the kernel has at another interface that the card's packets pass.
fn join_at(nic: &mut Nic, interface: &str, found: Found) {
    let mut all = nic.rate_limits.value().clone();
    let configured = !all.is_empty();
    let at = |limit: RateLimit| RateLimit { interface: Some(interface.to_owned()), ..limit };
    all.extend(found.limits.into_iter().map(at));
    set(nic, all, configured);
}

/// Interfaces of this host behind the card's bridge that all of its guests' packets pass, and whether each sends what
/// they send: the one network card by which they leave, with the VLAN or bond above it; else the bridge itself, which
/// the host sends to.
fn shared_hops(nic: &Nic) -> Vec<(String, bool)> {
    let Some(bridge) = nic.way.iter().rposition(|hop| hop.kind.is_bridge()) else { return Vec::new() };
    let behind: Vec<&Hop> = nic.way[bridge + 1..].iter().collect();
    if behind.is_empty() {
        let last = &nic.way[bridge];
        return (last.here && last.kind == HopKind::Bridge)
            .then(|| (last.interface.clone(), false))
            .into_iter()
            .collect();
    }
    // Of several cards each carries a part.
    let leads_out = |hop: &&Hop| matches!(hop.kind, HopKind::Card | HopKind::Vlan | HopKind::Bond);
    let one = behind.iter().filter(|hop| hop.kind == HopKind::Card).count() == 1;
    let all = behind.iter().all(|hop| hop.here && leads_out(hop));
    if !one || !all {
        return Vec::new();
    }
    behind.iter().map(|hop| (hop.interface.clone(), true)).collect()
}

/// Adds what the kernel has at an interface that other guests' packets pass, too: its count is not this guest's.
fn join_shared(nic: &mut Nic, interface: &str, limits: &[RateLimit]) {
    if limits.is_empty() {
        return;
    }
    let mut all = nic.rate_limits.value().clone();
    let configured = nic.rate_limits.source().is_some() || !all.is_empty();
    let at = |limit: &RateLimit| RateLimit {
        interface: Some(interface.to_owned()),
        shared: true,
        dropped_packets: None,
        ..limit.clone()
    };
    all.extend(limits.iter().map(at));
    set(nic, all, configured);
}

/// Joins what is configured with what the kernel has (`None`: not known). The same rate in the same direction is one
/// limit, whose burst and count are the kernel's.
fn join(nic: &mut Nic, found: Option<Found>, port: Option<&RateLimit>) {
    let mut all = nic.rate_limits.value().clone();
    let configured = !all.is_empty();
    // libvirt has Open vSwitch police what the guest sends (src/util/virnetdevopenvswitch.c,
    // `virNetDevOpenvswitchInterfaceSetQos`): that is its own limit.
    let is_ports = |own: &RateLimit| port.is_some_and(|port| is_same(own, port));
    if !all.iter().any(is_ports) {
        all.extend(port.cloned());
    }
    let Some(Found { limits, bare, .. }) = found else {
        set(nic, all, configured);
        return;
    };
    for limit in limits {
        let same = |own: &&mut RateLimit| own.at.is_none() && !own.is_of_hypervisor() && is_same(own, &limit);
        match all.iter_mut().find(same) {
            Some(own) => {
                (own.at, own.dropped_packets, own.part) = (limit.at, limit.dropped_packets, limit.part);
                own.burst_bytes = limit.burst_bytes.or(own.burst_bytes);
            }
            None => all.push(limit),
        }
    }
    // Open vSwitch may have handed its limits to the hardware.
    for limit in all.iter_mut().filter(|limit| !is_ports(limit) && !limit.is_of_hypervisor()) {
        limit.missing = bare.contains(&limit.direction);
    }
    set(nic, all, configured);
}

/// The source of a configured limit stays.
fn set(nic: &mut Nic, limits: Vec<RateLimit>, configured: bool) {
    if configured {
        *nic.rate_limits.amend() = limits;
    } else if !limits.is_empty() {
        nic.rate_limits = Fact::read(limits, "tc qdisc, class and filter show");
    }
}

/// Whether two limits are of the same rate in the same direction, and both of all flows together or of each.
fn is_same(one: &RateLimit, other: &RateLimit) -> bool {
    one.direction == other.direction && one.per_flow == other.per_flow && is_close(one.most(), other.most())
}

/// Within 2 %: the kernel rounds, and a manager's unit may.
fn is_close(one: BitRate, other: BitRate) -> bool {
    let (one, other) = (one.bits() as f64, other.bits() as f64);
    (one - other).abs() <= one.max(other) * 0.02
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
