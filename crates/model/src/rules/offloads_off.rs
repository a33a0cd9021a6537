//! Offloads turned off: without segmentation offload every packet of 1,500 bytes makes the way through
//! the hypervisor that 64 KiB could make at once, and checksums are computed for packets that never
//! leave the host.

use super::change::{NicTo, on_host, own_nic, shell};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Nic;

pub(super) const RULE: Rule = Rule {
    id: "offloads-off",
    title: "Offloads of the network card are off",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://libvirt.org/formatdomain.html#setting-nic-driver-specific-options (host, guest)",
        "Linux, Documentation/networking/segmentation-offloads.rst",
    ],
    checks: &[Check::Nic(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    if nic.offloads_off.is_empty() {
        return None;
    }
    let cause = format!(
        "Turned off: {}. Packets go through the hypervisor in small pieces instead of large ones.",
        nic.offloads_off.join(", ")
    );
    let what = "Leave the offloads on, unless the guest routes packets with a driver that mangles large ones.";
    let to = NicTo { offloads: true, ..NicTo::default() };
    let of_tap = nic.offloads_off.iter().all(|name| name.starts_with("tap"));
    let change = match (&*nic.interface, of_tap) {
        (Some(tap), true) => on_host(what, format!("ethtool -K {} tx on sg on tso on gso on", shell(tap))),
        _ => own_nic(what, nic, to),
    };
    Some(rule.advice(nic, &seen![nic; offloads_off], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn fires() -> Facts {
        of_nic(Nic { offloads_off: vec!["host_tso4".into(), "guest_tso4".into()].into(), ..live_nic() })
    }

    pub fn silent() -> Facts {
        of_nic(live_nic())
    }
}
