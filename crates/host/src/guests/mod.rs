//! Machines that work is measured on: the host itself and guests on it.
//!
//! A guest is launched (then only its owner stops it) or adopted (it runs already and is neither
//! stopped nor changed). It yields a node where commands run in it and, where that can be seen, a
//! handle on its hypervisor.
//!
//! Adding a kind of guest: a file with a type that implements [`GuestKind`], and its line in
//! [`ALL`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vmio_model::result::Accel;
use vmio_model::rules::change::Way;
use vmio_model::setup::Attachment;
use vmio_node::{Journal, Node};

use crate::image::Image;
use crate::look::Look;
use crate::managers::Managed;
use crate::require::Requirement;
use crate::targets::Storage;

mod cloud_hypervisor;
mod container;
mod firecracker;
mod native;
pub mod qemu;
mod seen;
mod xen;

pub use qemu::threads::{Hypervisor, Role, Thread};

/// All kinds of guests, in the order in which they are shown.
pub const ALL: &[&dyn GuestKind] = &[
    &native::Native,
    &qemu::Qemu,
    &firecracker::Firecracker,
    &cloud_hypervisor::CloudHypervisor,
    &xen::Xen,
    &container::Container,
];

/// The kinds that vmio starts, which a study may name.
pub fn launched() -> impl Iterator<Item = &'static dyn GuestKind> {
    ALL.iter().copied().filter(|k| k.launches())
}

/// The kind of that name.
pub fn find(name: &str) -> Option<&'static dyn GuestKind> {
    ALL.iter().copied().find(|k| k.name() == name)
}

/// A kind of guest.
pub trait GuestKind: Sync {
    /// Name in studies and results: `native`, `qemu`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// What this machine must have.
    fn requirements(&self) -> &'static [Requirement] {
        &[]
    }
    /// By what the settings of such a guest are changed, `managed` being its manager's way; `None` where no way that
    /// vmio knows is for it.
    fn way(&self, _managed: Option<Way>) -> Option<Way> {
        None
    }
    /// Starts one and waits until commands can run in it. Kinds that are only looked at refuse.
    fn launch(&self, _ctx: &LaunchCtx<'_>, spec: &GuestSpec) -> Result<Box<dyn Guest>> {
        let reason = format!("vmio starts no guests of kind {}; it only reads running ones", self.name());
        Err(Error::Spec { guest: spec.name.clone(), reason })
    }
    /// Whether [`GuestKind::launch`] starts one: a study may name only these.
    fn launches(&self) -> bool {
        false
    }
    /// The guests of this kind that run here, whoever started them, as far as /proc and /sys show
    /// them. Quick, and nothing is sent to anybody: `top` calls it again and again.
    fn running(&self, _look: &Look<'_>) -> Managed {
        Managed::default()
    }
    /// Asks a running guest's hypervisor for what cannot be seen from outside, where it can be
    /// asked without taking anything from others and without changing anything; fills the gaps.
    fn ask(&self, _look: &Look<'_>, _guest: &mut vmio_model::facts::Guest) {}
}

/// What a launch works with.
pub struct LaunchCtx<'a> {
    /// The host. Its processes belong to `journal`.
    pub node: Arc<dyn Node>,
    /// Takes note of everything that the launch leaves on the host.
    pub journal: Arc<Journal>,
    /// What guests of our own start from; `None` where only the native side is wanted.
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
    /// `cgroup.procs` files of the control groups that the hypervisor joins.
    pub cgroup_procs: Vec<PathBuf>,
    /// Told what is being done, a few times a launch.
    pub progress: &'a dyn Fn(&str),
}

/// A guest to be launched.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestSpec {
    /// Its name in messages, results and paths; unique in the run. Letters, digits, `-`.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Its disks.
    pub disks: Vec<DiskSpec>,
}

/// A disk of a guest. Several disks may lie on the same storage, one for each way to see it; only
/// one of them is used at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskSpec {
    /// How the caller calls it; unique in the guest.
    pub id: String,
    /// What the hypervisor opens. The native side needs one with a path.
    pub storage: Storage,
    /// How the guest sees it. Its driver is one of [`crate::drivers::ALL`]. The native side
    /// uses the path as it is.
    pub attachment: Option<Attachment>,
}

/// A guest that runs.
pub trait Guest: Send {
    /// Where commands run in it.
    fn node(&self) -> Arc<dyn Node>;
    /// Its hypervisor as seen from the host; `None` for the host itself.
    fn hypervisor(&self) -> Option<&Hypervisor>;
    /// Path of a disk in the guest.
    fn disk_path(&self, id: &str) -> Result<PathBuf>;
    /// Settings of each disk as the hypervisor says it has them now, by disk and then by the keys
    /// of [`crate::drivers::effective`]. Empty for the host itself.
    fn effective(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>>;
    /// Puts another disk image under a disk on which nothing is in flight. On success the old one
    /// is closed, with all of its tables written.
    fn exchange(&self, id: &str, _storage: &Storage) -> Result<()> {
        let reason = "this kind of guest cannot exchange images while it runs".to_owned();
        Err(Error::Spec { guest: format!("with disk {id}"), reason })
    }
    /// What really runs it, and why; `None` for the host itself.
    fn accelerator(&self) -> Option<&Accelerator>;
    /// Seconds from the start of the hypervisor to the first answer; `None` for the host itself.
    fn boot_seconds(&self) -> Option<f64>;
    /// For a guest that no longer answers (`seen` says what was seen): ends it if it still runs,
    /// and returns what became of it, with the end of its console.
    fn give_up(&self, seen: &str) -> Error;
    /// Ends it and takes away all that its launch left on the host.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// An accelerator and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Accelerator {
    /// Which.
    pub accel: Accel,
    /// Why, for results.
    pub reason: String,
}

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no guest, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The host or the agent in the guest failed.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
    /// There is no image, or it cannot be read.
    #[error(transparent)]
    Image(#[from] crate::image::Error),
    /// The set-up is wrong.
    #[error("guest {guest}: {reason}")]
    Spec {
        /// Name of the guest.
        guest: String,
        /// What is wrong and what to do.
        reason: String,
    },
    /// A file or socket on the host failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// It did not start, hung, or died. It has been ended.
    #[error("guest {guest} {what}\n{report}")]
    Down {
        /// Name of the guest.
        guest: String,
        /// What was seen.
        what: String,
        /// The end of its console, and what the hypervisor said.
        report: String,
    },
    /// The monitor refused a command or went away.
    #[error("guest {guest}: monitor command {command}: {reason}")]
    Monitor {
        /// Name of the guest.
        guest: String,
        /// Command.
        command: String,
        /// Its answer.
        reason: String,
    },
    /// The host cannot run it.
    #[error("no QEMU on this host (looked for {looked_for}): apt install qemu-system-x86")]
    NoQemu {
        /// Names.
        looked_for: String,
    },
    /// QEMU does not tell its version.
    #[error("{} --version says no version of QEMU's but: {said}", qemu.display())]
    Version {
        /// The program.
        qemu: PathBuf,
        /// Its answer.
        said: String,
    },
    /// No such disk.
    #[error("guest {guest} has no disk {disk}{hint}")]
    NoDisk {
        /// Name of the guest.
        guest: String,
        /// Id that was asked for.
        disk: String,
        /// What was seen instead.
        hint: String,
    },
}

fn file_error(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_of_every_kind() {
        for (i, kind) in ALL.iter().enumerate() {
            let name = kind.name();
            assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
            assert!(ALL[..i].iter().all(|k| k.name() != name), "{name} twice");
            assert!(!kind.about().is_empty(), "{name}");
            for requirement in kind.requirements() {
                assert!(!requirement.why.is_empty() && !requirement.mend.is_empty(), "{name}: {requirement:?}");
            }
            assert_eq!(find(name).map(GuestKind::name), Some(name));
        }
        assert!(find("bochs").is_none());
        let launched: Vec<&str> = launched().map(GuestKind::name).collect();
        assert_eq!(launched, ["native", "qemu"]);
    }

    #[test]
    fn a_guest_is_changed_by_its_managers_way_where_that_is_for_it() {
        let by = |kind: &str, managed: Option<Way>| find(kind).and_then(|kind| kind.way(managed));
        for managed in [None, Some(Way::Libvirt), Some(Way::Proxmox)] {
            assert_eq!(by("qemu", managed), managed.or(Some(Way::Qemu)));
            assert_eq!(by("xen", managed), managed);
            for kind in ["container", "firecracker", "cloud-hypervisor"] {
                assert_eq!(by(kind, managed), None, "{kind}");
            }
        }
    }

    #[test]
    fn a_kind_that_is_only_looked_at_refuses_to_start_one_and_finds_nothing_on_an_empty_machine() {
        let empty = vmio_node::Fake::new("fake");
        for kind in ALL {
            let managed = kind.running(&Look::new(&empty));
            assert!(managed.guests.is_empty() && managed.unread.is_empty(), "{}: {managed:?}", kind.name());
        }
    }
}
