//! Discards of the guest that a layer on the host does not pass on. QEMU takes a discard that its back end cannot do
//! for done (block/io.c, `bdrv_co_pdiscard`: ENOTSUP is no error to the guest), so the guest's fstrim says that it
//! trimmed. LUKS without `allow_discards`, RAID and some device-mapper targets take none, and NFS none before version
//! 4.2.

use super::change::{self, Change, shell};
use super::live::{Live, seen};
use super::{Check, Evidence, Finding, Need, Rule, Severity};
use crate::facts::{DiscardEnds, Disk};

pub(super) const RULE: Rule = Rule {
    id: "discard-goes-nowhere",
    title: "The guest's discards reach nothing",
    needs: Need::Settings,
    severity: Severity::Note,
    references: &[
        "Linux, Documentation/ABI/stable/sysfs-block, discard_max_bytes",
        "cryptsetup-refresh(8), --allow-discards",
        "RFC 7862, section 15.4 (DEALLOCATE)",
    ],
    checks: &[Check::Disk(live)],
    #[cfg(test)]
    fixture: (|| fixture::discard(true), || fixture::discard(false)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let fact = &disk.details.below.discard_ends;
    let ends = fact.as_ref().filter(|_| disk.details.discard == Some(true))?;
    let at = if ends.kind == "NFS" { ends.device.clone() } else { format!("{} ({})", ends.device, ends.kind) };
    let cause = format!(
        "The guest's discards are passed on and end at {at}: nothing below learns what is free, and the guest is told \
         that it worked."
    );
    let found = Evidence { setting: "discards end at".to_owned(), value: at, from: fact.source_or(disk.from()) };
    let [discard] = seen![disk; details.discard];
    let mut finding = rule.advice(disk, &[discard, Some(found)], &cause, pass(ends));
    if disk.details.thin == Some(true) {
        finding.severity = Severity::Advice;
    }
    Some(finding)
}

fn pass(ends: &DiscardEnds) -> Change {
    let (what, commands) = match (&*ends.kind, &ends.mapper) {
        ("NFS", _) => (
            "Mount it by NFS 4.2, where the server has it, or trim there.",
            "nfsstat -m    # vers= of each mount; vers=4.2 in /etc/fstab or of the storage; then umount and mount, guests off"
                .to_owned(),
        ),
        ("LUKS", Some(mapper)) => (
            "Let LUKS pass them, where it may be seen which blocks are free.",
            format!(
                "cryptsetup refresh --allow-discards {}\n\
                 # then each LVM volume on it: lvchange --refresh VG/LV\n\
                 # and discard in its line of /etc/crypttab, for the next start",
                shell(mapper)
            ),
        ),
        _ => (
            "Look which layer takes none, and let it pass them where it can.",
            format!("lsblk -D -s {}    # the first line with 0B ends them", shell(&format!("/dev/{}", ends.device))),
        ),
    };
    change::on_host(what, commands)
}

#[cfg(test)]
pub(super) mod fixture {
    use crate::facts::{Below, Details, DiscardEnds, Facts};
    use crate::testing::settings;

    /// A volume on LUKS that takes no discards.
    pub fn luks() -> Below {
        let ends = DiscardEnds { device: "dm-3".into(), kind: "LUKS".into(), mapper: Some("web 1".into()) };
        Below { discard_ends: Some(ends).into(), ..Below::default() }
    }

    pub fn discard(on: bool) -> Facts {
        settings(Details { discard: Some(on).into(), below: luks(), ..Details::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layer_that_ends_them_is_named_with_its_command() {
        let mut facts = fixture::discard(true);
        let change =
            |facts: &crate::facts::Facts| RULE.check(facts).into_iter().map(|f| (f.severity, f.change.qemu)).next();
        assert!(change(&facts).is_some_and(|(severity, qemu)| {
            severity == Severity::Note && qemu.starts_with("cryptsetup refresh --allow-discards 'web 1'\n")
        }));
        facts.disks[0].details.thin = Some(true).into();
        let ends = DiscardEnds { device: "NFS 3".into(), kind: "NFS".into(), mapper: None };
        facts.disks[0].details.below.discard_ends = Some(ends).into();
        assert!(
            change(&facts).is_some_and(|(severity, qemu)| severity == Severity::Advice && qemu.contains("nfsstat"))
        );
    }
}
