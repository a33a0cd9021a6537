//! Names of a device in its owner's configuration, on QEMU's command line and in QMP.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fact;
use super::fact::facts;

facts! {
    /// Names of a device in its owner's configuration, for the placeholders of a change.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub struct Place {
        /// libvirt's name of the guest, for `virsh edit`.
        pub domain: Option<String>,
        /// Proxmox's number of the guest, for `qm set`.
        pub vmid: Option<String>,
        /// Path or address of the storage, as configured.
        pub source: Fact<Option<String>>,
        /// Whether the source is a block device.
        pub block_device: Option<bool>,
        /// libvirt's name of the device: `vda`, or the MAC address of a network device.
        pub target: Option<String>,
        /// Proxmox's slot: `scsi0`, `net0`.
        pub slot: Option<String>,
        /// Proxmox's name of the volume: `local-lvm:vm-101-disk-0`.
        pub volume: Option<String>,
        /// QEMU's id of the device.
        pub device_id: Option<String>,
        /// The options that define it, where those are not `-device` and `-drive`, `-blockdev` or `-netdev`: `-hda
        /// a.qcow2`, an image's name alone, `-nic user,model=e1000`, `-net nic` with `-net user`. Empty for the default
        /// card, which no option defines.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub given: Option<Vec<String>>,
        /// QMP's `device` of a drive: its name, where the disk is of `-drive`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub drive: Option<String>,
        /// Name of its image's block node, for QMP's jobs.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub node: Option<String>,
        /// QMP's `id` of the device that has the image: its id, or its path in QEMU's object tree.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub qom: Option<String>,
        /// Socket of its guest's QMP monitor, as QEMU names it; `None` where it has none, or its manager uses it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub monitor: Option<String>,
        /// Names of the guest's disks and drives now or at its next start, this one's included: libvirt's targets,
        /// Proxmox's slots. Empty where its configuration was not read.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub taken: Vec<String>,
        /// Whether libvirt lets the guest boot from it only because it is the first disk.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub boots_as_first: Option<bool>,
        /// IP addresses that the manager's configuration names for a network device; not all that it may have. Not in
        /// results.
        #[serde(skip)]
        pub addresses: Vec<IpAddr>,
        /// Whether these suffice to report another guest that claims them, but not to drop what it sends: users may
        /// choose them, and separate networks may have the same. Not in results.
        #[serde(skip)]
        pub addresses_in_doubt: bool,
    }
}

impl Place {
    /// The source, where it is a descriptor of a process (`/proc/812/fd/7`, `/dev/fdset/2`), which means another file,
    /// or none, later.
    pub fn descriptor(&self) -> Option<&str> {
        self.source.as_deref().filter(|source| is_descriptor(source))
    }
}

fn is_descriptor(path: &str) -> bool {
    let of_process = || path.strip_prefix("/proc/")?.split_once('/')?.1.strip_prefix("fd/");
    let of_qemu = || ["/dev/fd/", "/dev/fdset/"].iter().find_map(|dir| path.strip_prefix(dir));
    path == "/dev/stdin"
        || of_process().or_else(of_qemu).is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_descriptor_is_told_from_one_of_a_file() {
        let all = |paths: &[&str]| paths.iter().map(|path| is_descriptor(path)).collect::<Vec<bool>>();
        assert_eq!(all(&["/proc/812/fd/7", "/proc/self/fd/3", "/dev/fd/3", "/dev/fdset/2", "/dev/stdin"]), [true; 5]);
        assert_eq!(
            all(&["/dev/vg0/web1", "/srv/proc/812/fd/7", "/proc/812/root/a", "/dev/fd0", "/proc/kcore"]),
            [false; 5]
        );
    }
}
