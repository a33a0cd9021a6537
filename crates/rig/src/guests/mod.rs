//! Machines that work is measured on: the host itself and guests that vmio starts on it. Only its
//! owner stops a guest. It yields a node where commands run in it and, where that can be seen, what
//! its hypervisor is at. Guests of others, which are only looked at, are `vmio-look`'s `kinds`.
//!
//! Adding a kind of guest (another hypervisor): a file with a type that implements [`GuestKind`] and one that
//! implements [`Guest`], and its line in [`ALL`]. What only that hypervisor has (its devices for the drivers and cards,
//! its monitor, its threads' names) lies with it, as QEMU's in `qemu/`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_look::require::Requirement;
use vmio_model::cell::{Actor, Arch, Attachment, Nic, Shape};
use vmio_model::result::Accel;
use vmio_node::{Journal, Node, Reader};

use crate::disks::{BlockClient, Storage};
use crate::image::Image;
use crate::nodes::Nodes;

mod container;
mod directory;
mod error;
#[cfg(test)]
pub(crate) mod example;
mod native;
pub mod qemu;
mod running;
mod ssh;
mod unfit;

use error::file_error;

pub use container::Processes;
pub use error::{Error, Result};
pub use running::{Balloon, Disks, Drive, DriveCounts, Guest, Hypervisor, Images};
pub use ssh::NO_MACHINE;
pub use unfit::Unfit;

/// All kinds, in the order in which they are shown.
pub const ALL: &[&dyn GuestKind] = &[&native::Native, &qemu::Qemu, &container::Container, &ssh::Ssh];

/// The kind of that name.
pub fn find(name: &str) -> Option<&'static dyn GuestKind> {
    ALL.iter().copied().find(|k| k.name() == name)
}

/// A kind of guest that vmio starts.
pub trait GuestKind: Sync {
    /// Name in studies and results: `native`, `qemu`, `container`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// What this machine must have.
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    /// What this machine must have for one of this shape.
    fn requirements_of(&self, _shape: &Shape) -> &'static [Requirement] {
        self.requirements()
    }
    /// What this machine must have for a disk of one that its hypervisor opens by this client of its own.
    fn requirements_for(&self, _client: BlockClient) -> &'static [Requirement] {
        &[]
    }
    /// Whether it can have this shape on this host, else why not.
    ///
    /// # Errors
    /// What it cannot have.
    fn fits(&self, shape: &Shape, _host: &dyn Reader) -> Result<(), Unfit> {
        if shape.is_plain() { Ok(()) } else { Err(Unfit::Shape(self.name())) }
    }
    /// Why one cannot have the device by which an actor sees its subject, if it cannot. The host is asked only where
    /// that depends on its programs.
    fn unfit(&self, _host: &dyn Node, _actor: &Actor) -> Option<Unfit> {
        None
    }
    /// Whether one can have a card that is set up so, whatever this host has, else why not.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn fits_card(&self, _asked: &Nic) -> Result<(), Unfit> {
        Ok(())
    }
    /// Whether one can have a disk that is set up so, else why not; and on this storage, where it is named.
    ///
    /// # Errors
    /// Why not, and what to do.
    fn fits_disk(&self, _asked: &Attachment, _storage: Option<&Storage>) -> Result<(), Unfit> {
        Ok(())
    }
    /// What its hypervisor is called in messages.
    fn hypervisor(&self) -> &'static str {
        self.name()
    }
    /// Memory in MiB that its hypervisor may use beside a guest's.
    fn own_mib(&self) -> u32 {
        0
    }
    /// The hypervisor that this host has for guests of a processor, in its own words; `None` where there is none.
    fn version(&self, _host: &dyn Node, _arch: Arch) -> Option<String> {
        None
    }
    /// What runs its guests here, as far as that is known without starting one.
    fn accelerator(&self, _host: &dyn Reader, _arch: Arch, _state_dir: &Path) -> Option<Accelerator> {
        None
    }
    /// Starts one and waits until commands can run in it. The host itself is never started.
    fn launch(&self, _ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Box<dyn Guest>> {
        Err(Error::Spec { guest: spec.name.clone(), reason: "this kind is never started".to_owned() })
    }
}

/// What a launch works with.
pub struct LaunchCtx<'a> {
    /// The host. Its processes belong to `journal`.
    pub node: Arc<dyn Node>,
    /// The machines of the run: the side `ssh` is one that was reached before it.
    pub nodes: &'a Nodes,
    /// Takes note of everything that the launch leaves on the host.
    pub journal: Arc<Journal>,
    /// What guests of our own start from; `None` where none does.
    pub image: Option<&'a Image>,
    /// Directory for sockets and logs of running guests. Must be short: the name of a Unix socket
    /// below it has at most 107 bytes.
    pub run_dir: &'a Path,
    /// Where it is remembered whether KVM works here.
    pub state_dir: &'a Path,
    /// Use this accelerator instead of finding out.
    pub accel: Option<Accel>,
    /// How long a guest may take from its start to its first answer.
    pub boot_limit: Duration,
    /// `oom_score_adj` of the hypervisor, -1000 to 1000.
    pub oom_score_adj: i32,
    /// `cgroup.procs` files of the control groups that the hypervisor joins, or the container.
    pub cgroup_procs: Vec<PathBuf>,
    /// What goes before the command of the hypervisor, or of the container, so that it runs in a network namespace;
    /// empty: in ours, and a container in one of its own.
    pub enter: Vec<String>,
    /// Told what is being done, a few times a launch.
    pub progress: &'a dyn Fn(&str),
}

/// A guest to be launched.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestSpec {
    /// Its name in messages, results and paths; unique in the run. Letters, digits, `-`.
    pub name: String,
    /// Its processors' kind: that of the image it starts from.
    pub arch: Arch,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Processors of the host that it is held to; empty: any.
    pub pins: Vec<u32>,
    /// Its disks.
    pub disks: Vec<DiskSpec>,
    /// Its network devices.
    pub nics: Vec<NicSpec>,
    /// Whether it has a balloon, where its kind can have one.
    pub balloon: bool,
    /// Kernel modules that it loads beside those of its devices, names as in `modules.dep`.
    pub modules: Vec<&'static str>,
}

impl GuestSpec {
    /// A guest that runs on any processors, with no disk, no network device and no balloon.
    pub fn of(name: impl Into<String>, vcpus: u32, memory_mib: u32) -> Self {
        let name = name.into();
        let (pins, disks, nics, modules) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { name, arch: Arch::default(), vcpus, memory_mib, pins, disks, nics, balloon: false, modules }
    }
}

/// A network device of a guest.
#[derive(Debug, Clone, PartialEq)]
pub struct NicSpec {
    /// How the guest sees it. Its model is one of [`crate::nics::ALL`].
    pub nic: Nic,
    /// The tap device that it is plugged into, in the network namespace that the hypervisor is started in.
    pub tap: String,
    /// Its hardware address.
    pub mac: String,
}

/// A disk of a guest. Several disks may lie on the same storage, one for each way to see it; only
/// one of them is used at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskSpec {
    /// How the caller calls it; unique in the guest.
    pub id: String,
    /// What the hypervisor opens. A container needs one with a path.
    pub storage: Storage,
    /// How the guest sees it. Its driver is one of [`crate::disks::drivers::ALL`]. Containers use what is there as it
    /// is.
    pub attachment: Option<Attachment>,
}

/// An accelerator and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Accelerator {
    /// Which.
    pub accel: Accel,
    /// Why, for results.
    pub reason: String,
}

/// Paths in words.
fn listed(paths: &[PathBuf]) -> String {
    let all: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::{Aio, Cache, Cell, Kind, Side, Subject};

    use super::*;
    use crate::disks::drivers;
    use crate::nics;

    /// Each part of a shape is had or refused in words.
    #[test]
    fn what_a_kind_cannot_have_is_refused() {
        let host = vmio_node::fake::Tree::default();
        let plain = Shape::default();
        let shapes = [
            Shape { arch: Arch::Aarch64, ..plain.clone() },
            Shape { machine: Some("isapc".into()), ..plain.clone() },
            Shape { vcpus: Some(2), ..plain.clone() },
            Shape { memory_mib: Some(512), ..plain.clone() },
            Shape { kernel: Some("2.6.32".into()), ..plain.clone() },
            Shape { pins: vec![4096], ..plain.clone() },
        ];
        for kind in ALL {
            assert_eq!(kind.fits(&plain, &host), Ok(()), "{}", kind.name());
            for shape in &shapes {
                match kind.fits(shape, &host) {
                    Ok(()) => assert!(!Kind::of(kind.name()).shares_kernel || *shape == shape.natively(), "{shape:?}"),
                    Err(why) => {
                        let said = why.to_string();
                        assert!(!said.is_empty() && !said.ends_with('.'), "{}: {said}", kind.name());
                    }
                }
            }
        }
    }

    /// Each device is had by guests of some kind, of each processor that it names.
    #[test]
    fn no_device_is_had_by_none() {
        let host = vmio_node::Fake::new("bare");
        let had = |arch: Arch, subject: &Subject| {
            ALL.iter().filter(|kind| !Kind::of(kind.name()).shares_kernel).any(|kind| {
                let side = Side { shape: Shape { arch, ..Shape::default() }, ..Side::of(kind.name()) };
                kind.unfit(&host, &Cell::of(side, subject.clone(), "x").lead).is_none()
            })
        };
        for arch in Arch::ALL {
            for driver in drivers::of(arch) {
                let attachment = Some(Attachment::new(driver.name, Cache::None, Aio::Native));
                let subject = Subject::Disk { target: "sparse".into(), attachment, state: None };
                assert!(had(arch, &subject), "{arch}: {}", driver.name);
            }
            for model in nics::of(arch) {
                let nic = Some(Nic::new(model.name));
                let subject = Subject::path("bridge", "host", nic);
                assert!(had(arch, &subject), "{arch}: {}", model.name);
            }
            assert!(drivers::of(arch).next().is_some() && nics::of(arch).next().is_some(), "{arch}");
        }
    }

    #[test]
    fn contract_of_every_kind() {
        for (i, kind) in ALL.iter().enumerate() {
            let name = kind.name();
            assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
            assert!(ALL[..i].iter().all(|k| k.name() != name), "{name} twice");
            assert!(!kind.about().is_empty(), "{name}");
            for requirement in kind.requirements() {
                assert!(!requirement.why.is_empty() && !requirement.fix.is_empty(), "{name}: {requirement:?}");
            }
            assert_eq!(find(name).map(GuestKind::name), Some(name));
            // The model says by the name alone what it can do.
            let Some(able) = Kind::find(name) else { panic!("{name} is not in the model's cell/kind.rs") };
            let asks = |shape: Shape| kind.fits(&shape, &vmio_node::fake::Tree::default()).is_err();
            let kernel = Shape { kernel: Some("2.6.32".into()), ..Shape::default() };
            let machine = Shape { machine: Some("q35".into()), ..Shape::default() };
            assert!(asks(kernel), "{name}");
            assert_eq!(asks(machine), able.shares_kernel, "{name}");
        }
        assert!(find("bochs").is_none());
    }
}
