//! Packets of a guest that are larger than what its network passes. A bridge silently drops packets larger than the
//! MTU of the outgoing port (Linux, net/bridge/br_forward.c, `is_skb_forwardable`): on the way to the guest its tap's,
//! on the way from it that of the port by which they leave. The bridge's own MTU decides nothing, nor does the tap's
//! for what the guest sends. Open vSwitch does the same and counts it (net/openvswitch/vport.c, `ovs_vport_send`), and
//! a veth pair asks both of its ends (`__dev_forward_skb`). A router answers that a packet is too big. A virtio-net
//! guest has 1500 unless its device reports another MTU (`host_mtu`). A larger MTU at the tap than the guest's is no
//! fault.

mod remedy;

use super::change::on_host;
use super::live::seen;
use super::support::away_from;
use super::{Check, Evidence, Finding, Kinds, Need, Rule, Severity};
use crate::facts::{Gain, Hop, HopKind, Measured, Nic, way_shown};

/// Lost packets are retransmitted, and lost again: any significant gain counts.
const GAIN: f64 = 1.0;
/// The setting of a study that gives both ends a larger MTU than the link between them, as `9000-over-1500`.
const SETTING: &str = "mtu";

pub(super) const RULE: Rule = Rule {
    id: "mtu-mismatch",
    title: "The guest's packets are larger than its network passes",
    needs: Need::MeasuredOrSettings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#mtu-configuration",
        "Proxmox VE, qm.adoc, \"Network Device\" (MTU; 1 takes the bridge's)",
    ],
    checks: &[Check::Run(measured), Check::Nic(live)],
    kinds: Kinds::Any,
    // Silent: a larger MTU on the whole path is no mismatch, whatever its gain.
    #[cfg(test)]
    fixture: (
        || crate::testing::over_bridge_under(SETTING, "9000-over-1500", 5e6),
        || crate::testing::over_bridge_under(SETTING, "9000", 5e9),
    ),
    ..Rule::PLAIN
};

/// In a run: the same over the same path with one MTU everywhere.
fn measured(rule: &Rule, m: &Measured) -> Vec<Finding> {
    let cause = |g: &Gain| {
        let set = g.before.settings.get(SETTING).map_or("", String::as_str);
        let (ends, link) = set.split_once("-over-").unwrap_or((set, "less"));
        format!(
            "Here both ends and the tap took packets of {ends} bytes and the bridge's uplink of {link}: what was larger \
             was dropped. Over the same path without that, {} ran {} as fast.",
            g.after.workload(),
            g.ratio.times()
        )
    };
    let differs = |set: &str| set.contains("-over-");
    rule.from_gains(m, away_from(m, SETTING, differs, GAIN), cause, |_| {
        on_host(
            "Set both ends to at most the smallest MTU between them: the guest's tap (TAP), and in the guest its INTERFACE.",
            "mtu=$(cat /sys/class/net/BRIDGE/mtu)\nip link set dev TAP mtu \"$mtu\"\n# and in the guest, with that number\n\
             # ip link set dev INTERFACE mtu NUMBER",
        )
    })
}

/// What of a card's way is too narrow for its guest.
struct Mismatch<'a> {
    /// The guest's MTU.
    guest: u64,
    /// Whether its device reports that to it.
    told: bool,
    /// The interface on the host.
    interface: &'a str,
    /// Its MTU, where that is less than the guest's.
    to_guest: Option<u64>,
    /// Interfaces behind the bridge that pass less than the guest's MTU, with theirs.
    from_guest: Vec<(&'a Hop, u64)>,
    /// Packets that were dropped for their size, as far as they are counted.
    dropped: Option<u64>,
}

impl<'a> Mismatch<'a> {
    fn of(nic: &'a Nic) -> Option<Self> {
        let (guest, tap, interface) = ((*nic.guest_mtu_bytes)?, (*nic.mtu_bytes)?, nic.interface.as_deref()?);
        let in_a_bridge = nic.way.get(1).is_some_and(|next| next.kind.is_bridge());
        let told = *nic.host_mtu_bytes == Some(guest);
        let veth = is_container(nic);
        if !veth && nic.backend.as_deref() != Some("tap") {
            // Other back ends are not asked for the MTU of an interface here.
            return None;
        }
        let to_guest = Some(tap).filter(|tap| *tap < guest && (in_a_bridge || veth || told));
        let behind = nic.way.iter().skip(1).filter(|hop| in_a_bridge && !hop.kind.is_bridge());
        let from_guest: Vec<(&Hop, u64)> =
            behind.filter_map(|hop| Some((hop, hop.mtu_bytes.filter(|mtu| *mtu < guest)?))).collect();
        let over_ovs = nic.way.get(1).is_some_and(|next| next.kind == HopKind::OvsBridge);
        let dropped = nic.tap_errors.filter(|errors| *errors > 0 && over_ovs && to_guest.is_some());
        let mismatch = Mismatch { guest, told, interface, to_guest, from_guest, dropped };
        (mismatch.to_guest.is_some() || !mismatch.from_guest.is_empty()).then_some(mismatch)
    }

    /// The interface behind the bridge that passes least.
    fn narrowest(&self) -> Option<(&'a Hop, u64)> {
        self.from_guest.iter().copied().min_by_key(|(_, mtu)| *mtu)
    }

    /// The largest packet that passes both ways.
    fn passes(&self) -> u64 {
        let behind = self.narrowest().map(|(_, mtu)| mtu);
        self.to_guest.into_iter().chain(behind).min().unwrap_or(self.guest)
    }

    fn cause(&self, nic: &Nic) -> String {
        let Self { guest, interface, .. } = self;
        let why = match (self.told, nic.model.as_deref()) {
            (true, _) => "its card's host_mtu says so",
            (false, Some("virtio-net")) => "virtio's default, since its card has no host_mtu",
            (false, Some("veth")) => "set in it",
            (false, _) => "the default of such a card",
        };
        let to = self.to_guest.map(|mtu| format!("{interface} passes {mtu} to it"));
        let from = self.narrowest().map(|(hop, mtu)| format!("{} passes {mtu} from it", hop.interface));
        let narrow: Vec<String> = to.into_iter().chain(from).collect();
        let mut cause = format!(
            "The guest takes packets of {guest} bytes ({why}), but {}: larger ones are dropped without a message; \
             pings pass, large transfers stall.",
            narrow.join(" and ")
        );
        if let Some(dropped) = self.dropped {
            cause.push_str(&format!(" {dropped} were dropped at {interface}."));
        } else if !self.told && !is_container(nic) {
            cause.push_str(&format!(" A guest that got {} by DHCP is not affected.", self.passes()));
        }
        cause
    }
}

/// Whether its card is an end of a veth pair.
fn is_container(nic: &Nic) -> bool {
    nic.backend.as_deref() == Some("veth")
}

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let mismatch = Mismatch::of(nic)?;
    let way = Evidence { setting: "way".into(), value: way_shown(&nic.way), from: nic.way.source_or(&nic.from) };
    let [guest, host, tap, errors] = seen![nic; guest_mtu_bytes, host_mtu_bytes, mtu_bytes, tap_errors];
    let errors = errors.filter(|_| mismatch.dropped.is_some());
    let way = Some(way).filter(|way| !way.value.is_empty());
    let looked_at = [guest, host, tap, way, errors];
    let mut finding = rule.advice(nic, &looked_at, &mismatch.cause(nic), remedy::of(nic, &mismatch));
    if mismatch.told || mismatch.dropped.is_some() {
        finding.severity = Severity::Warning;
    }
    Some(finding)
}

#[cfg(test)]
mod tests;
