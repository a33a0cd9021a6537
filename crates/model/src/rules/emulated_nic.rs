//! An emulated network card: each packet costs register accesses that end in QEMU. virtio-net hands
//! over whole queues. Nor can an emulated card be held back: QEMU's own queue takes what the guest
//! sends, so a bandwidth guarantee adds seconds of delay instead.

use super::change::{NicTo, own_nic};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Nic;

/// What QEMU's emulated cards begin with (`qemu-system-x86_64 -device help`, "Network devices").
const EMULATED: [&str; 9] = ["e1000", "rtl8139", "pcnet", "vmxnet3", "ne2k", "i8255", "i8259", "tulip", "usb-net"];

pub(super) const RULE: Rule = Rule {
    id: "emulated-nic",
    title: "Emulated network card",
    needs: Need::Settings,
    severity: Severity::Warning,
    references: &["Proxmox VE, qm.adoc, \"Network Device\"", "https://wiki.qemu.org/Documentation/Networking"],
    checks: &[Check::Nic(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let model = nic.model.as_deref().filter(|m| EMULATED.iter().any(|e| m.starts_with(e)))?;
    let cause = format!(
        "QEMU emulates the guest's card ({model}) register by register; virtio-net passes many packets at once. Its \
         guest cannot be throttled either: a bandwidth guarantee needs virtio-net."
    );
    let what = "Make it a virtio-net card, and keep the MAC address (Windows: install virtio-win's NetKVM first; the \
                guest may give the new card another name).";
    let to = NicTo { virtio: true, ..NicTo::default() };
    Some(rule.advice(nic, &seen![nic; model, backend], &cause, own_nic(what, nic, to)))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn fires() -> Facts {
        of_nic(Nic { model: "e1000e".into(), ..live_nic() })
    }

    /// A card of the host's, passed through.
    pub fn silent() -> Facts {
        of_nic(Nic { model: "vfio".into(), ..live_nic() })
    }
}
