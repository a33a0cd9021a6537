//! Whether this host's QEMU has the clients that distributions keep in modules of their own.

use std::path::Path;

use vmio_look::require::{Missing, Requirement};
use vmio_model::cell::Arch;
use vmio_node::Reader;

use crate::disks::BlockClient;
use crate::qemu::find_qemu;

/// Where distributions keep the modules of a QEMU that has any.
const MODULES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu/qemu", "/usr/lib64/qemu-kvm", "/usr/lib64/qemu", "/usr/lib/qemu"];

/// What a guest's disk that is opened by one needs.
pub fn needs(client: BlockClient) -> &'static [Requirement] {
    match client {
        BlockClient::Iscsi => &[Requirement {
            name: "QEMU's iSCSI driver",
            why: "is the client of a guest's disk by iSCSI",
            fix: "apt install qemu-block-extra (Proxmox's QEMU has it built in), or leave the driver out, so that the \
                  guest reaches the disk by itself",
            check: |reader| qemu_has(reader, "block-iscsi.so"),
        }],
        BlockClient::Rbd => &[Requirement {
            name: "QEMU's RBD driver",
            why: "a guest's disk goes through librbd",
            fix: "apt install qemu-block-extra (Proxmox's QEMU has it built in), or measure only the native side",
            check: |reader| qemu_has(reader, "block-rbd.so"),
        }],
    }
}

/// Whether QEMU has the driver of this module. It lists a driver whether its module is installed or not, so the module
/// is looked for; a QEMU without modules has all of its drivers built in.
fn qemu_has(reader: &dyn Reader, module: &str) -> Result<(), Missing> {
    find_qemu(reader, Arch::default()).map_err(|e| Missing::Unlike(e.to_string()))?;
    let lacks = |dir: &&&str| {
        let there = reader.list(Path::new(dir)).unwrap_or_default();
        there.iter().any(|n| n.ends_with(".so")) && !there.iter().any(|n| n == module)
    };
    match MODULES.iter().find(lacks) {
        Some(dir) => Err(Missing::Unlike(format!("no {module} in {dir}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmio_node::fake::host;

    #[test]
    fn a_modular_qemu_needs_the_module_and_another_none() {
        let qemu = [("qemu-system-x86_64", "")];
        let dir = MODULES[0];
        for (client, module) in [(BlockClient::Rbd, "block-rbd.so"), (BlockClient::Iscsi, "block-iscsi.so")] {
            let has = needs(client)[0].check;
            assert_eq!(has(&host(&qemu)), Ok(()));
            let modular = || host(&qemu).file(format!("{dir}/accel-tcg-x86_64.so"), "");
            assert_eq!(has(&modular()), Err(Missing::Unlike(format!("no {module} in {dir}"))));
            assert_eq!(has(&modular().file(format!("{dir}/{module}"), "")), Ok(()));
        }
    }
}
