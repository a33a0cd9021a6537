//! Several queue pairs of a virtio-net card under FreeBSD, as in OPNsense and pfSense: forwarding stalled until the
//! card had one pair. Configurations seldom name FreeBSD: Proxmox VE's `ostype: other` is what such guests have, or
//! the Linux that its form proposes; often the guest's own name says it.

use super::change::{NicChange, own_nic};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Nic;

pub(super) const RULE: Rule = Rule {
    id: "bsd-queues",
    title: "Several network queues under FreeBSD",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &[
        "https://lp.zeroservices.eu, \"Virtio Multiqueue Issues on Proxmox 9 with OPNsense\"",
        "https://hpcworks.wordpress.com (pfSense panicked with several queues)",
        "https://github.com/freebsd/freebsd-src/pull/1679 (with ALTQ several queues are not used)",
    ],
    checks: &[Check::Nic(live)],
    #[cfg(test)]
    fixture: (|| fixture::queues(4), || fixture::queues(1)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, nic: &Nic) -> Option<Finding> {
    let queues = nic.queues.filter(|n| *n > 1 && nic.model.as_deref() == Some("virtio-net"))?;
    let bsd = match nic.os.as_deref()? {
        "bsd" => true,
        "other" => false,
        _ => return None,
    };
    let system = if bsd {
        "The guest runs a BSD (by its configuration or a name)"
    } else {
        "The configuration names neither Linux nor Windows (ostype other)"
    };
    let cause = format!(
        "{system}, and the card has {queues} queue pairs: FreeBSD's driver (OPNsense, pfSense) stalled or panicked \
         with several while it forwarded packets."
    );
    let what = "Give it one queue pair, if the guest runs FreeBSD or what is made of it.";
    let change = own_nic(what, nic, NicChange { queues: Some(1), ..NicChange::default() });
    let mut finding = rule.advice(nic, &seen![nic; queues, os], &cause, change);
    if !bsd {
        finding.severity = Severity::Note;
    }
    Some(finding)
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Facts, Nic};
    use crate::testing::{live_nic, of_nic};

    pub fn queues(n: u32) -> Facts {
        of_nic(Nic { queues: Some(n).into(), os: "other".into(), ..live_nic() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::Place;
    use crate::rules::findings;
    use crate::testing::{live_nic, of_nic};

    #[test]
    fn a_bsd_is_advised_and_an_unnamed_system_noted() {
        let of = |os: Option<&str>, queues: u32| {
            let os = os.map(str::to_owned).into();
            let found = findings(&of_nic(Nic { queues: Some(queues).into(), os, ..live_nic() }));
            found.into_iter().map(|f| (f.rule, f.severity)).collect::<Vec<_>>()
        };
        let told = |severity| vec![("bsd-queues".to_owned(), severity)];
        assert_eq!((of(Some("bsd"), 4), of(Some("other"), 2)), (told(Severity::Advice), told(Severity::Note)));
        // One queue for four vCPUs is right there.
        assert_eq!((of(Some("bsd"), 1), of(Some("other"), 1)), (vec![], vec![]));
        assert_eq!((of(Some("linux"), 4), of(Some("windows"), 4), of(None, 4)), (vec![], vec![], vec![]));
    }

    #[test]
    fn the_change_is_one_queue_in_each_way() {
        let place = Place { vmid: Some("203".into()), slot: Some("net0".into()), ..Place::default() };
        let nic = Nic { os: "other".into(), place, ..live_nic() };
        let change = live(&RULE, &nic).unwrap().change;
        assert!(change.qemu.contains("\nqueues=1\n") && change.qemu.ends_with("\nmq=off"), "{}", change.qemu);
        assert!(change.libvirt.ends_with("\nqueues='1'"), "{}", change.libvirt);
        let less = "s/,queues=[^,]*//g;";
        assert!(change.proxmox.contains(less) && change.proxmox.contains("--net0 \"$card\""), "{}", change.proxmox);
    }
}
