//! A thin disk whose discards are not passed on grows until it is as large as it may be: what the
//! guest deletes stays allocated on the host, and a thin pool fills.

use super::{Change, Finding, Need, Rule};
use crate::facts::Facts;

pub(super) const RULE: Rule = Rule {
    id: "no-discard",
    title: "Deleted data are never given back",
    needs: Need::Settings,
    references: &["Proxmox VE, qm.adoc, \"Trim/Discard\"", "QEMU, -blockdev discard=unmap"],
    check,
    #[cfg(test)]
    fires: fixture::fires,
    #[cfg(test)]
    silent: fixture::silent,
};

fn check(rule: &Rule, facts: &Facts) -> Vec<Finding> {
    let thin = facts.disks.iter().filter(|d| d.details.thin == Some(true) && d.details.discard == Some(false));
    thin.map(|d| {
        let cause = "The disk's storage gives blocks as they are written, and the guest's discards are not passed on: \
                     what the guest deletes stays allocated, until the storage is full.";
        rule.advice(d, cause, advice())
    })
    .collect()
}

fn advice() -> Change {
    let guest = "# and in the guest, once and then weekly\nfstrim -av && systemctl enable --now fstrim.timer";
    Change {
        what: "Pass the guest's discards on, and let the guest trim.".into(),
        qemu: format!("-drive file=/dev/DISK,format=raw,if=none,id=disk0,cache=none,aio=native,discard=unmap\n{guest}"),
        libvirt: format!(
            "<driver name='qemu' type='raw' cache='none' io='native' discard='unmap'/>  <!-- in <disk> -->\n{guest}"
        ),
        proxmox: format!("qm set VMID --virtio0 STORAGE:VOLUME,discard=on\n{guest}"),
        takes: super::change::Takes::NextStart,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        settings(Details { thin: Some(true), discard: Some(false), ..Details::default() })
    }

    /// A disk whose blocks are all there has nothing to give back.
    pub fn silent() -> Facts {
        settings(Details { thin: Some(false), discard: Some(false), ..Details::default() })
    }
}
