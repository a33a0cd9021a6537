//! Whether this host's QEMU can open RBD images.

use std::path::Path;

use vmio_look::require::{Missing, Requirement};
use vmio_model::cell::Arch;
use vmio_node::Reader;

use crate::qemu::find_qemu;

/// Where distributions keep the modules of a QEMU that has any.
const MODULES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu/qemu", "/usr/lib64/qemu-kvm", "/usr/lib64/qemu", "/usr/lib/qemu"];

/// What a guest's disk on one needs.
pub const NEEDS: &[Requirement] = &[Requirement {
    name: "QEMU's RBD driver",
    why: "a guest's disk goes through librbd",
    fix: "apt install qemu-block-extra (Proxmox's QEMU has it built in), or measure only the native side",
    check: qemu_has_rbd,
}];

/// Whether QEMU can open RBD images. It lists the driver whether its module is installed or not, so the
/// module is looked for; a QEMU without modules has all of its drivers built in.
fn qemu_has_rbd(reader: &dyn Reader) -> Result<(), Missing> {
    find_qemu(reader, Arch::default()).map_err(|e| Missing::Unlike(e.to_string()))?;
    let lacks = |dir: &&&str| {
        let there = reader.list(Path::new(dir)).unwrap_or_default();
        there.iter().any(|n| n.ends_with(".so")) && !there.iter().any(|n| n == "block-rbd.so")
    };
    match MODULES.iter().find(lacks) {
        Some(dir) => Err(Missing::Unlike(format!("no block-rbd.so in {dir}"))),
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
        assert_eq!(qemu_has_rbd(&host(&qemu)), Ok(()));
        let modular = || host(&qemu).file(format!("{dir}/accel-tcg-x86_64.so"), "");
        assert_eq!(qemu_has_rbd(&modular()), Err(Missing::Unlike(format!("no block-rbd.so in {dir}"))));
        assert_eq!(qemu_has_rbd(&modular().file(format!("{dir}/block-rbd.so"), "")), Ok(()));
    }
}
