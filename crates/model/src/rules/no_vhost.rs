//! virtio-net on a tap without vhost-net: QEMU's main loop reads and writes each packet by a system
//! call. With vhost a thread of the kernel does it.

use super::change::{NicTo, own_nic};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Nic;

pub(super) const RULE: Rule = Rule {
    id: "no-vhost",
    title: "Packets go through QEMU (no vhost-net)",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#setting-nic-driver-specific-options (driver name='vhost')",
        "QEMU, qemu(1), \"Network options\": tap, vhost=on",
    ],
    checks: &[Check::Nic(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let tap = nic.backend.as_deref().is_some_and(|b| b == "tap" || b == "macvtap");
    let virtio = nic.model.as_deref() == Some("virtio-net");
    if !(tap && virtio && nic.vhost == Some(false) && nic.vhost_here == Some(true)) {
        return None;
    }
    let cause = "QEMU's main loop copies each packet between the tap and the guest, although this host has vhost-net, \
                 which does it in the kernel.";
    let change = own_nic("Use vhost-net.", nic, NicTo { vhost: true, ..NicTo::default() });
    Some(rule.advice(nic, &seen![nic; model, backend, vhost, vhost_here], cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn fires() -> Facts {
        of_nic(Nic { vhost: Some(false).into(), ..live_nic() })
    }

    /// A host without vhost-net.
    pub fn silent() -> Facts {
        of_nic(Nic { vhost: Some(false).into(), vhost_here: Some(false).into(), ..live_nic() })
    }
}
