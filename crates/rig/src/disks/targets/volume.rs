//! Volumes in a pool (see [`crate::disks::places`]): made and marked for this run, used as a block
//! device, removed by their own system's tools.
//!
//! Thick volumes are written out once. Thin ones (LVM thin, sparse ZFS volumes, RBD images) are as
//! newly made before each writing cell, by a discard of the whole device (blkdiscard(8)): guests
//! that have it open see the same device throughout. Before reading cells they are written out.

use vmio_look::require::Requirement;

use super::{Prepared, Result, Space, Target, TargetCtx, Unfit};
use crate::disks::places::{PlaceBackend, Pool};

mod made;
mod tools;

pub use made::{logical_block_bytes, prepare};

/// Why no volume is warm natively: `blkdev_put` of the kernel's block/bdev.c.
pub const LET_GO: &str = "the kernel drops what it has of a volume as soon as nobody has it open; use a file or device";
/// Why a guest's image of Ceph is not.
pub const OWN_CACHE: &str = "what is cached of it is in the memory of its client; use preallocated or device";

/// A volume of one kind of pool, as an entry.
pub struct OfPool {
    name: &'static str,
    about: &'static str,
    /// The place that holds it, as `--on` names it.
    form: &'static str,
    /// Whether its blocks are taken from the pool when they are first written.
    is_thin: bool,
}

/// Entry `lvm`: its blocks are there from the start.
pub const LVM: OfPool = OfPool {
    name: "lvm",
    about: "logical volume with every block written once beforehand (--on lvm:VG)",
    form: "lvm:VG",
    is_thin: false,
};
/// Entry `lvm-thin`: a block is taken from the pool in chunks of the pool's (lvmthin(7), 64 KiB and more), so that
/// small first writes cost a chunk.
pub const LVM_THIN: OfPool = OfPool {
    name: "lvm-thin",
    about: "thin logical volume: every write cell is a first write (--on lvmthin:VG/POOL)",
    form: "lvmthin:VG/POOL",
    is_thin: true,
};
/// Entry `zvol`: a sparse one (zfs-create(8), `-s`). ZFS writes every block anew wherever it was before, so that thick
/// ones would differ in the space that is set aside alone.
pub const ZVOL: OfPool = OfPool {
    name: "zvol",
    about: "sparse ZFS volume: every write cell is a first write (--on zfs:POOL[/DATASET])",
    form: "zfs:POOL[/DATASET]",
    is_thin: true,
};
/// Entry `rbd`. The native side uses the kernel's client (`rbd map`), a guest librbd: two clients of the same cluster,
/// so their share compares these too.
pub const RBD: OfPool = OfPool {
    name: "rbd",
    about: "Ceph RBD image: natively mapped by the kernel, guests through librbd (--on rbd:POOL)",
    form: "rbd:POOL",
    is_thin: true,
};

impl Target for OfPool {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    /// What the pool needs is the place's.
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    fn space(&self, bytes: u64, _attachments: u64) -> Space {
        Space { taken_bytes: bytes, prepared_bytes: if self.is_thin { 0 } else { bytes } }
    }
    fn written(&self) -> bool {
        !self.is_thin
    }
    fn refilled(&self, _pool: Option<&Pool>) -> bool {
        self.is_thin
    }
    fn native_is_a_device(&self) -> bool {
        true
    }
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        let form = self.form;
        match backend {
            PlaceBackend::Volumes(pool) if pool.target() == self.name => Ok(()),
            PlaceBackend::Volumes(pool) => Err(Unfit::OtherVolumes { pool: pool.clone(), form }),
            PlaceBackend::Files(_) | PlaceBackend::Modelled(_) | PlaceBackend::PassedThrough(_) => {
                Err(Unfit::NoVolumes { form })
            }
        }
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        prepare(ctx, self.name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_study_for_another_kind_of_place_is_told_which() {
        let files = PlaceBackend::Files("/srv".into());
        let thin = PlaceBackend::Volumes(Pool::LvmThin { vg: "v".into(), pool: "p".into() });
        assert_eq!(LVM_THIN.fits(&thin), Ok(()));
        assert!(LVM_THIN.fits(&files).unwrap_err().to_string().contains("--on lvmthin:VG/POOL"));
        assert!(ZVOL.fits(&thin).unwrap_err().to_string().contains("LVM thin pool v/p"));
    }
}
