//! Limits of guests' network cards in force: what the kernel has (tc(8), in vmio's own network namespace), joined with
//! what a manager's configuration and Open vSwitch say of the same card.
//!
//! Whose limit it is shows where it hangs: libvirt (src/util/virnetdevbandwidth.c, `virNetDevBandwidthSet`) and Proxmox
//! VE (PVE/Network.pm, `tap_rate_limit`) have it in their configuration; Open vSwitch polices at preference 49
//! (lib/netdev-linux.c, `tc_add_policer`); a CNI plugin gives a pod's veth a tbf, and an ifb named `bwp…` for the other
//! direction (plugins/meta/bandwidth/main.go, ifb_creator.go); LXD makes htb's default class 1:10
//! (device_utils_network.go, `networkSetupHostVethLimits`).

use std::cell::OnceCell;
use std::collections::BTreeMap;

use vmio_model::facts::{Fact, Guest, HopKind, LimitedAt, Nic, RateLimit, Unread};
use vmio_model::policy::Direction;
use vmio_model::rate::{BitRate, ByteRate};
use vmio_model::rules::change::shell;
use vmio_node::linux::net::{self, Interfaces};
use vmio_node::linux::process;
use vmio_node::netlink::tc::{self, Class, Filter, Limit, Qdisc};
use vmio_node::{NetworkAnswer, NetworkQuestion, Unanswered};

use crate::host_view::HostView;
use crate::policing;

/// Handle of the hierarchy of vmio's own guard (guard, planes/linux/htb).
const GUARD: u32 = 0x7a00_0000;
/// Preference of Open vSwitch's policer.
const SWITCH_PREFERENCE: u16 = 49;
/// What the name of a CNI plugin's ifb begins with.
const CNI_IFB: &str = "bwp";
/// LXD's default class.
const LXD_CLASS: u32 = 0x0001_0010;
/// Levels of htb (TC_HTB_MAXDEPTH).
const LEVELS: usize = 8;

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
    for guest in guests {
        let own = guest.pid.is_none_or(|pid| process::same_namespace(host.reader(), pid, "net"));
        let container = guest.shares_kernel();
        for nic in &mut guest.nics {
            // A container's interface is the end of its veth pair here.
            let here = own || nic.backend.as_deref() == Some("veth");
            let Some(name) = nic.interface.value().clone().filter(|name| net::is_name(name)) else { continue };
            if !here {
                guest.unread.extend(guest.pid.map(|pid| elsewhere(&name, pid)));
                continue;
            }
            let found = kernel.as_ref().and_then(|kernel| {
                let index = kernel.here.index(&name)?;
                let limits = kernel.limits(index, nic, container).map_err(|why| unread.push(not_read(&why))).ok()?;
                let speed = if limits.is_empty() { None } else { kernel.here.speed_bps(&name) };
                guest.unread.extend(kernel.opaque(index).map(|kind| Unread {
                    what: format!("limit of {name}"),
                    why: format!("vmio does not take a qdisc of kind {kind} apart"),
                    mend: format!("look at it: tc -s class show dev {name}").into(),
                }));
                Some(Found { limits, speed, bare: kernel.is_bare(index) })
            });
            join(nic, found, ports.get(&name));
        }
        let platform = platform(guest);
        finish(guest, platform);
    }
    unread.dedup();
    unread
}

fn not_read(why: &Unanswered) -> Unread {
    Unread {
        what: "limits of network cards by tc".into(),
        why: why.to_string(),
        mend: "look at them there: tc -s qdisc show".into(),
    }
}

fn elsewhere(name: &str, pid: u32) -> Unread {
    Unread {
        what: format!("limits (tc) of {name}"),
        why: "it is in another network namespace".into(),
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

/// Names the platform, and says the limits in words.
fn finish(guest: &mut Guest, platform: Option<&str>) {
    for nic in guest.nics.iter_mut().filter(|nic| !nic.rate_limits.is_empty()) {
        for limit in nic.rate_limits.amend() {
            let is_its = |platform: &&str| *platform != "cloudstack" || limit.by == "libvirt";
            limit.platform = platform.filter(is_its).map(str::to_owned);
        }
        let words: Vec<String> = nic.rate_limits.iter().map(RateLimit::words).collect();
        nic.limits = match nic.rate_limits.source() {
            Some(source) => Fact::read(words, source.clone()),
            None => words.into(),
        };
    }
}

/// What the kernel has at an interface.
struct Found {
    limits: Vec<RateLimit>,
    /// Speed of the interface, where it is known.
    speed: Option<u64>,
    /// Whether nobody has put any queue or filter there.
    bare: bool,
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
    let Some(Found { limits, speed, bare }) = found else {
        set(nic, all, configured);
        return;
    };
    for limit in limits {
        let same = |own: &&mut RateLimit| own.at.is_none() && is_same(own, &limit);
        match all.iter_mut().find(same) {
            Some(own) => {
                (own.at, own.dropped_packets, own.part) = (limit.at, limit.dropped_packets, limit.part);
                if own.drops {
                    own.burst_bytes = limit.burst_bytes.or(own.burst_bytes);
                }
            }
            // htb's default class may be there for others' sake.
            None if speed.is_some_and(|speed| limit.most().bits() >= speed) => {}
            None => all.push(limit),
        }
    }
    // Open vSwitch may have handed its limits to the hardware.
    for limit in all.iter_mut().filter(|limit| !is_ports(limit)) {
        limit.missing = bare;
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

/// Whether two limits are of the same rate in the same direction.
fn is_same(one: &RateLimit, other: &RateLimit) -> bool {
    one.direction == other.direction && is_close(one.most(), other.most())
}

/// Within 2 %: the kernel rounds, and a manager's unit may.
fn is_close(one: BitRate, other: BitRate) -> bool {
    let (one, other) = (one.bits() as f64, other.bits() as f64);
    (one - other).abs() <= one.max(other) * 0.02
}

/// The kernel's limits on what interfaces send and receive.
struct Kernel<'a> {
    host: &'a HostView<'a>,
    here: Interfaces<'a>,
    qdiscs: BTreeMap<u32, Vec<Qdisc>>,
    names: OnceCell<BTreeMap<u32, String>>,
}

/// A limit at an interface.
struct Held {
    /// Whether it is on what the interface sends.
    sent: bool,
    limit: Limit,
    drops: bool,
    at: LimitedAt,
    dropped: u64,
    part: bool,
    by: Option<&'static str>,
}

impl<'a> Kernel<'a> {
    fn read(host: &'a HostView<'a>) -> Result<Self, Unanswered> {
        let mut qdiscs: BTreeMap<u32, Vec<Qdisc>> = BTreeMap::new();
        if let NetworkAnswer::Qdiscs(all) = host.network(&NetworkQuestion::Qdiscs)? {
            for qdisc in all.into_iter().filter(|qdisc| matches!(qdisc.parent, tc::AT_ROOT | tc::AT_HOOKS)) {
                qdiscs.entry(qdisc.index).or_default().push(qdisc);
            }
        }
        Ok(Self { host, here: Interfaces::here(host.reader()), qdiscs, names: OnceCell::new() })
    }

    /// The limits of a card, seen from the guest.
    fn limits(&self, index: u32, nic: &Nic, container: bool) -> Result<Vec<RateLimit>, Unanswered> {
        let mut all = Vec::new();
        all.extend(self.root(index, container)?);
        self.hooks(index, nic, &mut all)?;
        let owner = all.iter().find_map(|held| held.by).unwrap_or("tc");
        // A macvtap has the guest's own view: what it sends is what the guest sends.
        let macvtap = nic.backend.as_deref() == Some("macvtap");
        let seen = |held: Held| {
            let direction = if held.sent == macvtap { Direction::GuestTx } else { Direction::GuestRx };
            let rate = ByteRate::new(held.limit.bytes_per_second).bits();
            RateLimit {
                burst_bytes: held.limit.burst_bytes.filter(|_| held.drops),
                at: Some(held.at),
                dropped_packets: Some(held.dropped),
                part: held.part,
                ..RateLimit::new(held.by.unwrap_or(owner), direction, rate, held.drops)
            }
        };
        Ok(all.into_iter().map(seen).collect())
    }

    /// Whether nobody has put anything at an interface that is up: the kernel's own qdiscs have no handle.
    fn is_bare(&self, index: u32) -> bool {
        self.qdiscs.get(&index).is_some_and(|all| all.iter().all(|qdisc| qdisc.handle == 0))
    }

    /// The kind of an interface's own qdisc, where that limits by classes that are not read.
    fn opaque(&self, index: u32) -> Option<&str> {
        let root = self.at(index, tc::AT_ROOT)?;
        matches!(root.kind.as_str(), "hfsc" | "cbq").then_some(root.kind.as_str())
    }

    fn at(&self, index: u32, parent: u32) -> Option<&Qdisc> {
        self.qdiscs.get(&index)?.iter().find(|qdisc| qdisc.parent == parent)
    }

    /// What an interface's own qdisc limits all of its packets to: excess waits.
    fn root(&self, index: u32, container: bool) -> Result<Option<Held>, Unanswered> {
        // The kernel's own have no handle; the guard's are vmio's.
        let Some(root) = self.at(index, tc::AT_ROOT).filter(|root| root.handle != 0 && root.handle != GUARD) else {
            return Ok(None);
        };
        let by = match root.kind.as_str() {
            "tbf" if container => Some("cni"),
            "htb" if container && root.default_class == LXD_CLASS => Some("lxd"),
            _ => None,
        };
        let limit = match (root.limit, root.default_class) {
            (Some(limit), _) => Some(limit),
            (None, 0) => None,
            (None, default) => self.least(index, default)?,
        };
        let held = |limit| Held {
            sent: true,
            limit,
            drops: false,
            at: LimitedAt::Root,
            dropped: root.dropped,
            part: false,
            by,
        };
        Ok(limit.map(held))
    }

    /// The lowest ceiling of a class of htb and of those above it.
    fn least(&self, index: u32, class: u32) -> Result<Option<Limit>, Unanswered> {
        let NetworkAnswer::Classes(all) = self.host.network(&NetworkQuestion::Classes { index })? else {
            return Ok(None);
        };
        let above = |class: &&Class| all.iter().find(|one| one.handle == class.parent);
        let first = all.iter().find(|one| one.handle == class);
        let way = std::iter::successors(first, above).take(LEVELS).map(|one| one.limit);
        Ok(way.min_by_key(|limit| limit.bytes_per_second))
    }

    /// What filters police, or lead through an ifb that limits.
    fn hooks(&self, index: u32, nic: &Nic, all: &mut Vec<Held>) -> Result<(), Unanswered> {
        let Some(hook) = self.at(index, tc::AT_HOOKS) else { return Ok(()) };
        let parents: &[(u32, bool)] = match hook.kind.as_str() {
            "ingress" => &[(tc::AT_INGRESS, false)],
            "clsact" => &[(tc::AT_CLSACT_INGRESS, false), (tc::AT_CLSACT_EGRESS, true)],
            _ => &[],
        };
        for &(parent, egress) in parents {
            let question = NetworkQuestion::Filters { index, parent };
            let NetworkAnswer::Filters(filters) = self.host.network(&question)? else { continue };
            for filter in &filters {
                let at = match parent {
                    tc::AT_INGRESS => LimitedAt::Ingress,
                    _ => LimitedAt::Clsact { egress, preference: filter.preference },
                };
                all.extend(self.filtered(filter, nic, egress, at)?);
            }
        }
        Ok(())
    }

    fn filtered(&self, filter: &Filter, nic: &Nic, egress: bool, at: LimitedAt) -> Result<Option<Held>, Unanswered> {
        if let Some(limit) = filter.police {
            let switch = is_switched(nic) && filter.preference == SWITCH_PREFERENCE;
            let by = switch.then_some("openvswitch");
            let (dropped, part) = (filter.dropped, !filter.whole);
            return Ok(Some(Held { sent: egress, limit, drops: true, at, dropped, part, by }));
        }
        let Some(ifb) = filter.redirect else { return Ok(None) };
        let held = self.root(ifb, false)?;
        let by = || self.name(ifb).is_some_and(|name| name.starts_with(CNI_IFB)).then_some("cni");
        Ok(held.map(|held| Held { sent: egress, at, part: !filter.whole, by: by(), ..held }))
    }

    fn name(&self, index: u32) -> Option<&String> {
        let read = || {
            let names = self.here.names().unwrap_or_default();
            names.into_iter().filter_map(|name| Some((self.here.index(&name)?, name))).collect()
        };
        self.names.get_or_init(read).get(&index)
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
