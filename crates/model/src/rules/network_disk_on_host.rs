//! A network disk attached by the host: data cross the virtual disk and then the network. With the initiator in the
//! guest they cross the virtual network card only (proposed in shafer2010, section 4). Which is faster depends on both,
//! so the advice is to measure.

use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity, change};
use crate::facts::Disk;

/// Network storage that a guest's kernel can attach.
const NETWORK: [&str; 3] = ["iscsi", "nbd", "rbd"];

pub(super) const RULE: Rule = Rule {
    id: "network-disk-on-host",
    title: "A network disk is attached by the host",
    needs: Need::Settings,
    severity: Severity::Note,
    references: &["shafer2010, section 4 (the networked disk's driver inside the guest)"],
    checks: &[Check::Disk(live)],
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let storage = disk.details.storage.as_deref().filter(|s| NETWORK.contains(s))?;
    let cause = format!(
        "The host reaches the disk by {storage}; each request goes through the virtual disk and then the network. An \
         initiator in the guest only goes through the virtual network card, but gives the guest the addresses and \
         secrets of the storage network."
    );
    let look = change::in_guest(
        "Measure both before changing it; the guest needs access to the storage network.",
        "# in the guest, for iSCSI (Debian: open-iscsi)\n\
         iscsiadm -m discovery -t sendtargets -p SERVER && iscsiadm -m node --login",
    );
    Some(rule.advice(disk, &seen![disk; details.storage], &cause, look))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        settings(Details { storage: "iscsi".into(), ..Details::default() })
    }

    /// A local disk.
    pub fn silent() -> Facts {
        settings(Details { storage: "block".into(), ..Details::default() })
    }
}
