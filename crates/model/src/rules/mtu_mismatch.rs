//! A tap that lets larger packets in than its bridge: a bridge drops what is larger than the port that
//! it should leave by (Linux, `br_forward.c`, `is_skb_forwardable`), without a word to the sender. A tap
//! with less than its bridge is no fault: overlay networks and Proxmox's `mtu=` are set up so.

use super::change::{Names, Takes, shell};
use super::{Change, Check, Finding, Need, Rule, Severity};
use crate::facts::Nic;

pub(super) const RULE: Rule = Rule {
    id: "mtu-mismatch",
    title: "The tap allows larger packets than its bridge",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#mtu-configuration",
        "Proxmox VE, qm.adoc, \"Network Device\" (MTU; 1 takes the bridge's)",
    ],
    checks: &[Check::Nic(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let (own, bridge) = (nic.mtu_bytes?, nic.bridge_mtu_bytes?);
    if own <= bridge {
        return None;
    }
    let cause = format!(
        "The tap lets packets of {own} bytes in, and its bridge passes on {bridge}: what is larger is dropped without a \
         word, and connections hang that carry large packets."
    );
    let names = Names(&nic.place);
    let tap = shell(nic.interface.as_deref().unwrap_or("TAP"));
    let now = format!("ip link set dev {tap} mtu {bridge}");
    let change = Change {
        what: format!("Give the tap the bridge's {bridge} bytes, and the guest's interface too (in it, or as below)."),
        qemu: format!(
            "{now}\n# and one more option of the virtio-net device, for the guest to know: host_mtu={bridge}"
        ),
        libvirt: format!(
            "{now}\nvirsh edit {}    # in the <interface> with <mac address='{}'/>:\n<mtu size='{bridge}'/>",
            names.domain(),
            names.target("MAC")
        ),
        proxmox: format!(
            "{now}\n# mtu=1 in the line that `qm config {}` shows for {}: the bridge's, from the next start on",
            names.vmid(),
            names.slot("net0")
        ),
        takes: Takes::Running,
        sets: None,
    };
    Some(rule.advice(nic, &["mtu_bytes", "bridge_mtu_bytes", "bridge"], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn fires() -> Facts {
        of_nic(Nic { mtu_bytes: Some(9000), ..live_nic() })
    }

    /// An overlay network: its packets need room for one more header on the way.
    pub fn silent() -> Facts {
        of_nic(Nic { mtu_bytes: Some(1450), ..live_nic() })
    }
}
