//! A Ceph RBD image. The native side uses the kernel's client (`rbd map`), a guest librbd: two clients
//! of the same cluster, so their share compares these too.

use std::path::Path;

use vmio_look::require::{Missing, Requirement};
use vmio_node::Reader;

use super::{Prepared, Result, Space, Target, TargetCtx, Unfit, volume};
use crate::disks::places::{PlaceBackend, Pool};
use crate::qemu::find_qemu;

/// Where distributions keep the modules of a QEMU that has any.
const MODULES: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu/qemu", "/usr/lib64/qemu-kvm", "/usr/lib64/qemu", "/usr/lib/qemu"];

/// Entry `rbd`.
pub struct Rbd;

impl Target for Rbd {
    fn name(&self) -> &'static str {
        "rbd"
    }
    fn about(&self) -> &'static str {
        "Ceph RBD image: natively mapped by the kernel, guests through librbd (--on rbd:POOL)"
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: "QEMU's RBD driver",
            why: "a guest's disk goes through librbd",
            fix: "apt install qemu-block-extra (Proxmox's QEMU has it built in), or measure the native side alone",
            check: qemu_has_rbd,
        }]
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        volume::fits(self.name(), "rbd:POOL", backend)
    }
    fn refilled(&self, _pool: Option<&Pool>) -> bool {
        true
    }
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        Space { taken_bytes: bytes, prepared_bytes: 0 }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        volume::prepare(ctx, self.name())
    }
}

/// Whether QEMU can open RBD images. It lists the driver whether its module is installed or not, so the
/// module is looked for; a QEMU without modules has all of its drivers built in.
fn qemu_has_rbd(reader: &dyn Reader) -> std::result::Result<(), Missing> {
    find_qemu(reader, vmio_model::cell::Arch::default()).map_err(|e| Missing::Unlike(e.to_string()))?;
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
