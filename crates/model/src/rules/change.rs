//! What to change, as text that can be pasted: QEMU's options, libvirt's XML, Proxmox's `qm`.
//!
//! Syntax: QEMU's manual, section "Block device options" (tried with QEMU 7.2); libvirt,
//! `formatdomain.html`, "Hard drives, floppy disks, CDROMs" and "IOThreads Allocation"
//! (`io='io_uring'` since 6.3.0); Proxmox, `qm(1)`, and `qm.adoc`, "Hard Disk".

use serde::{Deserialize, Serialize};

use crate::setup::{Aio, Attachment, Cache, DetectZeroes};

/// When a change takes effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
    /// When the guest was shut down and started again (a reboot from inside is not enough).
    #[default]
    NextStart,
    /// It is made while the guest is shut down.
    ShutDown,
    /// At once, while the guest runs.
    Running,
    /// In the guest or the application in it.
    InGuest,
}

/// What to change. `VMID`, `STORAGE:VOLUME`, `/dev/DISK` and the like stand for the reader's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// In words, in one sentence.
    pub what: String,
    /// Plain QEMU: options of its command line, or a command to run with the guest shut down.
    pub qemu: String,
    /// libvirt: elements of the domain's XML (`virsh edit`), or a command.
    pub libvirt: String,
    /// Proxmox VE: commands.
    pub proxmox: String,
    /// When it takes effect.
    #[serde(default)]
    pub takes: Takes,
}

impl Change {
    /// What to do, by the system that one has; one entry where it is the same for all.
    pub fn ways(&self) -> Vec<(&'static str, &str)> {
        if self.qemu == self.libvirt && self.qemu == self.proxmox {
            return vec![("any", &self.qemu)];
        }
        vec![("QEMU", &self.qemu), ("libvirt", &self.libvirt), ("Proxmox", &self.proxmox)]
    }
}

/// What a finding recommends for a disk whose own settings are not known.
pub fn recommended() -> Attachment {
    Attachment::new("virtio-blk", Cache::None, Aio::Native).iothread(true)
}

/// A disk as `virtio-blk` with these settings.
pub fn virtio_disk(what: impl Into<String>, a: &Attachment) -> Change {
    Change {
        what: what.into(),
        qemu: qemu(a),
        libvirt: libvirt(a),
        proxmox: format!("{}\n{}", DETACH, proxmox(a)),
        takes: Takes::NextStart,
    }
}

/// The same disk with other settings, its driver unchanged.
pub fn settings(what: impl Into<String>, a: &Attachment) -> Change {
    Change { what: what.into(), qemu: qemu(a), libvirt: libvirt(a), proxmox: proxmox(a), takes: Takes::NextStart }
}

/// A file without holes, or a device, in place of a sparse file.
pub fn full_allocation(what: impl Into<String>) -> Change {
    Change {
        what: what.into(),
        qemu: "# guest shut down; writes every block, fallocate alone would leave extents unwritten\n\
               qemu-img convert -p -f raw -O raw -o preallocation=full sparse.raw full.raw\n\
               mv full.raw sparse.raw"
            .into(),
        libvirt: "virsh shutdown DOMAIN    # and wait until it is off\n\
                  qemu-img convert -p -f raw -O raw -o preallocation=full sparse.raw full.raw\n\
                  virsh edit DOMAIN        # then <source file='/PATH/full.raw'/>"
            .into(),
        proxmox: "# from now on, for a directory or NFS storage\n\
                  pvesm set STORAGE --preallocation full\n\
                  # an existing disk: write it anew on another storage (thick LVM has no holes)\n\
                  qm disk move VMID virtio0 OTHERSTORAGE --delete 1"
            .into(),
        takes: Takes::ShutDown,
    }
}

/// No setting of the hypervisor helps: the same advice for all three, as commands in the guest.
pub fn in_guest(what: impl Into<String>, commands: &str) -> Change {
    Change {
        what: what.into(),
        qemu: commands.into(),
        libvirt: commands.into(),
        proxmox: commands.into(),
        takes: Takes::InGuest,
    }
}

/// Proxmox: takes the disk off the emulated controller; it is kept as `unused0`.
const DETACH: &str = "# guest shut down; the disk becomes unused0 and is attached again\nqm set VMID --delete scsi0";

/// Where a disk hangs: QEMU's devices, libvirt's bus and name, Proxmox's slot. The emulated NVMe
/// device has no place in libvirt and Proxmox.
struct Place {
    qemu: String,
    elsewhere: Option<(&'static str, &'static str, &'static str)>,
}

fn place(a: &Attachment) -> Place {
    let iothread = if a.iothread { ",iothread=iothread0" } else { "" };
    let queues = a.options.queues.map(|n| format!(",num-queues={n}")).unwrap_or_default();
    let under = |controller: &str, more: &str, disk: &str| {
        format!("-device {controller},id=hba0{more} \\\n-device {disk},bus=hba0.0,drive=disk0")
    };
    let (qemu, elsewhere) = match a.driver.as_str() {
        "virtio-scsi" => {
            (under("virtio-scsi-pci", &format!("{iothread}{queues}"), "scsi-hd"), Some(("scsi", "sda", "scsi0")))
        }
        "lsi53c895a" => (under("lsi53c895a", "", "scsi-hd"), Some(("scsi", "sda", "scsi0"))),
        "ahci" => (under("ahci", "", "ide-hd"), Some(("sata", "sda", "sata0"))),
        "nvme" => ("-device nvme,serial=disk0,drive=disk0".to_owned(), None),
        _ => {
            let qemu = format!("-device virtio-blk-pci,drive=disk0{iothread}{queues}");
            (qemu, Some(("virtio", "vda", "virtio0")))
        }
    };
    Place { qemu, elsewhere }
}

/// Whether libvirt and Proxmox know such a disk.
pub fn known_everywhere(a: &Attachment) -> bool {
    place(a).elsewhere.is_some()
}

fn qemu(a: &Attachment) -> String {
    let object = if a.iothread { "-object iothread,id=iothread0 \\\n" } else { "" };
    let mut more = String::new();
    if a.options.discard {
        more.push_str(",discard=unmap");
    }
    if a.options.detect_zeroes != DetectZeroes::Off {
        more.push_str(&format!(",detect-zeroes={}", a.options.detect_zeroes));
    }
    format!(
        "{object}-drive file=/dev/DISK,format=raw,if=none,id=disk0,cache={},aio={}{more} \\\n{}",
        a.cache,
        a.aio,
        place(a).qemu
    )
}

/// libvirt's XML of such a disk, with `/dev/DISK` for its source.
pub fn libvirt(a: &Attachment) -> String {
    let Some((bus, name, _)) = place(a).elsewhere else {
        return format!("<!-- libvirt knows no emulated {} disk: use virtio -->", a.driver);
    };
    let (threads, mut more) = if a.iothread {
        ("<iothreads>1</iothreads>  <!-- directly below <domain> -->\n", " iothread='1'".to_owned())
    } else {
        ("", String::new())
    };
    if let Some(n) = a.options.queues.filter(|_| a.driver == "virtio-blk") {
        more.push_str(&format!(" queues='{n}'"));
    }
    if a.options.discard {
        more.push_str(" discard='unmap'");
    }
    if a.options.detect_zeroes != DetectZeroes::Off {
        more.push_str(&format!(" detect_zeroes='{}'", a.options.detect_zeroes));
    }
    format!(
        "{threads}<disk type='block' device='disk'>\n  \
           <driver name='qemu' type='raw' cache='{}' io='{}'{more}/>\n  \
           <source dev='/dev/DISK'/>\n  \
           <target dev='{name}' bus='{bus}'/>\n\
         </disk>",
        a.cache, a.aio
    )
}

/// Proxmox's command for such a disk, with `VMID` and `STORAGE:VOLUME` for the reader's own.
pub fn proxmox(a: &Attachment) -> String {
    let Some((_, _, slot)) = place(a).elsewhere else {
        return format!("# Proxmox VE knows no emulated {} disk: use virtio", a.driver);
    };
    let mut more = String::new();
    if a.iothread {
        more.push_str(",iothread=1");
    }
    if let Some(n) = a.options.queues.filter(|_| a.driver == "virtio-scsi") {
        more.push_str(&format!(",queues={n}"));
    }
    if a.options.discard {
        more.push_str(",discard=on");
    }
    if a.options.detect_zeroes != DetectZeroes::Off {
        more.push_str(",detect_zeroes=1");
    }
    let hardware = if a.driver == "virtio-scsi" { "qm set VMID --scsihw virtio-scsi-single\n" } else { "" };
    format!(
        "{hardware}qm set VMID --{slot} STORAGE:VOLUME,cache={},aio={}{more} --boot order={slot}\n\
         # in force after the guest was stopped and started",
        a.cache, a.aio
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_disk_with_an_iothread() {
        let change = virtio_disk("Attach it by virtio-blk.", &recommended());
        assert_eq!(
            change.qemu,
            "-object iothread,id=iothread0 \\\n-drive file=/dev/DISK,format=raw,if=none,id=disk0,cache=none,aio=native \
             \\\n-device virtio-blk-pci,drive=disk0,iothread=iothread0"
        );
        assert!(change.libvirt.contains("<driver name='qemu' type='raw' cache='none' io='native' iothread='1'/>"));
        assert!(change.libvirt.contains("<target dev='vda' bus='virtio'/>"));
        assert!(change.proxmox.contains("qm set VMID --delete scsi0\n"));
        assert!(
            change.proxmox.contains("--virtio0 STORAGE:VOLUME,cache=none,aio=native,iothread=1 --boot order=virtio0")
        );
    }

    #[test]
    fn other_settings_leave_the_driver_alone() {
        let lsi = Attachment::new("lsi53c895a", Cache::Writeback, Aio::Threads);
        let change = settings("x", &lsi);
        assert!(change.qemu.ends_with("-device lsi53c895a,id=hba0 \\\n-device scsi-hd,bus=hba0.0,drive=disk0"));
        assert!(
            change.libvirt.contains("bus='scsi'")
                && change.proxmox.contains("--scsi0 ")
                && !change.proxmox.contains("delete")
        );
    }
}
