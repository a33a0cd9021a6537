//! Storage that cells run on. A target is prepared once for a run, set back before each cell,
//! and removed at the end; every step that leaves something behind is in the journal first.
//!
//! Targets are made on this machine by system calls (holes, extents, loop devices), so the
//! node that the context carries is used for looking and for commands only. Few are made on another
//! machine, by its agent ([`Target::elsewhere`]). What serves one may be another host ([`Prepared::link`]).
//!
//! Adding a target: a file with a type that implements [`Target`], and its line in [`ALL`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use vmio_look::require::{Missing, Requirement};
use vmio_model::cell;
pub use vmio_model::cell::State;
pub use vmio_node::device_safety::{Identity, Pinned};
use vmio_node::{Journal, Node};

use crate::disks::BlockClient;
use crate::disks::places::{PassedThrough, PlaceBackend, Pool};
use crate::nets::Namespace;
use crate::nodes::{Machine, Peer};

mod aoe;
mod client_disk;
mod device;
mod dm_cache;
pub mod elsewhere;
mod error;
#[cfg(test)]
mod example;
mod flash_cache;
mod flash_disk;
mod guest_cache;
mod host_disk;
mod iscsi;
pub(super) mod loopdev;
mod looped;
mod memory;
mod nbd;
mod nbd_wire;
mod nvme_tcp;
pub mod own_client;
mod passthrough;
mod preallocated;
mod prepared;
mod qcow2;
mod raw_file;
mod scratch;
mod served;
mod sparse;
mod unfit;
mod volume;

pub use error::{Error, Result};
pub use guest_cache::DMSETUP;
use own_client::OwnClient;
pub use prepared::{Demands, Exchange, Prepared};
pub use scratch::not_in_memory;
pub use unfit::Unfit;

/// All targets, in the order in which they are shown.
pub const ALL: &[&dyn Target] = &[
    &device::Device,
    &looped::LOOP,
    &looped::LOOP_NFS,
    &sparse::Sparse,
    &preallocated::Preallocated,
    &served::Served,
    &nbd::Nbd,
    &nbd_wire::NbdWire,
    &aoe::Aoe,
    &iscsi::Iscsi,
    &nvme_tcp::NvmeTcp,
    &flash_cache::FlashCache,
    &guest_cache::BCACHE,
    &guest_cache::DM_CACHE,
    &dm_cache::DmCache,
    &flash_disk::FlashDisk,
    &passthrough::Passthrough,
    &qcow2::NEW,
    &qcow2::METADATA,
    &qcow2::FULL_L2,
    &qcow2::SMALL_L2,
    &qcow2::LARGE_CLUSTERS,
    &qcow2::CHAIN,
    &volume::LVM,
    &volume::LVM_THIN,
    &volume::ZVOL,
    &volume::RBD,
];

/// A way to make storage.
pub trait Target: Sync {
    /// Name in studies and results.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// What this machine must have.
    fn requirements(&self) -> &'static [Requirement];
    /// Space that it takes at most, for `bytes` of usable storage which guests see by so many
    /// attachments.
    fn space(&self, bytes: u64, attachments: u64) -> Space {
        let _ = attachments;
        Space { taken_bytes: bytes, prepared_bytes: bytes }
    }
    /// Whether a plan for a place that it does not fit, where its cells are skipped, counts it as written out once:
    /// [`Target::space`] holds where it fits.
    fn written(&self) -> bool {
        false
    }
    /// Whether it loses its data when a cell writes to it afresh; `pool`: where it is a volume of one.
    fn refilled(&self, _pool: Option<&Pool>) -> bool {
        false
    }
    /// Whether a cell can find it in a state that the study names, natively or as a guest has it; `pool`: where it is a
    /// volume of one. Else why not, and what to do.
    fn can_be(&self, state: State, native: bool, pool: Option<&Pool>) -> Result<(), &'static str> {
        match (state, pool) {
            (State::Fresh, _) if !self.refilled(pool) => Err(WRITTEN_OUT),
            (State::WarmHost, Some(_)) if native => Err(volume::LET_GO),
            (State::WarmHost, Some(Pool::Rbd { .. })) => Err(volume::OWN_CACHE),
            _ => Ok(()),
        }
    }
    /// Whether a device of the user's own may stand in its place (`--device`), which costs no space.
    fn takes_device(&self) -> bool {
        false
    }
    /// Memory of this host that its caches take at most, for `bytes` of usable storage of which guests have so many
    /// disks.
    fn cache_bytes(&self, bytes: u64, disks: u64) -> u64 {
        let _ = (bytes, disks);
        0
    }
    /// Where a flash cache lies over its storage, so that it can be [`State::WarmFlash`]; `None` without one.
    fn flash_cache(&self) -> Option<CacheAt> {
        None
    }
    /// Whether no guest has it, and why.
    fn native_alone(&self) -> Option<&'static str> {
        None
    }
    /// Whether only a guest has it, and why.
    fn guests_alone(&self) -> Option<&'static str> {
        None
    }
    /// Whether hypervisors have it by this host's kernel: they open the device that native workloads open.
    fn by_host_kernel(&self) -> bool {
        false
    }
    /// Whether no hypervisor opens it, and why: a guest may reach it by itself ([`Target::own_client`]).
    fn no_hypervisor(&self) -> Option<&'static str> {
        None
    }
    /// What this machine must have beside for what has it by the host's kernel ([`by_host_kernel`]).
    fn native_requirements(&self) -> &'static [Requirement] {
        &[]
    }
    /// Whether another host serves it, which a namespace plays ([`TargetCtx::host`]).
    fn over_link(&self) -> bool {
        false
    }
    /// What the machine at the other end of the network `wire` must have to serve it, where that one does
    /// ([`TargetCtx::peer`]): a hypervisor reaches it over this host's own network.
    fn by_peer(&self) -> Option<&'static OfPeer> {
        None
    }
    /// How a guest reaches it by itself, where it can: then it is over a link too.
    fn own_client(&self) -> Option<&'static OwnClient> {
        None
    }
    /// By which client of its own a hypervisor opens it, where not every build of one has that.
    fn block_client(&self) -> Option<BlockClient> {
        None
    }
    /// How it is made on another machine than this host, where that can be.
    fn elsewhere(&self) -> Option<elsewhere::Make> {
        None
    }
    /// Kernel modules that a guest needs beside those of its disk, names as in `modules.dep`.
    fn guest_modules(&self) -> &'static [&'static str] {
        &[]
    }
    /// Programs that run in a guest for it: its image carries them.
    fn guest_programs(&self) -> &'static [&'static str] {
        &[]
    }
    /// Whether workloads may only read it, and why.
    fn only_read(&self) -> Option<&'static str> {
        None
    }
    /// Whether the native side works on a block device that is the run's own, made by it or given to it (`--device`),
    /// and not on a file: then what is set of the device is set for the run alone.
    fn native_is_a_device(&self) -> bool {
        false
    }
    /// Whether it can be made in a place, else why not and what to do. What is a file by nature
    /// needs a place that holds files.
    fn fits(&self, backend: &PlaceBackend) -> Result<(), Unfit> {
        holds_files(backend)
    }
    /// Whether a running guest is given other storage for the state that a cell needs
    /// ([`Prepared::exchange`]), which not every hypervisor can do.
    fn exchanges(&self) -> bool {
        false
    }
    /// Makes it. On an error what was made so far is taken away again.
    fn prepare(&self, ctx: &TargetCtx<'_>) -> Result<Box<dyn Prepared>>;
}

/// Where a flash cache lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheAt {
    /// On the host, below a guest's disk.
    Host,
    /// In the guest, over its disk and another one for the cache ([`Prepared::cache_disk`]).
    Guest(CacheDriver),
    /// On this host, for what works on it under the host's kernel: dm-cache over the native storage and another device
    /// for the cache ([`Prepared::native_cache`]).
    Native,
}

/// What of a guest's kernel is a flash cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheDriver {
    /// bcache.
    Bcache,
    /// dm-cache, with the policy smq.
    DmCache,
}

/// What a target costs beside the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that it takes at the same time, at most.
    pub taken_bytes: u64,
    /// Bytes that are written before the first cell.
    pub prepared_bytes: u64,
}

/// What the machine at the other end of the network `wire` must have to serve a disk.
pub struct OfPeer {
    /// What is found in its files.
    pub requirements: &'static [Requirement],
    /// What one of its programs says of itself, where those are there.
    pub asked: Asked,
}

/// A precondition that a program of a machine is asked for. It only looks.
pub struct Asked {
    /// Short name.
    pub name: &'static str,
    /// How to meet it.
    pub fix: &'static str,
    /// `Ok` when met, else what was found.
    pub check: fn(&dyn Node) -> Result<(), Missing>,
}

/// What a target is made of.
pub struct TargetCtx<'a> {
    /// This machine.
    pub node: &'a dyn Node,
    /// Journal of the run. What outlives `prepare` (servers, images for the next cell) shares it.
    pub journal: &'a Arc<Journal>,
    /// Directory of the scratch volume; exists.
    pub dir: PathBuf,
    /// Where volumes are made, for a place that holds volumes.
    pub pool: Option<Pool>,
    /// Bytes wanted; rounded up to 1 MiB.
    pub bytes: u64,
    /// What is there already for the target `device`, instead of a loop device over a file.
    pub device: Option<Given>,
    /// Use that device whatever it holds. A mounted or held device is refused even then.
    pub force: bool,
    /// `--gentle`: share of the time in which vmio's own writing keeps the disk busy, 0 to 1.
    pub pace: Option<f64>,
    /// Whether something has it by the host's kernel ([`by_host_kernel`]).
    pub native: bool,
    /// The namespace that plays this host, which hypervisors are started in that have a network.
    pub host: Option<Arc<Namespace>>,
    /// The machine at the other end of the network `wire`, where one is named.
    pub peer: Option<(&'a Machine, &'a Peer)>,
}

/// What the target `device` is where it needs no file of its own.
#[derive(Debug, Clone)]
pub enum Given {
    /// A whole block device that the user named (twice), as it was when the plan was printed.
    Own(Arc<Pinned>),
    /// What a modelled disk has without a file system: a file of its server's.
    Served(PathBuf),
    /// What a guest gets whole, for the target `passthrough`.
    PassedThrough(PassedThrough),
}

/// Why nothing of a target is ever fresh.
const WRITTEN_OUT: &str = "it is written out by nature; use sparse, qcow2 or a thin volume";

/// Whether a place holds files, else why not.
fn holds_files(backend: &PlaceBackend) -> Result<(), Unfit> {
    match backend {
        PlaceBackend::Files(_) | PlaceBackend::Modelled(_) => Ok(()),
        PlaceBackend::Volumes(pool) => Err(Unfit::NoFiles(pool.clone())),
        PlaceBackend::PassedThrough(_) => Err(Unfit::NoFilesPassedThrough),
    }
}

/// Whether a place is a modelled disk, else why not.
fn is_modelled(backend: &PlaceBackend) -> Result<(), Unfit> {
    if backend.modelled().is_some() { Ok(()) } else { Err(Unfit::NotModelled) }
}

/// The target of that name.
pub fn find(name: &str) -> Option<&'static dyn Target> {
    ALL.iter().copied().find(|t| t.name() == name)
}

/// What the machine at the other end of the network `wire` must have to serve an actor's disk, where that one does.
pub fn of_peer(actor: &cell::Actor) -> Option<&'static OfPeer> {
    actor.target().and_then(find)?.by_peer()
}

/// Whether an actor has its target by this host's kernel: it works under that, or its hypervisor opens that one's device.
pub fn by_host_kernel(actor: &cell::Actor) -> bool {
    let is_opened = || actor.target().and_then(find).is_some_and(|target| target.by_host_kernel());
    actor.side.shares_kernel() || (actor.attachment().is_some() && is_opened())
}

/// Settings for [`Prepared::effective`].
fn facts<const N: usize>(facts: [(&str, String); N]) -> BTreeMap<String, String> {
    facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vmio_node::fake::{Fake, Tree};

    #[test]
    fn contract_of_every_target() {
        for (i, target) in ALL.iter().enumerate() {
            let name = target.name();
            assert!(ALL[..i].iter().all(|t| t.name() != name), "{name} twice");
            assert_eq!(find(name).unwrap().name(), name);
        }
        let example: &dyn Target = &example::Zeros;
        assert!(example.elsewhere().is_some());
        for target in ALL.iter().copied().chain([example]) {
            let name = target.name();
            assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys and file names use these characters");
            assert!(!target.about().is_empty());
            let space = target.space(1 << 20, 2);
            assert!(space.taken_bytes >= 1 << 20 && space.taken_bytes >= space.prepared_bytes, "{name}: {space:?}");
            // What loses its data is not written out before: it takes its blocks when they are first written.
            assert!(!target.refilled(None) || space.prepared_bytes == 0, "{name}: {space:?}");
            assert!(target.own_client().is_none() || target.over_link(), "{name}");
            let of_client = target.own_client().map_or(&[][..], |client| client.requirements);
            let there = target.by_peer().map_or(&[][..], |needs| needs.requirements);
            let natively = target.native_requirements();
            for requirement in target.requirements().iter().chain(of_client).chain(natively).chain(there) {
                assert!(!requirement.why.is_empty() && !requirement.fix.is_empty(), "{name}: {}", requirement.name);
                // On a machine with nothing each must be unmet, or it checks nothing.
                assert!((requirement.check)(&Tree::default()).is_err(), "{name}: {}", requirement.name);
            }
        }
        for asked in ALL.iter().filter_map(|target| target.by_peer()).map(|needs| &needs.asked) {
            assert!((asked.check)(&Fake::new("b")).is_err() && !asked.fix.is_empty(), "{}", asked.name);
        }
        let names = |of: &dyn Fn(&dyn Target) -> bool| -> Vec<&str> {
            ALL.iter().filter(|t| of(**t)).map(|t| t.name()).collect()
        };
        let thin = Pool::LvmThin { vg: "v".into(), pool: "p".into() };
        assert_eq!(names(&|t| t.refilled(None)), ["sparse", "lvm-thin", "zvol", "rbd"]);
        assert_eq!(names(&|t| t.refilled(Some(&thin)) && !t.refilled(None)), ["device"]);
        assert_eq!(names(&|t| t.takes_device()), ["device"]);
        assert_eq!(names(&|t| t.elsewhere().is_some()), [elsewhere::DEVICE, elsewhere::PREALLOCATED]);
        assert_eq!(names(&|t| t.over_link()), ["nbd", "aoe", "iscsi", "nvme-tcp"]);
        assert_eq!(names(&|t| t.by_peer().is_some()), ["nbd-wire"]);
        assert_eq!(names(&|t| t.own_client().is_some()), ["nbd", "aoe", "iscsi", "nvme-tcp"]);
        assert_eq!(names(&|t| t.by_host_kernel()), ["nvme-tcp"]);
        assert_eq!(names(&|t| t.block_client().is_some()), ["nbd-wire", "iscsi"]);
        assert_eq!(names(&|t| t.no_hypervisor().is_some()), ["aoe"]);
        let cached = ["flash-cache", "guest-bcache", "guest-dm-cache", "dm-cache"];
        assert_eq!(names(&|t| t.flash_cache().is_some()), cached);
        assert_eq!(names(&|t| t.cache_bytes(1 << 20, 2) > 0), cached);
        assert_eq!(names(&|t| !t.guest_programs().is_empty()), ["guest-dm-cache"]);
        assert_eq!(
            names(&|t| t.native_is_a_device()),
            ["device", "loop", "loop-nfs", "nbd", "aoe", "nvme-tcp", "lvm", "lvm-thin", "zvol", "rbd"]
        );
        assert_eq!(
            names(&|t| t.can_be(State::Fresh, true, None).is_ok()),
            ["sparse", "qcow2", "qcow2-metadata", "qcow2-2m", "qcow2-chain", "lvm-thin", "zvol", "rbd"]
        );
        let of_files = names(&|t| t.can_be(State::WarmHost, false, None).is_err());
        let served = ["loop", "loop-nfs", "served", "nbd", "nbd-wire", "aoe", "iscsi", "nvme-tcp"];
        assert_eq!((&of_files[..8], &of_files[8..12]), (&served[..], &cached[..]));
        assert_eq!(of_files[12..14], ["flash-disk", "passthrough"]);
        assert!(of_files[14..].iter().all(|name| name.starts_with("qcow2")) && of_files.len() == 20, "{of_files:?}");
        assert!(names(&|t| t.can_be(State::WarmHost, true, Some(&thin)).is_err()).contains(&"device"));
        assert_eq!(names(&|t| t.can_be(State::Filled, false, None).is_err()), ["passthrough", "qcow2-chain"]);
        assert_eq!(names(&|t| t.written()), ["device", "loop", "loop-nfs", "sparse", "preallocated", "lvm"]);
    }
}
