//! Changes as text to paste: QEMU's options, libvirt's XML, Proxmox's `qm`.
//!
//! Syntax: QEMU's manual, section "Block device options" (tried with QEMU 7.2); libvirt,
//! `formatdomain.html`, "Hard drives, floppy disks, CDROMs" and "IOThreads Allocation"
//! (`io='io_uring'` since 6.3.0); Proxmox, `qm(1)`, and `qm.adoc`, "Hard Disk".

mod disk;
mod fields;
mod instance;
mod libvirt;
mod names;
mod nic;
mod qemu;
mod qmp;
mod slot;
mod to;
mod together;
mod unlimited;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use disk::{cache_mode, engine, own_disk, thrown_away, uring_or_threads};
pub use fields::{Above, InFields, in_fields};
pub use names::{Names, comment, known_everywhere, shell, xml};
pub use nic::{enter, new_card, own_nic};
pub use qmp::qmp;
pub use slot::slot_without;
pub(super) use slot::{chained, read_slot};
pub use to::{DeviceChange, DiskChange, NicChange};
pub use together::{Together, together};
pub use unlimited::{
    set_anew, unlimited_by_guard, unlimited_by_hypervisor, unlimited_by_libvirt, unlimited_by_ovs,
    unlimited_by_proxmox, unlimited_by_tc,
};

use crate::cell::{Aio, Attachment, Cache};
use crate::facts::Place;

/// When a change takes effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Takes")]
pub enum AppliesAt {
    /// After the guest was shut down and started again (a reboot from inside is not enough).
    #[default]
    NextStart,
    /// It is made while the guest is shut down.
    ShutDown,
    /// At once, while the guest runs.
    Running,
    /// In the guest or the application in it.
    InGuest,
}

/// A change. `VMID`, `STORAGE:VOLUME`, `/dev/DISK`, `FORMAT` and the like are placeholders for the reader's own; tools
/// refuse those that are left in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Description in one sentence.
    pub what: String,
    /// QEMU: options of its command line, or a command to run with the guest shut down.
    pub qemu: String,
    /// libvirt: elements of the domain's XML (`virsh edit`), or a command.
    pub libvirt: String,
    /// Proxmox VE: commands.
    pub proxmox: String,
    /// When it takes effect.
    #[serde(default)]
    pub takes: AppliesAt,
    /// What it sets of a guest's own device, if nothing else: [`together`] combines these.
    #[serde(skip)]
    pub sets: Option<DeviceChange>,
}

/// A tool that changes a guest's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigTool {
    /// Options of its command line.
    Qemu,
    /// `virsh`.
    Libvirt,
    /// `qm`.
    Proxmox,
    /// `incus`.
    Incus,
    /// `lxc`, the client of LXD.
    Lxd,
}

impl ConfigTool {
    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            ConfigTool::Qemu => "QEMU",
            ConfigTool::Libvirt => "libvirt",
            ConfigTool::Proxmox => "Proxmox",
            ConfigTool::Incus => "Incus",
            ConfigTool::Lxd => "LXD",
        }
    }
}

impl Change {
    /// The same without commands that name a file by this descriptor's path, which may mean another file later.
    #[must_use]
    pub(super) fn without(mut self, descriptor: &str) -> Self {
        for how in [&mut self.qemu, &mut self.libvirt, &mut self.proxmox] {
            if how.contains(descriptor) {
                UNNAMED.clone_into(how);
            }
        }
        self
    }

    /// Texts by tool; one entry where all are the same. Those of Incus and LXD are made with the guest ([`in_fields`]).
    pub fn ways(&self) -> Vec<(&'static str, &str)> {
        if self.qemu == self.libvirt && self.qemu == self.proxmox {
            return vec![("any", &self.qemu)];
        }
        let texts = [
            (ConfigTool::Qemu, &self.qemu),
            (ConfigTool::Libvirt, &self.libvirt),
            (ConfigTool::Proxmox, &self.proxmox),
        ];
        texts.map(|(tool, text)| (tool.name(), text.as_str())).into()
    }
}

/// Recommended attachment of a disk whose settings are not known.
pub fn recommended() -> Attachment {
    Attachment::new("virtio-blk", Cache::None, Aio::Native).iothread(true)
}

/// A disk as `virtio-blk` with these settings.
pub fn virtio_disk(what: impl Into<String>, a: &Attachment) -> Change {
    Change { proxmox: format!("{}\n{}", DETACH, proxmox(a)), ..settings(what, a) }
}

/// The same disk with other settings and the same driver.
pub fn settings(what: impl Into<String>, a: &Attachment) -> Change {
    Change {
        what: what.into(),
        qemu: qemu::whole(a),
        libvirt: libvirt(a),
        proxmox: proxmox(a),
        takes: AppliesAt::NextStart,
        sets: None,
    }
}

/// libvirt's XML of such a disk, with placeholders `KIND`, `FORMAT` and `SOURCE`, which libvirt refuses.
pub fn libvirt(a: &Attachment) -> String {
    libvirt::element(a)
}

/// Proxmox's command for such a disk, with placeholders `VMID` and `STORAGE:VOLUME`.
pub fn proxmox(a: &Attachment) -> String {
    slot::command(a)
}

/// A fully allocated file, or a device, in place of a sparse file. It makes a copy and keeps the old file.
pub fn full_allocation(what: impl Into<String>, place: &Place, format: Option<&str>) -> Change {
    let names = Names(place);
    let (domain, vmid, slot) = (names.domain(), names.vmid(), names.slot("virtio0"));
    let format = shell(format.unwrap_or("FORMAT"));
    let file = place.source.as_deref().unwrap_or("/PATH/sparse.raw");
    let (old, full, backup) = (shell(file), shell(&format!("{file}.full")), shell(&format!("{file}.old")));
    // fallocate alone would leave unwritten extents.
    let convert = format!("qemu-img convert -p -f {format} -O {format} -o preallocation=full {old} {full}");
    Change {
        what: what.into(),
        qemu: format!(
            "# guest shut down; writes every block, so it needs the disk's whole size once more; stops at the first\n\
             # step that fails; the old file stays as .old (internal snapshots of a qcow2 image remain only there)\n\
             {convert} && \\\n\
             chown --reference={old} {full} && chmod --reference={old} {full} && \\\n\
             mv -n {old} {backup} && mv -n {full} {old}"
        ),
        libvirt: format!(
            "virsh shutdown {domain}    # and wait until it is off\n\
             {convert} && \\\n\
             virsh edit {domain}\n\
             # in the <disk> with <target dev='{}' .../>, in place of its own <source .../>:\n\
             <source file='{}'/>",
            names.target("vda"),
            xml(&format!("{file}.full"))
        ),
        proxmox: format!(
            "# rewritten on another storage; the first line makes a directory or NFS allocate whole files (thick LVM,\n\
             # which has no holes, does not know this option: leave the line out)\n\
             pvesm set OTHERSTORAGE --preallocation full && \\\n\
             qm disk move {vmid} {slot} OTHERSTORAGE"
        ),
        takes: AppliesAt::ShutDown,
        sets: None,
    }
}

/// An image written anew beside itself: without copy on write on btrfs and bcachefs, without shared blocks elsewhere.
/// It makes a copy and keeps the old file.
pub fn without_cow(what: impl Into<String>, place: &Place, filesystem: &str) -> Change {
    let names = Names(place);
    let file = place.source.as_deref().unwrap_or("/PATH/image");
    let (old, new, backup) = (shell(file), shell(&format!("{file}.nocow")), shell(&format!("{file}.old")));
    // A file that has data takes neither.
    let mark = match filesystem {
        "btrfs" => format!("touch {new} && chattr +C {new} && lsattr {new} | cut -d' ' -f1 | grep C && \\\n"),
        "bcachefs" => format!("touch {new} && setfattr -n bcachefs.nocow -v 1 {new} && \\\n"),
        _ => String::new(),
    };
    let copy = format!(
        "qemu-img info -f raw {old} > /dev/null && \\\n\
         test ! -e {new} && {mark}cp --reflink=never --sparse=auto {old} {new} && sync {new} && \\\n\
         chown --reference={old} {new} && chmod --reference={old} {new} && \\\n\
         mv -n {old} {backup} && mv -n {new} {old}"
    );
    let note = "# needs the space of the disk once more; stops at the first step that fails, the first one while the guest\n\
                # runs (QEMU locks its images); the old file stays as .old";
    let storage = match filesystem {
        "btrfs" => "\n# a storage of type btrfs, for images made from now on\npvesm set STORAGE --nocow 1",
        _ => "",
    };
    Change {
        what: what.into(),
        qemu: format!("# guest shut down\n{note}\n{copy}"),
        libvirt: format!("{note}\nvirsh shutdown {}    # and wait until it is off\n{copy}", names.domain()),
        proxmox: format!("{note}\nqm shutdown {} && \\\n{copy}{storage}", names.vmid()),
        takes: AppliesAt::ShutDown,
        sets: None,
    }
}

/// Commands in the guest, for all hypervisors, where no setting of theirs helps.
pub fn in_guest(what: impl Into<String>, commands: &str) -> Change {
    Change {
        what: what.into(),
        qemu: commands.into(),
        libvirt: commands.into(),
        proxmox: commands.into(),
        takes: AppliesAt::InGuest,
        sets: None,
    }
}

/// Commands on the host, for all hypervisors, effective at once.
pub fn on_host(what: impl Into<String>, commands: impl Into<String>) -> Change {
    let commands = commands.into();
    Change {
        what: what.into(),
        qemu: commands.clone(),
        libvirt: commands.clone(),
        proxmox: commands,
        takes: AppliesAt::Running,
        sets: None,
    }
}

/// In place of commands that would name a descriptor.
const UNNAMED: &str = "# this disk was passed to the guest as a descriptor, and its file is unknown: no command can\n\
                       # name it; the program that starts the guest knows the file";

/// Proxmox: detaches the disk from the emulated controller; it is kept as `unused0`.
const DETACH: &str = "# guest shut down; the disk becomes unused0 and is attached again\nqm set VMID --delete scsi0";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtio_disk_with_an_iothread() {
        let change = virtio_disk("Attach it by virtio-blk.", &recommended());
        assert_eq!(
            change.qemu,
            "-object iothread,id=iothread0 \\\n-drive file=/dev/DISK,format=FORMAT,if=none,id=disk0,cache=none,aio=native \
             \\\n-device virtio-blk-pci,drive=disk0,iothread=iothread0"
        );
        assert!(change.libvirt.contains("<driver name='qemu' type='FORMAT' cache='none' io='native' iothread='1'/>"));
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
