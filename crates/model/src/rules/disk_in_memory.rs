//! A disk in the host's memory (tmpfs, ramfs): no flush makes anything durable, all data are lost when the host goes
//! down, and each block takes memory of the host, which tmpfs may swap out and ramfs may not.

use super::change::{AppliesAt, Change, Names, shell};
use super::live::seen;
use super::{Check, Finding, Kinds, Need, Rule, Severity};
use crate::facts::Disk;

pub(super) const RULE: Rule = Rule {
    id: "disk-in-memory",
    title: "The disk lies in the host's memory",
    needs: Need::Settings,
    severity: Severity::Severe,
    references: &[
        "Linux, Documentation/filesystems/tmpfs.rst",
        "Linux, Documentation/filesystems/ramfs-rootfs-initramfs.rst",
    ],
    checks: &[Check::Disk(live)],
    kinds: Kinds::Any,
    #[cfg(test)]
    fixture: (fixture::fires, fixture::silent),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let memory = disk.details.in_memory.as_deref()?;
    let cause = format!(
        "The disk's file lies on {memory}, which is memory of the host: whatever the guest flushes, the disk is gone when \
         the host goes down or the file system is unmounted, and until then it takes memory from all guests."
    );
    let names = Names(&disk.place);
    let (domain, vmid, slot) = (names.domain(), names.vmid(), names.slot("virtio0"));
    let source = names.source();
    let name = disk.place.source.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or("disk.raw");
    let copy = shell(&format!("/DIRECTORY/{name}"));
    // QEMU's lock makes the first step fail while the guest runs.
    let copy = format!("qemu-img info -f raw {source} > /dev/null && cp -n --preserve=mode,ownership {source} {copy}");
    let change = Change {
        what: "Move it to a file system on a disk, unless the guest may be lost whole.".into(),
        qemu: format!(
            "# guest shut down; then start it with the new file in place of {}\n{copy}",
            super::change::comment(&source)
        ),
        libvirt: format!(
            "virsh shutdown {domain}    # and wait until it is off\n{copy} && \\\n\
             virsh edit {domain}        # then the new file in its <source file='...'/>"
        ),
        proxmox: format!("qm disk move {vmid} {slot} OTHERSTORAGE"),
        takes: AppliesAt::ShutDown,
        sets: None,
    };
    Some(rule.advice(disk, &seen![disk; details.in_memory], &cause, change))
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Details, Facts};
    use crate::testing::settings;

    pub fn fires() -> Facts {
        settings(Details { in_memory: "tmpfs".into(), ..Details::default() })
    }

    /// A file on any other file system.
    pub fn silent() -> Facts {
        settings(Details { storage: "file".into(), ..Details::default() })
    }
}
