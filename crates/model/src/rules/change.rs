//! What to change, as text that can be pasted: QEMU's options, libvirt's XML, Proxmox's `qm`.

use serde::{Deserialize, Serialize};

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
