//! What the kernel limits at an interface: by its own qdisc what it sends, by filters at its hooks what it receives or
//! sends. tc(8) shows the same.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use vmio_model::facts::{LimitedAt, RateLimit};
use vmio_model::policy::Direction;
use vmio_model::rate::ByteRate;
use vmio_node::linux::net::Interfaces;
use vmio_node::netlink::tc::{self, Filter, Limit, Qdisc};
use vmio_node::{NetworkAnswer, NetworkQuestion, Unanswered};

use crate::host_view::HostView;

/// Handle of the hierarchy of vmio's own guard (guard, planes/linux/htb).
pub const GUARD: u32 = 0x7a00_0000;
/// Preference of Open vSwitch's policer (lib/netdev-linux.c, `tc_add_policer`).
pub const SWITCH_PREFERENCE: u16 = 49;
/// Open vSwitch's class above those of its queues, of htb and of hfsc (lib/netdev-linux.c, `htb_tc_install`,
/// `hfsc_tc_install`).
pub const SWITCH_CLASS: u32 = 0x0001_fffe;
/// The owner's name of both.
const SWITCH: &str = "openvswitch";
/// What the name of a CNI plugin's ifb begins with.
const CNI_IFB: &str = "bwp";
/// LXD's default class.
pub const LXD_CLASS: u32 = 0x0001_0010;

/// An interface that packets of a card pass.
#[derive(Debug, Clone, Copy)]
pub struct Passed<'n> {
    /// Its name.
    pub name: &'n str,
    /// Whether it is an end of the veth pair of a container or a pod.
    pub container: bool,
    /// Whether it is a port of Open vSwitch.
    pub switched: bool,
    /// Which of LXD and Incus may have set its limits: both make them in one way.
    pub daemon: Option<&'static str>,
    /// Whether it has the guest's own view, as a macvtap: what it sends is what the guest sends.
    pub guests_view: bool,
}

impl Passed<'_> {
    /// The direction of what the interface sends, or of what it receives.
    fn direction(self, sent: bool) -> Direction {
        if sent == self.guests_view { Direction::GuestTx } else { Direction::GuestRx }
    }
}

/// What the kernel has at an interface, seen from the guest.
#[derive(Debug)]
pub struct Found {
    /// The limits.
    pub limits: Vec<RateLimit>,
    /// Directions in which nobody has put any queue or filter there.
    pub bare: Vec<Direction>,
    /// The kind of its own qdisc, where that limits by classes that are not read.
    pub opaque: Option<String>,
}

/// The kernel's limits on what interfaces send and receive.
pub struct Kernel<'a> {
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
    per_flow: bool,
    by: Option<&'static str>,
}

impl<'a> Kernel<'a> {
    /// Lists the qdiscs of all interfaces.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn read(host: &'a HostView<'a>) -> Result<Self, Unanswered> {
        let mut qdiscs: BTreeMap<u32, Vec<Qdisc>> = BTreeMap::new();
        if let NetworkAnswer::Qdiscs(all) = host.network(&NetworkQuestion::Qdiscs)? {
            for qdisc in all.into_iter().filter(|qdisc| matches!(qdisc.parent, tc::AT_ROOT | tc::AT_HOOKS)) {
                qdiscs.entry(qdisc.index).or_default().push(qdisc);
            }
        }
        Ok(Self { host, here: Interfaces::here(host.reader()), qdiscs, names: OnceCell::new() })
    }

    /// What there is at an interface; `None` where it is not here.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn found(&self, passed: Passed<'_>) -> Result<Option<Found>, Unanswered> {
        self.here.index(passed.name).map(|index| self.found_at(index, passed)).transpose()
    }

    /// The same at the interface of that number, which the kernel has told the caller.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub fn found_at(&self, index: u32, passed: Passed<'_>) -> Result<Found, Unanswered> {
        let mut all: Vec<Held> = self.root(index, passed)?.into_iter().collect();
        self.hooks(index, passed, &mut all)?;
        // LXD's policer and a CNI plugin's have no mark of their own.
        let owner = all.iter().find_map(|held| held.by.filter(|by| *by != SWITCH)).unwrap_or("tc");
        let seen = |held: Held| {
            let rate = ByteRate::new(held.limit.bytes_per_second).bits();
            RateLimit {
                burst_bytes: held.limit.burst_bytes,
                at: Some(held.at),
                dropped_packets: Some(held.dropped),
                part: held.part,
                per_flow: held.per_flow,
                ..RateLimit::new(held.by.unwrap_or(owner), passed.direction(held.sent), rate, held.drops)
            }
        };
        let bare = [true, false].into_iter().filter(|sent| self.is_bare(index, *sent));
        Ok(Found {
            limits: all.into_iter().map(seen).collect(),
            bare: bare.map(|sent| passed.direction(sent)).collect(),
            opaque: self.at(index, tc::AT_ROOT).filter(|root| root.kind == "cbq").map(|root| root.kind.clone()),
        })
    }

    /// Whether nobody has put anything on what an interface that is up sends, or on what it receives: the kernel's own
    /// qdiscs have no handle.
    fn is_bare(&self, index: u32, sent: bool) -> bool {
        let hook = self.at(index, tc::AT_HOOKS);
        if !sent {
            return self.qdiscs.contains_key(&index) && hook.is_none();
        }
        let is_kernels = self.at(index, tc::AT_ROOT).is_some_and(|root| root.handle == 0);
        is_kernels && hook.is_none_or(|hook| hook.kind != "clsact")
    }

    fn at(&self, index: u32, parent: u32) -> Option<&Qdisc> {
        self.qdiscs.get(&index)?.iter().find(|qdisc| qdisc.parent == parent)
    }

    /// What an interface's own qdisc limits all of its packets to, or each of its flows: excess waits.
    fn root(&self, index: u32, passed: Passed<'_>) -> Result<Option<Held>, Unanswered> {
        // The kernel's own have no handle; the guard's are vmio's.
        let Some(root) = self.at(index, tc::AT_ROOT).filter(|root| root.handle != 0 && root.handle != GUARD) else {
            return Ok(None);
        };
        let found = match (root.limit.or(root.flow_limit), root.default_class) {
            (Some(limit), _) => Some((limit, false)),
            (None, 0) => None,
            (None, default) => self.least(index, default)?,
        };
        let held = |(limit, of_switch): (Limit, bool)| Held {
            sent: true,
            limit,
            drops: false,
            at: LimitedAt::Root,
            dropped: root.dropped,
            part: false,
            per_flow: root.limit.is_none() && root.flow_limit.is_some(),
            by: match root.kind.as_str() {
                _ if of_switch && passed.switched => Some(SWITCH),
                "tbf" if passed.container => Some("cni"),
                "htb" if root.default_class == LXD_CLASS => passed.daemon,
                _ => None,
            },
        };
        Ok(found.map(held))
    }

    /// The lowest ceiling of a class and of those above it, and whether the classes are as Open vSwitch makes them.
    fn least(&self, index: u32, class: u32) -> Result<Option<(Limit, bool)>, Unanswered> {
        let NetworkAnswer::Classes(all) = self.host.network(&NetworkQuestion::Classes { index })? else {
            return Ok(None);
        };
        let of_switch = all.iter().any(|one| one.handle == SWITCH_CLASS);
        Ok(tc::least(&all, class).map(|limit| (limit, of_switch)))
    }

    /// What filters police, or lead through an ifb that limits.
    fn hooks(&self, index: u32, passed: Passed<'_>, all: &mut Vec<Held>) -> Result<(), Unanswered> {
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
                all.extend(self.filtered(filter, passed, egress, at)?);
            }
        }
        Ok(())
    }

    fn filtered(
        &self,
        filter: &Filter,
        passed: Passed<'_>,
        egress: bool,
        at: LimitedAt,
    ) -> Result<Option<Held>, Unanswered> {
        if let Some(limit) = filter.police {
            let by = (passed.switched && filter.preference == SWITCH_PREFERENCE).then_some(SWITCH);
            let (dropped, part) = (filter.dropped, !filter.whole);
            return Ok(Some(Held { sent: egress, limit, drops: true, at, dropped, part, per_flow: false, by }));
        }
        let Some(ifb) = filter.redirect else { return Ok(None) };
        let held = self.root(ifb, Passed { container: false, switched: false, ..passed })?;
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
