//! What to change, as text that can be pasted: QEMU's options, libvirt's XML, Proxmox's `qm`.
//!
//! Syntax: QEMU's manual, section "Block device options" (tried with QEMU 7.2); libvirt,
//! `formatdomain.html`, "Hard drives, floppy disks, CDROMs" and "IOThreads Allocation"
//! (`io='io_uring'` since 6.3.0); Proxmox, `qm(1)`, and `qm.adoc`, "Hard Disk".

use serde::{Deserialize, Serialize};

use crate::setup::{Aio, Attachment, Cache};

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
}

/// What a finding recommends for a disk whose own settings are not known.
pub fn recommended() -> Attachment {
    Attachment { driver: "virtio-blk".into(), cache: Cache::None, aio: Aio::Native, iothread: true }
}

/// A disk as `virtio-blk` with these settings.
pub fn virtio_disk(what: impl Into<String>, a: &Attachment) -> Change {
    Change { what: what.into(), qemu: qemu(a), libvirt: libvirt(a), proxmox: format!("{}\n{}", DETACH, proxmox(a)) }
}

/// The same disk with other settings, its driver unchanged.
pub fn settings(what: impl Into<String>, a: &Attachment) -> Change {
    Change { what: what.into(), qemu: qemu(a), libvirt: libvirt(a), proxmox: proxmox(a) }
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
    }
}

/// No setting of the hypervisor helps: the same advice for all three, as commands in the guest.
pub fn in_guest(what: impl Into<String>, commands: &str) -> Change {
    Change { what: what.into(), qemu: commands.into(), libvirt: commands.into(), proxmox: commands.into() }
}

/// Proxmox: takes the disk off the emulated controller; it is kept as `unused0`.
const DETACH: &str = "# guest shut down; the disk becomes unused0 and is attached again\nqm set VMID --delete scsi0";

fn qemu(a: &Attachment) -> String {
    let (object, property) =
        if a.iothread { ("-object iothread,id=iothread0 \\\n", ",iothread=iothread0") } else { ("", "") };
    let device = if a.driver == "virtio-blk" { "virtio-blk-pci" } else { a.driver.as_str() };
    format!(
        "{object}-drive file=/dev/DISK,format=raw,if=none,id=disk0,cache={},aio={} \\\n-device {device},drive=disk0{property}",
        a.cache, a.aio
    )
}

fn libvirt(a: &Attachment) -> String {
    let (threads, attribute) = if a.iothread {
        ("<iothreads>1</iothreads>  <!-- directly below <domain> -->\n", " iothread='1'")
    } else {
        ("", "")
    };
    format!(
        "{threads}<disk type='block' device='disk'>\n  \
           <driver name='qemu' type='raw' cache='{}' io='{}'{attribute}/>\n  \
           <source dev='/dev/DISK'/>\n  \
           <target dev='vda' bus='virtio'/>\n\
         </disk>",
        a.cache, a.aio
    )
}

fn proxmox(a: &Attachment) -> String {
    let iothread = if a.iothread { ",iothread=1" } else { "" };
    format!(
        "qm set VMID --virtio0 STORAGE:VOLUME,cache={},aio={}{iothread} --boot order=virtio0\n\
         # in force after the guest was stopped and started",
        a.cache, a.aio
    )
}
