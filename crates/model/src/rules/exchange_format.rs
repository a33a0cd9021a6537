//! An image in a format that is there to exchange images with others (QEMU, "Disk Images", "Disk image file formats":
//! for compatibility). In a growing VHD each new block of 2 MiB writes its bitmap, the table's entry and a new footer,
//! with a flush each (block/vpc.c, `alloc_block`, `rewrite_footer`); VHDX writes its tables through a log
//! (block/vhdx-log.c).

use super::change::{AppliesAt, Change, Names, shell, xml};
use super::live::seen;
use super::{Check, Finding, Need, Rule, Severity};
use crate::facts::Disk;

pub(super) const RULE: Rule = Rule {
    id: "exchange-format",
    title: "Image in a format for exchange",
    needs: Need::Settings,
    severity: Severity::Advice,
    references: &["QEMU, docs/system/images.rst", "QEMU, block/vpc.c, alloc_block; block/vhdx-log.c"],
    checks: &[Check::Disk(live)],
    #[cfg(test)]
    fixture: (|| fixture::vhd(true), || fixture::vhd(false)),
    ..Rule::PLAIN
};

fn live(rule: &Rule, disk: &Disk) -> Option<Finding> {
    let format = disk.details.format.as_deref()?;
    let cause = match format {
        // A fixed VHD is a raw image with a footer.
        "vpc" if *disk.details.below.grows == Some(true) => {
            "The image is a growing VHD: each new 2 MiB of the disk costs a bitmap, a table entry and a new footer, \
             with a flush each, while the guest's write waits."
                .to_owned()
        }
        "vhdx" => "The image is a VHDX: what it allocates goes through a log in the image, with flushes, while the \
                   guest's write waits."
            .to_owned(),
        "vdi" | "vmdk" | "qed" | "parallels" => format!(
            "QEMU has the format {format} to exchange images with others: it has neither the caches nor the threads of \
             qcow2, and no one tunes it."
        ),
        _ => return None,
    };
    let seen = seen![disk; details.format, details.below.grows];
    let mut finding = rule.advice(disk, &seen, &cause, converted(disk, format));
    if !matches!(format, "vpc" | "vhdx") {
        finding.severity = Severity::Note;
    }
    Some(finding)
}

fn converted(disk: &Disk, format: &str) -> Change {
    let names = Names(&disk.place);
    let (domain, vmid, slot) = (names.domain(), names.vmid(), names.slot("virtio0"));
    let file = disk.place.source.as_deref().unwrap_or("/PATH/image");
    let anew = format!("{file}.qcow2");
    let (old, new) = (shell(file), shell(&anew));
    let convert = format!(
        "test ! -e {new} && qemu-img convert -p -f {} -O qcow2 -o preallocation=metadata {old} {new}",
        shell(format)
    );
    Change {
        what: "Convert the image to qcow2 (or raw); the old one stays until you delete it.".to_owned(),
        qemu: format!(
            "# guest shut down\n{convert} && \\\nchown --reference={old} {new} && chmod --reference={old} {new}\n\
             # in its own -drive or -blockdev: this file, and qcow2 in place of {}",
            super::change::comment(format)
        ),
        libvirt: format!(
            "virsh shutdown {domain}    # and wait until it is off\n{convert} && \\\nvirsh edit {domain}\n\
             # in the <disk> with <target dev='{}' .../>: type='qcow2' in its <driver .../>, and in place of its own \
             <source .../>:\n<source file='{}'/>",
            names.target("vda"),
            xml(&anew)
        ),
        proxmox: format!("qm disk move {vmid} {slot} STORAGE --format qcow2"),
        takes: AppliesAt::ShutDown,
        sets: None,
    }
}

#[cfg(test)]
mod fixture {
    use crate::facts::{Below, Details, Facts};
    use crate::testing::settings;

    pub fn vhd(grows: bool) -> Facts {
        let below = Below { grows: Some(grows).into(), ..Below::default() };
        settings(Details { format: "vpc".into(), below, ..Details::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Below, Details};
    use crate::testing::settings;

    #[test]
    fn formats_by_what_they_cost() {
        let of = |format: &str| {
            let below = Below { grows: Some(true).into(), ..Below::default() };
            let found = RULE.check(&settings(Details { format: format.into(), below, ..Details::default() }));
            found.into_iter().map(|f| f.severity).next()
        };
        assert_eq!(
            (of("vpc"), of("vhdx"), of("vmdk")),
            (Some(Severity::Advice), Some(Severity::Advice), Some(Severity::Note))
        );
        assert_eq!((of("raw"), of("qcow2")), (None, None));
    }
}
