//! A network in user space: slirp (`user`) is a TCP/IP stack in QEMU's main loop; passt has its own process. Every
//! packet is copied and every connection terminated. A tap on a bridge passes packets unchanged.

use super::change::{NicChange, own_nic};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Nic;

/// Back ends in user space.
const USER: [&str; 2] = ["user", "passt"];

pub(super) const RULE: Rule = Rule {
    id: "user-network",
    title: "User-mode networking",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://wiki.qemu.org/Documentation/Networking (\"User Networking (SLIRP)\": a lot of overhead)",
        "https://libvirt.org/formatdomain.html#userspace-slirp-or-passt-connection",
    ],
    checks: &[Check::Nic(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let backend = nic.backend.as_deref().filter(|b| USER.contains(b))?;
    let who = if backend == "user" { "QEMU's main loop" } else { "a separate process" };
    let cause = format!(
        "The card is connected in user space ({backend}): {who} terminates each connection and opens a new one on the \
         host. A tap on a bridge forwards packets, with vhost without QEMU."
    );
    let what = "Connect it to a bridge through a tap with vhost, if the guest may be on the host's network (this \
                needs root once, and gives the guest its own address).";
    let to = NicChange { virtio: true, tap: true, vhost: true, ..NicChange::default() };
    Some(rule.advice(nic, &seen![nic; backend], &cause, own_nic(what, nic, to)))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn fires() -> Facts {
        of_nic(Nic { backend: "user".into(), interface: None.into(), vhost: None.into(), ..live_nic() })
    }

    pub fn silent() -> Facts {
        of_nic(Nic { backend: "macvtap".into(), ..live_nic() })
    }
}
