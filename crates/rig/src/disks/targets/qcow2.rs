//! Disks as images in QEMU's own format, qcow2, as most guests outside of clusters have them
//! (QEMU's docs/interop/qcow2.txt). A new cluster must be found and entered in two tables before
//! it is written, and each request looks up its cluster in the L2 tables, which are read from the
//! image when they are not in the cache (docs/qcow2-cache.txt).
//!
//! Each variant is a constant of [`Qcow2`]. They differ in how the image is made, in how much of
//! its L2 tables QEMU may keep, and in [`Life`]: what a cell finds.
//!
//! **Native side.** No native program opens qcow2: `native()` is a written-out raw file of the
//! same size beside the images. What a qcow2 image costs against raw is thus part of the figure.
//!
//! **An image of its own for each attachment.** An image that is open twice for writing is
//! corrupted by its two writers, each with tables of its own in memory. For the same reason
//! nothing is ever changed in an image that a hypervisor has open: for another state the guest is
//! given another image ([`Prepared::exchange`]), and the old one is taken away after it was
//! closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use vmio_look::images::info::{self, QEMU_IMG};
use vmio_look::require::{self, Requirement};
use vmio_model::rate::ByteRate;

use super::raw_file::RawFile;
use super::scratch::{MIB, Scratch};
use super::{Prepared, Result, Space, State, Target, TargetCtx, WRITTEN_OUT};
use crate::disks::places::Pool;

mod images;

use images::{Images, Maker};

/// The format's name in QEMU.
const FORMAT: &str = "qcow2";
/// Cluster size where nobody chooses another (`qemu-img create`, libvirt, Proxmox, OpenStack).
const USUAL_CLUSTER: u64 = 64 << 10;
/// Tables of an image that is small: a few clusters of up to 2 MiB, and 1/8192 of its data.
const TABLES_BYTES: u64 = 32 * MIB;
/// Piece of an L2 table in which [`L2::Eighth`] reads and keeps it: a block of the disk below.
const L2_PIECE: u64 = 4096;

/// `qemu-img create` without options: what virt-manager, OpenStack and most scripts make.
pub const NEW: Qcow2 = Qcow2 {
    name: "qcow2",
    about: "qcow2 image as created by qemu-img: new before each write cell, fully written before read cells",
    cluster_bytes: USUAL_CLUSTER,
    extended_l2: false,
    preallocation: None,
    l2: L2::Default,
    life: Life::New,
};
/// Proxmox's directory storages make images like this (pvesm, `preallocation metadata`).
pub const METADATA: Qcow2 = Qcow2 {
    name: "qcow2-metadata",
    about: "qcow2 image with preallocated metadata, as created by Proxmox; otherwise like qcow2",
    preallocation: Some("metadata"),
    ..NEW
};
/// A disk in use for long, with all its L2 tables in memory.
pub const FULL_L2: Qcow2 = Qcow2 {
    name: "qcow2-full-l2",
    about: "qcow2 image, every cluster written, with an L2 cache that covers it",
    l2: L2::Full,
    life: Life::Old,
    ..NEW
};
/// QEMU keeps 32 MiB of L2 tables by default: all of a disk of 256 GiB, an eighth of one of 2 TiB.
pub const SMALL_L2: Qcow2 = Qcow2 {
    name: "qcow2-small-l2",
    about: "the same with an L2 cache for an eighth of it, as a 2 TiB disk has by default",
    l2: L2::Eighth,
    life: Life::Old,
    ..NEW
};
/// Fewer, larger clusters: 1/32 of the tables; extended L2 entries keep new ones at 64 KiB.
pub const LARGE_CLUSTERS: Qcow2 = Qcow2 {
    name: "qcow2-2m",
    about: "qcow2 image with 2 MiB clusters and, if QEMU supports them, extended L2 entries; otherwise like qcow2",
    cluster_bytes: 2 * MIB,
    extended_l2: true,
    ..NEW
};
/// A guest after two snapshots, or made from a template: all data is two images further down.
pub const CHAIN: Qcow2 = Qcow2 {
    name: "qcow2-chain",
    about: "empty qcow2 overlay on an empty overlay on a full base: each first write copies a cluster",
    life: Life::Overlay,
    ..NEW
};

/// How much of the L2 tables QEMU may keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum L2 {
    /// What QEMU takes: 32 MiB at most.
    Default,
    /// All of them.
    Full,
    /// An eighth, but never less than two pieces of 4 KiB.
    Eighth,
}

/// What a cell finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// A new image for [`State::Fresh`], one with every cluster written for [`State::Filled`].
    New,
    /// Every cluster was written before the run; cells write in place.
    Old,
    /// A new overlay for every cell; the data is in the base.
    Overlay,
}

/// A kind of image.
pub struct Qcow2 {
    name: &'static str,
    about: &'static str,
    cluster_bytes: u64,
    /// Only where qemu-img knows it (5.2 and newer).
    extended_l2: bool,
    /// `preallocation=` of a new image.
    preallocation: Option<&'static str>,
    l2: L2,
    life: Life,
}

impl Target for Qcow2 {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn requirements(&self) -> &'static [Requirement] {
        &[Requirement {
            name: QEMU_IMG,
            why: "makes the images",
            fix: "apt install qemu-utils (on Proxmox it comes with pve-qemu-kvm), or leave out the qcow2 targets",
            check: |reader| require::program(reader, QEMU_IMG),
        }]
    }
    fn space(&self, bytes: u64, attachments: u64) -> Space {
        let image = bytes + TABLES_BYTES;
        let (taken, prepared) = match self.life {
            // A full one and one that is being written.
            Life::New => (2 * attachments * image, attachments * image),
            // And one that takes the place of another whose clusters a guest has discarded.
            Life::Old => ((attachments + 1) * image, attachments * image),
            Life::Overlay => (image + attachments * image, image),
        };
        Space { taken_bytes: bytes + taken, prepared_bytes: bytes + prepared }
    }
    fn can_be(&self, state: State, native: bool, _pool: Option<&Pool>) -> Result<(), &'static str> {
        match (state, self.life) {
            (State::Fresh, Life::Old) => Err(WRITTEN_OUT),
            (State::Filled, Life::Overlay) => Err("each cell finds a new overlay; leave the state out, or use qcow2"),
            (State::WarmHost, _) if !native => {
                Err("its hypervisor opens an image, which is not read as the guest reads; use preallocated or device")
            }
            _ => Ok(()),
        }
    }
    fn exchanges(&self) -> bool {
        self.life != Life::Old
    }
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>> {
        let tool = require::find_program(ctx.node.reader(), QEMU_IMG).ok_or(info::Error::NoTool)?;
        crate::disks::space::demand(ctx.node, &ctx.dir, self.space(ctx.bytes, 1).taken_bytes)?;
        let began = Instant::now();
        let twin = Scratch::make_with(ctx, self.name, Scratch::fill)?;
        // As fast as writing out the twin was allowed to be.
        let pace = ctx.pace.map(|_| ByteRate::new((twin.bytes as f64 / began.elapsed().as_secs_f64()) as u64));
        let maker = Maker { tool, journal: Arc::clone(ctx.journal), pace };
        let dir = twin.path.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Box::new(Images::prepare(Qcow2 { ..*self }, dir, RawFile::new(twin, false), maker)?))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn each_attachment_has_an_image_of_its_own_in_the_reckoning() {
        let gib = 1 << 30;
        let image = gib + TABLES_BYTES;
        assert_eq!(NEW.space(gib, 2), Space { taken_bytes: gib + 4 * image, prepared_bytes: gib + 2 * image });
        assert_eq!(FULL_L2.space(gib, 3).taken_bytes, gib + 4 * image);
        assert_eq!(CHAIN.space(gib, 2), Space { taken_bytes: gib + 3 * image, prepared_bytes: gib + image });
    }
}
