//! Kinds of guests that may run on a host, as seen from outside: nothing here starts, stops or changes one. The guests
//! that vmio starts are in `vmio-rig`, `guests`.
//!
//! Adding a kind: a file with a type that implements [`GuestKind`], and its line in [`ALL`].

use std::path::PathBuf;

use vmio_model::facts::{Guest, HostCpu, Unread};
use vmio_model::rules::change::ConfigTool;
use vmio_model::waterfall::hypervisor::HypervisorCounts;
use vmio_node::Reader;
use vmio_node::linux::cpu;

use crate::host_view::{HostView, Managed};

mod cloud_hypervisor;
mod container;
mod firecracker;
mod process;
pub(crate) mod qemu;
mod quota;
mod seen;
mod xen;

/// All kinds, in the order in which they are shown.
pub const ALL: &[&dyn GuestKind] =
    &[&qemu::Qemu, &firecracker::Firecracker, &cloud_hypervisor::CloudHypervisor, &xen::Xen, &container::Container];

/// The kind of that name.
pub fn find(name: &str) -> Option<&'static dyn GuestKind> {
    ALL.iter().copied().find(|k| k.name() == name)
}

/// A kind of guest that may run here.
pub trait GuestKind: Sync {
    /// Name in results: `qemu`.
    fn name(&self) -> &'static str;
    /// One line for help and docs.
    fn about(&self) -> &'static str;
    /// Tool by which the settings of such a guest are changed, `managed` being its manager's; `None` where vmio knows
    /// none.
    fn way(&self, _managed: Option<ConfigTool>) -> Option<ConfigTool> {
        None
    }
    /// The running guests of this kind, as far as /proc and /sys show them. Fast, and sends nothing to anybody: `top`
    /// calls it repeatedly.
    fn running(&self, host: &HostView<'_>) -> Managed;
    /// Queries a running guest's hypervisor for missing settings, where that takes nothing from others and changes
    /// nothing.
    fn ask(&self, _host: &HostView<'_>, _guest: &mut Guest) {}
    /// What a running guest's hypervisor has counted of its disks, or why it may not be queried; `None` where vmio knows
    /// no such counters.
    fn counts(&self, _host: &HostView<'_>, _guest: &Guest) -> Option<Result<HypervisorCounts, Vec<Unread>>> {
        None
    }
    /// Queries a running guest's hypervisor for what decides on the guest's memory, and no more: its balloon and its
    /// reads. That reads no image.
    ///
    /// # Errors
    /// Why it may not be queried, or did not answer; empty where it has no monitor that vmio knows.
    fn memory(&self, _host: &HostView<'_>, _guest: &mut Guest) -> Result<(), Vec<Unread>> {
        Err(Vec::new())
    }
    /// The socket of a running guest's monitor (QMP), or why it may not be used; `None` where this kind has none. Who looks
    /// does not use it.
    fn monitor(&self, _host: &HostView<'_>, _guest: &Guest) -> Option<Result<PathBuf, Vec<Unread>>> {
        None
    }
}

/// Online processors of the host, by number; empty where /sys does not list them.
fn host_cpus(reader: &dyn Reader) -> Vec<HostCpu> {
    let fact = |c: cpu::Cpu| HostCpu { cpu: c.cpu, core: c.core, package: c.package, node: c.node };
    cpu::online(reader).into_iter().map(fact).collect()
}

#[cfg(test)]
mod tests {
    use vmio_model::cell::Kind;

    use super::*;

    #[test]
    fn contract_of_every_kind() {
        let empty = vmio_node::Fake::new("fake");
        for (i, kind) in ALL.iter().enumerate() {
            let name = kind.name();
            assert!(!name.contains([' ', ',', '/', '+']), "{name}: cell keys use these characters");
            assert!(ALL[..i].iter().all(|k| k.name() != name), "{name} twice");
            assert!(!kind.about().is_empty(), "{name}");
            assert_eq!(find(name).map(GuestKind::name), Some(name));
            assert!(Kind::find(name).is_some(), "{name} is not in the model's cell/kind.rs");
            let managed = kind.running(&HostView::new(&empty));
            assert!(managed.guests.is_empty() && managed.unread.is_empty(), "{name} finds guests on an empty machine");
        }
        assert!(find("bochs").is_none());
    }

    #[test]
    fn a_guest_is_changed_by_its_managers_way_where_that_is_for_it() {
        let by = |kind: &str, managed: Option<ConfigTool>| find(kind).and_then(|kind| kind.way(managed));
        for managed in [None, Some(ConfigTool::Libvirt), Some(ConfigTool::Proxmox)] {
            assert_eq!(by("qemu", managed), managed.or(Some(ConfigTool::Qemu)));
            assert_eq!(by("xen", managed), managed);
            for kind in ["container", "firecracker", "cloud-hypervisor"] {
                assert_eq!(by(kind, managed), None, "{kind}");
            }
        }
    }
}
