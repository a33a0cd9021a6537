//! One pair of queues of a virtio-net card is served by one vCPU and one vhost thread, however many
//! vCPUs the guest has. Linux gained from a pair a vCPU; Windows lost in the same report.

use super::change::{NicTo, own_nic};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Nic;

/// More pairs than this gain little (each has its own vhost thread; libvirt's and Proxmox's limit is
/// higher).
const MOST: u32 = 8;

pub(super) const RULE: Rule = Rule {
    id: "nic-queues",
    title: "One network queue for several vCPUs",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://github.com/virtio-win/kvm-guest-drivers-windows/issues/237 (Linux 15.3 to 25.2 Gbit/s, Windows 4.3 to \
         2.3)",
        "Proxmox VE, qm.adoc, \"Network Device\", Multiqueue",
    ],
    checks: &[Check::Nic(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let vcpus = nic.vcpus.filter(|n| *n > 1 && nic.queues == Some(1))?;
    // Without vhost one loop serves all queues; Windows became slower.
    let gains = nic.vhost == Some(true) && nic.windows != Some(true) && nic.model.as_deref() == Some("virtio-net");
    if !gains {
        return None;
    }
    let cause = format!(
        "One queue pair serves {vcpus} vCPUs: all packets go through one vCPU and one host thread. In a report \
         Linux went from 15.3 to 25.2 Gbit/s with more."
    );
    let queues = vcpus.min(MOST);
    let doubt =
        if nic.windows.is_none() { " Not for Windows, which became slower there (4.3 to 2.3 Gbit/s)." } else { "" };
    let what = format!("Give it {queues} queue pairs, if the network is the guest's bottleneck.{doubt}");
    let change = own_nic(what, nic, NicTo { queues: Some(queues), ..NicTo::default() });
    Some(rule.advice(nic, &seen![nic; queues, vcpus, vhost], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn fires() -> Facts {
        of_nic(Nic { queues: Some(1).into(), ..live_nic() })
    }

    /// Windows.
    pub fn silent() -> Facts {
        of_nic(Nic { queues: Some(1).into(), windows: Some(true).into(), ..live_nic() })
    }
}
